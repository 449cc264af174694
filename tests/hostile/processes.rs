//! Control of processes outside of a job, without a signal or with one.

use std::fs;
use std::process::{Child, Command, Stdio};

use nix::libc;
use outlast::process::{LandlockSupport, filters_system_calls};
use outlast::tools::SandboxMode;

use crate::tools::bench::text;
use crate::tools::sandbox::SandboxFixture;

/// Prints each way that had an effect on the process with this number.
const ATTEMPTS: &str = r#"
import ctypes, os, resource, signal, subprocess, sys
pid = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if libc.syscall(*[ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]) < 0:
        raise OSError(ctypes.get_errno(), "call")
def run(*words):
    if subprocess.run(words, capture_output=True).returncode != 0:
        raise OSError()
def write(name, text):
    with open("/proc/%d/%s" % (pid, name), "w") as file:
        file.write(text)
pair = (ctypes.c_long * 2)(100, 100)
ways = {
    "limit of files": lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (500, 500)),
    "limit by program": lambda: run("prlimit", "--pid", str(pid), "--core=1:1"),
    "limit by number": lambda: call(SYS_PRLIMIT, pid, 2, pair, None),
    "limit by the numbers of x32": lambda: call(0x40000000 | SYS_PRLIMIT, pid, 2, pair, None),
    "limit of the parent": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (1, 1)),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 5),
    "priority of the group": lambda: os.setpriority(os.PRIO_PGRP, pid, 6),
    "priority by program": lambda: run("renice", "-n", "7", "-p", str(pid)),
    "affinity": lambda: os.sched_setaffinity(pid, {0}),
    "affinity by program": lambda: run("taskset", "-p", "1", str(pid)),
    "scheduler": lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
    "scheduler by program": lambda: run("chrt", "-i", "-p", "0", str(pid)),
    "parameters": lambda: os.sched_setparam(pid, os.sched_param(0)),
    "priority of disks": lambda: call(SYS_IOPRIO, 1, pid, (3 << 13)),
    "priority of disks, by group": lambda: call(SYS_IOPRIO, 2, os.getpgid(pid), (3 << 13)),
    "priority of disks, by program": lambda: run("ionice", "-c3", "-p", str(pid)),
    "signal": lambda: os.kill(pid, signal.SIGCONT),
    "signal by descriptor": lambda: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGCONT),
    "trace": lambda: call(SYS_PTRACE, 16, pid, 0, 0),
    "choice of the OOM killer": lambda: write("oom_score_adj", "1000"),
    "core dump filter": lambda: write("coredump_filter", "1"),
    "timer slack": lambda: write("timerslack_ns", "1000000000"),
    "memory": lambda: open("/proc/%d/mem" % pid, "rb").close(),
    "keys of the session": lambda: call(SYS_KEYCTL, 0, -3, 1),
}
for name, act in ways.items():
    try:
        act()
        print("OPEN", name)
    except (OSError, ValueError):
        pass
os.nice(1)
resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
os.sched_setaffinity(0, os.sched_getaffinity(0))
os.setpriority(os.PRIO_PROCESS, 0, 3)
run("nice", "true")
run("sh", "-c", "ulimit -n 300")
run("taskset", "-c", "0", "true")
print("own")
"#;

/// A process of the user that no job started.
struct Bystander(Child);

impl Bystander {
    fn start() -> Self {
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Self(child.expect("cat is installed"))
    }

    /// The properties that other processes can change.
    fn state(&self) -> String {
        let read = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", self.0.id()));
        let stat = read("stat").expect("it runs");
        let stat: Vec<&str> = stat.split(' ').collect();
        let status = read("status").expect("it runs");
        let affinity = status.lines().find(|line| line.starts_with("Cpus_allowed:"));
        let limits = read("limits").expect("it runs");
        format!("{:?} {:?} {affinity:?} {limits}", &stat[17..19], &stat[39..41])
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn commands_control_no_process_that_they_did_not_start() {
    for mode in [SandboxMode::Off, SandboxMode::Workspace] {
        let fixture = SandboxFixture::with(|settings, _| settings.sandbox.mode = mode);
        let bystander = Bystander::start();
        let before = bystander.state();
        let numbers = [
            ("SYS_PRLIMIT", libc::SYS_prlimit64),
            ("SYS_IOPRIO", libc::SYS_ioprio_set),
            ("SYS_PTRACE", libc::SYS_ptrace),
            ("SYS_KEYCTL", libc::SYS_keyctl),
        ];
        let script = numbers.iter().fold(ATTEMPTS.to_owned(), |script, (name, number)| {
            script.replace(name, &number.to_string())
        });
        fs::write(fixture.root.join("work/attempts"), script).expect("a file");
        let outcome = fixture.bash(&format!("python3 -I -S attempts {}", bystander.0.id())).await;
        let shown = text(&outcome);
        let open: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("OPEN ")).collect();
        assert!(shown.contains("own"), "a command controls itself: {shown}");
        if mode == SandboxMode::Off {
            assert!(open.len() >= 10, "these work at all: {open:?}: {shown}");
            assert_ne!(bystander.state(), before);
            continue;
        }
        let holds = filters_system_calls() && LandlockSupport::probe().restricts_signals();
        let state = fixture.toolbox.sandbox();
        assert_eq!(state.processes == "own_only" && state.signals == "own_only", holds);
        if holds {
            assert!(open.is_empty(), "{open:?}: {shown}");
            assert_eq!(bystander.state(), before);
        }
    }
}

/// Limits of its own processes, which a command may set, must not end the run or outlive it.
#[tokio::test]
async fn the_run_and_its_supervisor_are_bystanders_too() {
    if !filters_system_calls() {
        return;
    }
    let fixture = SandboxFixture::open();
    let script = "for pid in $PPID $(ps -o ppid= -p $PPID) $(ps -e -o pid= -o comm= \
                  | grep -i outlast | cut -c1-8); do \
                  prlimit --pid $pid --cpu=1:1 --as=1:1 --fsize=0:0 --nofile=1:1 && echo OPEN; \
                  done 2>/dev/null; echo end";
    let shown = text(&fixture.bash(script).await);
    assert!(shown.contains("end") && !shown.contains("OPEN"), "{shown}");
    assert!(text(&fixture.bash("echo alive").await).contains("alive"));
}
