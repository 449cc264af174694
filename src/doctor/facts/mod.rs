//! Looks at the machine. Nothing is judged here, and nothing is changed.

mod command;
pub mod hooks;
pub mod install;
pub mod machine;
pub mod search;
pub mod servers;
pub mod service;
pub mod shell;
pub mod store;
