//! A session on a file system that two hosts share, where file locks do not work: `strace` lets
//! each lock succeed without an effect, as some network file systems do, and `OUTLAST_HOST_ID`
//! gives each process a host of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use outlast::journal::{self, OnDamage, SessionFolder, SessionId};
use outlast::recovery::{LeftOff, StopReason};
use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::kills::can_trace;
use crate::support::rotation::number;
use crate::support::scratch::scratch_folder;
use crate::support::{FifoSignal, FinishedProcess, RunBuilder, serve, with_time_limit};

const SESSION: &str = "5e551014-0000-4000-8000-000000000001";
const NO_LOCKS: &str = "cd \"$SHARED\" && exec strace -D -f -qq -o/dev/null -e trace=flock \
                        -e inject=flock:retval=0 \"$@\"";

/// Calls a command that has an effect, rings a bell, and ends when it is told to.
fn task(name: &str) -> RehearsalServer {
    let command = format!("echo {name} >> log; echo {name} > bell; read line < hold-{name}");
    serve(
        Scenario::new()
            .tool("Bash", json!({ "command": command }))
            .reply(&format!("Done by {name}."))
            .after(AfterLast::RepeatLast),
    )
}

/// Folders on the shared file system.
struct SharedFolders {
    root: tempfile::TempDir,
    bell: FifoSignal,
}

impl SharedFolders {
    fn new(names: &[&str]) -> Self {
        let root = scratch_folder();
        let work = root.path().join("work");
        fs::create_dir(&work).expect("a folder");
        for name in names {
            let hold = work.join(format!("hold-{name}"));
            mkfifo(&hold, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe can be made");
        }
        let bell = FifoSignal::at(&work.join("bell"));
        Self { root, bell }
    }

    fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    fn place(&self) -> SessionFolder {
        SessionFolder::new(&self.root.path().join("config"), &self.work())
    }

    fn session_file(&self, ending: &str) -> PathBuf {
        self.place().folder().join(format!("{SESSION}.{ending}"))
    }

    /// A start of the session on a host.
    fn start(&self, server: &RehearsalServer, host: &str, session: &str) -> RunBuilder {
        let shared = |path: &str| self.root.path().join(path).display().to_string();
        RunBuilder::against(server)
            .env("OUTLAST_CONFIG_DIR", &shared("config"))
            .env("SHARED", &shared("work"))
            .env("OUTLAST_HOST_ID", host)
            .args(["--result-file", &shared("work/result.json")])
            .args(["--last-message-file", &shared("work/answer.txt")])
            .args(["--resume-or-start", session, "Do it."])
            .in_shell(NO_LOCKS)
    }

    /// Lets the command of a task end.
    fn release(&self, name: &str) {
        fs::write(self.work().join(format!("hold-{name}")), "go\n").expect("the command reads it");
    }

    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.work().join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}

fn let_expire(lease: &Path) {
    let file = File::options().append(true).open(lease).expect("there is a lease");
    let before = SystemTime::now() - Duration::from_mins(10);
    file.set_modified(before).expect("its time can be set");
}

#[track_caller]
fn is_refused(ended: &FinishedProcess) {
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.stderr.contains("is in use by process"), "{ended:?}");
    assert!(ended.stderr.contains("whose lease ends in"), "{ended:?}");
}

