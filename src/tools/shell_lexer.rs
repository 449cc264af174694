//! Splits a shell command into simple commands, where that is certain.
//!
//! This is deliberately not a shell parser. It recognizes words, plain quotes, the operators
//! between simple commands, redirections to named files, and here-documents that are text.
//! Everything else is [`NotPlain`], and no rule for single commands covers it.

use std::str::Chars;

/// The expansion that the shell makes in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Expansion {
    #[default]
    Nothing,
    /// Numbers that the shell sets, such as `$?`.
    Status,
    /// A pattern of file names.
    Files,
    /// Something else, or more than one of these.
    Other,
}

/// A word of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShellWord {
    /// The word as written, with quotes.
    pub(super) raw: String,
    /// The word with quotes removed.
    pub(super) plain: String,
    pub(super) expansion: Expansion,
}

impl ShellWord {
    /// True if the program gets exactly `plain`: the shell expands no variable, pattern, brace or
    /// tilde.
    pub(super) fn is_literal(&self) -> bool {
        self.expansion == Expansion::Nothing
    }

    /// True if the word is `~/` and a path that is written out, so that only the home folder is
    /// filled in, which it does not leave.
    pub(super) fn is_path_in_home(&self) -> bool {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-+.,@/".contains(letter);
        let path = self.raw.strip_prefix("~/").filter(|path| !path.contains(".."));
        path.is_some_and(|path| path.chars().all(is_plain))
    }

    /// The spelling of the word without quotes, if it is the same word without them.
    pub(super) fn unquoted(&self) -> &str {
        let is_flag = self.plain.starts_with('-');
        let is_plain = |letter: char| {
            letter.is_alphanumeric() || "_-+.,@/:%".contains(letter) || is_flag && letter == '='
        };
        let is_same =
            self.is_literal() && !self.plain.is_empty() && self.plain.chars().all(is_plain);
        if is_same { &self.plain } else { &self.raw }
    }

    fn expand(&mut self, by: Expansion) {
        let is_same = self.is_literal() || self.expansion == by;
        self.expansion = if is_same { by } else { Expansion::Other };
    }

    /// The variable that the word sets, if it is an assignment.
    pub(super) fn assigns(&self) -> Option<&str> {
        let (name, _) = self.raw.split_once('=')?;
        let name = name.strip_suffix('+').unwrap_or(name);
        let name = name.split_once('[').map_or(name, |(array, _)| array);
        let begins = name.starts_with(|first: char| !first.is_ascii_digit());
        (begins && name.chars().all(is_part_of_name)).then_some(name)
    }
}

/// One command without operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    pub(super) words: Vec<ShellWord>,
    /// Files that it is redirected to.
    pub(super) writes: Vec<ShellWord>,
    pub(super) reads: Vec<ShellWord>,
    /// True if a here-document is its input.
    pub(super) has_document: bool,
    /// True if it reads the output of the command before it.
    pub(super) is_piped: bool,
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
    #[error(
        "it contains a here-document that may be more than text: quote its delimiter, as in \
         <<'EOF', and end it by a line EOF, or write the text to a file with Write"
    )]
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

/// The texts after `$` that stand for numbers which the shell sets.
const STATUS: &[&str] = &["?", "#", "!", "{PIPESTATUS[0]}", "{PIPESTATUS[1]}", "{PIPESTATUS[@]}"];

/// Splits a command into its simple commands.
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
        is_piped: false,
        documents: Vec::new(),
        is_uncertain: false,
        commands: Vec::new(),
    };
    while let Some(letter) = lexer.next() {
        lexer.take(letter)?;
    }
    lexer.end_command(false)?;
    if lexer.documents.is_empty() { Ok(lexer.commands) } else { Err(NotPlain::HereDocument) }
}

/// The kind of the word after a redirection operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RedirectTarget {
    Write,
    Read,
    /// A descriptor or `-`. A file would be expanded twice.
    Stream,
}

/// The beginning of a here-document.
struct HereDocument {
    end: String,
    /// True for `<<-`, which removes tabs at the beginning of lines.
    removes_tabs: bool,
    /// True if the delimiter is quoted, so that the shell expands nothing in the text.
    is_quoted: bool,
}

/// With these, the shell begins an expansion in a here-document whose delimiter is not quoted, or
/// joins lines in it, the delimiter's own included.
const EXPANDS: [char; 3] = ['$', '`', '\\'];

