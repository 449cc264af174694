//! The tokens of a page, as far as they are converted. Pure.
//!
//! Comments, parse errors and other attributes are never stored: a page of 10 kB on the wire can
//! have millions of them.

use std::borrow::Cow;
use std::mem::take;

use html5gum::Span;
use html5gum::emitters::callback::{Callback, CallbackEvent};

/// The attributes that are converted.
const ATTRIBUTES: [&[u8]; 9] =
    [b"alt", b"class", b"content", b"href", b"http-equiv", b"src", b"start", b"title", b"value"];

#[derive(Debug)]
pub(super) enum PageToken {
    StartTag(StartTag),
    EndTag(Vec<u8>),
    Text(Vec<u8>),
}

/// The beginning of an element.
#[derive(Debug, Default)]
pub(super) struct StartTag {
    pub(super) name: Vec<u8>,
    pub(super) self_closing: bool,
    attributes: Vec<(&'static [u8], Vec<u8>)>,
}

impl StartTag {
    /// Returns the value of an attribute: the first of several with this name.
    pub(super) fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        let found = self.attributes.iter().find(|(known, _)| *known == name.as_bytes());
        found.map(|(_, value)| String::from_utf8_lossy(value))
    }
}

/// Converts the tokenizer's events to tokens.
#[derive(Debug, Default)]
pub(super) struct TokenReader {
    tag: StartTag,
    /// True if the value that follows belongs to the last attribute of the tag.
    is_value_wanted: bool,
}

impl Callback<PageToken, ()> for TokenReader {
    fn handle_event(&mut self, event: CallbackEvent<'_>, _: Span<()>) -> Option<PageToken> {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                self.tag = StartTag { name: name.to_vec(), ..StartTag::default() };
                self.is_value_wanted = false;
                None
            }
            CallbackEvent::AttributeName { name } => {
                let known = ATTRIBUTES.into_iter().find(|known| *known == name);
                let is_new =
                    |known: &&[u8]| self.tag.attributes.iter().all(|(name, _)| name != known);
                let new = known.filter(is_new);
                self.is_value_wanted = new.is_some();
                self.tag.attributes.extend(new.map(|name| (name, Vec::new())));
                None
            }
            CallbackEvent::AttributeValue { value } => {
                let last = self.tag.attributes.last_mut().filter(|_| self.is_value_wanted);
                if let Some((_, last)) = last {
                    last.extend_from_slice(value);
                }
                None
            }
            CallbackEvent::CloseStartTag { self_closing } => {
                Some(PageToken::StartTag(StartTag { self_closing, ..take(&mut self.tag) }))
            }
            CallbackEvent::EndTag { name } => Some(PageToken::EndTag(name.to_vec())),
            CallbackEvent::String { value } => Some(PageToken::Text(value.to_vec())),
            CallbackEvent::Comment { .. }
            | CallbackEvent::Doctype { .. }
            | CallbackEvent::Error(_) => None,
        }
    }
}
