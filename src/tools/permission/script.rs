//! Takes a plain shell command apart, as far as that can be done for sure.
//!
//! This is no shell parser. It knows quotes, the operators between simple commands, and
//! redirections; at anything else it says that it is unsure, and `tree` has a parser look.

/// A word of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// As it was written.
    pub(super) raw: String,
    /// Without its quotes.
    pub(super) plain: String,
    /// It depends on a variable, or on what the shell makes of it.
    pub(super) expands: bool,
    /// It has `*`, `?` or `[` outside quotes.
    pub(super) globs: bool,
}

/// One command without operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Simple {
    pub(super) words: Vec<Word>,
    /// Files that it is redirected to.
    pub(super) writes: Vec<Word>,
    pub(super) reads: Vec<Word>,
    pub(super) then: Joint,
}

/// What stands between a command and the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Joint {
    /// The next runs only if this one succeeds.
    And,
    Pipe,
    /// The next runs anyway, or only if this one fails.
    #[default]
    Other,
}

/// Why a command could not be taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unsure(pub(super) &'static str);

/// What is longer is not looked at.
pub(super) const LETTERS_MAX: usize = 10_000;

const KEYWORDS: &[&str] = &[
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "select", "function", "coproc", "[[", "{", "}", "!",
];

/// Splits a command into its simple commands.
pub(super) fn split(command: &str) -> Result<Vec<Simple>, Unsure> {
    if command.len() > LETTERS_MAX {
        return Err(Unsure("it is too long to be checked"));
    }
    let mut lexer = Lexer {
        letters: command.chars().collect(),
        at: 0,
        word: None,
        simple: Simple::default(),
        target: None,
        done: Vec::new(),
    };
    while let Some(letter) = lexer.next() {
        lexer.take(letter)?;
    }
    lexer.end_simple(Joint::Other)?;
    Ok(lexer.done)
}