impl HereDocument {
    /// Reads what follows `<<`, up to the end of the delimiter. `None` if that is more than a name,
    /// quoted as a whole or not at all. Returns the rest of the text, too.
    fn begin(text: &str) -> Option<(Self, &str)> {
        let word = text.strip_prefix('-').unwrap_or(text);
        let removes_tabs = word.len() < text.len();
        let word = word.trim_start_matches([' ', '\t']);
        let quote = word.chars().next().filter(|quote| matches!(quote, '\'' | '"' | '\\'));
        let name = quote.map_or(word, |quote| &word[quote.len_utf8()..]);
        let is_quoted = quote.is_some();
        let is_part = |letter: char| is_part_of_name(letter) || is_quoted && letter == '-';
        let (end, rest) = name.split_at(name.find(|letter| !is_part(letter))?);
        let rest = match quote.filter(|quote| *quote != '\\') {
            Some(quote) => rest.strip_prefix(quote)?,
            None => rest,
        };
        (!end.is_empty()).then(|| (Self { end: end.to_owned(), removes_tabs, is_quoted }, rest))
    }

    /// Takes the lines up to the delimiter from the rest of a text. `None` if shells may disagree
    /// on where the document ends: in a substitution, bash ends it at a line that only begins with
    /// the delimiter.
    fn take_from<'a>(&self, text: &'a str) -> Option<(String, &'a str)> {
        let (mut document, mut rest) = (String::new(), Some(text));
        loop {
            let text = rest?;
            let (line, next) =
                text.split_once('\n').map_or((text, None), |(it, next)| (it, Some(next)));
            let line = if self.removes_tabs { line.trim_start_matches('\t') } else { line };
            match line.strip_prefix(&self.end) {
                Some("") => return Some((document, next.unwrap_or_default())),
                Some(_) => return None,
                None => document.extend([line, "\n"]),
            }
            rest = next;
        }
    }
}

struct Lexer<'a> {
    letters: Chars<'a>,
    word: Option<ShellWord>,
    command: SimpleCommand,
    /// The kind of redirection that the next word is the target of.
    target: Option<RedirectTarget>,
    /// True if the next command reads the output of the last one.
    is_piped: bool,
    /// The here-documents that begin after the line.
    documents: Vec<HereDocument>,
    /// True if shells may disagree on where a here-document begins.
    is_uncertain: bool,
    commands: Vec<SimpleCommand>,
}

