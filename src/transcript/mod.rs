//! The conversation, and nothing else: what it is made of, whether the API would accept it, and
//! how large it is. Pure: no I/O, no clock.

mod message;

pub use message::{Block, Message, Role, ToolCall, ToolDefinition, Usage};
