//! Generates a man page from Markdown: headings, paragraphs, lists, code and tables.
//!
//! A table becomes a definition list. Its first column is the term; each further column from the
//! third on is introduced by its heading. A terminal of 80 columns cannot show a wide table.

use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use roff::{Inline, Roff, bold, italic, roman};

/// The man page of a Markdown page whose first heading is `# NAME(SECTION): what it is about`.
pub(super) fn page(markdown: &str) -> String {
    let mut writer = Writer::default();
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        writer.event(event);
    }
    // In a terminal these would become typographic characters, which cannot be copied.
    let page = writer.roff.render();
    page.replace('~', r"\(ti").replace('^', r"\(ha").replace('`', r"\(ga")
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Font {
    #[default]
    Roman,
    Bold,
    Italic,
}

#[derive(Default)]
struct Writer {
    roff: Roff,
    /// The line at hand.
    line: Vec<Inline>,
    font: Font,
    /// A paragraph after a heading, or within a list, needs no macro of its own.
    is_introduced: bool,
    lists: Vec<Option<u64>>,
    /// The headings of a table, and the row at hand.
    headings: Vec<String>,
    row: Vec<Vec<Inline>>,
    in_code: bool,
}

impl Writer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.in_code => self.code(&text),
            Event::Text(text) => self.add(text.into_string(), self.font),
            Event::Code(text) => self.add(text.into_string(), Font::Bold),
            Event::SoftBreak => self.flush(),
            Event::Html(_) | Event::InlineHtml(_) => {}
            Event::HardBreak
            | Event::Rule
            | Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::FootnoteReference(_)
            | Event::TaskListMarker(_) => panic!("a page has no {event:?}"),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum of many variants")]
    fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Paragraph => self.introduce(),
            Tag::Heading { .. } | Tag::TableCell | Tag::Link { .. } | Tag::HtmlBlock => {}
            Tag::CodeBlock(CodeBlockKind::Fenced(_)) => {
                self.introduce();
                self.roff.control("EX", []);
                self.in_code = true;
            }
            Tag::List(first) => {
                assert!(self.lists.is_empty(), "lists within lists");
                self.lists.push(*first);
            }
            Tag::Item => self.item(),
            Tag::Strong => self.font = Font::Bold,
            Tag::Emphasis => self.font = Font::Italic,
            Tag::Table(_) => self.headings.clear(),
            Tag::TableHead | Tag::TableRow => self.row.clear(),
            other => panic!("a page has no {other:?}"),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum of many variants")]
    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::Item => self.flush(),
            TagEnd::Heading(level) => self.heading(level),
            TagEnd::CodeBlock => {
                self.roff.control("EE", []);
                self.in_code = false;
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.is_introduced = false;
            }
            TagEnd::Strong | TagEnd::Emphasis => self.font = Font::Roman,
            TagEnd::TableCell => self.row.push(std::mem::take(&mut self.line)),
            TagEnd::TableHead => self.headings = self.row.iter().map(|cell| plain(cell)).collect(),
            TagEnd::TableRow => self.definition(),
            _ => {}
        }
    }

    /// Begins a paragraph where the macro before has not done so.
    fn introduce(&mut self) {
        if !std::mem::take(&mut self.is_introduced) {
            self.roff.control("PP", []);
        }
    }

    fn add(&mut self, text: String, font: Font) {
        self.line.push(match font {
            Font::Roman => roman(text),
            Font::Bold => bold(text),
            Font::Italic => italic(text),
        });
    }

    fn flush(&mut self) {
        if !self.line.is_empty() {
            self.roff.text(std::mem::take(&mut self.line));
        }
    }

    fn code(&mut self, text: &CowStr<'_>) {
        for line in text.lines() {
            self.roff.text([roman(line)]);
        }
    }

    fn heading(&mut self, level: HeadingLevel) {
        let text = plain(&std::mem::take(&mut self.line));
        match level {
            HeadingLevel::H1 => self.title(&text),
            HeadingLevel::H2 => {
                self.roff.control("SH", [text.to_uppercase().as_str()]);
            }
            HeadingLevel::H3 => {
                self.roff.control("SS", [text.as_str()]);
            }
            HeadingLevel::H4 | HeadingLevel::H5 | HeadingLevel::H6 => panic!("too deep: {text}"),
        }
        self.is_introduced = level != HeadingLevel::H1;
    }

    fn title(&mut self, text: &str) {
        let (page, about) = text.split_once(": ").expect("NAME(SECTION): what it is about");
        let (name, section) = page.split_once('(').expect("a section");
        let source = format!("outlast {}", env!("CARGO_PKG_VERSION"));
        let place = [name, section.trim_end_matches(')'), "\"\"", &source, "outlast manual"];
        self.roff.control("TH", place);
        // Flags and paths are neither hyphenated nor stretched. Each section of groff's macros
        // begins with the hyphenation that the register holds.
        self.roff.control("nr", ["HY", "0"]).control("nh", []).control("ad", ["l"]);
        self.roff.control("SH", ["NAME"]).text([roman(format!("{name} - {about}"))]);
    }

    fn item(&mut self) {
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}.", *number - 1)
            }
            Some(None) | None => r"\(bu".to_owned(),
        };
        let width = if mark.starts_with('\\') { "2" } else { "4" };
        self.roff.control("IP", [mark.as_str(), width]);
        self.is_introduced = true;
    }

    fn definition(&mut self) {
        let row = std::mem::take(&mut self.row);
        let mut cells = row.into_iter().zip(&self.headings);
        let Some((term, _)) = cells.next() else { return };
        self.roff.control("TP", []).text([bold(plain(&term))]);
        let mut is_first = true;
        for (mut cell, heading) in cells.filter(|(cell, _)| !cell.is_empty()) {
            if !is_first {
                self.roff.control("br", []);
                cell.insert(0, roman(format!("{heading}: ")));
            }
            self.roff.text(cell);
            is_first = false;
        }
        self.is_introduced = false;
    }
}

