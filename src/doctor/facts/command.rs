//! The first command of a shell script, as far as it is known without running a shell.

use std::path::Path;

use tree_sitter::{Node, Parser};

/// Longer scripts are not parsed, in bytes: the time that the parser takes may grow faster than
/// they do.
const SCRIPT_BYTES_MAX: usize = 16 << 10;

/// The variables and home folder of the shell that would run it.
pub(super) struct ShellContext<'a> {
    pub(super) value: &'a dyn Fn(&str) -> Option<String>,
    pub(super) home: Option<&'a Path>,
}

/// Returns the words of the first command, without assignments before it. `None`: the word depends
/// on the shell. Empty: the command depends on the shell.
pub(super) fn first_command(script: &str, known: &ShellContext<'_>) -> Vec<Option<String>> {
    let mut parser = Parser::new();
    let is_ready = parser.set_language(&tree_sitter_bash::LANGUAGE.into()).is_ok();
    let parsed = (is_ready && script.len() <= SCRIPT_BYTES_MAX).then(|| parser.parse(script, None));
    let Some(tree) = parsed.flatten().filter(|tree| !tree.root_node().has_error()) else {
        return Vec::new();
    };
    let Some(command) = first_simple_command(tree.root_node()) else { return Vec::new() };
    let reader = WordReader { script, known };
    let mut words: Vec<Option<String>> = Vec::new();
    for node in command.named_children(&mut command.walk()) {
        let text = &script[node.byte_range()];
        match node.kind() {
            // A new PATH changes which program is meant.
            "variable_assignment" if text.starts_with("PATH=") => return Vec::new(),
            "variable_assignment" => {}
            kind if kind.ends_with("redirect") => break,
            _ if is_assignment(text) && words.iter().all(|it| it.as_deref() == Some("env")) => {}
            _ => words.push(reader.word(node)),
        }
    }
    words
}

/// The first simple command that the shell runs, if it is known which one that is.
///
/// A list of many commands nests as deep as it is long.
fn first_simple_command(mut node: Node<'_>) -> Option<Node<'_>> {
    loop {
        match node.kind() {
            "command" => return Some(node),
            "program" | "list" | "pipeline" | "redirected_statement" => {
                let mut walk = node.walk();
                let mut parts = node.named_children(&mut walk);
                node = parts.find(|part| part.kind() != "comment")?;
            }
            _ => return None,
        }
    }
}

/// Whether a word assigns a variable.
fn is_assignment(word: &str) -> bool {
    let letter = |one: char| one.is_ascii_alphanumeric() || one == '_';
    word.split_once('=').is_some_and(|(name, _)| !name.is_empty() && name.chars().all(letter))
}

struct WordReader<'a> {
    script: &'a str,
    known: &'a ShellContext<'a>,
}

impl WordReader<'_> {
    /// The text of a word; `None` where it depends on the shell.
    fn word(&self, node: Node<'_>) -> Option<String> {
        let text = &self.script[node.byte_range()];
        match node.kind() {
            "word" => self.plain(text, is_first_of_word(node)),
            "number" => Some(text.to_owned()),
            "raw_string" => Some(text.trim_matches('\'').to_owned()),
            "string_content" => Some(unescaped(text, |letter| "\"\\$`".contains(letter))),
            "simple_expansion" | "expansion" => self.variable(node),
            "command_name" | "string" | "concatenation" => {
                let mut walk = node.walk();
                node.named_children(&mut walk).map(|part| self.word(part)).collect()
            }
            _ => None,
        }
    }

    fn plain(&self, text: &str, is_first: bool) -> Option<String> {
        let home = text.strip_prefix('~').filter(|rest| is_first && is_below(rest));
        match home {
            Some(rest) => {
                Some(format!("{}{}", self.known.home?.display(), self.plain(rest, false)?))
            }
            None if text.contains(['*', '?', '[', '{', '`']) && text != "[" => None,
            None => Some(unescaped(text, |_| true)),
        }
    }

    /// The value of a variable that is named and nothing else.
    fn variable(&self, node: Node<'_>) -> Option<String> {
        let text = &self.script[node.byte_range()];
        let name = text.trim_start_matches(['$', '{']).trim_end_matches('}');
        let letter = |one: char| one.is_ascii_alphanumeric() || one == '_';
        let value =
            Some(name).filter(|name| name.chars().all(letter)).and_then(self.known.value)?;
        // A shell splits an unquoted value with spaces into several words.
        let is_quoted = node.parent().is_some_and(|parent| parent.kind() == "string");
        (is_quoted || !value.contains(char::is_whitespace)).then_some(value)
    }
}

/// Whether what follows a tilde is nothing, or a path below the home folder.
fn is_below(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

/// Whether a part stands at the beginning of its word.
fn is_first_of_word(part: Node<'_>) -> bool {
    let outer = part.parent().filter(|parent| parent.kind() == "concatenation");
    outer.is_none_or(|outer| outer.start_byte() == part.start_byte())
}

/// Removes backslashes before letters that they escape, and continued lines.
fn unescaped(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut plain = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, letters.clone().next()) {
            ('\\', Some('\n')) => drop(letters.next()),
            ('\\', Some(escaped)) if is_escaped(escaped) => plain.extend(letters.next()),
            _ => plain.push(letter),
        }
    }
    plain
}
