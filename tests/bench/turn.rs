//! What one turn costs, beside a bare loop that makes the same HTTP calls and spawns and nothing
//! else.
//!
//! `cargo bench --bench turn` prints process start to first request, the gap between the last
//! byte of a reply and the first byte of the next request, processor time of a turn with all its
//! processes, and resident memory after 50 turns: without and with the sandbox of commands.
#![expect(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "a bench measures real time and prints"
)]

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

mod service;

/// Replies with a tool call, before the one without.
const TURNS: usize = 50;
const ROUNDS: usize = 5;
const BARE: &str = "OUTLAST_BENCH_BARE";

/// Starts a run against the server at a base URL, in a scratch folder.
type Spawn = fn(&str, &Path) -> Child;

struct Measured {
    first_request: Duration,
    gaps: Vec<Duration>,
    /// User and system time of the whole run, in ms.
    processor_ms: f64,
    resident_kib: u64,
}

fn main() {
    if let Ok(base) = std::env::var(BARE) {
        bare_loop(&base);
        return;
    }
    let scratch = tempfile::tempdir().expect("a scratch folder can be made");
    println!(
        "{:<12}{:>16}{:>12}{:>12}{:>12}{:>14}",
        "", "first request", "gap p50", "gap max", "CPU a turn", "resident"
    );
    let rows: [(&str, Spawn); 3] = [
        ("bare loop", spawn_bare),
        ("no sandbox", |base, scratch| spawn_outlast(base, scratch, "off")),
        ("sandbox", |base, scratch| spawn_outlast(base, scratch, "workspace")),
    ];
    for (name, spawn) in rows {
        let mut rounds: Vec<Measured> =
            (0..ROUNDS).map(|_| measure(spawn, scratch.path())).collect();
        rounds.sort_by_key(|round| round.first_request);
        let mut gaps: Vec<Duration> =
            rounds.iter().flat_map(|round| round.gaps.iter().copied()).collect();
        gaps.sort();
        println!(
            "{name:<12}{:>13.1} ms{:>9.2} ms{:>9.2} ms{:>9.2} ms{:>10.1} MB",
            millis(rounds[ROUNDS / 2].first_request),
            millis(gaps[gaps.len() / 2]),
            millis(gaps[gaps.len() - 1]),
            rounds.iter().map(|round| round.processor_ms).fold(f64::MAX, f64::min) / TURNS as f64,
            rounds.iter().map(|round| round.resident_kib).max().unwrap_or(0) as f64 / 1024.0,
        );
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// User and system time of the children that have ended, in ms.
fn children_ms() -> f64 {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the kernel counts it");
    let all = used.user_time() + used.system_time();
    all.num_microseconds() as f64 / 1e3
}

fn spawn_outlast(base: &str, scratch: &Path, sandbox: &str) -> Child {
    let [home, work, temporary] = ["home", "work", "tmp"].map(|name| scratch.join(name));
    for folder in [&home, &work, &temporary] {
        std::fs::create_dir_all(folder).expect("the scratch folder is writable");
    }
    Command::new(env!("CARGO_BIN_EXE_outlast"))
        .args(["--permission-mode", "bypassPermissions", "--model", "bench", "go"])
        .args(["--sandbox", sandbox, "--price", "bench=1/5"])
        .current_dir(work)
        .env("ANTHROPIC_BASE_URL", base)
        .env("ANTHROPIC_API_KEY", "a-key-for-benches")
        .env("HOME", home)
        // Commands may write there, and not to the folder that has the configuration, too.
        .env("TMPDIR", temporary)
        .env_remove("OUTLAST_CONFIG_DIR")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary was built for this bench")
}

fn spawn_bare(base: &str, scratch: &Path) -> Child {
    Command::new(std::env::current_exe().expect("the bench runs from a file"))
        .current_dir(scratch)
        .env(BARE, base)
        .stdin(Stdio::null())
        .spawn()
        .expect("the bench can start itself")
}

/// The same calls and spawns, and nothing else: no history, no checks, no journal.
fn bare_loop(base: &str) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async {
        let client = reqwest::Client::new();
        for _ in 0..=TURNS {
            let reply = client.post(format!("{base}/v1/messages")).body("{}").send().await;
            let _ = reply.expect("the bench server answers").bytes().await;
            let _ = tokio::process::Command::new("bash").args(["-c", "true > made"]).status().await;
        }
    });
}

/// Serves one run and takes its times.
fn measure(spawn: Spawn, scratch: &Path) -> Measured {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let base = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let tape = Arc::new(Mutex::new(ServerTimings::default()));
    let (start, before) = (Instant::now(), children_ms());
    let mut child = spawn(&base, scratch);
    let (pid, shared) = (child.id(), Arc::clone(&tape));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tape = Arc::clone(&shared);
            thread::spawn(move || serve(stream, pid, &tape));
        }
    });
    let _ = child.wait();
    let tape = tape.lock().expect("no server thread panicked");
    assert!(tape.served > TURNS, "the run ended after {} requests", tape.served);
    let first_request = tape.first.map(|first| first.duration_since(start)).unwrap_or_default();
    let processor_ms = children_ms() - before;
    let (gaps, resident_kib) = (tape.gaps.clone(), tape.resident_kib);
    Measured { first_request, gaps, processor_ms, resident_kib }
}

/// What the server saw.
#[derive(Default)]
struct ServerTimings {
    served: usize,
    first: Option<Instant>,
    /// When the last reply was out.
    replied: Option<Instant>,
    gaps: Vec<Duration>,
    resident_kib: u64,
}

/// Serves one connection.
fn serve(stream: TcpStream, pid: u32, tape: &Mutex<ServerTimings>) {
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream);
    while let Some(arrived) = service::read_request(&mut reader) {
        let mut tape = tape.lock().expect("no server thread panicked");
        tape.first.get_or_insert(arrived);
        let gap = tape.replied.map(|then| arrived.duration_since(then));
        tape.gaps.extend(gap);
        if tape.served == TURNS {
            tape.resident_kib = resident(pid);
        }
        if reader.get_mut().write_all(service::reply(tape.served, TURNS).as_bytes()).is_err() {
            return;
        }
        tape.replied = Some(Instant::now());
        tape.served += 1;
    }
}

/// Resident memory of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}
