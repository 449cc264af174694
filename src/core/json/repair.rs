//! Repairs text that deviates from JSON, in linear time and without recursion.

use std::fmt::Write as _;

use serde_json::Value;

/// Maximum nesting depth that is read unchanged. Deeper values are read as strings that contain
/// their JSON text: values are walked recursively, for which each thread has a stack of
/// [`STACK_BYTES`].
pub const NESTING_MAX: usize = 5_000;

/// Stack size of each thread that handles values of other programs. Only the used part takes
/// memory.
pub const STACK_BYTES: usize = 64 << 20;

/// The largest number that a double holds.
const LARGEST: &str = "1.7976931348623157e308";

/// Words that programs write for numbers that JSON does not have, and their replacements: null, as
/// `JSON.stringify` writes it for `NaN`, and the nearest finite number.
const WORDS: [(&str, &str); 3] =
    [("NaN", "null"), ("Infinity", LARGEST), ("-Infinity", "-1.7976931348623157e308")];

/// The deviations from JSON that are repaired, besides control characters in strings, deep nesting
/// and numbers outside the range of `f64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repairs {
    /// All: unpaired surrogates become U+FFFD, and [`WORDS`] numbers or null.
    All,
    /// Those without a loss: unpaired surrogates are copied unchanged.
    WithoutLoss,
    /// Those in JSON that users write: a word is copied unchanged, because it is a mistake there. A
    /// limit of `NaN` must not become no limit.
    Written,
}

/// Rewrites text as JSON, as far as its meaning is unambiguous. Other deviations from JSON are
/// copied unchanged.
pub(super) fn repair(text: &str, repairs: Repairs) -> String {
    let mut repaired = String::with_capacity(text.len());
    let (mut rest, mut depth) = (text, 0_usize);
    while let Some(first) = rest.bytes().next() {
        let taken = match first {
            b'"' => {
                let length = string_length(rest);
                repair_string(&rest[..length], repairs, &mut repaired);
                length
            }
            b'-' | b'N' | b'I' | b'0'..=b'9' => repair_number(rest, repairs, &mut repaired),
            b'[' | b'{' if depth == NESTING_MAX => {
                // An unterminated value is not JSON, whatever it contains.
                let end = value_end(rest).unwrap_or(rest.len());
                repaired.push_str(&Value::from(&rest[..end]).to_string());
                end
            }
            _ => {
                depth = match first {
                    b'[' | b'{' => depth + 1,
                    b']' | b'}' => depth.saturating_sub(1),
                    _ => depth,
                };
                let length = rest.chars().next().map_or(1, char::len_utf8);
                repaired.push_str(&rest[..length]);
                length
            }
        };
        rest = &rest[taken..];
    }
    repaired
}

/// The length of the object or list at the start of the text, found by its brackets. `None` if it
/// is not terminated.
pub fn value_end(text: &str) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => at += string_length(&text[at..]) - 1,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The length of the string at the start of the text, quotes included; all of the text if the
/// string is not terminated.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Copies a string. Control characters are escaped.
fn repair_string(string: &str, repairs: Repairs, repaired: &mut String) {
    let mut rest = string;
    while let Some(at) = rest.find(|letter: char| letter == '\\' || letter.is_ascii_control()) {
        repaired.push_str(&rest[..at]);
        rest = &rest[at..];
        let unit = escaped_unit(rest);
        let taken = match unit {
            Some(0xd800..=0xdbff) if matches!(escaped_unit(&rest[6..]), Some(0xdc00..=0xdfff)) => {
                repaired.push_str(&rest[..12]);
                12
            }
            Some(0xd800..=0xdfff) if repairs != Repairs::WithoutLoss => {
                repaired.push_str("\\ufffd");
                6
            }
            _ if rest.starts_with('\\') => {
                // The backslash and the character that it escapes, which may be a backslash, too.
                let length = rest.chars().take(2).map(char::len_utf8).sum();
                repaired.push_str(&rest[..length]);
                length
            }
            _ => {
                let control = rest.bytes().next().unwrap_or_default();
                let _ = write!(repaired, "\\u{control:04x}");
                1
            }
        };
        rest = &rest[taken..];
    }
    repaired.push_str(rest);
}

/// The code unit in the `\u` escape at the start of the text.
fn escaped_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.as_bytes().get(..4)?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    is_hex.then(|| u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())?
}

