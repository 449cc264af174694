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
mod file;
mod play;
mod referee;
mod render;
mod scenario;
mod scratch;
mod script;
mod server;
mod sse;
mod stage;
mod verdict;

pub use builtin::{Listing, builtin, list};
pub use file::ScenarioError;
pub use scenario::{
    After, Answer, ApiError, Expect, Fault, Form, Harm, Http, Pace, Place, Reply, Rules, Scenario,
    ScratchFile, Step, Tool, Usage, When,
};
pub use scratch::Scratch;
pub use script::Recorded;
pub use server::{Options, Server};
pub use verdict::{Outcome, verify};
