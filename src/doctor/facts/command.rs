//! Parses the first command of a shell script, as far as possible without running a shell.

use std::iter::Peekable;
use std::path::Path;
use std::str::Chars;

/// The variables and the home folder of the shell that would run a script.
pub(super) struct ShellContext<'a> {
    pub(super) value: &'a dyn Fn(&str) -> Option<String>,
    pub(super) home: Option<&'a Path>,
}

/// Returns the words of the first command, without the assignments before it. `None`: the word
/// depends on the shell. After a substitution, the other words are left out. Empty: the command
/// itself depends on the shell.
pub(super) fn first_command(script: &str, known: &ShellContext<'_>) -> Vec<Option<String>> {
    let mut reader = ScriptReader { letters: script.chars().peekable(), known };
    reader.words().unwrap_or_default()
}

/// The error for a command that cannot be determined: a subshell, a function, an unclosed quote, or
/// an assignment to `PATH`.
struct UnknownCommand;

/// The end of a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WordEnd {
    Blank,
    /// The end of the command, or a redirection.
    Command,
    /// A substitution, whose end is not searched for.
    Substitution,
}

/// A word of a command.
#[derive(Default)]
struct ScriptWord {
    /// The text that the program receives. `None`: it depends on the shell.
    value: Option<String>,
    /// Its unquoted and unexpanded beginning.
    literal: String,
    is_begun: bool,
    is_quoted: bool,
}

impl ScriptWord {
    fn empty() -> Self {
        Self { value: Some(String::new()), ..Self::default() }
    }

    /// Adds a literal character.
    fn push(&mut self, letter: char) {
        self.is_begun = true;
        if let Some(value) = &mut self.value {
            value.push(letter);
        }
    }

    /// Adds the value of an expansion or a quotation. `None`: the value depends on the shell.
    fn expand(&mut self, text: Option<String>) {
        self.is_begun = true;
        self.is_quoted = true;
        self.value = self.value.take().zip(text).map(|(value, text)| value + &text);
    }

    /// Returns the name of the variable that the word assigns. `None`: it is not an assignment.
    fn assigned(&self) -> Option<&str> {
        let (name, _) = self.literal.split_once('=')?;
        let is_name = !name.is_empty() && name.chars().all(is_name_letter);
        is_name.then_some(name)
    }
}

struct ScriptReader<'a> {
    letters: Peekable<Chars<'a>>,
    known: &'a ShellContext<'a>,
}

