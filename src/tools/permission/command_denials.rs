//! Applies deny and ask rules to commands.
//!
//! This is not a security boundary: a program can run commands that no rule sees. The check finds
//! what a command states openly; if a command cannot be parsed, it denies too much, not too little.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::super::catalog::BuiltinTool;
use super::super::paths::{PATH_BYTES_MAX, ResolvedPath, normalize_lexically};
use super::super::shell_lexer::{self, ShellWord, SimpleCommand, base_name};
use super::call_check::{CriticalPaths, Permissions};
use super::confinement::Resolve;
use super::denial::Denial;
use super::kept_documents::keeps_documents;
use super::nested_commands::{is_wrapper, nested_starts, runs_input};
use super::rule::PermissionRule;
use crate::transcript::excerpt_line;

/// Maximum number of possible working directories that are tracked.
const FOLDERS_MAX: usize = 8;
/// The maximum number of pieces of an unparsable line that are looked up in several folders. More
/// are looked up in one folder only: each lookup reads the disk.
const PIECES_MAX: usize = 1_000;

/// The maximum number of letters of a flag to which a command is joined.
const FLAG_LETTERS_MAX: usize = 4;

/// The maximum number of characters of a command in an error message.
const SHOWN_MAX: usize = 80;

/// Programs that change the files in their arguments.
const CHANGERS: &[&str] = &[
    "chmod", "chown", "cp", "dd", "install", "ln", "mkdir", "mv", "rm", "rmdir", "sed", "tee",
    "touch", "truncate",
];

/// The letters of patterns of file names and of variables.
const PATTERNS: [char; 5] = ['*', '?', '[', '{', '$'];

/// A text of a command, and the offsets in it at which a command may begin.
struct Form {
    text: String,
    starts: Vec<usize>,
}

impl Form {
    fn whole(text: String) -> Self {
        Self { text, starts: vec![0] }
    }

    /// Assumes that a command may begin after every character that is not part of a name, and
    /// after the letters of a flag: `env -S'make x'`, `sh -ec'make x'`.
    fn anywhere(text: String) -> Self {
        let ends = |letter: char| !(letter.is_alphanumeric() || "-_.*?".contains(letter));
        let starts = text.match_indices(ends).map(|(at, sign)| at + sign.len());
        let flags = text.match_indices(" -").map(|(at, sign)| at + sign.len());
        let joined = flags.flat_map(|flag| {
            let letters = text[flag..].char_indices().take(FLAG_LETTERS_MAX);
            letters.map(move |(at, letter)| flag + at + letter.len_utf8())
        });
        let starts = std::iter::once(0).chain(starts).chain(joined).collect();
        Self { text, starts }
    }

