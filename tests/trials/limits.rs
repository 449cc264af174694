//! Trials of the rate limits that runs of one host share: 32 processes on one key, and everything
//! that can be wrong with the file in which they tell each other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::responder::{Answer, Responder};
use crate::support::{FinishedProcess, RunBuilder, RunningProcess, serve, with_time_limit};

const CROWD: usize = 32;
/// Number of replies that each run needs.
const TURNS: usize = 6;
/// Sixty requests in six seconds stand for sixty in a minute.
const LIMIT: u64 = 60;
const WINDOW: u64 = 6_000;

/// A service that allows so many requests in a window, and says so in its headers.
#[derive(Debug)]
struct Service {
    server: Responder,
    meter: Arc<Mutex<Meter>>,
}

#[derive(Debug, Default)]
struct Meter {
    window: u64,
    used: u64,
    requests: u64,
    refusals: u64,
}

impl Meter {
    /// The headers of the answer, and whether it is one.
    fn take(&mut self) -> (String, bool) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        let now = u64::try_from(since.as_millis()).expect("it is not that late");
        if std::mem::replace(&mut self.window, now / WINDOW) != now / WINDOW {
            self.used = 0;
        }
        self.requests += 1;
        let reset = (now / WINDOW + 1) * WINDOW / 1_000;
        if self.used >= LIMIT {
            self.refusals += 1;
            let wait = (reset * 1_000 - now).div_ceil(1_000);
            return (format!("retry-after: {wait}\r\n"), false);
        }
        self.used += 1;
        let name = "anthropic-ratelimit-requests";
        let left = LIMIT - self.used;
        let told = format!("{name}-limit: {LIMIT}\r\n{name}-remaining: {left}\r\n");
        (format!("{told}{name}-reset: {reset}\r\n"), true)
    }
}

impl Service {
    async fn start() -> Self {
        let meter = Arc::<Mutex<Meter>>::default();
        let own = Arc::clone(&meter);
        let answer = move |_: usize, request: &str| {
            let (headers, granted) = own.lock().expect("no thread panics").take();
            let turns = request.matches("\"tool_result\"").count();
            let (status, body) = match (granted, turns + 1 < TURNS) {
                (false, _) => (429, refusal()),
                (true, true) => (200, message(&call(turns), "tool_use")),
                (true, false) => {
                    (200, message(&json!({ "type": "text", "text": "Done." }), "end_turn"))
                }
            };
            let headers = format!("content-type: application/json\r\n{headers}");
            Some(Answer::with_headers(status, &headers, body.to_string()))
        };
        Self { server: Responder::start(answer).await, meter }
    }

    /// The numbers of requests, and of those that were refused.
    fn counts(&self) -> (u64, u64) {
        let meter = self.meter.lock().expect("no thread panics");
        (meter.requests, meter.refusals)
    }
}

fn refusal() -> Value {
    json!({ "type": "error", "error": { "type": "rate_limit_error", "message": "Too many." } })
}

fn call(turn: usize) -> Value {
    let input = json!({ "pattern": format!("*.{turn}") });
    json!({ "type": "tool_use", "id": format!("toolu_{turn}"), "name": "Glob", "input": input })
}

fn message(block: &Value, stop_reason: &str) -> Value {
    json!({
        "type": "message", "id": "msg_1", "role": "assistant", "model": "claude-sonnet-5-5",
        "content": [block], "stop_reason": stop_reason,
        "usage": { "input_tokens": 10, "output_tokens": 10 },
    })
}

