//! The conversation, and nothing else: what it is made of, whether the API would accept it, and
//! how large it is. Pure: no I/O, no clock.

mod measure;
mod message;
mod repair;
mod validity;

pub use measure::{History, Meter, fixed_bytes};
pub use message::{Block, Message, Role, ToolCall, ToolDefinition, Usage};
pub use repair::{
    Mend, OUTCOME_UNKNOWN, Repair, answer_calls, last_text, repair, repair_history, strip_thinking,
};
pub use validity::{Flaw, Rule, Violation, faults_of_a_history, violations};
