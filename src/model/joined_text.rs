//! Joins the pieces of a text whose writer may split a character. No I/O.

use std::fmt;
use std::mem::take;
use std::ops::RangeInclusive;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// The surrogates that stand for bytes which are not UTF-8.
const BYTES: RangeInclusive<u16> = 0xdc80..=0xdcff;

/// A text that grows by pieces. A character that is split between two pieces is joined: some
/// gateways split texts between UTF-16 code units, others between bytes.
#[derive(Debug, Default)]
pub(super) struct JoinedText {
    text: String,
    /// The first half of a pair, at the end of the last piece.
    high: Option<u16>,
    /// The first bytes of a character, at the end of the last piece.
    bytes: Vec<u8>,
    /// True if part of a character was replaced by U+FFFD.
    is_damaged: bool,
}

impl JoinedText {
    pub(super) fn new(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    /// The text, without part of a character at the end.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The length in bytes, without part of a character at the end.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn push(&mut self, piece: &str) {
        if !piece.is_empty() {
            self.replace_parts();
            self.text.push_str(piece);
        }
    }

    /// Appends a piece that has unpaired surrogates, some of which may stand for bytes.
    pub(super) fn push_wtf8(&mut self, Wtf8(piece): &Wtf8) {
        let mut rest = piece.as_slice();
        while !rest.is_empty() {
            let end = str::from_utf8(rest).map_or_else(|error| error.valid_up_to(), str::len);
            let (whole, more) = rest.split_at(end);
            self.push(str::from_utf8(whole).unwrap_or_default());
            let Some(([_, second, third], more)) = more.split_first_chunk::<3>() else { return };
            self.push_half(0xd000 | u16::from(second & 0x3f) << 6 | u16::from(third & 0x3f));
            rest = more;
        }
    }

    /// Returns the text, and true if part of a character was lost in it.
    pub(super) fn complete(&mut self) -> (String, bool) {
        self.replace_parts();
        (take(&mut self.text), self.is_damaged)
    }

    fn push_half(&mut self, half: u16) {
        if let Some(high) = self.high.take() {
            if let Some(Ok(joined)) = char::decode_utf16([high, half]).next() {
                return self.text.push(joined);
            }
            self.high = Some(high);
        }
        if BYTES.contains(&half) {
            return self.push_byte(half.to_le_bytes()[0]);
        }
        self.replace_parts();
        self.high = Some(half);
    }

    fn push_byte(&mut self, byte: u8) {
        self.replace_half();
        self.bytes.push(byte);
        match str::from_utf8(&self.bytes) {
            Ok(joined) => {
                self.text.push_str(joined);
                self.bytes.clear();
            }
            // The bytes may become a character.
            Err(error) if error.error_len().is_none() => {}
            Err(_) => {
                // The last byte may begin another character.
                let last = self.bytes.pop().filter(|_| !self.bytes.is_empty());
                self.replace_parts();
                match last {
                    Some(last) => self.push_byte(last),
                    None => self.replace(),
                }
            }
        }
    }

    /// Replaces an incomplete character.
    fn replace_parts(&mut self) {
        self.replace_half();
        if !take(&mut self.bytes).is_empty() {
            self.replace();
        }
    }

    fn replace_half(&mut self) {
        if self.high.take().is_some() {
            self.replace();
        }
    }

    fn replace(&mut self) {
        self.text.push(char::REPLACEMENT_CHARACTER);
        self.is_damaged = true;
    }
}

/// A string of JSON with unpaired surrogates, encoded as in WTF-8.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wtf8(Vec<u8>);

impl Wtf8 {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'de> Deserialize<'de> for Wtf8 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfBytes;

        impl Visitor<'_> for OfBytes {
            type Value = Wtf8;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Wtf8, E> {
                Ok(Wtf8(bytes.to_owned()))
            }
        }

        deserializer.deserialize_bytes(OfBytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::read_exact;

    #[test]
    fn parts_of_a_character_are_joined_across_pieces() {
        let rows: [(&[&str], &str, bool); 15] = [
            (&[r"a\ud83d", r"\ude00b"], "a\u{1f600}b", false),
            (&[r"\ud83d", "", r"\ude00"], "\u{1f600}", false),
            (&[r"\ud83d", r"\ude00\ud83d", r"\ude00"], "\u{1f600}\u{1f600}", false),
            (&["é", r"\u00e9\ud83d\ude00"], "éé\u{1f600}", false),
            (&[r"a\ud83d", "b"], "a\u{fffd}b", true),
            (&[r"a\ud83d"], "a\u{fffd}", true),
            (&[r"\ude00b"], "\u{fffd}b", true),
            (&[r"\ud83d", r"\ud83d\ude00"], "\u{fffd}\u{1f600}", true),
            (&[r"\ud83d\ud83d", r"\ude00"], "\u{fffd}\u{1f600}", true),
            // Bytes.
            (&[r"a\udcf0\udc9f", r"\udc98", r"\udc80b"], "a\u{1f600}b", false),
            (&[r"caf\udce9 b"], "caf\u{fffd} b", true),
            (&[r"caf\udcc3", "b"], "caf\u{fffd}b", true),
            (&[r"\udcc3\udcc3", r"\udca9"], "\u{fffd}é", true),
            (&[r"\udc80\udcff"], "\u{fffd}\u{fffd}", true),
            (&[r"\ud83d\udcc3", r"\ude00"], "\u{1f4c3}\u{fffd}", true),
        ];
        for (pieces, text, is_damaged) in rows {
            let mut joined = JoinedText::default();
            for piece in pieces {
                joined.push_wtf8(&read_exact(&format!("\"{piece}\"")).expect("a string"));
            }
            assert_eq!(joined.complete(), (text.to_owned(), is_damaged), "{pieces:?}");
        }
    }
}
