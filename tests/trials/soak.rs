//! Trials of endurance: thousands of turns with gigabytes of output, and the process stays as it is.
//!
//! `SOAK=5000 cargo test soak -- --nocapture` is the long one, with 2 MB of output each turn. It
//! prints a line now and then, and its figures at the end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use outlast::transcript::{Message, violations};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::support::RunBuilder;

/// The size and the bounds of a run.
#[derive(Clone, Copy)]
struct Task {
    turns: usize,
    /// Bytes of output each turn.
    output: usize,
    /// In tokens.
    window: usize,
    /// Turns between two looks at the process.
    look: usize,
    /// Most memory that the second half may add, in KiB a thousand turns.
    slope: f64,
    bound: Duration,
}

/// The bound for a few requests, most of whose memory goes to caches and pools.
const SHORT_SLOPE: f64 = 64.0 * 1_024.0;

fn task() -> Task {
    match std::env::var("SOAK").ok().and_then(|turns| turns.parse().ok()) {
        Some(turns) => Task {
            turns,
            output: 2 << 20,
            // So small that it is compacted some times, and no more often than a run may be.
            window: (turns * 160).clamp(20_000, 200_000),
            look: (turns / 200).clamp(4, 25),
            slope: if turns < 2_000 { SHORT_SLOPE } else { 2_048.0 },
            bound: Duration::from_hours(3),
        },
        None => Task {
            turns: 120,
            output: 64 << 10,
            window: 20_000,
            look: 4,
            slope: SHORT_SLOPE,
            bound: Duration::from_mins(15),
        },
    }
}

/// One look at the process.
#[derive(Clone, Copy, Debug)]
struct Look {
    turn: usize,
    /// KiB.
    resident: usize,
    threads: usize,
    files: usize,
    zombies: usize,
    /// Bytes.
    journal: u64,
}

/// The requests that the server received, in figures.
#[derive(Default)]
struct Tape {
    turn: usize,
    requests: usize,
    compactions: usize,
    torn: usize,
    largest: usize,
    looks: Vec<Look>,
    wrong: Vec<String>,
}

struct Service {
    task: Task,
    tape: Mutex<Tape>,
    /// The process, and where its journals are.
    watched: OnceLock<(i32, PathBuf)>,
}

impl Service {
    fn tape(&self) -> MutexGuard<'_, Tape> {
        self.tape.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one connection.
    fn serve(&self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let mut reader = BufReader::new(stream);
        while let Some((sums_up, body)) = read_request(&mut reader) {
            let answer = self.answer(sums_up, &body);
            if reader.get_mut().write_all(answer.as_bytes()).is_err() || !answer.ends_with("\n\n") {
                return;
            }
        }
    }

    fn answer(&self, sums_up: bool, body: &[u8]) -> String {
        let mut tape = self.tape();
        tape.requests += 1;
        tape.largest = tape.largest.max(body.len());
        if tape.requests.is_multiple_of(50) {
            tape.wrong.extend(mistakes(body));
        }
        let tokens = body.len() / 4;
        if sums_up {
            tape.compactions += 1;
            return said("Nothing but output so far. Go on with the next command.", tokens);
        }
        if tape.requests % 400 == 50 {
            tape.torn += 1;
            let whole = said("This never arrives.", tokens);
            return whole[..whole.len() / 2].to_owned();
        }
        if tape.turn.is_multiple_of(self.task.look)
            && let Some((pid, config)) = self.watched.get()
        {
            let look = look(*pid, config, tape.turn);
            if tape.turn.is_multiple_of(self.task.look * 20) {
                tell(&format!("{look:?}"));
            }
            tape.looks.push(look);
        }
        tape.turn += 1;
        if tape.turn > self.task.turns {
            return said("Done.", tokens);
        }
        called(tape.turn, self.task.output, tokens)
    }
}

/// The violations for which the real service would refuse a request.
fn mistakes(body: &[u8]) -> Vec<String> {
    let parsed = serde_json::from_slice::<Value>(body).ok();
    let messages = parsed.map(|mut body| body["messages"].take());
    match messages.map(serde_json::from_value::<Vec<Message>>) {
        Some(Ok(messages)) => violations(&messages).iter().map(|one| format!("{one:?}")).collect(),
        Some(Err(_)) | None => vec!["a body that is no request".to_owned()],
    }
}

/// Reads one request: whether it is for a summary, and its body.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<(bool, Vec<u8>)> {
    let (mut length, mut sums_up, mut line) = (0, false, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let head = line.trim().to_ascii_lowercase();
        if let Some(value) = head.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        sums_up |= head == "x-outlast-source: compact";
        if head.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((sums_up, body))
}

fn said(text: &str, tokens: usize) -> String {
    let block = json!({ "type": "text", "text": "" });
    reply(&block, &json!({ "type": "text_delta", "text": text }), "end_turn", tokens)
}

/// Another command each time: one that prints much, and one in ten that fails.
fn called(turn: usize, output: usize, tokens: usize) -> String {
    let code = usize::from(turn.is_multiple_of(10));
    let command =
        format!("head -c {output} /dev/zero | tr '\\0' x; echo 'turn {turn}'; exit {code}");
    let id = format!("toolu_{turn}");
    let block = json!({ "type": "tool_use", "id": id, "name": "Bash", "input": {} });
    let input = json!({ "command": command }).to_string();
    let delta = json!({ "type": "input_json_delta", "partial_json": input });
    reply(&block, &delta, "tool_use", tokens)
}

