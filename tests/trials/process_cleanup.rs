//! No process that a run started survives it, however the run or the process ends.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGKILL, SIGTERM};
use nix::sys::signal::kill;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use outlast::rehearsal::Scenario;
use serde_json::json;

use crate::support::rotation::rotating_part;
use crate::support::stopwatch::Stopwatch;
use crate::support::{
    FifoSignal, FinishedProcess, RunBuilder, RunningProcess, is_alive, serve, with_time_limit,
};

/// Time limit for the end of all processes. A tenth of it is usual.
const SOON: Duration = Duration::from_secs(5);

/// Ways to get away. Each leaves at least one process with `UNIQUE` on its command line.
const HOSTILE: [&str; 10] = [
    "sleep UNIQUE &",
    "(sleep UNIQUE > /dev/null 2>&1 &)",
    "setsid sleep UNIQUE > /dev/null 2>&1 < /dev/null &",
    "nohup sleep UNIQUE > /dev/null 2>&1 &",
    "(trap '' TERM INT HUP; exec sleep UNIQUE) &",
    "env -i $SETSID $SLEEP UNIQUE &",
    "(env -i $SETSID $SH -c \"$SLEEP UNIQUE & $SLEEP UNIQUE\" > /dev/null 2>&1 < /dev/null &)",
    "sh -c 'kill -STOP $$; exec sleep UNIQUE' UNIQUE &",
    "setsid sh -c 'trap \"\" TERM; while :; do setsid sleep UNIQUE; done' UNIQUE &",
    "sh -c 'n=0; while :; do sleep UNIQUE & n=$((n+1)); [ $n -lt 100 ] || wait; done' UNIQUE &",
];

/// An argument that no other process on this machine has.
fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("98765.{:07}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Starts all that is hostile, rings, and goes on when it is let.
fn command(unique: &str) -> String {
    let paths = "SETSID=$(command -v setsid) SLEEP=$(command -v sleep) SH=$(command -v sh)";
    let hostile = HOSTILE.join("\n").replace("UNIQUE", unique);
    format!("{paths}\n{hostile}\necho begun > bell\nread -r _ < go")
}

/// Living processes with `unique` on their command line.
fn living(unique: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(unique) && !line.contains("eval"))
        .collect()
}

