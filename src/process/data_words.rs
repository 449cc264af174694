//! Removes from a command line the words that are never run: operands of programs that only show,
//! compare or send them (`echo`, `jq`, `date`). Such a word with a slash that leads to no file is no
//! program that a command could put there.
//!
//! No shell is emulated: a line that is not certainly understood stays as it is.

use super::code_operands::{
    ANY_FILE, Wrapped, code_options, has_code_options, push_run_files, takes_words_of_input,
    wrapped,
};
use super::code_programs::{INTERPRETERS, SHELLS, is_command_flag, program_name};

/// Programs that run none of their operands.
const DATA_PROGRAMS: [&str; 32] = [
    "echo",
    "printf",
    "date",
    "cut",
    "tr",
    "grep",
    "egrep",
    "fgrep",
    "test",
    "[",
    "[[",
    "tee",
    "logger",
    "jq",
    "wc",
    "basename",
    "dirname",
    "uniq",
    "sed",
    "awk",
    "gawk",
    "mawk",
    "curl",
    "notify-send",
    "terminal-notifier",
    "say",
    "osascript",
    "cd",
    "mkdir",
    "touch",
    "ls",
    "stat",
];

/// Words after which a command begins.
const BEFORE_COMMANDS: [&str; 11] =
    ["if", "then", "else", "elif", "do", "while", "until", "!", "time", "{", "}"];

/// What runs its input, a text or files, besides interpreters, and what is read differently here.
const EXECUTORS: [&str; 10] =
    ["xargs", "parallel", "at", "batch", "trap", "alias", "ssh", "coproc", "case", "find"];

/// The most substitutions, and shells, inside each other.
const DEPTH_MAX: usize = 8;

/// Programs that run files which no word names, for lines that cannot be read.
const FINDERS: [&str; 7] = ["xargs", "parallel", "run-parts", "-exec", "-execdir", "-ok", "-okdir"];

/// The words of a command line that may be run.
#[derive(Debug, Default)]
pub(super) struct RunWords {
    /// The arguments, without data.
    pub(super) arguments: Vec<String>,
    /// Further files that it may run.
    pub(super) files: Vec<String>,
}

/// What the commands of a line run besides their words.
#[derive(Debug, Default)]
struct Findings {
    files: Vec<String>,
    /// True if any word of the line may be run.
    is_any_word: bool,
}

/// The arguments of a program without the words that are never run.
pub(super) fn without_data(program: &str, arguments: &[String]) -> RunWords {
    let mut findings = Findings::default();
    let flag = arguments.iter().position(|it| is_command_flag(it));
    let mut reduced = arguments.to_vec();
    if let Some(line) = flag.filter(|_| is_shell(program)).map(|flag| flag + 1)
        && let Some(text) = arguments.get(line)
    {
        match reduced_line(text, 0, &mut findings) {
            Some(less) if !findings.is_any_word => reduced[line] = less,
            Some(_) => {}
            None => {
                let is_finder = |word: &str| FINDERS.contains(&word);
                let may_find = text.split_whitespace().any(is_finder);
                findings.files.extend(may_find.then(|| ANY_FILE.to_owned()));
            }
        }
    } else {
        let operands: Vec<Word> = arguments.iter().map(|text| Word::literal(text)).collect();
        push_run_files(program, &operands, false, &mut findings.files);
        let head = Some(Word::literal(program));
        if (SimpleCommand { head, operands, is_fed: false }).is_data() {
            reduced.clear();
        }
    }
    RunWords { arguments: reduced, files: findings.files }
}

fn is_shell(program: &str) -> bool {
    SHELLS.contains(&program_name(program).as_str())
}

/// The line without words that are never run. `None` if it cannot be read.
fn reduced_line(line: &str, depth: usize, findings: &mut Findings) -> Option<String> {
    // A here-document may hold anything.
    if depth > DEPTH_MAX || line.contains("<<") {
        return None;
    }
    LineReader { rest: line, depth, is_fed: false, findings }.commands(None)
}

/// A word of a line.
#[derive(Debug, Default)]
pub(super) struct Word {
    /// The fixed part of its text, without quotes.
    pub(super) text: String,
    /// Its source, with reduced substitutions.
    pub(super) source: String,
    /// Its reduced substitutions alone.
    substitutions: String,
    /// True if it has a variable or a substitution.
    pub(super) varies: bool,
}

impl Word {
    pub(super) fn literal(text: &str) -> Self {
        Self { text: text.to_owned(), source: text.to_owned(), ..Self::default() }
    }

    pub(super) fn is_assignment(&self) -> bool {
        self.text.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
        })
    }

    /// Adds a substitution, of which `inner` may be run.
    fn substitute(&mut self, inner: &str) {
        let inner = format!(" ( {inner} ) ");
        self.source.push_str(&inner);
        self.substitutions.push_str(&inner);
        self.varies = true;
    }

    /// Returns true if it begins like the path of a file.
    fn is_path(&self) -> bool {
        let source = self.source.trim_start_matches('"');
        ["./", "../", "~", "$"].iter().any(|begin| source.starts_with(begin))
    }
}

