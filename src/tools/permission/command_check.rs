//! Checks a command line part by part, and the files that it names.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::catalog::BuiltinTool;
use super::super::paths::{PATH_BYTES_MAX, ResolvedPath, expand_glob, list_recursive};
use super::call_check::Permissions;
use super::cwd_tracker::CwdTracker;
use super::denial::Denial;
use super::exec_programs;
use super::fallback_tokens::FallbackTokens;
use super::files;
use super::known_commands::{self, KnownCommand};
use super::rule::PermissionRule;
use super::shell_parse::ScriptSource;
use super::splitter::{self, ShellWord, SimpleCommand};
use super::work_budget::WorkBudget;
use super::wrapper::{self, IgnorableAssignments};
use crate::types::PermissionMode;

type Sure = Result<(), Denial>;

/// The state of checking one command line against the rules.
pub(super) struct CommandCheck<'a> {
    permissions: &'a Permissions,
    resolve: &'a dyn Fn(&str, &Path) -> ResolvedPath,
    cwd: CwdTracker,
    effort: &'a WorkBudget,
}

/// The cost of resolving one component of a path, in characters: it takes a system call.
const PATH_STEP_COST: usize = 40;

impl<'a> CommandCheck<'a> {
    pub(super) fn new(
        permissions: &'a Permissions,
        resolve: &'a dyn Fn(&str, &Path) -> ResolvedPath,
        cwd: &Path,
        effort: &'a WorkBudget,
    ) -> Self {
        Self { permissions, resolve, cwd: CwdTracker::new(cwd), effort }
    }

    /// Applies the deny and ask rules to the files that are named.
    pub(super) fn check_denied_paths(mut self, scripts: &[ScriptSource]) -> Sure {
        if !self.permissions.forbids_paths() {
            return Ok(());
        }
        let start = self.cwd.clone();
        for ScriptSource { text, reading, .. } in scripts {
            self.cwd = start.clone();
            if reading.command_lists.is_empty() {
                self.check_denied_tokens(text)?;
            }
            for parts in &reading.command_lists {
                self.cwd = start.clone();
                for part in parts {
                    self.check_denied_part(part)?;
                    self.track_folder(part)?;
                }
            }
        }
        Ok(())
    }

    /// Treats every token that may be a path as one.
    fn check_denied_tokens(&mut self, text: &str) -> Sure {
        let shreds = FallbackTokens::of(text);
        let base = self.cwd.bases().first().cloned().unwrap_or_default();
        let moves = shreds.pieces().filter_map(|piece| match piece.as_slice() {
            ["cd", folder, ..] => Some(known_commands::normalize(&base.join(folder))),
            _ => None,
        });
        self.cwd = CwdTracker::anywhere(std::iter::once(base.clone()).chain(moves));
        let words: BTreeSet<&str> = shreds.pieces().flatten().collect();
        let targets = text.split('>').skip(1);
        let targets = targets.filter_map(|text| text.split_whitespace().next());
        let targets = targets.map(|word| word.trim_matches(['"', '\'', '|']));
        let mut targets: BTreeSet<&str> = targets.collect();
        for word in words.into_iter().filter(|word| !word.starts_with('-')) {
            let is_target = targets.remove(word);
            self.for_each_base(word, |place| {
                self.permissions.check_denied(BuiltinTool::Read, place)?;
                let also =
                    is_target.then(|| self.permissions.check_denied(BuiltinTool::Write, place));
                also.unwrap_or(Ok(()))
            })?;
        }
        targets.into_iter().try_for_each(|path| self.check_denied_path(BuiltinTool::Write, path))
    }

    fn check_denied_part(&self, part: &SimpleCommand) -> Sure {
        for word in &part.writes {
            self.for_each_file_of_word(word, |place| {
                self.permissions.check_denied(BuiltinTool::Write, place)
            })?;
        }
        for word in files::changed_files(&part.words) {
            self.for_each_file_of_word(&word, |place| {
                self.permissions.check_folder_denied(BuiltinTool::Write, place)
            })?;
        }
        if exec_programs::may_execute_argument(&part.words) {
            let text = splitter::plain(&part.words);
            let names = exec_programs::snippets(&text).flat_map(str::split_whitespace);
            names
                .into_iter()
                .try_for_each(|name| self.check_denied_path(BuiltinTool::Read, name))?;
        }
        for word in files::named_files(&part.words).chain(part.reads.iter().cloned()) {
            self.for_each_file_of_word(&word, |place| {
                self.permissions.check_denied(BuiltinTool::Read, place)
            })?;
        }
        Ok(())
    }

