//! Normalises the command line before it is parsed.

use std::ffi::{OsStr, OsString};
use std::iter::Peekable;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{self, Path, PathBuf};
use std::slice;
use std::sync::LazyLock;

use clap::ValueEnum;

use super::compatibility::has_optional_value;
use super::{InputFormat, OutputFormat};
use crate::cli::output::is_result_alone;
use crate::cli::usage::UsageError;
use crate::config::environment::ColorChoice;
use crate::config::is_inline;
use crate::host::exit_code_for_hosts;
use crate::text::shortened;
use crate::tools::{ToolName, classify_tool_name};

/// Flags whose value is a list of tool rules, which may be several arguments.
const RULE_LISTS: [&str; 3] = ["--allowed-tools", "--disallowed-tools", "--tools"];

/// Commands whose output is not the result of a run.
const REPORTS: [&str; 17] = [
    "agents",
    "auth",
    "batch",
    "completions",
    "config",
    "doctor",
    "help",
    "install",
    "mcp",
    "plugin",
    "plugins",
    "report",
    "schema",
    "sessions",
    "setup-token",
    "update",
    "upgrade",
];

/// The other commands.
const RUNS: [&str; 3] = ["rehearse", "run", "version"];

/// The names of all commands. Building the parser of all commands takes longer than parsing.
pub(super) fn commands() -> impl Iterator<Item = &'static str> {
    REPORTS.into_iter().chain(RUNS)
}

/// Returns true if a word is the name of a command.
pub(super) fn is_command(word: &str) -> bool {
    commands().any(|name| name == word)
}

/// Flags that an empty value leaves unset: scripts pass it if an input of theirs is empty. Flags
/// that may restrict or limit the run are not among them.
const UNSET_IF_EMPTY: [&str; 6] = [
    "--agents",
    "--append-system-prompt-file",
    "--effort",
    "--fallback-model",
    "--mcp-config",
    "--system-prompt-file",
];

/// Flags of `rehearse` that list, print or save scenarios, and run nothing.
const REHEARSAL_REPORTS: [&str; 3] = ["--list", "--print", "--save"];

/// The hint for a prompt that begins like a flag.
pub(super) const PROMPT_HINT: &str = "; a prompt that begins with \"-\" stands after \"--\"";

/// One-letter flags without a value.
const SWITCHES: &str = "cpqv";

/// The name under which the program was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgramName {
    #[default]
    Outlast,
    /// Callers expect the defaults of the reference: text, and its version.
    Claude,
}

impl ProgramName {
    /// Derives the name from the first word of the command line (`argv[0]`).
    pub(in crate::cli) fn of(word: Option<&OsStr>) -> Self {
        let stem = word.and_then(|word| Path::new(word).file_stem());
        if stem.is_some_and(|stem| stem == "claude") { Self::Claude } else { Self::Outlast }
    }
}

/// The words of a command line, as text.
pub struct CommandWords {
    pub(super) words: Vec<String>,
    /// Indexes of the words that are not UTF-8. Their invalid bytes are read as U+FFFD.
    invalid: Vec<usize>,
}

impl CommandWords {
    pub fn new(raw: Vec<OsString>) -> Self {
        let is_invalid =
            |(index, word): (usize, &OsString)| word.to_str().is_none().then_some(index);
        let invalid = raw.iter().enumerate().filter_map(is_invalid).collect();
        let text = |word: OsString| {
            word.into_string().unwrap_or_else(|word| word.to_string_lossy().into_owned())
        };
        Self { words: raw.into_iter().map(text).collect(), invalid }
    }

    /// Returns the warning about invalid words that are text for the model.
    ///
    /// # Errors
    /// An invalid word is anything else, such as a path; the message gives its position.
    pub(super) fn check(&self, texts: &[Option<&str>]) -> Result<Option<String>, UsageError> {
        let is_text = |word: &str| {
            let flag = |text: &&str| {
                word.strip_suffix(text).is_some_and(|flag| {
                    flag.is_empty() || flag.starts_with('-') && flag.ends_with('=')
                })
            };
            texts.iter().flatten().any(flag)
        };
        let shown = |index: usize| {
            let word = shortened(&self.words[index], 40, "...");
            format!("argument {} is not valid UTF-8 ({word:?})", index + 1)
        };
        match self.invalid.iter().find(|index| !is_text(&self.words[**index])) {
            Some(other) => {
                Err(UsageError::new(format!("{}; encode it as UTF-8", shown(*other))))
            }
            None => Ok(self.invalid.first().map(|first| {
                format!(
                    "{}: such bytes are read as U+FFFD; convert it, for example with iconv, if they matter",
                    shown(*first)
                )
            })),
        }
    }
}

