//! Applies deny and ask rules to commands.
//!
//! This is not a security boundary: a program can run commands that no rule sees. The check finds
//! what a command states openly; if a command cannot be parsed, it denies too much, not too little.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::super::catalog::BuiltinTool;
use super::super::paths::{PATH_BYTES_MAX, normalize_lexically};
use super::super::shell_lexer::{self, ShellWord, SimpleCommand, base_name};
use super::call_check::{CriticalPaths, Permissions};
use super::command_check::Resolve;
use super::denial::Denial;
use super::rule::PermissionRule;
use crate::transcript::one_line;

/// Maximum number of possible working directories that are tracked.
const FOLDERS_MAX: usize = 8;
/// The maximum number of pieces of an unparsable line that are looked up in several folders. More
/// are looked up in one folder only: each lookup reads the disk.
const PIECES_MAX: usize = 1_000;

/// The maximum number of characters of a command in an error message.
const SHOWN_MAX: usize = 80;

/// Programs whose arguments are, or contain, a command.
const WRAPPERS: &[&str] = &[
    "bash",
    "builtin",
    "busybox",
    "chroot",
    "chrt",
    "command",
    "dash",
    "doas",
    "entr",
    "env",
    "eval",
    "exec",
    "fakeroot",
    "find",
    "fish",
    "flock",
    "ionice",
    "ksh",
    "ltrace",
    "nice",
    "nohup",
    "nsenter",
    "parallel",
    "pkexec",
    "prlimit",
    "runuser",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "sh",
    "ssh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "trap",
    "unshare",
    "watch",
    "xargs",
    "xvfb-run",
    "zsh",
];

/// Programs that change the files in their arguments.
const CHANGERS: &[&str] = &[
    "chmod", "chown", "cp", "dd", "install", "ln", "mkdir", "mv", "rm", "rmdir", "sed", "tee",
    "touch", "truncate",
];

/// A text of a command, and the offsets in it at which a command may begin.
struct Form {
    text: String,
    starts: Vec<usize>,
}

impl Form {
    fn whole(text: String) -> Self {
        Self { text, starts: vec![0] }
    }

    /// Assumes that a command may begin after every character that is not part of a name.
    fn anywhere(text: String) -> Self {
        let ends = |letter: char| !(letter.is_alphanumeric() || "-_.*?".contains(letter));
        let starts = text.match_indices(ends).map(|(at, sign)| at + sign.len());
        let starts = std::iter::once(0).chain(starts).collect();
        Self { text, starts }
    }

    fn all_of(part: &SimpleCommand) -> Vec<Self> {
        let words = without_assignments(&part.words);
        let Some(first) = words.first() else { return Vec::new() };
        let text = shell_lexer::plain_text(words);
        let name = base_name(&first.plain);
        if WRAPPERS.contains(&name) {
            return vec![Self::anywhere(text)];
        }
        let path = first.plain.len() - name.len();
        let mut forms = vec![Self { text, starts: vec![0, path] }];
        forms.push(Self::whole(shell_lexer::raw_text(words)));
        if name == "git" {
            // `git -C . push` is `git push` to a rule.
            let rest = words[1..].iter().enumerate();
            let verbs = rest.filter(|(at, _)| words[1].plain.starts_with('-') && *at < 9);
            forms.extend(verbs.map(|(at, _)| {
                Self::whole(format!("git {}", shell_lexer::plain_text(&words[at + 1..])))
            }));
        }
        forms
    }
}

/// The folders to which relative paths may refer.
#[derive(Clone, Copy)]
struct Seen<'a> {
    /// The folder in which the whole command begins.
    start: &'a Path,
    folders: &'a [PathBuf],
    resolve: Resolve<'a>,
}

/// The words after the assignments.
fn without_assignments(words: &[ShellWord]) -> &[ShellWord] {
    let first = words.iter().take_while(|word| word.assigns().is_some()).count();
    &words[first..]
}

