//! Decides whether a command may run, and how it is confined.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::slice;

use super::super::catalog::BuiltinTool;
use super::super::paths::ResolvedPath;
use super::super::protected_paths::protected_below;
use super::super::shell_lexer::{self, NotPlain, ShellWord, SimpleCommand, base_name};
use super::super::shell_wrappers::inner_command;
use super::call_check::Permissions;
use super::confinement::{Confinement, Resolve};
use super::denial::Denial;
use super::nested_commands::is_wrapper;
use super::plain_commands::{PlainCommand, PlainEffect, is_filter, recognize};
use super::rule::PermissionRule;
use crate::transcript::excerpt_line;
use crate::types::PermissionMode;

/// The maximum number of characters of a command in a message.
const SHOWN_MAX: usize = 1_000;

/// The maximum length of a rule that is advised for exactly one command, in bytes.
const RULE_BYTES_MAX: usize = 200;

/// Commands that may run together with commands that have a rule: they open no files.
const BESIDE_RULES: &[&str] =
    &[":", "cd", "echo", "exit", "false", "printf", "pwd", "set", "sleep", "true", "wait"];

/// Programs after which the folder of the shell is unknown, unless they are plain.
const MOVING: &[&str] = &["cd", "pushd", "popd", "eval", "source", "."];

/// True if a command may change the folder of the shell.
fn is_moving(part: &SimpleCommand) -> bool {
    let first = inner_command(&part.words).first();
    first.is_some_and(|first| MOVING.contains(&first.plain.as_str()))
}

/// True if a command may run together with commands that have a rule: it opens no files and sets no
/// variables.
pub(super) fn goes_along(part: &SimpleCommand) -> bool {
    let is_beside = || BESIDE_RULES.contains(&part.words[0].raw.as_str());
    let has_input = part.is_piped || part.has_document;
    has_input && is_filter(part) || recognize(part).is_some() && is_beside()
}

impl Permissions {
    /// Checks a command that runs in `cwd`.
    pub(super) fn check_command(
        &self,
        command: &str,
        parts: Result<&[SimpleCommand], &NotPlain>,
        cwd: &Path,
        resolve: Resolve<'_>,
    ) -> Result<Confinement, Denial> {
        self.check_command_denials(command, parts.ok(), cwd, resolve)?;
        let is_granted = self.mode != PermissionMode::Plan
            && self.allowed_by(|rule| {
                rule.covers_whole_tool(BuiltinTool::Bash)
                    || rule.is_exact() && rule.covers_command(command)
            });
        if is_granted || self.mode == PermissionMode::BypassPermissions {
            return Ok(parts.map_or(Confinement::Sandbox, sandbox_for));
        }
        LineCheck::new(self, resolve, cwd).check(parts.map_err(|why| *why)?)
    }
}

/// The confinement of a command with a rule. With one, git may write.
fn sandbox_for(parts: &[SimpleCommand]) -> Confinement {
    let only_reads = may_only_read(parts) && !parts.iter().any(runs_git);
    if only_reads { Confinement::SandboxReading } else { Confinement::Sandbox }
}

/// True if a line only reads, unless git has a rule.
pub(in super::super) fn may_only_read(parts: &[SimpleCommand]) -> bool {
    let only_reads = |part: &SimpleCommand| {
        effect(part).is_some_and(PlainEffect::only_reads) && written(part).next().is_none()
    };
    parts.iter().all(only_reads)
}

fn runs_git(part: &SimpleCommand) -> bool {
    effect(part).is_some_and(PlainEffect::runs_git)
}

/// The effect of a plain command. `None` if it is not plain.
fn effect(part: &SimpleCommand) -> Option<PlainEffect> {
    recognize(part).map(|known| known.effect)
}

/// The files that a command is redirected to.
fn written(part: &SimpleCommand) -> impl Iterator<Item = &ShellWord> {
    part.writes.iter().filter(|word| word.plain != "/dev/null")
}

/// The check of a line that has no rule as a whole: either each command has a rule, or all of them
/// are plain.
struct LineCheck<'a> {
    permissions: &'a Permissions,
    resolve: Resolve<'a>,
    /// The folder in which the line starts.
    start: &'a Path,
    /// The folder in which the next command runs. `None` after a `cd` that may have failed.
    folder: Option<PathBuf>,
    /// A missing folder to which the line changes.
    missing: Option<PathBuf>,
    /// True if no command but `cd` has run.
    is_start: bool,
    /// True if a command may have changed the folder.
    has_moved: bool,
    /// Files that are read.
    named: Vec<PathBuf>,
    /// Files that are changed.
    changed: Vec<PathBuf>,
}

