//! Checks a command line: as a whole, in every equivalent spelling, and part by part.

use std::path::Path;

use super::super::catalog::BuiltinTool;
use super::super::paths::ResolvedPath;
use super::call_check::{CriticalPaths, Permissions};
use super::command_check::CommandCheck;
use super::cwd_tracker::CwdTracker;
use super::denial::Denial;
use super::exec_programs;
use super::fallback_tokens::{self, FallbackTokens};
use super::known_commands::{self, CriticalFolders, KnownCommand};
use super::rule::PermissionRule;
use super::shell_parse::{self, ScriptSource};
use super::splitter::{self, NotUnderstood, ShellWord, SimpleCommand};
use super::work_budget::WorkBudget;
use super::wrapper;
use crate::types::PermissionMode;

/// How many characters of a command an error message shows.
const SHOWN_MAX: usize = 80;

/// Whether every part of a command is known to read only and to change nothing, in any working
/// directory. A `cd` does not count as read-only: it changes where the next command runs.
pub(in super::super) fn only_reads(command: &str) -> bool {
    let effort = WorkBudget::new();
    let scripts = shell_parse::scripts(command, &effort);
    let Some(ScriptSource { reading, .. }) = scripts.first() else { return false };
    let is_plain = |word: &ShellWord| word.plain == "/dev/null";
    let reads = |part: &SimpleCommand| {
        part.writes.iter().all(is_plain)
            && match known_commands::classify(part) {
                Some(
                    KnownCommand::ReadsFiles(_)
                    | KnownCommand::SearchesFolders(_)
                    | KnownCommand::ReadsFollowingLinks(_),
                ) => true,
                Some(KnownCommand::ChangesFolder(_) | KnownCommand::ChangesFiles(_)) | None => {
                    false
                }
            }
    };
    !effort.is_exhausted()
        && reading.uncertainty.is_none()
        && !reading.command_lists.is_empty()
        && reading.command_lists.iter().flatten().all(reads)
}

impl Permissions {
    pub(super) fn check_command(
        &self,
        command: &str,
        cwd: &Path,
        find: &dyn Fn(&str, &Path) -> ResolvedPath,
    ) -> Result<(), Denial> {
        let effort = WorkBudget::new();
        let scripts = shell_parse::scripts(command, &effort);
        let Some(ScriptSource { reading, .. }) = scripts.first() else {
            return Err(Denial::TooIntricate);
        };
        self.check_denied_commands(&scripts)?;
        let errand = || CommandCheck::new(self, find, cwd, &effort);
        errand().check_denied_paths(&scripts)?;
        let ruinous = || {
            scripts.iter().any(|script| self.script_removes_critical_folder(script, cwd, &effort))
        };
        if self.critical == CriticalPaths::Denied && ruinous() {
            return Err(Denial::RemovesCriticalFolder);
        }
        // Parts that were not checked may contain something forbidden, and nothing is allowed so
        // far.
        if effort.is_exhausted() {
            return Err(Denial::TooIntricate);
        }
        if self.mode == PermissionMode::BypassPermissions {
            return Ok(());
        }
        let all = self.allow.iter().any(|rule| {
            rule.covers_whole_tool(BuiltinTool::Bash)
                || rule.covers_command(command) && !has_wildcard(rule)
        });
        if all && self.mode != PermissionMode::Plan {
            return Ok(());
        }
        if let Some(NotUnderstood(why)) = &reading.uncertainty {
            return Err(Denial::NotUnderstood(why));
        }
        reading.command_lists.iter().try_for_each(|parts| errand().check_allowed(parts))
    }

    /// Applies the deny and ask rules for commands, including spellings that would evade them.
    fn check_denied_commands(&self, scripts: &[ScriptSource]) -> Result<(), Denial> {
        let mut rules = self.deny.iter().chain(&self.ask);
        let Some(any) = rules.find(|rule| rule.depends_on_commands()) else { return Ok(()) };
        let forms: Vec<CommandForm> = scripts.iter().flat_map(spellings).collect();
        let about = |rule: &&PermissionRule| {
            forms.iter().any(|form| rule.covers_suffix(&form.text, &form.starts))
        };
        if let Some(rule) = self.deny.iter().find(about) {
            let command = scripts.first().map_or("", |script| script.text.as_str());
            return Err(Denial::by_deny_rule(truncated(command), None, rule));
        }
        if let Some(rule) = self.ask.iter().find(about) {
            return Err(Denial::by_ask_rule(BuiltinTool::Bash.name(), rule));
        }
        if scripts.iter().filter(|script| script.runs_for_sure).any(hides_a_name) {
            return Err(Denial::HiddenCommandName { rule: any.text.clone() });
        }
        Ok(())
    }

    fn script_removes_critical_folder(
        &self,
        script: &ScriptSource,
        cwd: &Path,
        effort: &WorkBudget,
    ) -> bool {
        for parts in &script.reading.command_lists {
            let mut footing = CwdTracker::new(cwd);
            for part in parts {
                if self.removes_critical_folder(&part.words, &footing, cwd, effort) {
                    return true;
                }
                let find =
                    |folder: &str, base: &Path| known_commands::normalize(&base.join(folder));
                footing.after_part(part, effort, find);
            }
        }
        let parts = || script.reading.command_lists.iter().flatten();
        let is_loose = script.reading.is_compound
            || parts().any(|part| exec_programs::may_read_a_script(&part.words));
        is_loose && self.tokens_remove_critical_folder(&script.text, cwd, effort)
    }

