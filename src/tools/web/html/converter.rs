//! Converts the tags and texts of a page, one after another. Pure.
//!
//! Missing tags and wrong nesting are handled approximately as in browsers: an element ends where
//! another begins that it cannot contain, and end tags without an element are ignored.

use html5gum::Tokenizer;
use html5gum::emitters::callback::CallbackEmitter;
use tokio_util::sync::CancellationToken;

use super::ConvertedPage;
use super::escape::destination;
use super::flow::BlockGap;
use super::page_targets::PageTargets;
use super::tags::{InlineMark, KnownTag, TagRole, raw_content};
use super::tokens::{PageToken, StartTag, TokenReader};
use super::writer::MarkdownWriter;
use crate::text::words_joined;

/// The maximum nesting depth, about that of browsers. Only the text of deeper elements is
/// converted.
const DEPTH_MAX: usize = 512;
/// The maximum size of the text: this multiple of the size of the page, and a constant.
const GROWTH_MAX: usize = 4;
const GROWTH_BYTES: usize = 64 << 10;
/// The absolute maximum of the text, in bytes: the size of the largest page, and a constant.
const TEXT_BYTES_MAX: usize = (10 << 20) + GROWTH_BYTES;
/// The reason that the end of a page is left out, if its text grows too much.
const GROWN: &str = "as Markdown it is more than 4 times as long";
const TITLE_CHARS_MAX: usize = 200;
/// The largest number of a list item: Markdown has numbers of at most nine digits.
const NUMBER_MAX: u32 = 999_999_999;

/// Converts a page, unless it is stopped.
pub(super) fn to_markdown(html: &str, stop: &CancellationToken) -> ConvertedPage {
    let limit = (html.len() * GROWTH_MAX + GROWTH_BYTES).min(TEXT_BYTES_MAX);
    let mut tokens =
        Tokenizer::new_with_emitter(html, CallbackEmitter::new(TokenReader::default()));
    let writer = MarkdownWriter::new(limit);
    let mut page = TokenConverter { writer, ..TokenConverter::default() };
    let mut is_cut = false;
    while let Some(Ok(token)) = tokens.next() {
        match token {
            PageToken::StartTag(tag) => {
                let is_html = !page.is_in_svg();
                if let Some(state) = raw_content(&tag.name).filter(|_| is_html) {
                    tokens.set_state(state);
                }
                page.start_tag(&tag);
            }
            PageToken::EndTag(name) => page.end_tag(&name),
            PageToken::Text(text) => page.text(&text),
        }
        is_cut = page.writer.size() > limit;
        if is_cut || stop.is_cancelled() {
            break;
        }
    }
    page.close_to(0);
    let mut text = page.writer.finish();
    // The missing end tags may have made it larger.
    is_cut |= text.len() > limit;
    text.truncate(text.floor_char_boundary(limit));
    let is_huge = limit == TEXT_BYTES_MAX;
    let why = if is_huge { "as Markdown it is longer than 10 MB" } else { GROWN };
    let cut = is_cut.then_some(why);
    ConvertedPage { text, title: page.title, targets: page.targets, cut }
}

#[derive(Debug)]
struct OpenElement {
    tag: KnownTag,
    role: TagRole,
    /// The number of the next item of an ordered list.
    number: u32,
}

#[derive(Debug)]
struct SkippedElement {
    name: Vec<u8>,
    /// The number of open elements of this name.
    depth: usize,
    /// The number of open `foreignObject` elements, which contain HTML in an SVG.
    foreign_depth: usize,
}

#[derive(Debug, Default)]
struct TokenConverter {
    writer: MarkdownWriter,
    open: Vec<OpenElement>,
    /// The number of open elements beyond the depth limit.
    too_deep: usize,
    skipped: Option<SkippedElement>,
    title: Option<String>,
    is_in_title: bool,
    targets: PageTargets,
}