impl ScriptReader<'_> {
    fn words(&mut self) -> Result<Vec<Option<String>>, UnknownCommand> {
        let mut words: Vec<Option<String>> = Vec::new();
        let mut is_begun = false;
        loop {
            let (word, end) = self.word()?;
            let may_assign = words.iter().all(|word| word.as_deref() == Some("env"));
            match word.assigned().filter(|_| may_assign) {
                // A new PATH may lead to another program.
                Some("PATH") => return Err(UnknownCommand),
                Some(_) => is_begun = true,
                None if word.is_begun => words.push(word.value),
                None => {}
            }
            let is_empty = words.is_empty() && !is_begun;
            let goes_on = match end {
                WordEnd::Blank => true,
                // Lines without a command are skipped.
                WordEnd::Command => is_empty && self.letters.next_if_eq(&'\n').is_some(),
                WordEnd::Substitution => false,
            };
            if !goes_on {
                return Ok(words);
            }
        }
    }

    fn word(&mut self) -> Result<(ScriptWord, WordEnd), UnknownCommand> {
        let mut word = ScriptWord::empty();
        loop {
            let Some(letter) = self.letters.next_if(|letter| !"\n;&|".contains(*letter)) else {
                return Ok((word, WordEnd::Command));
            };
            match letter {
                ' ' | '\t' => return Ok((word, WordEnd::Blank)),
                '<' | '>' => {
                    // A number directly before it is a file descriptor, not an argument.
                    let is_number = |it: &String| it.bytes().all(|byte| byte.is_ascii_digit());
                    word.is_begun &= word.is_quoted || !word.value.as_ref().is_some_and(is_number);
                    return Ok((word, WordEnd::Command));
                }
                '#' if !word.is_begun => {
                    while self.letters.next_if(|letter| *letter != '\n').is_some() {}
                }
                '(' | ')' => return Err(UnknownCommand),
                '\'' => self.single_quotes(&mut word)?,
                '"' => {
                    if !self.double_quotes(&mut word)? {
                        return Ok((word, WordEnd::Substitution));
                    }
                }
                '`' => {
                    word.expand(None);
                    return Ok((word, WordEnd::Substitution));
                }
                '$' => {
                    if !self.dollar(&mut word, false) {
                        return Ok((word, WordEnd::Substitution));
                    }
                }
                '\\' => match self.letters.next().ok_or(UnknownCommand)? {
                    '\n' => {}
                    escaped => word.expand(Some(escaped.to_string())),
                },
                '~' if !word.is_begun => word.expand(self.home()),
                letter => self.plain(letter, &mut word),
            }
        }
    }

    /// Adds an unquoted character.
    fn plain(&mut self, letter: char, word: &mut ScriptWord) {
        let is_program =
            !word.is_begun && self.letters.peek().is_none_or(|it| " \t\n".contains(*it));
        if matches!(letter, '*' | '?' | '{') || letter == '[' && !is_program {
            return word.expand(None);
        }
        if !word.is_quoted {
            word.literal.push(letter);
        }
        word.push(letter);
    }

    /// Returns the home folder. `None`: it is unknown, or the tilde is for another user's.
    fn home(&mut self) -> Option<String> {
        let is_own = self.letters.peek().is_none_or(|it| "/ \t\n;&|<>".contains(*it));
        self.known.home.filter(|_| is_own).map(|home| home.display().to_string())
    }

    fn single_quotes(&mut self, word: &mut ScriptWord) -> Result<(), UnknownCommand> {
        word.expand(Some(String::new()));
        loop {
            match self.letters.next().ok_or(UnknownCommand)? {
                '\'' => return Ok(()),
                letter => word.push(letter),
            }
        }
    }

    /// Reads a double-quoted string. Returns false if it has a substitution, where reading stops.
    fn double_quotes(&mut self, word: &mut ScriptWord) -> Result<bool, UnknownCommand> {
        word.expand(Some(String::new()));
        loop {
            match self.letters.next().ok_or(UnknownCommand)? {
                '"' => return Ok(true),
                '`' => {
                    word.expand(None);
                    return Ok(false);
                }
                '$' => {
                    if !self.dollar(word, true) {
                        return Ok(false);
                    }
                }
                '\\' => match self.letters.next().ok_or(UnknownCommand)? {
                    '\n' => {}
                    escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                    other => {
                        word.push('\\');
                        word.push(other);
                    }
                },
                letter => word.push(letter),
            }
        }
    }

    /// Reads the text after a `$`: `NAME`, `{NAME}` or nothing. Returns false for other expansions.
    fn dollar(&mut self, word: &mut ScriptWord, is_quoted: bool) -> bool {
        let has_brace = self.letters.next_if_eq(&'{').is_some();
        let mut name = String::new();
        while let Some(letter) = self.letters.next_if(|letter| is_name_letter(*letter)) {
            name.push(letter);
        }
        let is_closed = !has_brace || self.letters.next_if_eq(&'}').is_some();
        if name.is_empty() && !has_brace {
            // Other expansions: `$(...)`, `$'...'`, `$@`.
            let next = self.letters.peek().copied().unwrap_or(' ');
            if "([@*#?!$-".contains(next) || !is_quoted && "'\"".contains(next) {
                word.expand(None);
                return false;
            }
            word.push('$');
            return true;
        }
        // A shell splits an unquoted value with spaces into several words.
        let is_whole = |value: &String| is_quoted || !value.contains(char::is_whitespace);
        let value = Some(name).filter(|it| is_closed && !it.is_empty());
        word.expand(value.and_then(|name| (self.known.value)(&name)).filter(is_whole));
        is_closed
    }
}

fn is_name_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}
