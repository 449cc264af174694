//! outlast runs a tool-using language model through a task unattended.
//!
//! Layers, top first. A layer may use only the layers below it:
//!
//! ```text
//! cli ─► batch · checkout · doctor · host · report · telemetry ─► messages ─► agent ─►
//!     config · history ─► model · tools · mcp · hooks · journal ─► connect_error · response_body ─►
//!     process · rehearsal (the crates outlast-process and outlast-rehearsal) ─►
//!     the crate outlast-core: pacing · recovery · secrets · sse · transcript ─► json · text · types
//! ```

// Sub-agents make runs recursive, so the compiler's check that a run is `Send` nests deeply.
#![recursion_limit = "256"]
#![forbid(unsafe_code)]

pub mod cli;

pub mod batch;
pub mod checkout;
pub mod doctor;
pub mod host;
pub mod report;
pub mod telemetry;

pub mod messages;

pub mod agent;

pub mod config;
pub mod history;

pub mod hooks;
pub mod journal;
pub mod mcp;
pub mod model;
pub mod tools;

pub mod connect_error;
pub mod response_body;

pub use outlast_core::{json, pacing, recovery, secrets, sse, text, transcript, types};
pub use outlast_process as process;
pub use outlast_rehearsal as rehearsal;