impl<'a> LineCheck<'a> {
    fn new(permissions: &'a Permissions, resolve: Resolve<'a>, start: &'a Path) -> Self {
        let (named, changed) = (Vec::new(), Vec::new());
        let folder = Some(start.to_path_buf());
        let (missing, is_start, has_moved) = (None, true, false);
        Self { permissions, resolve, start, folder, missing, is_start, has_moved, named, changed }
    }

    fn check(mut self, parts: &[SimpleCommand]) -> Result<Confinement, Denial> {
        let Self { permissions, resolve, start, .. } = self;
        let alone = || LineCheck::new(permissions, resolve, start);
        let folder = Some(start).filter(|_| !parts.iter().any(is_moving));
        let has_rule = |part: &SimpleCommand| {
            permissions.has_rule_for(part)
                || folder.is_some_and(|folder| permissions.has_rule_for_path(part, folder))
        };
        let commands = || parts.iter().filter(|part| !part.words.is_empty());
        let ruled = commands().find(|part| has_rule(part));
        let needs_rule = |part: &SimpleCommand| ruled.is_none() || !goes_along(part);
        let open = commands().find(|part| !has_rule(part) && needs_rule(part));
        let is_plain = ruled.is_none() || open.is_some();
        if let (Some(ruled), Some(open)) = (ruled, open)
            && commands().any(|part| effect(part).is_none())
        {
            return Err(alone().refusal_beside(open, ruled));
        }
        let is_confined = !is_plain || permissions.holds_plain_commands;
        if let Some(part) = parts.first().filter(|_| !is_confined) {
            let command = shell_lexer::raw_text(&part.words);
            return Err(Denial::NotConfined { command, rule: suggestion(part) });
        }
        // A command with a rule is denied because of the one beside it that has none.
        let beside = |part: &SimpleCommand| {
            let open = open.filter(|_| has_rule(part))?;
            Some(alone().refusal_beside(open, part))
        };
        for part in parts {
            self.check_redirections(part)?;
            let known = recognize(part);
            if is_plain && !part.words.is_empty() {
                let known = known.as_ref().ok_or_else(|| permissions.refusal(part));
                let checked = known.and_then(|known| self.check_plain(part, known));
                checked.map_err(|denial| beside(part).unwrap_or(denial))?;
            }
            self.follow_folder(part, known.as_ref())?;
        }
        if !is_plain {
            return Ok(sandbox_for(parts));
        }
        let git = parts.iter().find(|part| runs_git(part));
        if let Some(part) = git.filter(|_| !self.changed.is_empty()) {
            // git runs programs that a checkout configures, which could write, too.
            return Err(beside(part).unwrap_or_else(|| permissions.refusal(part)));
        }
        let may_move = self.has_moved || !self.changed.is_empty();
        let (named, changed, runs_git) = (self.named, self.changed, git.is_some());
        Ok(Confinement::Plain { named, changed, may_move, runs_git })
    }

    /// Returns the denial of a command without a rule in a line with a command that has one.
    fn refusal_beside(self, open: &SimpleCommand, ruled: &SimpleCommand) -> Denial {
        match self.check(slice::from_ref(open)) {
            Ok(_) => {
                let (command, ruled) = (shown(open), shown(ruled));
                Denial::Beside { command, ruled, rule: suggestion(open) }
            }
            Err(denial) => denial,
        }
    }

    /// Follows the folder of the shell through a command.
    fn follow_folder(
        &mut self,
        part: &SimpleCommand,
        known: Option<&PlainCommand<'_>>,
    ) -> Result<(), Denial> {
        if let Some(known) = known.filter(|known| known.effect == PlainEffect::ChangesFolder) {
            self.check_folder(known)?;
            self.has_moved = true;
        } else {
            self.is_start = false;
            if is_moving(part) {
                (self.has_moved, self.folder) = (true, None);
            }
        }
        self.folder.take_if(|_| self.has_moved && !part.is_joined);
        Ok(())
    }

    fn check_redirections(&mut self, part: &SimpleCommand) -> Result<(), Denial> {
        written(part).try_for_each(|word| self.check_change(&word.plain))?;
        let mut read = part.reads.iter().filter(|word| word.plain != "/dev/null");
        // The shell treats some names specially that are not files: /dev/tcp/HOST/PORT.
        read.try_for_each(|word| self.check_read(&word.plain, |_| true))
    }

    fn check_plain(
        &mut self,
        part: &SimpleCommand,
        known: &PlainCommand<'_>,
    ) -> Result<(), Denial> {
        let Some(folder) = known.folder else { return self.check_effect(part, known) };
        self.check_read(folder, |_| true)?;
        let place = self.place(folder)?;
        if place.written != place.real || !place.real.is_dir() {
            return Err(self.permissions.refusal(part));
        }
        let before = self.folder.replace(place.real);
        let checked = self.check_effect(part, known);
        self.folder = before;
        checked
    }