/// Removes `-C DIR` from the beginning of the words, where any command accepts it, and `--color
/// WHEN`, whose value [`wanted_colors`] reads. A further `-C` is relative to the one before it, as
/// with git and make.
pub(in crate::cli) fn split_directory(mut raw: Vec<OsString>) -> (Option<PathBuf>, Vec<OsString>) {
    let mut directory: Option<PathBuf> = None;
    loop {
        let length = if let Some((length, path)) = directory_flag(&raw) {
            directory = Some(directory.map_or(path.clone(), |outer| outer.join(path)));
            length
        } else if let Some(length) = color_flag(&raw) {
            length
        } else {
            return (directory, raw);
        };
        raw.drain(..length);
    }
}

/// Returns the folder of `-C DIR` or `-CDIR`, if the words begin with it, and its number of words.
fn directory_flag(words: &[OsString]) -> Option<(usize, PathBuf)> {
    let attached = words.first()?.as_bytes().strip_prefix(b"-C")?;
    match attached {
        [] => Some((2, words.get(1)?.into())),
        // Text that begins like the flag is a prompt.
        text if text.iter().any(u8::is_ascii_whitespace) => None,
        text => Some((1, OsStr::from_bytes(text.strip_prefix(b"=").unwrap_or(text)).into())),
    }
}

/// Returns the number of words of `--color WHEN` or `--color=WHEN`, if the words begin with it.
fn color_flag(words: &[OsString]) -> Option<usize> {
    let first = words.first()?.to_str()?;
    if first.strip_prefix("--color=").is_some_and(is_color_choice) {
        return Some(1);
    }
    let value = words.get(1).filter(|_| first == "--color")?;
    value.to_str().is_some_and(is_color_choice).then_some(2)
}

fn is_color_choice(word: &str) -> bool {
    ColorChoice::from_str(word, true).is_ok()
}

/// Returns the value of `--color`, scanned before the command line is validated.
pub(in crate::cli) fn wanted_colors(raw: &[OsString]) -> Option<String> {
    let flags = raw.iter().take_while(|word| *word != "--");
    let flags: Vec<_> = flags.map(|word| word.to_string_lossy()).collect();
    let mut given =
        flags.iter().enumerate().filter_map(|(index, word)| match word.split_once('=') {
            Some(("--color", value)) => Some(value.to_owned()),
            Some(_) => None,
            None if word == "--color" => flags.get(index + 1).map(ToString::to_string),
            None => None,
        });
    given.next_back()
}

/// The requested output format and result file, scanned before the command line is validated, so
/// that an error in it is reported in the requested way.
#[derive(Debug, Default)]
pub(in crate::cli) struct RequestedOutput {
    pub(in crate::cli) format: OutputFormat,
    pub(in crate::cli) result_file: Option<PathBuf>,
    /// True if the format `json` is an array of all messages (`--verbose`).
    pub(in crate::cli) verbose: bool,
    /// True if a host sends the prompts and reads the result (`--input-format stream-json`).
    pub(in crate::cli) is_for_host: bool,
    /// True if the error is reported by the result alone.
    pub(in crate::cli) is_alone: bool,
}

