//! Counts the work from the start of the process to its first request, and of each further turn with
//! a command: system calls (`strace`) and instructions (`callgrind`), which no other load changes.
//!
//! `cargo bench --bench start` prints the counts beside the recorded ones in `start.txt`, and fails
//! if one is larger by more than 5 %. `UPDATE=1 cargo bench --bench start` records them. Those of a
//! build without optimization (`cargo test --bench start`) are recorded apart.
//!
//! `LINK_ORDER=1 RUSTFLAGS=-Cstrip=none cargo bench --bench start` records in `src/link-order.txt`
//! which functions the processes of such runs execute: `src/build.rs` has them placed side by side.
//! Renew it when the resident memory in the bench `turn` has grown.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a bench starts programs and prints"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod executed;
mod service;

/// The recorded counts, by name.
type Counts = BTreeMap<String, u64>;

const LINK_ORDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/link-order.txt");
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/start.txt");
/// The most that a count may exceed the recorded one, in percent.
const TOLERANCE: u64 = 5;
/// The smallest of several counts is taken: threads that wait for each other add calls.
const ROUNDS: usize = 3;
/// Commands of the longer run, beside one of a single command.
const COMMANDS: usize = 11;
/// Namespaces in which the counted program sees nothing of the machine that others lack.
const NAMESPACES: [&str; 4] = ["--map-root-user", "--mount-proc", "--pid", "--fork"];
/// The folders of programs. Those of the user would change the counts.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn main() -> ExitCode {
    if std::env::var_os("LINK_ORDER").is_some() {
        record_link_order();
        return ExitCode::SUCCESS;
    }
    if !succeeds("unshare", &[&NAMESPACES[..], &["true"]].concat()) {
        println!("user namespaces are missing: nothing is counted");
        return ExitCode::SUCCESS;
    }
    let (mut counted, build) = (Counts::new(), build_name());
    for sandbox in ["off", "workspace"] {
        if succeeds("strace", &["--version"]) {
            let turn = count_calls(sandbox, 1);
            let more = count_calls(sandbox, COMMANDS);
            let commands = COMMANDS as u64 - 1;
            counted.insert(format!("{build} {sandbox} calls-to-first-request"), turn.to_request);
            let further = more.total.saturating_sub(turn.total) / commands;
            counted.insert(format!("{build} {sandbox} calls-per-further-turn"), further);
        } else {
            println!("strace is missing: system calls are not counted");
        }
        if succeeds("valgrind", &["--version"]) {
            let instructions = count_instructions(sandbox);
            counted
                .insert(format!("{build} {sandbox} instructions-without-commands"), instructions);
        } else {
            println!("valgrind is missing: instructions are not counted");
        }
    }
    let mut recorded = read_recorded();
    let grown = print_table(&counted, &recorded);
    if std::env::var_os("UPDATE").is_some() {
        recorded.extend(counted);
        write_recorded(&recorded);
        return ExitCode::SUCCESS;
    }
    if grown { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Prints the counts. Returns true if one has grown too much.
fn print_table(counted: &Counts, recorded: &Counts) -> bool {
    println!("{:<50}{:>14}{:>14}", "", "counted", "recorded");
    let mut grown = false;
    for (name, count) in counted {
        let Some(known) = recorded.get(name) else {
            println!("{name:<50}{count:>14}{:>14}", "-");
            continue;
        };
        let is_more = count * 100 > known * (100 + TOLERANCE);
        let note = if is_more { "  GROWN by more than 5 %" } else { "" };
        println!("{name:<50}{count:>14}{known:>14}{note}");
        grown |= is_more;
    }
    grown
}

fn read_recorded() -> Counts {
    let text = fs::read_to_string(RECORDED).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let count = |line: &str| {
        let (name, count) = line.rsplit_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    lines.filter_map(count).collect()
}

fn write_recorded(counts: &Counts) {
    let mut text = String::from(
        "# Counts of `cargo bench --bench start` (debug: `cargo test --bench start`), in\n\
         # namespaces of their own. Renewed by `UPDATE=1 cargo bench --bench start`.\n",
    );
    for (name, count) in counts {
        let _ = writeln!(text, "{name} {count}");
    }
    fs::write(RECORDED, text).expect("the sources can be written");
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let tried = Command::new(program).args(arguments).stdout(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// A folder at the same depth on every machine: each folder on the way is searched for settings.
fn scratch_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/tmp").expect("a scratch folder can be made")
}

/// The command of a program in namespaces in which the user database lists only the home folder of
/// the run, and no other processes are seen: the sandbox looks for logins in all listed homes, and
/// under valgrind, where no supervisor can be started, the run looks at all processes.
fn isolated(program: &str, scratch: &Path) -> Command {
    let database = scratch.join("passwd");
    let user = format!("root:x:0:0::{}:/bin/sh\n", scratch.join("home").display());
    fs::write(&database, user).expect("a file can be made");
    let mut command = Command::new("unshare");
    command.args(NAMESPACES).args(["sh", "-c"]);
    // Not executed in place of the shell: the first process of a namespace has special duties.
    command.arg("mount --bind \"$0\" /etc/passwd && \"$@\"; exit $?");
    command.arg(database).arg(program);
    command
}

/// The name of the build, `release` or `debug`: that of the folder of its program.
fn build_name() -> &'static str {
    let folder = Path::new(env!("CARGO_BIN_EXE_outlast")).parent();
    folder.and_then(|folder| folder.file_name()?.to_str()).unwrap_or("unknown")
}

/// System calls of a run.
#[derive(Clone, Copy)]
struct Calls {
    to_request: u64,
    total: u64,
}

/// Counts the system calls of all processes of a run with this many commands.
fn count_calls(sandbox: &str, commands: usize) -> Calls {
    let count = |_| {
        let scratch = scratch_folder();
        let trace = scratch.path().join("trace");
        let mut tracer = isolated("strace", scratch.path());
        tracer.args(["-f", "-s", "32", "-o"]).arg(&trace);
        run(tracer, sandbox, commands, scratch.path());
        let trace = fs::read_to_string(trace).expect("strace writes text");
        let calls: Vec<&str> = trace.lines().filter(|line| is_call(line)).collect();
        let request = calls.iter().position(|call| call.contains("POST /v1/messages"));
        let to_request = request.expect("a request is sent") as u64;
        Calls { to_request, total: calls.len() as u64 }
    };
    let rounds: Vec<Calls> = (0..ROUNDS).map(count).collect();
    let least = |number: fn(&Calls) -> u64| rounds.iter().map(number).min().unwrap_or(0);
    Calls { to_request: least(|calls| calls.to_request), total: least(|calls| calls.total) }
}

/// True for a line with the beginning of a call, and not with its end, a signal or an exit.
fn is_call(line: &str) -> bool {
    !line.contains(" resumed>") && !line.contains(" +++ ") && !line.contains(" --- ")
}

/// Counts the instructions of the main process of a run without commands.
fn count_instructions(sandbox: &str) -> u64 {
    let count = |_| {
        let scratch = scratch_folder();
        let log = scratch.path().join("log");
        let mut counter = isolated("valgrind", scratch.path());
        counter.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        counter.arg(format!("--log-file={}", log.display()));
        run(counter, sandbox, 0, scratch.path());
        let log = fs::read_to_string(log).expect("valgrind writes a log");
        let collected = log.lines().find_map(|line| line.rsplit_once("Collected : "));
        let collected = collected.expect("callgrind reports its count").1;
        collected.trim().parse::<u64>().expect("a count is a number")
    };
    (0..ROUNDS).map(count).min().unwrap_or(0)
}

/// Records the symbols of the functions that the processes of a run execute. callgrind would not do:
/// under it there is no sandbox, and no supervisor can be started.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn record_link_order() {
    let mut executed = executed::ExecutedFunctions::of(Path::new(env!("CARGO_BIN_EXE_outlast")));
    for sandbox in ["off", "workspace"] {
        let scratch = scratch_folder();
        let starter = executed::ExecutedFunctions::starter();
        let mut run = command(starter, sandbox, COMMANDS, scratch.path());
        let mut child = run.stdout(Stdio::null()).spawn().expect("there is a shell");
        assert!(executed.watch(&child), "the run failed");
        // It has ended: nothing is left to wait for.
        let _ = child.wait();
        assert!(scratch.path().join("work/made").exists(), "no command was executed");
    }
    let lines: Vec<String> = executed.patterns().into_iter().collect();
    let text = format!(
        "# The symbols, without their hashes, of the functions that a short run executes, for the\n\
         # linker (`src/build.rs`).\n\
         # Renewed by `LINK_ORDER=1 RUSTFLAGS=-Cstrip=none cargo bench --bench start`.\n{}\n",
        lines.join("\n")
    );
    fs::write(LINK_ORDER, text).expect("the sources can be written");
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn record_link_order() {
    panic!("the list is only for x86_64-unknown-linux-gnu");
}

/// Runs outlast with this many commands under a program that counts.
fn run(counter: Command, sandbox: &str, commands: usize, scratch: &Path) {
    let output = command(counter, sandbox, commands, scratch).output();
    let output = output.expect("the counter was found before");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The command that runs outlast with this many commands as the arguments of `starter`, with a model
/// service.
fn command(mut starter: Command, sandbox: &str, commands: usize, scratch: &Path) -> Command {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let base = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    thread::spawn(move || serve(&listener, commands));
    let [home, work, temporary] = ["home", "work", "tmp"].map(|name| scratch.join(name));
    for folder in [&home, &work, &temporary] {
        fs::create_dir(folder).expect("a folder can be made");
    }
    starter
        .arg(env!("CARGO_BIN_EXE_outlast"))
        .args(["--print", "--permission-mode", "bypassPermissions", "--model", "bench"])
        .args(["--sandbox", sandbox, "go"])
        .current_dir(&work)
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", &home)
        .env("TMPDIR", &temporary)
        .env("ANTHROPIC_BASE_URL", base)
        .env("ANTHROPIC_API_KEY", "a-key-for-benches")
        .stdin(Stdio::null());
    starter
}

/// Serves the connections of one run.
fn serve(listener: &TcpListener, commands: usize) {
    let served = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming().flatten() {
        let served = Arc::clone(&served);
        thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            while service::read_request(&mut reader).is_some() {
                let turn = served.fetch_add(1, Ordering::Relaxed);
                let reply = service::reply(turn, commands);
                if reader.get_mut().write_all(reply.as_bytes()).is_err() {
                    return;
                }
            }
        });
    }
}
