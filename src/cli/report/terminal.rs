//! Reports as text for terminals.

use std::fmt::Write as _;

use textwrap::{Options, WordSeparator, WordSplitter, wrap};

use crate::cli::output::{columns_of, one_line};

use super::super::sessions::Table;
use super::document::{NOT_RUN, ReportDocument, ReportTable};

/// Maximum number of rows of a listing.
const LISTED_MAX: usize = 20;

/// Renders a report, in `width` columns if that is known.
pub(super) fn render(document: &ReportDocument, width: Option<usize>) -> String {
    let title = wrapped(&document.title, "", width);
    let mut text = format!("{title}\n{}\n\n", one_line(&document.status.text));
    for block in &document.blocks {
        let _ = writeln!(text, "{}", wrapped(&block.heading, "", width));
        for line in block.text.lines() {
            let _ = writeln!(text, "{}", wrapped(line, "  ", width));
        }
        text.push('\n');
    }
    let facts = document.facts.iter().map(|(label, value)| (*label, value.clone()));
    let figures = document.figures.iter().map(|figure| {
        let detail = if figure.detail.is_empty() { "" } else { " · " };
        (figure.label, format!("{}{detail}{}", figure.value, figure.detail))
    });
    let lines: Vec<(&str, String)> = facts.chain(figures).collect();
    let widest = lines.iter().map(|(label, _)| label.len()).max().unwrap_or_default();
    for (label, value) in lines {
        let _ = writeln!(text, "  {label:<widest$}  {}", one_line(&value));
    }
    for table in &document.tables {
        let _ = writeln!(text, "\n{}", table.heading);
        text.push_str(&match (table.heading, width) {
            (NOT_RUN, Some(_)) => list(table, width),
            _ => lay_out(table, width),
        });
    }
    if !document.notes.is_empty() {
        text.push('\n');
    }
    for note in &document.notes {
        let _ = writeln!(text, "{}", one_line(note));
    }
    text
}

/// Renders a table of long texts as a list: the first text of each row, and the others below it.
fn list(table: &ReportTable, width: Option<usize>) -> String {
    let mut text = String::new();
    for row in table.rows.iter().take(LISTED_MAX) {
        for (place, cell) in row.iter().enumerate() {
            let indent = if place == 0 { "  " } else { "    " };
            let _ = writeln!(text, "{}", wrapped(&cell.text, indent, width));
        }
    }
    text + &more(table.rows.len().saturating_sub(LISTED_MAX))
}

fn lay_out(table: &ReportTable, width: Option<usize>) -> String {
    let listed = if table.is_listing { LISTED_MAX } else { usize::MAX };
    let rows = table.rows.iter().take(listed);
    let rows = rows.map(|row| row.iter().map(|cell| one_line(&cell.text)).collect());
    let columns = table.columns.iter().map(|(name, column)| (name.to_uppercase(), *column));
    let mut aligned = Table { columns: columns.collect(), rows: rows.collect() };
    if let Some(width) = width {
        let spare: Vec<String> = table.spare.iter().map(|name| name.to_uppercase()).collect();
        aligned.fit(&spare.iter().map(String::as_str).collect::<Vec<_>>(), width);
    }
    aligned.lay_out(width) + &more(table.rows.len().saturating_sub(listed))
}

/// Returns the line about rows that are not listed.
fn more(rows: usize) -> String {
    match rows {
        0 => String::new(),
        rows => format!("{rows} more: --format json, html or markdown\n"),
    }
}

/// Breaks a line between words if it is wider than the terminal. Words are not broken, so that a
/// path or an address can be copied.
fn wrapped(line: &str, indent: &str, width: Option<usize>) -> String {
    let line = one_line(line);
    let Some(width) = width.filter(|width| columns_of(&line) + indent.len() > *width) else {
        return format!("{indent}{line}").trim_end().to_owned();
    };
    let options = Options::new(width)
        .initial_indent(indent)
        .subsequent_indent(indent)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    wrap(&line, options).join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::document::ReportCell;
    use super::*;

    #[test]
    fn long_lines_of_a_report_are_broken_between_words() {
        let line = "It counts words, see https://example.com/a/long/address now.";
        assert_eq!(wrapped(line, "  ", None), format!("  {line}"));
        assert_eq!(wrapped(line, "  ", Some(80)), format!("  {line}"));
        let lines = ["  It counts words, see", "  https://example.com/a/long/address", "  now."];
        assert_eq!(wrapped(line, "  ", Some(24)), lines.join("\n"));
        assert_eq!(wrapped("a  |  b", "", Some(80)), "a  |  b");
    }

    #[test]
    fn refused_calls_are_a_list_on_a_terminal() {
        let row =
            ["Bash: git push", "not allowed here"].map(|text| ReportCell::from(text.to_owned()));
        let table = ReportTable {
            heading: NOT_RUN,
            columns: Vec::new(),
            rows: vec![row.to_vec()],
            spare: &[],
            is_listing: true,
        };
        let listed = list(&table, Some(16));
        assert_eq!(listed, "  Bash: git push\n    not allowed\n    here\n");
        assert!(list(&ReportTable { rows: vec![], ..table }, Some(16)).is_empty());
        assert_eq!(more(3), "3 more: --format json, html or markdown\n");
    }
}
