//! Fetches pages of the web for the model: without anybody's credentials, from the open internet
//! only, and never more of them than can be read.

mod address;
mod fetch;
mod guard;
mod html;
mod page;
mod settings;
mod sink;
mod target;
mod visit;

pub use settings::{MakeClient, WebClient, WebSettings};
pub(super) use visit::{WebFetcher, requested_access, fetch};
