//! Types that several layers share, each with one table of what is known about its variants. Pure.

pub mod exit_code;

mod error_class;
mod stop_reason;

pub use error_class::{ErrorClass, ErrorClassInfo, ProbeFinding, SubagentOutlook};
pub use stop_reason::{Interrupt, StopReason, StopReasonInfo};
