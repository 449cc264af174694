//! The nudges: the texts that are sent to the model.

use std::fs;
use std::path::Path;

use outlast_core::recovery::{CutKind, Incomplete, Nudge, SUMMARISE};

use crate::support::golden;

const ALL: [Nudge; 21] = [
    Nudge::Continue(CutKind::Text),
    Nudge::Continue(CutKind::ToolCall),
    Nudge::Continue(CutKind::Thinking),
    Nudge::ContinueLast,
    Nudge::Complete(Incomplete::MissingCall),
    Nudge::Complete(Incomplete::CallInText),
    Nudge::Complete(Incomplete::Filtered),
    Nudge::Complete(Incomplete::BrokenOff),
    Nudge::Complete(Incomplete::UnknownReason),
    Nudge::MoreEffort,
    Nudge::LeftOpen,
    Nudge::WrapUp,
    Nudge::LastTurn,
    Nudge::StepBack,
    Nudge::UseStructuredOutput,
    Nudge::Unmet,
    Nudge::UnmetAgain,
    Nudge::UnmetLast,
    Nudge::StopHookObjection,
    Nudge::WorkEnded,
    Nudge::StillRunning,
];

/// Each nudge, and the phrases that it must contain.
const MUST: [(Nudge, &[&str]); 21] = [
    (
        Nudge::UnmetAgain,
        &[
            "failed again",
            "do not repeat",
            "first error",
            "output below",
            "something else",
            "never the check",
            "out of reach, end and say",
        ],
    ),
    (
        Nudge::UnmetLast,
        &[
            "One check is left",
            "output below",
            "until it passes",
            "never the check",
            "out of reach",
        ],
    ),
    (
        Nudge::StopHookObjection,
        &["not accepted yet", "objects", "words below", "whole answer", "out of reach"],
    ),
    (Nudge::WorkEnded, &["has ended", "below", "BashOutput", "failed", "stays in the result"]),
    (
        Nudge::StillRunning,
        &[
            "below are not",
            "the run waits",
            "KillShell",
            "server",
            "end again",
            "notified when it has",
        ],
    ),
    (
        Nudge::Continue(CutKind::Text),
        &[
            "output limit",
            "cut off",
            "exactly where",
            "middle",
            "No apology",
            "no recap",
            "smaller",
        ],
    ),
    (
        Nudge::Continue(CutKind::ToolCall),
        &["output limit", "not run", "again", "smaller pieces", "No apology", "no recap"],
    ),
    (Nudge::Continue(CutKind::Thinking), &["thinking", "output limit", "Think less", "next"]),
    (Nudge::ContinueLast, &["output limit", "cut off", "not run", "One reply", "done", "not"]),
    (
        Nudge::Complete(Incomplete::MissingCall),
        &["no tool call arrived", "nothing was run", "Make the call now", "whole answer"],
    ),
    (
        Nudge::Complete(Incomplete::CallInText),
        &["plain text", "not run", "Make the call now", "example", "whole answer again"],
    ),
    (Nudge::LeftOpen, &["left open", "below", "Go on", "completed", "stays in the result"]),
    (
        Nudge::Complete(Incomplete::Filtered),
        &["content filter", "does not count", "in other words", "end and say what is missing"],
    ),
    (
        Nudge::Complete(Incomplete::BrokenOff),
        &["broke your reply off", "does not count", "from the beginning", "tool call again"],
    ),
    (
        Nudge::Complete(Incomplete::UnknownReason),
        &["complete", "does not count", "next tool call", "whole answer again"],
    ),
    (Nudge::MoreEffort, &["effort", "not verified", "if nothing is, say so"]),
    (Nudge::WrapUp, &["time", "consistent state", "what is done and what is not"]),
    (Nudge::LastTurn, &["last reply", "will not see", "what is done and what is not"]),
    (
        Nudge::StepBack,
        &[
            "same steps",
            "same outcome",
            "Stop repeating",
            "expected",
            "another way",
            "cause",
            "end and say what is missing",
        ],
    ),
    (
        Nudge::UseStructuredOutput,
        &["was text", "structured output", "Call the tool StructuredOutput", "schema"],
    ),
    (
        Nudge::Unmet,
        &[
            "not accepted yet",
            "did not pass",
            "output below",
            "fix the cause",
            "run the command yourself",
            "run again",
            "never the check",
            "out of reach, end and say",
        ],
    ),
];

