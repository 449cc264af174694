//! The loop detector: a corpus of sessions, and what holds for any of them.

use std::fs;
use std::path::PathBuf;

use outlast_core::recovery::{
    CallEffect, Fingerprint, LoopDetector, LoopLimits, LoopStatus, ToolCallRecord, is_wait,
};
use proptest::prelude::*;

use crate::support::golden;

// --- reading sessions ----------------------------------------------------------------------------

/// The lines of a session with its rounds written out.
fn unrolled(text: &str) -> Vec<String> {
    let (mut lines, mut round): (Vec<String>, Option<(usize, Vec<&str>)>) = (Vec::new(), None);
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if let Some(times) = line.strip_prefix("repeat ") {
            round = Some((times.parse().expect("a number"), Vec::new()));
        } else if line == "end" {
            let (times, body) = round.take().expect("a round was begun");
            for n in 1..=times {
                lines.extend(body.iter().map(|line| line.replace("{n}", &n.to_string())));
            }
        } else if let Some((_, body)) = &mut round {
            body.push(line);
        } else {
            lines.push(line.to_owned());
        }
    }
    assert!(round.is_none(), "a round without an end");
    lines
}

/// The record of one call for the loop detector.
fn parse_call(line: &str) -> ToolCallRecord {
    let line = line.trim_start_matches('+');
    let (failed, line) = match line.strip_prefix('!') {
        Some(line) => (true, line),
        None => (false, line),
    };
    let (tool, rest) = line.split_once(" | ").expect("a tool");
    let (arguments, result) = rest.rsplit_once(" | ").expect("arguments and a result");
    let command = (tool == "Bash").then_some(arguments);
    let nature = match tool {
        _ if is_wait(tool, command) => CallEffect::Waited,
        _ if failed => CallEffect::Failed,
        "Edit" => {
            let (path, content) = arguments.split_once(" = ").expect("a path and a content");
            let (file, now) =
                (Fingerprint::of(&[path.as_bytes()]), Fingerprint::of(&[content.as_bytes()]));
            CallEffect::Edited { file, now }
        }
        "Read" | "Grep" | "Glob" | "LS" | "TodoWrite" => CallEffect::ReadOnly,
        _ => CallEffect::Changed,
    };
    ToolCallRecord::new(tool, arguments.as_bytes(), result.as_bytes(), nature)
}

/// One batch for each reply.
fn batches(text: &str) -> Vec<Vec<ToolCallRecord>> {
    let mut batches: Vec<Vec<ToolCallRecord>> = Vec::new();
    for line in unrolled(text) {
        match batches.last_mut() {
            Some(batch) if line.starts_with('+') => batch.push(parse_call(&line)),
            Some(_) | None => batches.push(vec![parse_call(&line)]),
        }
    }
    batches
}

/// The replies, counted from 1, after which the model is told and the run ends.
#[derive(Debug, Default, PartialEq)]
struct Verdict {
    told: Vec<usize>,
    stuck: Option<usize>,
}

fn detector_result(batches: &[Vec<ToolCallRecord>], limits: LoopLimits) -> Verdict {
    compacted_result(batches.iter().cloned(), limits, usize::MAX)
}

/// The result if the history is compacted after so many batches, and again.
fn compacted_result(
    batches: impl Iterator<Item = Vec<ToolCallRecord>>,
    limits: LoopLimits,
    every: usize,
) -> Verdict {
    let (mut spiral, mut verdict) = (LoopDetector::default(), Verdict::default());
    for (number, batch) in (1..).zip(batches) {
        match spiral.observe(&batch, limits) {
            LoopStatus::Fresh => {}
            LoopStatus::Repeating => verdict.told.push(number),
            LoopStatus::Stuck => {
                verdict.stuck = Some(number);
                break;
            }
        }
        if number % every == 0 {
            spiral.record_compaction();
        }
    }
    verdict
}

/// Name and text of every session in a folder.
fn sessions(folder: &str) -> Vec<(String, String)> {
    let root = golden::root().join("tests/data/spiral").join(folder);
    let entries = fs::read_dir(root).expect("the corpus is there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    let named = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("readable");
        (path.file_name().expect("a name").to_string_lossy().into_owned(), text)
    };
    paths.into_iter().map(named).collect()
}

// --- the corpus ----------------------------------------------------------------------------------

