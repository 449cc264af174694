//! Removes from a command line the operands that its programs never run: those of programs that
//! only show, compare or send them (`echo`, `jq`, `date`), or also those of programs that only
//! read, check or test them (`process/reading_programs.rs`).
//!
//! No shell is emulated: a line that is not certainly understood is not changed.

use super::code_programs::{
    DATA_PROGRAMS, FEEDERS, SHELLS, WRAPPERS, is_command_flag, program_name, system_name,
};
use super::reading_programs::Reading;

/// Stands for a file of any name in the working folder. No file can have this name.
const ANY_FILE: &str = "./\0";

/// Words after which a command begins.
const BEFORE_COMMANDS: [&str; 10] =
    ["if", "then", "else", "elif", "do", "while", "until", "!", "{", "}"];

/// Programs with an option that names a file of instructions.
const FILE_OPTIONS: [FileOption; 6] = [
    FileOption { program: "sed", letter: 'f', name: "--file", with_value: "eil" },
    FileOption { program: "jq", letter: 'f', name: "--from-file", with_value: "L" },
    FileOption { program: "awk", letter: 'f', name: "--file", with_value: "vF" },
    FileOption { program: "gawk", letter: 'f', name: "--file", with_value: "veFW" },
    FileOption { program: "mawk", letter: 'f', name: "--file", with_value: "vF" },
    // A configuration can name files to write.
    FileOption {
        program: "curl",
        letter: 'K',
        name: "--config",
        with_value: "AbcCdDeEFHmoPQrtTuUwxXyYz",
    },
];

/// The maximum depth of nested substitutions and shells.
const DEPTH_MAX: usize = 8;

/// The operands that are left in a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operands {
    /// Those that may be run, or read by what runs them: all but those of data programs.
    MayBeCode,
    /// Those that may be run themselves: all but those that listed programs only read.
    MayBeExecuted,
}

/// The words of a command line that may be run.
#[derive(Debug, Default)]
pub(super) struct RunWords {
    /// The arguments, without the operands that are not left.
    pub(super) arguments: Vec<String>,
    /// Programs among them, and further files that the command line may run.
    pub(super) files: Vec<String>,
    /// False if it may run a file that is not among the arguments.
    pub(super) is_complete: bool,
    /// True if one of its commands loads code from files that no word names.
    loads_code: bool,
    /// True if it writes a file.
    writes: bool,
}

impl Operands {
    /// The operands of a command that are left. `None`: its program may run anything on the line.
    fn kept<'a>(self, program: &Word, operands: &'a [Word]) -> Option<Vec<&'a Word>> {
        match self {
            Self::MayBeCode if is_data_program(&program.text) => Some(Vec::new()),
            Self::MayBeCode => Some(operands.iter().collect()),
            Self::MayBeExecuted if program.varies => None,
            Self::MayBeExecuted => match reading_of(program, operands)? {
                Reading::Any => Some(Vec::new()),
                _ if operands.iter().any(Word::is_computed) => None,
                Reading::AsWritten => Some(Vec::new()),
                Reading::LoadsCode { executed } => {
                    let kept: Vec<_> = executed.into_iter().map(|index| &operands[index]).collect();
                    (!kept.iter().any(|word| word.varies)).then_some(kept)
                }
            },
        }
    }
}

fn reading_of(program: &Word, operands: &[Word]) -> Option<Reading> {
    let texts: Vec<&str> = operands.iter().map(|word| word.text.as_str()).collect();
    Reading::of(&program.text, &texts)
}

