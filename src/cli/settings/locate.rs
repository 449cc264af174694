//! Positions of values in a JSON text, for error messages.

use std::collections::HashMap;
use std::ops::Range;

/// A value of a JSON text, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonPath {
    /// The containing object or list. `None`: it is the root.
    pub parent: Option<usize>,
    /// Its key there, or its index.
    pub key: String,
    /// Where its key begins, or the value itself when it is an item of a list.
    pub start: usize,
    pub value: Range<usize>,
}

/// Every value of a text, outer ones before inner ones, as far as the text is JSON.
#[derive(Clone, Debug)]
pub(super) struct JsonPaths<'a> {
    text: &'a str,
    all: Vec<JsonPath>,
    /// Where each line begins.
    lines: Vec<usize>,
    /// The first value of each key, by what it is in.
    known: HashMap<(usize, String), usize>,
    /// Duplicate keys: first and second position.
    pub repeated: Vec<(usize, usize)>,
}

impl<'a> JsonPaths<'a> {
    pub(super) fn scan(text: &'a str) -> Self {
        let mut scan = JsonScanner { text: text.as_bytes(), at: 0, found: Vec::new() };
        let start = scan.skip_space();
        let _ = scan.value((None, String::new()), start, 0);
        let all = scan.found;
        let (mut known, mut repeated) = (HashMap::new(), Vec::new());
        for (index, place) in all.iter().enumerate() {
            let Some(within) = place.parent else { continue };
            let first = *known.entry((within, place.key.clone())).or_insert(index);
            if first != index {
                repeated.push((first, index));
            }
        }
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, all, lines: [0].into_iter().chain(ends).collect(), known, repeated }
    }

    pub(super) fn get(&self, index: usize) -> Option<&JsonPath> {
        self.all.get(index)
    }

    /// The values in an object or a list, in order.
    pub(super) fn children(&self, index: usize) -> impl Iterator<Item = usize> {
        let end = self.get(index).map_or(0, |place| place.value.end);
        let inner = self.all.iter().enumerate().skip(index + 1);
        let inner = inner.take_while(move |(_, place)| place.start < end);
        inner.filter(move |(_, place)| place.parent == Some(index)).map(|(child, _)| child)
    }

    /// The keys that lead to a value.
    pub(super) fn path(&self, index: usize) -> Vec<&str> {
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
    pub(super) fn nearest<'k>(&self, path: impl IntoIterator<Item = &'k str>) -> usize {
        let mut at = 0;
        for key in path {
            let Some(inner) = self.known.get(&(at, key.to_owned())) else { break };
            at = *inner;
        }
        at
    }

    /// Line and column of where a value, or its key, begins.
    pub(super) fn start(&self, index: usize) -> (usize, usize) {
        self.line_and_column(self.get(index).map_or(0, |place| place.start))
    }

    /// Line and column of where a value begins.
    pub(super) fn value(&self, index: usize) -> (usize, usize) {
        self.line_and_column(self.get(index).map_or(0, |place| place.value.start))
    }

    /// The line of where a value, or its key, begins.
    pub(super) fn line(&self, index: usize) -> usize {
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

/// The keys of `a.b[0].c`.
pub(super) fn keys(name: &str) -> impl Iterator<Item = &str> {
    name.split(['.', '[']).map(|key| key.trim_end_matches(']'))
}

/// Line and column of a byte, both counted from 1, columns in characters.
pub(super) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// The byte at a line and a byte column, as `serde_json` counts them.
pub(super) fn offset(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (before + column.saturating_sub(1)).min(text.len())
}

/// No settings are nested deeper; `serde_json` itself gives up at 128.
const DEEPEST: usize = 128;

struct JsonScanner<'a> {
    text: &'a [u8],
    at: usize,
    found: Vec<JsonPath>,
}

impl JsonScanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) -> usize {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
        self.at
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip_space();
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Reads one value. `None` when the text is not JSON from here on.
    fn value(
        &mut self,
        (within, key): (Option<usize>, String),
        start: usize,
        depth: usize,
    ) -> Option<()> {
        let begin = self.skip_space();
        let index = self.found.len();
        self.found.push(JsonPath { parent: within, key, start, value: begin..self.text.len() });
        match self.peek()? {
            _ if depth > DEEPEST => return None,
            b'{' => self.members(index, depth)?,
            b'[' => self.items(index, depth)?,
            b'"' => self.string().map(drop)?,
            _ => {
                let end = |byte: &u8| byte.is_ascii_whitespace() || b",]}".contains(byte);
                let rest = self.text.get(self.at..)?;
                self.at += rest.iter().position(end).unwrap_or(rest.len());
            }
        }
        self.found.get_mut(index)?.value.end = self.at;
        Some(())
    }

    fn members(&mut self, within: usize, depth: usize) -> Option<()> {
        self.expect(b'{')?;
        while self.skip_space() < self.text.len() && self.peek()? != b'}' {
            let start = self.at;
            let key = self.string()?;
            self.expect(b':')?;
            self.value((Some(within), key), start, depth + 1)?;
            if self.expect(b',').is_none() {
                break;
            }
        }
        self.expect(b'}')
    }

    fn items(&mut self, within: usize, depth: usize) -> Option<()> {
        self.expect(b'[')?;
        let mut index = 0_usize;
        while self.skip_space() < self.text.len() && self.peek()? != b']' {
            let start = self.at;
            self.value((Some(within), index.to_string()), start, depth + 1)?;
            index += 1;
            if self.expect(b',').is_none() {
                break;
            }
        }
        self.expect(b']')
    }

    fn string(&mut self) -> Option<String> {
        let start = self.at;
        self.expect(b'"')?;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        serde_json::from_slice(self.text.get(start..self.at)?).ok()
    }
}
