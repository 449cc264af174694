//! The identities of clouds: their sources, and the tokens and keys that they are exchanged for.
//!
//! ```text
//! variables, files, metadata servers ──► AwsIdentity ────┐
//! application default credentials ─────► GoogleIdentity ─┼─fetch─► CloudToken ─► CloudLogin
//! client secret, federated token ──────► EntraIdentity ──┘            ▲            │
//!                                                        cache of the host, under a lock
//! ```

mod aws_endpoint;
mod aws_exchange;
mod aws_files;
mod aws_identity;
mod aws_sso;
mod command;
mod entra;
mod google;
mod google_exchange;
mod google_program;
mod identity;
mod login;
mod signer;
mod token;
mod token_http;

pub use aws_endpoint::AwsEndpointError;
pub use aws_identity::AwsIdentity;
pub use entra::EntraIdentity;
pub use google::GoogleIdentity;
pub use identity::CloudIdentity;
pub(super) use login::CloudLogin;
pub(super) use signer::sign_request;
pub(super) use token::TokenKind;
pub(super) use token_http::{TokenContext, TokenHttp};