impl Lexer<'_> {
    /// Removes line continuations. The shell does so before it reads an operator or an expansion,
    /// so that `$` and `(` on two lines are a command substitution.
    fn join_lines(&mut self) {
        while let Some(rest) = self.letters.as_str().strip_prefix("\\\n") {
            self.letters = rest.chars();
            self.continue_line();
        }
    }

    /// Records that the next line belongs to this one.
    fn continue_line(&mut self) {
        self.is_uncertain |= !self.documents.is_empty();
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
            '\n' => {
                self.end_command(false)?;
                self.skip_documents()
            }
            ';' => self.end_command(false),
            '|' => {
                let is_or = self.eat('|');
                if !is_or {
                    self.eat('&');
                }
                self.end_command(false)?;
                self.is_piped = !is_or;
                Ok(())
            }
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
                // In a subscript, blanks and ends of lines belong to the word.
                self.is_uncertain |=
                    letter == '[' && !before.is_empty() && before.chars().all(is_part_of_name);
                let expansion = match letter {
                    '*' | '?' => Expansion::Files,
                    ']' if before.contains('[') => Expansion::Files,
                    '{' => Expansion::Other,
                    // The shell replaces a tilde at the beginning of a word, after `=` and `:`.
                    '~' if !before.ends_with(char::is_alphanumeric) => Expansion::Other,
                    _ => Expansion::Nothing,
                };
                let word = self.push(letter, &[letter]);
                if expansion != Expansion::Nothing {
                    word.expand(expansion);
                }
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
                letter => {
                    self.push(letter, &[letter]);
                    if letter == '\n' {
                        self.continue_line();
                    }
                }
            }
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
                '$' if self.cat() => {}
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
                    if letter == '\n' {
                        self.continue_line();
                    }
                }
            }
        }
        self.push_quote('"');
        Ok(())
    }

    /// Takes the rest of `$(cat <<EOF`, a literal here-document and `)`, which is the same as its
    /// text in quotes. False if it is anything else.
    fn cat(&mut self) -> bool {
        let all = self.letters.as_str();
        let read = text_of_cat(all).filter(|_| !self.is_uncertain);
        let Some((text, rest)) = read else { return false };
        let spelt = &all[..all.len() - rest.len()];
        self.letters = rest.chars();
        self.continue_line();
        let word = self.word.get_or_insert_default();
        word.plain.push_str(text.trim_end_matches('\n'));
        word.raw.extend(["$", spelt]);
        true
    }

    /// Takes a number of [`STATUS`], `${NAME}`, the beginning of `$NAME`, or a single `$`. Other
    /// expansions may run commands, or decode text.
    fn dollar(&mut self) -> Result<(), NotPlain> {
        let next = self.peek().unwrap_or(' ');
        let rest = self.letters.as_str();
        let word = self.word.get_or_insert_default();
        word.plain.push('$');
        word.raw.push('$');
        if let Some(status) = STATUS.iter().find(|status| rest.starts_with(**status)) {
            word.expand(Expansion::Status);
            word.plain.push_str(status);
            word.raw.push_str(status);
            self.letters = rest[status.len()..].chars();
            return Ok(());
        }
        if is_part_of_name(next) || "{@*#?!$-".contains(next) {
            word.expand(Expansion::Other);
        }
        match next {
            '(' => return Err(NotPlain::Substitution),
            '[' => return Err(NotPlain::Expansion),
            '{' => {}
            // The second one begins no substitution.
            '$' => {
                self.next();
                self.push('$', &['$']);
                return Ok(());
            }
            _ => return Ok(()),
        }
        while let Some(letter) = self.next_if(|letter| is_part_of_name(letter) || letter == '{') {
            self.push(letter, &[letter]);
        }
        self.next_if(|letter| letter == '}').ok_or(NotPlain::Expansion)?;
        self.push('}', &['}']);
        Ok(())
    }

    fn redirect(&mut self, first: char) -> Result<(), NotPlain> {
        // A number right before it is the stream's, not an argument, but for `&>` and if no stream
        // can have it.
        let is_stream = |word: &mut ShellWord| {
            word.raw.bytes().all(|byte| byte.is_ascii_digit()) && word.raw.parse::<i32>().is_ok()
        };
        self.word.take_if(|word| first != '&' && is_stream(word));
        self.end_word()?;
        if self.target.is_some() {
            return Err(NotPlain::Redirection);
        }
        self.target = Some(match first {
            '<' if self.eat('<') => return self.begin_document(),
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

    /// Takes the delimiter of a here-document.
    fn begin_document(&mut self) -> Result<(), NotPlain> {
        let begun = HereDocument::begin(self.letters.as_str());
        let ends_word = |rest: &str| rest.starts_with([' ', '\t', '\n', ';', '&', '|', '<', '>']);
        let (document, rest) =
            begun.filter(|(_, rest)| ends_word(rest)).ok_or(NotPlain::HereDocument)?;
        self.letters = rest.chars();
        self.documents.push(document);
        self.command.has_document = true;
        Ok(())
    }

    /// Skips the here-documents that begin after a line.
    fn skip_documents(&mut self) -> Result<(), NotPlain> {
        for document in std::mem::take(&mut self.documents) {
            let taken = document.take_from(self.letters.as_str()).filter(|_| !self.is_uncertain);
            let is_text = |text: &str| document.is_quoted || !text.contains(EXPANDS);
            let taken = taken.filter(|(text, _)| is_text(text));
            let (_, rest) = taken.ok_or(NotPlain::HereDocument)?;
            self.letters = rest.chars();
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
                let is_name = word.is_literal() || word.is_path_in_home();
                if is_first && word.assigns().is_none() && !is_name {
                    return Err(NotPlain::ProgramName);
                }
                self.command.words.push(word);
            }
            Some(_) if !word.is_literal() => return Err(NotPlain::Redirection),
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
            let is_piped = std::mem::take(&mut self.is_piped);
            self.commands.push(SimpleCommand { is_piped, is_joined, ..command });
        }
        Ok(())
    }
}

/// Reads `(cat <<'EOF'` or `(cat <<EOF`, the text of a here-document, a line `EOF` and `)`. Returns
/// the text and the rest. `None` if the shell expands something in it.
fn text_of_cat(text: &str) -> Option<(String, &str)> {
    let begun = text.strip_prefix("(cat <<")?;
    let (document, rest) = HereDocument::begin(begun)?;
    let (text, rest) = document.take_from(rest.strip_prefix('\n')?)?;
    // Older versions of bash join lines before they look for the delimiter.
    let is_certain = !text.contains("\\\n");
    let is_literal = document.is_quoted || !text.contains(['$', '`', '\\']);
    Some((text, rest.strip_prefix(')')?)).filter(|_| is_certain && is_literal)
}

/// True if this may be part of the name of a variable.
fn is_part_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The words as written, with blanks normalised.
pub(super) fn raw_text(words: &[ShellWord]) -> String {
    words.iter().map(|word| word.raw.as_str()).collect::<Vec<_>>().join(" ")
}

/// The words as written, but without the quotes that have no effect: the shell reads both texts as
/// the same command.
pub(super) fn unquoted_text(words: &[ShellWord]) -> String {
    let spelt = |(at, word): (usize, &ShellWord)| {
        // Without quotes, it would not be the name of a program.
        let is_keyword = at == 0 && (KEYWORDS.contains(&&*word.plain) || word.plain == "time");
        if is_keyword { word.raw.clone() } else { word.unquoted().to_owned() }
    };
    words.iter().enumerate().map(spelt).collect::<Vec<_>>().join(" ")
}

/// The words with their quotes removed.
pub(super) fn plain_text(words: &[ShellWord]) -> String {
    words.iter().map(|word| word.plain.as_str()).collect::<Vec<_>>().join(" ")
}

/// The name of a program, without its folder.
pub(super) fn base_name(command: &str) -> &str {
    command.rsplit('/').next().unwrap_or(command)
}
