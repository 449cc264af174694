//! Aligned columns, cut to the width of a terminal.

use console::{Term, truncate_str};

use crate::cli::output::columns_of;

/// Minimum width of the last column.
const LAST_MIN: usize = 12;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Column {
    Left,
    Right,
}

/// Returns the width of the terminal at standard output. `None`: it is not a terminal, and nothing
/// is cut.
pub(in crate::cli) fn terminal_width() -> Option<usize> {
    let term = Term::stdout();
    let (_rows, columns) = term.features().is_attended().then(|| term.size_checked()).flatten()?;
    Some(usize::from(columns))
}

/// A table, whose texts have no control characters.
pub(in crate::cli) struct Table {
    /// The heading and the alignment of each column.
    pub(in crate::cli) columns: Vec<(String, Column)>,
    pub(in crate::cli) rows: Vec<Vec<String>>,
}

impl Table {
    /// Removes columns, the first of `spare` first, until the table fits `width`.
    pub(in crate::cli) fn fit(&mut self, spare: &[&str], width: usize) {
        for name in spare {
            if self.width_before_last() + LAST_MIN <= width {
                return;
            }
            if let Some(index) = self.columns.iter().position(|(known, _)| known == name) {
                self.columns.remove(index);
                for row in &mut self.rows {
                    row.remove(index);
                }
            }
        }
    }

    /// Returns the width of a column, including its heading.
    fn width_of(&self, index: usize) -> usize {
        let heading = self.columns.get(index).map_or(0, |(name, _)| columns_of(name));
        let cells = self.rows.iter().filter_map(|row| row.get(index));
        cells.map(|cell| columns_of(cell)).max().unwrap_or_default().max(heading)
    }

    fn width_before_last(&self) -> usize {
        (0..self.columns.len().saturating_sub(1)).map(|index| self.width_of(index) + 2).sum()
    }

    /// Lays the rows out in columns that are as wide as their widest text. The last column takes
    /// the room that is left in `width`.
    pub(in crate::cli) fn lay_out(&self, width: Option<usize>) -> String {
        let last = self.columns.len().saturating_sub(1);
        let widths: Vec<usize> = (0..last).map(|index| self.width_of(index)).collect();
        let room = width.map(|width| width.saturating_sub(self.width_before_last()).max(LAST_MIN));
        let headings = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let mut text = String::new();
        for row in [&headings].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for (index, (cell, (_, column))) in row.iter().zip(&self.columns).enumerate() {
                if index == last {
                    line.push_str(&truncate_str(cell, room.unwrap_or(usize::MAX), "..."));
                    continue;
                }
                let padding = " ".repeat(widths[index].saturating_sub(columns_of(cell)));
                match column {
                    Column::Left => line.extend([cell, padding.as_str()]),
                    Column::Right => line.extend([padding.as_str(), cell]),
                }
                line.push_str("  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_the_terminal() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows =
            vec![row(["a", "1", "short"]), row(["bcd", "22", "日本語日本語日本語 and more"])];
        let columns = [("A", Column::Left), ("B", Column::Right), ("C", Column::Left)];
        let columns = columns.map(|(name, column)| (name.to_owned(), column)).to_vec();
        let mut table = Table { columns, rows };
        let text = table.lay_out(Some(24));
        assert_eq!(text, "A     B  C\na     1  short\nbcd  22  日本語日本語...\n");
        assert!(table.lay_out(None).ends_with("and more\n"));
        table.fit(&["B", "A"], 17);
        assert_eq!(table.lay_out(Some(17)), "A    C\na    short\nbcd  日本語日...\n");
    }
}