#[test]
fn every_nudge_says_what_happened_and_what_to_do() {
    for (nudge, thoughts) in MUST {
        for thought in thoughts {
            assert!(nudge.text().contains(thought), "{nudge:?} does not say `{thought}`");
        }
    }
}

#[test]
fn no_nudge_asks_apologises_promises_or_mentions_a_person() {
    let never = [
        "?",
        "!",
        "sorry",
        "apologi",
        "please",
        "user",
        "human",
        "press",
        "click",
        "/login",
        "waiting for",
        "you may ask",
        "confirm",
        "unfortunately",
        "great",
        "thank",
        "try your best",
        " i ",
        " we ",
    ];
    for nudge in ALL {
        let text = format!(" {}", nudge.text().to_lowercase());
        for word in never {
            assert!(!text.contains(word), "{nudge:?} says `{word}`");
        }
    }
}

#[test]
fn every_nudge_is_short_plain_and_unique() {
    for (place, nudge) in ALL.iter().enumerate() {
        let text = nudge.text();
        assert!(text.len() <= 400, "{nudge:?} takes {} bytes", text.len());
        assert!(text.is_ascii() && !text.contains("  ") && !text.contains('\n'), "{nudge:?}");
        assert!(text.ends_with('.'), "{nudge:?} does not end");
        assert!(ALL[..place].iter().all(|other| other.text() != text), "{nudge:?} is a double");
    }
}

#[test]
fn only_a_truncated_text_is_continued_where_it_stopped() {
    let said: Vec<&Nudge> =
        ALL.iter().filter(|nudge| nudge.text().contains("where it stopped")).collect();
    assert_eq!(said, [&Nudge::Continue(CutKind::Text)]);
}

#[test]
fn every_nudge_begins_with_what_happened_not_with_an_instruction() {
    let orders = ["Go", "Make", "Think", "Say", "Look", "Finish", "End", "Stop", "Call", "Read"];
    for nudge in ALL {
        let first = nudge.text().split(' ').next().unwrap_or_default();
        assert!(!orders.contains(&first), "{nudge:?} begins with `{first}`");
    }
}

#[test]
fn only_rejection_nudges_include_an_output() {
    let said: Vec<&Nudge> =
        ALL.iter().filter(|nudge| nudge.text().contains("output below")).collect();
    assert_eq!(said, [&Nudge::Unmet, &Nudge::UnmetAgain, &Nudge::UnmetLast]);
}

#[test]
fn the_last_turn_s_nudge_does_not_ask_for_more_work() {
    for nudge in [Nudge::ContinueLast, Nudge::LastTurn, Nudge::WrapUp] {
        for more in ["Go on", "smaller pieces", "append"] {
            assert!(!nudge.text().contains(more), "{nudge:?} says `{more}`");
        }
    }
}

/// Every text in a folder of sources, with breaks and indentation of literals taken out.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(sources(&path));
        } else {
            let text = fs::read_to_string(&path).expect("text");
            let words: Vec<&str> = text.split_whitespace().filter(|word| *word != "\\").collect();
            all.push((path.display().to_string(), words.join(" ")));
        }
    }
    all
}

/// All nudge texts stand in one module, so that each can be tuned in one place.
#[test]
fn no_nudge_text_is_duplicated_elsewhere_in_the_sources() {
    let sources = sources(&golden::root().join("src"));
    let texts = ALL.iter().map(|nudge| nudge.text()).chain([SUMMARISE.system, SUMMARISE.request]);
    let mut checked = 0;
    for sentence in texts.flat_map(|text| text.split(['.', ':', ';', '\n'])).map(str::trim) {
        if sentence.split(' ').count() < 5 {
            continue;
        }
        let elsewhere = sources
            .iter()
            .filter(|(path, text)| !path.ends_with("nudges.rs") && text.contains(sentence))
            .map(|(path, _)| path);
        assert_eq!(elsewhere.collect::<Vec<_>>(), [] as [&String; 0], "{sentence:?}");
        checked += 1;
    }
    assert!(checked > 30, "{checked}");
}
