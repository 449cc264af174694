//! Decides whether a tool call is allowed.
//!
//! Deny rules come first, then ask rules, then the mode and the allow rules; how specific a rule is
//! does not matter. An unattended run has no user to ask, so an ask rule denies, with a reason that
//! says how to allow the call. Paths are resolved by the caller, or through a callback.

mod call_check;
mod command_check;
mod command_denials;
mod confinement;
mod denial;
mod jq;
mod kept_documents;
mod live;
mod nested_commands;
mod paths;
mod plain_commands;
mod program_grants;
mod rule;
mod rule_error;

pub(super) use call_check::{Access, Permissions};
pub(super) use command_check::may_only_read;
pub(super) use confinement::Confinement;
pub(super) use denial::Denial;
pub use live::{LivePermissions, PermissionUpdate, UpdateError};
pub(super) use rule::wildcard;
pub use rule::{absolute_rule, anchor_rule, check_rule, rule_below};
pub use rule_error::{RuleError, RuleList};
