//! outlast runs a tool-using language model through a task unattended.
//!
//! Layers, top first; each may use only those below it:
//!
//! ```text
//! cli ─► batch · checkout · doctor · host · report · telemetry ─► rehearsal ─► agent ─► model · tools · mcp · hooks · journal ─►
//!     process ─► the pure ones: recovery · secrets · sse · transcript ─► embedded · json · task · types
//! ```

// Runs nest, so the proof that one is `Send` goes deep.
#![recursion_limit = "256"]

pub mod cli;

pub mod batch;
pub mod checkout;
pub mod doctor;
pub mod host;
pub mod report;
pub mod telemetry;

pub mod rehearsal;

pub mod agent;

pub mod config;
pub mod history;

pub mod hooks;
pub mod journal;
pub mod mcp;
pub mod model;
pub mod tools;

pub mod process;

pub mod recovery;
pub mod secrets;
pub mod sse;
pub mod transcript;

pub mod embedded;
pub mod json;
pub mod task;
pub mod types;