/// A program and its operands.
#[derive(Debug, Default)]
struct SimpleCommand {
    head: Option<Word>,
    operands: Vec<Word>,
    /// True if the output of another command is its input.
    is_fed: bool,
}

impl SimpleCommand {
    fn head(&self) -> &str {
        self.head.as_ref().map_or("", |head| &head.text)
    }

    /// Moves the words before the command that this one runs (`timeout 5`) to a line.
    fn unwrap(&mut self, reduced: &mut String) {
        loop {
            let name = program_name(self.head());
            let Some(Wrapped { words: [head, operands @ ..], is_certain: true }) =
                wrapped(&name, &self.operands)
            else {
                return;
            };
            // `parallel` gives the words to a shell.
            let only_shows =
                is_data_program(&head.text) && !has_code_options(&head.text) && name != "parallel";
            if takes_words_of_input(&name) && !only_shows {
                return;
            }
            let rest = operands.len() + 1;
            let command = self.operands.split_off(self.operands.len() - rest);
            for word in &self.operands {
                push_word(reduced, &word.source);
            }
            let mut command = command.into_iter();
            self.head = command.next();
            self.operands = command.collect();
            push_word(reduced, self.head.as_ref().map_or("", |head| &head.source));
        }
    }

    /// Returns true if it runs no operand.
    fn is_data(&self) -> bool {
        let head = self.head();
        let name = without_usual_folder(head);
        let runs_text = |word: &Word| match name {
            "sed" => may_execute(script_of(&word.text)),
            // `do shell script`, `load script`, and a file of code.
            "osascript" => word.text.contains("script") || self.operands[0].text != "-e",
            "awk" | "gawk" | "mawk" => {
                ["system", "|", "getline", "@"].iter().any(|it| word.text.contains(it))
            }
            _ => false,
        };
        is_data_program(head)
            && code_options(name, &self.operands).is_empty()
            && !self.operands.iter().any(runs_text)
    }

    /// Adds the words of it that may be run to a line, and begins the next one. `None` if it is a
    /// shell with a line that cannot be read.
    fn finish(&mut self, reduced: &mut String, findings: &mut Findings) -> Option<()> {
        let mut command = std::mem::take(self);
        command.unwrap(reduced);
        // What a variable leads to is not known.
        if let Some(head) = command.head.as_ref().filter(|head| head.varies) {
            findings.is_any_word = true;
            let is_printed = !head.substitutions.is_empty();
            let file = if is_printed { ANY_FILE } else { &head.source };
            findings.files.push(file.to_owned());
        }
        let name = program_name(command.head());
        push_run_files(command.head(), &command.operands, false, &mut findings.files);
        if is_shell(&name)
            && let [flag, line, rest @ ..] = &command.operands[..]
            && is_command_flag(&flag.text)
            && !line.varies
            && !command.is_fed
        {
            push_word(reduced, &flag.source);
            push_word(reduced, &reduced_line(&line.text, 1, findings)?);
            for word in rest {
                push_word(reduced, &word.source);
            }
            return Some(());
        }
        let is_data = command.is_data();
        // It may run the words that data programs print, or files that a pattern finds.
        let is_open = |word: &Word| word.varies || word.text.contains(['*', '?', '[']);
        let takes_output = command.is_fed || command.operands.iter().any(is_open);
        findings.is_any_word |= EXECUTORS.contains(&name.as_str())
            || INTERPRETERS.contains(&name.as_str())
            || (!is_data && takes_output && command.head.is_some());
        // What they write of a file could be run by what reads it.
        let stays = |word: &Word| !is_data || word.is_path() && reads_files(&name);
        for word in &command.operands {
            push_word(reduced, if stays(word) { &word.source } else { &word.substitutions });
        }
        Some(())
    }
}

fn without_usual_folder(program: &str) -> &str {
    let name = ["/usr/bin/", "/bin/"].iter().find_map(|it| program.strip_prefix(it));
    name.unwrap_or(program)
}

fn is_data_program(program: &str) -> bool {
    DATA_PROGRAMS.contains(&without_usual_folder(program))
}

fn reads_files(name: &str) -> bool {
    ["jq", "grep", "egrep", "fgrep", "sed", "awk", "gawk", "mawk", "cut", "uniq"].contains(&name)
}

fn push_word(reduced: &mut String, word: &str) {
    reduced.push_str(word);
    reduced.push(' ');
}

