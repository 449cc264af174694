//! Who we are to the service. A secret never leaves this module except as a header, in a request
//! for another one, or in the file that it came from.
//!
//! ```text
//! fixed key or token ───────────────────────────────┐
//! helper command ── printed, kept for a while ──────┼─► keyring ─► headers of a request
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
