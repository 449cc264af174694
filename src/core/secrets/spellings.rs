//! The ways in which programs escape the characters of a text: JSON, HTML, shells, tables.

use std::fmt::Write;

/// Maximum number of spellings of a text in one style.
const SPELLINGS_MAX: usize = 128;

/// Maximum total size of the spellings in one style, in bytes. For a long value, such as a whole
/// file, only the first lists of each choice are used; there is always one spelling.
const BYTES_MAX: usize = 32 << 10;

/// Characters and their replacements.
type Replacements = &'static [(char, &'static str)];

/// A style of escapes.
struct Style {
    /// Replaces characters that no other replacement names.
    base: fn(char) -> Option<String>,
    /// Choices between lists of replacements, as the programs of a style differ. Each combination
    /// of one list from every choice is a spelling.
    choices: &'static [&'static [Replacements]],
}

const STYLES: &[Style] = &[
    Style { base: in_json, choices: IN_JSON },
    Style { base: |letter| in_json(letter).or_else(|| not_ascii(letter, false)), choices: IN_JSON },
    Style { base: |letter| in_json(letter).or_else(|| not_ascii(letter, true)), choices: IN_JSON },
    Style { base: plain, choices: IN_HTML },
    Style { base: plain, choices: IN_SHELL },
    Style { base: backslashed, choices: &[] },
];

const IN_JSON: &[&[Replacements]] = &[
    &[
        &[],
        // Go: kubectl, terraform, docker. Ruby.
        &[('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028")],
        // Gson.
        &[
            ('<', "\\u003c"),
            ('>', "\\u003e"),
            ('&', "\\u0026"),
            ('=', "\\u003d"),
            ('\'', "\\u0027"),
        ],
        // .NET.
        &[
            ('<', "\\u003C"),
            ('>', "\\u003E"),
            ('&', "\\u0026"),
            ('\'', "\\u0027"),
            ('"', "\\u0022"),
            ('+', "\\u002B"),
            ('`', "\\u0060"),
        ],
        // PHP with all its flags.
        &[
            ('<', "\\u003C"),
            ('>', "\\u003E"),
            ('&', "\\u0026"),
            ('\'', "\\u0027"),
            ('"', "\\u0022"),
        ],
    ],
    // PHP.
    &[&[], &[('/', "\\/")]],
    // Strings of Python, JavaScript and C, in either quotes.
    &[&[], &[('\'', "\\'")]],
    &[&[], &[('"', "\"")]],
];

const IN_HTML: &[&[Replacements]] = &[
    &[&[], &[('"', "&quot;")], &[('"', "&#34;")], &[('"', "&#x22;")]],
    &[&[], &[('\'', "&#39;")], &[('\'', "&apos;")], &[('\'', "&#x27;")], &[('\'', "&#039;")]],
    &[
        &[('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;")],
        &[('&', "&amp;"), ('<', "&lt;")],
        &[('&', "&#38;"), ('<', "&#60;"), ('>', "&#62;")],
        &[('&', "&#x26;"), ('<', "&#x3C;"), ('>', "&#x3E;")],
        &[('&', "&#x26;"), ('<', "&#x3c;"), ('>', "&#x3e;")],
    ],
    // Templates of JavaScript.
    &[&[], &[('=', "&#x3D;"), ('`', "&#x60;")], &[('/', "&#x2F;")]],
];

/// A single choice: shells and similar programs escape by one rule at a time.
const IN_SHELL: &[&[Replacements]] = &[&[
    &[],
    // `set -x`, `jq @sh`, `${x@Q}`.
    &[('\'', "'\\''")],
    &[('\'', "'\"'\"'")],
    // `declare -p`, `export -p`.
    &[('"', "\\\""), ('$', "\\$"), ('`', "\\`"), ('\\', "\\\\")],
    // CSV, YAML, SQL.
    &[('"', "\"\"")],
    &[('\'', "''")],
    // Compose and make, INI files and crontabs.
    &[('$', "$$")],
    &[('%', "%%")],
]];

/// The text in each style, with each choice. Some are equal.
pub(super) fn spellings(text: &str) -> Vec<String> {
    STYLES.iter().flat_map(|style| in_style(text, style)).collect()
}

fn in_style(text: &str, style: &Style) -> Vec<String> {
    let max_count = (BYTES_MAX / text.len().max(1)).clamp(1, SPELLINGS_MAX);
    let mut chosen: Vec<Vec<Replacements>> = vec![Vec::new()];
    for choice in style.choices {
        // The first list is the usual one; the others apply only if they change the text.
        let applies = |(index, list): &(usize, &Replacements)| {
            *index == 0 || list.iter().any(|(plain, _)| text.contains(*plain))
        };
        let lists: Vec<Replacements> =
            choice.iter().enumerate().filter(applies).map(|(_, list)| *list).collect();
        let lists = &lists[..lists.len().min((max_count / chosen.len()).max(1))];
        let each = |before: &Vec<Replacements>| -> Vec<Vec<Replacements>> {
            lists.iter().map(|list| [before.as_slice(), &[*list]].concat()).collect()
        };
        chosen = chosen.iter().flat_map(each).collect();
    }
    chosen.iter().map(|lists| spell(text, style.base, lists)).collect()
}

fn spell(text: &str, base: fn(char) -> Option<String>, lists: &[Replacements]) -> String {
    let mut spelling = String::with_capacity(text.len());
    for letter in text.chars() {
        match lists.iter().copied().flatten().find(|(plain, _)| *plain == letter) {
            Some((_, replacement)) => spelling.push_str(replacement),
            None => spelling.push_str(&base(letter).unwrap_or_else(|| letter.to_string())),
        }
    }
    spelling
}

fn plain(_: char) -> Option<String> {
    None
}

/// The escape of `printf %q`.
fn backslashed(letter: char) -> Option<String> {
    " !\"$&'()*,;<>?[\\]^`{|}".contains(letter).then(|| format!("\\{letter}"))
}

/// The escape that all JSON writers use for a character.
fn in_json(letter: char) -> Option<String> {
    let text = json_escaped(&letter.to_string());
    (text.len() > letter.len_utf8()).then_some(text)
}

/// A text inside a JSON string.
pub(super) fn json_escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// The JSON escape of a non-ASCII character.
fn not_ascii(letter: char, is_upper: bool) -> Option<String> {
    if letter.is_ascii() {
        return None;
    }
    let mut text = String::new();
    for unit in letter.encode_utf16(&mut [0; 2]) {
        // A string accepts every write.
        let _ =
            if is_upper { write!(text, "\\u{unit:04X}") } else { write!(text, "\\u{unit:04x}") };
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spellings_of_a_long_text_are_bounded() {
        let part = "a+/=<b>&'$\"`%\u{e9} ";
        for (times, most) in [(1, usize::MAX), (100, STYLES.len() * BYTES_MAX), (5000, 500_000)] {
            let text = part.repeat(times);
            let all = spellings(&text);
            let bytes = all.len() * text.len();
            assert!(all.contains(&text) && all.len() >= STYLES.len() && bytes <= most, "{bytes}");
        }
        let short: std::collections::BTreeSet<String> = spellings(part).into_iter().collect();
        assert!(short.len() > 100, "{}", short.len());
    }
}
