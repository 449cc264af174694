//! Servers of the Model Context Protocol, which offer further tools to the model.
//!
//! Each server has its own task that connects to it, watches it, and reconnects when it is lost. A
//! failing server fails single calls, never a run:
//!
//! ```text
//! Servers ─► ServerTask (keeps it connected) ─► Connection ─► Peer (matches answers) ─► Transport
//!                                                      ├─ stdio: the pipes of a program
//!                                                      ├─ HTTP, of both versions: ServerClient
//!                                                      └─ host: requests to the host of the run
//! ```

mod call_error;
mod calls;
mod config;
mod connection;
mod content;
mod elicitation;
mod environment;
mod handshake;
mod headers_helper;
mod host;
mod http;
mod oauth;
mod peer;
mod prompts;
mod remote_prompt;
mod remote_tool;
mod request_headers;
mod required;
mod resources;
mod rpc;
mod sanitize;
mod schema;
mod schema_drafts;
mod server_changes;
mod server_client;
mod server_output;
mod server_task;
mod servers;
mod sse_transport;
mod state;
mod stdio;
mod transport;

pub use config::{
    HttpAddress, HttpKind, ServerAddress, ServerConfig, ServerConfigError, expand,
    ineffective_keys, is_disabled, mistyped_keys, server_list, tool_names_key,
};
pub use content::{CallReply, ContentPart};
pub use environment::{
    HttpClientFactory, HttpClientFailure, LoginEnvironment, McpTimers, ServerEnvironment,
};
pub use oauth::{
    LoginError, LoginFolder, LoginState, LoginWay, OAuthSettings, PendingLogin, begin_login,
    unknown_oauth_keys,
};
pub use prompts::PromptError;
pub use remote_tool::{call_prefixes, tool_name_prefix};
pub use required::RequiredServerError;
pub use server_changes::ServerChangeError;
pub use servers::Servers;
pub use state::{McpStats, ServerIdentity, ServerReport, ServerStatus};
