//! The pure part of outlast: the decisions of a run, and the values that they depend on.
//!
//! Nothing here does I/O, reads a clock or uses randomness; the dependencies offer none of it.
//! Layers, top first: pacing · recovery · secrets · sse · transcript ─► json · text · types.

#![forbid(unsafe_code)]

pub mod json;
pub mod pacing;
pub mod recovery;
pub mod secrets;
pub mod sse;
pub mod text;
pub mod transcript;
pub mod types;
