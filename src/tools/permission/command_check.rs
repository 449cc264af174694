//! Decides whether a command may run, and how it is confined.

use std::path::{Path, PathBuf};

use super::super::catalog::BuiltinTool;
use super::super::paths::{ResolvedPath, list_recursive};
use super::super::protected_paths::is_protected;
use super::super::shell_lexer::{self, Separator, ShellWord, SimpleCommand};
use super::super::shell_wrappers::inner_command;
use super::call_check::Permissions;
use super::denial::Denial;
use super::plain_commands::{PlainCommand, PlainEffect, recognize};
use crate::types::PermissionMode;

/// What the kernel lets a command do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Confinement {
    /// What the sandbox of the run allows, if it is on.
    Sandbox,
    /// The same, but nothing is written.
    SandboxReading,
    /// No rule was needed: nothing is written but files in the working directories, and there is
    /// no network.
    PlainEdits,
    /// No rule was needed: nothing is written, there is no network, and nothing is read but these
    /// files and what Read may read. The working directory may change.
    PlainReads { files: Vec<PathBuf>, may_move: bool },
}

/// Resolves a path against a folder.
pub(super) type Resolve<'a> = &'a dyn Fn(&str, &Path) -> ResolvedPath;

/// How many possible working directories are tracked.
pub(super) const FOLDERS_MAX: usize = 8;

impl Permissions {
    /// Checks a command that runs in `cwd`.
    ///
    /// # Errors
    /// Why it is not allowed, and how to allow it.
    pub(super) fn check_command(
        &self,
        command: &str,
        cwd: &Path,
        resolve: Resolve<'_>,
    ) -> Result<Confinement, Denial> {
        let parts = shell_lexer::split(command);
        self.check_command_denials(command, parts.as_deref().ok(), cwd, resolve)?;
        let is_granted = self.mode != PermissionMode::Plan
            && self.allow.iter().any(|rule| {
                rule.covers_whole_tool(BuiltinTool::Bash)
                    || rule.is_exact() && rule.covers_command(command)
            });
        if is_granted || self.mode == PermissionMode::BypassPermissions {
            let reads = parts.is_ok_and(|parts| parts.iter().all(only_reads));
            return Ok(if reads { Confinement::SandboxReading } else { Confinement::Sandbox });
        }
        let parts = parts?;
        PartsCheck::new(self, resolve, cwd, &parts).check(&parts)
    }
}

/// Whether a command and its redirections change nothing, not even the working directory.
fn only_reads(part: &SimpleCommand) -> bool {
    let effect = recognize(part).map(|known| known.effect);
    let reads =
        matches!(effect, Some(PlainEffect::Prints | PlainEffect::Reads | PlainEffect::Searches));
    reads && written(part).next().is_none()
}

/// The files that a command is redirected to.
fn written(part: &SimpleCommand) -> impl Iterator<Item = &ShellWord> {
    part.writes.iter().filter(|word| word.plain != "/dev/null")
}

/// Whether an operand is a file, and not a pattern.
fn is_there(place: &ResolvedPath) -> bool {
    place.real.symlink_metadata().is_ok()
}

/// The folders in which a part of a command line may run: `cd` may fail.
#[derive(Clone, Debug)]
pub(super) struct Folders {
    pub(super) now: Vec<PathBuf>,
    /// Where the command continues behind this chain of `&&` if a `cd` in it fails.
    if_failed: Vec<PathBuf>,
    after_pipe: bool,
}

impl Folders {
    pub(super) fn new(cwd: &Path) -> Self {
        Self { now: vec![cwd.to_path_buf()], if_failed: Vec::new(), after_pipe: false }
    }

    /// Records that a part ran, and with it `cd`, if the part is one.
    pub(super) fn after(&mut self, part: &SimpleCommand, resolve: impl Fn(&str, &Path) -> PathBuf) {
        if let Some(PlainCommand { effect: PlainEffect::ChangesFolder, operands, .. }) =
            recognize(part)
        {
            let moved =
                self.now.iter().flat_map(|from| operands.iter().map(|to| resolve(to, from)));
            let moved: Vec<PathBuf> = moved.collect();
            // In a pipe, `cd` moves only its own process.
            if part.then == Separator::And && !self.after_pipe {
                self.if_failed.append(&mut self.now);
            }
            self.now.extend(moved);
        }
        if part.then == Separator::Unconditional {
            self.now.append(&mut self.if_failed);
        }
        self.after_pipe = part.then == Separator::Pipe;
        self.now.sort_unstable();
        self.now.dedup();
    }
}

