//! Authentication at the model service. A secret leaves this module only as a request header, in a
//! token request, or in the file that it came from.
//!
//! ```text
//! fixed key or token ───────────────────────────────┐
//! helper command ── printed key, cached ─────────────┼─► provider ─► headers of a request
//! login file ── lock ─ read again ─ grant ─ save ────┤     ▲
//! identity of a cloud ── lock ─ exchange ─ share ────┘     │
//!                                                  rejected by the service
//! ```

mod cloud;
mod credential;
mod fault;
mod files;
mod grant;
mod helper;
mod login;
mod oauth;
mod provider;
mod secret;
mod store;

pub use cloud::{AwsEndpointError, AwsIdentity, CloudIdentity, EntraIdentity, GoogleIdentity};
pub use credential::{Credential, Renewal};
pub use grant::is_token_endpoint;
pub use helper::HelperCommand;
pub use login::{Login, LoginError, LoginFile};
pub(super) use provider::CredentialProvider;
pub use secret::Secret;