/// Runs all of the crowd at once, on one folder for what they share.
async fn crowd(flags: &[&str]) -> (Service, Vec<FinishedProcess>) {
    let service = Service::start().await;
    let shared = tempfile::tempdir().expect("a folder can be made");
    let mut runs = JoinSet::new();
    for _ in 0..CROWD {
        let trial = RunBuilder::at(&service.server.url)
            .sharing(shared.path())
            .args(["--output-format", "json", "--no-session-persistence", "Do it."])
            .args(flags);
        runs.spawn(trial.run());
    }
    let ended = with_time_limit("the end of all", runs.join_all()).await;
    for one in &ended {
        assert_eq!(one.code, Some(0), "{one:?}");
        assert_eq!(one.result()["num_turns"], TURNS, "{one:?}");
    }
    (service, ended)
}

fn shared_waits(ended: &FinishedProcess) -> (u64, u64) {
    let shared = &ended.result()["recovery"]["shared_limits"];
    let count = |name: &str| shared[name].as_u64().expect("it is told");
    (count("waits"), count("waited_ms"))
}

/// The crowd stays within the limit that it shares.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_share_a_rate_limit_rarely_exceed_it() {
    let crowds = tokio::join!(crowd(&[]), crowd(&["--no-shared-limits"]));
    let ((service, ended), (apart, _)) = crowds;
    let (requests, refusals) = service.counts();
    let waits: u64 = ended.iter().map(|one| shared_waits(one).0).sum();
    let longest = ended.iter().map(|one| shared_waits(one).1).max();
    println!("{refusals} of {requests} refused; {waits} waits, the longest {longest:?} ms in all");
    assert_eq!(requests - refusals, (CROWD * TURNS) as u64, "no request was in vain");
    assert!(refusals * 50 <= requests, "{refusals} of {requests} were refused");
    assert!(waits > 0, "there was enough room for all: nothing was tried");
    // All of them had the same to do: the last one waited no longer than that takes.
    let ideal = Duration::from_millis((CROWD * TURNS) as u64 * WINDOW / LIMIT);
    let most = u64::try_from(ideal.as_millis()).expect("it is short") * 2;
    assert!(longest < Some(most), "a run starved: {longest:?} ms");
    let (all, without) = apart.counts();
    println!("apart: {without} of {all} refused");
    assert!(without > refusals, "sharing brought nothing: {without} of {all}");
}

/// A refusal that lasts `seconds`, and then nothing but answers.
fn refuses_once(seconds: &str) -> RehearsalServer {
    serve(
        Scenario::new()
            .status(429)
            .header("retry-after", seconds)
            .reply("Done.")
            .after(AfterLast::RepeatLast),
    )
}

fn trial(server: &RehearsalServer, shared: &Path) -> RunBuilder {
    RunBuilder::against(server).sharing(shared).args(["--output-format", "json", "Do it."])
}

/// Starts a run that is refused, and returns when it waits.
async fn refused(server: &RehearsalServer, shared: &Path) -> RunningProcess {
    let mut run = trial(server, shared).start();
    run.wait_for_stderr("to retry (rate_limit").await;
    run
}

/// The one file in which they tell each other.
fn state(shared: &Path) -> PathBuf {
    let folder = shared.join("outlast/limits");
    let mut files = fs::read_dir(&folder).expect("the folder was made");
    let file = files.next().expect("there is a file").expect("it is readable");
    assert!(files.next().is_none(), "there is but one");
    file.path()
}

#[tokio::test]
async fn a_rate_limit_met_by_one_run_delays_another() {
    let (server, shared) = (refuses_once("15"), tempfile::tempdir().expect("a folder"));
    let first = refused(&server, shared.path()).await;
    let mut second = trial(&server, shared.path()).start();
    second.wait_for_stderr("to ask (rate limit known on this host)").await;
    // Killed while others wait for it: the others go on.
    first.signal(Signal::SIGKILL);
    let ended = second.end().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(server.requests().len(), 2, "a request was refused");
    let (waits, waited) = shared_waits(&ended);
    assert!(waits >= 1 && waited > 500, "{ended:?}");
    let result = ended.result();
    assert_eq!(result["recovery"]["requests"], 1, "what was not sent is not counted: {result}");
    assert_eq!(result["recovery"]["retries"], 0, "{result}");
    assert_eq!(result["recovery"]["records"], json!([]), "nothing went wrong here: {result}");
    let text = fs::read_to_string(state(shared.path())).expect("it can be read");
    assert!(!text.contains("test-key"), "{text}");
}

