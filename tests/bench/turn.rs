//! Cost of one turn, compared with a loop that makes the same HTTP calls and spawns and nothing
//! else.
//!
//! `cargo bench --bench turn` prints process start to first request, the gap between the last
//! byte of a reply and the first byte of the next request, processor time of a run with one answer
//! and of one with 50 commands, both with all their processes, and resident memory after 50
//! turns: without and with the sandbox of commands, and below the targets. Most of the resident
//! memory are pages of the program's own file, which all runs share; `anonymous` is the rest.
#![expect(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "a bench measures real time and prints"
)]

use std::ffi::OsStr;
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

/// The numbers of turns, for the bare loop.
const BARE_TURNS: &str = "OUTLAST_BENCH_BARE_TURNS";

/// The targets for a machine with two processors, in the columns of the table.
const TARGETS: [f64; 7] = [8.0, 2.5, f64::NAN, 8.0, 120.0, 15.0, f64::NAN];

/// Starts a run with this many commands against the server at a base URL, in a scratch folder.
type Spawn = fn(&str, &Path, usize) -> Child;

struct Measured {
    first_request: Duration,
    gaps: Vec<Duration>,
    /// User and system time of the whole run, in ms.
    processor_ms: f64,
    memory: ResidentMemory,
}

/// The resident memory of a process, in KiB.
#[derive(Clone, Copy, Default)]
struct ResidentMemory {
    total: u64,
    /// The part that belongs to no file.
    anonymous: u64,
}

fn main() {
    if let Ok(base) = std::env::var(BARE) {
        let turns = std::env::var(BARE_TURNS).ok().and_then(|turns| turns.parse().ok());
        bare_loop(&base, turns.expect("the bench sets it"));
        return;
    }
    let scratch = tempfile::tempdir().expect("a scratch folder can be made");
    println!(
        "{:<12}{:>16}{:>12}{:>12}{:>16}{:>16}{:>14}{:>14}",
        "",
        "first request",
        "gap p50",
        "gap max",
        "CPU, 1 answer",
        format!("CPU, {TURNS} turns"),
        "resident",
        "anonymous"
    );
    print_row("target", TARGETS);
    let rows: [(&str, Spawn); 3] = [
        ("bare loop", spawn_bare),
        ("no sandbox", |base, scratch, _| spawn_outlast(base, scratch, "off")),
        ("sandbox", |base, scratch, _| spawn_outlast(base, scratch, "workspace")),
    ];
    for (name, spawn) in rows {
        print_row(name, measure_row(spawn, scratch.path()));
    }
}

/// The figures of one row: the medians of times and the longest gap, the least processor time, the
/// most memory.
fn measure_row(spawn: Spawn, scratch: &Path) -> [f64; 7] {
    let rounds = |turns| (0..ROUNDS).map(move |_| measure(spawn, scratch, turns));
    let (answers, runs): (Vec<_>, Vec<_>) = (rounds(0).collect(), rounds(TURNS).collect());
    let mut starts: Vec<_> = answers.iter().chain(&runs).map(|run| run.first_request).collect();
    let mut gaps: Vec<_> = runs.iter().flat_map(|run| run.gaps.iter().copied()).collect();
    starts.sort();
    gaps.sort();
    let processor_ms = |runs: &[Measured]| {
        runs.iter().map(|run: &Measured| run.processor_ms).fold(f64::MAX, f64::min)
    };
    let most = |memory: fn(&ResidentMemory) -> u64| {
        runs.iter().map(|run| memory(&run.memory)).max().unwrap_or(0) as f64 / 1024.0
    };
    [
        millis(starts[starts.len() / 2]),
        millis(gaps[gaps.len() / 2]),
        millis(gaps[gaps.len() - 1]),
        processor_ms(&answers),
        processor_ms(&runs),
        most(|memory| memory.total),
        most(|memory| memory.anonymous),
    ]
}

