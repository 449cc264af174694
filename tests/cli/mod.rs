//! The command line, as a table, as text, and as the real binary.

mod arbitrary;
mod bad_input;
mod binary;
mod chain;
mod config;
mod doctor;
mod exits;
mod golden;
mod heartbeats;
mod manual;
mod memory;
mod oauth;
mod pipes;
mod readme;
mod recoveries;
mod require;
mod results;
mod schema;
mod settings;
mod spellings;
mod stdin;
mod streams;
mod system;
mod trust;
mod whole;
