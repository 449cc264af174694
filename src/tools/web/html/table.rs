//! Lays out tables in Markdown. Pure.

/// The rows of a table, whose cells are Markdown.
#[derive(Debug, Default)]
pub(super) struct TableRows {
    rows: Vec<Vec<String>>,
    /// The size of all cells.
    pub(super) bytes: usize,
    pub(super) has_head: bool,
}

impl TableRows {
    pub(super) fn start_row(&mut self) {
        self.rows.push(Vec::new());
    }

    pub(super) fn push_cell(&mut self, text: String) {
        self.bytes += text.len();
        match self.rows.last_mut() {
            Some(row) => row.push(text),
            None => self.rows.push(vec![text]),
        }
    }

    /// Returns the blocks of a table: the table itself, or its cells if it is used for layout only.
    /// About `limit` bytes at most.
    pub(super) fn into_blocks(mut self, limit: usize) -> Vec<String> {
        self.rows.retain(|row| row.iter().any(|cell| !cell.is_empty()));
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let is_small = self.rows.iter().flatten().all(|cell| !cell.contains('\n'));
        if columns > 1 && (self.has_head || is_small && self.rows.len() > 1) {
            vec![self.grid(columns, limit)]
        } else {
            let mut cells: Vec<_> = self.rows.into_iter().flatten().collect();
            cells.retain(|cell| !cell.is_empty());
            cells
        }
    }

    /// Formats a table. One without a head gets an empty head, which Markdown requires.
    fn grid(self, columns: usize, limit: usize) -> String {
        let mut text = String::new();
        let mut rows = self.rows.into_iter();
        let head = if self.has_head { rows.next() } else { None };
        push_row(&mut text, &head.unwrap_or_default(), columns);
        text.push_str("\n|");
        text.push_str(&" --- |".repeat(columns));
        for row in rows {
            if text.len() > limit {
                break;
            }
            text.push('\n');
            push_row(&mut text, &row, columns);
        }
        text
    }
}

fn push_row(text: &mut String, row: &[String], columns: usize) {
    text.push('|');
    for at in 0..columns {
        text.push(' ');
        for (number, line) in row.get(at).into_iter().flat_map(|cell| cell.lines()).enumerate() {
            text.extend((number > 0 && !line.is_empty()).then_some(' '));
            text.push_str(&line.trim().replace('|', "\\|"));
        }
        text.push_str(" |");
    }
}
