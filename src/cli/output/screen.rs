//! What standard output is, as far as the layout of reports depends on it.

use std::io::{self, IsTerminal};

use console::Term;
use nix::sys::stat::fstat;

use super::style::Styling;
use crate::config::environment::{Variables, colors};

/// Longer lines are hard to read.
const COLUMNS_MAX: usize = 100;

/// In fewer columns text is cut by the terminal.
const COLUMNS_MIN: usize = 40;

/// The width of reports that no terminal shows.
const COLUMNS_USUAL: usize = 80;

/// What standard output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    pub is_terminal: bool,
    /// How wide text may be.
    pub columns: usize,
    /// How many lines a terminal shows.
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

/// Whether standard output and standard error are one file, as with `2>&1`: what is written to either
/// is read by the same program.
pub fn is_stderr_stdout() -> bool {
    let identity = |stat: nix::sys::stat::FileStat| (stat.st_dev, stat.st_ino);
    match (fstat(io::stdout()), fstat(io::stderr())) {
        (Ok(stdout), Ok(stderr)) => identity(stdout) == identity(stderr),
        (Err(_), _) | (_, Err(_)) => false,
    }
}
