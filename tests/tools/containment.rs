//! Commands end with the process that started them.

use std::fs;
use std::process::{Command, Stdio};

use super::bench::{Bench, appears, assert_gone, is_alive, text};

#[tokio::test]
async fn a_command_leads_its_own_session_without_a_terminal() {
    let bench = Bench::open();
    let outcome = bench.bash("cut -d' ' -f1,5,6,7 /proc/$$/stat").await;
    let shown = text(&outcome);
    let fields: Vec<&str> = shown.split_whitespace().collect();
    let [pid, group, session, terminal] = fields[..] else { panic!("{shown}") };
    assert_eq!((pid, pid, "0"), (group, session, terminal));
}

#[tokio::test]
async fn a_command_has_default_signals_and_a_raised_oom_score() {
    // The runtime of Rust ignores SIGPIPE, here and in the supervisor.
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        // Those beyond 31 are reserved by the C library and cannot be changed.
        u64::from_str_radix(line.trim(), 16).unwrap() & 0x7fff_ffff
    };
    let sigpipe = 1 << (nix::libc::SIGPIPE - 1);
    assert_ne!(ignored(&own) & sigpipe, 0, "otherwise this shows nothing");
    let bench = Bench::open();
    let status = text(&bench.bash("cat /proc/self/status").await);
    assert_eq!(ignored(&status), 0, "{status}");
    assert!(status.contains("SigBlk:\t0000000000000000"), "{status}");
    let score = text(&bench.bash("cat /proc/self/oom_score_adj").await);
    assert!(score.trim().parse::<i32>().is_ok_and(|score| score >= 300), "{score}");
}

#[test]
fn a_command_outlives_the_thread_that_started_it() {
    // The kernel ends a command together with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bench = Bench::open();
    let (begun, go) = (bench.cwd.join("begun"), bench.cwd.join("go"));
    let mut running = Box::pin(async move {
        bench.bash("echo yes > begun; until [ -e go ]; do sleep 0.01; done; echo done").await
    });
    let asking = std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                outcome = &mut running => panic!("it waits for a file: {outcome:?}"),
                _ = appears(&begun) => {}
            }
        });
        (runtime, running)
    });
    let (runtime, running) = asking.join().unwrap();
    fs::write(go, "").unwrap();
    let outcome = runtime.block_on(running);
    assert_eq!(text(&outcome), "done");
}

#[test]
fn commands_die_with_outlast() {
    // Run by itself in another process, which then dies without a word.
    let folder = tempfile::tempdir().unwrap();
    let child = folder.path().join("child");
    if let Some(path) = std::env::var_os(DYING) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let bench = Bench::open();
        let command = format!("echo $$ > '{}'; exec sleep 1000", path.display());
        runtime.block_on(bench.bash(&command));
        unreachable!("it is killed before");
    }
    let mut dying = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tools::containment::commands_die_with_outlast"])
        .env(DYING, &child)
        // It cannot tidy up after itself.
        .env("TMPDIR", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pid = runtime.block_on(appears(&child));
    assert!(is_alive(&pid));
    dying.kill().unwrap();
    dying.wait().unwrap();
    runtime.block_on(assert_gone(&pid));
}

#[test]
fn a_panic_ends_running_commands() {
    let (tell, told) = std::sync::mpsc::channel();
    let breaking = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let bench = Bench::open();
        let begun = bench.cwd.join("begun");
        runtime.block_on(async {
            tokio::select! {
                _ = bench.bash("setsid sleep 1000 & echo $! > begun; wait") => {}
                pid = appears(&begun) => tell.send(pid).unwrap(),
            }
            panic!("as a bug of ours would");
        });
    });
    let pid = told.recv().unwrap();
    assert!(breaking.join().is_err());
    tokio::runtime::Runtime::new().unwrap().block_on(assert_gone(&pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_commands_each_end_their_own_daemon() {
    const COMMANDS: usize = 10;
    let bench = std::sync::Arc::new(Bench::open());
    let mut commands = tokio::task::JoinSet::new();
    for number in 0..COMMANDS {
        let bench = std::sync::Arc::clone(&bench);
        let command = format!(
            "(setsid sleep 1000 > /dev/null 2>&1 & echo $! > daemon{number}); \
             until [ -e go{number} ]; do sleep 0.01; done"
        );
        commands.spawn(async move { bench.bash(&command).await.is_error });
    }
    let mut daemons = Vec::new();
    for number in 0..COMMANDS {
        daemons.push(appears(&bench.cwd.join(format!("daemon{number}"))).await);
    }
    for number in 0..COMMANDS {
        assert!(daemons[number..].iter().all(|daemon| is_alive(daemon)), "before {number}");
        bench.file(&format!("go{number}"), "");
        assert_eq!(commands.join_next().await.unwrap().ok(), Some(false));
        assert_gone(&daemons[number]).await;
    }
}

/// Its other threads go on, and the kernel shows it like a process that has ended.
#[tokio::test]
async fn a_process_without_its_first_thread_is_ended_too() {
    let bench = Bench::open();
    let program = "import ctypes, os, threading, time\n\
                   def work():\n  print(os.getpid(), file=open('daemon', 'w'), flush=True)\n  time.sleep(1000)\n\
                   threading.Thread(target=work).start()\nctypes.CDLL(None).syscall(60, 0)";
    bench.file("program.py", program);
    let command = "(setsid python3 -I -S program.py > /dev/null 2>&1 &); \
                   until [ -s daemon ]; do sleep 0.01; done";
    bench.bash(command).await;
    let folder = format!("/proc/{}", bench.content("daemon").trim());
    assert!(!std::path::Path::new(&folder).exists(), "{folder} is there");
}

/// Tells the test above that it is the one to die, and where to say what it started.
const DYING: &str = "OUTLAST_TEST_DYING";
