//! Keeps the text of others (the model, tools, servers) from controlling the user's terminal.

use std::io::{self, IsTerminal, Write};

/// A writer to what may be a terminal. What is written is text of whole characters; to anything but
/// a terminal it is passed on as it is.
pub struct TerminalFilter<W> {
    sink: W,
    is_terminal: bool,
}

impl<W: Write + IsTerminal> TerminalFilter<W> {
    pub fn new(sink: W) -> Self {
        let is_terminal = sink.is_terminal();
        Self { sink, is_terminal }
    }
}

impl<W: Write> Write for TerminalFilter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.sink.write(bytes);
        }
        let text = String::from_utf8_lossy(bytes);
        let harmless = |letter: &char| matches!(letter, '\n' | '\t') || !controls(*letter);
        let shown: String = text.chars().filter(harmless).collect();
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
