//! The one reader for JSON that other programs write.

use std::borrow::Cow;

use encoding_rs::Encoding;
use serde::de::DeserializeOwned;
use serde_json::{Deserializer, Error, Value};

use super::repair::repair;

/// Reads one JSON value. Beyond what the standard asks for it accepts what programs write in practice: a byte
/// order mark, bytes that are no UTF-8 and halves of surrogate pairs (both are read as U+FFFD), control
/// characters in strings, numbers that no double holds (read as the nearest one), `NaN` (read as null),
/// `Infinity`, and nesting of any depth (see [`NESTING_MAX`](super::NESTING_MAX)).
///
/// # Errors
/// It is not JSON even so, or is no `T`.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    match serde_json::from_slice(bytes) {
        Err(error) if !error.is_data() => read_repaired(&decode(bytes)),
        outcome => outcome,
    }
}

/// Reads one JSON value from text, like [`read`].
///
/// # Errors
/// It is not JSON even so, or is no `T`.
pub fn read_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    match serde_json::from_str(text) {
        Err(error) if !error.is_data() => read_repaired(text.trim_start_matches('\u{feff}')),
        outcome => outcome,
    }
}

/// Rewrites text for parsers that are strict. Text that is no JSON even so stays as it is, so that errors name the
/// right place in it.
pub fn to_strict(text: &str) -> Cow<'_, str> {
    // What is ignored is not checked: it must be read.
    let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
    let repaired =
        || Some(repair(text.trim_start_matches('\u{feff}'))).filter(|text| is_json(text));
    if is_json(text) {
        Cow::Borrowed(text)
    } else {
        repaired().map_or(Cow::Borrowed(text), Cow::Owned)
    }
}

fn read_repaired<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let repaired = repair(text);
    let mut reader = Deserializer::from_str(&repaired);
    // The repaired text is nested at most as deep as the threads have stack for.
    reader.disable_recursion_limit();
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Decodes text that another program wrote: UTF-8, or UTF-16 if a byte order mark says so. A byte order mark
/// is left out, and what is invalid becomes U+FFFD.
pub fn decode(bytes: &[u8]) -> Cow<'_, str> {
    match Encoding::for_bom(bytes) {
        Some((encoding, _)) => encoding.decode(bytes).0,
        None => String::from_utf8_lossy(bytes),
    }
}
