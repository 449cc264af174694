//! Judges a command line part by part, and the files it names.

use std::path::{Path, PathBuf};

use super::super::catalog::Tool;
use super::super::places::Place;
use super::chores::{self, Chore};
use super::judge::Permissions;
use super::mode::PermissionMode;
use super::rule::Rule;
use super::script::{self, Joint, Simple, Unsure, Word};
use super::wrapper::{self, Overlook};

/// One command line on its way through the rules.
pub(super) struct Errand<'a> {
    permissions: &'a Permissions,
    find: &'a dyn Fn(&str, &Path) -> Place,
    /// Where it may be standing: after `cd x; …` nobody knows whether `cd` succeeded.
    bases: Vec<PathBuf>,
    /// Where it stands if a `cd` in this chain of `&&` has failed.
    stayed: Vec<PathBuf>,
}

impl<'a> Errand<'a> {
    pub(super) fn new(
        permissions: &'a Permissions,
        find: &'a dyn Fn(&str, &Path) -> Place,
        cwd: &Path,
    ) -> Self {
        Self { permissions, find, bases: vec![cwd.to_path_buf()], stayed: Vec::new() }
    }

    /// Deny and ask rules for the files that are named.
    pub(super) fn forbidden_paths(
        &self,
        parts: &Result<Vec<Simple>, Unsure>,
    ) -> Result<(), String> {
        let Ok(parts) = parts else { return Ok(()) };
        for part in parts {
            for word in &part.writes {
                self.each(&word.plain, |place| self.permissions.forbidden(Tool::Write, place))?;
            }
            let arguments = part.words.iter().skip(1).chain(&part.reads);
            for word in arguments.filter(|word| !word.plain.starts_with('-')) {
                self.each(&word.plain, |place| self.permissions.forbidden(Tool::Read, place))?;
            }
        }
        Ok(())
    }

    /// Whether every part of it is allowed: harmless, or by a rule, or by the mode.
    pub(super) fn allowed(mut self, parts: &[Simple]) -> Result<(), String> {
        let mut before = Joint::Other;
        for part in parts {
            self.part(part)?;
            if let Some(Chore::Moves(folder)) = chores::recognise(part) {
                let moved: Vec<PathBuf> =
                    self.bases.iter().map(|base| (self.find)(folder, base).real).collect();
                // In a pipe it moves only itself.
                if part.then == Joint::And && before != Joint::Pipe {
                    self.stayed.append(&mut self.bases);
                }
                self.bases.extend(moved);
            }
            if part.then == Joint::Other {
                self.bases.append(&mut self.stayed);
            }
            before = part.then;
        }
        Ok(())
    }

    fn part(&self, part: &Simple) -> Result<(), String> {
        self.redirections(part)?;
        let mode = self.permissions.mode;
        if mode != PermissionMode::Plan && self.rule_for(part) {
            return Ok(());
        }
        let look = |place: &Place| self.permissions.look(Tool::Read, place);
        let paths_are_fine = match chores::recognise(part) {
            Some(Chore::Looks(paths)) => paths.iter().try_for_each(|path| self.each(path, look)),
            Some(Chore::Moves(folder)) => self.each(folder, look),
            Some(Chore::Tidies(paths)) if mode == PermissionMode::AcceptEdits => {
                paths.iter().try_for_each(|path| self.each(path, |place| self.tidy(place)))
            }
            Some(Chore::Tidies(_)) | None => Err(self.refusal(part)),
        };
        paths_are_fine.map_err(|why| why.replacen("Read needs", "Bash needs", 1))
    }

    fn tidy(&self, place: &Place) -> Result<(), String> {
        if self.permissions.cwd.starts_with(&place.real) {
            return Err(format!("Bash needs permission to change {}", place.written.display()));
        }
        self.permissions.change(Tool::Write, place)
    }

    fn redirections(&self, part: &Simple) -> Result<(), String> {
        let vague = |word: &&Word| word.expands || word.globs;
        if let Some(word) = part.writes.iter().chain(&part.reads).find(vague) {
            return Err(format!("Bash needs permission: where `{}` leads is unclear", word.raw));
        }
        for word in part.writes.iter().filter(|word| word.plain != "/dev/null") {
            self.each(&word.plain, |place| self.permissions.change(Tool::Write, place))?;
        }
        for word in part.reads.iter().filter(|word| word.plain != "/dev/null") {
            self.each(&word.plain, |place| self.permissions.look(Tool::Read, place))?;
        }
        Ok(())
    }

    fn rule_for(&self, part: &Simple) -> bool {
        let inner = wrapper::unwrap(&part.words, Overlook::Harmless);
        let forms = [part.text(), script::text(inner)];
        let fits = |rule: &Rule| forms.iter().any(|form| rule.is_about_command(form));
        // A command that is nothing but a redirection is judged by that alone.
        part.words.is_empty() || self.permissions.allow.iter().any(fits)
    }

    fn refusal(&self, part: &Simple) -> String {
        if self.permissions.mode == PermissionMode::Plan {
            return format!(
                "`{}` cannot be run: the run only plans (--permission-mode plan), so only commands \
                 known to change nothing are allowed",
                part.text()
            );
        }
        format!(
            "Bash needs permission for `{}`: allow it with --allowedTools '{}', or everything \
             with --permission-mode bypassPermissions",
            part.text(),
            suggestion(part)
        )
    }

    /// Applies `check` to where `path` leads from everywhere that the command may be standing.
    fn each(&self, path: &str, check: impl Fn(&Place) -> Result<(), String>) -> Result<(), String> {
        self.bases.iter().try_for_each(|base| check(&(self.find)(path, base)))
    }
}

/// A rule that would allow a command like this one.
fn suggestion(part: &Simple) -> String {
    let simple = |word: &&Word| {
        word.raw == word.plain
            && word.raw.chars().all(|letter| letter.is_alphanumeric() || "-_./".contains(letter))
    };
    let words = wrapper::unwrap(&part.words, Overlook::Harmless);
    let Some(first) = words.first().filter(simple) else { return "Bash".to_string() };
    let is_program = first.raw.contains(['/', '.']);
    let verb = words.get(1).filter(|_| !is_program).filter(simple).filter(|word| {
        word.raw.starts_with(|letter: char| letter.is_ascii_lowercase())
            && !word.raw.contains(['/', '.'])
    });
    match verb {
        Some(verb) => format!("Bash({} {} *)", first.raw, verb.raw),
        None => format!("Bash({} *)", first.raw),
    }
}
