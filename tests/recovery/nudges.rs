//! What the model is told, and what it must never be told.

use outlast::recovery::{Cut, Nudge};

const ALL: [Nudge; 7] = [
    Nudge::Continue(Cut::Text),
    Nudge::Continue(Cut::ToolCall),
    Nudge::Continue(Cut::Thinking),
    Nudge::ContinueLast,
    Nudge::MoreEffort,
    Nudge::WrapUp,
    Nudge::LastTurn,
];

/// Each text, and the thoughts that it must hold.
const MUST: [(Nudge, &[&str]); 7] = [
    (
        Nudge::Continue(Cut::Text),
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
        Nudge::Continue(Cut::ToolCall),
        &["output limit", "not run", "again", "smaller pieces", "No apology", "no recap"],
    ),
    (Nudge::Continue(Cut::Thinking), &["thinking", "output limit", "Think less", "next"]),
    (Nudge::ContinueLast, &["output limit", "cut off", "not run", "One reply", "done", "not"]),
    (Nudge::MoreEffort, &["effort", "not verified", "if nothing is, say so"]),
    (Nudge::WrapUp, &["time", "consistent state", "what is done and what is not"]),
    (Nudge::LastTurn, &["last reply", "will not see", "what is done and what is not"]),
];

#[test]
fn every_text_says_what_happened_and_what_to_do() {
    for (nudge, thoughts) in MUST {
        for thought in thoughts {
            assert!(nudge.text().contains(thought), "{nudge:?} does not say `{thought}`");
        }
    }
}

#[test]
fn no_text_asks_apologises_promises_or_speaks_of_a_person() {
    let never = ["?", "sorry", "apologi", "please", "user", "press", "waiting for", "you may ask"];
    for nudge in ALL {
        let text = nudge.text().to_lowercase();
        for word in never {
            assert!(!text.contains(word), "{nudge:?} says `{word}`");
        }
    }
}

#[test]
fn every_text_is_short_plain_and_its_own() {
    for (place, nudge) in ALL.iter().enumerate() {
        let text = nudge.text();
        assert!(text.len() <= 320, "{nudge:?} takes {} bytes", text.len());
        assert!(text.is_ascii() && !text.contains("  ") && !text.contains('\n'), "{nudge:?}");
        assert!(text.ends_with('.'), "{nudge:?} does not end");
        assert!(ALL[..place].iter().all(|other| other.text() != text), "{nudge:?} is a double");
    }
}

#[test]
fn only_a_cut_text_is_to_be_continued_where_it_stopped() {
    let said: Vec<&Nudge> =
        ALL.iter().filter(|nudge| nudge.text().contains("where it stopped")).collect();
    assert_eq!(said, [&Nudge::Continue(Cut::Text)]);
}

#[test]
fn the_last_reply_is_not_told_to_do_more() {
    for nudge in [Nudge::ContinueLast, Nudge::LastTurn, Nudge::WrapUp] {
        for more in ["Go on", "smaller pieces", "append"] {
            assert!(!nudge.text().contains(more), "{nudge:?} says `{more}`");
        }
    }
}
