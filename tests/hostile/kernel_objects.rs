//! Things of other programs that are no files: terminals, shared memory, queues; and capabilities.

use std::os::fd::AsFd;

use nix::pty::openpty;
use nix::unistd::{geteuid, ttyname};
use outlast::process::RootCapabilities;
use outlast::tools::{PermissionMode, SandboxMode, TerminalAccess};

use crate::tools::bench::text;
use crate::tools::sandbox::SandboxFixture;

#[tokio::test]
async fn terminals_are_closed_unless_a_setting_opens_them() {
    let pty = openpty(None, None).expect("a terminal");
    let name = ttyname(pty.slave.as_fd()).expect("its name").display().to_string();
    let ways = [
        format!("printf x > {name}"),
        format!("exec 3<> {name}"),
        format!("head -c 1 < {name}"),
        format!("stty -F {name} -a"),
        format!("python3 -I -S -c 'import os; os.open(\"{name}\", os.O_RDONLY | os.O_NOCTTY)'"),
        format!("cp {name} copy"),
        "exec 3<> /dev/ptmx".to_owned(),
        "exec 3<> /dev/pts/ptmx".to_owned(),
        "exec 3<> /dev/tty".to_owned(),
        "python3 -I -S -c 'import pty; pty.openpty()'".to_owned(),
    ];
    for (mode, terminals) in [
        (SandboxMode::Workspace, TerminalAccess::Closed),
        (SandboxMode::ReadOnly, TerminalAccess::Closed),
        (SandboxMode::Workspace, TerminalAccess::Open),
    ] {
        let fixture = SandboxFixture::with(|settings, _| {
            settings.sandbox.mode = mode;
            settings.sandbox.terminals = terminals;
        });
        if !fixture.holds() {
            return;
        }
        for command in &ways {
            if terminals == TerminalAccess::Closed {
                let outcome = fixture.bash(command).await;
                assert!(outcome.is_error, "{command}: {outcome:?}");
            }
        }
        // Nothing can be read from the user's terminal here.
        let program = "import os, pty\npid, fd = pty.fork()\n\
                       if pid == 0: os.execlp(\"tty\", \"tty\")\n\
                       assert b\"/dev/pts\" in os.read(fd, 100)";
        let makes_one = fixture.bash(&format!("python3 -I -S -c '{program}'")).await;
        assert_eq!(makes_one.is_error, terminals == TerminalAccess::Closed, "{makes_one:?}");
        // The command's own streams are no terminals.
        let outcome =
            fixture.bash("echo a > /dev/stdout; echo b > /dev/stderr; cat < /dev/null").await;
        assert!(!outcome.is_error, "{mode:?}: {outcome:?}");
        assert!(text(&outcome).contains('a') && text(&outcome).contains('b'), "{outcome:?}");
    }
}

/// Calls of the C library, with the error that they set.
const OBJECTS: [&str; 10] = [
    "l.shmget(0x6f757402, 4096, 0o1600)",
    "l.shmat(0x7fffffff, None, 0)",
    "l.shmctl(0x7fffffff, 2, None)",
    "l.semget(0x6f757402, 1, 0o1600)",
    "l.semop(0x7fffffff, None, 0)",
    "l.semctl(0x7fffffff, 0, 2, None)",
    "l.msgget(0x6f757402, 0o1600)",
    "l.msgsnd(0x7fffffff, b'x' * 16, 1, 0)",
    "l.msgctl(0x7fffffff, 2, None)",
    "l.mq_unlink(b'/outlast-none')",
];

#[tokio::test]
async fn shared_memory_semaphores_and_queues_are_closed_where_nothing_is_written() {
    for mode in [SandboxMode::ReadOnly, SandboxMode::Workspace] {
        let fixture = SandboxFixture::with(|settings, _| settings.sandbox.mode = mode);
        if !fixture.holds() {
            return;
        }
        let calls = OBJECTS.map(|call| format!("ctypes.set_errno(0); {call}; report()")).join("\n");
        let program = format!(
            "import ctypes; l = ctypes.CDLL(None, use_errno=True)\n\
             def report(): print('error', ctypes.get_errno())\n{calls}"
        );
        // Objects that are made are removed again.
        let removal = "ipcrm -M 0x6f757402 -S 0x6f757402 -Q 0x6f757402 2>/dev/null";
        let command = format!("python3 -I -S -c \"{program}\"; {removal}; true");
        let outcome = fixture.bash(&command).await;
        let shown = text(&outcome);
        let errors: Vec<&str> = shown.lines().filter(|line| line.starts_with("error ")).collect();
        assert_eq!(errors.len(), OBJECTS.len(), "{mode:?}: {outcome:?}");
        for (call, error) in OBJECTS.iter().zip(errors) {
            // The library makes EACCES of EPERM for POSIX queues.
            let refusal = if call.contains("mq_") { "error 13" } else { "error 1" };
            let is_refused = error == refusal;
            assert_eq!(is_refused, mode == SandboxMode::ReadOnly, "{mode:?} {call}: {outcome:?}");
        }
        let exposed = fixture.toolbox.sandbox().exposed.join("\n");
        assert_eq!(exposed.contains("System V"), mode == SandboxMode::Workspace, "{exposed}");
        let used = fixture.bash("rm \"$(mktemp -p /dev/shm)\" && echo usable").await;
        assert_eq!(exposed.contains("(/dev/shm)"), text(&used).contains("usable"), "{exposed}");
        assert!(exposed.contains("/proc/PID/cmdline"), "{exposed}");
    }
}