#[tokio::test]
async fn a_suspended_owner_that_was_replaced_appends_nothing_and_says_so() {
    if !can_trace() {
        return;
    }
    let mut folders = SharedFolders::new(&["first", "second"]);
    let (one, two) = (task("first"), task("second"));
    let first = folders.start(&one, "host-one", SESSION).start();
    assert_eq!(folders.bell.wait_for_line().await, "first");
    first.signal(Signal::SIGSTOP);
    // Its lease is respected, as long as it may still live.
    is_refused(&folders.start(&two, "host-two", SESSION).run().await);
    let_expire(&folders.session_file("lease"));
    let second = folders.start(&two, "host-two", SESSION).start();
    assert_eq!(folders.bell.wait_for_line().await, "second");
    let before = fs::read(folders.session_file("jsonl")).expect("the journal");

    folders.release("first");
    first.signal(Signal::SIGCONT);
    let ended = first.end().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert_eq!(result["journal"]["state"], "taken_over", "{result}");
    let why = result["journal"]["error"].as_str().unwrap_or_default();
    assert!(why.contains("took the session over at"), "{result}");
    assert_eq!(result["resume"], Value::Null, "the other process has it: {result}");
    let said = result["errors"][0].as_str().unwrap_or_default();
    assert!(said.contains("another process took the session over"), "{result}");
    let after = fs::read(folders.session_file("jsonl")).expect("the journal");
    assert!(before == after, "the first owner appends nothing");
    assert!(!folders.work().join("result.json").exists(), "nor does it write the result");
    assert!(!folders.work().join("answer.txt").exists(), "nor does it write the answer");
    let warnings = result["warnings"].to_string();
    let left = "was left to the process that took the session over";
    for file in ["--last-message-file", "the result file"] {
        assert!(warnings.contains(&format!("{file} {left}")), "{result}");
    }
    assert_eq!(one.requests().len(), 1, "nor does it ask the model again");

    folders.release("second");
    let ended = second.end().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.result()["result"], "Done by second.");
    assert_eq!(ended.result()["durable"], true, "{ended:?}");
    assert_eq!(folders.log(), ["first", "second"], "each command ran once");
    let id = SessionId::parse(SESSION).expect("an id");
    let restored = journal::read_session(&folders.place(), &id, OnDamage::Refuse).expect("whole");
    assert!(
        restored.conversation.left_off == Some(LeftOff::Finished(StopReason::Completed))
            && restored.totals.dropped_records == 0,
        "{restored:?}"
    );
    assert!(!folders.session_file("lease").exists(), "no lease is left");
    let text = fs::read_to_string(folders.work().join("result.json")).expect("a result");
    assert!(text.contains("Done by second."), "{text}");
}

/// While it waits for a command, it appends nothing that could be refused.
#[tokio::test]
async fn an_owner_that_waits_notices_that_it_was_replaced() {
    if !can_trace() {
        return;
    }
    let mut folders = SharedFolders::new(&["first", "second"]);
    let (one, two) = (task("first"), serve(Scenario::new().reply("Done.")));
    let first = folders.start(&one, "host-one", SESSION).start();
    assert_eq!(folders.bell.wait_for_line().await, "first");
    first.signal(Signal::SIGSTOP);
    let_expire(&folders.session_file("lease"));
    let second = folders.start(&two, "host-two", SESSION).run().await;
    assert_eq!(second.code, Some(0), "{second:?}");
    first.signal(Signal::SIGCONT);
    let ended = first.end().await;
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert_eq!(ended.result()["journal"]["state"], "taken_over", "{ended:?}");
    let text = fs::read_to_string(folders.work().join("result.json")).expect("a result");
    assert!(text.contains("\"Done.\""), "the result of the second stays: {text}");
}

/// `FULL=1` plays 100 rounds.
#[tokio::test]
async fn of_two_starts_on_two_hosts_exactly_one_runs() {
    if !can_trace() {
        return;
    }
    let mut folders = SharedFolders::new(&["it"]);
    let rounds = if number("FULL").is_some_and(|full| full > 0) { 100 } else { 10 };
    for round in 0..rounds {
        let session = format!("5e551015-0000-4000-8000-{round:012}");
        let server = task("it");
        let [mut one, mut other] =
            ["host-one", "host-two"].map(|host| folders.start(&server, host, &session).start());
        assert_eq!(folders.bell.wait_for_line().await, "it");
        // The one that works waits for the command, which waits for us.
        let is_first = with_time_limit("the end of one", async {
            tokio::select! {
                _ = one.child.wait() => true,
                _ = other.child.wait() => false,
            }
        })
        .await;
        folders.release("it");
        let (loser, winner) = if is_first { (one, other) } else { (other, one) };
        let (loser, winner) = (loser.end().await, winner.end().await);
        assert_eq!(loser.code, Some(75), "round {round}: {loser:?}");
        assert_eq!(winner.code, Some(0), "round {round}: {winner:?}");
        assert_eq!(winner.result()["durable"], true, "round {round}: {winner:?}");
        assert_eq!(folders.log().len(), round + 1, "one effect in each round");
    }
}
