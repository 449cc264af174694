//! A model server that plays scripts, faults included, and judges every request as the real
//! service would.
//!
//! ```text
//! scenario file ─┐                         ┌─ referee: would the real service accept this?
//!                ├─► Scenario ─► Server ───┤  script:  whose turn is it?
//! builder ───────┘                 ▲       └─ render:  what goes on the wire, and where it breaks
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

pub use builtin::{Listing, builtin, list};
pub use file::ScenarioError;
pub use grants::Grants;
pub use rules::{MediaRules, Poison, Rules, Signatures, TokenRules};
pub use scenario::{
    After, Answer, ApiError, Expect, Fault, Form, Harm, Http, MAIN, Pace, Part, Place, Reply,
    Scenario, ScratchFile, Step, Tool, Usage, When,
};
pub use scratch::Scratch;
pub use script::{Line, Recorded};
pub use server::{Options, Server};
pub use verdict::{Outcome, verify};
