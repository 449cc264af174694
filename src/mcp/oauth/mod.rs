//! Access to servers that require an OAuth login. The crate `rmcp` implements the protocol; this
//! module provides its HTTP client, keeps the tokens in files of the user, and renews them: by one
//! process at a time, once for all processes.
//!
//! ```text
//! entry: clientId, clientSecret ─┐
//! outlast mcp login NAME ────────┴► TokenFile ─► AccessTokens ─► headers of a request
//!                                       ▲              │ expired, or 401
//!                                       └── save ── lock, read again, exchange (rmcp)
//! ```

mod access_tokens;
mod client_secret;
mod device;
mod exchange;
mod fault;
mod login;
mod redirect;
mod settings;
mod token_file;
mod token_http;

pub(super) use access_tokens::{AccessTokens, BearerToken};
pub(super) use exchange::{demanded_scope, is_metadata_address};
pub use fault::LoginError;
pub(super) use fault::OAuthFault;
pub use login::{LoginWay, PendingLogin, begin_login};
pub use settings::{OAuthSettings, unknown_oauth_keys};
pub use token_file::{LoginFolder, LoginState};
