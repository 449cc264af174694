//! A fake model server that plays scripts with injected faults and validates every request like the
//! real service.
//!
//! ```text
//! scenario file ─┐                         ┌─ referee: would the real service accept the request?
//!                ├─► Scenario ─► Server ───┤  script:  which step answers?
//! builder ───────┘                 ▲       └─ render:  the response bytes, and the injected fault
//!                          real HTTP requests
//! ```

mod build;
mod builtin;
mod connection;
mod decide;
mod file;
mod grants;
mod play;
mod referee;
mod refusal;
mod render;
mod rules;
mod scenario;
mod scratch;
mod script;
mod server;
mod span;
mod sse;
mod stage;
mod verdict;

pub use builtin::{ScenarioListing, builtin, list};
pub use file::ScenarioError;
pub use grants::TokenGrants;
pub use rules::{MediaRules, PoisonedBlock, ServerRules, Signatures, TokenRules};
pub use scenario::{
    AfterLast, StepAnswer, ScriptedError, Expectation, ScriptedFault, ReplyForm, ScriptedFaultKind, ScriptedHttp, MAIN, SendPace, ServerPart, FaultPosition, ScriptedReply,
    Scenario, ScratchFile, ScriptStep, ScriptedToolCall, ScriptedUsage, StepCondition,
};
pub use scratch::ScratchFolder;
pub use script::{ScriptLine, ReceivedRequest};
pub use server::{ServerOptions, RehearsalServer};
pub use verdict::{ObservedOutcome, verify};
