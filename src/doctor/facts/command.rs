//! Parses the first command of a shell script, as far as possible without a shell.

use std::iter::Peekable;
use std::path::Path;
use std::str::Chars;

/// The variables and home folder of the shell that would run it.
pub(super) struct ShellContext<'a> {
    pub(super) value: &'a dyn Fn(&str) -> Option<String>,
    pub(super) home: Option<&'a Path>,
}

/// Returns the words of the first command, without assignments before it. `None`: the word depends
/// on the shell. Empty: the command depends on the shell.
pub(super) fn first_command(script: &str, known: &ShellContext<'_>) -> Vec<Option<String>> {
    let mut reader = ShellTokenReader { letters: script.chars().peekable(), known };
    let mut words = Vec::new();
    while let Some(word) = reader.word(words.is_empty()) {
        match assigned(&word.text) {
            // A new PATH changes which program is meant.
            Some("PATH") if words.is_empty() => return Vec::new(),
            Some(_) if words.iter().all(|word| word == &Some("env".to_owned())) => {}
            Some(_) | None => words.push(word.is_plain.then_some(word.text)),
        }
    }
    words
}

/// The name of the variable that a word assigns.
fn assigned(word: &str) -> Option<&str> {
    let (name, _) = word.split_once('=')?;
    let letter = |one: char| one.is_ascii_alphanumeric() || one == '_';
    (!name.is_empty() && name.chars().all(letter)).then_some(name)
}

struct ShellToken {
    text: String,
    /// Whether the text is certain, without shell expansion.
    is_plain: bool,
}

struct ShellTokenReader<'a> {
    letters: Peekable<Chars<'a>>,
    known: &'a ShellContext<'a>,
}

impl ShellTokenReader<'_> {
    /// Parses the next word; `None` at the end of the command, or at unsupported syntax.
    fn word(&mut self, is_first: bool) -> Option<ShellToken> {
        self.skip_space(is_first);
        let mut word = ShellToken { text: String::new(), is_plain: true };
        let mut begun = false;
        while let Some(letter) = self.letters.peek().copied() {
            if letter.is_whitespace() || ";&|<>()".contains(letter) {
                break;
            }
            self.letters.next();
            match letter {
                '\'' => self.quoted(&mut word),
                '"' => self.double_quoted(&mut word),
                '\\' => match self.letters.next() {
                    Some('\n') => continue,
                    escaped => word.text.extend(escaped),
                },
                '$' => self.variable(&mut word, QuoteState::None),
                '~' if !begun && self.letters.peek().is_none_or(|next| *next == '/') => {
                    match self.known.home {
                        Some(home) => word.text.push_str(&home.display().to_string()),
                        None => word.is_plain = false,
                    }
                }
                '`' | '*' | '?' | '[' | '{' if letter != '[' || begun => {
                    word.is_plain = false;
                    word.text.push(letter);
                }
                _ => word.text.push(letter),
            }
            begun = true;
        }
        begun.then_some(word)
    }

    /// Skips space. Empty lines and comments before the first word are skipped; after it, a newline
    /// ends the command.
    fn skip_space(&mut self, is_first: bool) {
        loop {
            match self.letters.peek() {
                Some('\n') if !is_first => return,
                Some(letter) if letter.is_whitespace() => {
                    self.letters.next();
                }
                Some('\\') => {
                    let mut ahead = self.letters.clone();
                    ahead.next();
                    if ahead.next() != Some('\n') {
                        return;
                    }
                    self.letters = ahead;
                }
                Some('#') => while self.letters.next_if(|letter| *letter != '\n').is_some() {},
                Some(_) | None => return,
            }
        }
    }

    fn quoted(&mut self, word: &mut ShellToken) {
        for letter in self.letters.by_ref() {
            if letter == '\'' {
                return;
            }
            word.text.push(letter);
        }
        word.is_plain = false;
    }

    fn double_quoted(&mut self, word: &mut ShellToken) {
        while let Some(letter) = self.letters.next() {
            match letter {
                '"' => return,
                '$' => self.variable(word, QuoteState::Double),
                '`' => word.is_plain = false,
                '\\' => match self.letters.next() {
                    Some(letter) if "\"\\$`".contains(letter) => word.text.push(letter),
                    Some(letter) => word.text.extend(['\\', letter]),
                    None => {}
                },
                _ => word.text.push(letter),
            }
        }
        word.is_plain = false;
    }

    /// Parses a variable reference, after the dollar sign.
    fn variable(&mut self, word: &mut ShellToken, quotes: QuoteState) {
        let in_braces = self.letters.next_if_eq(&'{').is_some();
        let mut name = String::new();
        while let Some(letter) =
            self.letters.next_if(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
        {
            name.push(letter);
        }
        let is_whole = !in_braces || self.letters.next_if_eq(&'}').is_some();
        let value = (self.known.value)(&name).filter(|_| is_whole && !name.is_empty());
        // A shell splits an unquoted value with spaces into several words.
        let splits =
            |value: &String| quotes == QuoteState::None && value.contains(char::is_whitespace);
        match value.filter(|value| !splits(value)) {
            Some(value) => word.text.push_str(&value),
            None => word.is_plain = false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum QuoteState {
    None,
    Double,
}
