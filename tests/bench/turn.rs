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

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

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
    Command::new(env!("CARGO_BIN_EXE_outlast"))
        .args(["--permission-mode", "bypassPermissions", "--model", "bench", "go"])
        .args(["--sandbox", sandbox])
        .current_dir(scratch)
        .env("ANTHROPIC_BASE_URL", base)
        .env("ANTHROPIC_API_KEY", "bench")
        .env("OUTLAST_CONFIG_DIR", scratch.join("config"))
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
    while let Some(arrived) = read_request(&mut reader) {
        let mut tape = tape.lock().expect("no server thread panicked");
        tape.first.get_or_insert(arrived);
        let gap = tape.replied.map(|then| arrived.duration_since(then));
        tape.gaps.extend(gap);
        if tape.served == TURNS {
            tape.resident_kib = resident(pid);
        }
        if reader.get_mut().write_all(reply(tape.served).as_bytes()).is_err() {
            return;
        }
        tape.replied = Some(Instant::now());
        tape.served += 1;
    }
}

/// Reads one request. Returns when its first byte arrived, or nothing at the end.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Instant> {
    let mut arrived = None;
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if reader.fill_buf().ok()?.is_empty() || reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        arrived.get_or_insert_with(Instant::now);
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length is a number");
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    arrived
}

fn reply(turn: usize) -> String {
    let (block, delta, reason) = if turn < TURNS {
        (
            format!(r#"{{"type":"tool_use","id":"toolu_{turn}","name":"Bash","input":{{}}}}"#),
            // Another command each time, or it would be a loop.
            format!(
                r#"{{"type":"input_json_delta","partial_json":"{{\"command\":\"true {turn} > made\"}}"}}"#
            ),
            "tool_use",
        )
    } else {
        let text = r#"{"type":"text_delta","text":"done"}"#.to_owned();
        (r#"{"type":"text","text":""}"#.to_owned(), text, "end_turn")
    };
    let events = [
        (
            "message_start",
            format!(
                r#"{{"type":"message_start","message":{{"id":"msg_{turn}","type":"message","role":"assistant","model":"bench","content":[],"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":10,"output_tokens":1}}}}}}"#
            ),
        ),
        (
            "content_block_start",
            format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#),
        ),
        (
            "content_block_delta",
            format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#),
        ),
        ("content_block_stop", r#"{"type":"content_block_stop","index":0}"#.to_owned()),
        (
            "message_delta",
            format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":5}}}}"#
            ),
        ),
        ("message_stop", r#"{"type":"message_stop"}"#.to_owned()),
    ];
    let body = events.map(|(name, data)| format!("event: {name}\ndata: {data}\n\n")).concat();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Resident memory of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}
