//! A fake model server that plays scripts with injected faults and validates every request like the
//! real service.
//!
//! ```text
//! scenario file ─┐                         ┌─ request_validator: rejects as the real service does
//!                ├─► Scenario ─► Server ───┤  script: selects the step that answers
//! builder ───────┘                 ▲       └─ render, response_sender: send the response
//!                          real HTTP requests
//! ```
//!
//! It is independent of outlast: the test of any client of the Messages API can start it on a free
//! port of loopback, send requests, and check the outcome.
//!
//! ```
//! use outlast_rehearsal::{ObservedOutcome, RehearsalServer, Scenario};
//! use outlast_rehearsal::{ScratchFolder, ServerOptions};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::net::TcpStream;
//!
//! const BODY: &str = r#"{
//!     "model": "claude-sonnet-4-5", "max_tokens": 100,
//!     "messages": [{ "role": "user", "content": "Say hello." }]
//! }"#;
//!
//! /// Stands for the client that is tested: the whole response to one request.
//! async fn ask(port: u16) -> std::io::Result<String> {
//!     let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
//!     let request = format!(
//!         "POST /v1/messages HTTP/1.1\r\nanthropic-version: 2023-06-01\r\n\
//!          content-type: application/json\r\nconnection: close\r\n\
//!          content-length: {}\r\n\r\n{BODY}",
//!         BODY.len()
//!     );
//!     stream.write_all(request.as_bytes()).await?;
//!     let mut response = String::new();
//!     stream.read_to_string(&mut response).await?;
//!     Ok(response)
//! }
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let scenario = Scenario::new().status(529).header("retry-after", "1").reply("Hello.");
//!     let scratch = ScratchFolder::create(&scenario)?;
//!     let server = RehearsalServer::start(scenario, ServerOptions::default())?;
//!
//!     // A program would get `server.base_url()`, as its ANTHROPIC_BASE_URL, and `scratch.path()`.
//!     assert!(ask(server.port()).await?.starts_with("HTTP/1.1 529"));
//!     assert!(ask(server.port()).await?.contains("Hello."));
//!
//!     assert_eq!(server.requests().len(), 2);
//!     let (folder, terminal_reason) = (scratch.path(), None);
//!     let outcome = ObservedOutcome { exit: 0, terminal_reason, folder, stderr: None };
//!     // One sentence for each invalid request, unused answer or failed expectation.
//!     assert_eq!(server.verify(&outcome), Vec::<String>::new());
//!     Ok(())
//! }
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod builtin;
mod cloud_protocols;
mod connection;
mod decide;
mod file;
mod outcome_check;
mod render;
mod repeat_check;
mod request_validator;
mod response_sender;
mod rules;
mod scenario;
mod scenario_builder;
mod scratch;
mod script;
mod scripted_duration;
mod scripted_values;
mod serve;
mod server;
mod shared_state;
mod sse;
mod token_grants;

pub use builtin::{ScenarioListing, builtin, builtin_text, list, names};
pub use file::{ScenarioComments, ScenarioError, file_schema};
pub use outcome_check::ObservedOutcome;
pub use render::{error_response, usual_error};
pub use rules::{MediaRules, RejectedContent, ServerRules, Signatures, TokenRules};
pub use scenario::{
    AfterLast, ChunkTiming, Expectation, FaultPosition, MAIN, ReplyForm, Scenario, ScratchFile,
    ScriptStep, ScriptedError, ScriptedFault, ScriptedFaultKind, ScriptedHttp, ScriptedReply,
    ScriptedToolCall, ScriptedUsage, ServerPart, StepAnswer, StepCondition,
};
pub use scratch::ScratchFolder;
pub use script::{ReceivedRequest, RequestRetention, ScriptLine};
pub use server::{RehearsalServer, ServerOptions};
pub use token_grants::TokenGrants;
