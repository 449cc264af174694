//! Redacts text that arrives in pieces.

use super::redactor::Redactor;
use super::stream_pass::{KeyFinder, StreamPass, ValueFinder};

/// Redacts secrets even if they are split between pieces. Only text that could be the beginning of
/// a secret is held back, at most 32 KiB.
#[derive(Debug)]
pub struct StreamRedactor {
    redactor: Redactor,
    values: StreamPass,
    keys: StreamPass,
}

impl Redactor {
    /// Creates a redactor for text that arrives in pieces.
    pub fn stream(&self) -> StreamRedactor {
        let (values, keys) = (StreamPass::default(), StreamPass::default());
        StreamRedactor { redactor: self.clone(), values, keys }
    }
}

impl StreamRedactor {
    /// Processes a piece, and returns the text that can be released.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        self.take(piece, false)
    }

    /// Returns the text that was held back, at the end of the input. A later piece starts a new
    /// text.
    pub fn finish(&mut self) -> Vec<u8> {
        let shown = self.take(&[], true);
        (self.values, self.keys) = (StreamPass::default(), StreamPass::default());
        shown
    }

    /// Like [`StreamRedactor::push`], for text.
    pub fn push_text(&mut self, piece: &str) -> String {
        text(&self.push(piece.as_bytes()))
    }

    /// Like [`StreamRedactor::finish`], for text.
    pub fn finish_text(&mut self) -> String {
        text(&self.finish())
    }

    fn take(&mut self, piece: &[u8], last: bool) -> Vec<u8> {
        let without_values = self.values.take(piece, &ValueFinder(&self.redactor.lookup()), last);
        self.keys.take(&without_values, &KeyFinder(self.redactor.prefixes()), last)
    }
}

/// Converts to text. Pieces are only cut at the ends of secrets, never inside a character.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
