//! Hosts: programs that drive outlast over standard input and output. These speak the protocol by
//! hand; `sdk/` has the agent SDKs themselves.

mod background;
mod between_turns;
mod driver;
mod elicitation;
mod faults;
mod requests;
mod transcripts;
mod turns;
