//! Masks text that arrives in pieces.

use super::mask::Redactor;
use super::pass::{KeyFinder, StreamPass, ValueFinder};

/// Hides secrets in text that arrives in pieces, wherever it is cut. Held back is only what could
/// still be the beginning of a secret, and no more than 32 KiB of it.
#[derive(Debug)]
pub struct StreamRedactor {
    mask: Redactor,
    values: StreamPass,
    keys: StreamPass,
}

impl StreamRedactor {
    pub(super) fn new(mask: Redactor) -> Self {
        Self { mask, values: StreamPass::default(), keys: StreamPass::default() }
    }

    /// Takes a piece, and returns what can be shown now.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        self.take(piece, false)
    }

    /// Returns what was held back: no more will come. What comes all the same begins anew.
    pub fn finish(&mut self) -> Vec<u8> {
        let shown = self.take(&[], true);
        (self.values, self.keys) = (StreamPass::default(), StreamPass::default());
        shown
    }

    /// As [`Stream::push`], for text.
    pub fn push_text(&mut self, piece: &str) -> String {
        text(&self.push(piece.as_bytes()))
    }

    /// As [`Stream::finish`], for text.
    pub fn finish_text(&mut self) -> String {
        text(&self.finish())
    }

    fn take(&mut self, piece: &[u8], last: bool) -> Vec<u8> {
        let without_values = self.values.take(piece, &ValueFinder(&self.mask.lookup()), last);
        self.keys.take(&without_values, &KeyFinder(self.mask.prefixes()), last)
    }
}

/// Text is only ever cut where a secret begins or ends, which is never within a character.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
