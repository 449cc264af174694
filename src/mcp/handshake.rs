//! The first requests of a connection, which determine the version of the protocol and the features
//! of the server.

use serde_json::{Map, Value, json};

use crate::secrets::Redactor;

use super::call_error::{ExchangeFault, RequestFault};
use super::peer::Peer;
use super::rpc::{
    HEADER_MISMATCH, INVALID_REQUEST, METHOD_NOT_FOUND, RpcError, UNSUPPORTED_PROTOCOL_VERSION,
};
use super::sanitize::sanitize_start;
use super::state::ServerIdentity;

/// The versions of the protocol with a handshake, newest first. A server may answer the newest with
/// an older one.
const HANDSHAKE_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The version of the protocol without a handshake.
const STATELESS_VERSION: &str = "2026-07-28";

/// The information that a server declares about itself during the handshake.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerInfo {
    pub(super) has_tools: bool,
    pub(super) has_resources: bool,
    pub(super) has_prompts: bool,
    pub(super) identity: Option<ServerIdentity>,
    /// Its usage instructions for the model.
    pub(super) instructions: Option<String>,
}

/// The first requests of a connection: with or without a handshake.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lifecycle {
    /// With an `initialize` handshake, as nearly all servers expect.
    Handshake,
    /// Without one: each request states its protocol version.
    Stateless,
}

/// Returns true if a fault of the first request may be about the lifecycle.
pub(super) fn rejects(lifecycle: Lifecycle, fault: &RequestFault) -> bool {
    // Over HTTP, requests without a handshake carry the version in a header.
    let codes = [METHOD_NOT_FOUND, INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION, HEADER_MISMATCH];
    match lifecycle {
        Lifecycle::Handshake => {
            matches!(fault, RequestFault::Refused(error) if codes.contains(&error.code))
        }
        Lifecycle::Stateless => {
            let RequestFault::Exchange(fault) = fault else { return true };
            let needs_login =
                matches!(fault, ExchangeFault::NeedsAuth(_) | ExchangeFault::MissingScope(_));
            !needs_login && !matches!(fault, ExchangeFault::NotSent(_) | ExchangeFault::Barred(_))
        }
    }
}

/// Sends the first requests. Returns the information that the server declares about itself.
pub(super) async fn handshake(
    peer: &Peer,
    lifecycle: Lifecycle,
    redactor: &Redactor,
) -> Result<ServerInfo, RequestFault> {
    let client = json!({ "name": "outlast", "version": env!("CARGO_PKG_VERSION") });
    // Only a host has a user to ask, and none has a model to offer: no sampling.
    let mut abilities = json!({ "roots": {} });
    if let Some(elicitation) = peer.elicitor().capability() {
        abilities["elicitation"] = elicitation;
    }
    let answer = match lifecycle {
        Lifecycle::Handshake => initialize(peer, &client, &abilities).await?,
        Lifecycle::Stateless => discover(peer, client, abilities).await?,
    };
    peer.set_connected();
    Ok(server_info(&answer, redactor))
}

/// Agrees on a version. If a server refuses the newest version and lists the supported ones, the
/// newest of those is requested.
async fn initialize(peer: &Peer, client: &Value, abilities: &Value) -> Result<Value, RequestFault> {
    let ask = |version: &str| {
        let params = json!({
            "protocolVersion": version,
            "capabilities": abilities,
            "clientInfo": client,
        });
        peer.request("initialize", params)
    };
    let [newest, older @ ..] = HANDSHAKE_VERSIONS;
    let (answer, asked) = match ask(newest).answer().await {
        Err(RequestFault::Refused(error)) => {
            let version = older.into_iter().find(|version| error.supports(version));
            let Some(version) = version else { return Err(RequestFault::Refused(error)) };
            (ask(version).answer().await?, version)
        }
        answer => (answer?, newest),
    };
    if !answer.is_object() {
        return Err(RequestFault::Mismatch);
    }
    // A server that names no version has not refused the one that was asked for.
    peer.transport().set_version(answer["protocolVersion"].as_str().unwrap_or(asked));
    match peer.notify("notifications/initialized").await {
        // Servers without a handler of it refuse it. Whether they serve is shown by a request.
        Ok(()) | Err(RequestFault::Exchange(ExchangeFault::Status(..))) => {}
        Err(fault) => return Err(fault),
    }
    peer.set_context(Map::new());
    peer.transport().listen();
    Ok(answer)
}

/// Requests the features of the server, in the protocol without a handshake.
async fn discover(peer: &Peer, client: Value, abilities: Value) -> Result<Value, RequestFault> {
    let mut context = Map::new();
    let mut state = |name: &str, value: Value| {
        context.insert(format!("io.modelcontextprotocol/{name}"), value);
    };
    state("protocolVersion", json!(STATELESS_VERSION));
    state("clientInfo", client);
    state("clientCapabilities", abilities);
    peer.set_context(context);
    let discover = || peer.request("server/discover", json!({}));
    let answer = match discover().answer().await {
        // The refusal may list this very version as supported.
        Err(RequestFault::Refused(RpcError { code: UNSUPPORTED_PROTOCOL_VERSION, .. })) => {
            discover().answer().await?
        }
        answer => answer?,
    };
    let versions = answer["supportedVersions"].as_array();
    if !versions.is_some_and(|versions| versions.contains(&json!(STATELESS_VERSION))) {
        return Err(RequestFault::Mismatch);
    }
    Ok(answer)
}

fn server_info(answer: &Value, redactor: &Redactor) -> ServerInfo {
    let server = &answer["serverInfo"];
    let field = |name: &str| server[name].as_str().map(|text| sanitize_start(text, redactor));
    let identity = field("name").map(|name| {
        let version = field("version").unwrap_or_default();
        ServerIdentity { name, version }
    });
    // Some servers write `true` for an object.
    let offers = |name: &str| {
        let offer = &answer["capabilities"][name];
        offer.is_object() || *offer == true
    };
    let instructions = answer["instructions"].as_str();
    ServerInfo {
        identity,
        has_tools: offers("tools"),
        has_resources: offers("resources"),
        has_prompts: offers("prompts"),
        instructions: instructions.filter(|text| !text.trim().is_empty()).map(ToOwned::to_owned),
    }
}
