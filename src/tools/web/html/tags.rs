//! The meaning of each HTML element in Markdown. Pure.

use html5gum::State;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InlineMark {
    Strong,
    Emphasis,
    Struck,
    Link,
}

/// The kind of conversion of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagRole {
    Block,
    Paragraph,
    Heading(u8),
    Quote,
    List {
        is_ordered: bool,
    },
    Item,
    Term,
    Description,
    Preformatted,
    Code,
    Mark(InlineMark),
    Image,
    Break,
    Rule,
    /// A separator of words, such as a form field.
    Space,
    Button,
    Table,
    TableHead,
    Row,
    Cell {
        is_head: bool,
    },
    /// An element without text for readers.
    Skipped,
    Title,
}

impl TagRole {
    /// True if it lasts until its end tag, or changes the open tables.
    pub(super) fn is_structure(self) -> bool {
        let is_separator =
            matches!(self, Self::Image | Self::Break | Self::Rule | Self::Space | Self::Button);
        !is_separator && !matches!(self, Self::Skipped | Self::Title)
    }

    /// True if it is part of a block.
    pub(super) fn is_inline(self) -> bool {
        matches!(self, Self::Mark(_) | Self::Code)
    }

    /// True if it cannot be in a paragraph.
    pub(super) fn ends_paragraph(self) -> bool {
        self == Self::Rule || self.is_structure() && !self.is_inline()
    }

    pub(super) fn is_heading(self) -> bool {
        matches!(self, Self::Heading(_))
    }

    pub(super) fn is_list(self) -> bool {
        matches!(self, Self::List { .. })
    }

    pub(super) fn is_of_description(self) -> bool {
        matches!(self, Self::Term | Self::Description)
    }

    /// True if items within it do not end those around it.
    pub(super) fn contains_items(self) -> bool {
        matches!(self, Self::List { .. } | Self::Table | Self::Cell { .. } | Self::Quote)
    }

    pub(super) fn is_cell(self) -> bool {
        matches!(self, Self::Cell { .. })
    }

    /// True if its end tag is usually present.
    pub(super) fn needs_end_tag(self) -> bool {
        let blocks = [Self::Block, Self::Quote, Self::Preformatted, Self::Table];
        blocks.contains(&self) || self.is_heading() || self.is_list() || self.is_inline()
    }

    /// The role within preformatted text.
    pub(super) fn in_preformatted(self) -> Self {
        let layout = [Self::Quote, Self::Item, Self::Preformatted, Self::Table];
        // A button there copies the text.
        if self == Self::Button {
            Self::Skipped
        } else if layout.contains(&self)
            || self.is_heading()
            || self.is_list()
            || self.is_of_description()
        {
            Self::Block
        } else {
            self
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownTag {
    name: &'static str,
    pub(super) role: TagRole,
}

impl KnownTag {
    /// Finds an element by its name. `None`: only the content of the element is converted.
    pub(super) fn by_name(name: &[u8]) -> Option<Self> {
        let at = TAGS.binary_search_by_key(&name, |(name, _)| name.as_bytes()).ok()?;
        let (name, role) = TAGS[at];
        Some(Self { name, role })
    }
}

const LIST: TagRole = TagRole::List { is_ordered: false };
const STRONG: TagRole = TagRole::Mark(InlineMark::Strong);
const EMPHASIS: TagRole = TagRole::Mark(InlineMark::Emphasis);
const STRUCK: TagRole = TagRole::Mark(InlineMark::Struck);

/// The known elements, sorted by name.
static TAGS: [(&str, TagRole); 78] = [
    ("a", TagRole::Mark(InlineMark::Link)),
    ("address", TagRole::Block),
    ("article", TagRole::Block),
    ("aside", TagRole::Block),
    ("b", STRONG),
    ("blockquote", TagRole::Quote),
    ("br", TagRole::Break),
    ("button", TagRole::Button),
    ("canvas", TagRole::Skipped),
    ("caption", TagRole::Block),
    ("center", TagRole::Block),
    ("code", TagRole::Code),
    ("datalist", TagRole::Skipped),
    ("dd", TagRole::Description),
    ("del", STRUCK),
    ("details", TagRole::Block),
    ("dialog", TagRole::Block),
    ("dir", LIST),
    ("div", TagRole::Block),
    ("dl", LIST),
    ("dt", TagRole::Term),
    ("em", EMPHASIS),
    ("fieldset", TagRole::Block),
    ("figcaption", TagRole::Block),
    ("figure", TagRole::Block),
    ("footer", TagRole::Block),
    ("form", TagRole::Block),
    ("h1", TagRole::Heading(1)),
    ("h2", TagRole::Heading(2)),
    ("h3", TagRole::Heading(3)),
    ("h4", TagRole::Heading(4)),
    ("h5", TagRole::Heading(5)),
    ("h6", TagRole::Heading(6)),
    ("header", TagRole::Block),
    ("hgroup", TagRole::Block),
    ("hr", TagRole::Rule),
    ("i", EMPHASIS),
    ("iframe", TagRole::Skipped),
    ("img", TagRole::Image),
    ("input", TagRole::Space),
    ("kbd", TagRole::Code),
    ("legend", TagRole::Block),
    ("li", TagRole::Item),
    ("listing", TagRole::Preformatted),
    ("main", TagRole::Block),
    ("menu", LIST),
    ("nav", TagRole::Block),
    ("noembed", TagRole::Skipped),
    ("noframes", TagRole::Skipped),
    ("object", TagRole::Skipped),
    ("ol", TagRole::List { is_ordered: true }),
    ("optgroup", TagRole::Space),
    ("option", TagRole::Space),
    ("p", TagRole::Paragraph),
    ("plaintext", TagRole::Preformatted),
    ("pre", TagRole::Preformatted),
    ("s", STRUCK),
    ("samp", TagRole::Code),
    ("script", TagRole::Skipped),
    ("search", TagRole::Block),
    ("section", TagRole::Block),
    ("select", TagRole::Space),
    ("strike", STRUCK),
    ("strong", STRONG),
    ("style", TagRole::Skipped),
    ("summary", TagRole::Block),
    ("svg", TagRole::Skipped),
    ("table", TagRole::Table),
    ("td", TagRole::Cell { is_head: false }),
    ("template", TagRole::Skipped),
    ("textarea", TagRole::Block),
    ("th", TagRole::Cell { is_head: true }),
    ("thead", TagRole::TableHead),
    ("title", TagRole::Title),
    ("tr", TagRole::Row),
    ("tt", TagRole::Code),
    ("ul", LIST),
    ("xmp", TagRole::Preformatted),
];

/// The tokenizer state for the content of an element, if that is not HTML.
pub(super) fn raw_content(name: &[u8]) -> Option<State> {
    match name {
        b"script" => Some(State::ScriptData),
        b"style" | b"iframe" | b"noembed" | b"noframes" | b"xmp" => Some(State::RawText),
        b"textarea" | b"title" => Some(State::RcData),
        b"plaintext" => Some(State::PlainText),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_sorted() {
        assert!(TAGS.is_sorted_by(|(one, _), (next, _)| one < next));
    }
}
