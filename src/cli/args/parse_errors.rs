//! Converts the parser's errors to one line each.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use super::CliRequest;
use super::argv::{self, PROMPT_HINT, needs_value};
use super::inspect::SERVERS_ELSEWHERE;
use super::synonyms::{
    command_for, first_word_for, flag_for, format_flag_for, has_flag, misspelled_command,
    named_command, named_commands,
};
use crate::cli::usage::UsageError;
use crate::text;

const SEE_HELP: &str = "see outlast --help";

/// Converts a parser error to a request (help, version) or a usage error. `words` are the
/// arguments.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "later versions of the parser may have more kinds"
)]
pub(super) fn explain(error: &Error, words: &[String]) -> Result<CliRequest, UsageError> {
    let arg = context_text(error, ContextKind::InvalidArg);
    Err(match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Ok(CliRequest::Help(error.render()));
        }
        ErrorKind::UnknownArgument => unknown(error, words),
        ErrorKind::InvalidSubcommand => {
            unknown_command(&context_text(error, ContextKind::InvalidSubcommand), words)
        }
        ErrorKind::InvalidValue => with_prompt_hint(wrong_choice(error), error, words),
        ErrorKind::ValueValidation => with_prompt_hint(wrong_value(error), error, words),
        ErrorKind::ArgumentConflict if arg.is_empty() => too_many("", words),
        ErrorKind::ArgumentConflict => UsageError::new(format!(
            "{arg} and {} cannot be used together; leave one of them out",
            context_text(error, ContextKind::PriorArg)
        )),
        ErrorKind::MissingRequiredArgument => {
            UsageError::new(format!("{arg} is missing; {}", see_help(words)))
        }
        ErrorKind::TooManyValues => UsageError::new(format!("{arg} takes no value; {SEE_HELP}")),
        _ => UsageError::new(format!("{}; {SEE_HELP}", first_line(error))),
    })
}

/// Rejects a single word that is not a command: it may be a mistyped command, and running it as a
/// prompt costs money. Flags, `-`, `/NAME`, several words in quotes, and text in scripts without
/// spaces pass.
///
/// # Errors
/// Names the commands that may be meant, and how to pass such a prompt.
pub(super) fn check_single_word(word: &str) -> Result<(), UsageError> {
    if !is_single_word(word) {
        return Ok(());
    }
    if argv::is_command(word) {
        return Ok(());
    }
    let hint = first_word_for(word).map_or_else(
        || {
            let commands = super::visible_commands(&super::command()).join(", ");
            format!("the commands are {commands}.")
        },
        |meant| format!("did you mean {meant}?"),
    );
    let word = shortened(word);
    Err(UsageError::new(format!(
        "{word:?} is not a command of outlast; {hint} Give a prompt of several words in quotes, and \
         this one as: outlast run {word}"
    )))
}

/// Rejects a prompt among flags that is a command, or is nearly one: the command may be mistyped,
/// or stand in the wrong place. `resumes`: a session is resumed, where "continue" is a prompt.
///
/// # Errors
/// Names the command, and how to pass such a prompt.
pub(super) fn check_command_like(prompt: &str, resumes: bool) -> Result<(), UsageError> {
    if !is_single_word(prompt) {
        return Ok(());
    }
    let what = if argv::is_command(prompt) {
        "is a command of outlast, and stands before its flags".to_owned()
    } else {
        let meant = if resumes { misspelled_command(prompt) } else { first_word_for(prompt) };
        let Some(meant) = meant else { return Ok(()) };
        format!("is not a command of outlast; did you mean {meant}?")
    };
    let word = shortened(prompt);
    Err(UsageError::new(format!(
        "{word:?} {what} (a prompt of this one word: outlast run {word} ...)"
    )))
}

/// Returns true if a text may be the name of a command.
fn is_single_word(word: &str) -> bool {
    let is_other = word.starts_with(['-', '/']) || word.contains(char::is_whitespace);
    !word.is_empty() && !is_other && word.is_ascii()
}

