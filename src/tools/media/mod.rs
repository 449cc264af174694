//! Prepares images and PDFs for the model API: in an accepted format and size, or not at all. A
//! block that the API rejects would make every later request fail, too.

mod file;
mod kind;
mod pages;
mod pdf;
mod picture;

pub use file::prompt_image;
pub(super) use file::{MediaFile, decode_base64, image_block, read};
pub(super) use kind::{MediaKind, detect, detect_named, kind_of_name, unsupported_image_format};