fn print_row(name: &str, figures: [f64; 7]) {
    const COLUMNS: [(usize, usize, &str); 7] = [
        (13, 1, "ms"),
        (9, 2, "ms"),
        (9, 2, "ms"),
        (13, 1, "ms"),
        (13, 1, "ms"),
        (11, 1, "MB"),
        (11, 1, "MB"),
    ];
    let cells = figures.iter().zip(COLUMNS).map(|(figure, (width, decimals, unit))| {
        if figure.is_nan() {
            return format!("{:>width$} {:2}", "-", "");
        }
        format!("{figure:>width$.decimals$} {unit}")
    });
    println!("{name:<12}{}", cells.collect::<String>());
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

/// A program without the variables of cargo: with its library path, all programs would look for
/// their libraries in more folders than those of a user do, commands of a turn included.
fn as_from_a_shell(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

fn spawn_outlast(base: &str, scratch: &Path, sandbox: &str) -> Child {
    let [home, work, temporary] = ["home", "work", "tmp"].map(|name| scratch.join(name));
    for folder in [&home, &work, &temporary] {
        std::fs::create_dir_all(folder).expect("the scratch folder is writable");
    }
    as_from_a_shell(env!("CARGO_BIN_EXE_outlast"))
        .args(["--permission-mode", "bypassPermissions", "--model", "bench", "go"])
        .args(["--sandbox", sandbox, "--price", "bench=1/5"])
        .current_dir(work)
        .env("ANTHROPIC_BASE_URL", base)
        .env("ANTHROPIC_API_KEY", "a-key-for-benches")
        .env("HOME", home)
        // Commands may write there, and not to the folder that has the configuration, too.
        .env("TMPDIR", temporary)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary was built for this bench")
}

fn spawn_bare(base: &str, scratch: &Path, turns: usize) -> Child {
    as_from_a_shell(std::env::current_exe().expect("the bench runs from a file"))
        .current_dir(scratch)
        .env(BARE, base)
        .env(BARE_TURNS, turns.to_string())
        .stdin(Stdio::null())
        .spawn()
        .expect("the bench can start itself")
}

/// The same calls and spawns, and nothing else: no history, no checks, no journal.
fn bare_loop(base: &str, turns: usize) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async {
        let client = reqwest::Client::new();
        for turn in 0..=turns {
            let reply = client.post(format!("{base}/v1/messages")).body("{}").send().await;
            let _ = reply.expect("the bench server answers").bytes().await;
            if turn == turns {
                break;
            }
            let _ = tokio::process::Command::new("bash").args(["-c", "true > made"]).status().await;
        }
    });
}

/// Serves one run with this many commands and takes its times.
fn measure(spawn: Spawn, scratch: &Path, turns: usize) -> Measured {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let base = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let tape = Arc::new(Mutex::new(ServerTimings::default()));
    let (start, before) = (Instant::now(), children_ms());
    let mut child = spawn(&base, scratch, turns);
    let (pid, shared) = (child.id(), Arc::clone(&tape));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tape = Arc::clone(&shared);
            thread::spawn(move || serve(stream, (pid, turns), &tape));
        }
    });
    let _ = child.wait();
    let tape = tape.lock().expect("no server thread panicked");
    assert!(tape.served > turns, "the run ended after {} requests", tape.served);
    let first_request = tape.first.map(|first| first.duration_since(start)).unwrap_or_default();
    let processor_ms = children_ms() - before;
    Measured { first_request, gaps: tape.gaps.clone(), processor_ms, memory: tape.memory }
}

#[derive(Default)]
struct ServerTimings {
    served: usize,
    first: Option<Instant>,
    /// Time at which the last reply was written.
    replied: Option<Instant>,
    gaps: Vec<Duration>,
    memory: ResidentMemory,
}

/// Serves one connection of a process that gets this many commands.
fn serve(stream: TcpStream, (pid, turns): (u32, usize), tape: &Mutex<ServerTimings>) {
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream);
    while let Some(arrived) = service::read_request(&mut reader) {
        let mut tape = tape.lock().expect("no server thread panicked");
        tape.first.get_or_insert(arrived);
        let gap = tape.replied.map(|then| arrived.duration_since(then));
        tape.gaps.extend(gap);
        if tape.served == turns {
            tape.memory = resident_memory(pid);
        }
        if reader.get_mut().write_all(service::reply(tape.served, turns).as_bytes()).is_err() {
            return;
        }
        tape.replied = Some(Instant::now());
        tape.served += 1;
    }
}

fn resident_memory(pid: u32) -> ResidentMemory {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
    };
    ResidentMemory { total: field("VmRSS:"), anonymous: field("RssAnon:") }
}
