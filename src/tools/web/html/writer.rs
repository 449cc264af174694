//! Writes Markdown: blocks, styles of text, tables. Pure.
//!
//! Marks of styles are written when text needs them, and end with the block. So nothing is left
//! open, whatever is missing or wrongly nested in a page.

use super::escape::{WordPlace, fence, push_word};
use super::flow::{BlockFlow, BlockGap};
use super::table::TableRows;
use super::tags::InlineMark;

/// The maximum number of nested tables that are laid out as tables. Deeper ones are plain text, so
/// that the text of cells is not copied often.
const NESTED_TABLES_MAX: usize = 8;

#[derive(Debug)]
struct OpenTable {
    rows: TableRows,
    /// The flow that contains the table.
    outer: BlockFlow,
    /// The caption, while a cell is read.
    caption: Option<BlockFlow>,
}

/// Preformatted text, in which white space is significant.
#[derive(Debug, Default)]
struct PreformattedText {
    text: String,
    language: String,
}

#[derive(Debug, Default)]
pub(super) struct MarkdownWriter {
    flow: BlockFlow,
    /// The open tables. `None` is a table that is written as plain text.
    tables: Vec<Option<OpenTable>>,
    preformatted: Option<PreformattedText>,
    /// The styles of the next text, each with the number of elements that request it.
    wanted: Vec<(InlineMark, usize)>,
    /// The styles whose marks are open.
    open: Vec<InlineMark>,
    /// The destination of the link in `wanted`.
    link: String,
    /// Code that was not written yet, because more may follow.
    code: String,
    code_depth: usize,
    limit: usize,
}

