//! The one reader for JSON that other programs write.

use std::borrow::Cow;
use std::fmt::Write as _;

use encoding_rs::Encoding;
use serde::de::DeserializeOwned;
use serde_json::{Deserializer, Error, Number, Value};

use super::repair::{Repairs, repair};

/// Reads one JSON value. Beyond the standard, it accepts deviations that occur in practice: a byte
/// order mark, invalid UTF-8 and unpaired surrogates (both are read as U+FFFD), control characters
/// in strings, numbers outside the range of `f64` and `Infinity` (read as the nearest finite
/// number), `NaN` (read as null), and nesting of any depth (see
/// [`NESTING_MAX`](super::NESTING_MAX)).
///
/// # Errors
/// If the input is not JSON even with these allowances, or does not deserialize to `T`.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    match serde_json::from_slice(bytes) {
        Err(error) if !error.is_data() => read_repaired(&decode(bytes), Repairs::All),
        outcome => outcome,
    }
}

/// Reads one JSON value from text, like [`read`].
///
/// # Errors
/// If the input is not JSON even with these allowances, or does not deserialize to `T`.
pub fn read_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    read_text(text, Repairs::All)
}

/// Reads one JSON value from text like [`read_str`], but without a loss: an unpaired surrogate is
/// an error, except in a string that `T` reads as bytes, where it is encoded as in WTF-8.
///
/// # Errors
/// If the input is not JSON even with these allowances, or does not deserialize to `T`.
pub fn read_exact<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    read_text(text, Repairs::WithoutLoss)
}

fn read_text<T: DeserializeOwned>(text: &str, repairs: Repairs) -> Result<T, Error> {
    match serde_json::from_str(text) {
        Err(error) if !error.is_data() => {
            read_repaired(text.trim_start_matches('\u{feff}'), repairs)
        }
        outcome => outcome,
    }
}

/// 2^53: up to this magnitude, a double represents every whole number exactly.
pub const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Returns a whole number without a fraction of zero: JSON does not distinguish `2.0` from `2`, and
/// other programs write either. `None` if it has another fraction.
pub fn whole_number(number: &Number) -> Option<Number> {
    if !number.is_f64() {
        return Some(number.clone());
    }
    let value = number.as_f64().filter(|value| value.fract() == 0.0)?;
    if value.abs() > EXACT_MAX {
        return Some(number.clone());
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    Some((value as i64).into())
}

/// Returns a value as a whole number from 0, if it is one.
pub fn whole(value: &Value) -> Option<u64> {
    whole_number(value.as_number()?)?.as_u64()
}

/// Removes members and items that are null: programs write these where nothing is set.
pub fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let set = members.into_iter().filter(|(_, value)| !value.is_null());
            set.map(|(key, value)| (key, without_nulls(value))).collect()
        }
        Value::Array(items) => {
            items.into_iter().filter(|item| !item.is_null()).map(without_nulls).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Rewrites the lenient JSON of users for strict parsers. Text that cannot be repaired is returned
/// unchanged, so that parse errors name the right position.
pub fn to_strict(text: &str) -> Cow<'_, str> {
    // `IgnoredAny` would skip some checks, so the whole value is parsed.
    let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
    if is_json(text) {
        return Cow::Borrowed(text);
    }
    let repaired = repair(text.trim_start_matches('\u{feff}'), Repairs::Written);
    if is_json(&repaired) { Cow::Owned(repaired) } else { Cow::Borrowed(text) }
}

fn read_repaired<T: DeserializeOwned>(text: &str, repairs: Repairs) -> Result<T, Error> {
    let repaired = repair(text, repairs);
    let mut reader = Deserializer::from_str(&repaired);
    // The threads have enough stack for the nesting depth of the repaired text.
    reader.disable_recursion_limit();
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Decodes JSON in which a byte that is not UTF-8 becomes the escape of a surrogate: 0x80 becomes
/// `\udc80`. So [`read_exact`] rejects it, except in a string that is read as bytes.
pub fn escape_invalid_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // A string accepts every write.
            let _ = write!(text, "\\udc{byte:02x}");
        }
    }
    text
}

/// Decodes text that another program wrote: UTF-8, or UTF-16 if it begins with the byte order mark
/// of UTF-16. The byte order mark is removed, and invalid sequences become U+FFFD.
pub fn decode(bytes: &[u8]) -> Cow<'_, str> {
    match Encoding::for_bom(bytes) {
        Some((encoding, _)) => encoding.decode(bytes).0,
        None => String::from_utf8_lossy(bytes),
    }
}
