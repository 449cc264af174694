//! Hooks: what settings say of them, and what becomes of them when they run.

mod config;
mod hostile;
mod run;