impl SkippedElement {
    fn new(name: &[u8]) -> Self {
        Self { name: name.to_vec(), depth: 1, foreign_depth: 0 }
    }

    fn is_svg(&self) -> bool {
        self.name == b"svg"
    }

    /// True if an element cannot be within this one, which then lacks its end tag.
    fn excludes(&self, tag: Option<KnownTag>) -> bool {
        let is_html =
            |role: TagRole| role.is_structure() && role != TagRole::Mark(InlineMark::Link);
        self.is_svg() && self.foreign_depth == 0 && tag.is_some_and(|tag| is_html(tag.role))
    }

    fn enter(&mut self, tag: &StartTag) {
        if self.is_svg() && tag.self_closing {
            return;
        }
        self.depth += usize::from(tag.name == self.name);
        self.foreign_depth += usize::from(tag.name == b"foreignobject");
    }

    fn leave(&mut self, name: &[u8]) {
        self.depth -= usize::from(name == self.name);
        let is_foreign = name == b"foreignobject";
        self.foreign_depth = self.foreign_depth.saturating_sub(usize::from(is_foreign));
    }
}

impl TokenConverter {
    /// True in an SVG, where names have other meanings than in HTML.
    fn is_in_svg(&self) -> bool {
        self.skipped.as_ref().is_some_and(SkippedElement::is_svg)
    }

    fn text(&mut self, text: &[u8]) {
        if self.skipped.is_some() {
            return;
        }
        let mut text = String::from_utf8_lossy(text);
        if text.contains('\0') {
            text = text.replace('\0', "").into();
        }
        if !self.is_in_title {
            self.writer.text(&text);
        } else if self.title.is_none() {
            let title: String = words_joined(&text).chars().take(TITLE_CHARS_MAX).collect();
            self.title = Some(title).filter(|title| !title.is_empty());
        }
    }

    // --- start tags ---------------------------------------------------------------------------

    fn start_tag(&mut self, tag: &StartTag) {
        self.is_in_title = false;
        let known = KnownTag::by_name(&tag.name);
        if let Some(skipped) = self.skipped.as_mut().filter(|skipped| !skipped.excludes(known)) {
            skipped.enter(tag);
            return;
        }
        self.skipped = None;
        self.targets.read(tag);
        if let Some(known) = known {
            self.start_known(known, tag);
        }
    }

    fn start_known(&mut self, known: KnownTag, tag: &StartTag) {
        let role =
            if self.writer.is_preformatted() { known.role.in_preformatted() } else { known.role };
        if role.is_structure() && self.open.len() >= DEPTH_MAX {
            self.too_deep += usize::from(role.needs_end_tag());
            self.flatten(role);
            return;
        }
        if role.ends_paragraph() {
            // The paragraph that is open, if only styles are within it.
            self.close_nearest(|role| role == TagRole::Paragraph, |role| !role.is_inline());
        }
        match role {
            TagRole::Block | TagRole::Paragraph => self.writer.gap(BlockGap::Blank),
            TagRole::Heading(level) => self.writer.start_heading(level),
            TagRole::Quote => self.writer.start_quote(),
            TagRole::List { .. } => self.writer.gap(self.list_gap()),
            TagRole::Item => self.start_item(tag),
            TagRole::Term => {
                self.close_nearest(TagRole::is_of_description, TagRole::contains_items);
                self.writer.gap(BlockGap::Blank);
            }
            TagRole::Description => {
                self.close_nearest(TagRole::is_of_description, TagRole::contains_items);
                self.writer.start_item(": ".to_owned());
            }
            TagRole::Preformatted => self.writer.start_preformatted(language(tag).as_deref()),
            TagRole::Code => self.writer.start_code(language(tag).as_deref()),
            TagRole::Mark(InlineMark::Link) => self.start_link(known, tag),
            TagRole::Mark(mark) => self.writer.start_mark(mark),
            TagRole::Table => self.writer.start_table(),
            TagRole::TableHead => {
                self.close_cell();
                return self.writer.note_table_head();
            }
            TagRole::Row => {
                self.close_cell();
                return self.writer.start_row();
            }
            TagRole::Cell { is_head } => {
                if !self.close_cell() {
                    return self.writer.space();
                }
                if is_head {
                    self.writer.note_table_head();
                }
                self.writer.start_cell();
            }
            TagRole::Image => return self.image(tag),
            TagRole::Break => return self.writer.break_line(),
            TagRole::Rule => return self.writer.rule(),
            TagRole::Space | TagRole::Button => return self.writer.space(),
            TagRole::Skipped => {
                let is_empty = tag.self_closing && tag.name == b"svg";
                self.skipped = (!is_empty).then(|| SkippedElement::new(&tag.name));
                return;
            }
            TagRole::Title => {
                self.is_in_title = true;
                return;
            }
        }
        let start = tag.attribute("start").and_then(|start| start.trim().parse().ok());
        self.open.push(OpenElement { tag: known, role, number: start.unwrap_or(1) });
    }

