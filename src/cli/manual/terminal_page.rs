//! Lays out a manual page for a terminal: headings, paragraphs, lists, code and tables.
//!
//! A table becomes a list of terms, as in the man page: its first column is the term, and each
//! further column from the third on is introduced by its heading.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::cli::output::{Paragraph, Screen, Styling, Tone};

/// Indentation of text below a heading, and of each list in it.
const INDENT: usize = 4;

/// Maximum width of a term beside its text. The text of wider terms is below them.
const TERM_MAX: usize = 24;

/// Renders the page as text, in lines that fit the screen.
pub(super) fn lay_out(markdown: &str, screen: &Screen) -> String {
    let mut page = PageLayout {
        screen,
        text: String::new(),
        paragraph: Paragraph::default(),
        tone: Tone::Plain,
        lists: Vec::new(),
        table: TableRows::default(),
        in_code: false,
        is_tight: true,
    };
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        page.event(event);
    }
    page.text
}

/// A list that is being laid out.
struct OpenList {
    /// The number of the next item; `None` for bullets.
    next: Option<u64>,
    /// The mark of an item, until it is written.
    mark: Option<String>,
}

/// The rows of a table that is being read, with its headings.
#[derive(Default)]
struct TableRows {
    headings: Vec<String>,
    rows: Vec<Vec<Paragraph>>,
    in_head: bool,
}

struct PageLayout<'a> {
    screen: &'a Screen,
    text: String,
    /// The text that was read, and is not written yet.
    paragraph: Paragraph,
    tone: Tone,
    lists: Vec<OpenList>,
    table: TableRows,
    in_code: bool,
    /// True if no empty line follows, as after a heading or another empty line.
    is_tight: bool,
}