#[tokio::test]
async fn a_shared_limit_wait_is_reported_as_a_wait_not_as_a_retry() {
    let (server, shared) = (refuses_once("15"), tempfile::tempdir().expect("a folder"));
    let first = refused(&server, shared.path()).await;
    let args = ["--output-format", "stream-json", "--verbose"];
    let ended = trial(&server, shared.path()).args(args).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let frames = ended.frames();
    let of = |kind: &str| frames.iter().filter(|frame| frame["subtype"] == kind).count();
    assert!(of("shared_limit_wait") >= 1, "{ended:?}");
    assert_eq!(of("api_retry"), 0, "{ended:?}");
    assert_eq!(first.end().await.code, Some(0));
}

#[tokio::test]
async fn a_damaged_shared_limit_file_never_ends_a_run() {
    // So long that the first run ends over it.
    let (server, shared) = (refuses_once("3600"), tempfile::tempdir().expect("a folder"));
    let first = trial(&server, shared.path()).run().await;
    assert_eq!(first.code, Some(75), "{first:?}");
    assert_eq!(first.result()["errors"][0].as_str().map(str::is_empty), Some(false));
    // Only the service tells the second one to end.
    let second = trial(&server, shared.path()).run().await;
    assert_eq!((second.code, shared_waits(&second).0), (Some(0), 0), "{second:?}");
}

#[tokio::test]
async fn a_shared_limit_wait_beyond_the_deadline_is_not_started() {
    let (server, shared) = (refuses_once("500"), tempfile::tempdir().expect("a folder"));
    let first = refused(&server, shared.path()).await;
    let second = trial(&server, shared.path()).args(["--max-duration", "30s"]).run().await;
    assert_eq!((second.code, shared_waits(&second).0), (Some(0), 0), "{second:?}");
    first.signal(Signal::SIGKILL);
}

#[tokio::test]
async fn a_run_with_sharing_disabled_does_not_wait() {
    let (server, shared) = (refuses_once("500"), tempfile::tempdir().expect("a folder"));
    let first = refused(&server, shared.path()).await;
    let off = json!({ "sharedLimits": false }).to_string();
    for (flags, variable) in
        [(vec!["--no-shared-limits"], ""), (vec!["--settings", &off], ""), (vec![], "1")]
    {
        let trial = trial(&server, shared.path()).env("OUTLAST_NO_SHARED_LIMITS", variable);
        let ended = trial.args(&flags).run().await;
        assert_eq!((ended.code, shared_waits(&ended).0), (Some(0), 0), "{flags:?}: {ended:?}");
    }
    first.signal(Signal::SIGKILL);
}