    fn check_effect(
        &mut self,
        part: &SimpleCommand,
        known: &PlainCommand<'_>,
    ) -> Result<(), Denial> {
        let accepts = self.permissions.mode == PermissionMode::AcceptEdits;
        let mut operands = known.operands.iter();
        match known.effect {
            PlainEffect::Prints | PlainEffect::ChangesFolder => Ok(()),
            PlainEffect::ReadsVersions if self.hides_versions() => {
                Err(Denial::HiddenVersions { command: shell_lexer::raw_text(&part.words) })
            }
            PlainEffect::Reads | PlainEffect::ReadsRepository | PlainEffect::ReadsVersions => {
                let patterns = usize::from(known.has_pattern);
                // The kernel confines access below the folder, whichever it is.
                let is_known = self.folder.is_some();
                let is_checked =
                    |path: &str| is_known || path.starts_with('/') || path.contains("..");
                operands.enumerate().filter(|(_, it)| is_checked(it)).try_for_each(|(at, path)| {
                    let is_there = |place: &ResolvedPath| place.real.symlink_metadata().is_ok();
                    self.check_read(path, |place| at >= patterns || is_there(place))
                })
            }
            PlainEffect::Changes | PlainEffect::Transfers if !accepts => {
                Err(self.permissions.refusal(part))
            }
            PlainEffect::Changes => operands.try_for_each(|path| {
                self.check_change(path)?;
                let place = self.place(path)?;
                let removes = part.words[0].raw == "rm" && place.real.is_dir();
                if removes && self.permissions.denies_below(&place) {
                    return Err(self.permissions.refusal(part));
                }
                match protected_below(&place.real, &self.permissions.cwd).filter(|_| removes) {
                    Some(path) => Err(Denial::DecidesWhatRuns { path }),
                    None => Ok(()),
                }
            }),
            PlainEffect::Transfers => self.check_transfer(part, &known.operands),
        }
    }

    /// Resolves a word as a path in the folder of the command.
    fn place(&self, path: &str) -> Result<ResolvedPath, Denial> {
        match &self.folder {
            Some(folder) => Ok((self.resolve)(path, folder)),
            None if path.starts_with('/') => Ok((self.resolve)(path, Path::new("/"))),
            None => Err(match &self.missing {
                Some(missing) => Denial::MissingFolder {
                    missing: missing.clone(),
                    cwd: self.start.to_path_buf(),
                },
                None => Denial::UnknownFolder { path: path.to_owned() },
            }),
        }
    }

    fn check_read(
        &mut self,
        path: &str,
        concerns: impl Fn(&ResolvedPath) -> bool,
    ) -> Result<(), Denial> {
        let place = self.place(path)?;
        if concerns(&place) {
            self.permissions.check_read(BuiltinTool::Read, &place).map_err(Denial::for_bash)?;
            self.named.push(place.real);
        }
        Ok(())
    }

    /// True if a rule may hide a file of a repository; git shows its former versions.
    fn hides_versions(&self) -> bool {
        let folders = [self.folder.as_deref().unwrap_or(Path::new("/")), &self.permissions.cwd];
        let around = self.permissions.repositories.iter().map(PathBuf::as_path);
        let mut places = folders.into_iter().chain(around);
        places.any(|folder| self.permissions.hides_below(&(self.resolve)(".", folder)))
    }

    fn check_folder(&mut self, known: &PlainCommand<'_>) -> Result<(), Denial> {
        for path in &known.operands {
            self.check_read(path, |_| true)?;
            // Through a link, the shell's folder is the path as written, not the real one.
            let place = self.place(path)?;
            let is_itself = self.is_start && place.written == place.real;
            if is_itself && place.real.symlink_metadata().is_err() {
                self.missing = Some(place.written);
            }
            let is_certain = is_itself && place.real.is_dir();
            self.folder = Some(place.real).filter(|_| is_certain);
        }
        Ok(())
    }

    fn check_change(&mut self, path: &str) -> Result<(), Denial> {
        let place = self.place(path)?;
        if self.permissions.cwd.starts_with(&place.real) {
            return Err(Denial::ChangeByCommand { path: place.written });
        }
        self.permissions.check_editing_denied(&place)?;
        self.permissions.check_change(BuiltinTool::Write, &place)?;
        self.permissions.check_folder_denied(BuiltinTool::Write, &place)?;
        self.changed.push(place.real);
        Ok(())
    }

    /// Checks `mv` and `cp` of files, each also at its path in a target folder, where it may be a
    /// link. Folders and links as sources are refused: their contents could get paths that no rule
    /// covers.
    fn check_transfer(&mut self, part: &SimpleCommand, operands: &[&str]) -> Result<(), Denial> {
        operands.iter().try_for_each(|path| self.check_change(path))?;
        let Some((to, from)) = operands.split_last() else { return Ok(()) };
        for path in from {
            let source = self.place(path)?;
            if source.written != source.real || source.real.is_dir() {
                return Err(self.permissions.refusal(part));
            }
            // The last operand may be a folder, or one that the line creates.
            self.check_change(&format!("{to}/{}", base_name(path)))?;
        }
        Ok(())
    }
}