/// Waits until there are no processes with `unique` on their command line, nor this run's supervisor.
async fn none_left(unique: &str, run: i32, what: &str) {
    let (begun, supervisor) = (Stopwatch::start(), format!("__supervisor {run} "));
    loop {
        let left = [living(unique), living(&supervisor)].concat();
        if left.is_empty() {
            return;
        }
        let count = left.len();
        begun.assert_within(
            SOON,
            format_args!("{count} after {what}: {:?}", &left[..count.min(20)]),
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A run that has started all that is hostile, and waits.
async fn surrounded(scenario: Scenario, args: &[&str], unique: &str) -> RunningProcess {
    let server = serve(scenario);
    let trial = RunBuilder::against(&server).args(["do it"]).args(args);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    mkfifo(&trial.work().join("go"), Mode::S_IRWXU).expect("a pipe can be made");
    let running = trial.start();
    // The server has to last as long as the run.
    std::mem::forget(server);
    bell.wait_for_line().await;
    with_time_limit("a hundred of them", async {
        while living(unique).len() < 100 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    running
}

fn begin(unique: &str) -> Scenario {
    Scenario::new().tool("Bash", json!({ "command": command(unique) }))
}

/// Nothing is left of a run that goes on by itself among all that is hostile.
async fn leaves_none(rest: fn(Scenario) -> Scenario, args: &[&str], is_error: bool, what: &str) {
    let unique = unique();
    let running = surrounded(rest(begin(&unique)), args, &unique).await;
    let pid = running.pid();
    if args.is_empty() {
        fs::write(running.work().join("go"), "\n").expect("the shell reads");
    }
    assert_eq!(running.end().await.result()["is_error"], is_error, "{what}");
    none_left(&unique, pid, what).await;
}

#[tokio::test]
async fn no_process_survives_a_successful_run() {
    leaves_none(|scenario| scenario.reply("Done."), &[], false, "success").await;
}

#[tokio::test]
async fn no_process_survives_a_failed_run() {
    leaves_none(|scenario| scenario.status(400), &[], true, "an error").await;
}

#[tokio::test]
async fn no_process_survives_the_deadline() {
    // By then all of them have to be there, even on a busy machine.
    leaves_none(|scenario| scenario, &["--max-duration", "12s"], true, "the deadline").await;
}

#[tokio::test]
async fn no_process_survives_a_signal() {
    for (signal, code) in rotating_part([(SIGTERM, 143), (SIGINT, 130), (SIGHUP, 129)], 3) {
        let unique = unique();
        let running = surrounded(begin(&unique), &[], &unique).await;
        let (pid, asked) = (running.pid(), Stopwatch::start());
        running.signal(signal);
        let ended = running.end().await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        asked.assert_within(Duration::from_secs(4), signal);
        none_left(&unique, pid, signal.as_str()).await;
    }
}

#[tokio::test]
async fn no_process_survives_a_sigkill_of_the_run() {
    for signal in rotating_part([SIGKILL, Signal::SIGABRT, Signal::SIGILL], 3) {
        let unique = unique();
        let running = surrounded(begin(&unique), &[], &unique).await;
        let pid = running.pid();
        running.signal(signal);
        none_left(&unique, pid, signal.as_str()).await;
        // No process holds its output open either.
        assert_eq!(running.end().await.code, None);
    }
}

#[tokio::test]
async fn no_process_survives_the_kill_of_a_stopped_supervisor_and_its_run() {
    let unique = unique();
    let running = surrounded(begin(&unique), &[], &unique).await;
    let pid = running.pid();
    for supervisor in supervisors(pid) {
        kill(supervisor, Signal::SIGSTOP).expect("it lives");
    }
    running.signal(SIGKILL);
    none_left(&unique, pid, "the death of a stopped supervisor").await;
}

/// The supervisor of a run, and its `job_inits`.
fn supervisors(run: i32) -> Vec<Pid> {
    let wanted = format!("supervisor\0__supervisor\0{run}\0");
    let pids = fs::read_dir("/proc").expect("Linux").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let ours = |pid: &i32| {
        let line = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"));
        line.is_ok_and(|line| line == wanted.as_bytes())
    };
    pids.filter(ours).map(Pid::from_raw).collect()
}

#[tokio::test]
async fn a_command_that_kills_its_job_init_is_ended_and_the_run_continues() {
    let unique = unique();
    // Whatever is above the command within its job: first what it left the session for, then all.
    let away = format!("(setsid sleep {unique} > /dev/null 2>&1 &); kill -9 $PPID; sleep {unique}");
    let next = "echo still $((6000 + 1))";
    let told = hears(&unique, &away, next, "a job_init's death").await;
    assert!(told[0].contains("Exit code unknown"), "{}", told[0]);
    assert!(told[1].contains("still 6001"), "{}", told[1]);
}

/// The results of two commands of which the first tries to escape. No process of either survives
/// the run.
async fn hears(unique: &str, away: &str, next: &str, what: &str) -> [String; 2] {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": away }))
        .tool("Bash", json!({ "command": next }))
        .reply("Done.");
    let server = serve(scenario);
    let running = RunBuilder::against(&server).args(["do it"]).start();
    let pid = running.pid();
    let ended = running.end().await;
    assert_eq!(ended.result()["result"], "Done.", "{ended:?}");
    none_left(unique, pid, what).await;
    [1, 2].map(|request| server.requests()[request].body["messages"].to_string())
}

#[tokio::test]
async fn a_command_that_kills_the_supervisor_is_still_ended() {
    let unique = unique();
    // The supervisor is the parent of the command's parent.
    let away = format!(
        "(setsid sleep {unique} > /dev/null 2>&1 &); \
         read -r _ _ _ supervisor _ < /proc/$PPID/stat; kill -9 $supervisor; echo killed $((6000 + 1))"
    );
    let next = format!("(setsid sleep {unique} &); echo here $((6000 + 2))");
    let told = hears(&unique, &away, &next, "a supervisor's death").await;
    assert!(told[0].contains("killed 6001"), "{}", told[0]);
    assert!(told[1].contains("here 6002"), "{}", told[1]);
}

/// Nothing is left of a daemon whose supervisor and job init process were killed.
async fn leaves_none_of(daemon: &str, unique: &str) {
    let away = format!(
        "({daemon} {unique} > /dev/null 2>&1 &); \
         read -r _ _ _ supervisor _ < /proc/$PPID/stat; kill -9 $supervisor $PPID"
    );
    let server = serve(Scenario::new().tool("Bash", json!({ "command": away })).reply("Done."));
    let running = RunBuilder::against(&server).args(["do it"]).start();
    let pid = running.pid();
    let ended = running.end().await;
    assert_eq!(ended.result()["result"], "Done.", "{ended:?}");
    none_left(unique, pid, "the death of both").await;
}

#[tokio::test]
async fn with_supervisor_and_init_killed_processes_are_found_by_env_tag() {
    leaves_none_of("setsid sleep", &unique()).await;
}

#[tokio::test]
async fn with_supervisor_and_init_killed_untagged_processes_reparent_to_the_run() {
    leaves_none_of("env -i $(command -v setsid) $(command -v sleep)", &unique()).await;
}

/// Ends the process that the shell started before the run, and that the run left alone.
#[track_caller]
fn kill_survivor(ended: &FinishedProcess) {
    let before = fs::read_to_string(ended.work().join("before")).expect("the shell wrote it");
    let before = before.trim().parse().expect("a pid");
    assert!(is_alive(before));
    kill(Pid::from_raw(before), SIGKILL).expect("it lives");
}

#[tokio::test]
async fn unrelated_processes_survive_a_run_that_lost_its_supervisor() {
    let unique = unique();
    let script = format!("sleep {unique} > /dev/null 2>&1 & echo $! > before; exec \"$@\"");
    let away = "read -r _ _ _ supervisor _ < /proc/$PPID/stat; kill -9 $supervisor $PPID";
    let server = serve(Scenario::new().tool("Bash", json!({ "command": away })).reply("Done."));
    let trial = RunBuilder::against(&server).args(["do it", "--sandbox", "off"]);
    let ended = trial.in_shell(&script).run().await;
    assert_eq!(ended.result()["result"], "Done.");
    kill_survivor(&ended);
}

#[tokio::test]
async fn a_key_helper_cannot_leave_a_daemon() {
    let unique = unique();
    let daemon = format!("(env -i $(command -v setsid) $(command -v sleep) {unique} &); echo key");
    let server = serve(Scenario::new().reply("Done."));
    let settings = json!({ "apiKeyHelper": daemon }).to_string();
    let running = RunBuilder::against(&server).args(["do it", "--settings", &settings]).start();
    let pid = running.pid();
    let ended = running.end().await;
    assert_eq!(ended.result()["result"], "Done.", "{ended:?}");
    assert_eq!(server.requests()[0].header("x-api-key"), Some("key"));
    none_left(&unique, pid, "a key helper").await;
}

#[tokio::test]
async fn processes_that_the_run_did_not_start_survive() {
    let unique = unique();
    // It becomes a child of the run's own process.
    let script = format!("sleep {unique} > /dev/null 2>&1 & echo $! > before; exec \"$@\"");
    let daemon = format!("setsid sleep 1{unique} > /dev/null 2>&1 &");
    let server = serve(Scenario::new().tool("Bash", json!({ "command": daemon })).reply("Done."));
    let ended = RunBuilder::against(&server).args(["do it"]).in_shell(&script).run().await;
    assert_eq!(ended.result()["result"], "Done.");
    with_time_limit("the end of the daemon", async {
        while living(&unique) != [format!("sleep {unique} ")] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    kill_survivor(&ended);
}

#[tokio::test]
async fn inherited_signal_dispositions_do_not_prevent_cleanup() {
    let server = serve(
        Scenario::new()
            .tool("Bash", json!({ "command": "trap; grep -E 'Sig(Blk|Ign)' /proc/self/status" }))
            .tool("Bash", json!({ "command": "echo begun > bell; sleep 1000" })),
    );
    let trial = RunBuilder::against(&server).args(["do it"]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let block = "import os, signal, sys; \
                 signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD]); \
                 os.execv(sys.argv[1], sys.argv[1:])";
    let script = format!("trap '' CHLD PIPE XFSZ; exec python3 -I -S -c '{block}' \"$@\"");
    let running = trial.in_shell(&script).start();
    with_time_limit("the second command", bell.wait_for_line()).await;
    running.signal(SIGTERM);
    let ended = running.end().await;
    assert_eq!(ended.code, Some(143), "{ended:?}");
    let told = server.requests()[1].body["messages"].to_string();
    for name in ["SigBlk:\\t", "SigIgn:\\t"] {
        let (_, mask) = told.split_once(name).unwrap_or_else(|| panic!("no {name} in {told}"));
        let mask = u64::from_str_radix(&mask[..16], 16).expect("a mask");
        // Those above belong to the C library.
        assert_eq!(mask & 0x7fff_ffff, 0, "{name}{mask:x}");
    }
}

#[tokio::test]
async fn a_command_that_ends_processes_by_the_words_of_the_prompt_does_not_find_the_run() {
    let unique = unique();
    let script = format!(
        "(exec -a 'serve on port {unique}' sleep {unique} > /dev/null 2>&1 &)\n\
         until pgrep -f 'serve on port {unique}'; do :; done\n\
         pkill -f 'serve on port {unique}' && echo \"alive$OUTLAST_COMMAND\"\n"
    );
    let command = json!({ "command": script });
    let server = serve(Scenario::new().tool("Bash", command).reply("Done."));
    let prompt = format!("Start this, and stop it: serve on port {unique}");
    let mode = ["--permission-mode", "bypassPermissions"];
    let running = RunBuilder::against(&server).args(mode).args([&prompt]).start();
    let pid = running.pid();
    let ended = running.end().await;
    let result = ended.result();
    assert_eq!(result["result"], "Done.", "{ended:?}");
    let told = server.requests()[1].body["messages"][2].to_string();
    assert!(told.contains("\\nalive"), "{told}");
    assert!(!ended.stderr.contains("SIGTERM"), "{ended:?}");
    none_left(&unique, pid, "pkill").await;
}

#[tokio::test]
async fn a_signal_of_a_command_does_not_end_the_run() {
    // Init, supervisor, run; the shell lives until the run has said something about the signal.
    let command = "read -r _ _ _ supervisor _ < /proc/$PPID/stat; \
                   read -r _ _ _ run _ < /proc/$supervisor/stat; kill -TERM $run; read -r _ < bell";
    let server = serve(Scenario::new().tool("Bash", json!({ "command": command })).reply("Done."));
    let trial = RunBuilder::against(&server).args(["do it", "--sandbox", "off"]);
    let bell = trial.work().join("bell");
    mkfifo(&bell, Mode::S_IRWXU).expect("a pipe");
    let mut running = trial.start();
    running.wait_for_stderr("was sent by a command of the run itself").await;
    fs::write(&bell, "go on\n").expect("the shell reads");
    let ended = running.end().await;
    assert_eq!((ended.code, &ended.result()["result"]), (Some(0), &json!("Done.")), "{ended:?}");
}
