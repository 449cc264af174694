//! Parser for YAML front matter of Markdown files that accepts common mistakes. Pure.
//!
//! ```text
//! ---
//! name: reviewer
//! description: Looks for bugs. Use it like this: "review what I did"
//! tools: Read, Grep
//! ---
//! You look for bugs...
//! ```
//!
//! The description above is invalid YAML because of its colon, but other tools accept it. Text that
//! does not parse is therefore parsed again with its plain values quoted.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::config::values;

use super::yaml;

/// The maximum size of front matter, in bytes.
const LONGEST: usize = 64 << 10;

/// Normalised names of the fields that are always text.
const TEXTS: [&str; 4] = ["argumenthint", "description", "name", "whentouse"];

/// The fields of front matter. `kebab-case` and `camelCase` name the same field.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FrontMatter(Map<String, Value>);

/// A parse error in front matter, with its position in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: its front matter is no YAML: {why}")]
pub(super) struct FrontMatterError {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) why: String,
}

/// Parses the front matter of a text. `None`: it has none.
///
/// # Errors
/// It is not a mapping of names to values.
pub(super) fn fields(text: &str) -> Result<Option<FrontMatter>, FrontMatterError> {
    split(text).0.map(FrontMatter::read).transpose()
}

/// The text after its front matter.
pub(super) fn body(text: &str) -> &str {
    split(text).1
}

fn split(text: &str) -> (Option<&str>, &str) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Some((first, rest)) = text.split_once('\n') else { return (None, text) };
    if first.trim_end() != "---" {
        return (None, text);
    }
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return (Some(&rest[..at]), &rest[at + line.len()..]);
        }
        at += line.len();
    }
    (None, text)
}

impl FrontMatter {
    fn read(yaml: &str) -> Result<Self, FrontMatterError> {
        if yaml.len() > LONGEST {
            let why = format!("it is longer than {} kB", LONGEST >> 10);
            return Err(FrontMatterError { line: 1, column: 1, why });
        }
        let holds_nothing = |line: &str| line.trim().is_empty() || line.starts_with('#');
        if yaml.lines().all(holds_nothing) {
            return Ok(Self::default());
        }
        parse(yaml).or_else(|mistake| parse(&with_quotes(yaml)).map_err(|_| mistake))
    }

    /// Wraps a JSON object.
    pub(super) fn of(fields: Map<String, Value>) -> Self {
        Self(fields.into_iter().map(|(name, value)| (plain(&name), value)).collect())
    }

    /// Returns a field's raw value.
    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        self.get(name)
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(&plain(name)).filter(|value| !value.is_null())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns a field as trimmed, non-empty text; scalars are converted.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let text = match self.get(name)? {
            Value::String(text) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            // `[file] [pattern]`: a common notation for argument hints.
            Value::Array(items) => {
                let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                format!("[{}]", words.join(", "))
            }
            Value::Object(_) | Value::Null => return None,
        };
        Some(text).filter(|text| !text.is_empty())
    }

    /// Returns a field that is a list, or a text with commas or spaces between the items.
    pub(super) fn words(&self, name: &str) -> Option<Vec<String>> {
        match self.get(name)? {
            Value::String(text) if text.trim().is_empty() => None,
            Value::String(text) => Some(values::list(&[text])),
            Value::Array(items) => {
                let texts = items.iter().filter_map(Value::as_str).map(str::trim);
                Some(texts.filter(|text| !text.is_empty()).map(ToOwned::to_owned).collect())
            }
            Value::Number(_) | Value::Bool(_) | Value::Object(_) | Value::Null => None,
        }
    }

    /// Returns whether a field is present and holds anything but text.
    pub(super) fn holds_more_than_texts(&self, name: &str) -> bool {
        match self.get(name) {
            Some(Value::Array(items)) => !items.iter().all(Value::is_string),
            Some(Value::Object(_)) => true,
            Some(Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null) | None => {
                false
            }
        }
    }

    pub(super) fn count(&self, name: &str) -> Option<u32> {
        let count = match self.get(name)? {
            Value::Number(number) => number.as_u64()?,
            Value::String(text) => text.trim().parse().ok()?,
            Value::Bool(_) | Value::Array(_) | Value::Object(_) | Value::Null => return None,
        };
        u32::try_from(count).ok()
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        match self.get(name)? {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => Some(true),
                "false" | "no" | "off" => Some(false),
                _ => None,
            },
            Value::Number(_) | Value::Array(_) | Value::Object(_) | Value::Null => None,
        }
    }
}

fn parse(yaml: &str) -> Result<FrontMatter, FrontMatterError> {
    // The first line of the file is the one with the hyphens.
    let at = |line: usize, column: usize, why: &str| FrontMatterError {
        line: line + 1,
        column,
        why: why.chars().take(160).collect(),
    };
    match yaml::parse(yaml) {
        Ok(Value::Object(fields)) => Ok(FrontMatter::of(fields)),
        Ok(Value::Null) => Ok(FrontMatter::default()),
        Ok(_) => Err(at(1, 1, "it has no names")),
        Err(error) => Err(at(error.line, error.column, &error.why)),
    }
}

