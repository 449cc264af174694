//! Decides which programs get their own credentials in a command.

use super::super::credentials::{CredentialSet, used_by};
use super::super::shell_lexer::SimpleCommand;
use super::super::shell_wrappers::inner_command;
use super::call_check::Permissions;
use super::command_check::{covered_forms, covers, goes_along};
use super::rule::PermissionRule;
use crate::types::PermissionMode;

impl Permissions {
    /// Returns the credentials that a command gets: those of its programs, if each of its simple
    /// commands is a program with credentials that a rule names, or may run beside commands with a
    /// rule.
    pub(in super::super) fn granted_credentials(
        &self,
        parts: &[SimpleCommand],
    ) -> Vec<&'static CredentialSet> {
        let current = self.current();
        let mut granted: Vec<&'static CredentialSet> = Vec::new();
        for part in parts {
            let words = inner_command(&part.words);
            let own: Vec<&'static CredentialSet> =
                used_by(words).filter(|set| current.names_program(set, part)).collect();
            // An assignment changes what the other commands mean.
            let is_empty = part.words.is_empty();
            if own.is_empty() && !is_empty && !goes_along(part) {
                return Vec::new();
            }
            granted.extend(own);
        }
        granted
    }

    /// True if a rule for commands of a program covers a simple command, or everything is allowed.
    fn names_program(&self, set: &CredentialSet, part: &SimpleCommand) -> bool {
        match self.mode {
            PermissionMode::BypassPermissions => return true,
            PermissionMode::Plan => return false,
            PermissionMode::Default | PermissionMode::AcceptEdits | PermissionMode::DontAsk => {}
        }
        let names = |rule: &PermissionRule| set.programs.iter().any(|it| rule.begins_with(it));
        let forms = covered_forms(part);
        self.allowed_by(|rule| names(rule) && covers(rule, &forms))
    }
}
