//! Splits compound commands with a shell grammar: loops, conditionals, groups, substitutions.
//!
//! The grammar may parse some texts differently from bash. So every kind of node that may occur is
//! listed here, every character of the text must belong to a node, and anything left over, unknown
//! or unusual makes the result [`NotUnderstood`]. The traversal does not recurse, so deep nesting cannot
//! overflow the stack.

use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, ParseState, Parser, Tree, TreeCursor};

use super::bracket_test;
use super::document::without_document;
use super::splitter::{self, LETTERS_MAX, NotUnderstood, ShellWord, SimpleCommand};

/// How often the parser may report progress, each time after a hundred of its steps: about ten
/// times what the longest plain command needs.
const REPORTS_MAX: u32 = 5_000;
/// How many such characters a command may contain. On text that is not shell, the parser takes
/// quadratic time for them, without reporting progress.
const SIGNS_MAX: usize = 400;

const INTRICATE: NotUnderstood = NotUnderstood("it is too intricate to be checked");
const UNREADABLE: NotUnderstood = NotUnderstood("it cannot be parsed for sure");
const UNUSUAL: NotUnderstood = NotUnderstood("it has an unusual expansion");
const ARITHMETIC: NotUnderstood = NotUnderstood("it contains arithmetic with more than numbers");
const REDIRECTION: NotUnderstood = NotUnderstood("it has an unusual redirection");

type WordCertainty = Result<(), NotUnderstood>;

/// Nodes that only group other nodes.
const GROUP_NODES: &[&str] = &[
    "program",
    "list",
    "pipeline",
    "negated_command",
    "redirected_statement",
    "subshell",
    "compound_statement",
    "if_statement",
    "elif_clause",
    "else_clause",
    "for_statement",
    "while_statement",
    "do_group",
    "case_statement",
    "case_item",
    "function_definition",
    "process_substitution",
    "command_name",
    "concatenation",
    "string",
    "simple_expansion",
    "variable_assignments",
    "brace_expression",
];

/// Nodes that have a meaning of their own.
const LEAF_NODES: &[&str] = &[
    "word",
    "number",
    "string_content",
    "raw_string",
    "variable_name",
    "special_variable_name",
    "extglob_pattern",
    "file_descriptor",
];

/// Keywords and punctuation of the grammar.
const SIGNS: &[&str] = &[
    "\n", ";", ";;", ";&", ";;&", "&", "&&", "|", "||", "|&", "!", "(", ")", "{", "}", "$(", "<(",
    ">(", "`", "\"", "$", "${", "=", "==", "=~", "+=", "..", "<", ">", ">>", ">|", "&>", "&>>",
    ">&", "<&", ">&-", "<&-", "<<<", "if", "then", "elif", "else", "fi", "for", "select", "in",
    "do", "done", "while", "until", "case", "esac", "function", "export", "declare", "typeset",
    "local", "readonly", "unset",
];

/// Nodes that are commands with words.
const COMMANDS: &[&str] = &["command", "declaration_command", "unset_command"];

/// Nodes of a plain expansion in braces.
const EXPANSION: &[&str] = &[
    "${",
    "}",
    ":-",
    ":+",
    "-",
    "+",
    "variable_name",
    "special_variable_name",
    "word",
    "number",
    "string",
    "simple_expansion",
    "command_substitution",
];

/// Returns every simple command that may run, in the order of the text. The separators between them
/// are not determined.
///
/// # Errors
/// The command cannot be parsed reliably.
pub(super) fn split(command: &str) -> Result<Vec<SimpleCommand>, NotUnderstood> {
    if command.len() > LETTERS_MAX {
        return Err(NotUnderstood("it is too long to be checked"));
    }
    let script = without_document(command)?;
    // Bash joins continued lines before parsing, and the grammar does not.
    let joins = script.match_indices("\\\n").map(|(at, _)| &script[..at]);
    if joins.into_iter().any(|before| !before.is_empty() && !before.ends_with([' ', '\t', '\n'])) {
        return Err(NotUnderstood("it joins lines in a word"));
    }
    let tree = parse(&script)?;
    let mut walk = TreeWalk { script: &script, ancestors: Vec::new(), done: Vec::new(), read: 0 };
    walk.walk(&mut tree.walk())?;
    if script[walk.read..].trim().is_empty() { Ok(walk.done) } else { Err(UNREADABLE) }
}

