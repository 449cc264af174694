//! Names the rate limit of a request. Runs share a limit if they use the same service, the same key
//! and a model of the same family.

use reqwest::Url;
use sha2::{Digest, Sha256};

use crate::text::hex;

use super::super::credentials::Credential;
use super::super::endpoint::ModelService;

/// A hash of a service and a key. It is never displayed, and no file name depends on the key alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AccountKey([u8; 32]);

/// Families whose models share a limit, whatever their version.
const FAMILIES: [&str; 3] = ["opus", "sonnet", "haiku"];

impl AccountKey {
    pub(crate) fn new(endpoint: &ModelService, url: &Url) -> Self {
        let (kind, key) = match &endpoint.credential {
            Credential::None => ("none", String::new()),
            Credential::ApiKey(secret) => ("key", secret.reveal().to_owned()),
            Credential::Bearer(secret) | Credential::OAuthToken(secret) => {
                ("bearer", secret.reveal().to_owned())
            }
            // The key or token changes; the command or file that it comes from does not.
            Credential::Helper(command) => ("helper", command.command.clone()),
            Credential::OAuth { file, .. } => ("login", file.path.display().to_string()),
            Credential::FoundryKey(secret) => ("foundry", secret.reveal().to_owned()),
            Credential::Cloud(identity) => ("cloud", identity.key()),
        };
        let mut hash = Sha256::new();
        let mut add = |piece: &str| {
            hash.update((piece.len() as u64).to_le_bytes());
            hash.update(piece);
        };
        for piece in ["outlast limits", url.as_str(), kind, &key] {
            add(piece);
        }
        // The service may authenticate by a header that the user configured.
        for (name, value) in &endpoint.extra_headers {
            let name = name.trim().to_ascii_lowercase();
            if ["authorization", "x-api-key", "api-key"].contains(&name.as_str()) {
                add(&name);
                add(value.trim());
            }
        }
        Self(hash.finalize().into())
    }

    /// Returns the file name of a model's rate limit.
    pub(crate) fn limit_of(self, model: &str) -> String {
        let hash = Sha256::new().chain_update(self.0).chain_update(family(model)).finalize();
        hex(&hash[..16])
    }
}

/// The model's family: a known one, or the model name without its date.
fn family(model: &str) -> String {
    let model = model.to_ascii_lowercase();
    if let Some(family) = FAMILIES.iter().find(|family| model.contains(**family)) {
        return (*family).to_owned();
    }
    let is_date = |end: &str| end.len() == 8 && end.bytes().all(|byte| byte.is_ascii_digit());
    match model.rsplit_once('-') {
        Some((name, end)) if is_date(end) || end == "latest" => name.to_owned(),
        Some(_) | None => model,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::credentials::Secret;
    use super::*;

    fn limit(url: &str, credential: Credential, headers: &[(&str, &str)], model: &str) -> String {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let extra_headers = headers.iter().map(own).collect();
        let endpoint = ModelService { extra_headers, ..ModelService::new(url, credential) };
        let url = endpoint.url().expect("it is an address");
        AccountKey::new(&endpoint, &url).limit_of(model)
    }

    #[test]
    fn a_limit_is_named_by_service_key_and_model_family() {
        let key = |key: &str| Credential::ApiKey(Secret::new(key));
        let url = "https://api.example.com";
        let one = limit(url, key("sk-1"), &[], "claude-opus-4-20250514");
        assert_eq!(one, limit(url, key("sk-1"), &[("X-Job", "7")], "claude-opus-latest"));
        assert_eq!(one.len(), 32);
        for other in [
            limit("https://api.example.org", key("sk-1"), &[], "claude-opus-4"),
            limit(url, key("sk-2"), &[], "claude-opus-4"),
            limit(url, Credential::Bearer(Secret::new("sk-1")), &[], "claude-opus-4"),
            limit(url, key("sk-1"), &[("X-Api-Key", "sk-3")], "claude-opus-4"),
            limit(url, key("sk-1"), &[], "claude-sonnet-4"),
        ] {
            assert_ne!(one, other);
        }
        assert_eq!(family("Qwen3-20250101"), "qwen3");
        assert_eq!(family("gpt-oss-120b"), "gpt-oss-120b");
    }
}
