//! Reads a journal line by line, for reports: lines that cannot be read are reported and skipped,
//! and a file is never in memory as a whole.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use jiff::Timestamp;

use crate::process::file_reads::open_regular;
use crate::transcript::Usage;

use super::parsed_line::{JournalEntry, LineFacts, ParsedLine, ToolDetail};
use super::raw_lines::{RawLines, TooLong, buffered};
use super::reader::{RefusalReason, parse};

/// One line of a journal.
#[derive(Debug)]
pub struct JournalLine {
    /// Counted from 1.
    pub number: usize,
    /// Time of the line, if it records one.
    pub at: Option<Timestamp>,
    pub entry: Result<JournalEntry, RefusalReason>,
    /// The members of a tool's structured result that reports read.
    pub detail: Option<ToolDetail>,
    /// The token counts of a reply.
    pub usage: Option<Usage>,
    /// True if the numbers of the records show that lines before it are missing.
    pub follows_gap: bool,
}

/// The lines of a journal, from first to last.
#[derive(Debug)]
pub struct JournalLines<R> {
    raw: RawLines<R>,
    seq: u64,
}

impl JournalLines<BufReader<File>> {
    /// Opens a file without locking it. Lines that are appended meanwhile may be missing.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::new(buffered(open_regular(path)?)))
    }
}

impl<R: BufRead> JournalLines<R> {
    pub fn new(reader: R) -> Self {
        Self { raw: RawLines::new(reader), seq: 0 }
    }
}

impl<R: BufRead> Iterator for JournalLines<R> {
    type Item = io::Result<JournalLine>;

    fn next(&mut self) -> Option<Self::Item> {
        let (number, line) = match self.raw.next_line() {
            Ok(Some(found)) => found,
            Ok(None) => return None,
            Err(error) => return Some(Err(error)),
        };
        let parsed = match line {
            Ok(line) => parse(line),
            Err(TooLong) => Err(RefusalReason::Damaged("the line is too long".to_owned())),
        };
        let (entry, seq, facts) = match parsed {
            Ok(ParsedLine { entry, seq, facts, .. }) => (Ok(entry), seq, facts),
            Err(why) => (Err(why), None, LineFacts::default()),
        };
        let follows_gap = seq.is_some_and(|seq| seq != self.seq + 1);
        self.seq = seq.unwrap_or(self.seq);
        let LineFacts { timestamp, usage, detail } = facts;
        let at = timestamp.and_then(|at| at.parse().ok());
        Some(Ok(JournalLine { number, at, entry, detail, usage, follows_gap }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_lines_are_reported_and_the_others_are_read() {
        let text = "{\"type\":\"summary\"}\n\nnot JSON\n{\"type\":\"user\",\"uuid\":\"1\",\"timestamp\":\
                    \"2026-01-02T03:04:05Z\",\"message\":{\"content\":\"hi\"}}\n{\"type\":";
        let lines: Vec<JournalLine> =
            JournalLines::new(text.as_bytes()).map(|line| line.expect("no disk")).collect();
        let numbers: Vec<usize> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [1, 3, 4, 5]);
        assert!(lines[1].entry.is_err() && lines[3].entry.is_err());
        assert!(matches!(lines[2].entry, Ok(JournalEntry::Message(_))), "{lines:?}");
        assert_eq!(lines[2].at.map(|at| at.to_string()).as_deref(), Some("2026-01-02T03:04:05Z"));
    }
}