fn unknown(error: &Error, words: &[String]) -> UsageError {
    let flag = context_text(error, ContextKind::InvalidArg);
    let cli = super::command();
    let command = named_command(&cli, words);
    if !flag.starts_with('-') {
        let is_below = command.get_name() != cli.get_name() && command.has_subcommands();
        return if is_below { unknown_command(&flag, words) } else { too_many(&flag, words) };
    }
    let suggestion = |meant: String| format!("did you mean {meant}?");
    let meant = format_flag_for(&flag, value_of(&flag, words), command)
        .map(suggestion)
        .or_else(|| flag_of_run(&flag, command, &cli, words))
        .or_else(|| flag_for(&flag, command).map(suggestion));
    let name = flag.trim_start_matches("--");
    let is_name = name.starts_with(|one: char| one.is_ascii_lowercase());
    let prompt = if may_be_prompt(&flag, words) { PROMPT_HINT } else { "" };
    let takes_prompt = takes_prompt(command, &cli);
    if flag.starts_with("-C") && !takes_prompt {
        let path = path_of(words);
        return UsageError::new(format!("-C stands before the command: outlast -C DIR {path} ..."));
    }
    let hint = if let Some((taker, value)) = value_as_flag(&flag, words) {
        format!("; a value of {taker} that begins with \"-\" stands after \"=\": {taker}={value}")
    } else if let Some(meant) = meant {
        format!("{prompt}; {meant} ({})", see_help(words))
    } else if !is_name && takes_prompt {
        format!("{PROMPT_HINT} ({SEE_HELP})")
    } else {
        format!("{prompt}; {}", see_help(words))
    };
    UsageError::new(format!("unknown flag {}{hint}", shortened(&flag)))
}

/// Returns true if a command takes a prompt: a run, with or without its name.
fn takes_prompt(command: &Command, cli: &Command) -> bool {
    [cli.get_name(), "run"].contains(&command.get_name())
}

/// Adds the hint about prompts, if the flag and its wrong value look like a prompt.
fn with_prompt_hint(mistake: UsageError, error: &Error, words: &[String]) -> UsageError {
    if may_be_prompt(&flag_of(error), words) {
        UsageError::new(format!("{mistake}{PROMPT_HINT}"))
    } else {
        mistake
    }
}

/// Returns true if a flag has a value of several words after `=`.
fn may_be_prompt(flag: &str, words: &[String]) -> bool {
    let cli = super::command();
    if !takes_prompt(named_command(&cli, words), &cli) {
        return false;
    }
    let value = |word: &String| {
        let value = word.strip_prefix(flag)?.strip_prefix('=')?;
        Some(value.trim().contains(char::is_whitespace))
    };
    words.iter().filter_map(value).any(|is_sentence| is_sentence)
}

/// Returns the flag whose value was read as an unknown flag, and that value:
/// `--append-system-prompt -terse`.
fn value_as_flag<'a>(flag: &str, words: &'a [String]) -> Option<(&'a str, &'a str)> {
    let mut pairs = words.iter().zip(words.iter().skip(1));
    let (taker, value) = pairs.find(|(_, word)| word.starts_with(flag))?;
    needs_value(taker).then_some((taker, value))
}

/// Returns the word after a flag, or its value after `=`.
fn value_of<'a>(flag: &str, words: &'a [String]) -> &'a str {
    let value = words.iter().enumerate().find_map(|(index, word)| {
        if word == flag {
            return words.get(index + 1).map(String::as_str);
        }
        word.strip_prefix(flag)?.strip_prefix('=')
    });
    value.unwrap_or_default()
}

/// Returns the advice for a flag of `outlast run`, perhaps misspelt, among the flags of a command
/// that takes flags of a run after `--`. `None`: the flag is not one of a run.
fn flag_of_run(flag: &str, command: &Command, cli: &Command, words: &[String]) -> Option<String> {
    command.get_positionals().find(|arg| arg.is_last_set())?;
    let path = path_of(words);
    // The output of the command is not that of a run.
    let is_format = |flag: &str| flag.starts_with("--output-format");
    if is_format(flag) {
        return has_flag(command, "--json").then(|| "did you mean --json?".to_owned());
    }
    if has_flag(cli, flag) {
        return Some(format!(
            "it is a flag of outlast run, and those stand after \"--\": outlast {path} ... -- {flag}"
        ));
    }
    if flag_for(flag, command).is_some() {
        return None;
    }
    let meant = flag_for(flag, cli).filter(|meant| !is_format(meant))?;
    Some(format!(
        "did you mean {meant}? It is a flag of outlast run, and those stand after \"--\": outlast \
         {path} ... -- {meant}"
    ))
}

/// Rejects a word in the place of a subcommand of the command that the words name.
fn unknown_command(word: &str, words: &[String]) -> UsageError {
    let cli = super::command();
    let command = named_command(&cli, words);
    let outer = command.get_name();
    // A mistyped command before the word is taken for an operand, as in `batch statuss DIR`.
    let before = words.iter().skip_while(|one| *one != outer).nth(1).filter(|one| *one != word);
    let near = before.into_iter().map(String::as_str).chain([word]);
    let (named, meant) = near
        .map(|one| (one, command_for(one, command)))
        .find(|(_, meant)| meant.is_some())
        .unwrap_or((word, None));
    let hint = meant.map_or_else(
        || {
            let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set());
            let shown: Vec<&str> = shown.map(Command::get_name).collect();
            let advice = match outer {
                "mcp" => format!(". {SERVERS_ELSEWHERE}"),
                "batch" => "; tasks are run by their file alone: outlast batch TASKS".to_owned(),
                _ => String::new(),
            };
            format!("its commands are {}{advice}", shown.join(", "))
        },
        |meant| format!("did you mean {meant}?"),
    );
    UsageError::new(format!(
        "{:?} is not a command of outlast {outer}; {hint} (see outlast {outer} --help)",
        shortened(named)
    ))
}

