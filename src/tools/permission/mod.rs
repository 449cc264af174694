//! Decides whether a tool call is allowed.
//!
//! Deny rules come first, then ask rules, then the mode and the allow rules; how specific a rule is
//! does not matter. An unattended run has no user to ask, so an ask rule denies, with a reason that
//! says how to allow the call. Paths are resolved by the caller, or through a callback.

mod bracket_test;
mod call_check;
mod command;
mod command_check;
mod cwd_tracker;
mod denial;
mod document;
mod domain;
mod exec_programs;
mod fallback_tokens;
mod files;
mod flags;
mod grammar;
mod known_commands;
mod paths;
mod rule;
mod rule_error;
mod sed;
mod shell_parse;
mod splitter;
mod tool_name;
mod work_budget;
mod wrapper;

pub(super) use call_check::{Access, Permissions};
pub(super) use command::only_reads;
pub(super) use denial::Denial;
pub(super) use domain::{Domain, host_of};
pub(super) use known_commands::exit_code_1_is_a_result;
pub use rule::{anchor_rule, check_allowance, check_restriction, split_rules};
pub use rule_error::RuleError;
pub(super) use rule_error::RuleList;
pub use tool_name::{ToolName, classify_tool_name};
