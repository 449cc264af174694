//! outlast runs a tool-using language model through a task unattended.
//!
//! Layers, top first; each may use only those below it:
//!
//! ```text
//! cli ─► batch · checkout · doctor · host · report · telemetry ─► rehearsal ─► agent ─► model · tools · mcp · hooks · journal ─►
//!     process ─► the crate outlast-core: recovery · secrets · sse · transcript ─► json · types
//! ```

// Runs nest, so the proof that one is `Send` goes deep.
#![recursion_limit = "256"]
#![deny(unsafe_code)]

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

pub use outlast_core::{json, recovery, secrets, sse, transcript, types};
