//! Where in a JSON text something stands, so that a complaint can point at it.

use std::collections::HashMap;
use std::ops::Range;

/// A value of a JSON text: the keys that lead to it, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub path: Vec<String>,
    /// Where its key begins, or the value itself when it is an item of a list.
    pub start: usize,
    pub value: Range<usize>,
}

/// Every value of a text, outer ones before inner ones, as far as the text is JSON.
pub(super) fn places(text: &str) -> Vec<Place> {
    let mut scan = Scan { text: text.as_bytes(), at: 0, found: Vec::new() };
    let start = scan.skip_space();
    let _ = scan.value(&mut Vec::new(), start, 0);
    scan.found
}

/// The innermost value that a position is in.
pub(super) fn at(places: &[Place], offset: usize) -> Option<&Place> {
    places.iter().rev().find(|place| place.start <= offset && offset <= place.value.end)
}

/// The value that is called `a.b[0].c`, or the innermost one around it.
pub(super) fn named<'a>(places: &'a [Place], name: &str) -> Option<&'a Place> {
    let path = name.replace('[', ".").replace(']', "");
    let path: Vec<&str> = path.split('.').collect();
    places.iter().filter(|place| path.starts_with(&words(place))).max_by_key(|it| it.path.len())
}

/// The first key that is in an object twice: where it was first, and where again.
pub(super) fn repeated(places: &[Place]) -> Option<(&Place, &Place)> {
    let mut known: HashMap<&[String], &Place> = HashMap::new();
    places.iter().find_map(|place| known.insert(&place.path, place).map(|first| (first, place)))
}

fn words(place: &Place) -> Vec<&str> {
    place.path.iter().map(String::as_str).collect()
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

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    found: Vec<Place>,
}

impl Scan<'_> {
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
    fn value(&mut self, path: &mut Vec<String>, start: usize, depth: usize) -> Option<()> {
        let begin = self.skip_space();
        let index = self.found.len();
        self.found.push(Place { path: path.clone(), start, value: begin..self.text.len() });
        match self.peek()? {
            _ if depth > DEEPEST => return None,
            b'{' => self.members(path, depth)?,
            b'[' => self.items(path, depth)?,
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

    fn members(&mut self, path: &mut Vec<String>, depth: usize) -> Option<()> {
        self.expect(b'{')?;
        while self.skip_space() < self.text.len() && self.peek()? != b'}' {
            let start = self.at;
            path.push(self.string()?);
            self.expect(b':')?;
            let read = self.value(path, start, depth + 1);
            path.pop();
            read?;
            if self.expect(b',').is_none() {
                break;
            }
        }
        self.expect(b'}')
    }

    fn items(&mut self, path: &mut Vec<String>, depth: usize) -> Option<()> {
        self.expect(b'[')?;
        let mut index = 0_usize;
        while self.skip_space() < self.text.len() && self.peek()? != b']' {
            let start = self.at;
            path.push(index.to_string());
            let read = self.value(path, start, depth + 1);
            path.pop();
            read?;
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
