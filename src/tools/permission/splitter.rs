//! Splits a plain shell command into simple commands, where that is certain.
//!
//! This is not a full shell parser. It handles quotes, the operators between simple commands, and
//! redirections. For anything else it returns [`NotUnderstood`], and `tree` parses the command with a
//! grammar.

/// A word of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShellWord {
    /// As written, with quotes.
    pub(super) raw: String,
    /// With quotes removed.
    pub(super) plain: String,
    /// Depends on a variable or on another expansion.
    pub(super) expands: bool,
    /// Contains `*`, `?` or `[` outside quotes.
    pub(super) globs: bool,
}

/// One command without operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    pub(super) words: Vec<ShellWord>,
    /// Files that it is redirected to.
    pub(super) writes: Vec<ShellWord>,
    pub(super) reads: Vec<ShellWord>,
    pub(super) then: Separator,
}

/// The separator between a command and the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Separator {
    /// The next runs only if this one succeeds.
    And,
    Pipe,
    /// The next runs in any case, or only if this one fails.
    #[default]
    Unconditional,
}

/// Why a command could not be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotUnderstood(pub(super) &'static str);

/// Longer commands are not parsed.
pub(super) const LETTERS_MAX: usize = 10_000;

const KEYWORDS: &[&str] = &[
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "select", "function", "coproc", "[[", "{", "}", "!",
];

/// Splits a command into its simple commands.
pub(super) fn split(command: &str) -> Result<Vec<SimpleCommand>, NotUnderstood> {
    if command.len() > LETTERS_MAX {
        return Err(NotUnderstood("it is too long to be checked"));
    }
    let mut lexer = Lexer {
        letters: command.chars().collect(),
        at: 0,
        word: None,
        simple: SimpleCommand::default(),
        target: None,
        commands: Vec::new(),
    };
    while let Some(letter) = lexer.next() {
        lexer.take(letter)?;
    }
    lexer.end_simple(Separator::Unconditional)?;
    Ok(lexer.commands)
}

/// The word that this text is as an argument, if it is exactly one word.
pub(super) fn single_word(raw: &str) -> Option<ShellWord> {
    // Keywords are not special after the first word.
    let parts = split(&format!(": {raw}")).ok()?;
    let [SimpleCommand { words, writes, reads, .. }] = parts.as_slice() else { return None };
    let [_, word] = words.as_slice() else { return None };
    (writes.is_empty() && reads.is_empty() && word.raw == raw).then(|| word.clone())
}

/// Whether a command cannot begin with this word.
pub(super) fn is_keyword(word: &str) -> bool {
    KEYWORDS.contains(&word)
}

/// Whether a word sets a variable for the command that follows.
pub(super) fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    let name = name.strip_suffix('+').unwrap_or(name);
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(fits)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RedirectTarget {
    Write,
    Read,
    /// Another stream, or a here-string.
    Harmless,
    /// A stream if it is a number or `-`, else a file.
    StreamOrFile,
}

struct Lexer {
    letters: Vec<char>,
    at: usize,
    word: Option<ShellWord>,
    simple: SimpleCommand,
    /// The kind of redirection that the next word is the target of.
    target: Option<RedirectTarget>,
    commands: Vec<SimpleCommand>,
}

