//! Prints whole texts to standard output.

use std::io::{self, Write};

use super::output::TerminalFilter;
use super::usage::UsageError;

/// Prints to standard output. A closed pipe is no error.
pub(super) fn print(text: &str) {
    let mut stdout = TerminalFilter::new(io::stdout().lock());
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// The same for text that [`super::output::Styling`] coloured, whose other parts are ours.
pub(super) fn print_coloured(text: &str) {
    let mut stdout = TerminalFilter::styled(io::stdout().lock());
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Prints a report, whose parts that come from others were filtered and which may be coloured.
/// Unlike for other output, a closed pipe is an error.
///
/// # Errors
/// It could not be written.
pub(super) fn print_report(text: &str) -> Result<(), UsageError> {
    let mut stdout = TerminalFilter::styled(io::stdout().lock());
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| UsageError::new(format!("standard output cannot be written: {error}")))
}