/// Copies the number at the start of the text, or replaces a word such as `NaN`. Returns the length
/// of the number or word.
fn repair_number(text: &str, repairs: Repairs, repaired: &mut String) -> usize {
    if let Some((word, number)) = WORDS.iter().find(|(word, _)| text.starts_with(word)) {
        repaired.push_str(if repairs == Repairs::Written { word } else { number });
        return word.len();
    }
    let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let length = text.bytes().take_while(|byte| is_part(byte)).count().max(1);
    let number = &text[..length];
    match number.parse::<f64>() {
        Ok(value) if value.is_infinite() => {
            repaired.push_str(if value < 0.0 { WORDS[2].1 } else { LARGEST });
        }
        Ok(_) | Err(_) => repaired.push_str(number),
    }
    length
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json::{read, read_exact, read_str, to_strict};

    #[test]
    fn json_of_other_programs_is_read() {
        let rows: [(&[u8], Value); 24] = [
            (br#""\ud83d""#, json!("\u{fffd}")),
            (br#""\ude00\ud83d\ude00""#, json!("\u{fffd}\u{1f600}")),
            (br#""a\ud83d\n\uD83D\u0041""#, json!("a\u{fffd}\n\u{fffd}A")),
            (br#""\ud83d\ud83d\ude00""#, json!("\u{fffd}\u{1f600}")),
            (br#""\\ud83d \ud83d""#, json!("\\ud83d \u{fffd}")),
            (br#"{"\ud83d": 1}"#, json!({ "\u{fffd}": 1 })),
            (b"\"caf\xe9\"", json!("caf\u{fffd}")),
            (b"\xef\xbb\xbf {\"a\": 1}\n", json!({ "a": 1 })),
            (b"\xff\xfe{\x00}\x00", json!({})),
            (b"\xfe\xff\x00[\x00]", json!([])),
            (b"\"a\tb\nc\x00\x1b\"", json!("a\tb\nc\u{0}\u{1b}")),
            (b"1e999", json!(f64::MAX)),
            (b"[-1e999, 1E+400, 0e999, 1e-999]", json!([f64::MIN, f64::MAX, 0.0, 0.0])),
            (b"NaN", Value::Null),
            (b"[Infinity,-Infinity]", json!([f64::MAX, f64::MIN])),
            (br#"["NaN", "1e999", "Infinity", "-"]"#, json!(["NaN", "1e999", "Infinity", "-"])),
            (b"18446744073709551616", json!(18_446_744_073_709_551_616.0)),
            (b"-0", json!(-0.0)),
            (br#"{"a\\": 1e999, "b\"": "\ud800"}"#, json!({ "a\\": f64::MAX, "b\"": "\u{fffd}" })),
            (br#""\ud83d"#, Value::Null),
            (b"{\"a\": \"\\ud83d\" \"b\"}", Value::Null),
            (br#""\ud8""#, Value::Null),
            (br#"["\x41\ud800"]"#, Value::Null),
            (b"[1e999] 2", Value::Null),
        ];
        for (bytes, wanted) in rows {
            let shown = String::from_utf8_lossy(bytes);
            let found = read::<Value>(bytes);
            // The last rows are invalid even for a lenient reader.
            let wanted = Some(wanted).filter(|wanted| !wanted.is_null() || *bytes == *b"NaN");
            assert_eq!(found.ok(), wanted, "{shown}");
            if let Ok(text) = std::str::from_utf8(bytes) {
                assert_eq!(read_str::<Value>(text).ok(), wanted, "{shown}");
            }
        }
        assert_eq!(to_strict("[\"\\ud83d\", 1e999]"), format!("[\"\\ufffd\", {LARGEST}]"));
        assert_eq!((to_strict("[NaN"), to_strict("[1e5]")), ("[NaN".into(), "[1e5]".into()));
        for word in ["NaN", "Infinity", "-Infinity"] {
            // The limit of a settings file must not vanish.
            let written = format!("{{\"maxTurns\": {word}, \"\t\": 1}}");
            assert_eq!(to_strict(&written), written);
        }
        let digits = "9".repeat(400);
        assert_eq!(read_str::<Value>(&digits).unwrap(), json!(f64::MAX));
        assert_eq!(read_str::<Value>(&format!("-{digits}.5")).unwrap(), json!(f64::MIN));
    }

    #[test]
    fn nothing_is_lost_by_an_exact_reader() {
        for text in [r#""\ud83d""#, r#"["\ude00"]"#, r#"{"\ud83d": 1}"#, "\"\\ud83d\t\""] {
            assert!(
                read_exact::<Value>(text).is_err() && read_str::<Value>(text).is_ok(),
                "{text}"
            );
        }
        for text in [r#""\ud83d\ude00""#, r#""\\ud83d""#, "\"a\tb\"", "[1e999, NaN]", "\u{feff}{}"]
        {
            let value = read_exact::<Value>(text).ok();
            assert!(value.is_some() && value == read_str(text).ok(), "{text}");
        }
    }

    #[test]
    fn the_type_of_a_value_decides_before_anything_is_repaired() {
        assert_eq!(read_str::<String>(r#""\ud83d""#).unwrap(), "\u{fffd}");
        assert!(read_str::<String>("7").unwrap_err().is_data());
        assert!(read_str::<Vec<u8>>(r#"["\ud83d"]"#).is_err());
    }

    #[test]
    fn the_end_of_a_value_is_found_by_its_brackets() {
        let rows = [
            ("{}", Some(2)),
            ("{\"a}\": [\"]\", {}]} more", Some(17)),
            ("{\"a\\\"}\": 1}", Some(11)),
            ("[[1]", None),
            ("{\"a", None),
        ];
        for (text, end) in rows {
            assert_eq!(value_end(text), end, "{text}");
        }
    }
}
