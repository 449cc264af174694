//! The limits under which the state machine is explored.

use std::time::Duration;

use outlast_core::recovery::{
    AccountKind, Budgets, FastMode, Limits, Moment, OutputCaps, Persistence, QuerySource,
};

use super::{NOTHING, limits, secs};

/// One of everything that failures and replies need.
pub(super) fn small() -> Limits {
    let budgets = Budgets {
        turns: Some(1),
        retries: 1,
        bucket: 10,
        switches: 1,
        preferred_retries: 1,
        refreshes: 1,
        escalations: 1,
        continuations: 1,
        empty_replies: 1,
        resumptions: 1,
        nudges: 1,
        reports: 1,
        ..NOTHING
    };
    let caps = OutputCaps { first: 100, escalated: 1_000, whole: 500, floor: 10, summary: 50 };
    Limits { budgets, caps, headroom: 100, whole_turns: 1, ..limits() }
}

/// More of what failures need, and nothing of what replies do.
pub(super) fn failing() -> Limits {
    let budgets =
        Budgets { turns: Some(2), retries: 2, bucket: 12, switches: 1, refreshes: 1, ..NOTHING };
    Limits { budgets, ..small() }
}

/// More of what replies need, and nothing of what failures do.
pub(super) fn replying() -> Limits {
    let budgets = Budgets {
        turns: Some(4),
        retries: 0,
        bucket: 0,
        switches: 0,
        refreshes: 0,
        continuations: 2,
        nudges: 2,
        reports: 2,
        ..small().budgets
    };
    Limits { budgets, effort: Some(600), ..small() }
}

/// Replies without a sign that they are complete.
fn unfinished() -> Limits {
    let budgets = Budgets { turns: Some(3), retries: 1, bucket: 10, ..NOTHING };
    let budgets = Budgets { incomplete_retries: 1, completions: 2, switches: 1, ..budgets };
    let budgets = Budgets { reminders: 1, ..budgets };
    Limits {
        budgets: Budgets { probes: 1, ..budgets },
        fallback_return: Some(secs(600)),
        ..small()
    }
}

/// Streams that break, at two endpoints.
fn broken_streams() -> Limits {
    let budgets = Budgets { turns: Some(4), retries: 3, bucket: 20, switches: 2, ..NOTHING };
    Limits { budgets, whole_turns: 2, endpoint_changes: 0b10, ..small() }
}

/// Small requests that are called too long, and thinking that is not wanted.
fn wrong_rejections() -> Limits {
    let budgets = Budgets { overflow_retries: 1, thinking: 1, ..filling().budgets };
    let budgets = Budgets { cache_marks: 1, streaming: 1, odd_refusals: 1, ..budgets };
    Limits { budgets: Budgets { compactions: Some(1), ..budgets }, ..small() }
}

/// A conversation that fills its window.
fn filling() -> Limits {
    let budgets = Budgets {
        turns: Some(2),
        fold_commits: 1,
        compactions: Some(2),
        reactive_compactions: 1,
        smaller_caps: 1,
        trims: 1,
        unsummarised_compactions: 1,
        failed_compactions: 1,
        ..NOTHING
    };
    Limits { budgets, ..small() }
}

/// The same, where only progress bounds the summaries.
pub(super) fn unbounded_summaries() -> Limits {
    Limits { budgets: Budgets { compactions: None, ..filling().budgets }, ..small() }
}

/// Requests that are refused for what is in them.
fn poisoned() -> Limits {
    let budgets = Budgets { turns: Some(2), retries: 1, bucket: 10, ..NOTHING };
    let budgets =
        Budgets { strips: 1, block_repairs: 2, fold_commits: 1, added_content: 1, ..budgets };
    Limits { budgets, ..small() }
}

/// Three models at two endpoints, with a return to the preferred one.
fn chained() -> Limits {
    let budgets = Budgets { turns: Some(2), retries: 1, bucket: 10, refreshes: 1, ..NOTHING };
    let budgets = Budgets { switches: 2, probes: 1, preferred_retries: 1, ..budgets };
    let fallback_return = Some(secs(600));
    Limits { budgets, fallback_return, endpoint_changes: 0b10, ..small() }
}

