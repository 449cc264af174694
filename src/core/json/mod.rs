//! JSON of other programs, read leniently, and JSON lines for them. Pure.
//!
//! Everything that another program writes is read by [`read`]: hooks, MCP servers, hosts, helpers, the model's
//! services, settings files.

mod lines;
mod reader;
mod repair;

pub use lines::{escape_line_ends, to_line};
pub use reader::{decode, read, read_str, to_strict};
pub use repair::{NESTING_MAX, STACK_BYTES, value_end};