/// The arguments of a program without the words that are never run.
pub(super) fn without_data(operands: Operands, program: &str, arguments: &[String]) -> RunWords {
    let mut run =
        RunWords { arguments: arguments.to_vec(), is_complete: true, ..RunWords::default() };
    let flag = arguments.iter().position(|it| is_command_flag(it));
    if let Some(line) = flag.filter(|_| is_shell(program)).map(|flag| flag + 1)
        && let Some(text) = arguments.get(line)
    {
        if let Some(less) = reduced_line(text, (operands, 0), &mut run) {
            run.arguments[line] = less;
        } else {
            run.is_complete = false;
            if text.split_whitespace().any(|word| FEEDERS.contains(&word)) {
                run.files.push(ANY_FILE.to_owned());
            }
        }
    } else {
        let words = [program].into_iter().chain(arguments.iter().map(String::as_str));
        let words: Vec<_> = words.map(Word::fixed).collect();
        run.files = (0..words.len()).flat_map(|index| code_files(&words[index..])).collect();
        match operands.kept(&words[0], &words[1..]) {
            Some(kept) => run.arguments = kept.iter().map(|word| word.text.clone()).collect(),
            None => run.is_complete = false,
        }
    }
    run.is_complete &= run.files.iter().all(|file| file != ANY_FILE);
    // What it writes may be code that it loads.
    run.is_complete &= !(run.loads_code && run.writes);
    run
}

fn is_shell(program: &str) -> bool {
    SHELLS.contains(&program_name(program).as_str())
}

fn is_data_program(program: &str) -> bool {
    system_name(program).is_some_and(|name| DATA_PROGRAMS.contains(&name))
}

/// The line without words that are never run. `None` if it cannot be read.
fn reduced_line(
    line: &str,
    (operands, depth): (Operands, usize),
    run: &mut RunWords,
) -> Option<String> {
    // A here-document may hold anything.
    if depth > DEPTH_MAX || line.contains("<<") {
        return None;
    }
    LineReader { operands, rest: line, depth, run }.commands(None)
}

/// A word of a line.
#[derive(Debug, Default)]
struct Word {
    /// The fixed part of its text, without quotes.
    text: String,
    /// Its source, with reduced substitutions.
    source: String,
    /// Its reduced substitutions alone.
    substitutions: String,
    /// True if it has a variable or a substitution.
    varies: bool,
}

impl Word {
    fn fixed(text: &str) -> Self {
        Self { text: text.to_owned(), source: text.to_owned(), ..Self::default() }
    }

    /// Adds a substitution. `inner` is the part of it that may be run.
    fn substitute(&mut self, inner: &str) {
        let inner = format!(" ( {inner} ) ");
        self.source.push_str(&inner);
        self.substitutions.push_str(&inner);
        self.varies = true;
    }

    fn is_assignment(&self) -> bool {
        self.text.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
        })
    }

    /// Returns true if its text is only known when the line runs: a substitution, or a variable
    /// that is not the folder of a path.
    fn is_computed(&self) -> bool {
        !self.substitutions.is_empty() || self.varies && !self.text.contains('/')
    }

    /// Returns true if a word of the input may replace it.
    fn is_placeholder(&self) -> bool {
        self.text.starts_with(['{', '%', '@'])
    }
}

/// The number of words before the program of a command (`then A=b timeout 5`). The number is not
/// certain if options are among these words.
fn words_before_program(words: &[Word]) -> usize {
    let mut wraps = false;
    let is_before = |index: &usize| {
        let word = &words[*index];
        let is_placeholder_name = *index > 0 && words[index - 1].text == "-I";
        let is_option = is_placeholder_name
            || word.text.starts_with(|it: char| it == '-' || it.is_ascii_digit());
        if word.is_assignment() || wraps && is_option {
            return true;
        }
        let has_line = words.get(index + 1).is_some_and(|it| is_command_flag(&it.text));
        let is_wrapper = WRAPPERS.contains(&program_name(&word.text).as_str())
            || has_line && is_shell(&word.text);
        wraps |= is_wrapper;
        !word.varies && (is_wrapper || BEFORE_COMMANDS.contains(&word.text.as_str()))
    };
    (0..words.len()).take_while(is_before).count()
}

