//! Reads YAML as JSON. Pure.

use std::borrow::Cow;

use granit_parser::{Event, Marker, Parser, ScalarStyle, StrInput, Tag};
use serde_json::{Map, Number, Value};

/// The deepest nesting.
const DEPTH_MAX: usize = 64;

/// Why a text is not YAML, or not YAML that JSON can express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct YamlError {
    /// Counted from 1.
    pub(super) line: usize,
    /// Counted from 1.
    pub(super) column: usize,
    pub(super) why: String,
}

/// Reads the only document of a text.
///
/// # Errors
/// It is not YAML, or it has what JSON does not: keys that are no scalars, duplicate keys, aliases,
/// a second document.
pub(super) fn parse(text: &str) -> Result<Value, YamlError> {
    let mut reader = Reader { parser: Parser::new_from_str(text), at: Marker::default() };
    let value = reader.document()?;
    match reader.next()? {
        Some(Event::DocumentStart(..)) => Err(reader.error("there is a second document")),
        Some(_) | None => Ok(value),
    }
}

/// The events of a text, without those that carry no data.
struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// The place of the last event.
    at: Marker,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<Event<'a>>, YamlError> {
        for event in self.parser.by_ref() {
            let (event, span) = event.map_err(|error| {
                let at = *error.marker();
                YamlError { line: at.line(), column: at.col() + 1, why: error.info() }
            })?;
            self.at = span.start;
            let is_data =
                !matches!(event, Event::StreamStart | Event::DocumentEnd | Event::StreamEnd);
            if is_data {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn error(&self, why: &str) -> YamlError {
        YamlError { line: self.at.line(), column: self.at.col() + 1, why: why.to_owned() }
    }

    fn document(&mut self) -> Result<Value, YamlError> {
        match self.next()? {
            Some(Event::DocumentStart(..)) => match self.next()? {
                Some(event) => self.value(event, DEPTH_MAX),
                None => Ok(Value::Null),
            },
            Some(_) | None => Ok(Value::Null),
        }
    }

    /// The value that begins with an event.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the parser's list of events is open")]
    fn value(&mut self, event: Event<'a>, depth: usize) -> Result<Value, YamlError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.error("it is nested too deeply"));
        };
        match event {
            Event::Scalar(text, style, _, tag) => Ok(scalar(text, style, tag.as_deref())),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        Some(Event::SequenceEnd) => return Ok(Value::Array(items)),
                        Some(event) => items.push(self.value(event, depth)?),
                        None => return Err(self.error("a list has no end")),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut fields = Map::new();
                loop {
                    let key = match self.next()? {
                        Some(Event::MappingEnd) => return Ok(Value::Object(fields)),
                        Some(Event::Scalar(text, ..)) => text.into_owned(),
                        Some(_) => return Err(self.error("a key is no plain text")),
                        None => return Err(self.error("a mapping has no end")),
                    };
                    if fields.contains_key(&key) {
                        return Err(self.error(&format!("the key {key:?} is there twice")));
                    }
                    let Some(event) = self.next()? else {
                        return Err(self.error("a key has no value"));
                    };
                    fields.insert(key, self.value(event, depth)?);
                }
            }
            Event::Alias(_) => Err(self.error("aliases are not supported: repeat the value")),
            _ => Err(self.error("a value is missing")),
        }
    }
}

/// The value of a scalar, by the core schema of YAML 1.2.
fn scalar(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>) -> Value {
    if style != ScalarStyle::Plain || tag.is_some() {
        return Value::String(text.into_owned());
    }
    match text.as_ref() {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        plain => match number(plain) {
            Some(number) => Value::Number(number),
            None => Value::String(text.into_owned()),
        },
    }
}

fn number(text: &str) -> Option<Number> {
    let digits = |prefix: &str, base| u64::from_str_radix(text.strip_prefix(prefix)?, base).ok();
    if let Some(number) = digits("0x", 16).or_else(|| digits("0o", 8)) {
        return Some(number.into());
    }
    let is_number = text.bytes().any(|byte| byte.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let whole =
        || text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
    let number = || whole().ok().or_else(|| Number::from_f64(text.parse().ok()?));
    is_number.then(number).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_is_read_as_json() {
        let text = "# words\nname: on\n'quoted': \"a\\tb\"\ncount: 42\nratio: -1.5e3\nhex: 0x1f\n\
                    octal: 0o17\nbig: 18446744073709551615\ndate: 2026-01-02\nversion: 1.2.3\n\
                    dash: -x\nyes: true\nno: ~\nnothing:\ntext: !!str 7\nlist:\n  - a\n  - [b, {c: d}]\n\
                    block: |\n  one\n  two\nfolded: >-\n  one\n  two\n";
        let wanted = json!({
            "name": "on", "quoted": "a\tb", "count": 42, "ratio": -1500.0, "hex": 31, "octal": 15,
            "big": u64::MAX, "date": "2026-01-02", "version": "1.2.3", "dash": "-x", "yes": true,
            "no": null, "nothing": null, "text": "7", "list": ["a", ["b", { "c": "d" }]],
            "block": "one\ntwo\n", "folded": "one two",
        });
        assert_eq!(parse(text), Ok(wanted));
        assert_eq!(parse(""), Ok(Value::Null));
        assert_eq!(parse("---\na: b\n...\n"), Ok(json!({ "a": "b" })));
    }

    #[test]
    fn what_json_cannot_express_is_an_error_with_its_place() {
        let deep = format!("a: {}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        for (text, line, column, why) in [
            ("a: 1\nb: 2\na: 3\n", 3, 1, "the key \"a\" is there twice"),
            ("a: &x 1\nb: *x\n", 2, 4, "aliases are not supported"),
            ("a: 1\n? [b]\n: c\n", 2, 3, "a key is no plain text"),
            ("a: 1\n---\nb: 2\n", 2, 1, "a second document"),
            ("a: [1, 2\n", 1, 4, "unclosed bracket"),
            (&deep, 1, DEPTH_MAX + 3, "nested too deeply"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!((error.line, error.column), (line, column), "{text}: {error:?}");
            assert!(error.why.contains(why) && !error.why.is_empty(), "{text}: {error:?}");
        }
    }
}
