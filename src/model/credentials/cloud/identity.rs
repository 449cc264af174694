//! The identity of a run at a cloud.

use super::aws_identity::AwsIdentity;
use super::entra::{EntraIdentity, azure_command};
use super::google::GoogleIdentity;

/// The source of the credentials of a cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudIdentity {
    Aws(AwsIdentity),
    Google(GoogleIdentity),
    Entra(EntraIdentity),
}

impl CloudIdentity {
    /// The kind of identity, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Aws(_) => "AWS credentials",
            Self::Google(_) => "Google application default credentials",
            Self::Entra(_) => "Microsoft Entra identity",
        }
    }

    /// The source of the identity, for messages.
    pub fn source(&self) -> String {
        match self {
            Self::Aws(aws) => aws.describe(),
            Self::Google(google) => google.describe(),
            Self::Entra(entra) => entra.describe(),
        }
    }

    /// The commands of the user that fetch its tokens or renew its login.
    pub(super) fn commands(&self) -> Vec<String> {
        match self {
            Self::Aws(aws) => aws.commands(),
            Self::Google(google) => google.command().into_iter().collect(),
            Self::Entra(_) => vec![azure_command()],
        }
    }

    /// Disables the storage of tokens and the command that logs in.
    pub fn keep_unchanged(&mut self) {
        match self {
            Self::Aws(aws) => {
                aws.cache = None;
                aws.auth_refresh = None;
            }
            Self::Google(google) => google.cache = None,
            Self::Entra(entra) => entra.cache = None,
        }
    }

    /// A key that distinguishes identities, for rate limits that runs share and for cached tokens.
    /// It contains no secret.
    pub fn key(&self) -> String {
        let detail = match self {
            Self::Aws(_) => String::new(),
            Self::Google(google) => google.fingerprint(),
            Self::Entra(entra) => entra.fingerprint(),
        };
        format!("{}: {} {detail}", self.kind(), self.source())
    }
}