impl Lexer {
    fn next(&mut self) -> Option<char> {
        let letter = self.letters.get(self.at).copied();
        self.at += 1;
        letter
    }

    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let there = self.peek() == Some(wanted);
        self.at += usize::from(there);
        there
    }

    fn take(&mut self, letter: char) -> Result<(), NotUnderstood> {
        match letter {
            ' ' | '\t' => self.end_word()?,
            '\n' | ';' => self.end_simple(Separator::Unconditional)?,
            '|' if self.eat('|') => self.end_simple(Separator::Unconditional)?,
            '|' => {
                self.eat('&');
                self.end_simple(Separator::Pipe)?;
            }
            '&' if self.peek() == Some('>') => self.redirect('&')?,
            '&' if self.eat('&') => self.end_simple(Separator::And)?,
            '&' => self.end_simple(Separator::Unconditional)?,
            '<' | '>' => self.redirect(letter)?,
            '#' if self.word.is_none() => {
                while self.peek().is_some_and(|letter| letter != '\n') {
                    self.at += 1;
                }
            }
            '`' => return Err(NotUnderstood("it contains a command substitution")),
            '(' | ')' => return Err(NotUnderstood("it contains parentheses")),
            '\\' => self.escape()?,
            '\'' => self.single_quotes()?,
            '"' => self.double_quotes()?,
            '$' => self.dollar(QuoteKind::Outside)?,
            _ => self.plain(letter),
        }
        Ok(())
    }

    fn plain(&mut self, letter: char) {
        let word = self.word.get_or_insert_default();
        word.globs |= matches!(letter, '*' | '?' | '[');
        word.expands |= letter == '{';
        word.raw.push(letter);
        word.plain.push(letter);
    }

    fn escape(&mut self) -> Result<(), NotUnderstood> {
        match self.next() {
            None => Err(NotUnderstood("it ends with a backslash")),
            Some('\n') => Ok(()),
            Some(letter) => {
                let word = self.word.get_or_insert_default();
                word.raw.extend(['\\', letter]);
                word.plain.push(letter);
                Ok(())
            }
        }
    }

    fn single_quotes(&mut self) -> Result<(), NotUnderstood> {
        let word = self.word.get_or_insert_default();
        word.raw.push('\'');
        loop {
            let letter = self.letters.get(self.at).copied();
            self.at += 1;
            match letter {
                None => return Err(NotUnderstood("a quote is not closed")),
                Some('\'') => break,
                Some(letter) => {
                    word.raw.push(letter);
                    word.plain.push(letter);
                }
            }
        }
        word.raw.push('\'');
        Ok(())
    }

    fn double_quotes(&mut self) -> Result<(), NotUnderstood> {
        self.word.get_or_insert_default().raw.push('"');
        loop {
            match self.next() {
                None => return Err(NotUnderstood("a quote is not closed")),
                Some('"') => break,
                Some('`') => return Err(NotUnderstood("it contains a command substitution")),
                Some('$') => self.dollar(QuoteKind::Inside)?,
                Some('\\') => {
                    let next = self.next().ok_or(NotUnderstood("a quote is not closed"))?;
                    let word = self.word.get_or_insert_default();
                    word.raw.extend(['\\', next]);
                    if !matches!(next, '$' | '`' | '"' | '\\' | '\n') {
                        word.plain.push('\\');
                    }
                    if next != '\n' {
                        word.plain.push(next);
                    }
                }
                Some(letter) => {
                    let word = self.word.get_or_insert_default();
                    word.raw.push(letter);
                    word.plain.push(letter);
                }
            }
        }
        self.word.get_or_insert_default().raw.push('"');
        Ok(())
    }

    /// A variable is carried as it is; anything that runs a command or decodes is not.
    fn dollar(&mut self, quotes: QuoteKind) -> Result<(), NotUnderstood> {
        match (self.peek(), quotes) {
            (Some('('), _) => return Err(NotUnderstood("it contains a command substitution")),
            // Quotes mean nothing in there, and substitutions are made twice.
            (Some('['), _) => return Err(NotUnderstood("it contains arithmetic")),
            (Some('\'' | '"'), QuoteKind::Outside) => {
                return Err(NotUnderstood("it has unusual quotes"));
            }
            (Some('{'), _) => {
                let inner = self.letters[self.at + 1..].iter().take_while(|letter| **letter != '}');
                if !inner.clone().all(|letter| letter.is_ascii_alphanumeric() || *letter == '_') {
                    return Err(NotUnderstood("it has an unusual expansion"));
                }
            }
            (_, _) => {}
        }
        let word = self.word.get_or_insert_default();
        word.expands = true;
        word.raw.push('$');
        word.plain.push('$');
        Ok(())
    }

    fn redirect(&mut self, first: char) -> Result<(), NotUnderstood> {
        // A number right before it is the stream's, not an argument.
        let is_stream = |word: &ShellWord| word.raw.bytes().all(|byte| byte.is_ascii_digit());
        self.word.take_if(|word| is_stream(word));
        self.end_word()?;
        if self.target.is_some() {
            return Err(NotUnderstood("a redirection leads nowhere"));
        }
        let target = if first == '<' {
            if self.eat('<') {
                if !self.eat('<') {
                    return Err(NotUnderstood("it contains a here-document"));
                }
                RedirectTarget::Harmless
            } else if self.eat('&') {
                RedirectTarget::Harmless
            } else if self.eat('>') {
                RedirectTarget::Write
            } else {
                RedirectTarget::Read
            }
        } else if first == '&' {
            self.eat('>');
            self.eat('>');
            RedirectTarget::Write
        } else if self.eat('&') {
            RedirectTarget::StreamOrFile
        } else {
            let _ = self.eat('>') || self.eat('|');
            RedirectTarget::Write
        };
        self.target = Some(target);
        Ok(())
    }

    fn end_word(&mut self) -> Result<(), NotUnderstood> {
        let Some(mut word) = self.word.take() else { return Ok(()) };
        let hidden = |part: &str| part.starts_with('.') && part.contains(['*', '?', '[']);
        let foreign_home = word.raw.starts_with('~')
            && !matches!(&word.raw[1..], "")
            && !word.raw.starts_with("~/");
        // `.*` may mean `..`, and `~name` is another user's home.
        word.expands |= (word.globs && word.plain.split('/').any(hidden)) || foreign_home;
        match self.target.take() {
            None => {
                // `time` is a keyword itself, and another keyword may follow it.
                let mut before = self.simple.words.iter();
                let is_first = before.all(|word| matches!(word.raw.as_str(), "time" | "-p" | "--"));
                if is_first && KEYWORDS.contains(&word.raw.as_str()) {
                    return Err(NotUnderstood("it is a compound command"));
                }
                self.simple.words.push(word);
            }
            Some(RedirectTarget::Harmless) => {}
            Some(RedirectTarget::StreamOrFile)
                if word.raw == "-" || word.raw.bytes().all(|byte| byte.is_ascii_digit()) => {}
            Some(RedirectTarget::Write | RedirectTarget::StreamOrFile) => {
                self.simple.writes.push(word);
            }
            Some(RedirectTarget::Read) => self.simple.reads.push(word),
        }
        Ok(())
    }

    fn end_simple(&mut self, then: Separator) -> Result<(), NotUnderstood> {
        self.end_word()?;
        if self.target.is_some() {
            return Err(NotUnderstood("a redirection leads nowhere"));
        }
        let simple = std::mem::take(&mut self.simple);
        if simple != SimpleCommand::default() {
            self.commands.push(SimpleCommand { then, ..simple });
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum QuoteKind {
    Inside,
    Outside,
}

impl SimpleCommand {
    /// The command as written, with blanks normalised and redirections left out.
    pub(super) fn text(&self) -> String {
        text(&self.words)
    }
}

pub(super) fn text(words: &[ShellWord]) -> String {
    words.iter().map(|word| word.raw.as_str()).collect::<Vec<_>>().join(" ")
}

pub(super) fn plain(words: &[ShellWord]) -> String {
    words.iter().map(|word| word.plain.as_str()).collect::<Vec<_>>().join(" ")
}

impl AsRef<str> for ShellWord {
    /// The word with its quotes removed.
    fn as_ref(&self) -> &str {
        &self.plain
    }
}

impl ShellWord {
    /// The variable that the word sets for the command that follows, if it is an assignment.
    pub(super) fn assigns(&self) -> Option<&str> {
        let (name, _) = self.raw.split_once('=')?;
        let name = name.strip_suffix('+').unwrap_or(name);
        let first = name.chars().next()?;
        let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        (!first.is_ascii_digit() && name.chars().all(fits)).then_some(name)
    }
}

/// The name of a program, without its folder.
pub(super) fn base_name(command: &str) -> &str {
    command.rsplit('/').next().unwrap_or(command)
}