/// Returns true if a command that is passed words of an input may run one of them.
fn runs_input(before: &[Word], program: Option<&Word>) -> bool {
    runs_line(before) || program.is_none_or(Word::is_placeholder)
}

/// Returns true if a shell runs the next word as a command line.
fn runs_line(before: &[Word]) -> bool {
    before.last().is_some_and(|it| is_command_flag(&it.text))
        && before.iter().any(|word| is_shell(&word.text))
}

/// An option that names a file: `-f x`, `-nfx`, `--file=x`.
#[derive(Debug)]
struct FileOption {
    program: &'static str,
    letter: char,
    name: &'static str,
    /// The letters of other options with a value.
    with_value: &'static str,
}

impl FileOption {
    /// The value in the word of this option, which may be empty.
    fn value<'a>(&self, text: &'a str) -> Option<&'a str> {
        let letters = text.strip_prefix('-')?;
        if letters.starts_with('-') {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            // Names may be abbreviated.
            return (name.len() >= "--fi".len() && self.name.starts_with(name)).then_some(value);
        }
        let (before, value) = letters.split_once(self.letter)?;
        (!before.contains(|it| self.with_value.contains(it))).then_some(value)
    }

    /// The file that this option names at this index among the operands.
    fn file(&self, operands: &[Word], index: usize) -> Option<String> {
        let word = &operands[index];
        let value = self.value(&word.text)?;
        let option = &word.text[..word.text.len() - value.len()];
        let value = match word.source.strip_prefix(option) {
            Some(value) => value,
            None if word.varies => ANY_FILE,
            None => value,
        };
        if !value.is_empty() {
            return Some(value.to_owned());
        }
        let next = operands.get(index + 1).filter(|next| !next.is_placeholder());
        Some(next.map_or(ANY_FILE, |next| &next.source).to_owned())
    }
}

/// The files with instructions for a command, by its options.
fn code_files(command: &[Word]) -> Vec<String> {
    let Some((program, operands)) = command.split_first() else { return Vec::new() };
    let name = program_name(&program.text);
    let option = FILE_OPTIONS.iter().filter(|it| it.program == name);
    let files = option
        .flat_map(|option| (0..operands.len()).filter_map(|index| option.file(operands, index)));
    let runs_text = name == "sed"
        && operands.iter().any(|it| executes_text(&it.text) || executes_text(&it.source));
    files.chain(runs_text.then(|| ANY_FILE.to_owned())).collect()
}

/// Returns true if an operand of `sed` makes it run the text that it edits (`s/a/b/e`, `1e`).
fn executes_text(operand: &str) -> bool {
    let script = match operand.strip_prefix('-') {
        Some(long) if long.starts_with('-') => long.split_once('=').map(|it| it.1),
        Some(letters) => letters.split_once('e').map(|it| it.1),
        None => Some(operand),
    };
    let mut rest = script.unwrap_or_default();
    let mut is_in_name = false;
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        if !is_in_name && letter == 'e' && (rest.is_empty() || rest.starts_with('\n')) {
            return true;
        }
        if !is_in_name
            && letter == 's'
            && let Some(after) = after_substitution(rest)
        {
            let flags = after.find(|it: char| !it.is_ascii_digit() && !"gpiImMe".contains(it));
            let (flags, after) = after.split_at(flags.unwrap_or(after.len()));
            if flags.contains('e') {
                return true;
            }
            rest = after;
        }
        is_in_name = letter.is_ascii_alphabetic() || "-_.".contains(letter);
    }
    false
}

