//! Pictures and PDFs, as the model's service takes them: whole, of a kind and size that it takes,
//! or not at all. A block that the service refuses would be refused again with every later request.

mod file;
mod kind;
mod pages;
mod pdf;
mod picture;

pub(super) use file::{MediaFile, read, image_block};
pub(super) use kind::{MediaKind, unsupported_image_format, detect, kind_of_name};