/// Normalises a field name for look-up.
fn plain(name: &str) -> String {
    name.chars().filter(|letter| !"-_".contains(*letter)).flat_map(char::to_lowercase).collect()
}

/// Quotes every plain value of the top-level fields.
fn with_quotes(yaml: &str) -> String {
    let mut quoted = String::with_capacity(yaml.len() + 64);
    let mut lines = yaml.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((name, value)) = plain_value(line) else {
            quoted.push_str(line);
            quoted.push('\n');
            continue;
        };
        let mut value = value.to_owned();
        // A plain value may continue in indented lines.
        while let Some(more) = lines.next_if(|next| next.starts_with([' ', '\t'])) {
            value.push(' ');
            value.push_str(more.trim());
        }
        // Every JSON string is a YAML string too.
        let _ = writeln!(quoted, "{name}: {}", Value::String(value));
    }
    quoted
}

/// Splits a line into name and value, if the value is neither quoted nor a list nor a block.
fn plain_value(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let is_name = |name: &str| {
        name.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter))
    };
    let value = value.strip_prefix([' ', '\t'])?.trim();
    // `[file] [pattern]` looks like a list but is text.
    let is_text = TEXTS.contains(&plain(name).as_str());
    let stands = value.is_empty()
        || value.starts_with(['"', '\'', '|', '>'])
        || !is_text && value.starts_with(['[', '{']);
    (is_name(name) && !stands).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(yaml: &str) -> FrontMatter {
        let text = format!("---\n{yaml}\n---\nbody");
        assert_eq!(body(&text), "body");
        let parsed = fields(&text).unwrap_or_else(|mistake| panic!("{mistake}: {yaml}"));
        parsed.expect("there is front matter")
    }

    #[test]
    fn front_matter_accepts_common_text_that_is_not_yaml() {
        let rows = [
            ("description: Plain words", "Plain words"),
            ("description: \"Quoted: words\"", "Quoted: words"),
            ("description: Use it: \"like this\", # and so", "Use it: \"like this\", # and so"),
            ("description: ends in a colon:", "ends in a colon:"),
            ("description: goes on: here\n  and there", "goes on: here and there"),
            ("description: >\n  folded\n  words", "folded words"),
            ("description: |\n  kept: so", "kept: so"),
            ("description: @me and *you*", "@me and *you*"),
            ("description: 42", "42"),
            ("description: on", "on"),
            (
                "Description: <example>user: \"hi\"\\n</example>",
                "<example>user: \"hi\"\\n</example>",
            ),
        ];
        for (yaml, expected) in rows {
            assert_eq!(parsed(yaml).text("description").as_deref(), Some(expected), "{yaml}");
        }
        let hint = parsed("argument-hint: [file] [pattern]\ntools: [Read, Grep]");
        assert_eq!(hint.text("argumentHint").as_deref(), Some("[file] [pattern]"));
        assert_eq!(hint.words("tools").expect("a list"), ["Read", "Grep"]);
    }

    #[test]
    fn front_matter_lists_may_be_comma_separated_text() {
        for yaml in [
            "allowed-tools: Read, Bash(git log:*)",
            "allowedTools: [Read, 'Bash(git log:*)']",
            "allowed_tools:\n  - Read\n  - Bash(git log:*)",
        ] {
            let words = parsed(yaml).words("allowed-tools").expect("a list");
            assert_eq!(words, ["Read", "Bash(git log:*)"], "{yaml}");
        }
        assert_eq!(parsed("tools:").words("tools"), None);
        assert_eq!(parsed("tools: []").words("tools"), Some(Vec::new()));
        assert_eq!(parsed("tools: *").words("tools").expect("a list"), ["*"]);
    }

    #[test]
    fn front_matter_is_split_off_with_lf_and_with_crlf() {
        for (text, front, rest) in [
            ("---\na: b\n---\nbody", true, "body"),
            ("\u{feff}---\r\na: b\r\n---\r\nbody", true, "body"),
            ("---\n---\n", true, ""),
            ("---\na: b\n---", true, ""),
            ("---\nno end", false, "---\nno end"),
            ("no front\n---\n", false, "no front\n---\n"),
            ("", false, ""),
        ] {
            let found = fields(text).expect("no mistake");
            assert_eq!((found.is_some(), body(text)), (front, rest), "{text:?}");
        }
    }

    #[test]
    fn front_matter_errors_have_a_position() {
        let mistake = fields("---\nname: x\ntools: [Read, Grep\n---\n").expect_err("it is open");
        assert!(mistake.line >= 3 && mistake.column >= 1, "{mistake}");
        assert!(!mistake.to_string().contains('\n') && !mistake.why.is_empty(), "{mistake}");
        assert!(fields("---\n- a\n- b\n---\n").is_err(), "a list has no names");
        let long = format!("---\na: {}\n---\n", "x".repeat(LONGEST));
        assert!(fields(&long).expect_err("too long").why.contains("64 kB"));
        let bomb = "---\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n\
                    c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n\
                    e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n---\n";
        let _ = fields(bomb);
        let deep = format!("---\na: {}\n---\n", "[".repeat(20_000));
        assert!(fields(&deep).is_err());
    }
}