impl RequestedOutput {
    pub(in crate::cli) fn scan(raw: &[OsString], name: ProgramName) -> Self {
        let mut print = name == ProgramName::Claude;
        let mut wanted = Self { format: OutputFormat::default_for(print), ..Self::default() };
        let mut words = raw.iter().map(|word| word.to_string_lossy()).peekable();
        if words.peek().is_some_and(|word| REPORTS.contains(&word.as_ref())) {
            // The output of these commands is not a result.
            return Self { format: OutputFormat::Text, ..wanted };
        }
        let rehearsing = words.peek().is_some_and(|word| word == "rehearse");
        let mut flags = raw.iter().take_while(|word| *word != "--");
        if rehearsing && flags.any(|word| REHEARSAL_REPORTS.iter().any(|report| word == report)) {
            return Self { format: OutputFormat::Text, ..wanted };
        }
        let end = raw.iter().position(|word| word == "--").unwrap_or(raw.len());
        let folders = (0..end).filter_map(|index| directory_flag(&raw[index..end]));
        let folder = folders.map(|(_, path)| path).next_back().unwrap_or_default();
        let mut format = None;
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
                ("--output-format", Some(value)) => {
                    format = OutputFormat::from_str(&value, true).ok().or(format);
                }
                ("--print" | "--unattended", _) => print = true,
                _ if is_print_switch(&word) => print = true,
                ("--verbose", _) => wanted.verbose = true,
                ("--input-format", Some(value)) => {
                    let input = InputFormat::from_str(&value, true);
                    wanted.is_for_host = input == Ok(InputFormat::StreamJson);
                }
                ("--result-file", Some(value)) if !value.is_empty() => {
                    wanted.result_file = Some(folder.join(value));
                }
                _ => {}
            }
        }
        wanted.is_alone = is_result_alone(format);
        wanted.format = format.unwrap_or_else(|| OutputFormat::default_for(print));
        wanted
    }

    /// Makes the path of the result file absolute. It is relative to `folder`, also after the run
    /// has changed to its worktree.
    pub(in crate::cli) fn within(mut self, folder: Option<&Path>) -> Self {
        self.result_file = self.result_file.map(|file| {
            let file = folder.unwrap_or(Path::new("")).join(file);
            path::absolute(&file).unwrap_or(file)
        });
        self
    }

    /// Converts exit codes to those of the reader of the result.
    pub(in crate::cli) fn exit_code_terms(&self) -> fn(u8) -> u8 {
        if self.is_for_host { exit_code_for_hosts } else { |code| code }
    }
}

/// Returns true if a word consists of one-letter switches, with `-p` among them: `-p`, `-cp`.
fn is_print_switch(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|letters| {
        letters.contains('p') && letters.chars().all(|letter| SWITCHES.contains(letter))
    })
}

type Words<'a> = Peekable<slice::Iter<'a, String>>;

/// Turns `--camelCase` into `--kebab-case`, and lists spread over several words into one. Text that
/// begins like a flag is the value of the flag before it, or the prompt.
///
/// # Errors
/// A flag of related tools that is not supported.
pub(super) fn normalise(words: &[String]) -> Result<Vec<String>, UsageError> {
    let mut normalised: Vec<String> = Vec::with_capacity(words.len());
    let mut texts = Vec::new();
    let folder = named_folder(words);
    let mut words = words.iter().peekable();
    // True once a word is certainly the prompt: it is the first, or follows a flag without a value.
    let mut has_prompt = false;
    let mut odd_model = None;
    let is_run = words.peek().is_none_or(|word| *word == "run" || !is_command(word));
    while let Some(word) = words.next() {
        // Both are switches, so a text after the = can only be the prompt.
        let printed = word.strip_prefix("-p=").or_else(|| word.strip_prefix("--print="));
        if let Some(text) = printed.filter(|text| is_run && text.contains(char::is_whitespace)) {
            has_prompt = true;
            normalised.push("--print".to_owned());
            texts.push(text.to_owned());
            continue;
        }
        if word == "--" {
            texts.extend(words.by_ref().cloned());
            normalised.push(word.clone());
            break;
        }
        if is_text(word) {
            if let Some(flag) = normalised.last_mut().filter(|flag| needs_value(flag)) {
                *flag = format!("{flag}={word}");
            } else {
                has_prompt = true;
                texts.push(word.clone());
            }
            continue;
        }
        let word = long_form(word);
        if !word.starts_with("--") {
            let is_value = normalised.last().is_some_and(|last| {
                last.starts_with('-') && last != "--print" && !is_print_switch(last)
            });
            has_prompt |= !word.starts_with('-') && !is_value;
            normalised.push(word.to_owned());
            continue;
        }
        let (flag, inline) = match word.split_once('=') {
            Some((flag, value)) => (kebab(flag), Some(value)),
            None => (kebab(word), None),
        };
        refuse_unsupported(&flag)?;
        let is_empty = match inline {
            Some(value) => value.is_empty(),
            None => words.peek().is_some_and(|value| value.is_empty()),
        };
        if is_empty && UNSET_IF_EMPTY.contains(&flag.as_str()) {
            words.next_if(|_| inline.is_none());
            let continues = value_list(&flag).zip(words.peek());
            if continues.is_some_and(|(continues, next)| continues(next, &folder)) {
                push_flag(flag, &mut words, (has_prompt, &folder), &mut normalised);
            }
            continue;
        }
        let Some(value) = inline else {
            push_flag(flag, &mut words, (has_prompt, &folder), &mut normalised);
            continue;
        };
        if flag == "--model" && value.trim().contains(char::is_whitespace) {
            odd_model = Some(value);
        }
        normalised.push(format!("{flag}={value}"));
    }
    // A model name with blanks is probably the prompt, unless there is another prompt.
    if let Some(model) = odd_model.filter(|_| texts.is_empty() && !has_plain_word(&normalised)) {
        return Err(UsageError::new(format!(
            "--model: {:?} is not the name of a model{PROMPT_HINT}",
            shortened(model, 60, "...")
        )));
    }
    if !texts.is_empty() && !normalised.iter().any(|word| word == "--") {
        normalised.push("--".to_owned());
    }
    normalised.extend(texts);
    Ok(normalised)
}

