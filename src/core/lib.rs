//! The pure part of outlast: what a run decides, and the values that it decides on.
//!
//! Nothing here does I/O, reads a clock or uses randomness; the dependencies offer none of it. Layers,
//! top first: recovery · secrets · sse · transcript ─► json · types.

#![forbid(unsafe_code)]

pub mod json;
pub mod recovery;
pub mod secrets;
pub mod sse;
pub mod transcript;
pub mod types;
