//! Parses the address of a service.

use reqwest::Url;

use crate::text::without_quotes;

use super::proxies::{BadProxy, percent_decode};
use super::transport::CaFile;

/// A parsed base URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    url: Url,
}

impl BaseUrl {
    /// Parses a base URL, with or without `/v1/messages` at its end.
    ///
    /// # Errors
    /// The URL is invalid, or its scheme is not HTTP.
    pub fn parse(base_url: &str) -> Result<Self, EndpointError> {
        let Self { mut url } = Self::parse_whole(base_url)?;
        let base = url.path().trim_end_matches('/');
        let base = base.strip_suffix("/messages").unwrap_or(base);
        let base = base.strip_suffix("/v1").unwrap_or(base).to_owned();
        url.set_path(&base);
        Ok(Self { url })
    }

    /// Parses a base URL whose path is used as it is.
    pub(super) fn parse_whole(base_url: &str) -> Result<Self, EndpointError> {
        let wrong = |reason: &str| EndpointError::BaseUrl { reason: reason.to_owned() };
        let mut url =
            Url::parse(without_quotes(base_url)).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("it must begin with http:// or https://"));
        }
        url.set_fragment(None);
        Ok(Self { url })
    }

    /// Scheme, host and port: they determine where data is sent.
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// The normalised base URL, without user, password and query.
    pub fn base(&self) -> String {
        format!("{}{}", self.origin(), self.url.path().trim_end_matches('/'))
    }

    /// True if the URL also has a user, a password or a query.
    pub fn has_credentials_or_query(&self) -> bool {
        let user = !self.url.username().is_empty() || self.url.password().is_some();
        user || self.url.query().is_some()
    }

    /// The password, or a user without one, both encoded and decoded, for redaction.
    pub fn secrets(&self) -> Vec<String> {
        let secret = self.url.password().unwrap_or(self.url.username());
        if secret.is_empty() {
            return Vec::new();
        }
        vec![percent_decode(secret), secret.to_owned()]
    }

    pub(super) fn whole_url(&self) -> Url {
        self.url.clone()
    }

    pub(super) fn messages_url(&self) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/v1/messages", self.url.path().trim_end_matches('/')));
        url
    }
}

/// An invalid endpoint setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("the base URL is wrong: {reason}")]
    BaseUrl { reason: String },
    #[error("certificate file {file}: {reason}")]
    CaFile { file: CaFile, reason: String },
    #[error(transparent)]
    Proxy(BadProxy),
    #[error("header `{name}` has a name or value that cannot be sent")]
    Header { name: String },
    #[error("the credential has characters that cannot be sent in a header")]
    Credential,
}
