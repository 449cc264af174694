//! Splits a shell command into simple commands, where that is certain.
//!
//! This is deliberately not a shell parser. It recognizes words, plain quotes, the operators
//! between simple commands, and redirections to named files. Everything else is [`NotPlain`], and
//! no rule for single commands covers it.

use std::str::Chars;

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShellWord {
    /// The word as written, with quotes.
    pub(super) raw: String,
    /// The word with quotes removed.
    pub(super) plain: String,
    /// True if the program gets exactly `plain`: the shell expands no variable, pattern, brace or
    /// tilde.
    pub(super) is_literal: bool,
}

impl Default for ShellWord {
    fn default() -> Self {
        Self { raw: String::new(), plain: String::new(), is_literal: true }
    }
}

impl ShellWord {
    /// The variable that the word sets, if it is an assignment.
    pub(super) fn assigns(&self) -> Option<&str> {
        let (name, _) = self.raw.split_once('=')?;
        let name = name.strip_suffix('+').unwrap_or(name);
        let name = name.split_once('[').map_or(name, |(array, _)| array);
        let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let begins = name.starts_with(|first: char| !first.is_ascii_digit());
        (begins && name.chars().all(fits)).then_some(name)
    }
}

/// One command without operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    pub(super) words: Vec<ShellWord>,
    /// Files that it is redirected to.
    pub(super) writes: Vec<ShellWord>,
    pub(super) reads: Vec<ShellWord>,
    /// True if `&&` follows, so that the next command runs only if this one succeeds.
    pub(super) is_joined: bool,
}

/// The reason that a command is more than simple commands, with advice on what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotPlain {
    #[error(
        "it is longer than {BYTES_MAX} bytes or {COMMANDS_MAX} commands: split it up, or \
         run a script"
    )]
    TooLong,
    #[error("it contains control characters")]
    ControlCharacter,
    #[error("a quote is not closed")]
    Unclosed,
    #[error("it contains a command substitution: run the inner command first")]
    Substitution,
    #[error("it contains an expansion that may run commands: write its value out")]
    Expansion,
    #[error("it contains parentheses: write single commands, joined by && or ;")]
    Parentheses,
    #[error("it is a loop, a choice or a group: write single commands, joined by && or ;")]
    Compound,
    #[error("it contains a here-document: write the text to a file with Write")]
    HereDocument,
    #[error("it has a redirection without a plain target")]
    Redirection,
    #[error("the name of a program is not written out")]
    ProgramName,
}

/// The maximum length of a command that is parsed, in bytes.
const BYTES_MAX: usize = 10_000;

/// The maximum number of simple commands: each takes time to check.
const COMMANDS_MAX: usize = 100;

/// Words that begin or end a compound command.
const KEYWORDS: &[&str] = &[
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "select", "function", "coproc", "[[", "]]", "{", "}", "!",
];

/// Splits a command into its simple commands.
///
/// # Errors
/// It contains more than simple commands.
pub(super) fn split(command: &str) -> Result<Vec<SimpleCommand>, NotPlain> {
    if command.len() > BYTES_MAX {
        return Err(NotPlain::TooLong);
    }
    let is_odd = |letter: char| letter.is_control() && !matches!(letter, '\t' | '\n');
    if command.contains(is_odd) {
        return Err(NotPlain::ControlCharacter);
    }
    let mut lexer = Lexer {
        letters: command.chars(),
        word: None,
        command: SimpleCommand::default(),
        target: None,
        commands: Vec::new(),
    };
    while let Some(letter) = lexer.next() {
        lexer.take(letter)?;
    }
    lexer.end_command(false)?;
    Ok(lexer.commands)
}

/// The kind of the word after a redirection operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RedirectTarget {
    Write,
    Read,
    /// A descriptor or `-`. A file would be expanded twice.
    Stream,
}

struct Lexer<'a> {
    letters: Chars<'a>,
    word: Option<ShellWord>,
    command: SimpleCommand,
    /// The kind of redirection that the next word is the target of.
    target: Option<RedirectTarget>,
    commands: Vec<SimpleCommand>,
}

