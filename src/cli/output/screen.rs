//! What standard output is, as far as the layout of reports depends on it.

use std::io::{self, IsTerminal};

use console::Term;

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
