//! Every test in one binary, so that a change links once.

#![deny(unsafe_code)]

mod agent;
mod batch;
mod cli;
mod doctor;
mod dropin;
mod hooks;
mod host;
mod hostile;
mod journal;
mod json;
mod manual;
mod map;
mod mcp;
mod recovery;
mod rehearsal;
mod sdk;
mod secrets;
mod support;
mod tidy;
mod tools;
mod transcript;
mod trials;
mod wire;
