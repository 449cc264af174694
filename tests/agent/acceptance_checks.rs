//! Inputs of the loop detector and of the requirements on a run, in cases that a run of the whole
//! binary could not produce.

use std::time::Duration;

use outlast::agent::interrupt;
use outlast::recovery::{Event, Interrupt, LoopLimits, LoopStatus, Nudge, StopReason};
use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use super::loops::bash;
use super::run_fixture::{FinishedRun, ObservedEvent, RunFixture};

/// The verdict of the loop detector after each round of tools.
fn loop_statuses(played: &FinishedRun) -> Vec<LoopStatus> {
    let pace = |said: &ObservedEvent| {
        let ObservedEvent::Step(step) = said else { return None };
        if let Event::ToolsDone(pace) = step.event { Some(pace) } else { None }
    };
    played.said.iter().filter_map(pace).collect()
}

fn first_repetition(paces: &[LoopStatus]) -> Option<usize> {
    paces.iter().position(|pace| *pace == LoopStatus::Repeating).map(|at| at + 1)
}

/// Judged at the second repetition already.
fn strict(play: RunFixture) -> RunFixture {
    play.limits(|limits| limits.loops = LoopLimits { soft: 3, hard: 100 })
}

async fn rounds(files: &[(&str, &[u8])], rounds: &[(&str, Value)]) -> Vec<LoopStatus> {
    let script = rounds
        .iter()
        .fold(Scenario::new(), |script, (tool, input)| script.tool(tool, input.clone()));
    let play = strict(RunFixture::of(script.reply("Done.")));
    for (path, bytes) in files {
        std::fs::write(play.folder.path().join(path), bytes).expect("written");
    }
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    loop_statuses(&played)
}

/// The smallest picture of a colour there is.
fn picture(colour: u8) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let picture = image::RgbImage::from_pixel(8, 8, image::Rgb([colour, 0, 0]));
    picture.write_to(&mut bytes, image::ImageFormat::Png).expect("it can be written");
    bytes.into_inner()
}

#[tokio::test]
async fn loop_detector_treats_a_different_picture_as_a_new_result() {
    let pictures: Vec<(String, Vec<u8>)> =
        (0..8).map(|n| (format!("{n}.png"), picture(n * 30))).collect();
    let files: Vec<(&str, &[u8])> =
        pictures.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    let read = ("Read", json!({ "file_path": "shot.png" }));
    // The same command with the same output each time, as a camera would be.
    let shoot =
        bash("sleep 0; n=$(cat n 2>/dev/null || echo 0); cp $n.png shot.png; echo $((n + 1)) > n");
    let changing: Vec<_> = (0..8).flat_map(|_| [shoot.clone(), read.clone()]).collect();
    assert_eq!(first_repetition(&rounds(&files, &changing).await), None);
    let same: Vec<_> = (0..6).map(|_| ("Read", json!({ "file_path": "0.png" }))).collect();
    assert_eq!(first_repetition(&rounds(&files, &same).await), Some(3));
}

#[tokio::test]
async fn loop_detector_treats_failing_waits_like_successful_waits() {
    for command in ["sleep 0; echo running", "sleep 0; exit 1"] {
        let polls: Vec<_> = (0..12).map(|_| bash(command)).collect();
        assert_eq!(first_repetition(&rounds(&[], &polls).await), None, "{command}");
    }
    for command in ["echo sleep 1", "exit 1"] {
        let same: Vec<_> = (0..6).map(|_| bash(command)).collect();
        assert_eq!(first_repetition(&rounds(&[], &same).await), Some(3), "{command}");
    }
}

#[tokio::test]
async fn loop_detector_counts_changes_but_not_reads_as_progress() {
    // One that is only looked at, or noted, leaves the other call what it was.
    let between = |other: fn(usize) -> (&'static str, Value)| -> Vec<_> {
        (0..8).flat_map(|n| [bash("cat state"), other(n)]).collect()
    };
    let todo = |n: usize| {
        let todo =
            json!({ "content": format!("step {n}"), "status": "pending", "activeForm": "x" });
        ("TodoWrite", json!({ "todos": [todo] }))
    };
    let files: [(&str, &[u8]); 1] = [("state", b"as ever\n")];
    assert!(first_repetition(&rounds(&files, &between(todo)).await).is_some());
    let changes = |n: usize| ("Write", json!({ "file_path": format!("f{n}"), "content": "x" }));
    assert_eq!(first_repetition(&rounds(&files, &between(changes)).await), None);
    // A write that failed changed nothing.
    let fails =
        |n: usize| ("Write", json!({ "file_path": format!("/proc/{n}/no"), "content": "x" }));
    assert!(first_repetition(&rounds(&files, &between(fails)).await).is_some());
}

#[tokio::test]
async fn unmet_acceptance_checks_are_reported_in_one_block() {
    let scenario = Scenario::new().reply("One.").reply("Two.");
    let play = RunFixture::of(scenario).requiring("echo said; echo x >> n; test $(wc -l < n) = 2");
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let said: Vec<_> =
        played.said.iter().filter(|said| matches!(said, ObservedEvent::User(_))).collect();
    let [ObservedEvent::User(blocks)] = said[..] else { panic!("{said:?}") };
    let [outlast::transcript::Block::Text { text }] = &blocks[..] else { panic!("{blocks:?}") };
    assert!(text.starts_with(Nudge::Unmet.text()) && text.ends_with("said"), "{text}");
    played.assert_no_warnings_or_repairs();
}

#[tokio::test]
async fn a_failed_acceptance_check_lists_what_was_tried_since_the_previous_one() {
    let write = json!({ "file_path": "tried.txt", "content": "x" });
    let scenario = Scenario::new().reply("One.").tool("Write", write).reply("Two.").reply("Three.");
    let play = RunFixture::of(scenario.reply("Four.")).requiring("echo said; false");
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::RequirementFailed);
    let texts = played.said.iter().filter_map(|said| {
        let ObservedEvent::User(blocks) = said else { return None };
        let [outlast::transcript::Block::Text { text }] = &blocks[..] else { return None };
        Some(text.as_str())
    });
    let texts: Vec<&str> = texts.filter(|text| text.contains("echo said; false")).collect();
    let [first, second, third] = texts[..] else { panic!("{texts:?}") };
    let same = "same as at the attempt before";
    assert!(first.contains("attempt 1 of 4") && !first.contains(same), "{first}");
    assert!(second.contains("attempt 2 of 4") && second.contains("tried.txt"), "{second}");
    assert!(second.contains(same), "{second}");
    assert!(third.contains("attempt 3 of 4") && third.contains("no tool call"), "{third}");
    assert!(!third.contains("tried.txt"), "{third}");
    played.assert_no_warnings_or_repairs();
}

#[tokio::test]
async fn an_interrupted_acceptance_check_counts_as_failed() {
    let play = RunFixture::of(Scenario::new().reply("Done."))
        .requiring("trap '' TERM; sleep 1000 & wait; sleep 1000");
    let playing = play.limits(|limits| limits.heartbeat = Duration::from_millis(20)).start();
    playing
        .record
        .wait_for(|said| *said == ObservedEvent::Heartbeat("tool --require".to_owned()))
        .await;
    interrupt(&playing.interrupter, Interrupt::Sigterm);
    let played = playing.end().await;
    assert_eq!(played.ending.reason, StopReason::AbortedTools(Interrupt::Sigterm));
    let verified = played.ending.acceptance.requirement.expect("it was demanded");
    assert_eq!((verified.attempts, verified.passed, verified.exit_code), (1, false, None));
    assert!(verified.how.is_some_and(|how| how.contains("stopped")));
}
