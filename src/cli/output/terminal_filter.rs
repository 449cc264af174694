//! Keeps the text of others (the model, tools, servers) from controlling the user's terminal.

use std::io::{self, IsTerminal, Write};

use super::style::leading_sequence;

/// A writer to what may be a terminal. What is written is text of whole characters; to anything but
/// a terminal it is passed on as it is.
pub struct TerminalFilter<W> {
    sink: W,
    is_terminal: bool,
    /// Whether the colours of [`super::style`] are passed on.
    is_coloured: bool,
}

impl<W: Write + IsTerminal> TerminalFilter<W> {
    pub fn new(sink: W) -> Self {
        let is_terminal = sink.is_terminal();
        Self { sink, is_terminal, is_coloured: false }
    }

    /// The same for lines whose untrusted parts were filtered before they were coloured.
    pub fn coloured(sink: W) -> Self {
        Self { is_coloured: true, ..Self::new(sink) }
    }
}

impl<W> TerminalFilter<W> {
    /// The part of a text that a terminal may get.
    fn shown(&self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            let colour = leading_sequence(rest).filter(|_| self.is_coloured);
            let length = colour.unwrap_or(letter.len_utf8());
            if colour.is_some() || matches!(letter, '\n' | '\t') || !controls(letter) {
                shown.push_str(&rest[..length]);
            }
            rest = &rest[length..];
        }
        shown
    }
}

impl<W: Write> Write for TerminalFilter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.sink.write(bytes);
        }
        let shown = self.shown(&String::from_utf8_lossy(bytes));
        self.sink.write_all(shown.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Whether a terminal may obey a character instead of showing it: control characters, with which
/// all sequences begin, and those that change the direction of text, so that it reads otherwise
/// than it is.
pub(super) fn controls(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
