//! Reports which credentials were withheld from a failed command, and how the user can pass them.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::process::looks_denied;

use super::credentials::{CredentialSet, owner_of, used_in};
use super::environment::CommandEnv;
use super::sandbox::Sandbox;

/// A command that failed.
pub(super) struct FailedCommand<'a> {
    pub(super) command: &'a str,
    /// Both streams.
    pub(super) output: &'a str,
    /// The credentials that it had.
    pub(super) granted: &'a [&'static CredentialSet],
}

/// The notes of a run about withheld credentials.
#[derive(Debug, Default)]
pub(super) struct WithheldNotes(Mutex<BTreeSet<String>>);

impl WithheldNotes {
    /// Returns the note for the model, and keeps it for the warnings of the run.
    pub(super) fn note(
        &self,
        environment: &CommandEnv,
        sandbox: &Sandbox,
        failed: &FailedCommand<'_>,
    ) -> Option<String> {
        let is_granted =
            |set: &CredentialSet| failed.granted.iter().any(|granted| std::ptr::eq(*granted, set));
        let used = used_in(failed.command).into_iter();
        let used: Vec<&CredentialSet> = used.filter(|set| !is_granted(set)).collect();
        let is_wanted = |name: &str| {
            let is_passed = failed.granted.iter().any(|set| set.has_variable(name));
            let is_named = names(failed.command, name) || names(failed.output, name);
            !is_passed && (is_named || used.iter().any(|set| set.has_variable(name)))
        };
        let variables = environment.withheld_secrets().filter(|name| is_wanted(name));
        let mut notes: Vec<String> = variables.map(|name| withheld_variable(&name)).collect();
        let lacks_login = lacks_login(failed.output);
        notes.extend(used.iter().filter(|_| lacks_login).filter_map(|set| {
            let program = set.name()?;
            let place = sandbox.closed_logins(set).first()?.display().to_string();
            Some(format!(
                "the login of {program} ({place}) was withheld: allow Bash({program} *), or name it \
                 in sandbox.filesystem.allowRead"
            ))
        }));
        if notes.is_empty() {
            return None;
        }
        let note = format!(
            "[{}. Only the user can do that. A rule passes credentials to lines that consist of the \
             program alone.]",
            notes.join("; ")
        );
        self.0.lock().extend(notes);
        Some(note)
    }

    /// Takes the notes about failed commands since the last call.
    pub(super) fn take(&self) -> Vec<String> {
        let taken = std::mem::take(&mut *self.0.lock());
        taken.into_iter().collect()
    }
}

/// True if a program reports that it is not allowed to do something, or that it is not logged in.
fn lacks_login(output: &str) -> bool {
    const WORDS: [&str; 8] =
        ["auth", "credential", "login", "log in", "logged in", "token", "password", "401"];
    let output = output.to_lowercase();
    looks_denied(&output) || WORDS.iter().any(|word| output.contains(word))
}

/// Returns the note that a variable is withheld, with advice on how to pass it.
pub(super) fn withheld_variable(name: &str) -> String {
    let rule = owner_of(name).map(|program| format!(", or allow Bash({program} *)"));
    format!("{name} was withheld: --pass-env {name}{}", rule.unwrap_or_default())
}

/// True if a text contains a name as a whole word.
pub(super) fn names(text: &str, name: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}