    fn all_of(part: &SimpleCommand) -> Vec<Self> {
        let words = without_assignments(&part.words);
        let Some(first) = words.first() else { return Vec::new() };
        let text = shell_lexer::plain_text(words);
        let nested = nested_starts(words);
        let mut named = std::iter::once(first).chain(nested.iter().map(|at| &words[*at]));
        if named.any(|word| is_wrapper(&word.plain)) {
            return vec![Self::anywhere(text)];
        }
        let name = base_name(&first.plain);
        let (mut starts, mut begin) = (Vec::new(), 0);
        for (at, word) in words.iter().enumerate() {
            if at == 0 || nested.contains(&at) {
                let path = word.plain.len() - base_name(&word.plain).len();
                starts.extend([begin, begin + path]);
            }
            begin += word.plain.len() + 1;
        }
        let mut forms = vec![Self { text, starts }];
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
    /// The folder in which it begins.
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
    pub(super) fn check_command_denials(
        &self,
        command: &str,
        parts: Option<&[SimpleCommand]>,
        cwd: &Path,
        resolve: Resolve<'_>,
    ) -> Result<(), Denial> {
        // A program may run the text of a here-document, and a shell what another one prints.
        let may_run = |parts: &[SimpleCommand]| {
            let has_document = parts.iter().any(|part| part.has_document);
            has_document && !keeps_documents(parts)
                || parts.iter().any(|part| runs_input(without_assignments(&part.words)))
        };
        if parts.is_some_and(may_run) {
            // As `printf` prints it.
            let printed = command.replace("\\n", "\n");
            self.check_denied_commands(&printed, None)?;
            self.check_pieces(&unquoted(&printed), cwd, resolve)?;
        }
        self.check_denied_commands(command, parts)?;
        let Some(parts) = parts else { return self.check_pieces(&unquoted(command), cwd, resolve) };
        let mut folders = vec![cwd.to_path_buf()];
        for part in parts {
            let words = without_assignments(&part.words).iter().map(|word| word.plain.as_str());
            let mut words: Vec<&str> = words.collect();
            let mut names = words.len().min(1);
            if words.first().is_some_and(|first| is_wrapper(first)) {
                words = words.iter().flat_map(|it| it.split_whitespace()).collect();
                names = words.len();
            }
            let seen = Seen { start: cwd, folders: &folders, resolve };
            let (paths, is_aside) = (operands(&words), opens_no_file(&words));
            let whole = words.first().copied().filter(|_| !is_aside);
            let whole = whole.map(|program| [&[program], &paths[..]].concat());
            let reads = whole.as_deref().unwrap_or(&paths);
            self.check_words(&words, names, (reads, &paths), is_aside, seen)?;
            for (tool, words) in
                [(BuiltinTool::Write, &part.writes), (BuiltinTool::Read, &part.reads)]
            {
                let paths = words.iter().map(|word| word.plain.as_str());
                self.check_denied_paths(tool, paths, seen)?;
            }
            if let Some(to) = destination(&words) {
                let moved: Vec<_> = folders.iter().map(|from| resolve(to, from).real).collect();
                // The shell goes back to the folder before a `pushd`.
                folders.retain(|_| !part.is_joined || words[0] == "pushd");
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
        let moves = pieces(bare).filter_map(|words| Some(resolve(destination(&words)?, cwd).real));
        let all: BTreeSet<Vec<&str>> = pieces(bare).collect();
        let others = if all.len() > PIECES_MAX { 0 } else { FOLDERS_MAX };
        let folders: Vec<PathBuf> =
            std::iter::once(cwd.to_path_buf()).chain(moves.take(others)).collect();
        let seen = Seen { start: cwd, folders: &folders, resolve };
        let targets = bare.split('>').skip(1).filter_map(|rest| rest.split_whitespace().next());
        let targets: BTreeSet<&str> = targets.collect();
        self.check_denied_paths(BuiltinTool::Write, targets.into_iter(), seen)?;
        // A piece may begin with the target of a redirection, so that all of its words may be
        // paths.
        all.iter()
            .try_for_each(|words| self.check_words(words, words.len(), (words, words), false, seen))
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
        let what = |_: &PermissionRule| format!("`{}`", excerpt_line(command, SHOWN_MAX));
        self.check_restrictions(covers, BuiltinTool::Bash.name(), None, what)
    }

    /// Checks the words of one command: `reads` and `writes` as paths, and all as a removal of
    /// critical folders, if one of the first `names` words is `rm`. `is_aside`: the
    /// command opens no file that its words do not name.
    fn check_words(
        &self,
        words: &[&str],
        names: usize,
        (reads, writes): (&[&str], &[&str]),
        is_aside: bool,
        seen: Seen<'_>,
    ) -> Result<(), Denial> {
        let removes = |word: &&str| matches!(base_name(word), "rm" | "rmdir");
        let targets = words[..names].iter().position(removes);
        let targets = targets.map_or(&[][..], |at| &words[at + 1..]);
        // In `/` a flag would be the name of a folder there.
        let mut targets = targets.iter().filter(|target| !target.starts_with('-'));
        let is_critical = |target: &&str| {
            seen.folders.iter().any(|folder| self.is_critical(target, folder, seen.start))
        };
        if self.critical == CriticalPaths::Denied && targets.any(is_critical) {
            return Err(Denial::RemovesCriticalFolder);
        }
        let changes = words.iter().any(|word| CHANGERS.contains(&base_name(word)));
        let marked: Vec<&str> = words.iter().flat_map(|word| after_marks(word)).collect();
        let values: BTreeSet<&str> = words.iter().flat_map(|word| after_letters(word)).collect();
        let read = reads.iter().chain(&marked).chain(&values).copied().collect::<BTreeSet<_>>();
        self.check_denied_words(BuiltinTool::Read, read.into_iter(), is_aside, seen)?;
        if !changes {
            return Ok(());
        }
        self.check_denied_words(BuiltinTool::Write, values.into_iter(), true, seen)?;
        // `ln` without a target makes a link of the same name in the folder.
        let links = words.iter().any(|word| base_name(word) == "ln");
        let links = writes.iter().filter(|_| links).map(|path| base_name(path));
        let written = writes.iter().copied().chain(marked).chain(links).collect::<BTreeSet<_>>();
        self.check_denied_paths(BuiltinTool::Write, written.into_iter(), seen)
    }

    /// Checks words that may be paths. In a folder in which everything is denied, every word would
    /// be denied, even one that is not a path. There, if the command opens no file that its words
    /// do not name (`is_aside`), a word counts only if it names something, or if a shell or a
    /// program may make a name of it.
    fn check_denied_words<'a>(
        &self,
        tool: BuiltinTool,
        mut words: impl Iterator<Item = &'a str>,
        is_aside: bool,
        seen: Seen<'_>,
    ) -> Result<(), Denial> {
        words.try_for_each(|word| {
            let mut fits = seen.folders.iter().filter(|_| word.len() <= PATH_BYTES_MAX);
            fits.try_for_each(|folder| {
                let checked = self.check_path_denied(tool, &(seen.resolve)(word, folder));
                let is_path = || !is_aside || !self.is_no_path(tool, word, folder, seen);
                if checked.is_err() && is_path() { checked } else { Ok(()) }
            })
        })
    }

    /// True if a word names nothing in a folder in which everything is denied, nor, for a program
    /// that works elsewhere, something that is denied in the working directory of the run.
    fn is_no_path(&self, tool: BuiltinTool, word: &str, folder: &Path, seen: Seen<'_>) -> bool {
        let is_denied = |name: &str, folder: &Path| {
            self.check_path_denied(tool, &(seen.resolve)(name, folder)).is_err()
        };
        is_denied("everything", folder)
            && !is_denied(word, &self.cwd)
            && !names_something(word, folder, seen)
    }

    fn check_denied_paths<'a>(
        &self,
        tool: BuiltinTool,
        mut paths: impl Iterator<Item = &'a str>,
        seen: Seen<'_>,
    ) -> Result<(), Denial> {
        paths.try_for_each(|path| {
            let fits = seen.folders.iter().filter(|_| path.len() <= PATH_BYTES_MAX);
            fits.map(|folder| (seen.resolve)(path, folder))
                .try_for_each(|place| self.check_path_denied(tool, &place))
        })
    }

    fn check_path_denied(&self, tool: BuiltinTool, place: &ResolvedPath) -> Result<(), Denial> {
        if tool == BuiltinTool::Write {
            return self.check_folder_denied(tool, place);
        }
        self.check_denied(tool, place)
    }

    /// True if `target`, relative to `folder`, is written as a folder of the system, or as one that
    /// is or contains the home folder or a working directory.
    fn is_critical(&self, target: &str, folder: &Path, start: &Path) -> bool {
        let bare = if target == "*" { "." } else { target.strip_suffix("/*").unwrap_or(target) };
        let path = match (bare.trim_end_matches('/'), &self.home) {
            ("", _) | ("~", None) => return true,
            ("~", Some(home)) => home.clone(),
            (bare, home) if bare.starts_with('$') => {
                let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                let spelt = bare.trim_start_matches(['$', '{']);
                let end = spelt.find(|it| !is_part(it)).unwrap_or(spelt.len());
                let rest = spelt[end..].trim_start_matches('}');
                let is_all = target.ends_with(['*', '/']);
                if !rest.is_empty() && (!rest.starts_with('/') || rest.contains(PATTERNS)) {
                    return is_all;
                }
                match home.as_ref().filter(|_| &spelt[..end] == "HOME") {
                    Some(home) => home.join(rest.trim_start_matches('/')),
                    // An unset variable makes `"$X"/*` match everything.
                    None if is_all => PathBuf::from(rest),
                    None => return false,
                }
            }
            (bare, _) => folder.join(bare),
        };
        let path = normalize_lexically(&path);
        let mut kept = [start, &self.cwd].into_iter().chain(self.home.as_deref());
        // `/` counts as one component.
        path.components().count() <= 2 || kept.any(|kept| kept.starts_with(&path))
    }
}

/// True for a command that opens no file besides those that its words name.
fn opens_no_file(words: &[&str]) -> bool {
    const PROGRAMS: [&str; 8] = ["cd", "pushd", "popd", "pwd", "echo", "printf", "true", ":"];
    matches!(words, [program, ..] if PROGRAMS.contains(program))
        || matches!(words, ["git", "status", ..])
}

/// The folder that a command moves to, as it is written there.
fn destination<'a>(words: &[&'a str]) -> Option<&'a str> {
    let (first, rest) = words.split_first()?;
    let mut named = rest.iter().copied().filter(|word| !word.starts_with('-'));
    matches!(*first, "cd" | "pushd").then(|| named.next())?
}