impl Lexer<'_> {
    /// Removes line continuations. The shell does so before it reads an operator or an expansion, so
    /// that `$` and `(` on two lines are a command substitution.
    fn join_lines(&mut self) {
        while let Some(rest) = self.letters.as_str().strip_prefix("\\\n") {
            self.letters = rest.chars();
        }
    }

    fn next(&mut self) -> Option<char> {
        self.join_lines();
        self.letters.next()
    }

    fn peek(&mut self) -> Option<char> {
        self.join_lines();
        self.letters.clone().next()
    }

    fn next_if(&mut self, fits: impl Fn(char) -> bool) -> Option<char> {
        self.peek().filter(|letter| fits(*letter)).and_then(|_| self.next())
    }

    fn eat(&mut self, wanted: char) -> bool {
        self.next_if(|letter| letter == wanted).is_some()
    }

    fn take(&mut self, letter: char) -> Result<(), NotPlain> {
        match letter {
            ' ' | '\t' => self.end_word(),
            '\n' | ';' | '|' => self.end_command(false),
            '&' if self.peek() == Some('>') => self.redirect('&'),
            '&' => {
                let is_joined = self.eat('&');
                self.end_command(is_joined)
            }
            '<' | '>' => self.redirect(letter),
            '#' if self.word.is_none() => {
                // A comment has no continuation, and the line feed ends the command.
                let comment = self.letters.as_str();
                let end = comment.find('\n').unwrap_or(comment.len());
                self.letters = comment[end..].chars();
                Ok(())
            }
            '(' | ')' => Err(NotPlain::Parentheses),
            '\'' => self.single_quotes(),
            '"' => self.double_quotes(),
            '`' => Err(NotPlain::Substitution),
            '$' if matches!(self.peek(), Some('\'' | '"')) => Err(NotPlain::Expansion),
            '$' => self.dollar(),
            '\\' => {
                let escaped = self.letters.next().ok_or(NotPlain::Unclosed)?;
                self.push(escaped, &['\\', escaped]);
                Ok(())
            }
            _ => {
                let before = self.word.as_ref().map_or("", |word| word.raw.as_str());
                // The shell replaces a tilde at the beginning of a word, and after `=` and `:`.
                let expands = matches!(letter, '*' | '?' | '{')
                    || letter == '~' && !before.ends_with(char::is_alphanumeric)
                    || letter == ']' && before.contains('[');
                self.push(letter, &[letter]).is_literal &= !expands;
                Ok(())
            }
        }
    }

    /// Adds a character to the current word, and its spelling. Returns the word.
    fn push(&mut self, letter: char, spelt: &[char]) -> &mut ShellWord {
        let word = self.word.get_or_insert_default();
        word.plain.push(letter);
        word.raw.extend(spelt);
        word
    }

    /// Adds a quote, which is not part of the value.
    fn push_quote(&mut self, quote: char) {
        self.word.get_or_insert_default().raw.push(quote);
    }

    fn single_quotes(&mut self) -> Result<(), NotPlain> {
        self.push_quote('\'');
        loop {
            match self.letters.next().ok_or(NotPlain::Unclosed)? {
                '\'' => break,
                letter => self.push(letter, &[letter]),
            };
        }
        self.push_quote('\'');
        Ok(())
    }

    fn double_quotes(&mut self) -> Result<(), NotPlain> {
        self.push_quote('"');
        loop {
            match self.next().ok_or(NotPlain::Unclosed)? {
                '"' => break,
                '`' => return Err(NotPlain::Substitution),
                '$' => self.dollar()?,
                '\\' => match self.letters.next().ok_or(NotPlain::Unclosed)? {
                    escaped @ ('$' | '`' | '"' | '\\') => {
                        self.push(escaped, &['\\', escaped]);
                    }
                    other => {
                        self.push('\\', &['\\']);
                        self.push(other, &[other]);
                    }
                },
                letter => {
                    self.push(letter, &[letter]);
                }
            }
        }
        self.push_quote('"');
        Ok(())
    }

    /// Takes the beginning of `$NAME`, `${NAME}`, or a single `$`. Other expansions may run commands, or
    /// decode text.
    fn dollar(&mut self) -> Result<(), NotPlain> {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let next = self.peek().unwrap_or(' ');
        self.push('$', &['$']).is_literal &= !(is_name(next) || "{@*#?!$-".contains(next));
        match next {
            '(' => return Err(NotPlain::Substitution),
            '[' => return Err(NotPlain::Expansion),
            '{' => {}
            _ => return Ok(()),
        }
        while let Some(letter) = self.next_if(|letter| is_name(letter) || letter == '{') {
            self.push(letter, &[letter]);
        }
        self.next_if(|letter| letter == '}').ok_or(NotPlain::Expansion)?;
        self.push('}', &['}']);
        Ok(())
    }

    fn redirect(&mut self, first: char) -> Result<(), NotPlain> {
        // A number right before it is the stream's, not an argument.
        let is_stream = |word: &mut ShellWord| word.raw.bytes().all(|byte| byte.is_ascii_digit());
        self.word.take_if(is_stream);
        self.end_word()?;
        if self.target.is_some() {
            return Err(NotPlain::Redirection);
        }
        self.target = Some(match first {
            '<' if self.eat('<') => return Err(NotPlain::HereDocument),
            '<' => RedirectTarget::Read,
            '&' => {
                self.eat('>');
                self.eat('>');
                RedirectTarget::Write
            }
            _ if self.eat('&') => RedirectTarget::Stream,
            _ => {
                let _ = self.eat('>') || self.eat('|');
                RedirectTarget::Write
            }
        });
        // `<&`, `<>`, `<(` and the like.
        if self.peek().is_some_and(|next| "<>&|(".contains(next)) {
            return Err(NotPlain::Redirection);
        }
        Ok(())
    }

    fn end_word(&mut self) -> Result<(), NotPlain> {
        let Some(word) = self.word.take() else { return Ok(()) };
        let is_stream = word.raw == "-" || word.raw.bytes().all(|byte| byte.is_ascii_digit());
        match self.target.take() {
            None => {
                let is_first = self.command.words.iter().all(|word| word.assigns().is_some());
                if is_first && KEYWORDS.contains(&word.raw.as_str()) {
                    return Err(NotPlain::Compound);
                }
                if is_first && word.assigns().is_none() && !word.is_literal {
                    return Err(NotPlain::ProgramName);
                }
                self.command.words.push(word);
            }
            Some(_) if !word.is_literal => return Err(NotPlain::Redirection),
            Some(RedirectTarget::Stream) if is_stream => {}
            Some(RedirectTarget::Stream) => return Err(NotPlain::Redirection),
            Some(RedirectTarget::Write) => self.command.writes.push(word),
            Some(RedirectTarget::Read) => self.command.reads.push(word),
        }
        Ok(())
    }

    fn end_command(&mut self, is_joined: bool) -> Result<(), NotPlain> {
        self.end_word()?;
        if self.target.is_some() {
            return Err(NotPlain::Redirection);
        }
        let command = std::mem::take(&mut self.command);
        if self.commands.len() >= COMMANDS_MAX {
            return Err(NotPlain::TooLong);
        }
        if command != SimpleCommand::default() {
            self.commands.push(SimpleCommand { is_joined, ..command });
        }
        Ok(())
    }
}

/// The words as written, with blanks normalised.
pub(super) fn raw_text(words: &[ShellWord]) -> String {
    words.iter().map(|word| word.raw.as_str()).collect::<Vec<_>>().join(" ")
}

/// The words with their quotes removed.
pub(super) fn plain_text(words: &[ShellWord]) -> String {
    words.iter().map(|word| word.plain.as_str()).collect::<Vec<_>>().join(" ")
}

/// The name of a program, without its folder.
pub(super) fn base_name(command: &str) -> &str {
    command.rsplit('/').next().unwrap_or(command)
}
