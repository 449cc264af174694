//! A fake model server that plays scripts with injected faults and validates every request like the
//! real service.
//!
//! ```text
//! scenario file ─┐                         ┌─ request_validator: rejects as the real service does
//!                ├─► Scenario ─► Server ───┤  script: selects the step that answers
//! builder ───────┘                 ▲       └─ render, play: send the response and inject the fault
//!                          real HTTP requests
//! ```

mod build;
mod builtin;
mod connection;
mod decide;
mod door;
mod file;
mod play;
mod recorded;
mod render;
mod repeat_check;
mod request_validator;
mod rules;
mod scenario;
mod scratch;
mod script;
mod scripted_duration;
mod scripted_values;
mod serve;
mod server;
mod shared_state;
mod sse;
mod token_grants;
mod verdict;

pub use builtin::{ScenarioListing, builtin, builtin_text, list, names};
pub use file::{KeyTable, SCENARIO_TABLES, ScenarioError, ScenarioKey};
pub use recorded::{RecordedScenario, RecordingError};
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
pub use verdict::{ObservedOutcome, verify};
