//! The manual is plain: its sentences are about components, users, models, servers and hooks.

use super::pages::documents;
use super::tables::without_tables;

/// Words that leave open who acts.
const VAGUE: [&str; 4] = [
    concat!("who", "ever"),
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("any", "body"),
];

#[test]
fn sentences_name_who_acts() {
    for (path, text) in documents() {
        // Sentences of the program are its own.
        let text = without_tables(&text).to_lowercase();
        for word in text.split(|one: char| !one.is_alphabetic()) {
            assert!(!VAGUE.contains(&word), "{path}: {word}");
        }
    }
}

#[test]
fn pages_are_plain_text() {
    for (path, text) in documents() {
        for line in without_tables(&text).lines() {
            // The two are part of progress lines, which pages quote.
            let is_plain = |one: char| one.is_ascii() || matches!(one, '\u{b7}' | '\u{2192}');
            assert!(line.chars().all(is_plain), "{path}: {line}");
        }
    }
}
