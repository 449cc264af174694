//! Hooks: configuration and execution.

mod config;
mod hostile_hooks;
mod run;