/// The words of a simple command that may be paths: not its name, unless that is one, and no flags.
fn operands<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let is_path = |(at, word): &(usize, &'a str)| {
        (*at > 0 || word.contains('/')) && (*at > end || !word.starts_with('-'))
    };
    words.iter().copied().enumerate().filter(is_path).map(|(_, word)| word).collect()
}

/// True if a word, or one in it, names something in a folder, or may be made a name by a shell or a
/// program.
fn names_something(word: &str, folder: &Path, seen: Seen<'_>) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || " -_.,=+%".contains(letter);
    let is_there = |name: &str| {
        let place = (seen.resolve)(name, folder);
        [&place.written, &place.real].iter().any(|path| path.symlink_metadata().is_ok())
    };
    !word.chars().all(is_plain) || is_there(word) || word.split(' ').any(is_there)
}

/// The suffixes of a word that may name a file: of `--file=x`, `@x`, `HEAD:x`.
fn after_marks(word: &str) -> impl Iterator<Item = &str> {
    let ends = word.match_indices(['=', '@', ':']).take(4).map(|(at, _)| &word[at + 1..]);
    ends.filter(|end| !end.is_empty())
}

/// The suffixes of flags with one letter that may name a file: of `-fx` and `-vfx`.
fn after_letters(word: &str) -> impl Iterator<Item = &str> {
    let is_short = word.starts_with('-') && !word.starts_with("--");
    let ends = word.char_indices().skip(2).take(5).filter(move |_| is_short);
    ends.map(|(at, _)| &word[at..])
}
