//! The words of a command line that may name programs. No shell is emulated: a line is cut at every
//! character that can end a word, both with its quotes and without them.

use std::ffi::OsStr;

use super::code_programs::{SHELLS, is_command_flag, is_interpreter, program_name};
use super::data_words::{Operands, without_data};
use super::job::Job;
use super::job_paths::{FoundPrograms, variable};
use super::script_lines::interpreter_words;

/// Characters that end a word, in addition to blanks.
const SEPARATORS: &[char] =
    &[';', '|', '&', '(', ')', '<', '>', '{', '}', '`', '=', ',', ':', '[', ']', '!', '#'];

/// The placeholder for the value of an unknown variable: a word that begins with it is treated as a
/// path in the working folder.
pub(super) const UNKNOWN: &str = "\u{0}";

/// The words of a job.
#[derive(Debug, Default)]
pub(super) struct ProgramWords {
    /// The words in their order, as if there were no quotes.
    pub(super) in_order: Vec<String>,
    /// Further words: whole arguments, and quoted parts with their blanks.
    pub(super) further: Vec<String>,
    /// The words of the first lines of scripts among these words.
    pub(super) of_scripts: Vec<String>,
}

impl ProgramWords {
    /// The words of a job, with the values of the variables in its environment.
    pub(super) fn of(job: &Job, programs: &FoundPrograms) -> Self {
        Self::in_arguments(job, arguments_of(job), programs)
    }

    /// The words of a job with these of its operands only.
    pub(super) fn with(operands: Operands, job: &Job, programs: &FoundPrograms) -> Self {
        let arguments = arguments_of(job);
        let run = without_data(operands, &job.program.to_string_lossy(), &arguments);
        let is_complete = operands == Operands::MayBeCode || run.is_complete;
        let kept = if is_complete { run.arguments } else { arguments };
        let mut words = Self::in_arguments(job, kept, programs);
        let files = run.files.iter().flat_map(|file| cut(file, true, job));
        words
            .further
            .extend(files.map(|it| if is_path_alone(&it) { it } else { format!("./{it}") }));
        words
    }

    fn in_arguments(job: &Job, arguments: Vec<String>, programs: &FoundPrograms) -> Self {
        let mut words = Self::default();
        words.in_order.push(job.program.to_string_lossy().into_owned());
        for text in arguments {
            words.in_order.extend(cut(&text, false, job));
            words.further.extend(cut(&text, true, job));
            // A path with blanks in it, or a line.
            if is_path_alone(&text) || job.cwd.join(&text).exists() {
                words.further.push(text);
            }
        }
        words.of_scripts = interpreter_words(words.written(), job, programs);
        words
    }

    /// The words of the line itself.
    pub(super) fn written(&self) -> impl Iterator<Item = &String> {
        self.in_order.iter().chain(&self.further)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.written().chain(&self.of_scripts)
    }

    /// Each interpreter among the words, with its first operand. A shell with `-c` is left out: its
    /// line of commands is cut into words like the others.
    pub(super) fn interpreted(&self) -> impl Iterator<Item = (&String, Option<&String>)> {
        [(&self.in_order, false), (&self.of_scripts, true)].into_iter().flat_map(
            |(all, are_lines)| {
                all.iter().enumerate().filter_map(move |(index, word)| {
                    let (name, rest) = (program_name(word), &all[index + 1..]);
                    let is_shell = SHELLS.contains(&name.as_str());
                    let runs_line = is_shell && rest.first().is_some_and(|it| is_command_flag(it));
                    let first =
                        || if are_lines { operand(&name, rest) } else { plain_operand(rest) };
                    let is_given_file = is_interpreter(&name) && !runs_line;
                    is_given_file.then(|| (word, first()))
                })
            },
        )
    }
}

fn arguments_of(job: &Job) -> Vec<String> {
    job.arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// The first operand of a program.
fn plain_operand(words: &[String]) -> Option<&String> {
    words.iter().find(|word| !word.starts_with('-'))
}

/// Options of interpreters whose value is the next word, and does not name code.
const WITH_VALUE: [(&[&str], &[&str]); 3] = [
    (&["python", "pypy"], &["-W", "-X"]),
    (&["node", "nodejs"], &["--disable-warning", "--input-type", "--unhandled-rejections"]),
    (&SHELLS, &["-o", "-O", "-eo", "-uo", "-euo", "-eou"]),
];

/// The first operand of an interpreter in the first line of a script.
fn operand<'a>(interpreter: &str, words: &'a [String]) -> Option<&'a String> {
    if words.iter().any(|word| is_command_flag(word)) {
        return plain_operand(words);
    }
    let options = WITH_VALUE.iter().find(|(names, _)| names.contains(&interpreter));
    let takes_value = |word: &String| options.is_some_and(|(_, it)| it.contains(&word.as_str()));
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if takes_value(word) {
            rest.next();
        } else if !word.starts_with('-') {
            return Some(word);
        }
    }
    None
}

