//! The properties of standard output that the layout of reports depends on.

use std::io::{self, IsTerminal};

use console::Term;
use nix::sys::stat::fstat;

use super::style::Styling;
use crate::cli::args::OutputFormat;
use crate::config::environment::{Variables, colors};

/// Maximum width of reports: longer lines are hard to read.
const COLUMNS_MAX: usize = 100;

/// Minimum width of reports. A narrower terminal cuts the text.
const COLUMNS_MIN: usize = 40;

/// Width of reports that are not shown on a terminal.
const COLUMNS_USUAL: usize = 80;

/// Standard output, as far as reports depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    pub is_terminal: bool,
    /// Maximum width of text, in columns.
    pub columns: usize,
    /// Number of lines of the terminal; `usize::MAX` if there is none.
    pub rows: usize,
    pub styling: Styling,
}

impl Screen {
    pub fn of_stdout(variables: &Variables) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let size = is_terminal.then(|| Term::stdout().size_checked()).flatten();
        let (rows, columns) = size.map_or((usize::MAX, COLUMNS_USUAL), |(rows, columns)| {
            (usize::from(rows), usize::from(columns).clamp(COLUMNS_MIN, COLUMNS_MAX))
        });
        let styling = Styling::of(colors(variables), is_terminal);
        Self { is_terminal, columns, rows, styling }
    }
}

/// Returns true if messages on standard error would break the requested format of standard output,
/// as in `OUT=$(outlast --output-format json ... 2>&1)`. The result contains these messages.
pub fn is_result_alone(requested: Option<OutputFormat>) -> bool {
    let is_json = match requested {
        Some(OutputFormat::Json | OutputFormat::StreamJson) => true,
        Some(OutputFormat::Text) | None => false,
    };
    is_json && !io::stdout().is_terminal() && is_stderr_stdout()
}

/// Returns true if standard output and standard error are one file, as with `2>&1`: both are read
/// by the same program.
pub fn is_stderr_stdout() -> bool {
    let identity = |stat: nix::sys::stat::FileStat| (stat.st_dev, stat.st_ino);
    match (fstat(io::stdout()), fstat(io::stderr())) {
        (Ok(stdout), Ok(stderr)) => identity(stdout) == identity(stderr),
        (Err(_), _) | (_, Err(_)) => false,
    }
}
