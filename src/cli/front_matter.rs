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
//! does not parse is therefore parsed again field by field, so that a mistake in a field, such as
//! an open quote in the description, does not affect the others. Only fields that restrict must be
//! valid.

use serde_json::{Map, Value};

use crate::config::values;
use crate::json;

use super::yaml;

/// The maximum size of front matter, in bytes.
const LONGEST: usize = 64 << 10;

/// Normalised names of the fields that are always text.
const TEXTS: [&str; 4] = ["argumenthint", "description", "name", "whentouse"];

/// Normalised names of the fields that may restrict the agent or command: without them, it could do
/// more than the author of the file wants.
const RESTRICTING: [&str; 9] = [
    "allowedtools",
    "disablemodelinvocation",
    "disallowedtools",
    "hooks",
    "maxturns",
    "mcpservers",
    "permissionmode",
    "tools",
    "userinvocable",
];

/// The fields of front matter. `kebab-case` and `camelCase` name the same field.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FrontMatter {
    fields: Map<String, Value>,
    /// Mistakes that did not prevent reading, each with its position in the file.
    pub(super) warnings: Vec<String>,
}

/// A parse error in front matter, with its position in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: its front matter is not YAML: {why}")]
pub(super) struct FrontMatterError {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) why: String,
}

/// Parses the front matter of a text. `None`: it has none.
///
/// # Errors
/// The front matter is not a mapping of names to values, or a field that restricts is invalid.
pub(super) fn fields(text: &str) -> Result<Option<FrontMatter>, FrontMatterError> {
    split(text).0.map(FrontMatter::read).transpose()
}

/// Returns the text after the front matter.
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
        match parse(yaml, 0) {
            Ok(fields) => Ok(Self::of(fields)),
            Err(mistake) => Self::read_each(entries(yaml).ok_or(mistake)?),
        }
    }

    /// Reads each entry by itself. Of repeated entries, the last is used.
    fn read_each(entries: Vec<Entry<'_>>) -> Result<Self, FrontMatterError> {
        let mut read = Self::default();
        for entry in entries {
            let (line, name, field) = (entry.line + 2, entry.name, plain(entry.name));
            let restricts = RESTRICTING.contains(&field.as_str());
            if !is_name(name) {
                if entry.holds_restriction() {
                    let why = format!("what restricts may be in {name:?}");
                    return Err(FrontMatterError { line, column: 1, why });
                }
                continue;
            }
            if read.fields.contains_key(&field) {
                let why = format!("{name} is given again");
                if restricts {
                    return Err(FrontMatterError { line, column: 1, why });
                }
                read.warnings.push(format!("{line}:1: {why}; the last one is used"));
            }
            let value = match entry.value() {
                Ok(value) => value,
                Err(mistake) if restricts || entry.holds_restriction() => return Err(mistake),
                Err(mistake) if TEXTS.contains(&field.as_str()) => {
                    read.warnings.push(format!("{mistake}; {name} is read as plain text"));
                    Value::String(without_open_quote(&entry.joined()).to_owned())
                }
                Err(mistake) => {
                    read.warnings.push(format!("{mistake}; {name} has no effect"));
                    continue;
                }
            };
            read.fields.insert(field, value);
        }
        Ok(read)
    }

    /// Wraps a JSON object.
    pub(super) fn of(fields: Map<String, Value>) -> Self {
        let fields = fields.into_iter().map(|(name, value)| (plain(&name), value)).collect();
        Self { fields, warnings: Vec::new() }
    }

    /// Returns a field's raw value.
    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        self.fields.get(&plain(name)).filter(|value| !value.is_null())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Returns a field as trimmed, non-empty text; scalars are converted.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let text = match self.value(name)? {
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
        match self.value(name)? {
            Value::String(text) if text.trim().is_empty() => None,
            Value::String(text) => Some(values::list(&[text])),
            Value::Array(items) => {
                let texts = items.iter().filter_map(Value::as_str).map(str::trim);
                Some(texts.filter(|text| !text.is_empty()).map(ToOwned::to_owned).collect())
            }
            Value::Number(_) | Value::Bool(_) | Value::Object(_) | Value::Null => None,
        }
    }

    /// Returns true if a field is present and contains anything but text.
    pub(super) fn holds_more_than_texts(&self, name: &str) -> bool {
        self.value(name).is_some_and(|value| match value {
            Value::Array(items) => !items.iter().all(Value::is_string),
            Value::Object(_) => true,
            Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => false,
        })
    }

    pub(super) fn count(&self, name: &str) -> Option<u32> {
        let count = match self.value(name)? {
            number @ Value::Number(_) => json::whole(number)?,
            Value::String(text) => values::whole(text)?,
            Value::Bool(_) | Value::Array(_) | Value::Object(_) | Value::Null => return None,
        };
        u32::try_from(count).ok()
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        match self.value(name)? {
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

/// An entry of the outermost mapping, as written.
struct Entry<'a> {
    /// The number of lines before it.
    line: usize,
    name: &'a str,
    /// The rest of its first line.
    first: &'a str,
    /// The lines that continue it.
    more: Vec<&'a str>,
}

impl Entry<'_> {
    /// Returns the value: parsed as YAML, or as plain text if it is not YAML.
    fn value(&self) -> Result<Value, FrontMatterError> {
        let yaml = format!("{}: {}\n{}", self.name, self.first, self.more.join("\n"));
        match parse(&yaml, self.line) {
            Ok(fields) => Ok(fields.into_values().next().unwrap_or_default()),
            Err(_) if self.is_plain() => Ok(Value::String(self.joined())),
            Err(mistake) => Err(mistake),
        }
    }

    /// Returns true if the value is neither quoted nor a list nor a block.
    fn is_plain(&self) -> bool {
        // `[file] [pattern]` looks like a list but is text.
        let is_text = TEXTS.contains(&plain(self.name).as_str());
        let is_list = self.first.starts_with(['[', '{']) && !is_text;
        !self.first.is_empty() && !self.first.starts_with(['"', '\'', '|', '>']) && !is_list
    }

    /// Returns true if a line that continues the entry may be meant as a field that restricts.
    fn holds_restriction(&self) -> bool {
        let mut named = self.more.iter().filter_map(|line| line.split_once(':'));
        named.any(|(name, _)| RESTRICTING.contains(&plain(without_marks(name)).as_str()))
    }

    /// Returns the value as one line.
    fn joined(&self) -> String {
        let more = self.more.iter().filter(|line| !line.starts_with('#'));
        let lines = std::iter::once(&self.first).chain(more).map(|line| line.trim());
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// Splits YAML into the entries of its outermost mapping. `None`: a line may be a field that
/// restricts in another notation, such as a quoted name.
fn entries(yaml: &str) -> Option<Vec<Entry<'_>>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for (line, text) in yaml.lines().enumerate() {
        if text.starts_with('?') && may_restrict(text) {
            return None;
        }
        let parts = text.split_once(':');
        let continues = text.starts_with([' ', '\t', '-']) || parts.is_none();
        if text.trim().is_empty() || text.starts_with('#') {
            if let Some(entry) = entries.last_mut() {
                entry.more.push(text);
            }
        } else if let Some((name, first)) = parts.filter(|_| !continues) {
            if !is_name(name) && may_restrict(text) {
                return None;
            }
            entries.push(Entry { line, name, first: first.trim(), more: Vec::new() });
        } else {
            entries.last_mut()?.more.push(text);
        }
    }
    Some(entries)
}