fn reply(block: &Value, delta: &Value, reason: &str, tokens: usize) -> String {
    let usage = json!({ "input_tokens": tokens, "output_tokens": 1 });
    let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "soak",
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage });
    let stop = json!({ "stop_reason": reason, "stop_sequence": null });
    let events = [
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": stop, "usage": { "output_tokens": 40 } }),
        json!({ "type": "message_stop" }),
    ];
    let body = events.map(|event| {
        format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
    });
    let body = body.concat();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn look(pid: i32, config: &Path, turn: usize) -> Look {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    Look {
        turn,
        resident: number("VmRSS:"),
        threads: number("Threads:"),
        files: fs::read_dir(process.join("fd")).map_or(0, Iterator::count),
        zombies: zombies(pid),
        journal: size_of(config, "jsonl"),
    }
}

/// Zombies: children that ended and were not reaped.
fn zombies(parent: i32) -> usize {
    let is_one = |stat: &str| {
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.next() == Some("Z") && fields.next() == Some(parent.to_string().as_str())
    };
    let stats = fs::read_dir("/proc").into_iter().flatten().flatten();
    stats
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter(|stat| is_one(stat))
        .count()
}

/// The bytes of all files below a folder whose names end so; all of them if it is empty.
fn size_of(folder: &Path, extension: &str) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of(&entry.path(), extension),
        Ok(metadata) if entry.path().to_string_lossy().ends_with(extension) => metadata.len(),
        Ok(_) | Err(_) => 0,
    });
    sizes.sum()
}

/// By how much `y` grows with each `x`, as the best straight line has it.
#[expect(clippy::cast_precision_loss, reason = "the figures are far smaller than a mantissa")]
fn slope(points: &[(usize, usize)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(usize, usize)) -> usize| {
        points.iter().map(|point| of(point) as f64).sum::<f64>() / count
    };
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let parts = points.iter().map(|point| {
        let (dx, dy) = (point.0 as f64 - x, point.1 as f64 - y);
        (dx * dy, dx * dx)
    });
    let (rise, run) = parts.fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    rise / run
}

#[expect(clippy::print_stderr, reason = "the long run prints its progress")]
fn tell(figures: &str) {
    eprintln!("{figures}");
}

fn judge(looks: &[Look], task: Task) {
    assert!(looks.len() > 20, "{looks:?}");
    let (first, second) = looks.split_at(looks.len() / 2);
    let most = |looks: &[Look], of: fn(&Look) -> usize| looks.iter().map(of).max().unwrap_or(0);
    let resident = most(looks, |look| look.resident);
    let points: Vec<_> = second.iter().map(|look| (look.turn, look.resident)).collect();
    let growth = slope(&points) * 1_000.0;
    let (begin, end) = (second[0], second[second.len() - 1]);
    let turns = u64::try_from(end.turn - begin.turn).expect("turns are few");
    let journal = (end.journal - begin.journal) / turns;
    tell(&format!(
        "resident: at most {:.1} MB, {:+.2} MB per 1,000 turns in the second half; \
         {} threads, {} files, {journal} bytes of journal a turn",
        kib(resident),
        growth / 1_024.0,
        end.threads,
        end.files,
    ));
    assert!(resident < 200 * 1_024, "{resident} KiB");
    assert!(growth < task.slope, "memory grows by {growth} KiB in 1,000 turns: {second:?}");
    for (what, of) in
        [("threads", (|look| look.threads) as fn(&Look) -> usize), ("files", |look| look.files)]
    {
        assert!(most(second, of) <= most(first, of) + 3, "{what} grow: {looks:?}");
    }
    assert_eq!(most(looks, |look| look.zombies), 0, "unreaped children: {looks:?}");
    assert!(journal < 16_384, "the journal grows by {journal} bytes a turn");
}

#[expect(clippy::cast_precision_loss, reason = "it is printed with one digit")]
fn kib(kib: usize) -> f64 {
    kib as f64 / 1_024.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_run_uses_constant_memory_and_disk() {
    let task = task();
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let base = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let (tape, watched) = (Mutex::default(), OnceLock::new());
    let service = Arc::new(Service { task, tape, watched });
    let shared = Arc::clone(&service);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let service = Arc::clone(&shared);
            thread::spawn(move || service.serve(stream));
        }
    });
    let (turns, window) = (task.turns + 5, task.window.to_string());
    let running = RunBuilder::at(&base)
        .args(["--max-turns", &turns.to_string(), "--context-window", &window])
        .args(["--output-format", "json", "Print it all."])
        .env("BASH_MAX_OUTPUT_LENGTH", "200")
        .start();
    let config = running.work().with_file_name("config");
    service.watched.set((running.pid(), config.clone())).expect("it is set once");
    let mut running = running;
    let mut stderr = running.child.stderr.take().expect("standard error is a pipe");
    let told = tokio::spawn(async move {
        let mut told = String::new();
        let _ = stderr.read_to_string(&mut told).await;
        told
    });
    let ended = tokio::time::timeout(task.bound, running.child.wait()).await;
    let code = ended.expect("it ends in time").expect("it can be waited for").code();
    let told = told.await.expect("reading does not panic");
    let tape = service.tape();
    eprintln!(
        "{} turns, {:.1} GB of output, {} requests of up to {} bytes, {} torn, {} compactions",
        task.turns,
        kib(task.turns * (task.output >> 10)) / 1_024.0,
        tape.requests,
        tape.largest,
        tape.torn,
        tape.compactions
    );
    assert_eq!((code, tape.turn), (Some(0), task.turns + 1), "{told}");
    assert!(tape.compactions > 0 && tape.torn > 0, "nothing happened");
    assert!(tape.largest < task.window * 5, "a request of {} bytes", tape.largest);
    assert!(tape.wrong.is_empty(), "{:?}", tape.wrong);
    judge(&tape.looks, task);
}