/// The check of a command whose parts have to be allowed one by one.
struct PartsCheck<'a> {
    permissions: &'a Permissions,
    resolve: Resolve<'a>,
    folders: Folders,
    /// Whether a rule allows some part, so that all parts run in the sandbox of the run.
    has_rule: bool,
    /// The files that are read.
    files: Vec<PathBuf>,
    /// Whether a file was moved or copied, so that the paths of later parts may lead elsewhere.
    has_moved: bool,
    /// Whether some part changes files, so that nothing in the working directories is closed to the
    /// whole command.
    changes: bool,
}

impl<'a> PartsCheck<'a> {
    fn new(
        permissions: &'a Permissions,
        resolve: Resolve<'a>,
        cwd: &Path,
        parts: &[SimpleCommand],
    ) -> Self {
        Self {
            permissions,
            resolve,
            folders: Folders::new(cwd),
            has_rule: parts.iter().any(|part| permissions.has_rule_for(part)),
            files: Vec::new(),
            has_moved: false,
            changes: parts.iter().any(|part| {
                written(part).next().is_some()
                    || recognize(part).is_some_and(|it| it.effect == PlainEffect::Changes)
            }),
        }
    }

    fn check(mut self, parts: &[SimpleCommand]) -> Result<Confinement, Denial> {
        for part in parts {
            self.check_part(part)?;
            self.folders.after(part, |to, from| (self.resolve)(to, from).real);
            if self.folders.now.len() > FOLDERS_MAX {
                return Err(Denial::ManyFolders);
            }
        }
        let moves =
            |part| recognize(part).is_some_and(|it| it.effect == PlainEffect::ChangesFolder);
        let may_move = parts.iter().any(moves);
        Ok(match (self.has_rule, self.changes) {
            (true, _) if parts.iter().all(only_reads) => Confinement::SandboxReading,
            (true, _) => Confinement::Sandbox,
            (false, true) => Confinement::PlainEdits,
            (false, false) => Confinement::PlainReads { files: self.files, may_move },
        })
    }

    fn check_part(&mut self, part: &SimpleCommand) -> Result<(), Denial> {
        for word in written(part) {
            self.check_change(&word.plain)?;
        }
        for word in part.reads.iter().filter(|word| word.plain != "/dev/null") {
            // The shell gives some names that are no files a meaning: /dev/tcp/HOST/PORT.
            self.check_read(&word.plain, |_| true)?;
        }
        if part.words.is_empty() || self.permissions.has_rule_for(part) {
            return Ok(());
        }
        let known = recognize(part).ok_or_else(|| self.permissions.refusal(part))?;
        let is_held = self.permissions.holds_plain_commands && !self.has_rule && !self.changes;
        match known.effect {
            PlainEffect::Prints => Ok(()),
            PlainEffect::NeedsKernel if !is_held => Err(self.permissions.refusal(part)),
            PlainEffect::Reads | PlainEffect::NeedsKernel => self.check_reads(&known, true),
            PlainEffect::Searches => self.check_reads(&known, is_held),
            PlainEffect::ChangesFolder => self.check_folder(&known),
            PlainEffect::Changes if self.permissions.mode != PermissionMode::AcceptEdits => {
                Err(self.permissions.refusal(part))
            }
            PlainEffect::Changes => {
                known.operands.iter().try_for_each(|path| self.check_change(path))?;
                let moves =
                    part.words.first().is_some_and(|name| matches!(&*name.raw, "mv" | "cp"));
                self.has_moved |= moves;
                let sources = known.operands.iter().filter(|_| moves);
                sources.copied().try_for_each(|path| self.check_moved(path))
            }
        }
    }

