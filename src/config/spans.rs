//! Positions of values in a JSON text, for error messages.

use std::collections::HashMap;
use std::ops::Range;

use jsonc_parser::ast::Value as Node;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use crate::json::is_comment;

/// A value of a JSON text, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath {
    /// The containing object or list. `None`: it is the root.
    pub parent: Option<usize>,
    /// Its key or index in the parent.
    pub key: String,
    /// The offset of its key, or of the value itself if it is an item of a list.
    pub start: usize,
    pub value: Range<usize>,
}

/// Every value of a text, outer ones before inner ones. Empty if the text is not JSON.
#[derive(Clone, Debug)]
pub struct JsonPaths<'a> {
    text: &'a str,
    all: Vec<JsonPath>,
    /// The offset of the start of each line.
    lines: Vec<usize>,
    /// The first value of each key, by the containing object or list and the key.
    known: HashMap<(usize, String), usize>,
    /// Duplicate keys: first and second position.
    pub repeated: Vec<(usize, usize)>,
}

impl<'a> JsonPaths<'a> {
    pub fn scan(text: &'a str) -> Self {
        let parsed = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default());
        let mut all = Vec::new();
        if let Some(root) = parsed.ok().and_then(|parsed| parsed.value) {
            collect(&root, None, String::new(), root.start(), &mut all);
        }
        let (mut known, mut repeated) = (HashMap::new(), Vec::new());
        for (index, place) in all.iter().enumerate() {
            let Some(within) = place.parent else { continue };
            let first = *known.entry((within, place.key.clone())).or_insert(index);
            // Comments may repeat.
            let is_comment = is_comment(&place.key) || ["_", "_comment"].contains(&&*place.key);
            if first != index && !is_comment {
                repeated.push((first, index));
            }
        }
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, all, lines: [0].into_iter().chain(ends).collect(), known, repeated }
    }

    pub fn get(&self, index: usize) -> Option<&JsonPath> {
        self.all.get(index)
    }

    /// Returns the values in an object or a list, in order.
    pub fn children(&self, index: usize) -> impl Iterator<Item = usize> {
        let end = self.get(index).map_or(0, |place| place.value.end);
        let inner = self.all.iter().enumerate().skip(index + 1);
        let inner = inner.take_while(move |(_, place)| place.start < end);
        inner.filter(move |(_, place)| place.parent == Some(index)).map(|(child, _)| child)
    }

    /// Returns the keys that lead to a value.
    pub fn path(&self, index: usize) -> Vec<&str> {
        let mut path = Vec::new();
        let mut place = self.get(index);
        while let Some(JsonPath { parent: Some(outer), key, .. }) = place {
            path.push(key.as_str());
            place = self.get(*outer);
        }
        path.reverse();
        path
    }

    /// Returns the value at this path, or its deepest existing ancestor.
    pub fn nearest<'k>(&self, path: impl IntoIterator<Item = &'k str>) -> usize {
        let mut at = 0;
        for key in path {
            let Some(inner) = self.known.get(&(at, key.to_owned())) else { break };
            at = *inner;
        }
        at
    }

    /// Returns line and column of the start of a value, or of its key.
    pub fn start(&self, index: usize) -> (usize, usize) {
        self.line_and_column(self.get(index).map_or(0, |place| place.start))
    }

    /// Returns line and column of the start of a value.
    pub fn value(&self, index: usize) -> (usize, usize) {
        self.line_and_column(self.get(index).map_or(0, |place| place.value.start))
    }

    /// Returns the line of the start of a value, or of its key.
    pub fn line(&self, index: usize) -> usize {
        self.line_of(self.get(index).map_or(0, |place| place.start))
    }

    fn line_of(&self, offset: usize) -> usize {
        self.lines.partition_point(|begin| *begin <= offset)
    }

    fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let line = self.line_of(offset);
        let begin = self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let before = self.text.get(begin..offset).unwrap_or_default();
        (line, before.chars().count() + 1)
    }
}

/// Returns the keys of a path such as `a.b[0].c`.
pub fn keys(name: &str) -> impl Iterator<Item = &str> {
    name.split(['.', '[']).map(|key| key.trim_end_matches(']'))
}

/// Returns line and column of a byte, both counted from 1, columns in characters.
pub fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// Returns the byte at a line and a byte column, as `serde_json` counts them.
pub fn offset(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (before + column.saturating_sub(1)).min(text.len())
}

/// Lists a value, and then the values in it.
fn collect(
    node: &Node<'_>,
    parent: Option<usize>,
    key: String,
    start: usize,
    all: &mut Vec<JsonPath>,
) {
    let index = all.len();
    all.push(JsonPath { parent, key, start, value: node.start()..node.end() });
    match node {
        Node::Object(object) => {
            for member in &object.properties {
                let key = member.name.as_str().to_owned();
                collect(&member.value, Some(index), key, member.start(), all);
            }
        }
        Node::Array(array) => {
            for (place, item) in array.elements.iter().enumerate() {
                collect(item, Some(index), place.to_string(), item.start(), all);
            }
        }
        Node::StringLit(_) | Node::NumberLit(_) | Node::BooleanLit(_) | Node::NullKeyword(_) => {}
    }
}
