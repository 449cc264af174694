//! Reports as Markdown, for step summaries of CI jobs and comments.

use std::fmt::Write as _;

use crate::cli::output::one_line;

use super::super::sessions::Column;
use super::answer;
use super::document::{BlockForm, CellTone, ReportBlock, ReportCell, ReportDocument, ReportTable};

/// Maximum number of rows of a listing: a step summary holds 1 MiB.
const LISTED_MAX: usize = 500;

/// Renders a report.
pub(in crate::cli) fn render(document: &ReportDocument) -> String {
    let mut text = format!("### outlast: {}\n\n", marked(&document.status));
    // The outcome comes first, because most readers look for it.
    for block in &document.blocks {
        let _ = writeln!(text, "{}", render_block(block));
    }
    let _ = write!(text, "> {}\n\n", quoted(&document.title));
    let labels = document.figures.iter().map(|figure| figure.label.to_owned());
    let values = document.figures.iter().map(|figure| {
        let value = escaped(&figure.value);
        match figure.detail.as_str() {
            "" => value,
            detail => format!("{value}<br>{}", escaped(detail)),
        }
    });
    row(&mut text, labels);
    row(&mut text, document.figures.iter().map(|_| "---:".to_owned()));
    row(&mut text, values);
    for table in &document.tables {
        add_table(&mut text, table);
    }
    if !document.facts.is_empty() {
        text.push('\n');
        let facts = document.facts.iter();
        let facts =
            facts.map(|(name, value)| format!("{}: {}", name.to_lowercase(), escaped(value)));
        let _ = writeln!(text, "{}", facts.collect::<Vec<_>>().join(" · "));
    }
    for note in &document.notes {
        let _ = writeln!(text, "\n{}", quoted(note));
    }
    text
}

fn render_block(block: &ReportBlock) -> String {
    match block.form {
        BlockForm::Answer => answer::markdown(&block.text),
        BlockForm::Data => answer::fenced(&block.text, "json"),
        BlockForm::Output => {
            format!("**{}**\n\n{}", escaped(&block.heading), answer::fenced(&block.text, ""))
        }
    }
}

fn add_table(text: &mut String, table: &ReportTable) {
    let _ = writeln!(text, "\n**{}**\n", table.heading);
    row(text, table.columns.iter().map(|(name, _)| (*name).to_owned()));
    let aligned = table.columns.iter().map(|(_, column)| match column {
        Column::Left => "---".to_owned(),
        Column::Right => "---:".to_owned(),
    });
    row(text, aligned);
    let listed = if table.is_listing { LISTED_MAX } else { usize::MAX };
    for cells in table.rows.iter().take(listed) {
        row(text, cells.iter().map(table_cell));
    }
    let more = table.rows.len().saturating_sub(listed);
    if more > 0 {
        let _ = writeln!(text, "\n{more} more");
    }
}

fn row(text: &mut String, cells: impl Iterator<Item = String>) {
    text.push('|');
    for cell in cells {
        let _ = write!(text, " {cell} |");
    }
    text.push('\n');
}

/// Renders a text with a sign for its meaning.
fn marked(cell: &ReportCell) -> String {
    let sign = match cell.tone {
        CellTone::Plain => "",
        CellTone::Good => "✅ ",
        CellTone::Bad => "❌ ",
        CellTone::Open => "⏳ ",
    };
    format!("{sign}{}", escaped(&cell.text))
}

/// Renders a cell of a table. Numbers have no sign.
fn table_cell(cell: &ReportCell) -> String {
    let is_number =
        cell.text.starts_with(|first: char| first.is_ascii_digit() || "-+<>".contains(first));
    if is_number { escaped(&cell.text) } else { marked(cell) }
}

/// Escapes a text at the start of a line, where further characters have a meaning.
fn quoted(text: &str) -> String {
    let text = escaped(text);
    let text = text.trim_start();
    let digits = text.len() - text.trim_start_matches(|one: char| one.is_ascii_digit()).len();
    if text.starts_with(['#', '+', '-', '=']) {
        return format!("\\{text}");
    }
    match text.as_bytes().get(digits) {
        Some(b'.' | b')') if digits > 0 => format!("{}\\{}", &text[..digits], &text[digits..]),
        Some(_) | None => text.to_owned(),
    }
}

/// Escapes untrusted text for one line of Markdown or a cell. No character of it has a meaning for
/// Markdown or HTML.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let text = one_line(text);
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            // A mention, a reference to an issue or an address would become a link.
            '@' => safe.push_str("&#64;"),
            ':' if rest.as_str().starts_with("//") => safe.push_str("&#58;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '$' | '!' | '#' => {
                safe.push('\\');
                safe.push(letter);
            }
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use pulldown_cmark::{Event, Options, Parser};

    use super::*;

    const HOSTILE: &str = "<script>x</script> | a `b` **c** [d](e) ![f](g) # @h &lt; \\| $i$ ~~j~~ \u{1b}[0m\n# k\r%0A";

    #[test]
    fn hostile_text_stays_text() {
        for line in [quoted(HOSTILE), quoted("# x"), quoted("1. x"), quoted("- x"), quoted("===")] {
            for event in Parser::new_ext(&line, Options::all()) {
                let is_plain = matches!(
                    event,
                    Event::Text(_)
                        | Event::Start(pulldown_cmark::Tag::Paragraph)
                        | Event::End(pulldown_cmark::TagEnd::Paragraph)
                );
                assert!(is_plain, "{line}: {event:?}");
            }
        }
    }

    #[test]
    fn a_cell_keeps_its_text_and_its_place() {
        let table = format!("| {} | b |\n|---|---|\n| {} | y |\n", escaped("h"), escaped(HOSTILE));
        let mut texts = String::new();
        let mut cells = 0;
        for event in Parser::new_ext(&table, Options::ENABLE_TABLES) {
            if let Event::Text(text) = &event {
                texts.push_str(text);
            } else if matches!(event, Event::Start(pulldown_cmark::Tag::TableCell)) {
                cells += 1;
            }
        }
        assert_eq!(cells, 4, "{table}");
        assert_eq!(texts, format!("hb{}y", one_line(HOSTILE)));
    }
}
