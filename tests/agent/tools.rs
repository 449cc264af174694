//! Start times of tools, tools that run in parallel, and the order of their results.

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use outlast::agent::interrupt;
use outlast::journal::{self, Journal, OnDamage, SessionId};
use outlast::process::LandlockSupport;
use outlast::recovery::{Action, Interrupt, StopReason};
use outlast::rehearsal::{FaultPosition, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};

use super::lease::FileLeases;
use super::run_fixture::{ObservedEvent, RunFixture, opening};

/// Time for which a test checks that something does not happen.
const NEVER: Duration = Duration::from_millis(300);
const SOON: Duration = Duration::from_secs(40);

fn search(file: &str) -> Value {
    json!({ "pattern": "file", "path": file, "output_mode": "content" })
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("file{number:02}")).collect()
}

/// One reply that searches each file.
fn searching(names: &[String]) -> Scenario {
    names
        .iter()
        .fold(Scenario::new().empty(), |scenario, name| scenario.and_tool("Grep", search(name)))
}

fn runs_tools(said: &ObservedEvent) -> bool {
    matches!(said, ObservedEvent::Step(step) if step.action == Action::RunTools)
}

#[tokio::test]
async fn a_read_only_tool_starts_while_the_reply_still_streams() {
    // The stream stops for good right before it says that it is over.
    let scenario = searching(&names(1)).fault(ScriptedFaultKind::Stall, FaultPosition::Events(7));
    let play = RunFixture::of(scenario);
    let mut leases = FileLeases::on(play.folder.path(), &names(1));
    let playing = play.start();
    leases.wait_for(0).await;
    assert!(!playing.record.all().iter().any(runs_tools), "the reply is not over");
    interrupt(&playing.interrupter, Interrupt::Sigterm);
    leases.let_reader_through(0).await;
    let played = playing.end().await;
    assert_eq!(played.ending.reason, StopReason::AbortedStreaming(Interrupt::Sigterm));
    assert_eq!(played.ending.stats.tools.calls, 0, "nothing of a torn reply counts");
    assert!(!played.said.iter().any(|said| matches!(said, ObservedEvent::Assistant(_))));
}

#[tokio::test]
async fn no_tool_starts_early_after_a_tool_with_side_effects() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "echo ran > log" }))
        .and_tool("Grep", search("file00"))
        .fault(ScriptedFaultKind::Stall, FaultPosition::Events(12));
    let play = RunFixture::of(scenario);
    let mut leases = FileLeases::on(play.folder.path(), &names(1));
    let playing = play.start();
    playing.server.wait_for_request(1).await;
    assert!(!leases.wait_for_blocked_readers(1, NEVER).await, "it waits for its turn");
    assert!(!playing.folder.path().join("log").exists(), "and so does what changes something");
    interrupt(&playing.interrupter, Interrupt::Sigterm);
    let played = playing.end().await;
    assert_eq!(played.ending.reason, StopReason::AbortedStreaming(Interrupt::Sigterm));
    assert!(!played.folder.path().join("log").exists());
}

#[tokio::test]
async fn at_most_ten_read_only_tools_run_side_by_side() {
    let names = names(13);
    let play = RunFixture::of(searching(&names).reply("Done."));
    let mut leases = FileLeases::on(play.folder.path(), &names);
    let playing = play.start();
    assert!(
        leases.wait_for_blocked_readers(10, SOON).await,
        "ten run: {}",
        leases.count_blocked_readers()
    );
    playing.record.wait_for(runs_tools).await;
    assert!(
        !leases.wait_for_blocked_readers(11, NEVER).await,
        "the others wait: {}",
        leases.count_blocked_readers()
    );
    for index in 0..names.len() {
        leases.wait_for(index).await;
        leases.let_reader_through(index).await;
    }
    let played = playing.end().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(played.results().len(), 13);
    played.assert_no_warnings_or_repairs();
}

#[tokio::test]
async fn results_go_back_in_the_order_of_the_calls() {
    let names = names(4);
    let play = RunFixture::of(searching(&names).reply("Done."));
    let mut leases = FileLeases::on(play.folder.path(), &names);
    let playing = play.start();
    for index in (0..names.len()).rev() {
        leases.wait_for(index).await;
        leases.let_reader_through(index).await;
    }
    let played = playing.end().await;
    let results = played.results();
    assert_eq!(results.len(), names.len());
    for ((is_error, text), name) in results.iter().zip(&names) {
        assert!(!is_error && text.contains(name.as_str()), "{results:?}");
    }
    played.assert_no_warnings_or_repairs();
}

#[tokio::test]
async fn tools_with_side_effects_run_alone_and_in_order() {
    let command = |name: &str| json!({ "command": format!("echo {name} begins >> log; sleep 0.05; echo {name} ends >> log") });
    let scenario = Scenario::new()
        .tool("Bash", command("one"))
        .and_tool("Bash", command("two"))
        .and_tool("Read", json!({ "file_path": "log" }))
        .and_tool("Bash", command("three"))
        .reply("Done.");
    let played = RunFixture::of(scenario).run().await;
    let log = std::fs::read_to_string(played.folder.path().join("log")).expect("tools ran");
    let expected = "one begins\none ends\ntwo begins\ntwo ends\nthree begins\nthree ends\n";
    assert_eq!(log, expected);
    let results = played.results();
    let seen = &results[2].1;
    assert!(seen.contains("two ends") && !seen.contains("three"), "it saw what was there: {seen}");
    played.assert_no_warnings_or_repairs();
}

