//! Authentication at the model service. A secret leaves this module only as a request header, in a
//! token request, or in the file that it came from.
//!
//! ```text
//! fixed key or token ───────────────────────────────┐
//! helper command ── printed key, cached ─────────────┼─► keyring ─► headers of a request
//! login file ── lock ─ read again ─ grant ─ save ───┘      ▲
//!                                                  rejected by the service
//! ```

mod fault;
mod grant;
mod helper;
mod keyring;
mod lock;
mod login;
mod oauth;
mod secret;
mod store;

pub use grant::is_token_endpoint;
pub use helper::HelperCommand;
pub(super) use keyring::CredentialProvider;
pub use keyring::{Credential, Renewal};
pub use login::{Login, LoginError, LoginFile};
pub use secret::Secret;
