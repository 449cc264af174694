//! Normalises the command line before it is parsed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::OutputFormat;
use crate::cli::usage::UsageError;

/// Flags whose value is a list of tool rules, which may be several arguments.
const RULE_LISTS: [&str; 3] = ["--allowed-tools", "--disallowed-tools", "--tools"];

/// Tool names: an argument that begins with one continues such a list, and is not the prompt.
const TOOL_NAMES: [&str; 20] = [
    "Agent",
    "AskUserQuestion",
    "Bash",
    "BashOutput",
    "Edit",
    "ExitPlanMode",
    "Glob",
    "Grep",
    "KillShell",
    "LS",
    "MultiEdit",
    "NotebookEdit",
    "NotebookRead",
    "Read",
    "Skill",
    "Task",
    "TodoWrite",
    "WebFetch",
    "WebSearch",
    "Write",
];

/// Commands whose output is no result of a run.
const REPORTS: [&str; 7] =
    ["batch", "completions", "config", "doctor", "help", "report", "sessions"];

/// Flags of `rehearse` with which nothing is run.
const REHEARSAL_REPORTS: [&str; 3] = ["--list", "--print", "--save"];

/// The words of a command line, which must be text.
///
/// # Errors
/// The position of the first word that is not.
pub(in crate::cli) fn from_os(raw: Vec<OsString>) -> Result<Vec<String>, UsageError> {
    raw.into_iter()
        .enumerate()
        .map(|(index, word)| {
            word.into_string().map_err(|word| {
                UsageError::new(format!(
                    "argument {} is not valid UTF-8 ({:?}); encode it as UTF-8",
                    index + 1,
                    shortened(&word.to_string_lossy())
                ))
            })
        })
        .collect()
}

fn shortened(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    if short.len() < text.len() { short + "..." } else { short }
}

/// The requested output format and result file, scanned before the command line is validated, so
/// that an error in it is reported in the requested way.
#[derive(Debug, Default)]
pub(in crate::cli) struct RequestedOutput {
    pub(in crate::cli) format: OutputFormat,
    pub(in crate::cli) result_file: Option<PathBuf>,
    /// Whether `json` is an array.
    pub(in crate::cli) verbose: bool,
}

impl RequestedOutput {
    pub(in crate::cli) fn scan(raw: &[OsString]) -> Self {
        let mut wanted = Self { format: OutputFormat::of_stdout(), ..Self::default() };
        let mut words = raw.iter().map(|word| word.to_string_lossy()).peekable();
        if words.peek().is_some_and(|word| REPORTS.contains(&word.as_ref())) {
            // Their reports are not results.
            return Self { format: OutputFormat::Text, ..wanted };
        }
        let rehearsing = words.peek().is_some_and(|word| word == "rehearse");
        let mut own = raw.iter().take_while(|word| *word != "--");
        if rehearsing && own.any(|word| REHEARSAL_REPORTS.iter().any(|report| word == report)) {
            return Self { format: OutputFormat::Text, ..wanted };
        }
        while let Some(word) = words.next() {
            if word == "--" && !rehearsing {
                break;
            }
            let (flag, inline) = match word.split_once('=') {
                Some((flag, value)) => (kebab(flag), Some(value.to_owned())),
                None => (kebab(&word), None),
            };
            let value = inline.or_else(|| words.peek().map(ToString::to_string));
            match (flag.as_str(), value) {
                ("--output-format", Some(value)) => wanted.format(&value),
                ("--verbose", _) => wanted.verbose = true,
                ("--result-file", Some(value)) if !value.is_empty() => {
                    wanted.result_file = Some(PathBuf::from(value));
                }
                _ => {}
            }
        }
        wanted
    }

    fn format(&mut self, value: &str) {
        match value {
            "text" => self.format = OutputFormat::Text,
            "json" => self.format = OutputFormat::Json,
            "stream-json" => self.format = OutputFormat::StreamJson,
            _ => {}
        }
    }
}

/// Turns `--camelCase` into `--kebab-case`, and lists spread over several words into one.
///
/// # Errors
/// A flag that other tools have and this one has not yet.
pub(super) fn normalise(words: &[String]) -> Result<Vec<String>, UsageError> {
    let mut even = Vec::with_capacity(words.len());
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        if word == "--" {
            even.push(word.clone());
            even.extend(words.by_ref().cloned());
            break;
        }
        if !word.starts_with("--") {
            even.push(word.clone());
            continue;
        }
        let (flag, inline) = match word.split_once('=') {
            Some((flag, value)) => (kebab(flag), Some(value)),
            None => (kebab(word), None),
        };
        refuse_unsupported(&flag)?;
        let Some(value) = inline else {
            let takes_rules = RULE_LISTS.contains(&flag.as_str());
            if let Some(continues) = path_list(&flag)
                && let Some(first) = words.next_if(|next| !next.starts_with("--"))
            {
                even.push(format!("{flag}={first}"));
                while let Some(next) = words.next_if(|next| continues(next)) {
                    even.push(format!("{flag}={next}"));
                }
                continue;
            }
            even.push(flag);
            if takes_rules && let Some(first) = words.next_if(|next| !next.starts_with("--")) {
                let mut rules = first.clone();
                while let Some(rule) = words.next_if(|next| is_rule(next)) {
                    rules = rules + "," + rule;
                }
                even.push(rules);
            }
            continue;
        };
        even.push(format!("{flag}={value}"));
    }
    Ok(even)
}

/// For a flag that takes several paths: whether an argument is one more, and not the prompt.
fn path_list(flag: &str) -> Option<fn(&str) -> bool> {
    match flag {
        "--add-dir" => Some(|word| Path::new(word).is_dir()),
        "--mcp-config" => Some(|word| word.starts_with('{') || Path::new(word).is_file()),
        _ => None,
    }
}

fn kebab(flag: &str) -> String {
    let mut kebab = String::with_capacity(flag.len() + 2);
    for letter in flag.chars() {
        if letter.is_ascii_uppercase() {
            kebab.push('-');
        }
        kebab.push(letter.to_ascii_lowercase());
    }
    kebab
}

/// Whether every item of a word is a tool's name, perhaps with a rule in parentheses.
fn is_rule(word: &str) -> bool {
    let items = crate::config::values::list(&[word]);
    !items.is_empty()
        && items.iter().all(|item| {
            let name = item.split('(').next().unwrap_or_default();
            let scoped = item.contains('(') && item.ends_with(')');
            name.starts_with("mcp__")
                || TOOL_NAMES.contains(&name) && (scoped || name.len() == item.len())
        })
}

/// Flags of related tools that outlast does not support. Ignoring them would be wrong, and calling
/// them unknown would suggest a typo.
const UNSUPPORTED: [&str; 4] = ["--init", "--init-only", "--maintenance", "--safe-mode"];

fn refuse_unsupported(flag: &str) -> Result<(), UsageError> {
    if UNSUPPORTED.contains(&flag) {
        return Err(UsageError::new(format!(
            "{flag} is not supported by this version of outlast; run without it"
        )));
    }
    Ok(())
}