/// A command without its quotes, and with continued lines joined.
fn unquoted(command: &str) -> String {
    command.replace("\\\n", "").replace(['\\', '\'', '"'], "")
}

/// The words of each piece of a command, where a piece ends wherever another command may begin.
fn pieces(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let pieces = text.split(|letter: char| ";|&\n(){}<>`[],".contains(letter));
    pieces.map(|piece| piece.split_whitespace().collect())
}

impl Permissions {
    /// Applies the deny and ask rules, and the protection of critical folders. `parts` are the
    /// simple commands, if the command is understood.
    ///
    /// # Errors
    /// Something in the command is denied.
    pub(super) fn check_command_denials(
        &self,
        command: &str,
        parts: Option<&[SimpleCommand]>,
        cwd: &Path,
        resolve: Resolve<'_>,
    ) -> Result<(), Denial> {
        // The program may run the text of a here-document.
        if parts.is_some_and(|parts| parts.iter().any(|part| part.has_document)) {
            self.check_denied_commands(command, None)?;
            self.check_pieces(&unquoted(command), cwd, resolve)?;
        }
        self.check_denied_commands(command, parts)?;
        let Some(parts) = parts else { return self.check_pieces(&unquoted(command), cwd, resolve) };
        let mut folders = vec![cwd.to_path_buf()];
        for part in parts {
            let words = without_assignments(&part.words).iter().map(|word| word.plain.as_str());
            let mut words: Vec<&str> = words.collect();
            let mut names = words.len().min(1);
            if words.first().is_some_and(|first| WRAPPERS.contains(&base_name(first))) {
                words = words.iter().flat_map(|it| it.split_whitespace()).collect();
                names = words.len();
            }
            let seen = Seen { start: cwd, folders: &folders, resolve };
            self.check_words(&words, names, seen)?;
            for (tool, words) in
                [(BuiltinTool::Write, &part.writes), (BuiltinTool::Read, &part.reads)]
            {
                let paths = words.iter().map(|word| word.plain.as_str());
                self.check_denied_paths(tool, paths, seen)?;
            }
            if let ["cd", to, ..] = words.as_slice() {
                let moved: Vec<_> = folders.iter().map(|from| resolve(to, from).real).collect();
                folders.retain(|_| !part.is_joined);
                folders.extend(moved);
            }
            // After a chain of `&&` it is unknown whether a `cd` in it has run.
            folders.extend((!part.is_joined).then(|| cwd.to_path_buf()));
            folders.sort_unstable();
            folders.dedup();
            folders.truncate(FOLDERS_MAX);
        }
        Ok(())
    }

    /// Checks a command that the lexer cannot parse, piece by piece.
    fn check_pieces(&self, bare: &str, cwd: &Path, resolve: Resolve<'_>) -> Result<(), Denial> {
        let moves = pieces(bare).filter_map(|words| match words.as_slice() {
            ["cd", folder, ..] => Some(resolve(folder, cwd).real),
            _ => None,
        });
        let all: BTreeSet<Vec<&str>> = pieces(bare).collect();
        let others = if all.len() > PIECES_MAX { 0 } else { FOLDERS_MAX };
        let folders: Vec<PathBuf> =
            std::iter::once(cwd.to_path_buf()).chain(moves.take(others)).collect();
        let seen = Seen { start: cwd, folders: &folders, resolve };
        let targets = bare.split('>').skip(1).filter_map(|rest| rest.split_whitespace().next());
        let targets: BTreeSet<&str> = targets.collect();
        self.check_denied_paths(BuiltinTool::Write, targets.into_iter(), seen)?;
        all.iter().try_for_each(|words| self.check_words(words, words.len(), seen))
    }