/// Everything that can be wrong with a shared file that blocks all requests.
#[tokio::test]
async fn implausible_shared_limits_are_ignored() {
    let (server, shared) = (refuses_once("500"), tempfile::tempdir().expect("a folder"));
    let first = refused(&server, shared.path()).await;
    first.signal(Signal::SIGKILL);
    let path = state(shared.path());
    let whole = fs::read_to_string(&path).expect("it can be read");
    let value: Value = serde_json::from_str(&whole).expect("it is JSON");
    let with = |pointer: &str, to: Value| {
        let mut changed = value.clone();
        *changed.pointer_mut(pointer).expect("it is there") = to;
        changed.to_string()
    };
    let began = value["began"].as_u64().expect("it is told");
    for (what, text) in [
        ("empty", String::new()),
        ("torn", whole[..whole.len() / 2].to_owned()),
        ("noise", "\u{0}\u{1}{{{".repeat(500)),
        ("long", " ".repeat(100_000) + &whole),
        ("of another start of the system", with("/boot", json!("another"))),
        ("from before the clock was set", with("/began", json!(began - 3_600_000))),
        ("from after the clock was set", with("/began", json!(began + 3_600_000))),
        ("of another version", with("/v", json!(1))),
        ("from the future", with("/rate_limit/touched", json!(u64::MAX))),
        ("for ever", with("/rate_limit/blocked_until", json!(u64::MAX))),
        ("of another shape", with("/rate_limit", json!([1, 2, 3]))),
    ] {
        fs::write(&path, text).expect("it can be written");
        let ended = trial(&server, shared.path()).run().await;
        assert_eq!((ended.code, shared_waits(&ended).0), (Some(0), 0), "{what}: {ended:?}");
    }
    // Such a block is believed if nothing is wrong with the file, however long the rows above took.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    let now = u64::try_from(since.as_millis()).expect("it is not that late") - began;
    fs::write(&path, with("/rate_limit/blocked_until", json!(now + 40_000)))
        .expect("it can be written");
    let mut run = trial(&server, shared.path()).start();
    run.wait_for_stderr("rate limit known on this host").await;
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end().await.code, Some(143), "an interrupt ends this wait as any other");
}

/// Runs beside something that is in the way, and tells whether it was said once, to those who
/// want to know.
async fn goes_on_without(server: &RehearsalServer, shared: &Path, why: &str) {
    for verbose in [false, true] {
        let flags: &[&str] = if verbose { &["--log-detail"] } else { &[] };
        let ended = trial(server, shared).args(flags).run().await;
        assert_eq!((ended.code, shared_waits(&ended).0), (Some(0), 0), "{why}: {ended:?}");
        let said = ended.stderr.matches("rate limits are not shared with other runs").count();
        assert_eq!(said, usize::from(verbose), "{why}: {ended:?}");
        assert!(!verbose || ended.stderr.contains(why), "{why}: {ended:?}");
        assert_eq!(ended.result()["warnings"], json!([]), "{why}: {ended:?}");
    }
}

/// A process that is stopped while it holds the lock keeps it.
#[tokio::test]
async fn a_stale_lock_blocks_no_run() {
    let server = serve(
        Scenario::new()
            .tool("Bash", json!({ "command": "true" }))
            .reply("Done.")
            .after(AfterLast::RepeatLast),
    );
    let shared = tempfile::tempdir().expect("a folder");
    let ended = trial(&server, shared.path()).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let file = fs::File::open(state(shared.path())).expect("it can be opened");
    file.lock().expect("no other process locks it");
    goes_on_without(&server, shared.path(), "another process holds the lock").await;
}

/// True if folders can be mounted in a namespace of its own.
fn mounts() -> bool {
    let probe = ["-rm", "sh", "-c", "mount -t tmpfs -o size=16k none /mnt"];
    let probe = std::process::Command::new("unshare").args(probe).stderr(Stdio::null()).status();
    probe.is_ok_and(|status| status.success())
}

/// A run that has `second` in place of `/tmp`, with its own folders and `TMPDIR`.
fn in_private_tmp(trial: RunBuilder, second: &Path, shared: &Path) -> RunBuilder {
    trial
        .env("SECOND", &second.display().to_string())
        .env("TMPDIR", &shared.display().to_string())
        .args(["--log-detail"])
        .in_shell(
            "exec unshare -rm sh -c 'for folder in \"$HOME\" \"$XDG_RUNTIME_DIR\"; do \
               place=$SECOND/${folder#/tmp/}; \
               mkdir -p \"$place\" && mount --bind \"$folder\" \"$place\" || exit; done; \
             mount --rbind \"$SECOND\" /tmp && cd \"$PWD\" && exec \"$@\"' sh \"$@\"",
        )
}