/// Returns true if a word is neither a flag nor the value of one.
fn has_plain_word(words: &[String]) -> bool {
    let is_value = |place: usize| place > 0 && needs_value(&words[place - 1]);
    let mut plain = words.iter().enumerate().filter(|(_, word)| !word.starts_with('-'));
    plain.any(|(place, _)| !is_value(place))
}

/// Adds a flag without `=`, with the words after it that are certainly its values.
fn push_flag(
    flag: String,
    words: &mut Words<'_>,
    (has_prompt, folder): (bool, &Path),
    normalised: &mut Vec<String>,
) {
    let takes_rules = RULE_LISTS.contains(&flag.as_str());
    if let Some(continues) = value_list(&flag)
        && let Some(first) = words.next_if(|next| !next.starts_with("--"))
    {
        normalised.push(format!("{flag}={first}"));
        while let Some(next) = words.next_if(|next| continues(next, folder)) {
            normalised.push(format!("{flag}={next}"));
        }
        return;
    }
    if has_optional_value(&flag) {
        let is_value =
            |next: &&String| !next.starts_with('-') && !next.contains(char::is_whitespace);
        let value = words.next_if(is_value);
        normalised.push(value.map_or(flag.clone(), |value| format!("{flag}={value}")));
        return;
    }
    normalised.push(flag);
    if takes_rules && let Some(first) = words.next_if(|next| !next.starts_with("--")) {
        let mut rules = first.clone();
        while let Some(rule) = words.next_if(|next| is_rule(next, has_prompt)) {
            rules = rules + "," + rule;
        }
        normalised.push(rules);
    }
}

/// Returns true if a word begins like a flag but is text: it contains a blank, unlike any flag
/// name.
fn is_text(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    name.starts_with('-') && name.contains(char::is_whitespace)
}

/// Returns true if a word is a flag, of any command, that requires a value.
pub(super) fn needs_value(word: &str) -> bool {
    fn has(command: &clap::Command, word: &str) -> bool {
        command.get_arguments().any(|arg| {
            let long = arg.get_long().map(|long| format!("--{long}"));
            let short = arg.get_short().map(|short| format!("-{short}"));
            let is_named = [long, short].iter().flatten().any(|name| name == word);
            let values = arg.get_num_args().map_or(0, |count| count.min_values());
            is_named && arg.get_action().takes_values() && values > 0
        }) || command.get_subcommands().any(|command| has(command, word))
    }
    // Built once, since it is searched for each odd word.
    static COMMAND: LazyLock<clap::Command> = LazyLock::new(|| {
        let mut command = super::command();
        command.build();
        command
    });
    word.starts_with('-') && has(&COMMAND, word)
}

/// Returns true if a word is a further value of a list, and not the prompt. Paths are relative to
/// the folder.
type ContinuesList = fn(&str, &Path) -> bool;

/// Returns the test that distinguishes further values of a flag from the prompt, if the flag takes
/// several paths or names.
fn value_list(flag: &str) -> Option<ContinuesList> {
    match flag {
        "--add-dir" => Some(|word, folder| folder.join(word).is_dir()),
        // Names of betas end in a date.
        "--betas" => Some(|word, _| word.bytes().filter(u8::is_ascii_digit).count() >= 8),
        "--channels" | "--dangerously-load-development-channels" => {
            Some(|word, _| word.starts_with("plugin:") || word.starts_with("server:"))
        }
        "--file" => Some(|word, _| word.starts_with("file_") && word.contains(':')),
        // A shell gives the name of a pipe for `<(command)`.
        "--mcp-config" => Some(|word, folder| {
            is_inline(word)
                || folder.join(word).metadata().is_ok_and(|file| !file.file_type().is_dir())
        }),
        _ => None,
    }
}

