//! Types that several layers share, each with one table of the properties of its variants. Pure.

pub mod exit_code;

mod agent_limits;
mod call_permission;
mod callback;
mod error_class;
mod host_channel;
mod modes;
mod read_file;
mod rejected_content;
mod stop_reason;

pub use agent_limits::AgentLimits;
pub use call_permission::{CallPermission, ToolPolicy};
pub use callback::Callback;
pub use error_class::{ErrorClass, ErrorClassInfo, FailureOrigin, ProbeFinding, SubagentOutlook};
pub use host_channel::{
    Elicitation, ElicitationMode, HostChannel, HostError, HostReply, HostRequest,
};
pub use modes::{
    AccountKind, ChildEnvironment, Effort, OnDenied, PermissionMode, PermissionPrompt, SandboxMode,
    ThinkingDisplay, ToolSearchMode,
};
pub use read_file::{FileStamp, ReadFile};
pub use rejected_content::{BlockPath, RejectedContent};
pub use stop_reason::{Interrupt, StopReason, StopReasonInfo};