    fn check_denied_commands(
        &self,
        command: &str,
        parts: Option<&[SimpleCommand]>,
    ) -> Result<(), Denial> {
        let mut forms = vec![Form::whole(command.trim().to_owned())];
        if let Some(parts) = parts {
            forms.extend(parts.iter().flat_map(Form::all_of));
        } else {
            let bare = unquoted(command);
            forms.extend(pieces(&bare).map(|words| Form::anywhere(words.join(" "))));
        }
        let covers = |rule: &PermissionRule| {
            forms.iter().any(|form| rule.covers_suffix(&form.text, &form.starts))
        };
        let what = |_: &PermissionRule| format!("`{}`", one_line(command, SHOWN_MAX));
        self.check_restrictions(covers, BuiltinTool::Bash.name(), None, what)
    }

    /// Checks the words of one command as paths, and as a removal of critical folders, if one of
    /// the first `names` words is `rm`.
    fn check_words(&self, words: &[&str], names: usize, seen: Seen<'_>) -> Result<(), Denial> {
        let removes = |word: &&str| matches!(base_name(word), "rm" | "rmdir");
        let targets = words[..names].iter().position(removes);
        let targets = targets.map_or(&[][..], |at| &words[at + 1..]);
        let is_critical = |target: &&str| {
            seen.folders.iter().any(|folder| self.is_critical(target, folder, seen.start))
        };
        if self.critical == CriticalPaths::Denied && targets.iter().any(is_critical) {
            return Err(Denial::RemovesCriticalFolder);
        }
        let changes = words.iter().any(|word| CHANGERS.contains(&base_name(word)));
        let tools = [Some(BuiltinTool::Read), changes.then_some(BuiltinTool::Write)];
        let ends = words.iter().flat_map(|word| ends(word));
        let paths: BTreeSet<&str> = words.iter().copied().chain(ends).collect();
        tools
            .into_iter()
            .flatten()
            .try_for_each(|tool| self.check_denied_paths(tool, paths.iter().copied(), seen))
    }

    fn check_denied_paths<'a>(
        &self,
        tool: BuiltinTool,
        mut paths: impl Iterator<Item = &'a str>,
        seen: Seen<'_>,
    ) -> Result<(), Denial> {
        paths.try_for_each(|path| {
            let fits = seen.folders.iter().filter(|_| path.len() <= PATH_BYTES_MAX);
            fits.map(|folder| (seen.resolve)(path, folder)).try_for_each(|place| {
                if tool == BuiltinTool::Write {
                    return self.check_folder_denied(tool, &place);
                }
                self.check_denied(tool, &place)
            })
        })
    }

    /// True if `target`, relative to `folder`, is or contains a folder that no command may remove.
    fn is_critical(&self, target: &str, folder: &Path, start: &Path) -> bool {
        let bare = if target == "*" { "." } else { target.strip_suffix("/*").unwrap_or(target) };
        if bare.starts_with('$') {
            // An unset variable makes `"$X"/*` match everything; `$HOME` is the home folder.
            return target.ends_with(['*', '/']) || matches!(bare, "$HOME" | "${HOME}");
        }
        let path = match (bare, &self.home) {
            ("", _) => PathBuf::from("/"),
            ("~" | "~/", Some(home)) => home.clone(),
            ("~" | "~/", None) => return true,
            (bare, _) => normalize_lexically(&folder.join(bare)),
        };
        let mut kept = [start, &self.cwd].into_iter().chain(self.home.as_deref());
        // `/` counts as one component.
        path.components().count() <= 2 || kept.any(|folder| folder.starts_with(&path))
    }
}

/// The suffixes of a word that may name a file: of `--file=x`, `@x`, `HEAD:x`, `-fx`, `-vfx`.
fn ends(word: &str) -> impl Iterator<Item = &str> {
    let is_short = word.starts_with('-') && !word.starts_with("--");
    let short = word.char_indices().skip(2).take(5).filter(move |_| is_short);
    let marks = word.match_indices(['=', '@', ':']).take(4).map(|(at, _)| at + 1);
    let ends = marks.chain(short.map(|(at, _)| at)).map(|at| &word[at..]);
    ends.filter(|end| !end.is_empty())
}
