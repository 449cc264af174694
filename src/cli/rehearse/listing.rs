//! `outlast rehearse --list`.

use std::borrow::Cow;
use std::fmt::Write as _;

use console::Term;
use serde_json::{Value, json};
use textwrap::{Options, WordSplitter};

use super::super::version::SCHEMA_VERSION;
use crate::rehearsal::{ScenarioListing, list};

/// Minimum width of the sentences, in columns.
const SENTENCE_MIN: usize = 24;

/// The built-in scenarios for people. On a terminal, long sentences are wrapped.
pub(super) fn text() -> String {
    let term = Term::stdout();
    let size = term.features().is_attended().then(|| term.size_checked()).flatten();
    lay_out(size.map(|(_rows, columns)| usize::from(columns)))
}

fn lay_out(width: Option<usize>) -> String {
    let listings = list();
    let longest = listings.iter().map(|listing| listing.name.len()).max().unwrap_or_default();
    let (mut text, mut group) = (String::new(), "");
    for ScenarioListing { group: own, name, summary, exit } in &listings {
        if *own != group {
            let gap = if group.is_empty() { "" } else { "\n" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{gap}{own}");
            group = own;
        }
        let exit = exit.map_or_else(|| "-".to_owned(), |code| code.to_string());
        let head = format!("  {name:<longest$}  exit {exit:<2}  ");
        let room = width.map(|width| width.saturating_sub(head.len()).max(SENTENCE_MIN));
        for (index, line) in wrapped(summary, room).iter().enumerate() {
            let begin = if index == 0 { head.clone() } else { " ".repeat(head.len()) };
            let _ = writeln!(text, "{begin}{line}");
        }
    }
    text
}

/// Splits a sentence into lines of at most `room` columns.
fn wrapped(sentence: &str, room: Option<usize>) -> Vec<Cow<'_, str>> {
    let Some(room) = room else { return vec![sentence.into()] };
    textwrap::wrap(sentence, Options::new(room).word_splitter(WordSplitter::NoHyphenation))
}

/// The built-in scenarios for programs.
pub(super) fn json() -> String {
    let one = |listing: ScenarioListing| {
        let ScenarioListing { group, name, summary, exit } = listing;
        json!({ "name": name, "group": group, "summary": summary, "exit_code": exit })
    };
    let scenarios: Vec<Value> = list().into_iter().map(one).collect();
    let whole = json!({
        "type": "scenarios",
        "schema_version": SCHEMA_VERSION,
        "scenarios": scenarios,
    });
    format!("{whole}\n")
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