    /// Whether these words, run in one of these folders, would remove a critical folder.
    fn removes_critical_folder<T: AsRef<str>>(
        &self,
        words: &[T],
        footing: &CwdTracker,
        cwd: &Path,
        effort: &WorkBudget,
    ) -> bool {
        let grounds = CriticalFolders { home: self.home.as_deref(), work: [cwd, &self.cwd] };
        known_commands::removals(words).any(|target| {
            footing.is_lost() && !target.starts_with('/')
                || effort.charge(footing.path_lengths(target))
                    && footing
                        .bases()
                        .iter()
                        .any(|base| known_commands::is_critical(target, base, grounds))
        })
    }

    /// Whether any run of fallback tokens, taken as a command, would remove a critical folder.
    fn tokens_remove_critical_folder(
        &self,
        command: &str,
        cwd: &Path,
        effort: &WorkBudget,
    ) -> bool {
        let shreds = FallbackTokens::of(command);
        let moves = shreds.pieces().filter_map(|piece| match piece.as_slice() {
            ["cd", folder, ..] => Some(known_commands::normalize(&cwd.join(folder))),
            _ => None,
        });
        let footing = CwdTracker::anywhere(std::iter::once(cwd.to_path_buf()).chain(moves));
        shreds.pieces().any(|piece| self.removes_critical_folder(&piece, &footing, cwd, effort))
    }
}

/// Whether some part runs a command whose name only the shell can expand: `$X`, `/bin/r?`.
fn hides_a_name(script: &ScriptSource) -> bool {
    let hidden = script
        .reading
        .command_lists
        .iter()
        .flatten()
        .any(|part| wrapper::hides_a_name(&part.words, |word| word.expands || word.globs));
    let shreds = || fallback_tokens::commands(&script.text);
    hidden
        || script.reading.is_compound
            && shreds().iter().any(|words| wrapper::may_hide_a_name(words))
}

/// One spelling of a command, for matching against rules.
struct CommandForm {
    text: String,
    /// Offsets at which the command, and commands that it may run, begin, in ascending order. Each
    /// extends to the end of the text.
    starts: Vec<usize>,
}

impl CommandForm {
    fn new(text: String, mut starts: Vec<usize>) -> Self {
        // A rule matches a program by its base name, too.
        let by_name = starts.iter().filter_map(|at| {
            let name = text[*at..].split(' ').next().unwrap_or_default();
            name.rfind('/').map(|slash| at + slash + 1)
        });
        let by_name: Vec<usize> = by_name.collect();
        starts.extend(by_name);
        starts.sort_unstable();
        starts.dedup();
        Self { text, starts }
    }

    /// Assumes that a command may begin anywhere in a text, with or without its quotes, and end at
    /// any punctuation.
    fn anywhere(text: &str) -> Vec<Self> {
        let bare = text.replace(['\\', '\'', '"'], "");
        let texts = [text, bare.as_str()].into_iter();
        let texts =
            texts.flat_map(|text| std::iter::once(text).chain(exec_programs::snippets(text)));
        let form = |text: &str| Self {
            text: text.to_owned(),
            starts: exec_programs::command_offsets(text),
        };
        texts.map(form).collect()
    }

    fn of<T: AsRef<str>>(words: &[T]) -> Self {
        let suspects = wrapper::candidate_offsets(words);
        let (mut text, mut starts) = (String::new(), Vec::new());
        for (at, word) in words.iter().enumerate() {
            text.extend((at > 0).then_some(' '));
            if at == 0 || suspects.contains(&at) {
                starts.push(text.len());
            }
            text.push_str(word.as_ref());
        }
        Self::new(text, starts)
    }
}

/// All the spellings of the same command.
fn spellings(script: &ScriptSource) -> Vec<CommandForm> {
    let mut forms = vec![CommandForm::new(script.text.trim().to_owned(), vec![0])];
    let parts = || script.reading.command_lists.iter().flatten();
    for part in parts() {
        forms.extend([CommandForm::new(part.text(), vec![0]), CommandForm::of(&part.words)]);
        forms
            .extend(wrapper::without_git_options(&part.words).map(|words| CommandForm::of(&words)));
        if exec_programs::may_execute_argument(&part.words) {
            forms.extend(CommandForm::anywhere(&splitter::plain(&part.words)));
        }
    }
    if parts().any(|part| exec_programs::may_read_a_script(&part.words)) {
        forms.extend(CommandForm::anywhere(&script.text));
    }
    if script.reading.is_compound {
        for piece in FallbackTokens::of(&script.text).pieces() {
            forms.push(CommandForm::of(&piece));
            forms.extend(wrapper::without_git_options(&piece).map(|words| CommandForm::of(&words)));
        }
    }
    forms
}

/// A command, truncated to fit in one line.
fn truncated(command: &str) -> String {
    let mut lines = command.trim().lines();
    let line = lines.next().unwrap_or_default();
    let mut shown: String = line.chars().take(SHOWN_MAX).collect();
    if shown.len() < line.len() || lines.next().is_some() {
        shown.push_str("...");
    }
    format!("`{shown}`")
}

fn has_wildcard(rule: &PermissionRule) -> bool {
    rule.text.contains('*')
}
