//! Sends one request to the model service and returns the reply or the facts of the failure.
//!
//! ```text
//! RequestContent ─request,service─► bytes ─client─► bytes ─service─► events ─assemble─► ModelReply
//!                                             └───────────────fault────────────────► Fault
//! ```
//!
//! Retries and the classification of failures belong to [`recovery`](crate::recovery).

pub mod answer;
pub mod assemble;
mod attempt;
mod base_url;
mod client;
pub mod credentials;
mod endpoint;
mod error_body;
mod event_checks;
pub mod fault;
mod growing_block;
pub mod headers;
mod http2;
mod interface;
mod joined_text;
pub mod limits;
pub mod prices;
mod proxies;
mod reasoning;
mod request;
mod server_verifier;
pub mod service;
pub mod settlement;
pub mod stop_reason;
mod timers;
mod transport;
mod tunnel;
mod web_search;

pub use answer::{MalformedCall, ModelReply, StreamProgress, classify_reply};
pub use base_url::{BaseUrl, EndpointError};
pub use client::probe::{ProbeAnswer, ProbeRefusal};
pub use client::{ModelClient, ProvenEndpoints};
pub use credentials::{
    AwsEndpointError, AwsIdentity, CloudIdentity, Credential, EntraIdentity, GoogleIdentity,
    HelperCommand, Login, LoginError, LoginFile, Renewal, Secret, is_token_endpoint,
};
pub use endpoint::ModelService;
pub use headers::RateLimits;
pub use interface::{Transport, TransportFuture};
pub use prices::{
    ModelFacts, Prices, ShortPrompt, TokenRates, cost, gateway_list_price, is_known, known_names,
    model_facts, resolve_alias, web_search_price,
};
pub use proxies::{BadProxy, Proxies, Proxy};
pub use reasoning::{Reasoning, ThinkingMode};
pub use request::{RequestContent, SerializedParts};
pub use service::{ServiceKind, canonical_name, model_id, region_surcharge};
pub use settlement::{Bounds, Counts, OutputCount, Received, Settlement, settle};
pub use stop_reason::{EndWords, StopKind};
pub use timers::RequestTimers;
pub use transport::{
    CaFile, ConnectionTerms, HttpClientError, IdentityFiles, InvalidBundle, SHORTEST_PROBING,
    USER_AGENT, http_client, web_client,
};
pub use web_search::WebSearch;
