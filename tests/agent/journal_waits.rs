//! A disk that does not answer while the run waits for its journal.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use outlast::agent::{JournalHealth, interrupt};
use outlast::journal::{Journal, JournalMirror, OnDamage, SessionFolder, SessionId, read_session};
use outlast::recovery::{Interrupt, Moment, StopReason};
use outlast::rehearsal::Scenario;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::run_fixture::{ObservedEvent, RunFixture, opening};

/// Time that the disk hangs if nothing releases it, so that a run that waits for it fails its test.
const BOUND: Duration = Duration::from_mins(2);

/// A run with one command, whose journal hangs.
struct HangingRun {
    play: RunFixture,
    place: SessionFolder,
    /// Comes when it begins to hang.
    hung: Arc<Notify>,
    /// The disk answers once this is dropped.
    release: mpsc::Sender<()>,
}

/// The journal hangs after a line that is `chosen`: the thread that writes passes each line on to the
/// mirror.
fn hanging_at(chosen: fn(&Value) -> bool) -> HangingRun {
    let scenario = Scenario::new().tool("Bash", json!({ "command": "touch effect" }));
    let mut play = RunFixture::of(scenario.reply("Done.")).limits(|limits| {
        limits.heartbeat = Duration::from_millis(5);
    });
    let (hung, (release, released)) = (Arc::new(Notify::new()), mpsc::channel());
    let (notify, released) = (Arc::clone(&hung), Mutex::new(released));
    let mirror = JournalMirror::new(move |_, line| {
        if chosen(&line) {
            notify.notify_one();
            let _ = released.lock().expect("one thread").recv_timeout(BOUND);
        }
    });
    let place = SessionFolder::new(&play.folder.path().join("config"), play.folder.path());
    let mirrored = place.clone().mirrored(Some(mirror));
    play.setup.journal = Journal::create(&mirrored, &id(), &opening()).expect("it can be made");
    HangingRun { play, place, hung, release }
}

fn id() -> SessionId {
    SessionId::parse("hanging").expect("a name")
}

fn is_intent(line: &Value) -> bool {
    line["kind"] == "intent"
}

type LineTest = fn(&Value) -> bool;

fn is_prompt(line: &Value) -> bool {
    line["type"] == "user"
}

fn is_end(line: &Value) -> bool {
    line["kind"] == "end"
}

#[tokio::test]
async fn heartbeats_go_on_and_no_effect_happens_until_the_disk_answers() {
    let journal = ObservedEvent::Heartbeat("journal".to_owned());
    let at: [(LineTest, usize); 2] = [(is_prompt, 0), (is_intent, 1)];
    for (chosen, requests) in at {
        let HangingRun { play, place, hung, release } = hanging_at(chosen);
        let playing = play.start();
        hung.notified().await;
        playing.record.wait_for_next(|said| *said == journal).await;
        assert_eq!(playing.server.requests().len(), requests);
        assert!(!playing.folder.path().join("effect").exists());
        drop(release);
        let played = playing.end().await;
        played.assert_end(StopReason::Completed, "Done.");
        assert!(played.has("effect"));
        assert_eq!(played.ending.journal, JournalHealth::Durable);
        let session = read_session(&place, &id(), OnDamage::Refuse).expect("the journal is whole");
        assert_eq!(session.work.ended, Some(StopReason::Completed));
    }
}

#[tokio::test]
async fn an_interrupt_ends_a_run_whose_disk_does_not_answer() {
    let by = Interrupt::Sigterm;
    let at: [(LineTest, StopReason, usize); 3] = [
        (is_prompt, StopReason::AbortedStreaming(by), 0),
        (is_intent, StopReason::AbortedTools(by), 1),
        (is_end, StopReason::Completed, 2),
    ];
    for (chosen, reason, requests) in at {
        let HangingRun { play, hung, release, .. } = hanging_at(chosen);
        let playing = play.start();
        hung.notified().await;
        interrupt(&playing.interrupter, by);
        let played = playing.end().await;
        assert_eq!((played.ending.reason, played.server.requests().len()), (reason, requests));
        assert_eq!(played.has("effect"), reason == StopReason::Completed);
        let JournalHealth::Lost(why) = &played.ending.journal else { panic!("it is not lost") };
        assert!(why.contains("the disk has not answered for"), "{why}");
        drop(release);
    }
}

#[tokio::test]
async fn the_deadline_ends_a_run_whose_disk_does_not_answer() {
    let HangingRun { play, release, .. } = hanging_at(is_prompt);
    let play = play.limits(|limits| limits.deadline = Some(Moment::from_millis(300)));
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::Deadline);
    assert!(matches!(played.ending.journal, JournalHealth::Lost(_)));
    assert_eq!(played.server.requests().len(), 0);
    drop(release);
}

/// The wait for the disk leaves hooks of the end a part of their time: one is at least started.
#[tokio::test]
async fn hooks_of_the_end_do_not_vanish_while_the_disk_does_not_answer() {
    let HangingRun { play, release, .. } = hanging_at(is_prompt);
    let hook = json!({ "type": "command", "command": "touch ended" });
    let play = play.hooks(&json!({ "SessionEnd": [{ "hooks": [hook] }] }));
    let play = play.limits(|limits| limits.deadline = Some(Moment::from_millis(300)));
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::Deadline);
    assert!(matches!(played.ending.journal, JournalHealth::Lost(_)));
    let hooks = &played.ending.hooks;
    let is_reported = hooks.ran == 1 || hooks.cut.iter().any(|cut| cut.starts_with("SessionEnd"));
    assert!(is_reported, "{hooks:?}");
    drop(release);
}
