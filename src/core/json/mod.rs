//! Reads JSON of other programs leniently, writes JSON lines, and checks references in schemas.
//! Pure.
//!
//! All JSON that other programs write is read by [`read`]: that of hooks, MCP servers, hosts,
//! helper commands, model services and settings files.

mod comment;
mod lines;
mod reader;
mod repair;
mod schema_references;

pub use comment::{is_comment, is_comment_name, uncommented_name};
pub use lines::{escape_line_ends, to_line};
pub use reader::{
    EXACT_MAX, decode, escape_invalid_bytes, read, read_exact, read_str, to_strict, whole,
    whole_number, without_nulls,
};
pub use repair::{NESTING_MAX, STACK_BYTES, value_end};
pub use schema_references::{
    BY_NAME, BadReference, REFERENCES, ReferenceFault, VALUES, check_references, rebase_references,
};