#[tokio::test]
async fn a_folder_that_cannot_be_trusted_is_not_used() {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};

    if !mounts() {
        println!("no folder can be mounted here: the second place cannot be replaced");
        return;
    }
    let server = refuses_once("0");
    // Takes the place of `/tmp` for these runs. The owner is root in their namespace.
    let second = tempfile::tempdir().expect("a folder");
    let other = second.path().join("outlast-0");
    let context = |prepare: &dyn Fn(&Path)| {
        let shared = tempfile::tempdir().expect("a folder");
        prepare(shared.path());
        shared
    };
    let open = |path: &Path| {
        fs::create_dir_all(path).expect("a folder can be made");
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("it is ours");
    };
    let scenes = [
        ("a file", context(&|path| fs::write(path.join("outlast"), "").expect("written"))),
        ("open to all", context(&|path| open(&path.join("outlast/limits")))),
        (
            "within one that is",
            context(&|path| {
                fs::create_dir_all(path.join("outlast/limits")).expect("a folder can be made");
                open(&path.join("outlast"));
            }),
        ),
        (
            "a link",
            context(&|path| {
                let elsewhere = path.join("elsewhere");
                fs::DirBuilder::new().mode(0o700).create(&elsewhere).expect("a folder");
                symlink("elsewhere", path.join("outlast")).expect("a link can be made");
            }),
        ),
    ];
    for (what, shared) in &scenes {
        for is_other_usable in [false, true] {
            if is_other_usable {
                fs::remove_file(&other).expect("it is ours");
            } else {
                fs::write(&other, "").expect("it can be written");
            }
            let ended = in_private_tmp(trial(&server, shared.path()), second.path(), shared.path())
                .run()
                .await;
            assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
            let warns = ended.stderr.contains("rate limits are not shared");
            assert_eq!(warns, !is_other_usable, "{what}: {ended:?}");
            let made = fs::read_dir(shared.path().join("outlast/limits")).map(Iterator::count);
            assert_eq!(made.unwrap_or_default(), 0, "{what}");
            let made = fs::read_dir(other.join("limits")).map(Iterator::count);
            assert_eq!(made.unwrap_or_default(), usize::from(is_other_usable), "{what}");
        }
        // A job of a batch system has a folder of its own for temporary files, and shares the rest.
        assert!(!shared.path().join("outlast-0").exists(), "{what}");
        fs::remove_dir_all(&other).expect("it is ours");
    }
}

#[tokio::test]
async fn a_file_that_is_a_link_or_a_pipe_is_left_alone() {
    let server = refuses_once("0");
    let shared = tempfile::tempdir().expect("a folder");
    let ended = trial(&server, shared.path()).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let path = state(shared.path());
    let target = shared.path().join("target");
    fs::write(&target, "mine").expect("it can be written");
    fs::remove_file(&path).expect("it is ours");
    std::os::unix::fs::symlink(&target, &path).expect("a link can be made");
    goes_on_without(&server, shared.path(), "the file cannot be used").await;
    assert_eq!(fs::read_to_string(&target).expect("it is there"), "mine");
    fs::remove_file(&path).expect("it is ours");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe can be made");
    goes_on_without(&server, shared.path(), "not a regular file").await;
}

#[tokio::test]
async fn a_full_disk_disables_only_limit_sharing() {
    if !mounts() {
        println!("no disk can be mounted here: a disk that is really full is not tried");
        return;
    }
    let server = refuses_once("0");
    let disk = tempfile::tempdir().expect("a folder");
    let ended = trial(&server, disk.path())
        .env("DISK", &disk.path().display().to_string())
        .args(["--log-detail"])
        .in_shell(
            "exec unshare -rm sh -c 'mount -t tmpfs -o size=16k,mode=700 none \"$DISK\"; \
             head -c 50000 /dev/zero > \"$DISK/other\"; exec \"$@\"' sh \"$@\"",
        )
        .run()
        .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("rate limits are not shared with other runs"), "{ended:?}");
}