    /// Separates the text of an element beyond the depth limit.
    fn flatten(&mut self, role: TagRole) {
        if role.is_cell() {
            self.writer.space();
        } else if !role.is_inline() {
            self.writer.gap(BlockGap::Blank);
        }
    }

    fn start_item(&mut self, tag: &StartTag) {
        self.close_nearest(|role| role == TagRole::Item, TagRole::contains_items);
        let list = self.find(|open| open.role.is_list(), TagRole::is_cell);
        let mut marker = "- ".to_owned();
        if let Some(list) = list.map(|at| &mut self.open[at])
            && list.role == (TagRole::List { is_ordered: true })
        {
            let value = tag.attribute("value").and_then(|value| value.trim().parse().ok());
            let number = value.unwrap_or(list.number).min(NUMBER_MAX);
            list.number = number + 1;
            marker = format!("{number}. ");
        }
        self.writer.start_item(marker);
    }

    fn start_link(&mut self, known: KnownTag, tag: &StartTag) {
        // Links cannot be within one another.
        self.end_inline(known);
        if let Some(address) = tag.attribute("href") {
            let title = tag.attribute("title");
            self.writer.start_link(destination(&address, title.as_deref()));
        }
    }

    fn image(&mut self, tag: &StartTag) {
        let Some(address) = tag.attribute("src") else { return };
        let description = words_joined(&tag.attribute("alt").unwrap_or_default());
        let is_inline = address.trim_start().starts_with("data:");
        if is_inline && description.is_empty() {
            return;
        }
        // The data of a picture are of no use as text.
        let address = if is_inline { "data:" } else { &*address };
        let title = tag.attribute("title");
        self.writer.image(&description, &destination(address, title.as_deref()));
    }

    // --- end tags -----------------------------------------------------------------------------

    fn end_tag(&mut self, name: &[u8]) {
        self.is_in_title = false;
        if let Some(skipped) = &mut self.skipped {
            skipped.leave(name);
            self.skipped.take_if(|skipped| skipped.depth == 0);
            return;
        }
        let Some(known) = KnownTag::by_name(name) else { return };
        let role = known.role;
        if role.is_structure() && self.too_deep > 0 {
            self.too_deep -= usize::from(role.needs_end_tag());
            self.flatten(role);
            return;
        }
        match role {
            TagRole::Mark(_) | TagRole::Code => self.end_inline(known),
            TagRole::TableHead | TagRole::Row | TagRole::Cell { .. } => {
                self.close_cell();
            }
            TagRole::Heading(_) => self.close_nearest(TagRole::is_heading, TagRole::is_cell),
            TagRole::Item => {
                self.close_nearest(|role| role == TagRole::Item, TagRole::contains_items);
            }
            TagRole::Paragraph => {
                self.close_nearest(|role| role == TagRole::Paragraph, TagRole::is_cell);
                self.writer.gap(BlockGap::Blank);
            }
            TagRole::Block
            | TagRole::Quote
            | TagRole::List { .. }
            | TagRole::Term
            | TagRole::Description
            | TagRole::Preformatted => {
                if let Some(at) = self.find(|open| open.tag == known, TagRole::is_cell) {
                    self.close_to(at);
                }
            }
            TagRole::Table => {
                if let Some(at) = self.find(|open| open.tag == known, |_| false) {
                    self.close_to(at);
                }
            }
            TagRole::Break => self.writer.break_line(),
            TagRole::Space | TagRole::Button => self.writer.space(),
            TagRole::Image | TagRole::Rule | TagRole::Skipped | TagRole::Title => {}
        }
    }