impl PageLayout<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum of many variants")]
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.in_code => {
                for line in text.lines() {
                    let line = format!("{}{line}", " ".repeat(self.indent()));
                    self.line(line.trim_end());
                }
            }
            Event::Text(text) => self.paragraph.push(self.tone, &text),
            // Without bold type, backticks mark text to be typed.
            Event::Code(text) if self.screen.styling.is_plain() => {
                self.paragraph.push(Tone::Plain, &format!("`{text}`"));
            }
            Event::Code(text) => self.paragraph.push(Tone::Strong, &text),
            Event::SoftBreak | Event::HardBreak => self.paragraph.push(Tone::Plain, " "),
            _ => {}
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum of many variants")]
    fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Paragraph => self.gap(),
            Tag::Heading { .. } => {
                self.gap();
                self.tone = Tone::Strong;
            }
            Tag::CodeBlock(CodeBlockKind::Fenced(_) | CodeBlockKind::Indented) => {
                self.gap();
                self.in_code = true;
            }
            Tag::List(first) => {
                // An item has its text before the list in it.
                self.flush(self.indent());
                if self.lists.is_empty() {
                    self.gap();
                }
                self.lists.push(OpenList { next: *first, mark: None });
            }
            Tag::Item => {
                if let Some(list) = self.lists.last_mut() {
                    list.mark = Some(match &mut list.next {
                        None => "•".to_owned(),
                        Some(number) => {
                            *number += 1;
                            format!("{}.", *number - 1)
                        }
                    });
                }
            }
            Tag::Emphasis | Tag::Strong => self.tone = Tone::Strong,
            Tag::Table(_) => {
                self.gap();
                self.table = TableRows::default();
            }
            Tag::TableHead => self.table.in_head = true,
            Tag::TableRow => self.table.rows.push(Vec::new()),
            _ => {}
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum of many variants")]
    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => {
                self.tone = Tone::Plain;
                self.flush(if level >= HeadingLevel::H3 { INDENT / 2 } else { 0 });
                // The text follows its heading at once, but for the title.
                self.is_tight = level != HeadingLevel::H1;
            }
            TagEnd::Paragraph | TagEnd::Item => {
                self.flush(self.indent());
                self.is_tight = false;
            }
            TagEnd::Emphasis | TagEnd::Strong => self.tone = Tone::Plain,
            TagEnd::CodeBlock => {
                self.in_code = false;
                self.is_tight = false;
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.is_tight = false;
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.paragraph);
                if self.table.in_head {
                    let heading = cell.wrap(usize::MAX, Styling::default());
                    self.table.headings.push(heading.concat());
                } else if let Some(row) = self.table.rows.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::TableHead => self.table.in_head = false,
            TagEnd::Table => {
                self.write_table();
                self.is_tight = false;
            }
            _ => {}
        }
    }

    /// The column at which text begins.
    fn indent(&self) -> usize {
        INDENT * (self.lists.len() + 1)
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Adds an empty line before a new block, unless the block belongs to the one above it.
    fn gap(&mut self) {
        let has_mark = self.lists.last().is_some_and(|list| list.mark.is_some());
        if !self.is_tight && !has_mark {
            self.text.push('\n');
        }
        self.is_tight = true;
    }

    /// Writes the collected text, with the mark of its item.
    fn flush(&mut self, indent: usize) {
        let paragraph = std::mem::take(&mut self.paragraph);
        if paragraph.is_empty() {
            return;
        }
        let mark = self.lists.last_mut().and_then(|list| list.mark.take());
        let width = self.screen.columns.saturating_sub(indent);
        for (index, line) in paragraph.wrap(width, self.screen.styling).iter().enumerate() {
            let before = match &mark {
                Some(mark) if index == 0 => format!("{mark:>width$} ", width = indent - 1),
                Some(_) | None => " ".repeat(indent),
            };
            self.line(&(before + line));
        }
    }

    fn write_table(&mut self) {
        let TableRows { headings, rows, .. } = std::mem::take(&mut self.table);
        let (indent, styling) = (self.indent(), self.screen.styling);
        let widest = rows.iter().filter_map(|row| row.first()).map(Paragraph::columns).max();
        let widest = widest.unwrap_or_default();
        let is_beside = widest <= TERM_MAX && headings.len() == 2;
        let text_at = if is_beside { indent + widest + 2 } else { indent + INDENT };
        for row in rows {
            let mut cells = row.into_iter();
            let term = cells.next().unwrap_or_default();
            let mut text = Paragraph::default();
            for (index, cell) in cells.enumerate().filter(|(_, cell)| !cell.is_empty()) {
                if index > 0 {
                    let heading = headings.get(index + 1).map_or("", String::as_str);
                    text.push(Tone::Plain, &format!(" {heading}: "));
                }
                text.append(cell);
            }
            let width = self.screen.columns.saturating_sub(text_at);
            let mut lines = text.wrap(width, styling).into_iter();
            let shown = term.wrap(self.screen.columns.saturating_sub(indent), styling);
            let (before, below) = (" ".repeat(indent), " ".repeat(text_at));
            if is_beside {
                let padding = " ".repeat(text_at - indent - term.columns());
                let first = lines.next().unwrap_or_default();
                self.line(format!("{before}{}{padding}{first}", shown.concat()).trim_end());
            } else {
                for line in shown {
                    self.line(&format!("{before}{line}"));
                }
            }
            for line in lines {
                self.line(&format!("{below}{line}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::columns_of;
    use crate::config::environment::ColorChoice;

    fn screen(columns: usize, colours: ColorChoice) -> Screen {
        let styling = Styling::of(colours, true);
        Screen { is_terminal: true, columns, rows: 24, styling }
    }

    const PAGE: &str = "# outlast-mcp(7): about x\n\n## One thing\n\nText with `code` and [a \
        link](x.md)\nin lines.\n\n- first\n- second item\n  that is long\n\n1. one\n2. two\n\n\
        ```sh\noutlast \"x\"  --y\n```\n\n<!-- table: t -->\n\n| code | meaning |\n|---|---|\n\
        | `0` | All went well, and more text. |\n| `75` | Later. |\n\n<!-- end of table -->\n\n\
        ### Below\n\n| name | meaning | Default |\n|---|---|---|\n| `a.b` | It is a. | `3` |\n\
        | `c` | It is c. | |\n";

    #[test]
    fn a_page_fits_the_screen_and_has_terms_for_the_rows_of_tables() {
        let text = lay_out(PAGE, &screen(30, ColorChoice::Never));
        let wanted = "outlast-mcp(7): about x\n\nOne thing\n    Text with `code` and a\n    link in \
            lines.\n\n      • first\n      • second item that is\n        long\n\n     1. one\n     \
            2. two\n\n    outlast \"x\"  --y\n\n    `0`   All went well, and\n          more text.\n    \
            `75`  Later.\n\n  Below\n    `a.b`\n        It is a. Default: `3`\n    `c`\n        It is \
            c.\n";
        assert_eq!(text, wanted, "{text}");
    }

    #[test]
    fn headings_and_code_are_bold_where_colours_are_allowed() {
        let text = lay_out(PAGE, &screen(80, ColorChoice::Auto));
        assert!(text.contains("\n\u{1b}[1mOne\u{1b}[0m \u{1b}[1mthing\u{1b}[0m\n"), "{text}");
        assert!(text.contains("with \u{1b}[1mcode\u{1b}[0m and a link"), "{text}");
        assert!(!text.contains('`'), "{text}");
        let widest = text.lines().map(columns_of).max();
        assert!(widest.is_some_and(|widest| widest <= 80 + 24), "{text}");
    }
}