/// Neither command ends before the test has opened both pipes, which waits for both to read.
#[tokio::test]
async fn read_only_commands_run_in_parallel_and_writing_commands_wait_for_them() {
    if !LandlockSupport::probe().restricts_files() {
        return;
    }
    let bash = |command: &str| json!({ "command": command });
    let scenario = Scenario::new()
        .tool("Bash", bash("cat one"))
        .and_tool("Read", json!({ "file_path": "plain" }))
        .and_tool("Bash", bash("head -n 1 two | tr a-z A-Z"))
        .and_tool("Bash", bash("echo written > log"))
        .and_tool("Bash", bash("cat log"))
        .reply("Done.");
    let play = RunFixture::of(scenario);
    let folder = play.folder.path().to_owned();
    std::fs::write(folder.join("plain"), "plain\n").expect("a file");
    let pipes = ["one", "two"].map(|name| folder.join(name));
    for pipe in &pipes {
        mkfifo(pipe, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe can be made");
    }
    let (opened, both) = tokio::sync::oneshot::channel();
    // A thread of its own: it would wait for ever for a reader that never comes.
    std::thread::spawn(move || {
        let open = |pipe| File::options().write(true).open(pipe).expect("a pipe that is read");
        drop(opened.send(pipes.map(open)));
    });
    let playing = play.start();
    let both = tokio::time::timeout(SOON, both).await.expect("both read at a time");
    let [mut one, mut two] = both.expect("the thread opened them");
    assert!(!folder.join("log").exists(), "what writes waits for those before it");
    two.write_all(b"second\n").expect("it is read");
    drop(two);
    one.write_all(b"first\n").expect("it is read");
    drop(one);
    let played = playing.end().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let results = played.results();
    let texts: Vec<&str> = results.iter().map(|(_, text)| text.trim()).collect();
    assert_eq!(texts, ["first", "1\tplain", "SECOND", "(no output)", "written"], "{results:?}");
    played.assert_no_warnings_or_repairs();
}

/// A tool that started early under an id that was used before is the same tool under its new id.
#[tokio::test]
async fn an_early_tool_runs_once_even_if_its_id_is_renamed() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "true" }))
        .id("call_0")
        .tool("Grep", search("file00"))
        .id("call_0")
        .timing(None, Duration::from_millis(500))
        .reply("Done.");
    let play = RunFixture::of(scenario);
    let mut leases = FileLeases::on(play.folder.path(), &names(1));
    let playing = play.start();
    leases.wait_for(0).await;
    // A further reader would block for longer than the run may take.
    leases.let_reader_through(0).await;
    let replies = |said: &&ObservedEvent| matches!(said, ObservedEvent::Assistant(_));
    assert_eq!(playing.record.all().iter().filter(replies).count(), 1, "it still streams");
    let played = playing.end().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert!(played.results()[1].1.contains("file00"), "{:?}", played.results());
    played.assert_no_warnings_or_repairs();
}

/// The result of a tool that started early is discarded with a reply that broke.
#[tokio::test]
async fn an_early_tool_result_of_a_broken_reply_is_discarded() {
    let scenario = Scenario::new()
        .tool("Grep", search("file00"))
        .fault(ScriptedFaultKind::Stall, FaultPosition::Events(7))
        .hold(Duration::from_secs(4))
        .tool("Read", json!({ "file_path": "file00" }))
        .reply("Done.");
    let play = RunFixture::of(scenario);
    let mut leases = FileLeases::on(play.folder.path(), &names(1));
    let playing = play.start();
    leases.wait_for(0).await;
    leases.let_reader_through(0).await;
    leases.release(0);
    let played = playing.end().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(played.ending.stats.tools.calls, 1);
    assert_eq!(played.results().len(), 1);
    played.assert_no_warnings_or_repairs();
}

#[tokio::test]
async fn an_interrupt_keeps_finished_tool_results_and_fills_in_the_others() {
    let names = names(2);
    let scenario = searching(&names).and_tool("Bash", json!({ "command": "echo never > log" }));
    let mut play = RunFixture::of(scenario);
    let place = journal::SessionFolder::new(&play.folder.path().join("config"), play.folder.path());
    let id = SessionId::generate();
    play.setup.journal = Journal::create(&place, &id, &opening()).expect("it can be made");
    let mut leases = FileLeases::on(play.folder.path(), &names);
    let playing = play.start();
    leases.wait_for(0).await;
    leases.let_reader_through(0).await;
    leases.wait_for(1).await;
    let finished = || {
        let said = journal::read_session(&place, &id, OnDamage::Refuse)
            .expect("the journal is whole")
            .conversation
            .messages;
        serde_json::to_string(&said).expect("messages are JSON").contains("1:file00")
    };
    // The journal sends no notification when it grows, so it is polled, with a time limit.
    let written = async {
        while !finished() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(SOON, written).await.expect("the result is kept");
    interrupt(&playing.interrupter, Interrupt::Sigint);
    let played = playing.end().await;
    leases.let_reader_through(1).await;
    assert_eq!(played.ending.reason, StopReason::AbortedTools(Interrupt::Sigint));
    let results = played.results();
    assert_eq!(results.len(), 3, "every call is answered: {results:?}");
    assert!(results[0].1.contains("file00"), "{results:?}");
    assert_eq!(results[1], (true, "Interrupted by user".to_owned()));
    assert_eq!(results[2], (true, "Interrupted by user".to_owned()));
    assert!(!played.folder.path().join("log").exists());
    assert_eq!(played.ending.stats.tools.abandoned, 2);
}
