//! The files that a simple command runs although no word of it is the path of a program: those that
//! an option names (`awk -f x`), lie in a folder (`run-parts x`), or are found (`find`, `xargs`).

use super::code_programs::{INTERPRETERS, SHELLS, program_name};
use super::data_words::Word;

/// A file that may lie in the working folder, under any name. No file has this one.
pub(super) const ANY_FILE: &str = "./\0";

/// Options of programs that name a file of code or of settings, and letters of those that are
/// written together with another value.
const CODE_OPTIONS: [(&str, &[&str], &str); 6] = [
    ("jq", &["f", "L", "from-file", "library-path"], ""),
    ("sed", &["f", "file"], "eil"),
    ("awk", &["f", "file", "l", "i", "include", "load"], "vF"),
    ("gawk", &["f", "file", "l", "i", "E", "include", "load", "exec"], "veFW"),
    ("mawk", &["f", "file", "W"], "vF"),
    ("curl", &["K", "config"], "AbcCdDeEFhHmoPQrtTuUwxXyYz"),
];

/// Programs that run what they are told, also by their input.
const EDITORS: [&str; 11] =
    ["vi", "vim", "nvim", "ex", "ed", "emacs", "expect", "tclsh", "gdb", "lldb", "at"];

/// Programs that run their operands as a command, and letters of their options with a value.
const WRAPPERS: [(&str, &str); 20] = [
    ("env", "uCaPLU"),
    ("timeout", "ks"),
    ("nice", "n"),
    ("nohup", ""),
    ("setsid", ""),
    ("stdbuf", "ioe"),
    ("ionice", "cnpPu"),
    ("chrt", "TPD"),
    ("taskset", ""),
    ("sudo", "ugCDhpRrTtU"),
    ("doas", "uCa"),
    ("command", ""),
    ("builtin", ""),
    ("exec", "a"),
    ("time", "fo"),
    ("strace", "eopsuEabIOPSUX"),
    ("unshare", "SGRw"),
    ("busybox", ""),
    ("xargs", "adEILnPs"),
    ("parallel", "aIjNdL"),
];

/// Long options of these that have no value.
const PLAIN_OPTIONS: [&str; 9] = [
    "",
    "foreground",
    "ignore-environment",
    "no-run-if-empty",
    "non-interactive",
    "null",
    "preserve-env",
    "preserve-status",
    "wait",
];

/// A command that another program runs.
#[derive(Debug)]
pub(super) struct Wrapped<'a> {
    pub(super) words: &'a [Word],
    /// True if it certainly begins with the first of these words.
    pub(super) is_certain: bool,
}

/// Returns true if a program runs a command with words of its input.
pub(super) fn takes_words_of_input(name: &str) -> bool {
    ["xargs", "parallel"].contains(&name)
}

/// The operands of a program that are a command, if it runs one: those after its options, numbers
/// and variables.
pub(super) fn wrapped<'a>(name: &str, operands: &'a [Word]) -> Option<Wrapped<'a>> {
    let (_, with_value) = WRAPPERS.iter().find(|(wrapper, _)| *wrapper == name)?;
    let (mut rest, mut is_certain) = (operands, true);
    while let [word, after @ ..] = rest {
        let flag = word.text.strip_prefix('-');
        // A whole line in one word.
        if name == "env" && flag.is_some_and(|it| it.contains('S') || it.starts_with("-s")) {
            return None;
        }
        // It only looks the command up.
        if name == "command" && flag.is_some_and(|it| it.contains(['v', 'V'])) {
            return None;
        }
        let is_number = !word.varies && word.text.starts_with(|it: char| it.is_ascii_digit());
        if flag.is_none() && !is_number && !word.is_assignment() {
            break;
        }
        let long = flag.and_then(|it| it.strip_prefix('-'));
        let short = flag.filter(|_| long.is_none());
        let may_take_next =
            long.is_some_and(|it| !it.contains('=') && !PLAIN_OPTIONS.contains(&it));
        is_certain &= !(may_take_next || (short.is_some() && word.varies));
        let short = short.unwrap_or_default();
        // What follows the letter in the same word is its value.
        let place = short.find(|it| with_value.contains(it));
        let takes_next = place.is_some_and(|place| place + 1 == short.len());
        rest = if takes_next { after.get(1..).unwrap_or_default() } else { after };
    }
    Some(Wrapped { words: rest, is_certain })
}

