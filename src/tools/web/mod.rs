//! The WebFetch tool: fetches pages from the public internet, without credentials, up to a size
//! limit.

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