fn fast() -> Limits {
    let budgets = Budgets { turns: Some(2), retries: 1, bucket: 10, switches: 1, ..NOTHING };
    let budgets = Budgets { cool_downs: 2, fast_mode: 1, refreshes: 1, ..budgets };
    Limits { budgets, fast: Some(FastMode::default()), ..small() }
}

/// Other runs may share a rate limit that they met.
fn sharing() -> Limits {
    let budgets = Budgets { turns: Some(2), retries: 1, bucket: 10, refreshes: 1, ..NOTHING };
    Limits { budgets: Budgets { shared_limit_waits: 2, ..budgets }, ..small() }
}

/// A service that is out is probed, and the shortest wait is long enough for it.
fn probing() -> Limits {
    let budgets =
        Budgets { turns: Some(2), switches: 1, refreshes: 1, shared_limit_waits: 1, ..NOTHING };
    let budgets = Budgets { capacity_probes: 1, early_returns: 1, ..budgets };
    let probe_interval = Some(Duration::from_millis(100));
    Limits { budgets, probe_interval, persistence: Persistence::All, ..small() }
}

/// Nothing is done before it is accepted.
fn with_requirement() -> Limits {
    let budgets = Budgets { turns: Some(4), nudges: 1, ..NOTHING };
    let budgets = Budgets { schema_tries: 1, requirement_tries: 2, reports: 1, ..budgets };
    let effort = Some(600);
    Limits { budgets, effort, structured: true, requirement: true, ..small() }
}

/// Stop hooks run before every other acceptance check.
fn with_stop_hooks() -> Limits {
    let budgets = Budgets { objections: 2, ..with_requirement().budgets };
    Limits { budgets, stop_hooks: true, structured: false, ..with_requirement() }
}

/// Unexpected refusals by an endpoint that has succeeded before.
fn odd_refusals() -> Limits {
    let budgets = Budgets { turns: Some(1), retries: 1, bucket: 5, refreshes: 1, ..NOTHING };
    Limits { budgets: Budgets { odd_refusals: 2, switches: 1, ..budgets }, ..small() }
}

pub(super) fn settings() -> Vec<(&'static str, Limits)> {
    let failing = failing();
    let once = Limits { budgets: Budgets { turns: Some(1), ..failing.budgets }, ..failing };
    let forgone = Budgets { failed_compactions: 0, ..filling().budgets };
    vec![
        ("one of everything", small()),
        ("replies and effort", replying()),
        ("time to wrap up", Limits { wrap_up: Some(Moment::default()), ..replying() }),
        ("failures", failing),
        ("subscription", Limits { account: AccountKind::Subscription, ..once }),
        ("background", Limits { source: QuerySource::Background, ..once }),
        ("a limit on overloads", Limits { overload_limit: Some(2), ..once }),
        ("waiting for capacity", Limits { persistence: Persistence::Capacity, ..failing }),
        ("waiting for anything", Limits { persistence: Persistence::All, ..once }),
        ("a full window", filling()),
        ("a full window, as many summaries as make room", unbounded_summaries()),
        ("a full window, not compacted ahead", Limits { auto_compact: false, ..filling() }),
        ("a full window, compaction broken", Limits { budgets: forgone, ..filling() }),
        ("poisoned requests", poisoned()),
        ("replies that are not complete", unfinished()),
        ("streams that break", broken_streams()),
        ("requests that are rejected wrongly", wrong_rejections()),
        ("a chain with a way back", chained()),
        ("fast mode", fast()),
        ("limits shared with other runs", sharing()),
        ("probes while waiting for anything", probing()),
        (
            "probes while waiting for capacity",
            Limits { persistence: Persistence::Capacity, ..probing() },
        ),
        (
            "probes that only the patient make",
            Limits { persistence: Persistence::Off, ..probing() },
        ),
        ("odd refusals", odd_refusals()),
        ("a schema and a requirement", with_requirement()),
        ("a requirement", Limits { structured: false, ..with_requirement() }),
        ("Stop hooks and a requirement", with_stop_hooks()),
        ("Stop hooks", Limits { requirement: false, effort: None, ..with_stop_hooks() }),
    ]
}