/// Pushes the paths of files that a command may run. `is_given` is true if it gets further operands
/// from the input of a program.
pub(super) fn push_run_files(
    head: &str,
    operands: &[Word],
    is_given: bool,
    files: &mut Vec<String>,
) {
    let name = program_name(head);
    let name = name.as_str();
    if let Some(Wrapped { words: inner, .. }) = wrapped(name, operands) {
        push_of_wrapper(inner, is_given || takes_words_of_input(name), files);
        let runs_input = is_given || name == "parallel";
        files.extend((inner.is_empty() && runs_input).then(|| ANY_FILE.to_owned()));
    } else if EDITORS.contains(&name) {
        files.push(ANY_FILE.to_owned());
    } else if [".", "source"].contains(&name) {
        files.extend(operands.first().map(in_working_folder));
    } else if name == "run-parts" {
        let folders = operands.iter().filter(|word| !word.text.starts_with('-'));
        files.extend(folders.map(any_file_in));
    } else if name == "find" {
        push_of_find(operands, files);
    } else {
        let named = code_options(name, operands);
        files.extend((is_given && !named.is_empty()).then(|| ANY_FILE.to_owned()));
        files.extend(named);
    }
    let is_script = |word: &Word| !word.text.starts_with('-') && word.source.contains('/');
    let runs_files = SHELLS.contains(&name) || INTERPRETERS.contains(&name) || name == ".";
    if is_given && runs_files && !operands.first().is_some_and(is_script) {
        files.push(ANY_FILE.to_owned());
    }
}

pub(super) fn has_code_options(name: &str) -> bool {
    CODE_OPTIONS.iter().any(|(program, ..)| *program == program_name(name))
}

/// The paths of files that options of a command name.
pub(super) fn code_options(name: &str, operands: &[Word]) -> Vec<String> {
    let Some((_, options, other)) = CODE_OPTIONS.iter().find(|(program, ..)| *program == name)
    else {
        return Vec::new();
    };
    let named = operands.iter().enumerate().filter_map(|(place, word)| {
        let value = option_value(&word.text, options, other)?;
        // The file of jq is its next operand, whatever options stand between.
        let is_jq = name == "jq";
        let value = if is_jq && !word.text.contains(['=', 'L']) { "" } else { value };
        let mut after = operands[place + 1..].iter();
        let next = after.find(|word| !is_jq || !word.text.starts_with('-'));
        let next = next.map_or_else(|| ANY_FILE.to_owned(), in_working_folder);
        Some(if value.is_empty() { next } else { in_working_folder(&Word::literal(value)) })
    });
    named.collect()
}

/// The value that a word has for one of these options: `-rf`, `--from-file`, `--from-file=x`. Empty
/// if it is the next word.
fn option_value<'a>(word: &'a str, options: &[&str], other: &str) -> Option<&'a str> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').unwrap_or((long, ""));
        // Programs take beginnings of names, too.
        let is_one = |option: &&str| option.len() > 1 && option.starts_with(name);
        return (!name.is_empty() && options.iter().any(is_one)).then_some(value);
    }
    let short = word.strip_prefix('-')?;
    let is_one = |letter: char| options.contains(&letter.to_string().as_str());
    let place = short.find(|letter| is_one(letter) || other.contains(letter))?;
    let (letter, value) = short[place..].split_at_checked(1)?;
    options.contains(&letter).then_some(value)
}

/// The path of a word, in the working folder if it has no slash.
fn in_working_folder(word: &Word) -> String {
    if word.source.contains('/') { word.source.clone() } else { format!("./{}", word.source) }
}

/// Any file in the folder that a word names.
fn any_file_in(word: &Word) -> String {
    format!("{}/\0", in_working_folder(word))
}

fn push_of_wrapper(command: &[Word], is_given: bool, files: &mut Vec<String>) {
    let Some((head, operands)) = command.split_first() else { return };
    // The placeholder of a word of the input.
    let is_placeholder = is_given && head.text.contains(['{', '%', '@']);
    if is_placeholder || (head.varies && !head.source.contains('/')) {
        files.push(ANY_FILE.to_owned());
    }
    push_run_files(&head.text, operands, is_given, files);
}

fn push_of_find(operands: &[Word], files: &mut Vec<String>) {
    let begins_test = |word: &Word| ["-", "(", "!"].iter().any(|it| word.text.starts_with(it));
    let starts = operands.iter().take_while(|word| !begins_test(word));
    let mut places: Vec<String> = starts.map(any_file_in).collect();
    if places.is_empty() {
        places.push(ANY_FILE.to_owned());
    }
    let mut rest = operands;
    while let Some(place) = rest.iter().position(|word| is_execution(&word.text)) {
        let command = &rest[place + 1..];
        let end = command.iter().position(|word| [";", "+"].contains(&word.text.as_str()));
        let (command, after) = command.split_at(end.unwrap_or(command.len()));
        let mut run = Vec::new();
        push_of_wrapper(command, true, &mut run);
        if run.iter().any(|file| file == ANY_FILE) {
            files.extend(places.iter().cloned());
        }
        files.append(&mut run.into_iter().filter(|file| file != ANY_FILE).collect());
        rest = after;
    }
}

fn is_execution(word: &str) -> bool {
    ["-exec", "-execdir", "-ok", "-okdir"].contains(&word)
}
