//! Trials of disks and folders: full, failing, read-only, missing, taken away. The run goes
//! on without a journal and reports that once and in its result.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::kills::can_trace;
use crate::support::rotation::rotating_part;
use crate::support::{FifoSignal, FinishedProcess, RunBuilder, serve, with_time_limit};

const SESSION: &str = "5e551011-0000-4000-8000-0000000d15c5";

/// Three commands, and an answer.
fn task() -> Scenario {
    let command = json!({ "command": "echo effect >> log; seq 1 200" });
    Scenario::new().tool("Bash", command).times(3).reply("Done.").after(AfterLast::RepeatLast)
}

/// The run did what it was asked, kept nothing of it, and says so: once to people, once to
/// programs.
#[track_caller]
fn goes_on_without(ended: &FinishedProcess, why: &str) -> Value {
    let result = ended.result();
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Done.")), "{ended:?}");
    assert_eq!((&result["durable"], &result["journal"]["state"]), (&json!(false), &json!("lost")));
    let error = result["journal"]["error"].as_str().unwrap_or_default();
    assert!(error.contains(why), "{result}");
    assert_eq!(ended.stderr.matches("without a journal").count(), 1, "{ended:?}");
    assert_eq!(result["resume"], Value::Null, "no resume command without a journal");
    result
}

fn effects(ended: &FinishedProcess) -> usize {
    fs::read_to_string(ended.work().join("log")).map_or(0, |log| log.lines().count())
}

/// Prepares the task with an injection into the calls on its journal, as strace names it. The calls
/// that were seen are in the file `calls`.
fn injecting(server: &RehearsalServer, injection: &str) -> RunBuilder {
    let often = r#"{"heartbeatInterval": "1s"}"#;
    let trial = RunBuilder::against(server).args(["--settings", often]);
    let trial = trial.args(["--session-id", SESSION, "Do it."]);
    let folder = fs::canonicalize(trial.work()).expect("it is there").display().to_string();
    let plain: String =
        folder.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '-' }).collect();
    let journal = trial.config().join("projects").join(plain).join(format!("{SESSION}.jsonl"));
    // It must be there for its path to be watched.
    let calls = trial.work().join("calls").display().to_string();
    let trial = trial.env("JOURNAL", &journal.display().to_string()).env("CALLS", &calls);
    trial.in_shell(&format!(
        "exec strace -D -f -qq -o \"$CALLS\" -P \"$JOURNAL\" -e trace=fsync,fdatasync,write \
         -e inject={injection} \"$@\""
    ))
}

/// Only the file fails, and a new one in its place takes everything: again and again, since the call
/// goes on failing on each file that has the name of the journal.
#[tokio::test]
async fn a_file_that_fails_is_replaced_and_nothing_is_missing_in_the_journal() {
    if !can_trace() {
        return;
    }
    let errors = [
        ("write", "ENOSPC"),
        ("write", "EIO"),
        ("fdatasync", "EIO"),
        ("fdatasync", "ENOSPC"),
        ("write", "EDQUOT"),
    ];
    let cases = [2, 5].into_iter().flat_map(|number| errors.map(|error| (error, number)));
    for ((call, error), number) in rotating_part(cases, 2) {
        let server = serve(task());
        let injection = format!("{call}:error={error}:when={number}+");
        let ended = injecting(&server, &injection).run().await;
        let calls = fs::read_to_string(ended.work().join("calls")).expect("strace wrote it");
        assert!(calls.contains("(INJECTED)"), "{call} {error}: {calls}");
        let result = ended.result();
        assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Done.")), "{ended:?}");
        let journal = (&result["durable"], &result["journal"]["state"]);
        assert_eq!(journal, (&json!(true), &json!("durable")), "{call} {error}: {ended:?}");
        assert_eq!(effects(&ended), 3, "{call} {error}: {ended:?}");
        let next = serve(Scenario::new().reply("Yes."));
        let again = ended.again(&next.base_url()).args(["--continue", "All of it?"]).run().await;
        assert_eq!(again.result()["result"], "Yes.", "{call} {error}: {again:?}");
        let messages = next.requests()[0].body["messages"].as_array().map_or(0, Vec::len);
        assert_eq!(messages, 9, "the prompt, three calls with results, the answer, the prompt");
    }
}