    /// Checks the operands that name existing files. `is_held` says whether the kernel keeps what
    /// rules hide below them from the command.
    fn check_reads(&mut self, known: &PlainCommand<'_>, is_held: bool) -> Result<(), Denial> {
        let patterns = usize::from(known.has_pattern);
        for (at, path) in known.operands.iter().enumerate() {
            self.check_read(path, |place| at >= patterns || is_there(place))?;
        }
        let here = known.operands.is_empty().then_some(".");
        for path in known.operands.iter().copied().chain(here).filter(|_| !is_held) {
            for place in self.places(path) {
                if place.real.is_dir() && self.permissions.hides_below(&place) {
                    return Err(Denial::HiddenBelow { folder: place.written });
                }
            }
        }
        Ok(())
    }

    fn check_read(
        &mut self,
        path: &str,
        concerns: impl Fn(&ResolvedPath) -> bool,
    ) -> Result<(), Denial> {
        if self.has_moved && !self.permissions.holds_plain_commands {
            return Err(Denial::AfterMove);
        }
        for place in self.places(path) {
            if concerns(&place) {
                self.permissions.check_read(BuiltinTool::Read, &place).map_err(Denial::for_bash)?;
                self.files.push(place.real);
            }
        }
        Ok(())
    }

    /// A link would make the shell's folder, which is the path as written, differ from the real
    /// one, against which later paths are checked.
    fn check_folder(&mut self, known: &PlainCommand<'_>) -> Result<(), Denial> {
        for path in &known.operands {
            self.check_read(path, |_| true)?;
            if let Some(place) = self.places(path).into_iter().find(|it| it.written != it.real) {
                return Err(Denial::FolderBehindLink { folder: place.written });
            }
        }
        Ok(())
    }

    fn check_change(&mut self, path: &str) -> Result<(), Denial> {
        if self.has_moved {
            return Err(Denial::AfterMove);
        }
        for place in self.places(path) {
            if self.permissions.cwd.starts_with(&place.real) {
                return Err(Denial::ChangeByCommand { path: place.written });
            }
            self.permissions.check_change(BuiltinTool::Write, &place)?;
            self.permissions.check_folder_denied(BuiltinTool::Write, &place)?;
        }
        Ok(())
    }

    /// With a folder, what is in it gets another path.
    fn check_moved(&self, path: &str) -> Result<(), Denial> {
        for place in self.places(path).into_iter().filter(|place| place.real.is_dir()) {
            let hides =
                |path: &PathBuf| self.permissions.hides(BuiltinTool::Read, &place.real.join(path));
            let within = list_recursive(&place.real);
            if within.is_none_or(|paths| paths.iter().any(|it| is_protected(it) || hides(it))) {
                return Err(Denial::DecidesWhatRuns { path: place.written });
            }
        }
        Ok(())
    }

    fn places(&self, path: &str) -> Vec<ResolvedPath> {
        self.folders.now.iter().map(|folder| (self.resolve)(path, folder)).collect()
    }
}

impl Permissions {
    /// Whether an allow rule covers a simple command.
    fn has_rule_for(&self, part: &SimpleCommand) -> bool {
        let forms =
            [shell_lexer::raw_text(&part.words), shell_lexer::raw_text(inner_command(&part.words))];
        let fits = |form: &String| self.allow.iter().any(|rule| rule.covers_command(form));
        self.mode != PermissionMode::Plan && forms.iter().any(fits)
    }

    fn refusal(&self, part: &SimpleCommand) -> Denial {
        let command = shell_lexer::raw_text(&part.words);
        if self.mode == PermissionMode::Plan {
            return Denial::CommandWhilePlanning { command };
        }
        Denial::Command { command, rule: suggestion(part) }
    }
}

/// A rule that would allow a command: `Bash(cargo test *)`.
fn suggestion(part: &SimpleCommand) -> String {
    let simple = |word: &&ShellWord| word.raw == word.plain && word.is_literal;
    let words = inner_command(&part.words);
    let Some(first) = words.first().filter(simple) else { return "Bash".to_owned() };
    let is_verb = |word: &&ShellWord| {
        word.raw.starts_with(|letter: char| letter.is_ascii_lowercase())
            && !word.raw.contains(['/', '.'])
    };
    let verb = words.get(1).filter(simple).filter(is_verb).filter(|_| is_verb(&first));
    match verb {
        Some(verb) => format!("Bash({} {} *)", first.raw, verb.raw),
        None => format!("Bash({} *)", first.raw),
    }
}