#[test]
fn the_loop_detector_accepts_every_session_of_real_work() {
    let sessions = sessions("honest");
    assert!(sessions.len() >= 12);
    for (name, text) in sessions {
        assert_eq!(
            detector_result(&batches(&text), LoopLimits::default()),
            Verdict::default(),
            "{name}"
        );
    }
}

#[test]
fn every_recorded_loop_is_warned_about_and_ended_where_its_file_says() {
    let sessions = sessions("loops");
    assert!(sessions.len() >= 10);
    let mut wrong = Vec::new();
    for (name, text) in sessions {
        let numbers = |word: &str| -> Vec<usize> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(word));
            lines.map(|number| number.parse().expect("a number")).collect()
        };
        let wanted = Verdict { told: numbers("# told "), stuck: numbers("# stuck ").pop() };
        assert!(!wanted.told.is_empty() && wanted.stuck.is_some(), "{name} says too little");
        let found = detector_result(&batches(&text), LoopLimits::default());
        if found != wanted {
            wrong.push(format!("{name}: {found:?} instead of {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// --- single rules --------------------------------------------------------------------------------

fn warned_and_stopped_at(text: &str, limits: LoopLimits) -> (Vec<usize>, Option<usize>) {
    let Verdict { told, stuck } = detector_result(&batches(text), limits);
    (told, stuck)
}

#[test]
fn the_soft_limit_warns_and_the_hard_limit_stops_at_their_counts() {
    let text = "repeat 40\nRead | a | a\nend";
    let at = |soft, hard| warned_and_stopped_at(text, LoopLimits { soft, hard });
    assert_eq!(at(3, 6), (vec![3], Some(6)));
    assert_eq!(at(7, 31), (vec![7], Some(31)));
}

#[test]
fn extreme_loop_limits_still_warn_before_they_stop() {
    let text = "repeat 40\nRead | a | a\nend";
    for (soft, hard) in [(0, 0), (1, 1), (5, 5), (5, 2)] {
        let (told, stuck) = warned_and_stopped_at(text, LoopLimits { soft, hard });
        assert_eq!(told, [soft.max(2) as usize], "{soft} {hard}");
        assert_eq!(stuck, Some(soft.max(2) as usize + 1), "{soft} {hard}");
    }
    let twice = "repeat 9\nRead | a | a\n+Read | a | a\nend";
    let limits = LoopLimits { soft: 5, hard: 1 };
    assert_eq!(warned_and_stopped_at(twice, limits), (vec![5], Some(6)));
    // Without a warning, the end is where it was set.
    for (hard, stuck) in [(u32::MAX, None), (10, Some(10)), (1, Some(2))] {
        let limits = LoopLimits { soft: u32::MAX, hard };
        assert_eq!(warned_and_stopped_at(text, limits), (vec![], stuck), "{hard}");
    }
}

#[test]
fn a_new_file_state_resets_all_repetition_counts() {
    for call in ["Read | a | a", "!Bash | make | error", "Bash | make | ok"] {
        let text = format!("repeat 9\n{call}\nend\nEdit | f = new | ok\nrepeat 4\n{call}\nend");
        assert_eq!(warned_and_stopped_at(&text, LoopLimits::default()), (vec![5], None), "{call}");
    }
}

#[test]
fn a_known_file_state_does_not_reset_repetition_counts() {
    let text =
        "Edit | f = old | ok\nrepeat 9\nRead | a | a\nend\nEdit | f = old | ok\nRead | a | a";
    assert_eq!(warned_and_stopped_at(text, LoopLimits::default()), (vec![6], Some(12)));
}

#[test]
fn a_new_successful_result_resets_the_failures_of_its_tool_only() {
    let after = |call: &str| {
        let text = format!(
            "repeat 9\n!Bash | make | error\nend\n{call}\nrepeat 4\n!Bash | make | error\nend"
        );
        warned_and_stopped_at(&text, LoopLimits::default())
    };
    assert_eq!(after("Bash | apt install gcc | done"), (vec![5], None));
    assert_eq!(after("Read | Makefile | all:"), (vec![5], Some(12)));
    assert_eq!(after("!Bash | gcc | another error"), (vec![5], Some(11)));
    let known = |first: &str, then: &str| {
        let fails = "!Bash | make | error";
        let text = format!("{first}\nrepeat 9\n{fails}\nend\n{then}\nrepeat 4\n{fails}\nend");
        warned_and_stopped_at(&text, LoopLimits::default())
    };
    assert_eq!(known("Bash | touch a | ", "Bash | touch b | "), (vec![6], None));
    assert_eq!(known("Bash | date | 1", "Bash | date | 2"), (vec![6], None));
    assert_eq!(known("Bash | date | 1", "Bash | date | 1"), (vec![6], Some(12)));
}

#[test]
fn the_same_input_to_two_tools_has_two_fingerprints() {
    let text = "repeat 4\nRead | a | x\nGrep | a | x\nend";
    assert_eq!(warned_and_stopped_at(text, LoopLimits::default()), (vec![], None));
}

#[test]
fn a_new_command_between_two_file_reverts_lowers_the_count_of_the_second() {
    let turn = |command: &str| {
        let text =
            format!("repeat 30\nEdit | f = a | ok\n{command}\nEdit | f = b | ok\n{command}\nend");
        warned_and_stopped_at(&text, LoopLimits { soft: 5, hard: 100 }).0
    };
    assert_eq!(turn("Grep | {n} | none"), [13]);
    assert_eq!(turn("Bash | touch {n} | "), [17]);
}

/// A model may call again what it has forgotten; a loop whose results fill the window still ends.
#[test]
fn a_compaction_reduces_the_weight_of_a_repetition_without_forgetting_it() {
    let read = |path: &str| {
        let (path, result) = (path.as_bytes(), path.as_bytes());
        vec![ToolCallRecord::new("Read", path, result, CallEffect::ReadOnly)]
    };
    let verdict = |batch: &dyn Fn(usize) -> Vec<ToolCallRecord>, every: usize| {
        compacted_result((1..=300).map(batch), LoopLimits::default(), every)
    };
    let same = |_: usize| read("a");
    assert_eq!(verdict(&same, 1), Verdict { told: vec![9], stuck: Some(19) });
    assert_eq!(verdict(&same, 1_000), Verdict { told: vec![5], stuck: Some(10) });
    // A file that is read again after each compaction, between others.
    let among_others = |number: usize| match number % 5 {
        1 => read("a"),
        _ => read(&format!("file {number}")),
    };
    assert_eq!(verdict(&among_others, 5), Verdict::default());
}

#[test]
fn the_loop_detector_uses_bounded_memory_in_a_long_run() {
    let room = |calls: usize| {
        let mut spiral = LoopDetector::default();
        for number in 0..calls {
            let number = number.to_string();
            let (file, now) = (Fingerprint::of(&[b"f"]), Fingerprint::of(&[number.as_bytes()]));
            for nature in NATURES.into_iter().chain([CallEffect::Edited { file, now }]) {
                let deed = ToolCallRecord::new("T", number.as_bytes(), number.as_bytes(), nature);
                spiral.observe(&[deed], LoopLimits::default());
            }
        }
        format!("{spiral:?}").len()
    };
    assert!(room(4_000) < room(1_000) * 11 / 10);
}

#[test]
fn evicted_fingerprints_do_not_count_as_repetitions() {
    let others = "repeat 60\nRead | {n} | {n}\nend";
    let text = format!("repeat 4\nRead | a | a\nend\n{others}\n{}", "Read | a | a\n".repeat(4));
    assert_eq!(warned_and_stopped_at(&text, LoopLimits::default()), (vec![], None));
}

#[test]
fn waiting_commands_and_tools_are_recognised() {
    for command in [
        "sleep 5",
        "  sleep 30 && gh run view",
        "make & wait",
        "for i in 1 2 3; do sleep 1; done",
        "while ! nc -z db 5432\ndo\n  sleep 1\ndone",
        "until curl -s localhost; do :; done",
        "gh run watch 17",
        "kubectl wait --for=condition=Ready pod/x",
        "docker compose up --wait",
        "TZ=UTC sudo watch -g date",
        "(sleep 3; ls)",
    ] {
        assert!(is_wait("Bash", Some(command)), "{command}");
    }
    for command in ["cargo test", "grep -rn wait src", "echo sleep", "cat sleep.txt", "git log", ""]
    {
        assert!(!is_wait("Bash", Some(command)), "{command}");
    }
    for tool in ["BashOutput", "TaskOutput", "mcp__ci__wait_for_build", "poll-status"] {
        assert!(is_wait(tool, None), "{tool}");
    }
    for tool in ["Bash", "Read", "Await4", "mcp__hr__waiter_list"] {
        assert!(!is_wait(tool, None), "{tool}");
    }
}

fn failure(text: &str) -> ToolCallRecord {
    ToolCallRecord::new("Bash", b"x", text.as_bytes(), CallEffect::Failed)
}

#[test]
fn only_durations_are_ignored_when_failures_are_compared() {
    for (one, other) in [
        ("failed in 0.53s", "failed in 12.01s"),
        ("12 ms total", "3 ms total"),
        ("took 3 seconds.", "took 14 seconds."),
    ] {
        assert_eq!(failure(one), failure(other), "{one}");
    }
    for (one, other) in [
        ("3 tests failed", "4 tests failed"),
        ("line 12: syntax", "line 13: syntax"),
        ("v1s2", "v2s2"),
        ("port 8080 store", "port 8081 store"),
        ("12", "13"),
        ("", "s"),
        ("1.5", "1.5s"),
    ] {
        assert_ne!(failure(one), failure(other), "{one}");
    }
}

#[test]
fn a_fingerprint_separates_its_parts() {
    assert_ne!(Fingerprint::of(&[b"ab", b"c"]), Fingerprint::of(&[b"a", b"bc"]));
    assert_ne!(Fingerprint::of(&[b""]), Fingerprint::of(&[]));
    assert_eq!(Fingerprint::of(&[b"ab"]), Fingerprint::of(&[b"ab"]));
}

// --- what holds for any session ------------------------------------------------------------------

const NATURES: [CallEffect; 4] =
    [CallEffect::Changed, CallEffect::ReadOnly, CallEffect::Failed, CallEffect::Waited];

fn any_deed() -> impl Strategy<Value = ToolCallRecord> {
    (0..3_u8, 0..4_u8, 0..3_u8, 0..6_usize).prop_map(|(tool, call, result, nature)| {
        let nature = NATURES.get(nature).copied().unwrap_or(CallEffect::Edited {
            file: Fingerprint::of(&[&[tool]]),
            now: Fingerprint::of(&[&[result]]),
        });
        ToolCallRecord::new(&tool.to_string(), &[call], &[result], nature)
    })
}

fn any_session(most: usize) -> impl Strategy<Value = Vec<Vec<ToolCallRecord>>> {
    prop::collection::vec(prop::collection::vec(any_deed(), 0..4), 0..most)
}

proptest! {
    #[test]
    fn calls_with_new_results_are_never_a_loop(
        calls in prop::collection::vec((0..2_u8, 0..2_u8, 0..5_usize), 0..300),
        soft in 2..6_u32,
    ) {
        let mut spiral = LoopDetector::default();
        for (number, (tool, call, nature)) in calls.into_iter().enumerate() {
            let result = number.to_le_bytes();
            let nature = NATURES.get(nature).copied().unwrap_or(CallEffect::Edited {
                file: Fingerprint::of(&[&[tool]]),
                now: Fingerprint::of(&[&result]),
            });
            let deed = ToolCallRecord::new(&tool.to_string(), &[call], &result, nature);
            let limits = LoopLimits { soft, hard: soft + 1 };
            prop_assert_eq!(spiral.observe(&[deed], limits), LoopStatus::Fresh);
        }
    }

    #[test]
    fn no_run_is_stopped_without_a_warning(session in any_session(400), soft in 0..8_u32, hard in 0..16_u32) {
        let verdict = detector_result(&session, LoopLimits { soft, hard });
        if let Some(stuck) = verdict.stuck {
            prop_assert!(verdict.told.first().is_some_and(|told| *told < stuck), "{:?}", verdict);
        }
    }

    #[test]
    fn a_loop_is_found_after_any_amount_of_real_work(session in any_session(60)) {
        let mut spiral = LoopDetector::default();
        let limits = LoopLimits::default();
        let mut paces: Vec<LoopStatus> =
            session.iter().map(|batch| spiral.observe(batch, limits)).collect();
        let again = ToolCallRecord::new("Read", b"again", b"again", CallEffect::ReadOnly);
        paces.extend((0..limits.hard).map(|_| spiral.observe(&[again], limits)));
        prop_assert_eq!(paces.last(), Some(&LoopStatus::Stuck));
        prop_assert!(paces.contains(&LoopStatus::Repeating));
    }
}
