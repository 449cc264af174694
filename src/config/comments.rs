//! JSON that users write by hand, in files and in flags: settings, MCP servers, agents, parts of
//! plugins. It may have comments and trailing commas, which JSON does not have.

use crate::json;

/// The maximum size of a settings file, in bytes.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Rewrites the text of a user as strict JSON. The positions of values stay the same, counted from
/// after a byte order mark. Invalid JSON is returned unrepaired.
pub fn written_json(text: &str) -> String {
    json::to_strict(&blank_comments(without_mark(text))).into_owned()
}

fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Returns true if the value of a flag is JSON, rather than the name of a file: its first character
/// that is neither blank nor in a comment is `{`.
pub fn is_inline(given: &str) -> bool {
    blank_comments(without_mark(given.trim_start())).trim_start().starts_with('{')
}

/// Returns JSON of the same length in characters: comments, and commas before the end of an object
/// or a list, become spaces.
fn blank_comments(text: &str) -> String {
    let mut json = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    // The last comma, while nothing but spaces and comments has followed it.
    let mut comma = None;
    while let Some(one) = rest.next() {
        match (one, rest.peek()) {
            ('"', _) => {
                comma = None;
                json.push(one);
                let mut is_escaped = false;
                for inner in rest.by_ref() {
                    json.push(inner);
                    if inner == '"' && !is_escaped {
                        break;
                    }
                    is_escaped = inner == '\\' && !is_escaped;
                }
            }
            ('/', Some('/')) => {
                json.push(' ');
                while let Some(inner) = rest.next_if(|inner| *inner != '\n') {
                    json.push(blank(inner));
                }
            }
            ('/', Some('*')) => {
                json.push(' ');
                let mut before = ' ';
                for (index, inner) in rest.by_ref().enumerate() {
                    json.push(blank(inner));
                    // In `/*/`, the star does not end the comment that it begins.
                    if index > 1 && before == '*' && inner == '/' {
                        break;
                    }
                    before = inner;
                }
            }
            ('}' | ']', _) => {
                if let Some(at) = comma.take() {
                    json.replace_range(at..=at, " ");
                }
                json.push(one);
            }
            (',', _) => {
                // Two commas in a row are a mistake, which the parser reports.
                comma = comma.is_none().then_some(json.len());
                json.push(one);
            }
            (space, _) if space.is_ascii_whitespace() => json.push(space),
            (other, _) => {
                comma = None;
                json.push(other);
            }
        }
    }
    json
}

fn blank(one: char) -> char {
    if one == '\n' { '\n' } else { ' ' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_begins_like_an_object_is_no_file_name() {
        for given in ["{}", " \n{", "// ci\n{}", "\u{feff}{}", "\u{feff}/* a */ // b\n {}"] {
            assert!(is_inline(given), "{given:?}");
        }
        for given in ["", "a.json", "//host/a.json", "/*/a{}", "./{a}", "[]"] {
            assert!(!is_inline(given), "{given:?}");
        }
    }

    #[test]
    fn comments_and_trailing_commas_become_spaces_of_the_same_length() {
        for (text, wanted) in [
            ("{// a\n\"b\": 1}", "{    \n\"b\": 1}"),
            ("{\"b\": /* é\n*/ 1}", "{\"b\":     \n   1}"),
            ("{\"b\": [1, 2, /* x */],\n}", "{\"b\": [1, 2         ] \n}"),
            ("{\"url\": \"http://x/*\\\"//,]\"}", "{\"url\": \"http://x/*\\\"//,]\"}"),
            ("[1,,]", "[1,,]"),
            ("{\"a\": 1 /*/ 2 */}", "{\"a\": 1         }"),
            ("/* open", "       "),
        ] {
            let json = blank_comments(text);
            assert_eq!(json, wanted, "{text}");
            assert_eq!(json.chars().count(), text.chars().count(), "{text}");
        }
    }
}
