//! Hooks: configuration and execution.

mod callbacks;
mod config;
mod hostile_hooks;
mod run;