impl Permissions {
    /// True if an allow rule covers a simple command.
    fn has_rule_for(&self, part: &SimpleCommand) -> bool {
        let forms = covered_forms(part);
        self.mode != PermissionMode::Plan && self.allowed_by(|rule| covers(rule, &forms))
    }

    /// True if an allow rule names the program of a simple command in this folder by a path with
    /// blanks. The rule may also mean the program up to the first blank, so that there must be
    /// none.
    fn has_rule_for_path(&self, part: &SimpleCommand, folder: &Path) -> bool {
        let words = inner_command(&part.words);
        let Some(path) = words.first().filter(|it| it.is_literal()).map(|it| it.plain.as_str())
        else {
            return false;
        };
        let is_part = |letter: char| letter.is_alphanumeric() || "_-+.,@/ ".contains(letter);
        let is_path = ["/", "./", "../"].iter().any(|begin| path.starts_with(begin));
        let shorter = path.split_once(' ').map(|(shorter, _)| folder.join(shorter));
        let is_absent = |path: PathBuf| {
            path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        if !is_path || !path.chars().all(is_part) || !shorter.is_some_and(is_absent) {
            return false;
        }
        let arguments = shell_lexer::unquoted_text(&words[1..]);
        let command = format!("{path} {arguments}");
        let covers = |rule: &PermissionRule| rule.covers_program(path, command.trim_end());
        self.mode != PermissionMode::Plan && self.allowed_by(covers)
    }

    /// Returns the denial of a command without a rule.
    fn refusal(&self, part: &SimpleCommand) -> Denial {
        let command = shown(part);
        if self.mode == PermissionMode::Plan {
            return Denial::CommandWhilePlanning { command };
        }
        Denial::Command { command, rule: suggestion(part) }
    }
}

/// A command in a message, in one line.
fn shown(part: &SimpleCommand) -> String {
    excerpt_line(&shell_lexer::raw_text(&part.words), SHOWN_MAX)
}

/// The texts of a simple command that a rule may cover: with the words that rules look through or
/// without, as written or without quotes that have no effect. Made once for all rules.
pub(super) fn covered_forms(part: &SimpleCommand) -> BTreeSet<String> {
    let forms = [&part.words[..], inner_command(&part.words)].into_iter();
    forms
        .flat_map(|words| [shell_lexer::raw_text(words), shell_lexer::unquoted_text(words)])
        .collect()
}

/// True if a rule covers a simple command in one of its forms.
pub(super) fn covers(rule: &PermissionRule, forms: &BTreeSet<String>) -> bool {
    forms.iter().any(|form| rule.covers_command(form))
}

/// A rule that would allow a command: `Bash(cargo test *)`. It does not allow any command behind
/// variables or behind a program that runs another: there it is for this one, `Bash(PORT=1 make
/// *)`.
fn suggestion(part: &SimpleCommand) -> String {
    let simple = |word: &&ShellWord| word.raw == word.plain && word.is_literal();
    // True if a rule in quotes can name the word exactly.
    let is_exact = |word: &ShellWord| word.is_literal() && !word.raw.contains(['\'', '*', '\n']);
    let all = inner_command(&part.words);
    let set = all.iter().take_while(|word| word.assigns().is_some()).count();
    let words = inner_command(&all[set..]);
    let before = &all[..all.len() - words.len()];
    let is_name = |word: &&ShellWord| {
        word.is_path_in_home()
            || is_exact(word)
            || word.is_literal() && word.unquoted() == word.plain
    };
    let first = words.first().filter(is_name);
    let is_whole = words.is_empty() || first.is_some_and(|first| is_wrapper(&first.plain));
    let text = shell_lexer::raw_text(all);
    if is_whole && all.iter().all(is_exact) && text.len() <= RULE_BYTES_MAX {
        return format!("Bash({text})");
    }
    let first = first.filter(|_| before.iter().all(is_exact));
    let Some(first) = first else { return "Bash".to_owned() };
    let begin = shell_lexer::raw_text(before);
    let begin = if begin.is_empty() { begin } else { begin + " " };
    let is_verb = |word: &&ShellWord| {
        word.raw.starts_with(|letter: char| letter.is_ascii_lowercase())
            && !word.raw.contains(['/', '.'])
    };
    let verb = words.get(1).filter(simple).filter(is_verb).filter(|_| is_verb(&first));
    match verb {
        Some(verb) => format!("Bash({begin}{} {} *)", first.unquoted(), verb.raw),
        None => format!("Bash({begin}{} *)", first.unquoted()),
    }
}
