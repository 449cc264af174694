//! Keeps untrusted text (of the model, tools and servers) from controlling the user's terminal, and
//! breaks messages between words.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use console::{Term, measure_text_width};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use textwrap::{Options, WordSeparator, WordSplitter};

use super::style::leading_sequence;

/// Indentation of the continuation of a broken line.
const INDENT: &str = "  ";

/// The characters after which a long value may be broken.
const SEPARATORS: &str = " ,/:;=&|";

/// Filters the text that is written to a terminal. To any other sink, text is passed on unchanged.
/// Each write must consist of whole characters.
pub struct TerminalFilter<W> {
    sink: W,
    is_terminal: bool,
    content: TerminalContent,
}

/// Kind of text that is written to a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TerminalContent {
    /// An answer or a document, whose lines are kept.
    Text,
    /// Like `Text`, with the colours of [`super::style`].
    Styled,
    /// Messages of outlast, each in one piece: the colours of [`super::style`] are passed on, and
    /// long lines are broken between words.
    Messages,
}

impl<W: Write + IsTerminal> TerminalFilter<W> {
    pub fn new(sink: W) -> Self {
        let is_terminal = sink.is_terminal();
        Self { sink, is_terminal, content: TerminalContent::Text }
    }

    /// Creates a filter for a document whose untrusted parts were filtered before it was coloured.
    pub fn styled(sink: W) -> Self {
        Self { content: TerminalContent::Styled, ..Self::new(sink) }
    }

    /// Creates a filter for messages whose untrusted parts were filtered before they were coloured.
    pub fn messages(sink: W) -> Self {
        Self { content: TerminalContent::Messages, ..Self::new(sink) }
    }
}

impl<W> TerminalFilter<W> {
    /// Returns the part of a text that may be written to a terminal.
    fn shown(&self, text: &str) -> String {
        let is_coloured = self.content != TerminalContent::Text;
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            let colour = leading_sequence(rest).filter(|_| is_coloured);
            let length = colour.unwrap_or(letter.len_utf8());
            if colour.is_some() || matches!(letter, '\n' | '\t') || !is_terminal_control(letter) {
                shown.push_str(&rest[..length]);
            }
            rest = &rest[length..];
        }
        match self.content {
            TerminalContent::Text | TerminalContent::Styled => shown,
            TerminalContent::Messages => break_lines(&shown, columns()),
        }
    }
}

impl<W: Write + AsFd> TerminalFilter<W> {
    /// Repeats an operation while it fails because it would block. The mode of a descriptor is
    /// shared with other programs, some of which make it non-blocking.
    fn wait_while_blocked<T>(
        &mut self,
        mut operation: impl FnMut(&mut W) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match operation(&mut self.sink) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut polled = [PollFd::new(self.sink.as_fd(), PollFlags::POLLOUT)];
                    match poll(&mut polled, PollTimeout::NONE) {
                        Ok(_) | Err(Errno::EINTR) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

impl<W: Write + AsFd> Write for TerminalFilter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.wait_while_blocked(|sink| sink.write(bytes));
        }
        let shown = self.shown(&String::from_utf8_lossy(bytes));
        let mut rest = shown.as_bytes();
        while !rest.is_empty() {
            match self.wait_while_blocked(|sink| sink.write(rest))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => rest = &rest[written..],
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wait_while_blocked(W::flush)
    }
}

/// Returns the current width of the terminal on standard error, in columns.
pub(super) fn columns() -> usize {
    usize::from(Term::stderr().size().1)
}

/// Breaks lines between words to fit, and indents the continuation. A word that is too long, such
/// as a path, is broken after its separators.
pub(super) fn break_lines(text: &str, columns: usize) -> String {
    let options = Options::new(columns)
        .subsequent_indent(INDENT)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    let filled = textwrap::fill(text, options);
    let broken = filled.split('\n').map(|line| {
        if measure_text_width(line) <= columns {
            return line.to_owned();
        }
        let (indent, text) = line.strip_prefix(INDENT).map_or(("", line), |text| (INDENT, text));
        let pieces = break_at_separators(text, columns.saturating_sub(INDENT.len()));
        format!("{indent}{}", pieces.join(&format!("\n{INDENT}")))
    });
    broken.collect::<Vec<_>>().join("\n")
}

/// Breaks a text that is wider than `columns` after the last separator that fits. A text without
/// separators is not broken. Returns at least one piece.
pub(in crate::cli) fn break_at_separators(text: &str, columns: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let (mut start, mut at, mut width) = (0, 0, 0);
    // The end of the last separator, and the width up to it.
    let mut end: Option<(usize, usize)> = None;
    while let Some(letter) = text[at..].chars().next() {
        if let Some(length) = leading_sequence(&text[at..]) {
            at += length;
            continue;
        }
        let mut buffer = [0; 4];
        width += measure_text_width(letter.encode_utf8(&mut buffer));
        if width > columns
            && let Some((cut, before)) = end.take()
        {
            pieces.push(text[start..cut].trim_end().to_owned());
            (start, width) = (cut, width - before);
        }
        at += letter.len_utf8();
        if SEPARATORS.contains(letter) {
            end = Some((at, width));
        }
    }
    pieces.push(text[start..].to_owned());
    pieces
}

/// Returns true if a terminal may interpret a character instead of showing it: control characters,
/// with which all sequences begin; characters that change the direction of text, so that it is
/// misread; characters that break lines; and invisible characters, which can hide text. The joiners
/// of scripts and emoji (U+200C, U+200D) are not among them.
pub(in crate::cli) fn is_terminal_control(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_broken_behind_separators_and_never_inside_a_word() {
        let pieces = |text: &str| break_at_separators(text, 10);
        assert_eq!(pieces("/usr/local/share/doc"), ["/usr/", "local/", "share/doc"]);
        assert_eq!(pieces("[\"Read\",\"Grep\"]"), ["[\"Read\",", "\"Grep\"]"]);
        assert_eq!(pieces("abcdefghijklmno"), ["abcdefghijklmno"]);
        assert_eq!(pieces(""), [""]);
        assert_eq!(
            pieces("\u{1b}[31mab/cdefghij\u{1b}[0m"),
            ["\u{1b}[31mab/", "cdefghij\u{1b}[0m"]
        );
        assert_eq!(break_lines("see a-word-with/a/path", 15), "see\n  a-word-with/\n  a/path");
    }

    #[test]
    fn messages_are_broken_between_words_and_colours_take_no_room() {
        let filter =
            |content| TerminalFilter { sink: Vec::<u8>::new(), is_terminal: true, content };
        let long = format!("\u{1b}[31m{}\u{1b}[0m\n", "word ".repeat(20).trim_end());
        let shown = filter(TerminalContent::Messages).shown(&long);
        let broken = break_lines(&long, 20);
        assert!(shown.starts_with("\u{1b}[31mword"), "{shown:?}");
        assert_eq!(broken.lines().nth(1), Some("  word word word"));
        assert_eq!(broken.lines().count(), 7, "{broken:?}");
        assert!(broken.ends_with("\u{1b}[0m\n"), "{broken:?}");
        let shown = filter(TerminalContent::Text).shown(&long);
        assert_eq!(shown.lines().count(), 1, "an answer keeps its lines: {shown:?}");
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
    }
}
