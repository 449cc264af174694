//! Splits a shell line into words with their places, as far as they can be known without running
//! it. Pure.
//!
//! It finds programs to pin, and decides nothing about permissions: a word that it does not
//! understand is left as it is.

use std::ops::Range;

/// How deep substitutions may be nested. What is deeper is not read.
const DEPTH_MAX: usize = 32;

/// Words after which the next one is a command again.
const RESERVED: [&str; 15] = [
    "!", "{", "}", "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "esac",
    "in", "time",
];

/// One word of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShellWord {
    /// Its place in the line, with its quotes.
    pub(super) span: Range<usize>,
    /// Without quotes; `None` if it depends on what the shell does.
    pub(super) text: Option<String>,
    /// Whether it is the command itself, and not an argument.
    pub(super) begins: bool,
}

/// Returns the words of all commands of a line, those in substitutions too. Targets of output are
/// left out. `lookup` returns the variables that are known.
pub(super) fn shell_words(line: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Vec<ShellWord> {
    let mut reader = WordReader {
        line,
        at: 0,
        end: line.len(),
        depth: 0,
        lookup,
        words: Vec::new(),
        inner: Vec::new(),
        here_documents: Vec::new(),
    };
    reader.read_commands(None);
    reader.words.append(&mut reader.inner);
    reader.words
}

struct WordReader<'a> {
    line: &'a str,
    at: usize,
    end: usize,
    depth: usize,
    lookup: &'a dyn Fn(&str) -> Option<String>,
    words: Vec<ShellWord>,
    /// The words of substitutions, which must not come between those of a command around them.
    inner: Vec<ShellWord>,
    /// The ends of the here-documents that begin after this line.
    here_documents: Vec<String>,
}

impl<'a> WordReader<'a> {
    fn rest(&self) -> &'a str {
        &self.line[self.at.min(self.end)..self.end]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.at += letter.len_utf8();
        Some(letter)
    }

    /// Skips everything before `stop`.
    fn skip_to(&mut self, stop: char) {
        self.at = self.rest().find(stop).map_or(self.end, |found| self.at + found);
    }

    /// Reads commands up to `close`, or to the end.
    fn read_commands(&mut self, close: Option<char>) {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            self.at = self.end;
        }
        let (mut begins, mut is_target) = (true, false);
        while let Some(letter) = self.peek().filter(|letter| Some(*letter) != close) {
            match letter {
                '\n' => {
                    self.skip();
                    self.skip_here_documents();
                    begins = true;
                }
                '(' => {
                    self.skip();
                    self.read_commands(Some(')'));
                    self.skip();
                    begins = true;
                }
                ';' | '&' | '|' | ')' => {
                    self.skip();
                    begins = true;
                }
                '#' => self.skip_to('\n'),
                '<' | '>' => is_target = self.read_redirection(),
                _ if letter.is_whitespace() => {
                    self.skip();
                }
                _ => {
                    let start = self.at;
                    let text = self.read_word();
                    let raw = &self.line[start..self.at];
                    let goes_on = begins && (RESERVED.contains(&raw) || is_assignment(raw));
                    if std::mem::take(&mut is_target) || goes_on {
                        continue;
                    }
                    self.words.push(ShellWord { span: start..self.at, text, begins });
                    begins = false;
                }
            }
        }
        self.depth -= 1;
    }

    fn read_substitution(&mut self, close: Option<char>) {
        let outer = std::mem::take(&mut self.words);
        self.read_commands(close);
        self.inner.append(&mut self.words);
        self.words = outer;
    }

    /// Reads the operator of a redirection. Returns whether the next word is no input.
    fn read_redirection(&mut self) -> bool {
        let rest = self.rest();
        let known = ["<<<", "<<-", "<<", "<&", "<>", ">>", ">&", ">|", "<", ">"];
        let operator = known.into_iter().find(|known| rest.starts_with(known)).unwrap_or("<");
        self.at += operator.len();
        if matches!(operator, "<<" | "<<-") {
            while self.peek().is_some_and(|letter| matches!(letter, ' ' | '\t')) {
                self.skip();
            }
            let end = self.read_word().unwrap_or_default();
            self.here_documents.push(end);
            return false;
        }
        operator != "<" && self.peek() != Some('(')
    }

    fn skip_here_documents(&mut self) {
        for end in std::mem::take(&mut self.here_documents) {
            while !self.rest().is_empty() {
                let start = self.at;
                self.skip_to('\n');
                let is_end = self.line[start..self.at].trim_start_matches('\t') == end;
                self.skip();
                if is_end {
                    break;
                }
            }
        }
    }

    fn read_word(&mut self) -> Option<String> {
        let (start, mut text) = (self.at, Some(String::new()));
        while let Some(letter) = self.peek() {
            match letter {
                ';' | '&' | '|' | '(' | ')' | '<' | '>' => break,
                _ if letter.is_whitespace() => break,
                '\'' => {
                    self.skip();
                    let inner = self.at;
                    self.skip_to('\'');
                    append(&mut text, Some(&self.line[inner..self.at]));
                    self.skip();
                }
                '"' => self.read_quoted(&mut text),
                '\\' => self.read_escaped(&mut text),
                '$' | '`' => self.read_expansion(&mut text),
                '~' if self.at == start => {
                    self.skip();
                    let is_own = self.peek().is_none_or(|next| next == '/' || next.is_whitespace());
                    let home = (self.lookup)("HOME").filter(|_| is_own);
                    append(&mut text, home.as_deref());
                }
                '*' | '?' | '[' | '{' | '}' => {
                    self.skip();
                    text = None;
                }
                _ => {
                    self.skip();
                    append(&mut text, Some(letter.encode_utf8(&mut [0; 4])));
                }
            }
        }
        text
    }

    fn read_escaped(&mut self, text: &mut Option<String>) {
        self.skip();
        match self.skip() {
            Some('\n') | None => {}
            Some(letter) => append(text, Some(letter.encode_utf8(&mut [0; 4]))),
        }
    }

    fn read_quoted(&mut self, text: &mut Option<String>) {
        self.skip();
        while let Some(letter) = self.peek() {
            match letter {
                '"' => break,
                '\\' => self.read_escaped(text),
                '$' | '`' => self.read_expansion(text),
                _ => {
                    self.skip();
                    append(text, Some(letter.encode_utf8(&mut [0; 4])));
                }
            }
        }
        self.skip();
    }

    /// Reads what the shell replaces: a variable that is known, or something that is not.
    fn read_expansion(&mut self, text: &mut Option<String>) {
        if self.skip() == Some('`') {
            let (inner, end) = (self.at, self.end);
            self.skip_to('`');
            self.end = std::mem::replace(&mut self.at, inner);
            self.read_substitution(None);
            self.at = std::mem::replace(&mut self.end, end);
            self.skip();
            *text = None;
            return;
        }
        match self.peek() {
            Some('(') => {
                self.skip();
                self.read_substitution(Some(')'));
                self.skip();
                *text = None;
            }
            Some('{') => {
                self.skip();
                let inner = self.at;
                self.skip_to('}');
                let inner = &self.line[inner..self.at];
                self.skip();
                let name = &inner[..name_length(inner)];
                let has_default = inner[name.len()..].starts_with([':', '-']);
                let value = (self.lookup)(name).filter(|_| name == inner || has_default);
                append(text, value.as_deref());
            }
            _ => {
                let name = &self.rest()[..name_length(self.rest())];
                self.at += name.len();
                append(text, (self.lookup)(name).as_deref());
            }
        }
    }
}

