//! Parses a command and all the scripts in its words.

use std::collections::HashMap;

use super::grammar;
use super::splitter::{self, NotUnderstood, Separator, ShellWord, SimpleCommand};
use super::work_budget::WorkBudget;
use super::wrapper::{self, IgnorableAssignments};

/// A parsed command line, as far as parsing is certain.
pub(super) struct ParsedCommand {
    /// The commands found by each parser; one list if both agree. There are two parsers because
    /// each may be wrong: every list must be allowed, and none denied.
    pub(super) command_lists: Vec<Vec<SimpleCommand>>,
    /// Why the parts of the command cannot be allowed one by one.
    pub(super) uncertainty: Option<NotUnderstood>,
    /// Whether our own splitter found more than plain commands. Deny rules then apply to everything
    /// in it that could be a command.
    pub(super) is_compound: bool,
}

impl ParsedCommand {
    fn of(command: &str) -> Self {
        let (own, parsed) = (splitter::split(command), grammar::split(command));
        let (is_compound, uncertainty) = (own.is_err(), parsed.as_ref().err().copied());
        let command_lists = match (own, parsed) {
            // Only our own splitter knows the separators between commands.
            (Ok(own), Ok(parsed)) if are_same(&own, &parsed) => vec![own],
            (own, parsed) => own.into_iter().chain(parsed).collect(),
        };
        Self { command_lists, uncertainty, is_compound }
    }
}

/// Whether two lists of commands differ at most in their separators.
fn are_same(one: &[SimpleCommand], other: &[SimpleCommand]) -> bool {
    let commands = |parts: &[SimpleCommand]| -> Vec<SimpleCommand> {
        parts
            .iter()
            .map(|part| SimpleCommand { then: Separator::Unconditional, ..part.clone() })
            .collect()
    };
    commands(one) == commands(other)
}

/// A command line, or a script inside one of its words.
pub(super) struct ScriptSource {
    pub(super) text: String,
    pub(super) reading: ParsedCommand,
    /// Whether it is certain to run. Other texts are checked only against deny and ask rules.
    pub(super) runs_for_sure: bool,
}

/// The cost of parsing one character, in units of one examined character.
const PARSE_COST: usize = 100;

/// Returns a command line and every script in its words, recursively. Each script is shorter than
/// the text that contains it, a repeated text is parsed once, and `effort` bounds the rest.
pub(super) fn scripts(command: &str, effort: &WorkBudget) -> Vec<ScriptSource> {
    let script = |text: String, told: bool| ScriptSource {
        reading: ParsedCommand::of(&text),
        text,
        runs_for_sure: told,
    };
    let mut found = vec![script(command.to_owned(), true)];
    let mut seen = HashMap::new();
    let mut at = 0;
    while let Some(outer) = found.get(at) {
        for (text, told) in nested_scripts(outer, effort) {
            if seen.get(&text).is_some_and(|before| *before || !told) {
                continue;
            }
            seen.insert(text.clone(), told);
            if !effort.charge(PARSE_COST * (PARSE_COST + text.len())) {
                return found;
            }
            found.push(script(text, told));
        }
        at += 1;
    }
    found
}

/// The scripts in the words of a script, and whether they run.
fn nested_scripts(outer: &ScriptSource, effort: &WorkBudget) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut look = |words: &[ShellWord], told: bool| {
        // Each may consist of all words up to the last.
        let letters = || words.iter().map(|word| 8 + word.plain.len()).sum();
        if wrapper::may_contain_script(words) && effort.charge(letters()) {
            found.extend(wrapper::script_within(words).map(|text| (text, told)));
        }
    };
    for part in outer.reading.command_lists.iter().flatten() {
        if outer.runs_for_sure {
            look(wrapper::inner_command(&part.words, IgnorableAssignments::All), true);
        }
        for at in wrapper::candidate_offsets(&part.words) {
            if effort.is_exhausted() {
                return found;
            }
            look(&part.words[at..], false);
        }
    }
    found
}