/// Returns true if a field may have this name. Fields with other names have no effect.
fn is_name(name: &str) -> bool {
    name.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter))
}

/// Returns true if a line that does not begin with the name of a field may contain a field that
/// restricts, or include one by an alias.
fn may_restrict(line: &str) -> bool {
    let is_restricting = |word: &str| RESTRICTING.contains(&plain(word).as_str());
    let words = |part: &str| -> Vec<String> {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        part.split(|letter| !is_part(letter)).map(ToOwned::to_owned).collect()
    };
    // The text before a colon may end in a name; the text after the last colon is a value.
    let parts: Vec<_> = line.split(':').map(words).collect();
    let before = parts.split_last().map_or(&[][..], |(_, before)| before);
    let last_word = |words: &Vec<String>| words.iter().rfind(|word| !word.is_empty()).cloned();
    let name = before.first().cloned().unwrap_or_default();
    line.starts_with(['?', '<'])
        || line.strip_prefix('*').is_some_and(|rest| rest.starts_with(char::is_alphanumeric))
        || line.contains('\\')
        || is_restricting(&name.concat())
        || name.iter().any(|word| is_restricting(word))
        || before.iter().filter_map(last_word).any(|word| is_restricting(&word))
}

/// Removes the marks of lists and quotes, and blanks, around a name.
fn without_marks(name: &str) -> &str {
    name.trim_matches(|letter: char| !letter.is_ascii_alphanumeric())
}

/// Removes quotes that do not quote the whole text: an open quote, and those around a text with an
/// apostrophe.
fn without_open_quote(text: &str) -> &str {
    let Some(quote) = text.chars().next().filter(|first| "\"'".contains(*first)) else {
        return text;
    };
    match (text.matches(quote).count(), text[1..].strip_suffix(quote)) {
        (1, _) => &text[1..],
        (count, Some(inner)) if count % 2 == 1 => inner,
        (_, Some(_) | None) => text,
    }
}

