//! Decides whether a tool call is allowed.
//!
//! Deny rules come first, then ask rules, then the mode and the allow rules; how specific a rule is
//! does not matter. An unattended run has no user to ask, so an ask rule denies, with a reason that
//! says how to allow the call. Paths are resolved by the caller, or through a callback.

mod chores;
mod command;
mod document;
mod domain;
mod effort;
mod errand;
mod files;
mod flags;
mod footing;
mod judge;
mod mode;
mod naming;
mod paths;
mod reading;
mod rule;
mod script;
mod sed;
mod shred;
mod teller;
mod test;
mod tree;
mod wrapper;

pub(super) use chores::exit_code_1_is_a_result;
pub(super) use command::only_reads;
pub(super) use domain::{Domain, host_of};
pub(super) use judge::{Access, Permissions};
pub use mode::PermissionMode;
pub use naming::{ToolName, classify_tool_name};
pub(super) use rule::RuleList;
pub use rule::{anchor_rule, check_allowance, check_restriction, split_rules};