/// Returns the process that traces a process.
fn tracer(pid: i32) -> Pid {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    Pid::from_raw(tracer.expect("a process has the line").trim().parse().expect("a number"))
}

/// A sync that takes a minute, before the first command.
#[tokio::test]
async fn a_sync_that_hangs_is_named_and_delays_no_signal() {
    if !can_trace() {
        return;
    }
    let server = serve(task());
    let mut running = injecting(&server, "fdatasync:delay_enter=60000000:when=2").start();
    running.wait_for_stderr("waiting for the disk of the journal /").await;
    running.signal(Signal::SIGTERM);
    running.wait_for_stderr("ended by SIGTERM").await;
    // Until the delay is over, strace would hold even a process that exits.
    kill(tracer(running.pid()), Signal::SIGKILL).expect("strace runs");
    let ended = running.end().await;
    let result = ended.result();
    assert_eq!((ended.code, &result["exit_code"]), (Some(143), &json!(143)), "{ended:?}");
    assert_eq!((effects(&ended), &result["journal"]["state"]), (0, &json!("lost")), "{ended:?}");
    assert!(!ended.stderr.contains("the run hung"), "{ended:?}");
}

/// True if a disk can be mounted, which needs a namespace of its own.
pub(super) fn mounts_disks() -> bool {
    let probe = ["-rm", "sh", "-c", "mount -t tmpfs -o size=64k none /mnt"];
    let probe = std::process::Command::new("unshare").args(probe).stderr(Stdio::null()).status();
    probe.is_ok_and(|status| status.success())
}

/// A disk of its own, which only a machine that lets us mount one can have.
#[tokio::test]
async fn a_full_small_disk_affects_only_files_stored_on_it() {
    if !mounts_disks() {
        println!("no disk can be mounted here: a disk that is really full is not tried");
        return;
    }
    let long = json!({ "command": "echo effect >> log; seq 1 30000" });
    // Longer than what becomes free when the lease of the session is removed.
    let answer = "Done. ".repeat(3000);
    let answer = answer.trim_end();
    let server = serve(Scenario::new().tool("Bash", long).times(3).reply(answer));
    let trial = RunBuilder::against(&server);
    let disk = trial.config();
    fs::create_dir(&disk).expect("the folder is ours");
    let disk = disk.display().to_string();
    let result_file = format!("{disk}/result.json");
    let ended = trial
        .env("DISK", &disk)
        .env("TMPDIR", &disk)
        .args(["--result-file", &result_file, "Do it."])
        .in_shell(
            "exec unshare -rm sh -c 'mount -t tmpfs -o size=64k none \"$DISK\"; \
             head -c 50000 /dev/zero > \"$DISK/other\"; exec \"$@\"' sh \"$@\"",
        )
        .run()
        .await;
    let result = ended.result();
    assert_eq!(effects(&ended), 3, "{ended:?}");
    assert_eq!((ended.code, &result["partial_result"]), (Some(1), &json!(answer)), "{ended:?}");
    assert_eq!(result["terminal_reason"], "output_failed");
    let (warnings, errors) = (result["warnings"].to_string(), result["errors"].to_string());
    assert!(warnings.contains("without a journal"), "{result}");
    assert!(errors.contains("the result file") && errors.contains("No space left"), "{result}");
}