/// Parses a mapping that has `before` lines of the front matter before it.
fn parse(yaml: &str, before: usize) -> Result<Map<String, Value>, FrontMatterError> {
    // The first line of the file is that of the hyphens.
    let at = |line: usize, column: usize, why: &str| FrontMatterError {
        line: before + line + 1,
        column,
        why: why.chars().take(160).collect(),
    };
    match yaml::parse(yaml) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err(at(1, 1, "it has no names")),
        Err(error) => Err(at(error.line, error.column, &error.why)),
    }
}

/// Normalises a field name for look-up.
fn plain(name: &str) -> String {
    name.chars().filter(|letter| !"-_".contains(*letter)).flat_map(char::to_lowercase).collect()
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
        assert!(fields(&deep).expect("readable").expect("some").warnings[0].contains("no effect"));
    }

    #[test]
    fn a_mistake_in_a_field_that_does_not_restrict_leaves_the_others() {
        for (yaml, name, expected) in [
            ("argument-hint: \"[file]\" [--fix]", "argument-hint", "\"[file]\" [--fix]"),
            ("description: \"Review\" the change", "description", "\"Review\" the change"),
            ("description: 'it' works", "description", "'it' works"),
            ("description: 'it's here'", "description", "it's here"),
            ("description: > 3 issues", "description", "> 3 issues"),
            ("description: | grep\n  and: sort", "description", "| grep and: sort"),
            ("description: \"not closed", "description", "not closed"),
            ("description: \"not closed\n  but longer", "description", "not closed but longer"),
            ("name: 'x", "name", "x"),
            ("description: a\ndescription: b", "description", "b"),
            ("description:no blank", "description", "no blank"),
            ("description: more\nwithout indent", "description", "more without indent"),
            ("description: x\ncolor: \"red\" or [blue", "description", "x"),
            ("metadata:\n  a: \"x\" y\ndescription: x", "description", "x"),
        ] {
            for yaml in [format!("{yaml}\ntools: Read"), format!("tools:\n- Read\n# and\n{yaml}")] {
                let parsed = parsed(&yaml);
                assert_eq!(parsed.text(name).as_deref(), Some(expected), "{yaml}");
                assert_eq!(parsed.words("tools").expect("a list"), ["Read"], "{yaml}");
            }
        }
        let model = parsed("model: \"haiku\nmaxTurns: 5");
        assert_eq!((model.text("model"), model.count("maxTurns")), (None, Some(5)));
        let twice = parsed("description: a\ncolor: red\ndescription: b").warnings;
        assert_eq!(twice, ["4:1: description is given again; the last one is used"]);
        let open = parsed("name: x\ndescription: \"open").warnings.join("\n");
        assert!(
            open.starts_with("3:") && open.ends_with("description is read as plain text"),
            "{open}"
        );
        let loose = "description: d\nExample usage: /c a \"b c\"\nExample usage: /c d\n```";
        for yaml in
            [format!("{loose}\nmodel: haiku"), format!("tools: Read\n{loose}\nmodel: haiku")]
        {
            let parsed = parsed(&yaml);
            assert_eq!(parsed.text("description").as_deref(), Some("d"), "{yaml}");
            assert_eq!(parsed.text("model").as_deref(), Some("haiku"), "{yaml}");
            assert_eq!(parsed.warnings, [""; 0], "{yaml}");
        }
        for name in RESTRICTING {
            for yaml in [
                format!("description: d\nA b: \"c\" d\n  {name}: Read"),
                format!("description: d\nThe {name}: \"c\" d"),
                format!("description: d\nA b: \"c\" d, {name}: Read"),
                format!("description: \"c\" d\n{{{name}: Read}}"),
                format!("description: \"c\" d\n? {name}"),
                format!("description: \"c\" d\n? {name}\n: Read"),
                format!("name: &n {name}\ndescription: \"c\" d\n*n : Read"),
                format!("description: \"c\" d\n!!str {name}: Read"),
                format!("description: \"c\" d\nbase: &b\n  {name}: Read\n<<: *b"),
                format!("description: \"a\" b\n{name}: \"Read\" Edit"),
                format!("description: \"a\" b\n  {name}: Read"),
                format!("description: \"a\" b\n\"{name}\": Read"),
                format!("description: \"a\" b\n- {name}: Read"),
                format!("description: \"a\" b\n  \"{name}\": Read"),
                format!("description: \"a\" b\n{name} : Read"),
                format!("{name}: Read\n{name}: Edit"),
            ] {
                assert!(fields(&format!("---\n{yaml}\n---\n")).is_err(), "{yaml}");
            }
        }
    }
}