impl MarkdownWriter {
    /// Writes about `limit` bytes at most.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    pub(super) fn size(&self) -> usize {
        let size_of = |table: &OpenTable| {
            let caption = table.caption.as_ref().map_or(0, |flow| flow.out.len());
            table.outer.out.len() + caption + table.rows.bytes
        };
        self.flow.out.len() + self.tables.iter().flatten().map(size_of).sum::<usize>()
    }

    /// Returns the text of the page, after all its elements were ended.
    pub(super) fn finish(mut self) -> String {
        self.gap(BlockGap::Line);
        self.flow.finish()
    }

    // --- text ---------------------------------------------------------------------------------

    pub(super) fn text(&mut self, text: &str) {
        if let Some(block) = &mut self.preformatted {
            block.text.push_str(text);
            return;
        }
        if self.code_depth > 0 {
            push_collapsed(&mut self.code, text);
            return;
        }
        self.flush_code();
        let mut rest = text;
        while !rest.is_empty() {
            let word = rest.trim_start_matches(is_space);
            if word.len() < rest.len() {
                self.flow.space();
            }
            let (word, after) = word.split_at(word.find(is_space).unwrap_or(word.len()));
            rest = after;
            if word.is_empty() {
                continue;
            }
            self.start_text();
            let place = WordPlace {
                is_at_line_start: self.flow.leave_line_start(),
                is_in_link: self.open.contains(&InlineMark::Link),
                has_space_after: !rest.is_empty(),
            };
            push_word(&mut self.flow.out, word, place);
        }
    }

    /// Separates words, or lines of preformatted text.
    pub(super) fn space(&mut self) {
        if self.preformatted.is_some() {
            self.gap(BlockGap::Line);
        } else {
            self.text(" ");
        }
    }

    /// Ends a line within a block.
    pub(super) fn break_line(&mut self) {
        if let Some(block) = &mut self.preformatted {
            block.text.push('\n');
        } else {
            self.flush_code();
            self.flow.break_line();
        }
    }

    /// Writes a picture, or only its description where Markdown has no pictures.
    pub(super) fn image(&mut self, description: &str, destination: &str) {
        if self.preformatted.is_some() || self.code_depth > 0 {
            self.text(description);
            return;
        }
        self.flush_code();
        self.start_text();
        self.flow.leave_line_start();
        let description = description.replace(['[', ']'], "");
        self.flow.out.extend(["![", &description, "](", destination, ")"]);
    }

    pub(super) fn start_mark(&mut self, mark: InlineMark) {
        if self.code_depth == 0 {
            self.flush_code();
        }
        match self.wanted.iter_mut().find(|(wanted, _)| *wanted == mark) {
            Some((_, count)) => *count += 1,
            None => self.wanted.push((mark, 1)),
        }
    }

    pub(super) fn end_mark(&mut self, mark: InlineMark) {
        let is_of_link = mark == InlineMark::Link && self.wanted.contains(&(mark, 1));
        if self.code_depth == 0 || is_of_link {
            self.flush_code();
        }
        if is_of_link && let Some(at) = self.open.iter().position(|open| *open == mark) {
            // Another link may follow, with which it must not be joined.
            self.close_marks(at);
        }
        if let Some((_, count)) = self.wanted.iter_mut().find(|(wanted, _)| *wanted == mark) {
            *count -= 1;
            self.wanted.retain(|(_, count)| *count > 0);
        }
    }

    /// Begins a link. It ends with the block, if not before.
    pub(super) fn start_link(&mut self, destination: String) {
        if self.code_depth == 0 && self.preformatted.is_none() {
            self.end_mark(InlineMark::Link);
            self.start_mark(InlineMark::Link);
            self.link = destination;
        }
    }

    /// Begins an element of code. Adjacent ones are joined, but not blocks in two languages.
    pub(super) fn start_code(&mut self, language: Option<&str>) {
        if let Some(block) = &mut self.preformatted
            && let Some(language) = language
        {
            if block.language.is_empty() {
                language.clone_into(&mut block.language);
            }
            self.gap(BlockGap::Line);
        }
        self.code_depth += 1;
    }

    pub(super) fn end_code(&mut self) {
        self.code_depth -= 1;
    }

    fn flush_code(&mut self) {
        if self.code.is_empty() {
            return;
        }
        let code = std::mem::take(&mut self.code);
        let text = code.trim_matches(' ');
        if code.starts_with(' ') {
            self.flow.space();
        }
        if !text.is_empty() {
            self.start_text();
            self.flow.leave_line_start();
            let fence = fence(text, 1);
            let padding = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
            self.flow.out.extend([&fence, padding, text, padding, &fence]);
            if code.ends_with(' ') {
                self.flow.space();
            }
        }
    }

    /// Begins the line of a text, and opens its styles.
    fn start_text(&mut self) {
        if self.flow.has_paragraph_break() {
            self.gap(BlockGap::Blank);
        }
        let wanted = self.wanted.iter().map(|(mark, _)| mark);
        let unchanged =
            self.open.iter().zip(wanted).take_while(|(open, wanted)| open == wanted).count();
        self.close_marks(unchanged);
        self.flow.start_text();
        if self.flow.take_space() {
            self.flow.out.push(' ');
        }
        for (mark, _) in &self.wanted[unchanged..] {
            self.flow.leave_line_start();
            if *mark == InlineMark::Link && self.flow.out.ends_with('!') {
                // Without the backslash, the link would be a picture.
                self.flow.out.insert(self.flow.out.len() - 1, '\\');
            }
            self.flow.out.push_str(match mark {
                InlineMark::Strong => "**",
                InlineMark::Emphasis => "*",
                InlineMark::Struck => "~~",
                InlineMark::Link => "[",
            });
            self.open.push(*mark);
        }
    }

    /// Closes all but the first `count` marks. A closed link is not opened again.
    fn close_marks(&mut self, count: usize) {
        for mark in self.open.drain(count..).rev() {
            match mark {
                InlineMark::Strong => self.flow.out.push_str("**"),
                InlineMark::Emphasis => self.flow.out.push('*'),
                InlineMark::Struck => self.flow.out.push_str("~~"),
                InlineMark::Link => {
                    self.flow.out.extend(["](", &self.link, ")"]);
                    self.wanted.retain(|(wanted, _)| *wanted != InlineMark::Link);
                }
            }
        }
    }

    // --- blocks -------------------------------------------------------------------------------

    /// Ends the block.
    pub(super) fn gap(&mut self, gap: BlockGap) {
        if let Some(block) = &mut self.preformatted {
            if !block.text.is_empty() && !block.text.ends_with('\n') {
                block.text.push('\n');
            }
            return;
        }
        self.flush_code();
        self.close_marks(0);
        self.flow.end_block(gap);
    }

    pub(super) fn start_heading(&mut self, level: u8) {
        self.gap(BlockGap::Blank);
        self.flow.start_heading(level);
    }

    pub(super) fn end_heading(&mut self) {
        self.gap(BlockGap::Blank);
        self.flow.end_heading();
    }

    pub(super) fn start_quote(&mut self) {
        self.gap(BlockGap::Blank);
        self.flow.open_container(None, "> ".to_owned());
    }

    /// Begins a list item or a description.
    pub(super) fn start_item(&mut self, marker: String) {
        self.gap(BlockGap::Line);
        let prefix = " ".repeat(marker.len());
        self.flow.open_container(Some(marker), prefix);
    }

    /// Ends a quote, list item or description.
    pub(super) fn end_container(&mut self, gap: BlockGap) {
        self.gap(gap);
        self.flow.close_container(gap);
    }

    pub(super) fn rule(&mut self) {
        self.gap(BlockGap::Blank);
        if self.preformatted.is_none() {
            self.flow.push_lines("---", self.limit);
        }
    }

    pub(super) fn is_preformatted(&self) -> bool {
        self.preformatted.is_some()
    }

    pub(super) fn start_preformatted(&mut self, language: Option<&str>) {
        self.gap(BlockGap::Blank);
        let language = language.unwrap_or_default().to_owned();
        self.preformatted = Some(PreformattedText { text: String::new(), language });
    }

    pub(super) fn end_preformatted(&mut self) {
        let Some(block) = self.preformatted.take() else { return };
        let text = block.text.trim_start_matches('\n').trim_end();
        if !text.is_empty() {
            let fence = fence(text, 3);
            let text = [&fence, &block.language, "\n", text, "\n", &fence].concat();
            self.flow.push_lines(&text, self.limit);
        }
    }

    // --- tables -------------------------------------------------------------------------------

    /// Begins a table. Within a table with a head it is plain text, because its lines would be
    /// joined.
    pub(super) fn start_table(&mut self) {
        self.gap(BlockGap::Blank);
        let is_plain = self.tables.iter().flatten().any(|outer| outer.rows.has_head)
            || self.tables.len() >= NESTED_TABLES_MAX;
        self.tables.push((!is_plain).then(|| OpenTable {
            rows: TableRows::default(),
            outer: std::mem::take(&mut self.flow),
            caption: None,
        }));
    }

    /// Records that the innermost table has a head.
    pub(super) fn note_table_head(&mut self) {
        if let Some(Some(table)) = self.tables.last_mut() {
            table.rows.has_head = true;
        }
    }

    pub(super) fn start_row(&mut self) {
        match self.tables.last_mut() {
            Some(Some(table)) => table.rows.start_row(),
            Some(None) | None => self.gap(BlockGap::Line),
        }
    }

    pub(super) fn start_cell(&mut self) {
        if let Some(Some(_)) = self.tables.last() {
            self.gap(BlockGap::Blank);
        } else {
            self.space();
        }
        if let Some(Some(table)) = self.tables.last_mut() {
            table.caption = Some(std::mem::take(&mut self.flow));
        }
    }

    pub(super) fn end_cell(&mut self) {
        if let Some(Some(_)) = self.tables.last() {
            self.gap(BlockGap::Blank);
        }
        if let Some(Some(table)) = self.tables.last_mut()
            && let Some(caption) = table.caption.take()
        {
            let cell = std::mem::replace(&mut self.flow, caption);
            table.rows.push_cell(cell.finish());
        }
    }

    pub(super) fn end_table(&mut self) {
        self.gap(BlockGap::Blank);
        let Some(Some(table)) = self.tables.pop() else { return };
        let caption = std::mem::replace(&mut self.flow, table.outer).finish();
        for block in std::iter::once(caption).chain(table.rows.into_blocks(self.limit)) {
            if !block.is_empty() {
                self.flow.push_lines(&block, self.limit);
            }
        }
    }
}

fn is_space(one: char) -> bool {
    one.is_ascii_whitespace() || one == '\u{a0}'
}

/// Appends text with single spaces.
fn push_collapsed(out: &mut String, text: &str) {
    for one in text.chars() {
        if !is_space(one) {
            out.push(one);
        } else if !out.ends_with(' ') {
            out.push(' ');
        }
    }
}
