//! Servers of the Model Context Protocol, which offer further tools to the model.
//!
//! Each server has its own task that connects to it, watches it, and reconnects when it is lost. A
//! failing server fails single calls, never a run:
//!
//! ```text
//! Servers ─► Member (a state machine, in a task) ─► Link (one connection, through rmcp)
//!                                                      ├─ stdio: a program of the supervisor's
//!                                                      └─ HTTP: the client that was given
//! ```

mod calls;
mod config;
mod content;
mod ear;
mod link;
mod member;
mod miss;
mod offer;
mod quote;
mod refs;
mod resources;
mod schema;
mod servers;
mod state;
mod stdio;

pub use config::{ServerConfig, ServerAddress, expand};
pub use content::{ContentPart, CallReply};
pub use offer::tool_name_prefix;
pub use servers::{CallPermission, HttpClientFactory, Servers, ServerEnvironment, McpTimers};
pub use state::{ServerReport, ServerStatus, McpStats};
