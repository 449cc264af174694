//! Redaction of streams: chunk boundaries do not change the result.

use outlast_core::secrets::{KnownSecrets, Redactor, StreamRedactor};
use proptest::prelude::*;

use super::examples;
use crate::support::rotation::property_cases;

fn in_pieces(redactor: &Redactor, pieces: &[&str]) -> String {
    let mut stream = redactor.stream();
    let shown: String = pieces.iter().map(|piece| stream.push_text(piece)).collect();
    shown + &stream.finish_text()
}

#[test]
fn a_key_split_between_chunks_is_redacted() {
    let redactor =
        Redactor::new(KnownSecrets::new(["the-value-in-use-42", "the-value-in-use-42-and-on"]));
    let values = ["the-value-in-use-42", "the-value-in-use-42-and-on", "the-value-in-use-4x"];
    let keys = examples().into_iter().map(|example| example.text);
    for key in keys.chain(values.map(str::to_owned)) {
        let text = format!("so: {key} and\nthe rest {key}");
        let whole = redactor.redact(&text);
        let step = if text.len() > 400 { 7 } else { 1 };
        for cut in (1..text.len()).step_by(step) {
            let (one, two) = text.split_at(cut);
            assert_eq!(in_pieces(&redactor, &[one, two]), whole, "cut at {cut}: {text}");
        }
        let letters: Vec<&str> = text.split("").collect();
        assert_eq!(in_pieces(&redactor, &letters), whole);
    }
}

#[test]
fn only_a_possible_start_of_a_secret_is_buffered() {
    let redactor = Redactor::new(KnownSecrets::new(["Zebra-crossing-1"]));
    let mut stream = redactor.stream();
    let mut shows = |piece: &str, shown: &str| assert_eq!(stream.push_text(piece), shown);
    shows("Plain words pass at once", "Plain words pass at once");
    shows(", tests", ", tests");
    shows(" and gh", " and ");
    shows("osts", "ghosts");
    shows(" Zebra-cross", " ");
    shows("ings", "Zebra-crossings");
    shows(" gho_tel", " ");
    shows(" ", "gho_tel ");
    shows("Zebra-crossing-1", "[redacted]");
    shows("", "");
}

/// Large texts are searched in another way than small ones.
#[test]
fn every_key_is_found_in_texts_of_any_size() {
    let redactor = Redactor::default();
    for example in examples() {
        let shown = redactor.redact(&example.text);
        for length in [16 << 10, 64 << 10] {
            let before = "no key, but prose. ".repeat(length / 19) + "\n";
            let found = redactor.redact(&format!("{before}{}", example.text));
            assert_eq!(found.strip_prefix(&before), Some(shown.as_str()), "{}", example.text);
        }
    }
}

#[test]
fn an_endless_secret_is_neither_emitted_nor_buffered() {
    let redactor = Redactor::default();
    let mut stream: StreamRedactor = redactor.stream();
    let mut shown = stream.push_text(&["a ", "sk-", "ant-"].concat());
    for _ in 0..100 {
        shown += &stream.push_text(&"Ab3".repeat(500));
    }
    shown += &stream.push_text(" and on");
    shown += &stream.finish_text();
    assert_eq!(shown, "a [redacted] and on");
}

#[test]
fn a_key_that_is_cut_off_by_the_end_of_a_text_hides_nothing_of_the_next() {
    let redactor = Redactor::default();
    let mut stream = redactor.stream();
    // Longer than what is held back: its rest would follow.
    let first = stream.push_text(&["a ", "sk-", "ant-", &"Ab3".repeat(20_000)].concat());
    assert_eq!(first + &stream.finish_text(), "a [redacted]");
    let next = stream.push_text("Ab3 and on");
    assert_eq!(next + &stream.finish_text(), "Ab3 and on");
}

#[test]
fn an_incomplete_match_is_released_at_the_end_of_the_stream() {
    let redactor = Redactor::default();
    let begins = ["-----BEGIN RSA ", "PRIVATE KEY-----"].concat();
    let text = format!("{begins}\n{}", "no key, but prose. ".repeat(4000));
    let mut stream = redactor.stream();
    let first = stream.push_text(&text);
    assert!(first.len() > text.len() / 2, "most of it is out: {}", first.len());
    assert_eq!(first + &stream.finish_text(), text);
}

proptest! {
    #![proptest_config(property_cases(80))]

    #[test]
    fn redaction_gives_the_same_result_in_chunks_as_in_one_piece(
        parts in proptest::collection::vec((0_usize..75, "[ a-zA-Z0-9:/@._=\\\\\"é\n-]{0,12}"), 1..6),
        cuts in proptest::collection::vec(0_usize..2000, 0..12),
    ) {
        let examples = examples();
        let known = KnownSecrets::new(["the-value-in-use-42"]);
        let redactor = Redactor::new(known);
        let text = parts.iter().fold(String::new(), |text, (index, words)| {
            let key = examples.get(*index).map_or("the-value-in-use-42", |one| one.text.as_str());
            text + words + key
        });
        let mut cuts: Vec<usize> =
            cuts.into_iter().map(|cut| text.floor_char_boundary(cut % (text.len() + 1))).collect();
        cuts.push(0);
        cuts.push(text.len());
        cuts.sort_unstable();
        let pieces: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        prop_assert_eq!(in_pieces(&redactor, &pieces), redactor.redact(&text));
    }
}