/// Returns true if a script of sed may have the command or the flag `e`, which runs a program.
fn may_execute(script: &str) -> bool {
    let letters: Vec<char> = script.chars().collect();
    let is_flag = |letter: char| "gpiImMw0123456789".contains(letter);
    let has_letter_for_slash =
        script.starts_with('s') && letters.get(1).is_some_and(|it| it.is_alphanumeric());
    let is_command = |place: usize| {
        let before = letters[..place].iter().rev().find(|it| !is_flag(**it));
        let after = letters.get(place + 1);
        before.is_none_or(|it| !it.is_alphanumeric())
            && after.is_none_or(|it| !it.is_alphanumeric() || is_flag(*it))
    };
    has_letter_for_slash
        || (0..letters.len()).any(|place| letters[place] == 'e' && is_command(place))
}

/// The script in a word of a call of sed: `-es/a/b/`, `--expression=p`, or the word itself.
fn script_of(word: &str) -> &str {
    let long =
        word.strip_prefix("--").map(|it| it.split_once('=').map_or("", |(_, script)| script));
    let short =
        word.strip_prefix('-').map(|it| it.split_once('e').map_or("", |(_, script)| script));
    long.or(short).unwrap_or(word)
}

struct LineReader<'a> {
    rest: &'a str,
    depth: usize,
    /// True if the output of a command is the input of another one.
    is_fed: bool,
    findings: &'a mut Findings,
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
        let mut reduced = String::new();
        let mut command = SimpleCommand { is_fed: self.is_fed, ..SimpleCommand::default() };
        loop {
            let Some(letter) = self.peek() else {
                command.finish(&mut reduced, self.findings)?;
                return end.is_none().then_some(reduced);
            };
            if letter.is_whitespace() && letter != '\n' {
                self.next();
            } else if Some(letter) == end {
                self.next();
                command.finish(&mut reduced, self.findings)?;
                return Some(reduced);
            } else if ['\n', ';', '|', '&', '(', ')'].contains(&letter) {
                self.next();
                command.finish(&mut reduced, self.findings)?;
                // Also for what follows: the commands of a loop all have its input.
                self.is_fed |= letter == '|';
                command.is_fed = self.is_fed;
                reduced.push(letter);
                if letter == '(' {
                    reduced.push_str(&self.nested()?);
                    reduced.push(')');
                }
            } else if ['<', '>'].contains(&letter) {
                push_word(&mut reduced, &self.redirection()?);
            } else if letter == '#' {
                // Quotes in a comment are none.
                self.rest = self.rest.find('\n').map_or("", |end| &self.rest[end..]);
            } else {
                let word = self.word()?;
                let is_before_head = word.is_assignment()
                    || !word.varies && BEFORE_COMMANDS.contains(&word.text.as_str());
                if command.head.is_some() {
                    command.operands.push(word);
                    continue;
                }
                push_word(&mut reduced, &word.source);
                if is_before_head {
                    continue;
                }
                command.head = Some(word);
            }
        }
    }

    /// Commands in parentheses, of which the first has been read.
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
        while self.peek().is_some_and(|it| "<>&|".contains(it)) {
            self.next();
        }
        if self.peek() == Some('(') {
            return None;
        }
        while self.peek().is_some_and(|it| it == ' ' || it == '\t') {
            self.next();
        }
        Some(format!("{begin} {}", self.word()?.source))
    }

    /// A word, which may be empty. `None` if a quote is not closed.
    fn word(&mut self) -> Option<Word> {
        let (mut word, mut is_quoted) = (Word::default(), false);
        while let Some(letter) = self.peek() {
            let ends = letter.is_whitespace() || ";|&()<>".contains(letter);
            if ends && !is_quoted {
                return Some(word);
            }
            self.next();
            match letter {
                '\\' => {
                    word.source.push(letter);
                    let next = self.next()?;
                    word.source.push(next);
                    word.text.push(next);
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
                    let inner = reduced_line(inner, self.depth + 1, self.findings)?;
                    word.substitute(&inner);
                    self.rest = rest;
                }
                '$' => self.variable(&mut word)?,
                _ => {
                    word.source.push(letter);
                    word.text.push(letter);
                }
            }
        }
        (!is_quoted).then_some(word)
    }

    /// What follows a dollar sign: a substitution, or the name of a variable.
    fn variable(&mut self, word: &mut Word) -> Option<()> {
        match self.peek() {
            Some('(') => {
                self.next();
                let inner = self.nested()?;
                word.substitute(&inner);
            }
            Some('{') => {
                let (inner, rest) = self.rest.split_once('}')?;
                if inner.contains(['$', '`', '\'', '"']) {
                    return None;
                }
                word.source.extend(["$", inner, "}"]);
                word.varies = true;
                self.rest = rest;
            }
            Some('\'') => return None,
            _ => {
                let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                let length = self.rest.find(|letter| !is_part(letter)).unwrap_or(self.rest.len());
                word.source.extend(["$", &self.rest[..length]]);
                word.varies |= length > 0;
                self.rest = &self.rest[length..];
            }
        }
        Some(())
    }
}
