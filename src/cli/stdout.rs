//! Prints whole texts to standard output.

use std::io::{self, Write};

use super::output::TerminalFilter;
use super::usage::UsageError;
use crate::process::was_stdout_closed;

/// Prints to standard output. A closed pipe is not an error.
///
/// # Errors
/// It could not be written.
pub(super) fn print(text: &str) -> Result<(), UsageError> {
    unless_closed(write(TerminalFilter::new(io::stdout().lock()), text))
}

/// Like [`print()`], for text that may be coloured and whose untrusted parts were filtered.
///
/// # Errors
/// It could not be written.
pub(super) fn print_report(text: &str) -> Result<(), UsageError> {
    unless_closed(write(TerminalFilter::styled(io::stdout().lock()), text))
}

fn write(mut stdout: impl Write, text: &str) -> io::Result<()> {
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}

/// Returns true if the reader has closed its end, as with `| head`. If standard output was closed
/// from the start, there was no reader.
pub(super) fn is_reader_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe && !was_stdout_closed()
}

fn unless_closed(written: io::Result<()>) -> Result<(), UsageError> {
    match written {
        Err(error) if is_reader_gone(&error) => Ok(()),
        written => written.map_err(|error| UsageError::unwritable(&error)),
    }
}