/// The text after a pattern and its replacement, each with their delimiter (`/a/b/`).
fn after_substitution(text: &str) -> Option<&str> {
    let delimiter = text.chars().next().filter(char::is_ascii_punctuation)?;
    let (mut found, mut is_escaped) = (0, false);
    for (index, letter) in text.char_indices() {
        found += usize::from(letter == delimiter && !is_escaped);
        if found == 3 {
            return Some(&text[index + 1..]);
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    None
}

struct LineReader<'a> {
    operands: Operands,
    rest: &'a str,
    depth: usize,
    run: &'a mut RunWords,
}

impl LineReader<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.rest = &self.rest[letter.len_utf8()..];
        Some(letter)
    }

    /// Reads commands up to `end`, which is consumed, and returns the words that may be run.
    fn commands(&mut self, end: Option<char>) -> Option<String> {
        let (mut reduced, mut words) = (String::new(), Vec::new());
        loop {
            let Some(letter) = self.peek() else {
                self.finish(&std::mem::take(&mut words), &mut reduced)?;
                return end.is_none().then_some(reduced);
            };
            if [' ', '\t'].contains(&letter) {
                self.next();
            } else if ['\n', ';', '|', '&', '(', ')'].contains(&letter) {
                self.next();
                self.finish(&std::mem::take(&mut words), &mut reduced)?;
                if Some(letter) == end {
                    return Some(reduced);
                }
                reduced.push(letter);
                if letter == '(' {
                    reduced.push_str(&self.nested()?);
                    reduced.push(')');
                }
            } else if ['<', '>'].contains(&letter) {
                push_word(&mut reduced, &self.redirection()?);
            } else if letter == '#' {
                // Quotes in a comment have no meaning.
                self.rest = self.rest.find('\n').map_or("", |end| &self.rest[end..]);
            } else {
                words.push(self.word()?);
            }
        }
    }

    /// Adds the words of a command that may be run to a line. `None` if they are not certain.
    fn finish(&mut self, words: &[Word], reduced: &mut String) -> Option<()> {
        let (before, command) = words.split_at(words_before_program(words));
        let is_feeder = |word: &&Word| FEEDERS.contains(&word.text.as_str());
        let is_fed = before.iter().any(|word| is_feeder(&word));
        let any_file = || ANY_FILE.to_owned();
        self.run.files.extend((is_fed && runs_input(before, command.first())).then(any_file));
        for word in before {
            push_word(reduced, &word.source);
        }
        let Some((program, operands)) = command.split_first() else { return Some(()) };
        if program.text == "case" {
            return None;
        }
        let is_line = runs_line(before);
        let may_be_file = if is_line {
            program.source.trim_start_matches('"').starts_with('$')
        } else {
            program.varies || program.text.contains('/')
        };
        if !program.substitutions.is_empty() {
            self.run.files.push(any_file());
        } else if may_be_file {
            self.run.files.push(program.source.clone());
        }
        if [".", "source"].contains(&program.text.as_str()) {
            self.run.files.extend(operands.first().map(|word| word.source.clone()));
        }
        // The value of an option may seem to be the program.
        let is_certain = !before.iter().any(|word| word.text.starts_with('-'));
        self.run.files.extend(code_files(command));
        if !is_certain {
            self.find_later_programs(command);
        }
        let of_find = operands.iter().enumerate().filter(|(_, word)| is_feeder(word));
        for (index, _) in of_find {
            let words = &operands[index + 1..];
            let (before, command) = words.split_at(words_before_program(words));
            self.run.files.extend(runs_input(before, command.first()).then(any_file));
            self.run.files.extend(code_files(command));
        }
        let line = (is_line && !program.varies)
            .then(|| reduced_line(&program.text, (self.operands, self.depth + 1), self.run));
        let is_read = line.is_some();
        push_word(reduced, line.unwrap_or_else(|| Some(program.source.clone()))?.as_str());
        let kept = self.operands.kept(program, operands).filter(|_| is_certain);
        let reading = reading_of(program, operands);
        let is_eval = before.iter().any(|word| word.text == "eval");
        // The operands after a line are arguments of its commands.
        self.run.is_complete &= !is_eval
            && (kept.is_some() || is_read && operands.is_empty())
            && (!is_fed || reading == Some(Reading::Any));
        self.run.loads_code |= matches!(reading, Some(Reading::LoadsCode { .. }));
        self.run.writes |= ["cp", "tee"].contains(&program_name(&program.text).as_str());
        for word in operands {
            let is_kept =
                kept.as_ref().is_none_or(|kept| kept.iter().any(|it| std::ptr::eq(*it, word)));
            push_word(reduced, if is_kept { &word.source } else { &word.substitutions });
        }
        Some(())
    }

    /// Adds the files that a command may run if its program is not certainly its first word.
    fn find_later_programs(&mut self, command: &[Word]) {
        for (index, word) in command.iter().enumerate().skip(1) {
            if word.varies && word.text.contains('/') {
                self.run.files.push(word.source.clone());
            }
            self.run.files.extend(code_files(&command[index..]));
            if runs_line(&command[..index]) && !word.varies {
                // The whole line is kept, so only its files matter.
                let _ = reduced_line(&word.text, (self.operands, self.depth + 1), self.run);
            }
        }
    }

    /// Commands in parentheses, after the opening one.
    fn nested(&mut self) -> Option<String> {
        if self.depth >= DEPTH_MAX {
            return None;
        }
        self.depth += 1;
        let reduced = self.commands(Some(')'));
        self.depth -= 1;
        reduced
    }

    /// A redirection and its file. `None` for the output of a command in place of a file.
    fn redirection(&mut self) -> Option<String> {
        let begin = self.next()?;
        self.rest = self.rest.trim_start_matches(['<', '>', '&', '|']);
        if self.peek() == Some('(') {
            return None;
        }
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        let file = self.word()?;
        Some(match self.operands {
            Operands::MayBeCode => format!("{begin} {}", file.source),
            // Its command reads or writes it, as operands.
            Operands::MayBeExecuted => {
                self.run.writes |=
                    begin == '>' && file.text != "/dev/null" && !is_descriptor(&file);
                format!("{begin} {}", file.substitutions)
            }
        })
    }

    /// A word, which may be empty. `None` if a quote is not closed.
    fn word(&mut self) -> Option<Word> {
        let (mut word, mut is_quoted) = (Word::default(), false);
        while let Some(letter) = self.peek() {
            let ends = " \t\n;|&()<>".contains(letter);
            if ends && !is_quoted {
                return Some(word);
            }
            self.next();
            match letter {
                '\\' => {
                    let next = self.next()?;
                    // A line is continued in the next one.
                    if next != '\n' {
                        word.source.extend([letter, next]);
                        word.text.push(next);
                    }
                }
                '"' => {
                    word.source.push(letter);
                    is_quoted = !is_quoted;
                }
                '\'' if !is_quoted => {
                    let (inner, rest) = self.rest.split_once('\'')?;
                    word.source.extend(["'", inner, "'"]);
                    word.text.push_str(inner);
                    self.rest = rest;
                }
                '`' => {
                    let (inner, rest) = self.rest.split_once('`')?;
                    word.substitute(&reduced_line(
                        inner,
                        (self.operands, self.depth + 1),
                        self.run,
                    )?);
                    self.rest = rest;
                }
                '$' if self.peek() == Some('(') => {
                    self.next();
                    word.substitute(&self.nested()?);
                }
                '$' if self.peek() == Some('\'') => return None,
                '$' => {
                    word.source.push(letter);
                    let is_name = |it: char| it.is_ascii_alphanumeric() || "_{".contains(it);
                    word.varies |= self.peek().is_some_and(is_name);
                }
                _ => {
                    word.source.push(letter);
                    word.text.push(letter);
                }
            }
        }
        (!is_quoted).then_some(word)
    }
}

/// Returns true if a redirection leads to an open file (`2>&1`), whose sign was read before.
fn is_descriptor(file: &Word) -> bool {
    !file.text.is_empty() && file.text.bytes().all(|byte| byte.is_ascii_digit())
}

fn push_word(reduced: &mut String, word: &str) {
    reduced.push_str(word);
    reduced.push(' ');
}