    fn check_denied_path(&self, tool: BuiltinTool, path: &str) -> Sure {
        self.for_each_base(path, |place| self.permissions.check_denied(tool, place))
    }

    /// Checks that every part is allowed: as harmless, by a rule, or by the mode.
    pub(super) fn check_allowed(mut self, parts: &[SimpleCommand]) -> Sure {
        for part in parts {
            self.check_part(part)?;
            self.track_folder(part)?;
        }
        Ok(())
    }

    /// Updates the possible working directories after a part ran.
    fn track_folder(&mut self, part: &SimpleCommand) -> Sure {
        let find = |folder: &str, base: &Path| (self.resolve)(folder, base).real;
        self.cwd.after_part(part, self.effort, find);
        if self.cwd.is_lost() {
            return Err(Denial::ManyFolders);
        }
        Ok(())
    }

    fn check_part(&self, part: &SimpleCommand) -> Sure {
        self.check_redirections(part)?;
        let mode = self.permissions.mode;
        if mode != PermissionMode::Plan && self.has_allow_rule(part) {
            return Ok(());
        }
        let look = |place: &ResolvedPath| self.permissions.check_read(BuiltinTool::Read, place);
        let paths_are_fine = match known_commands::classify(part) {
            Some(KnownCommand::ReadsFiles(paths)) => self.check_operands(part, &paths, look),
            Some(KnownCommand::SearchesFolders(paths)) => {
                self.check_operands(part, &paths, |place| {
                    look(place)?;
                    self.check_search(place)
                })
            }
            Some(KnownCommand::ReadsFollowingLinks(paths)) => {
                self.check_operands(part, &paths, |place| {
                    look(place)?;
                    check_not_folder(place)
                })
            }
            Some(KnownCommand::ChangesFolder(folder)) => self.for_each_base(folder, look),
            Some(KnownCommand::ChangesFiles(paths)) if mode == PermissionMode::AcceptEdits => {
                self.check_operands(part, &paths, |place| self.check_change(place))
            }
            Some(KnownCommand::ChangesFiles(_)) | None => Err(self.refusal(part)),
        };
        paths_are_fine.map_err(|mut denial| {
            if let Denial::OutsideWorkingFolders { tool, .. } = &mut denial
                && *tool == BuiltinTool::Read
            {
                *tool = BuiltinTool::Bash;
            }
            denial
        })
    }

    /// Applies `check` to every file that these arguments of a part may name.
    fn check_operands(
        &self,
        part: &SimpleCommand,
        paths: &[&str],
        check: impl Fn(&ResolvedPath) -> Sure,
    ) -> Sure {
        let is_flag = |place: &ResolvedPath| {
            place.written.file_name().is_some_and(|name| name.to_string_lossy().starts_with('-'))
        };
        let patterns = part.words.iter().filter(|word| word.globs);
        let patterns: BTreeSet<&str> = patterns.map(|word| word.plain.as_str()).collect();
        paths.iter().try_for_each(|path| {
            if !patterns.contains(path) {
                return self.for_each_base(path, &check);
            }
            self.for_each_match(path, |place| {
                if !path.contains('/') && is_flag(place) {
                    return Err(Denial::FlagLikeName { pattern: (*path).to_owned() });
                }
                check(place)
            })
        })
    }

    /// Checks a recursive search: it would also read files below the folder that rules deny.
    fn check_search(&self, place: &ResolvedPath) -> Sure {
        let rules = self.permissions.hiding_below(place);
        let Some(rule) = rules.first() else { return Ok(()) };
        let folder = || place.written.clone();
        let Some(paths) = list_recursive(&place.real) else {
            return Err(Denial::ManyFiles { folder: folder(), rule: rule.text.clone() });
        };
        if !self.effort.charge(PATH_STEP_COST * rules.len() * paths.len()) {
            return Err(Denial::TooIntricate);
        }
        let about = |rule: &&&PermissionRule, path: &Path| {
            let is_about = |folder: &Path| rule.covers_path(BuiltinTool::Grep, &folder.join(path));
            is_about(&place.real) || place.written != place.real && is_about(&place.written)
        };
        for path in paths {
            if let Some(rule) = rules.iter().find(|rule| about(rule, &path)) {
                let rule = rule.text.clone();
                return Err(Denial::FindsDenied { path, folder: folder(), rule });
            }
        }
        Ok(())
    }

    fn check_change(&self, place: &ResolvedPath) -> Sure {
        if self.permissions.cwd.starts_with(&place.real) {
            return Err(Denial::ChangeByCommand { path: place.written.clone() });
        }
        self.permissions.check_change(BuiltinTool::Write, place)
    }

