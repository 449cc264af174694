//! Facts: reads the state of the machine, without changing or judging it.

mod command;
pub mod hooks;
pub mod install;
pub mod machine;
pub mod profile;
pub mod search;
pub mod servers;
pub mod service;
pub mod shell;
pub mod store;