#[tokio::test]
async fn an_unusable_home_loses_the_journal_but_not_the_run() {
    // Where not even root can make a folder.
    for home in ["/proc", "/proc/nonexistent", "/dev/null"] {
        let server = serve(task());
        let trial = RunBuilder::against(&server).without("OUTLAST_CONFIG_DIR").env("HOME", home);
        let ended = trial.args(["Do it."]).run().await;
        let result = goes_on_without(&ended, "cannot write the journal");
        assert_eq!(effects(&ended), 3, "{home}: {ended:?}");
        assert_eq!(result["warnings"].as_array().map(Vec::len), Some(1), "{result}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    }
    let server = serve(task());
    let trial = RunBuilder::against(&server);
    fs::create_dir(trial.config()).expect("the folder is ours");
    fs::set_permissions(trial.config(), fs::Permissions::from_mode(0o500)).expect("it is ours");
    let config = trial.config();
    let ended = trial.args(["Do it."]).run().await;
    if nix::unistd::geteuid().is_root() {
        assert_eq!(ended.result()["durable"], true, "root may write anywhere");
    } else {
        goes_on_without(&ended, "Permission denied");
    }
    fs::set_permissions(config, fs::Permissions::from_mode(0o700)).expect("it is ours");
}

#[tokio::test]
async fn a_run_works_without_a_home() {
    let server = serve(task());
    let trial = RunBuilder::against(&server).without("OUTLAST_CONFIG_DIR").without("HOME");
    // What the system lists as the home is not this test's to write to.
    let ended = trial.args(["--no-session-persistence", "Do it."]).run().await;
    assert_eq!((ended.code, &ended.result()["result"]), (Some(0), &json!("Done.")), "{ended:?}");
    assert_eq!(effects(&ended), 3, "{ended:?}");
}

#[tokio::test]
async fn a_missing_working_folder_is_reported_and_its_removal_survived() {
    let server = serve(task());
    let trial = RunBuilder::against(&server).args(["Do it."]);
    let ended = trial.in_shell("mkdir gone && cd gone && rmdir ../gone && exec \"$@\"").run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("the working folder cannot be read"), "{ended:?}");
    assert_eq!((ended.stderr.lines().count(), server.requests().len()), (1, 0), "{ended:?}");
    let rid = json!({ "command": "find \"$PWD\" -delete; echo removed" });
    let server = serve(
        Scenario::new()
            .tool("Bash", rid)
            .tool("Bash", json!({ "command": "echo here" }))
            .reply("Done."),
    );
    let trial = RunBuilder::against(&server).args(["--session-id", SESSION, "Do it."]);
    let running = trial.in_shell("mkdir work && cd work && exec \"$@\"").start();
    let ended = running.end().await;
    let result = ended.result();
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Done.")), "{ended:?}");
    assert_eq!(result["durable"], true, "the journal lies elsewhere: {result}");
    assert_eq!(server.violations(), [""; 0]);
    // The session is found from anywhere by its id.
    let next = serve(Scenario::new().reply("Once more."));
    let ended = ended.again(&next.base_url()).args(["--resume", SESSION, "And?"]).run().await;
    assert_eq!((ended.code, &ended.result()["result"]), (Some(0), &json!("Once more.")));
}

#[tokio::test]
async fn long_output_that_cannot_be_stored_is_still_shown_truncated() {
    let long = json!({ "command": "seq 1 60000" });
    let server = serve(Scenario::new().tool("Bash", long).reply("Done."));
    let trial = RunBuilder::against(&server).env("TMPDIR", "/proc/nonexistent");
    let ended = trial.args(["--no-session-persistence", "Do it."]).run().await;
    assert_eq!((ended.code, &ended.result()["result"]), (Some(0), &json!("Done.")), "{ended:?}");
    let told = server.requests()[1].body["messages"].to_string();
    assert!(told.contains("is left out") && told.contains("59999"), "the end is shown");
}

/// A run without session persistence leaves no output in the folder for temporary files.
#[tokio::test]
async fn long_output_of_a_run_without_persistence_is_removed() {
    let long = json!({ "command": "seq 1 60000; ls \"$TMPDIR\" > seen" });
    let again = json!({ "command": "ls \"$TMPDIR\" >> seen" });
    let server = serve(Scenario::new().tool("Bash", long).tool("Bash", again).reply("Done."));
    let trial = RunBuilder::against(&server);
    let passing = trial.work().join("passing");
    fs::create_dir(&passing).expect("the folder is ours");
    let trial = trial.env("TMPDIR", &passing.display().to_string());
    let ended = trial.args(["--no-session-persistence", "Do it."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let seen = fs::read_to_string(ended.work().join("seen")).expect("it was looked at");
    assert!(seen.contains("outlast-"), "it was there while it could be read: {seen}");
    assert_eq!(fs::read_dir(passing).expect("it is there").count(), 0, "and is gone");
}

/// Others may make folders there too, and a session's name can be known beforehand.
#[tokio::test]
async fn a_folder_writable_by_others_is_not_used_for_long_output() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    for is_link in [false, true] {
        let server = serve(Scenario::new().reply("Done."));
        let trial = RunBuilder::against(&server);
        let passing = trial.work().join("passing");
        let (folder, theirs) = (passing.join(format!("outlast-{SESSION}")), passing.join("theirs"));
        fs::create_dir_all(&theirs).expect("the folder is ours");
        fs::write(theirs.join("kept"), "").expect("a file");
        if is_link {
            symlink(&theirs, &folder).expect("a link");
        } else {
            fs::create_dir(&folder).expect("a folder");
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("ours");
        }
        let trial = trial.env("TMPDIR", &passing.display().to_string());
        let args = ["--no-session-persistence", "--session-id", SESSION, "Do it."];
        let ended = trial.args(args).run().await;
        assert_eq!((ended.code, server.requests().len()), (Some(2), 0), "{ended:?}");
        assert!(ended.stderr.contains("not this user's alone"), "{}", ended.stderr);
        assert!(theirs.join("kept").exists() && folder.exists());
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_written_is_no_success_but_stored() {
    let server = serve(task());
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let trial = RunBuilder::against(&server).stdout(full.into());
    let file = trial.work().join("result.json");
    let shown = file.display().to_string();
    let ended =
        trial.args(["--session-id", SESSION, "--result-file", &shown, "Do it."]).run().await;
    assert!(ended.code.is_some_and(|code| code != 0), "{ended:?}");
    let kept: Value = serde_json::from_slice(&fs::read(file).expect("kept")).expect("JSON");
    assert_eq!(
        (kept["exit_code"].as_i64(), &kept["is_error"]),
        (ended.code.map(i64::from), &json!(true))
    );
    // The work is done: the next run prints the answer again without repeating any of it.
    let ended = ended.again(&server.base_url()).args(["--resume-or-start", SESSION, "Do it."]);
    let ended = ended.run().await;
    assert_eq!((ended.code, &ended.result()["result"]), (Some(0), &json!("Done.")), "{ended:?}");
    assert_eq!(server.requests().len(), 4);
}

/// A run removes old sessions while it works, and never one that is in use.
#[tokio::test]
async fn old_sessions_are_removed_during_the_run() {
    let (old, kept) = (SESSION.replace('5', "6"), SESSION.replace('5', "7"));
    let server = serve(task());
    let ended = RunBuilder::against(&server).args(["--session-id", &old, "Do it."]).run().await;
    let ended = ended.again(&server.base_url()).args(["--session-id", &kept, "Do it."]).run().await;
    let folder = fs::read_dir(ended.config().join("projects")).expect("there").next();
    let folder = folder.expect("one").expect("readable").path();
    let age = |id: &str, days: u64| {
        let file = fs::File::options().write(true).open(folder.join(format!("{id}.jsonl")));
        let then = std::time::SystemTime::now() - std::time::Duration::from_hours(24 * days);
        file.expect("it is there").set_modified(then).expect("it is ours");
    };
    age(&old, 8);
    age(&kept, 6);
    let ring = json!({ "command": format!(
        "for i in $(seq 1 2000); do test -e {0}/{old}.jsonl || break; sleep 0.01; done; \
         echo over > bell", folder.display()) });
    let server = serve(Scenario::new().tool("Bash", ring).reply("Done."));
    let work = ended.work();
    let mut bell = FifoSignal::at(&work.join("bell"));
    let running = ended
        .again(&server.base_url())
        .args(["--settings", r#"{"cleanupPeriodDays": 7}"#, "Do it."])
        .start();
    with_time_limit("the room", bell.wait_for_line()).await;
    let ended = running.end().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!folder.join(format!("{old}.jsonl")).exists(), "it was old");
    assert!(folder.join(format!("{kept}.jsonl")).exists(), "it was not");
}

#[tokio::test]
async fn a_debug_file_that_cannot_grow_is_reported_and_the_run_goes_on() {
    let server = serve(Scenario::new().reply("Done."));
    let trial = RunBuilder::against(&server).args(["Do it.", "--debug-file", "trace"]);
    fs::write(trial.work().join("trace"), vec![b'x'; 1 << 20]).expect("the folder is ours");
    let ended = trial.in_shell("ulimit -S -f 512; exec \"$@\"").run().await;
    assert_eq!((ended.code, &ended.result()["result"]), (Some(0), &json!("Done.")), "{ended:?}");
    assert!(ended.stderr.contains("warning: --debug-file"), "{ended:?}");
    assert!(ended.stderr.contains("trace is not complete: File too large"), "{ended:?}");
}