#[tokio::test]
async fn a_program_that_a_plain_command_runs_gets_no_shared_memory() {
    let fixture =
        SandboxFixture::with(|settings, _| settings.permissions.mode = PermissionMode::Default);
    if !fixture.holds() {
        return;
    }
    let call = "import ctypes, sys; l = ctypes.CDLL(None, use_errno=True); \
                l.shmget(0x5ec2, 4096, 0o1600); sys.stderr.write('error %d' % ctypes.get_errno())";
    // A plain command runs programs of the system only.
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return;
    }
    std::fs::write(fixture.root.join("work/p.py"), call).expect("a file");
    let git = |words: &[&str]| {
        let done = std::process::Command::new("git")
            .args(words)
            .current_dir(fixture.root.join("work"))
            .status();
        assert!(done.expect("git").success(), "{words:?}");
    };
    git(&["init", "-q"]);
    git(&["config", "core.fsmonitor", "/usr/bin/python3 p.py; false"]);
    let outcome = fixture.bash("git status").await;
    assert!(text(&outcome).contains("error 1"), "{outcome:?}");
}

#[tokio::test]
async fn commands_of_root_have_capabilities_for_files_only() {
    if !geteuid().is_root() {
        return;
    }
    // From linux/capability.h.
    let dropped = [
        (6, "SETGID"),
        (7, "SETUID"),
        (8, "SETPCAP"),
        (12, "NET_ADMIN"),
        (13, "NET_RAW"),
        (18, "SYS_CHROOT"),
        (23, "SYS_NICE"),
        (24, "SYS_RESOURCE"),
        (25, "SYS_TIME"),
        (34, "SYSLOG"),
    ];
    let always =
        [(2, "DAC_READ_SEARCH"), (16, "SYS_MODULE"), (19, "SYS_PTRACE"), (21, "SYS_ADMIN")];
    let kept = [(0, "CHOWN"), (1, "DAC_OVERRIDE"), (3, "FOWNER"), (5, "KILL")];
    for capabilities in [RootCapabilities::Files, RootCapabilities::Kept] {
        let fixture =
            SandboxFixture::with(|settings, _| settings.sandbox.capabilities = capabilities);
        if !fixture.holds() {
            return;
        }
        let outcome = fixture.bash("grep -E '^Cap(Eff|Bnd|Prm)' /proc/self/status").await;
        let own = std::fs::read_to_string("/proc/self/status").expect("it is there");
        let bounding = own.lines().find_map(|line| line.strip_prefix("CapBnd:")).expect("a line");
        let bounding = u64::from_str_radix(bounding.trim(), 16).expect("a number");
        let shown = text(&outcome);
        let sets: Vec<u64> = shown
            .lines()
            .filter_map(|line| u64::from_str_radix(line.split_once(':')?.1.trim(), 16).ok())
            .collect();
        assert_eq!(sets.len(), 3, "{shown}");
        for set in sets {
            let has = |bit: u32| set >> bit & 1 == 1;
            let had = |bit: u32| bounding >> bit & 1 == 1;
            for (bit, name) in always {
                assert!(!has(bit), "{name}: {shown}");
            }
            for (bit, name) in dropped {
                let expected = capabilities == RootCapabilities::Kept && had(bit);
                assert_eq!(has(bit), expected, "{name}: {shown}");
            }
            for (bit, name) in kept {
                assert_eq!(has(bit), had(bit), "{name}: {shown}");
            }
        }
    }
    // Files of packages keep their owners, as in containers of CI systems.
    let fixture = SandboxFixture::open();
    for command in [
        "echo x > f && tar -cf a.tar --owner=1234 --group=1234 f && tar -xf a.tar && stat -c %u f | grep -x 1234",
        "chown 4321 f && chmod 4755 f",
        "git init -q g && cd g && git status",
    ] {
        let outcome = fixture.bash(command).await;
        assert!(!outcome.is_error, "{command}: {outcome:?}");
    }
}
