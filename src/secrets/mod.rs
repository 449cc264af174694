//! Keeps secrets out of what is printed and stored. Pure.
//!
//! ```text
//! values in use ─► KnownSecrets ─┐
//! known key shapes ─► SHAPES ────┴─► Mask ─┬─► whole texts, JSON
//!                                          └─► Stream: text that arrives in pieces
//! ```
//!
//! Everything printed or stored goes through [`Mask::new`]. What goes to the model is masked by
//! [`Mask::toward_model`], which knows the values in use and the tokens that CI systems leave in a
//! checkout, but leaves other keys alone: a model that mends `config.py` has to see what is there,
//! or it would write the mask into the file.

mod distinctive;
mod fit;
mod json;
mod known;
mod mask;
mod pass;
mod shapes;
mod stream;
mod variables;

pub use distinctive::{is_distinctive, is_placeholder};
pub use known::KnownSecrets;
pub use mask::Redactor;
pub use shapes::{PASSWORD_IN_URL, KEY_PATTERNS, KeyPattern};
pub use stream::StreamRedactor;
pub use variables::Variables;

/// What stands in the place of a secret, everywhere.
pub const REDACTED: &str = "[redacted]";
