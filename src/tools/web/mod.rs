//! The `WebFetch` tool: fetches pages from the public internet, without credentials, up to a size
//! limit.

mod address;
mod address_guard;
mod fetch;
mod html;
mod page;
#[cfg(test)]
mod rebinding;
mod settings;
mod unpack;
mod url_check;
mod web_fetch;

pub(super) use address::private_network;
pub(super) use address_guard::SystemResolver;
#[cfg(test)]
pub(super) use rebinding::Rebinding;
pub use settings::{FetchSettings, MakeClient, WebClient, WebClientError, WebSettings};
pub(super) use web_fetch::{WebFetcher, fetch, requested_host};
