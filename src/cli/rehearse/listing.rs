//! `outlast rehearse --list`.

use std::fmt::Write as _;

use serde_json::json;
use textwrap::{Options, WordSplitter};

use super::super::sessions::terminal_width;
use super::super::version::SCHEMA_VERSION;
use crate::rehearsal::list;

/// Minimum width of the sentences, in columns.
const SENTENCE_MIN: usize = 24;

/// Lists the built-in scenarios for people. On a terminal, long sentences are wrapped.
pub(super) fn text() -> String {
    lay_out(terminal_width())
}

fn lay_out(width: Option<usize>) -> String {
    let listings = list();
    let longest = listings.iter().map(|listing| listing.name.len()).max().unwrap_or_default();
    let (mut text, mut group) = (String::new(), "");
    for listing in &listings {
        if listing.group != group {
            let gap = if group.is_empty() { "" } else { "\n" };
            group = listing.group;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{gap}{group}");
        }
        let exit = listing.exit.map_or_else(|| "-".to_owned(), |code| code.to_string());
        let head = format!("  {:<longest$}  exit {exit:<2}  ", listing.name);
        let indent = " ".repeat(head.len());
        let width = width.map_or(usize::MAX, |width| width.max(head.len() + SENTENCE_MIN));
        let options = Options::new(width)
            .initial_indent(&head)
            .subsequent_indent(&indent)
            .word_splitter(WordSplitter::NoHyphenation);
        let _ = writeln!(text, "{}", textwrap::fill(&listing.summary, options));
    }
    text
}

/// Lists the built-in scenarios for programs.
pub(super) fn json() -> String {
    let list = json!({
        "type": "scenarios",
        "schema_version": SCHEMA_VERSION,
        "scenarios": list(),
    });
    format!("{list}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_fits_a_terminal_and_has_each_scenario_once_below_its_group() {
        let text = lay_out(Some(80));
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        for listing in list() {
            let begin = format!("  {} ", listing.name);
            assert_eq!(text.lines().filter(|line| line.starts_with(&begin)).count(), 1, "{begin}");
            assert_eq!(text.lines().filter(|line| *line == listing.group).count(), 1);
        }
        let whole = lay_out(None);
        assert!(list().iter().all(|listing| whole.contains(&listing.summary)), "{whole}");
    }

    #[test]
    fn a_narrow_terminal_loses_no_word() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&lay_out(Some(1))), words(&lay_out(None)));
    }
}
