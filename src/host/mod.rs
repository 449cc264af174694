//! The protocol of a host: a program that drives outlast over standard input and output, with one
//! JSON object on each line. The turns themselves are in `cli/host/session.rs`.

mod channel;
mod dialect;
mod fields;
mod frame;
mod initialize;
mod input;
mod prompt;

pub use channel::{FrameWriter, PendingRequests, SessionState, StateReporter, SystemWriter};
pub use dialect::{
    api_error_message, ends_as_asked, exit_code_for_hosts, exit_code_of_result_for_hosts,
    result_for_hosts,
};
pub use fields::FrameError;
pub use frame::{ControlRequest, HostFrame, control_error, control_success, parse};
pub use initialize::Initialize;
pub use input::{HostInput, LINE_BYTES_MAX, read_lines};
pub use prompt::UserPrompt;