    fn check_redirections(&self, part: &SimpleCommand) -> Sure {
        let vague = |word: &&ShellWord| word.expands || word.globs;
        if let Some(word) = part.writes.iter().chain(&part.reads).find(vague) {
            return Err(Denial::UnclearRedirection { target: word.raw.clone() });
        }
        for word in part.writes.iter().filter(|word| word.plain != "/dev/null") {
            self.for_each_base(&word.plain, |place| {
                self.permissions.check_change(BuiltinTool::Write, place)
            })?;
        }
        for word in part.reads.iter().filter(|word| word.plain != "/dev/null") {
            self.for_each_base(&word.plain, |place| {
                self.permissions.check_read(BuiltinTool::Read, place)
            })?;
        }
        Ok(())
    }

    fn has_allow_rule(&self, part: &SimpleCommand) -> bool {
        let inner = wrapper::inner_command(&part.words, IgnorableAssignments::Harmless);
        let forms = [part.text(), splitter::text(inner)];
        // Such a command runs what its arguments contain: only a rule for the whole of it can allow
        // it.
        let open = wrapper::runs_its_arguments(&part.words);
        let doors = exec_programs::exec_args(wrapper::inner_command(
            &part.words,
            IgnorableAssignments::All,
        ));
        let means = |rule: &PermissionRule| {
            rule.is_exact() || !open && doors.iter().all(|door| rule.spells_out(&door.raw))
        };
        let fits = |rule: &PermissionRule| {
            means(rule) && forms.iter().any(|form| rule.covers_command(form))
        };
        // A command that consists only of redirections is checked by those alone.
        part.words.is_empty() || self.permissions.allow.iter().any(fits)
    }

    fn refusal(&self, part: &SimpleCommand) -> Denial {
        let command = part.text();
        if self.permissions.mode == PermissionMode::Plan {
            return Denial::CommandWhilePlanning { command };
        }
        Denial::Command { command, rule: suggestion(part) }
    }

    /// Applies `check` to every file that a word may name.
    fn for_each_file_of_word(
        &self,
        word: &ShellWord,
        check: impl Fn(&ResolvedPath) -> Sure,
    ) -> Sure {
        let spelt = files::alternatives(word);
        spelt.iter().try_for_each(|path| {
            if path.contains(['*', '?', '[']) && (word.globs || word.expands) {
                self.for_each_match(path, &check)
            } else {
                self.for_each_base(path, &check)
            }
        })
    }

    /// Applies `check` to every file that matches a pattern, and to the pattern itself: without a
    /// match the shell passes it on literally.
    fn for_each_match(&self, pattern: &str, check: impl Fn(&ResolvedPath) -> Sure) -> Sure {
        self.for_each_base(pattern, &check)?;
        for base in self.cwd.bases() {
            let Some((paths, looked)) = expand_glob(pattern, base) else {
                return Err(Denial::ManyMatches { pattern: pattern.to_owned() });
            };
            if !self.effort.charge(4 * PATH_STEP_COST * (looked + paths.len())) {
                return Err(Denial::TooIntricate);
            }
            for path in paths {
                check(&(self.resolve)(&path, base))?;
            }
        }
        Ok(())
    }

    /// Applies `check` to `path` resolved against every possible working directory.
    fn for_each_base(&self, path: &str, check: impl Fn(&ResolvedPath) -> Sure) -> Sure {
        self.cwd.bases().iter().try_for_each(|base| {
            let letters = base.as_os_str().len() + path.len();
            let steps = base.components().count() + path.split('/').count();
            // Each rule is matched against every parent folder. A path that is too long is not
            // resolved.
            if !self
                .effort
                .charge(letters + steps * (PATH_STEP_COST + letters.min(PATH_BYTES_MAX) / 16))
            {
                return Err(Denial::TooIntricate);
            }
            check(&(self.resolve)(path, base))
        })
    }
}

fn check_not_folder(place: &ResolvedPath) -> Sure {
    if !place.real.is_dir() {
        return Ok(());
    }
    Err(Denial::FollowsLinks { folder: place.written.clone() })
}

/// A rule that would allow this command.
fn suggestion(part: &SimpleCommand) -> String {
    let simple = |word: &&ShellWord| {
        word.raw == word.plain
            && word.raw.chars().all(|letter| letter.is_alphanumeric() || "-_./".contains(letter))
    };
    let words = wrapper::inner_command(&part.words, IgnorableAssignments::Harmless);
    let open =
        wrapper::runs_its_arguments(&part.words) || !exec_programs::exec_args(words).is_empty();
    if open && !part.text().contains('\'') {
        return format!("Bash({})", part.text());
    }
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