    /// Ends a style, but not the blocks within it.
    fn end_inline(&mut self, tag: KnownTag) {
        if let Some(at) = self.find(|open| open.tag == tag, TagRole::is_cell) {
            let element = self.open.remove(at);
            self.leave(element.role);
        }
    }

    /// Ends the open cell of the innermost table, if there is a table.
    fn close_cell(&mut self) -> bool {
        let table = self.find(|open| open.role == TagRole::Table, |_| false);
        if let Some(at) = table {
            self.close_to(at + 1);
        }
        table.is_some()
    }

    fn close_nearest(&mut self, is_it: fn(TagRole) -> bool, stops: fn(TagRole) -> bool) {
        if let Some(at) = self.find(|open| is_it(open.tag.role), stops) {
            self.close_to(at);
        }
    }

    /// Finds the innermost open element of a kind, up to the first element that stops the search.
    fn find(
        &self,
        is_it: impl Fn(&OpenElement) -> bool,
        stops: fn(TagRole) -> bool,
    ) -> Option<usize> {
        for (at, open) in self.open.iter().enumerate().rev() {
            if is_it(open) {
                return Some(at);
            } else if stops(open.role) {
                return None;
            }
        }
        None
    }

    /// The gap between a list and the text before and after it.
    fn list_gap(&self) -> BlockGap {
        let is_item = |role| matches!(role, TagRole::Item | TagRole::Description);
        match self.find(|open| is_item(open.role), TagRole::contains_items) {
            Some(_) => BlockGap::Line,
            None => BlockGap::Blank,
        }
    }

    /// Ends all but the first `count` open elements.
    fn close_to(&mut self, count: usize) {
        while self.open.len() > count {
            if let Some(element) = self.open.pop() {
                self.leave(element.role);
            }
        }
    }

    fn leave(&mut self, role: TagRole) {
        match role {
            TagRole::Block | TagRole::Paragraph => self.writer.gap(BlockGap::Blank),
            TagRole::Heading(_) => self.writer.end_heading(),
            TagRole::Quote => self.writer.end_container(BlockGap::Blank),
            TagRole::List { .. } => self.writer.gap(self.list_gap()),
            TagRole::Item | TagRole::Description => self.writer.end_container(BlockGap::Line),
            TagRole::Term => self.writer.gap(BlockGap::Line),
            TagRole::Preformatted => self.writer.end_preformatted(),
            TagRole::Code => self.writer.end_code(),
            TagRole::Mark(mark) => self.writer.end_mark(mark),
            TagRole::Table => self.writer.end_table(),
            TagRole::Cell { .. } => self.writer.end_cell(),
            // These elements contain nothing, or nothing that is converted.
            TagRole::TableHead
            | TagRole::Row
            | TagRole::Image
            | TagRole::Break
            | TagRole::Rule
            | TagRole::Space
            | TagRole::Button
            | TagRole::Skipped
            | TagRole::Title => {}
        }
    }
}

/// The language of code, by its class.
fn language(tag: &StartTag) -> Option<String> {
    let class = tag.attribute("class")?;
    let mut words = class.split_whitespace();
    let name =
        words.find_map(|word| word.strip_prefix("language-").or(word.strip_prefix("lang-")))?;
    Some(name.replace('`', ""))
}
