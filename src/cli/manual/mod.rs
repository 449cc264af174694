//! `outlast help`: the manual pages, which the binary contains.

mod pager;
mod terminal_page;
mod topics;

use std::ffi::OsStr;

pub(super) use topics::{contents, find, pages_naming, topic_names, unknown_topic};

use pulldown_cmark::{Event, Parser, TagEnd};

use super::output::Screen;
use super::stdout::{print, print_report};
use super::usage::UsageError;
use crate::config::environment::{self, Variables};

/// Prints a page, which is Markdown: formatted on a terminal, and unchanged otherwise. A page that
/// is longer than the terminal is shown by the user's pager, which replaces this process.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn show(markdown: &str, variables: &Variables) -> Result<(), UsageError> {
    let screen = Screen::of_stdout(variables);
    if !screen.is_terminal {
        return print(&readable(markdown));
    }
    let text = terminal_page::lay_out(markdown, &screen);
    if text.lines().count() >= screen.rows && !environment::is_ci(variables) {
        let is_less_set_up = variables.contains_key(OsStr::new("LESS"));
        // If the pager cannot be started, the page is printed.
        let _ = pager::replace_by_pager(&text, environment::pager(variables), is_less_set_up);
    }
    print_report(&text)
}

/// Removes parts for Markdown viewers: the targets of links, comments, and the languages of
/// examples.
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
    let text: String = text.lines().filter(|line| !line.starts_with("<!--")).map(line).collect();
    text.replace("\n\n\n", "\n\n")
}