/// Appends a part of a word. What is not known makes the word unknown.
fn append(text: &mut Option<String>, part: Option<&str>) {
    *text = match (text.take(), part) {
        (Some(text), Some(part)) => Some(text + part),
        (None, _) | (_, None) => None,
    };
}

/// The length of the variable's name that a text begins with.
fn name_length(text: &str) -> usize {
    text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(text.len())
}

fn is_assignment(word: &str) -> bool {
    let length = name_length(word);
    length > 0 && (word[length..].starts_with('=') || word[length..].starts_with("+="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<(String, bool)> {
        let lookup = |name: &str| match name {
            "CLAUDE_PROJECT_DIR" => Some("/work".to_owned()),
            "HOME" => Some("/home/me".to_owned()),
            _ => None,
        };
        let read = shell_words(line, &lookup);
        for word in &read {
            assert!(!line[word.span.clone()].trim().is_empty(), "{line}: {word:?}");
        }
        read.into_iter().filter_map(|word| Some((word.text?, word.begins))).collect()
    }

    #[test]
    fn words_are_found_wherever_a_shell_runs_them() {
        let guard = "/work/g.sh";
        for line in [
            "/work/g.sh",
            "\"$CLAUDE_PROJECT_DIR\"/g.sh",
            "\"${CLAUDE_PROJECT_DIR}/g.sh\"",
            "${CLAUDE_PROJECT_DIR:-.}/g.sh",
            "'/work/g.sh'",
            "\\/work/g'.'sh",
            "true && /work/g.sh",
            "if /work/g.sh; then :; fi",
            "A=b C=\"d e\" /work/g.sh",
            "( cd x; /work/g.sh )",
            "echo \"$(/work/g.sh | cat)\"",
            "x=`/work/g.sh`",
            "cat <(/work/g.sh)",
            "{ /work/g.sh; }",
            "cat <<EOF\nisn't it\nEOF\n/work/g.sh",
            "! /work/g.sh # isn't it",
            "for x in 1 2; do /work/g.sh; done",
        ] {
            assert!(words(line).contains(&(guard.to_owned(), true)), "{line}: {:?}", words(line));
        }
        for line in ["bash /work/g.sh", "bash < /work/g.sh", "echo 'it''s' /work/g.sh"] {
            assert!(words(line).contains(&(guard.to_owned(), false)), "{line}: {:?}", words(line));
        }
        for line in ["x > /work/g.sh", "x >> /work/g.sh", "# /work/g.sh", "$X/work/g.sh", "/work/*"]
        {
            assert!(!words(line).iter().any(|word| word.0 == guard), "{line}: {:?}", words(line));
        }
        assert_eq!(words("~/x ~me/x"), [("/home/me/x".to_owned(), true)]);
    }

    #[test]
    fn broken_and_deep_lines_are_read_to_their_end() {
        for line in ["'", "\"$(", "${", "`", "<<", "$", "\\", "a<<x\n", "é'é", "))", "`$(`"] {
            words(line);
        }
        words(&"$(".repeat(100_000));
        words(&"(".repeat(100_000));
        words(&"`\"$(".repeat(30_000));
    }
}
