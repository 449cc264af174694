//! The `oauth` of an entry of `mcpServers`.

use serde_json::Value;

/// The `oauth` of a server's entry. It may hold a secret, and is not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OAuthSettings {
    /// The identifier of a client that was registered beforehand, or the address of its metadata.
    pub client_id: Option<String>,
    /// Its secret. With it, a run needs no login: it requests a token for the client itself.
    pub client_secret: Option<String>,
    /// The port of the address that the authorization server sends the user's browser back to.
    pub callback_port: Option<u16>,
    /// The scopes to request, instead of those that the server names.
    pub scopes: Vec<String>,
    /// The address of the authorization server's metadata, instead of the one that is discovered.
    pub metadata_url: Option<String>,
}

/// The supported keys of `oauth`.
const KEYS: [&str; 5] =
    ["clientId", "clientSecret", "callbackPort", "scopes", "authServerMetadataUrl"];

/// Returns the unsupported keys in the `oauth` of an entry.
pub fn unknown_oauth_keys(entry: &Value) -> Vec<&str> {
    let members = entry["oauth"].as_object();
    let keys = members.into_iter().flatten().map(|(key, _)| key.as_str());
    keys.filter(|key| !KEYS.contains(key)).collect()
}
