//! Redacts secrets in everything that is printed or stored. Pure.
//!
//! ```text
//! known values ──► KnownSecrets ─┐
//! KEY_PATTERNS ──────────────────┴─► Redactor ─┬─► whole texts, JSON
//!                                              └─► StreamRedactor: text that arrives in pieces
//! ```
//!
//! All output and stored text goes through [`Redactor::new`]. Text sent to the model goes through
//! [`Redactor::for_model`], which redacts only known values and the tokens that CI systems leave in
//! a checkout: a model that edits `config.py` must see its keys, or it would write the placeholder
//! into the file.

mod byte_classes;
mod distinctive;
mod json;
mod known;
mod matcher;
mod patterns;
mod prefixes;
mod redactor;
mod spellings;
mod stream;
mod stream_pass;
mod variables;

pub use distinctive::{is_distinctive, is_placeholder};
pub use known::KnownSecrets;
pub use patterns::{KEY_PATTERNS, KeyPattern, PASSWORD_IN_URL};
pub use redactor::Redactor;
pub use stream::StreamRedactor;
pub use variables::Variables;

/// The placeholder for every secret.
pub const REDACTED: &str = "[redacted]";