/// Returns true if a text begins like a path that needs no folder before it.
pub(super) fn is_path_alone(text: &str) -> bool {
    ["/", "~/", "./", "../"].iter().any(|begin| text.starts_with(begin))
}

/// Cuts a text into words. With `quotes`, a quoted part stays together.
fn cut(text: &str, quotes: bool, job: &Job) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    // A path after a substitution (`$(pwd)/x`) may be one in the working folder.
    let mut add = |word: String, follows_value: bool| {
        let local = format!(".{word}");
        let is_local = follows_value && word.starts_with('/') && job.cwd.join(&local).exists();
        words.extend(is_local.then_some(local));
        words.push(word);
    };
    let mut follows_value = false;
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        let is_inside = quotes && quote.is_some();
        match letter {
            '\\' => {
                if let Some(next) = rest.chars().next() {
                    // A line is continued in the next one.
                    word.extend((next != '\n').then_some(next));
                    rest = &rest[next.len_utf8()..];
                }
            }
            '"' | '\'' if !quotes || quote.is_none() || quote == Some(letter) => {
                quote = if quote.is_some() { None } else { Some(letter) };
            }
            '$' => {
                let (value, after) = expand(rest, job);
                word.push_str(value.as_deref().unwrap_or(UNKNOWN));
                rest = after;
            }
            // The value stays in the word of its option.
            '=' if word.starts_with('-') && !is_inside => {
                word.push('=');
            }
            _ if !is_inside && (letter.is_whitespace() || SEPARATORS.contains(&letter)) => {
                add(std::mem::take(&mut word), follows_value);
                follows_value = [')', '`', '}'].contains(&letter);
            }
            _ => word.push(letter),
        }
    }
    add(word, follows_value);
    words.retain(|word| !word.is_empty());
    words
}

/// The value of the variable whose name a text begins with, in braces or not, and the text after
/// it. Operators of a shell (`${NAME:-word}`) are left in that text, to be cut.
fn expand<'a>(text: &'a str, job: &Job) -> (Option<String>, &'a str) {
    let braced = text.strip_prefix('{');
    let name = braced.unwrap_or(text);
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let length = name.find(|letter| !is_part(letter)).unwrap_or(name.len());
    let (name, after) = name.split_at(length);
    if name.is_empty() {
        return (Some(String::new()), text);
    }
    let value = match name {
        "PWD" => job.cwd.to_str().map(str::to_owned),
        _ => variable(job, name).and_then(OsStr::to_str).map(str::to_owned),
    };
    let Some(after_brace) = braced.and(after.find('}')) else { return (value, after) };
    if value.is_some() || after_brace == 0 {
        return (value, &after[after_brace + 1..]);
    }
    // The default begins a word.
    let default = after.strip_prefix(':').unwrap_or(after).strip_prefix(['-', '=', '+', '?']);
    default.map_or((None, after), |default| (Some(String::new()), default))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(line: &str) -> Job {
        let variables = [("CLAUDE_PROJECT_DIR", "/my work"), ("HOME", "/home/me")];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        Job::shell(line, "/my work", variables)
    }

    fn words(line: &str) -> ProgramWords {
        ProgramWords::of(&job(line), &FoundPrograms::default())
    }

    #[test]
    fn a_program_is_among_the_words_wherever_a_shell_runs_it() {
        let guard = "/my work/g.sh";
        for line in [
            "\"$CLAUDE_PROJECT_DIR\"/g.sh",
            "\"${CLAUDE_PROJECT_DIR}/g.sh\" --strict",
            "${CLAUDE_PROJECT_DIR:-.}/g.sh",
            "'/my work/g.sh'",
            "/my\\ work/g'.'sh",
            "true&&\"$PWD/g.sh\"",
            "A=b C=\"d e\" \"$PWD\"/g.sh;x",
            "( cd x; \"$PWD\"/g.sh )",
            "echo \"$($PWD/g.sh | cat)\"",
            "x=`$PWD/g.sh`",
            "cat <(\"$PWD\"/g.sh)",
            "cat <<EOF\nisn't it\nEOF\n$PWD/g.sh",
            "bash -c \"true; '$PWD/g.sh'\"",
            "env PROGRAM=\"$PWD/g.sh\" run",
            "run --program=\"$PWD/g.sh\"",
        ] {
            let words = words(line);
            assert!(words.all().any(|word| word.ends_with(guard)), "{line}: {words:?}");
        }
        for line in ["$OTHER/g.sh", "${OTHER}/g.sh"] {
            assert!(words(line).all().any(|word| word == "\0/g.sh"), "{line}");
        }
        let words = words("node --max=4096 /opt/x.js").in_order;
        assert_eq!(words, ["/bin/sh", "-c", "node", "--max=4096", "/opt/x.js"]);
    }

    #[test]
    fn broken_and_long_lines_do_not_panic() {
        for line in ["'", "\"$(", "${", "`", "<<", "$", "\\", "a<<x\n", "é'é", "))", "`$(`", "${é"]
        {
            words(line);
        }
        words(&"`\"$(".repeat(30_000));
    }
}