fn parse(script: &str) -> Result<Tree, NotUnderstood> {
    if script.matches(['|', '<', '(']).count() > SIGNS_MAX {
        return Err(INTRICATE);
    }
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).map_err(|_| UNREADABLE)?;
    let mut reports = 0;
    let mut heed = |_: &ParseState| {
        reports += 1;
        if reports < REPORTS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let options = ParseOptions::new().progress_callback(&mut heed);
    let mut rest = |from: usize, _| script.as_bytes().get(from..).unwrap_or_default();
    let tree = parser.parse_with_options(&mut rest, None, Some(options)).ok_or(INTRICATE)?;
    if tree.root_node().has_error() { Err(UNREADABLE) } else { Ok(tree) }
}

struct TreeWalk<'a> {
    script: &'a str,
    ancestors: Vec<Node<'a>>,
    done: Vec<SimpleCommand>,
    /// The end of the text that belongs to visited nodes.
    read: usize,
}

/// Whether to visit the children of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WalkNext {
    Inside,
    Past,
}

impl<'a> TreeWalk<'a> {
    fn walk(&mut self, cursor: &mut TreeCursor<'a>) -> WordCertainty {
        loop {
            let node = cursor.node();
            let next = self.visit_node(node)?;
            if next == WalkNext::Inside && cursor.goto_first_child() {
                self.ancestors.push(node);
                continue;
            }
            self.mark_covered(node)?;
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return Ok(());
                }
                self.ancestors.pop();
            }
        }
    }

    /// Marks the text as covered up to the end of a node, and checks that there was no gap.
    fn mark_covered(&mut self, node: Node<'a>) -> WordCertainty {
        let skipped = self.script.get(self.read..node.start_byte()).ok_or(UNREADABLE)?;
        if !skipped.replace("\\\n", "").trim_matches([' ', '\t', '\n']).is_empty() {
            return Err(UNREADABLE);
        }
        self.read = node.end_byte();
        Ok(())
    }

    fn visit_node(&mut self, node: Node<'a>) -> Result<WalkNext, NotUnderstood> {
        if node.is_error() || node.is_missing() {
            return Err(UNREADABLE);
        }
        let kind = node.kind();
        match kind {
            "arithmetic_expansion" => return self.check_arithmetic(node),
            "test_command" => return self.test(node),
            "file_redirect" | "herestring_redirect" => return self.redirect_alone(node),
            "variable_assignment" => self.add_assignment(node),
            "expansion" => check_expansion(node)?,
            "comment" => self.check_comment(node)?,
            "command_substitution" => self.check_backquotes(node)?,
            "for_statement" => self.check_loop(node)?,
            "while_statement" => self.check_folder(node)?,
            "function_definition" => self.check_folder(node)?,
            "compound_statement" if !self.text(node).starts_with('{') => return Err(ARITHMETIC),
            _ if COMMANDS.contains(&kind) => self.command(node)?,
            _ if node.is_named() && LEAF_NODES.contains(&kind) => self.check_leaf(node)?,
            _ if node.is_named() && GROUP_NODES.contains(&kind) => {}
            _ if !node.is_named() && (SIGNS.contains(&kind) || self.is_within("expansion")) => {}
            _ => return Err(UNREADABLE),
        }
        Ok(WalkNext::Inside)
    }

    fn is_within(&self, kind: &str) -> bool {
        self.ancestors.last().is_some_and(|parent| parent.kind() == kind)
    }

    fn text(&self, node: Node<'a>) -> &'a str {
        self.script.get(node.byte_range()).unwrap_or_default()
    }

    fn add(&mut self, simple: SimpleCommand) {
        if simple != SimpleCommand::default() {
            self.done.push(simple);
        }
    }

    /// Checks an arithmetic expression. The value of a variable is evaluated as one too, and may
    /// contain a subscript with a substitution, so only numbers are safe.
    fn check_arithmetic(&mut self, node: Node<'a>) -> Result<WalkNext, NotUnderstood> {
        let sum = self.text(node).trim_start_matches('$');
        let safe =
            |letter: char| letter.is_ascii_digit() || " +-*/%()<>=!&|^~?:[]".contains(letter);
        if sum.chars().all(safe) { Ok(WalkNext::Past) } else { Err(ARITHMETIC) }
    }

    fn test(&mut self, node: Node<'a>) -> Result<WalkNext, NotUnderstood> {
        let mut simple = self.enclosing_redirections(node)?;
        simple.words = bracket_test::words(self.text(node))?;
        self.add(simple);
        Ok(WalkNext::Past)
    }

    /// An assignment on its own, not for one command.
    fn add_assignment(&mut self, node: Node<'a>) {
        let is_part = |parent: &Node<'_>| COMMANDS.contains(&parent.kind());
        if !self.ancestors.last().is_some_and(is_part) {
            let words = vec![self.word(node)];
            self.add(SimpleCommand { words, ..SimpleCommand::default() });
        }
    }

    fn command(&mut self, node: Node<'a>) -> WordCertainty {
        let mut simple = self.enclosing_redirections(node)?;
        let mut end = None;
        for child in node.children(&mut node.walk()) {
            if matches!(child.kind(), "file_redirect" | "herestring_redirect") {
                self.redirect(child, &mut simple)?;
            } else if end == Some(child.start_byte()) {
                // For bash they are one word.
                return Err(UNREADABLE);
            } else {
                simple.words.push(self.word(child));
            }
            end = Some(child.end_byte());
        }
        let named = |word: &&ShellWord| word.assigns().is_none();
        let odd =
            |word: &ShellWord| splitter::is_keyword(&word.raw) || word.raw.starts_with(['{', '-']);
        if simple.words.iter().find(named).is_some_and(odd) || follows_time(&simple.words) {
            return Err(UNREADABLE);
        }
        self.add(simple);
        Ok(())
    }

    /// The redirections of a command that it inherits from the enclosing nodes.
    fn enclosing_redirections(&self, node: Node<'a>) -> Result<SimpleCommand, NotUnderstood> {
        let mut simple = SimpleCommand::default();
        let Some(parent) = self.ancestors.last() else { return Ok(simple) };
        if parent.kind() == "redirected_statement" {
            let children = parent.children(&mut parent.walk()).collect::<Vec<_>>();
            if children.first() == Some(&node) {
                children[1..].iter().try_for_each(|child| self.redirect(*child, &mut simple))?;
            }
        }
        Ok(simple)
    }

    /// Records a redirection of a compound command as a command of its own. Those of a simple
    /// command belong to it.
    fn redirect_alone(&mut self, node: Node<'a>) -> Result<WalkNext, NotUnderstood> {
        let is_owned = self.ancestors.last().is_some_and(|parent| {
            let first = parent.child(0).map(|first| first.kind());
            let owner = if parent.kind() == "redirected_statement" { first } else { None };
            let owner = owner.unwrap_or(parent.kind());
            COMMANDS.contains(&owner) || owner == "test_command"
        });
        if !is_owned {
            let mut simple = SimpleCommand::default();
            self.redirect(node, &mut simple)?;
            self.add(simple);
        }
        Ok(WalkNext::Inside)
    }

    fn redirect(&self, node: Node<'a>, simple: &mut SimpleCommand) -> WordCertainty {
        let children: Vec<Node<'a>> = node.children(&mut node.walk()).collect();
        let parts = match children.as_slice() {
            [stream, rest @ ..] if stream.kind() == "file_descriptor" => rest,
            all => all,
        };
        let (sign, target) = match parts {
            [sign] if matches!(sign.kind(), ">&-" | "<&-") => return Ok(()),
            [sign, target] => (sign.kind(), *target),
            _ => return Err(REDIRECTION),
        };
        if target.kind() == "process_substitution" && sign != "<<<" {
            return Ok(());
        }
        let word = self.word(target);
        let is_stream = word.raw == "-" || word.raw.bytes().all(|byte| byte.is_ascii_digit());
        match sign {
            "<<<" => {}
            ">&" | "<&" if is_stream => {}
            ">" | ">>" | ">|" | "&>" | "&>>" | ">&" => simple.writes.push(word),
            "<" => simple.reads.push(word),
            _ => return Err(REDIRECTION),
        }
        Ok(())
    }

    /// Parses a word with the splitter of plain commands; a word that it rejects is treated as one
    /// that expands.
    fn word(&self, node: Node<'a>) -> ShellWord {
        let raw = self.text(node);
        splitter::single_word(raw).unwrap_or_else(|| ShellWord {
            raw: raw.to_owned(),
            plain: raw.to_owned(),
            expands: true,
            globs: raw.contains(['*', '?', '[']),
        })
    }

    /// Text that the grammar ignores may mean something to bash.
    fn check_leaf(&self, node: Node<'a>) -> WordCertainty {
        let text = self.text(node);
        let literal = matches!(node.kind(), "raw_string" | "special_variable_name");
        let marked = text.contains(['$', '`', '(', ')', '<', '>', ';', '&', '\n'])
            || text.contains('|') && node.kind() != "extglob_pattern";
        let within = node.kind() == "string_content" && !text.contains(['$', '`']);
        if literal || within || !marked || splitter::single_word(text).is_some() {
            return Ok(());
        }
        Err(UNUSUAL)
    }

    /// For bash, `#` within a word does not begin a comment.
    fn check_comment(&self, node: Node<'a>) -> WordCertainty {
        let before = &self.script[..node.start_byte()];
        let begins =
            before.is_empty() || before.ends_with([' ', '\t', '\n', ';', '&', '|', '(', ')']);
        if begins { Ok(()) } else { Err(UNREADABLE) }
    }

    /// Backslashes between backquotes are interpreted twice.
    fn check_backquotes(&self, node: Node<'a>) -> WordCertainty {
        let text = self.text(node);
        if text.starts_with('`') && text.contains('\\') { Err(UNUSUAL) } else { Ok(()) }
    }

    /// Rejects loop variables with upper-case names, which programs may read.
    fn check_loop(&mut self, node: Node<'a>) -> WordCertainty {
        let name = node.child_by_field_name("variable").map_or("", |name| self.text(name));
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if !name.bytes().all(fits) || name.contains("proxy") {
            return Err(NotUnderstood("it sets a variable that programs may read"));
        }
        // The values of the loop may be files, which are checked like arguments of a command.
        let values = node.children_by_field_name("value", &mut node.walk()).collect::<Vec<_>>();
        let mut words =
            vec![ShellWord { raw: ":".into(), plain: ":".into(), ..ShellWord::default() }];
        words.extend(values.into_iter().map(|value| self.word(value)));
        self.add(SimpleCommand { words, ..SimpleCommand::default() });
        self.check_folder(node)
    }

    /// A body that runs again starts in the folder in which it ended.
    fn check_folder(&self, node: Node<'a>) -> WordCertainty {
        // A substring match errs on the side of finding too many.
        let moves = ["cd", "pushd", "popd"].iter().any(|name| self.text(node).contains(name));
        if moves { Err(NotUnderstood("it changes folders in a loop or function")) } else { Ok(()) }
    }
}

/// Whether a keyword follows `time`, which is one itself.
fn follows_time(words: &[ShellWord]) -> bool {
    let mut later =
        words.iter().skip_while(|word| matches!(word.raw.as_str(), "time" | "-p" | "--"));
    later.next().is_some_and(|word| splitter::is_keyword(&word.raw))
}

fn check_expansion(node: Node<'_>) -> WordCertainty {
    let fits = |child: Node<'_>| EXPANSION.contains(&child.kind());
    if node.children(&mut node.walk()).all(fits) { Ok(()) } else { Err(UNUSUAL) }
}