fn too_many(word: &str, words: &[String]) -> UsageError {
    let which = if word.is_empty() { String::new() } else { format!(": {:?}", shortened(word)) };
    let cli = super::command();
    let command = named_command(&cli, words).get_name();
    let is_root = command == cli.get_name();
    let meant = words.first().filter(|_| is_root).and_then(|first| first_word_for(first));
    let first = words.first().filter(|first| is_root && is_single_word(first));
    let has_sentence = words.iter().any(|word| word.contains(char::is_whitespace));
    let before_dashes = words.iter().take_while(|word| *word != "--");
    let misplaced =
        before_dashes.skip(1).find(|word| is_root && cli.find_subcommand(word).is_some());
    let is_flag_first = words.first().is_some_and(|first| first.starts_with('-'));
    let hint = if let Some(command) = misplaced.filter(|_| is_flag_first) {
        format!("{command} is a command, and stands before its flags: outlast {command} ...")
    } else if let (Some(meant), Some(first)) = (meant, words.first()) {
        format!(
            "{:?} is not a command of outlast: did you mean {meant}? A prompt of several words stands in \
             quotes",
            shortened(first)
        )
    } else if let Some(first) = first.filter(|_| has_sentence) {
        format!(
            "{:?} is not a command of outlast: outlast run PROMPT runs a prompt",
            shortened(first)
        )
    } else if is_root || command == "run" {
        "put the prompt in quotes, as one argument".to_owned()
    } else {
        see_help(words)
    };
    UsageError::new(format!("one argument too many{which}; {hint}"))
}

/// Refers to the help of the command that the words name.
fn see_help(words: &[String]) -> String {
    match path_of(words) {
        path if path.is_empty() => SEE_HELP.to_owned(),
        path => format!("see outlast {path} --help"),
    }
}

/// Returns the names of the commands that the words begin with.
fn path_of(words: &[String]) -> String {
    let cli = super::command();
    named_commands(&cli, words).map(Command::get_name).collect::<Vec<_>>().join(" ")
}

fn wrong_choice(error: &Error) -> UsageError {
    let flag = flag_of(error);
    let value = context_text(error, ContextKind::InvalidValue);
    let choices = context_text(error, ContextKind::ValidValue);
    UsageError::new(match (value.is_empty(), choices.is_empty()) {
        (true, true) => format!("{flag} needs a value; {SEE_HELP}"),
        (true, false) => format!("{flag} needs a value: one of {choices}"),
        (false, true) => format!("{flag} does not take {value:?}; {SEE_HELP}"),
        (false, false) => format!("{flag}: {:?} is none of {choices}", shortened(&value)),
    })
}

fn wrong_value(error: &Error) -> UsageError {
    let why = error.source().map_or_else(|| first_line(error), ToString::to_string);
    let value = context_text(error, ContextKind::InvalidValue);
    UsageError::new(format!("{}: {:?} {}", flag_of(error), shortened(&value), with_verb(&why)))
}

/// The messages of the number parsers, each with what they mean.
const NUMBER_ERRORS: [(&str, &str); 3] = [
    ("invalid digit found in string", "must be a whole number"),
    ("cannot parse integer from empty string", "must be a whole number"),
    ("number too large to fit in target type", "is too large"),
];

/// Completes the message of a number parser, which has no verb. Other messages continue the
/// sentence.
fn with_verb(why: &str) -> String {
    if let Some((_, meaning)) = NUMBER_ERRORS.iter().find(|(message, _)| *message == why) {
        return (*meaning).to_owned();
    }
    if let Some((_, range)) = why.split_once(" is not in ")
        && let Some((least, _)) = range.split_once("..")
    {
        return format!("must be a whole number, at least {least}");
    }
    match why.split_whitespace().next() {
        Some("must" | "is") => why.to_owned(),
        Some(_) | None => format!("is not valid: {why}"),
    }
}

/// Returns the flag as typed, without the placeholder of its value.
fn flag_of(error: &Error) -> String {
    context_text(error, ContextKind::InvalidArg).split(' ').next().unwrap_or_default().to_owned()
}

fn context_text(error: &Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        Some(ContextValue::StyledStr(text)) => text.to_string(),
        Some(ContextValue::Number(number)) => number.to_string(),
        Some(_) | None => String::new(),
    }
}

fn first_line(error: &Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

fn shortened(text: &str) -> String {
    text::shortened(text, 60, "...")
}