/// Returns the folder that `-C` names anywhere among the words, to which paths are relative.
fn named_folder(words: &[String]) -> PathBuf {
    let mut flags = words.iter().take_while(|word| *word != "--").peekable();
    let mut folder = PathBuf::new();
    while let Some(word) = flags.next() {
        match word.strip_prefix("-C") {
            Some("") => folder = flags.peek().map(PathBuf::from).unwrap_or_default(),
            Some(inline) => folder = PathBuf::from(inline.strip_prefix('=').unwrap_or(inline)),
            None => {}
        }
    }
    folder
}

/// Expands a one-letter flag with an optional value to its long form. Other words are unchanged.
fn long_form(word: &str) -> &str {
    match word {
        "-d" => "--debug",
        "-w" => "--worktree",
        _ => word,
    }
}

/// Turns `--camelCase` into `--kebab-case`.
pub(super) fn kebab(flag: &str) -> String {
    let mut kebab = String::with_capacity(flag.len() + 2);
    for letter in flag.chars() {
        if letter.is_ascii_uppercase() {
            kebab.push('-');
        }
        kebab.push(letter.to_ascii_lowercase());
    }
    kebab
}

/// Returns true if a word after a list of tool rules continues the list, and is not the prompt:
/// each of its items looks like the name of a tool, optionally with a rule in parentheses. If the
/// prompt was given before, any single identifier is accepted.
fn is_rule(word: &str, has_prompt: bool) -> bool {
    let items = crate::config::values::list(&[word]);
    let is_name = |item: &String| {
        let (name, scope) =
            item.split_once('(').map_or((item.as_str(), None), |(name, scope)| (name, Some(scope)));
        let is_word = name.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let has_capitals = name.chars().filter(char::is_ascii_uppercase).count() > 1;
        match (scope, classify_tool_name(name)) {
            (Some(scope), _) => is_word && scope.ends_with(')'),
            (None, ToolName::Known | ToolName::McpServer(_)) => true,
            (None, ToolName::Misspelled(_) | ToolName::Unknown(_)) => {
                is_word && (has_capitals || has_prompt)
            }
        }
    };
    !word.starts_with('-') && !items.is_empty() && items.iter().all(is_name)
}

/// A flag of related tools that only runs hooks. It is rejected: ignoring it would begin a run.
const UNSUPPORTED: &str = "--init-only";

fn refuse_unsupported(flag: &str) -> Result<(), UsageError> {
    if flag == UNSUPPORTED {
        return Err(UsageError::new(format!(
            "{flag} is not supported by this version of outlast; leave it out to run the prompt"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn flags_of_all_commands_are_taken_from_the_beginning() {
        let split = |words: &[&str]| split_directory(words.iter().map(OsString::from).collect());
        for (words, folder, left) in [
            (&["-C", "sub", "sessions"][..], Some("sub"), &["sessions"][..]),
            (&["-Csub", "sessions"], Some("sub"), &["sessions"]),
            (&["-C=sub", "--color=never", "sessions"], Some("sub"), &["sessions"]),
            (&["--color", "never", "-C", "sub", "-C", "..", "report"], Some("sub/.."), &["report"]),
            (&["-C", "sub", "-C/srv", "report"], Some("/srv"), &["report"]),
            (&["--color", "fix it"], None, &["--color", "fix it"]),
            (&["-Cflag is not passed on"], None, &["-Cflag is not passed on"]),
            (&["x", "-C", "sub"], None, &["x", "-C", "sub"]),
            (&["-C"], None, &["-C"]),
        ] {
            let left = left.iter().map(OsString::from).collect();
            assert_eq!(split(words), (folder.map(PathBuf::from), left), "{words:?}");
        }
    }

    #[test]
    fn the_result_file_is_in_the_folder_among_the_flags() {
        let scan = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let wanted = RequestedOutput::scan(&words, ProgramName::Outlast);
            wanted.within(Some(Path::new("/srv"))).result_file
        };
        for (words, file) in [
            (&["x y", "--result-file", "r.json", "-C", "sub"][..], Some("/srv/sub/r.json")),
            (&["x y", "-Ca", "--result-file", "r.json", "-C=/b"], Some("/b/r.json")),
            (&["x y", "--result-file=r.json", "--", "-C", "sub"], Some("/srv/r.json")),
            (&["x y", "-C", "sub"], None),
        ] {
            assert_eq!(scan(words), file.map(PathBuf::from), "{words:?}");
        }
    }

    #[test]
    fn the_names_of_all_commands_are_known_without_the_parser() {
        let cli = crate::cli::args::command();
        let known: BTreeSet<&str> = commands().collect();
        let all = cli
            .get_subcommands()
            .flat_map(|command| command.get_all_aliases().chain([command.get_name()]));
        assert_eq!(known, all.collect());
    }
}