/// The text without its fonts.
fn plain(line: &[Inline]) -> String {
    let text = |inline: &Inline| match inline {
        Inline::Roman(text) | Inline::Bold(text) | Inline::Italic(text) => text.clone(),
        Inline::LineBreak => " ".to_owned(),
    };
    line.iter().map(text).collect()
}

/// A converted page without its first lines.
#[cfg(test)]
fn body(markdown: &str) -> String {
    let page = page(&format!("# name(7): about\n\n{markdown}"));
    page.split_once("name \\- about\n").expect("a name section").1.to_owned()
}

#[test]
fn the_title_gives_name_section_and_purpose() {
    let page = page("# outlast-hooks(7): programs at events\n");
    let version = env!("CARGO_PKG_VERSION");
    let title = format!(".TH outlast-hooks 7 \"\" \"outlast {version}\" \"outlast manual\"\n");
    assert!(page.contains(&title), "{page}");
    assert!(page.ends_with(".SH NAME\noutlast\\-hooks \\- programs at events\n"), "{page}");
}

#[test]
fn text_becomes_macros() {
    let cases = [
        (
            "## Two words\n\nA `--flag` and *more*.\n\nB.\n",
            ".SH \"TWO WORDS\"\nA \\fB\\-\\-flag\\fR and \\fImore\\fR.\n.PP\nB.\n",
        ),
        ("### Three\n\nA\n.B\n", ".SS Three\nA\n\\&.B\n"),
        ("- one\n- two\n\nC.\n", ".IP \\(bu 2\none\n.IP \\(bu 2\ntwo\n.PP\nC.\n"),
        ("1. one\n2. two\n", ".IP 1. 4\none\n.IP 2. 4\ntwo\n"),
        ("```sh\nls ~\n.x\n```\n", ".PP\n.EX\nls \\(ti\n\\&.x\n.EE\n"),
        ("| a | b | c |\n|---|---|---|\n| `x` | y | z |\n", ".TP\n\\fBx\\fR\ny\n.br\nc: z\n"),
        ("<!-- table: x -->\n\nA [page](x.md).\n", ".PP\nA page.\n"),
    ];
    for (markdown, wanted) in cases {
        assert_eq!(body(markdown), wanted, "{markdown}");
    }
}
