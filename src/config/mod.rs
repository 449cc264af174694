//! Settings: a registry of all of them, read from files, variables and flags, and folded to the
//! values in force, each with its source.
//!
//! ```text
//! settings (rows) ─► registry ─► flags · variables · file ─► fold ─► Config, provenance
//! ```
//! Managed files outrank everything. Flags outrank `--settings`, `--settings` outranks variables,
//! and those outrank the files: the repository's over the user's, as far as the repository is
//! trusted.

pub mod clouds;
pub mod environment;
pub mod fields;
pub mod file;
pub mod first_reading;
pub mod flags;
pub mod fold;
pub mod kinds;
pub mod known_variables;
pub mod managed;
pub mod model_entry;
pub mod models;
pub mod redact;
pub mod registry;
pub mod repository;
pub mod rule_names;
pub mod schema;
pub mod settings;
pub mod spans;
pub mod trust;
pub mod values;
pub mod variables;

mod check;
mod command_words;
mod comments;
mod declare;
mod memory_size;
mod named_scripts;
mod sandbox_mode;
mod schema_parts;
mod setting;
mod strictness;
mod switches;
mod tool_search;
mod unknown_keys;
mod variable_readers;

use std::fmt;

pub use check::{syntax_error, without_position};
pub use comments::{is_inline, written_json};
pub use memory_size::MemorySize;
pub use setting::{KeptAs, Setting};
pub use settings::Config;
pub use tool_search::ToolSearch;
pub use values::{format_duration, format_elapsed, format_took};

/// A mistake in a setting, with its position, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl ConfigError {
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}
