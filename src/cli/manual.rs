//! `outlast help`: the manual pages, which the binary contains.

use std::fmt::Write as _;

use pulldown_cmark::{Event, Parser, TagEnd};

use super::usage::UsageError;

// `PAGES`: the text of each file of `man/`, written by the build script.
include!(concat!(env!("OUT_DIR"), "/manual_pages.rs"));

/// A manual page, whose first line is `# outlast-hooks(7): what it is about`.
struct ManualPage {
    /// As in `outlast-hooks`.
    name: &'static str,
    about: &'static str,
    text: &'static str,
}

fn pages() -> impl Iterator<Item = ManualPage> {
    PAGES.iter().filter_map(|text| {
        let (title, about) = text.lines().next()?.strip_prefix("# ")?.split_once(": ")?;
        let (name, _section) = title.split_once('(')?;
        Some(ManualPage { name, about, text })
    })
}

/// The name by which `outlast help` finds a page: `hooks` for outlast-hooks(7).
fn topic_of(page: &ManualPage) -> &'static str {
    page.name.strip_prefix("outlast-").unwrap_or(page.name)
}

/// Lists the pages.
pub(super) fn contents() -> String {
    let mut text = String::from("Pages of the manual, for outlast help TOPIC:\n");
    for page in pages() {
        // A string accepts every write.
        let _ = writeln!(text, "  {:<10} {}", topic_of(&page), page.about);
    }
    text
}

/// Returns the page of a topic: `hooks`, `outlast-hooks` or `outlast-hooks(7)`.
pub(super) fn page(topic: &str) -> Option<String> {
    let name = topic.split('(').next().unwrap_or_default();
    let found = pages().find(|page| page.name == name || topic_of(page) == name)?;
    Some(readable(found.text))
}

/// Returns the error for a topic that has no page.
pub(super) fn unknown_topic(topic: &str) -> UsageError {
    let topics: Vec<&str> = pages().map(|page| topic_of(&page)).collect();
    let shown: String = topic.chars().take(60).collect();
    UsageError::new(format!("there is no page {shown:?}; the topics are {}", topics.join(", ")))
}

/// Removes what only a Markdown viewer needs: the targets of links, and the languages of examples.
fn readable(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    let mut copied = 0;
    for (event, range) in Parser::new(markdown).into_offset_iter() {
        if !matches!(event, Event::End(TagEnd::Link)) {
            continue;
        }
        let link = &markdown[range.clone()];
        let words = link.strip_prefix('[').and_then(|link| link.rsplit_once("]("));
        if let Some((words, _target)) = words {
            text.push_str(&markdown[copied..range.start]);
            text.push_str(words);
            copied = range.end;
        }
    }
    text.push_str(&markdown[copied..]);
    let line = |line: &str| {
        if line.starts_with("```") { "```\n".to_owned() } else { line.to_owned() + "\n" }
    };
    text.lines().map(line).collect()
}
