//! Hooks: configuration and execution.

mod config;
mod hostile;
mod run;