/// What one word written like this means, if it is one.
pub(super) fn single_word(raw: &str) -> Option<Word> {
    // Keywords mean nothing after a first word.
    let parts = split(&format!(": {raw}")).ok()?;
    let [Simple { words, writes, reads, .. }] = parts.as_slice() else { return None };
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
enum Target {
    Write,
    Read,
    /// Another stream, or a string.
    Harmless,
    /// A stream if it is a number or `-`, else a file.
    StreamOrFile,
}

struct Lexer {
    letters: Vec<char>,
    at: usize,
    word: Option<Word>,
    simple: Simple,
    /// What the next word is, after a redirection.
    target: Option<Target>,
    done: Vec<Simple>,
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

    fn take(&mut self, letter: char) -> Result<(), Unsure> {
        match letter {
            ' ' | '\t' => self.end_word()?,
            '\n' | ';' => self.end_simple(Joint::Other)?,
            '|' if self.eat('|') => self.end_simple(Joint::Other)?,
            '|' => {
                self.eat('&');
                self.end_simple(Joint::Pipe)?;
            }
            '&' if self.peek() == Some('>') => self.redirect('&')?,
            '&' if self.eat('&') => self.end_simple(Joint::And)?,
            '&' => self.end_simple(Joint::Other)?,
            '<' | '>' => self.redirect(letter)?,
            '#' if self.word.is_none() => {
                while self.peek().is_some_and(|letter| letter != '\n') {
                    self.at += 1;
                }
            }
            '`' => return Err(Unsure("it contains a command substitution")),
            '(' | ')' => return Err(Unsure("it contains parentheses")),
            '\\' => self.escape()?,
            '\'' => self.single_quotes()?,
            '"' => self.double_quotes()?,
            '$' => self.dollar(Quotes::Outside)?,
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

    fn escape(&mut self) -> Result<(), Unsure> {
        match self.next() {
            None => Err(Unsure("it ends with a backslash")),
            Some('\n') => Ok(()),
            Some(letter) => {
                let word = self.word.get_or_insert_default();
                word.raw.extend(['\\', letter]);
                word.plain.push(letter);
                Ok(())
            }
        }
    }

    fn single_quotes(&mut self) -> Result<(), Unsure> {
        let word = self.word.get_or_insert_default();
        word.raw.push('\'');
        loop {
            let letter = self.letters.get(self.at).copied();
            self.at += 1;
            match letter {
                None => return Err(Unsure("a quote is not closed")),
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

    fn double_quotes(&mut self) -> Result<(), Unsure> {
        self.word.get_or_insert_default().raw.push('"');
        loop {
            match self.next() {
                None => return Err(Unsure("a quote is not closed")),
                Some('"') => break,
                Some('`') => return Err(Unsure("it contains a command substitution")),
                Some('$') => self.dollar(Quotes::Inside)?,
                Some('\\') => {
                    let next = self.next().ok_or(Unsure("a quote is not closed"))?;
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
    fn dollar(&mut self, quotes: Quotes) -> Result<(), Unsure> {
        match (self.peek(), quotes) {
            (Some('('), _) => return Err(Unsure("it contains a command substitution")),
            // Quotes mean nothing in there, and substitutions are made twice.
            (Some('['), _) => return Err(Unsure("it contains arithmetic")),
            (Some('\'' | '"'), Quotes::Outside) => return Err(Unsure("it has unusual quotes")),
            (Some('{'), _) => {
                let inner = self.letters[self.at + 1..].iter().take_while(|letter| **letter != '}');
                if !inner.clone().all(|letter| letter.is_ascii_alphanumeric() || *letter == '_') {
                    return Err(Unsure("it has an unusual expansion"));
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

    fn redirect(&mut self, first: char) -> Result<(), Unsure> {
        // A number right before it is the stream's, not an argument.
        let is_stream = |word: &Word| word.raw.bytes().all(|byte| byte.is_ascii_digit());
        self.word.take_if(|word| is_stream(word));
        self.end_word()?;
        if self.target.is_some() {
            return Err(Unsure("a redirection leads nowhere"));
        }
        let target = if first == '<' {
            if self.eat('<') {
                if !self.eat('<') {
                    return Err(Unsure("it contains a here-document"));
                }
                Target::Harmless
            } else if self.eat('&') {
                Target::Harmless
            } else if self.eat('>') {
                Target::Write
            } else {
                Target::Read
            }
        } else if first == '&' {
            self.eat('>');
            self.eat('>');
            Target::Write
        } else if self.eat('&') {
            Target::StreamOrFile
        } else {
            let _ = self.eat('>') || self.eat('|');
            Target::Write
        };
        self.target = Some(target);
        Ok(())
    }

    fn end_word(&mut self) -> Result<(), Unsure> {
        let Some(mut word) = self.word.take() else { return Ok(()) };
        let hidden = |part: &str| part.starts_with('.') && part.contains(['*', '?', '[']);
        let foreign_home = word.raw.starts_with('~')
            && !matches!(&word.raw[1..], "")
            && !word.raw.starts_with("~/");
        // `.*` may mean `..`, and `~name` somebody's home.
        word.expands |= (word.globs && word.plain.split('/').any(hidden)) || foreign_home;
        match self.target.take() {
            None => {
                // `time` is a keyword itself, after which others may come.
                let mut before = self.simple.words.iter();
                let is_first = before.all(|word| matches!(word.raw.as_str(), "time" | "-p" | "--"));
                if is_first && KEYWORDS.contains(&word.raw.as_str()) {
                    return Err(Unsure("it is a compound command"));
                }
                self.simple.words.push(word);
            }
            Some(Target::Harmless) => {}
            Some(Target::StreamOrFile)
                if word.raw == "-" || word.raw.bytes().all(|byte| byte.is_ascii_digit()) => {}
            Some(Target::Write | Target::StreamOrFile) => self.simple.writes.push(word),
            Some(Target::Read) => self.simple.reads.push(word),
        }
        Ok(())
    }

    fn end_simple(&mut self, then: Joint) -> Result<(), Unsure> {
        self.end_word()?;
        if self.target.is_some() {
            return Err(Unsure("a redirection leads nowhere"));
        }
        let simple = std::mem::take(&mut self.simple);
        if simple != Simple::default() {
            self.done.push(Simple { then, ..simple });
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Inside,
    Outside,
}

impl Simple {
    /// The command as written, blanks made one and redirections left out.
    pub(super) fn text(&self) -> String {
        text(&self.words)
    }
}

pub(super) fn text(words: &[Word]) -> String {
    words.iter().map(|word| word.raw.as_str()).collect::<Vec<_>>().join(" ")
}

pub(super) fn plain(words: &[Word]) -> String {
    words.iter().map(|word| word.plain.as_str()).collect::<Vec<_>>().join(" ")
}

impl AsRef<str> for Word {
    /// Without its quotes.
    fn as_ref(&self) -> &str {
        &self.plain
    }
}

impl Word {
    /// Whether it sets a variable for the command that follows.
    pub(super) fn assigns(&self) -> Option<&str> {
        let (name, _) = self.raw.split_once('=')?;
        let name = name.strip_suffix('+').unwrap_or(name);
        let first = name.chars().next()?;
        let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        (!first.is_ascii_digit() && name.chars().all(fits)).then_some(name)
    }
}
