//! Finds the processes that can still write to a pipe: to that on standard input, or to those of a
//! program that has ended.
//!
//! A shell gives the write end to the producer of a pipeline and closes its own copy. A CI runner
//! keeps it open for the life of the job and writes nothing. Only `/proc` distinguishes the two.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, getpgrp, getpid, getppid};

use super::code_programs::SHELLS;
use super::stat::{self, Stat};

/// The processes that can write to a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PipeWriters {
    /// There is none: the pipe already holds all data that will ever come.
    Gone,
    /// A process that is neither this one nor an ancestor of it, as in a shell pipeline.
    Peer,
    /// This process or its ancestors, and no other visible process.
    Ancestor,
    /// There is a writer, but it is not visible.
    Hidden,
}

/// The relation of another process to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kinship {
    /// This process, its parent, and so on.
    SelfOrAncestor,
    /// In the same process group, as all parts of a shell pipeline are.
    Group,
    Unrelated,
}

/// The state of a pipe's write end in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteEnd {
    Open,
    /// Open until the process executes a program, in a child of an ancestor: the copy that a child
    /// has between `fork` and `exec`, unless the child has opened the pipe by its name.
    Copy,
    Absent,
    /// Its descriptors cannot be listed: another user's process, or one that forbids it.
    Unlisted,
}

/// Determines the kind of writer of a pipe that has writers, from the visible processes.
pub fn pipe_writers(seen: impl IntoIterator<Item = (Kinship, WriteEnd)>) -> PipeWriters {
    let mut found = PipeWriters::Hidden;
    let mut may_be_peer = false;
    for process in seen {
        match process {
            (Kinship::Group | Kinship::Unrelated, WriteEnd::Open) => return PipeWriters::Peer,
            (Kinship::SelfOrAncestor, WriteEnd::Open | WriteEnd::Copy) => {
                found = PipeWriters::Ancestor;
            }
            // Of an ancestor that holds the pipe open, which starts another program just now, or
            // else of a pipe that was opened by its name.
            (Kinship::Group | Kinship::Unrelated, WriteEnd::Copy)
            | (Kinship::Group, WriteEnd::Unlisted) => may_be_peer = true,
            (Kinship::SelfOrAncestor | Kinship::Unrelated, WriteEnd::Unlisted)
            | (_, WriteEnd::Absent) => {}
        }
    }
    if found == PipeWriters::Hidden && may_be_peer { PipeWriters::Peer } else { found }
}

/// Finds the writers of the pipe that standard input is.
pub fn writers_of_stdin() -> PipeWriters {
    if has_hung_up() {
        return PipeWriters::Gone;
    }
    pipe_writers(processes())
}

/// The most ancestors that are checked, such as `timeout`, which pass their standard input on.
const ANCESTORS_MAX: usize = 16;

/// Returns true if a shell that runs this process shares the pipe on standard input, as in a loop
/// `... | while read`: data that is read here is lost to the loop.
pub fn is_shared_with_shell() -> bool {
    let stdin_of = |process: &str| std::fs::read_link(format!("/proc/{process}/fd/0")).ok();
    let Some(own) = stdin_of("self") else { return false };
    let mut process = getppid();
    for _ in 0..ANCESTORS_MAX {
        if stdin_of(&process.to_string()).as_ref() != Some(&own) {
            return false;
        }
        let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        // Loops of a shell read standard input.
        if SHELLS.contains(&name.trim()) || name.trim() == "busybox" {
            return true;
        }
        let Some(stat) = stat::of(process) else { return false };
        process = stat.parent;
    }
    false
}

/// Returns true if no process has the write end of standard input open any more.
fn has_hung_up() -> bool {
    let stdin = std::io::stdin();
    let mut polled = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let ready = poll(&mut polled, PollTimeout::ZERO);
    ready.is_ok() && polled[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLHUP))
}

/// A pipe, by the name that `/proc` has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipeName(PathBuf);

impl PipeName {
    /// Returns the name of the pipe that a descriptor belongs to.
    pub fn of(end: &impl AsFd) -> Option<Self> {
        let number = end.as_fd().as_raw_fd();
        std::fs::read_link(format!("/proc/self/fd/{number}")).ok().map(Self)
    }
}

/// Returns true if a process that can write to one of the `outputs` of a program may pass on what
/// the program has written: it reads from a pipe or a socket, as the right side of a shell pipeline
/// does, and not from the `input` of the program. A process that the shell has started in the
/// background reads from `/dev/null`. A program that this process is just starting has copies of all
/// its descriptors, and passes nothing on. Blocks.
pub fn has_filter(outputs: &[PipeName], input: Option<&PipeName>) -> bool {
    let Ok(mut processes) = stat::process_ids() else { return true };
    let own = getpid();
    processes.any(|process| {
        let is_holder = |pipe: &PipeName| match write_end(process, &pipe.0) {
            WriteEnd::Open => true,
            WriteEnd::Copy => stat::of(process).is_some_and(|stat| stat.parent != own),
            WriteEnd::Absent | WriteEnd::Unlisted => false,
        };
        process != own && outputs.iter().any(is_holder) && reads_elsewhere(process, input)
    })
}

/// Returns true if the standard input of a process is a pipe or a socket, other than `input`.
fn reads_elsewhere(process: Pid, input: Option<&PipeName>) -> bool {
    use std::os::unix::fs::FileTypeExt;

    let stdin = PathBuf::from(format!("/proc/{process}/fd/0"));
    let kind = std::fs::metadata(&stdin).map(|facts| facts.file_type());
    let is_stream = kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket());
    is_stream && std::fs::read_link(&stdin).ok() != input.map(|PipeName(name)| name.clone())
}

/// All living processes, each with its relation to this one and the state of the write end of the
/// pipe on standard input in it.
fn processes() -> Vec<(Kinship, WriteEnd)> {
    let Ok(pipe) = std::fs::read_link("/proc/self/fd/0") else { return Vec::new() };
    let living: HashMap<Pid, Stat> = stat::all().collect();
    let up = |process: &Pid| living.get(process).map(|stat| stat.parent);
    let lineage: Vec<Pid> = std::iter::successors(Some(getpid()), up).take(living.len()).collect();
    let group = getpgrp();
    let kinship = |process: &Pid, stat: &Stat| {
        if lineage.contains(process) {
            Kinship::SelfOrAncestor
        } else if stat.group == group {
            Kinship::Group
        } else {
            Kinship::Unrelated
        }
    };
    let seen = living.iter().map(|(process, stat)| {
        let end = write_end(*process, &pipe);
        // Not started by an ancestor, it has opened the pipe itself.
        let is_own = end == WriteEnd::Copy && !lineage.contains(&stat.parent);
        (kinship(process, stat), if is_own { WriteEnd::Open } else { end })
    });
    seen.collect()
}

/// Determines whether a process has a pipe open for writing. If all its descriptors of the pipe are
/// closed on exec, it has a copy, or has opened the pipe itself.
fn write_end(process: Pid, pipe: &Path) -> WriteEnd {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{process}/fd")) else {
        return WriteEnd::Unlisted;
    };
    let mut found = WriteEnd::Absent;
    for descriptor in descriptors.flatten() {
        if std::fs::read_link(descriptor.path()).is_ok_and(|target| target == pipe) {
            let number = descriptor.file_name();
            let info = format!("/proc/{process}/fdinfo/{}", number.to_string_lossy());
            match std::fs::read_to_string(info).map_or(WriteEnd::Absent, |info| end_of(&info)) {
                WriteEnd::Open => return WriteEnd::Open,
                WriteEnd::Copy => found = WriteEnd::Copy,
                WriteEnd::Absent | WriteEnd::Unlisted => {}
            }
        }
    }
    found
}

/// Returns the state that the text of an `fdinfo` file shows: open if the descriptor can be written
/// to, a copy if it is closed on exec, too.
fn end_of(info: &str) -> WriteEnd {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    let Some(flags) = flags else { return WriteEnd::Absent };
    match flags & nix::libc::O_ACCMODE {
        nix::libc::O_WRONLY | nix::libc::O_RDWR if flags & nix::libc::O_CLOEXEC != 0 => {
            WriteEnd::Copy
        }
        nix::libc::O_WRONLY | nix::libc::O_RDWR => WriteEnd::Open,
        _ => WriteEnd::Absent,
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::waitpid;
    use nix::unistd::{ForkResult, dup2_stdin, fork, pause};

    use super::*;

    const KINSHIPS: [Kinship; 3] = [Kinship::SelfOrAncestor, Kinship::Group, Kinship::Unrelated];
    const ENDS: [WriteEnd; 4] =
        [WriteEnd::Open, WriteEnd::Copy, WriteEnd::Absent, WriteEnd::Unlisted];

    #[test]
    fn pipe_writers_prefers_a_visible_peer_to_an_ancestor_to_a_hidden_process() {
        assert_eq!(pipe_writers([]), PipeWriters::Hidden);
        let all = || KINSHIPS.into_iter().flat_map(|kin| ENDS.map(|end| (kin, end)));
        for one in all() {
            for other in all() {
                let both = [one, other];
                let has = |kin, end| both.contains(&(kin, end));
                let is_copied = both
                    .iter()
                    .any(|(kin, end)| *kin != Kinship::SelfOrAncestor && *end == WriteEnd::Copy);
                let wanted = if has(Kinship::Group, WriteEnd::Open)
                    || has(Kinship::Unrelated, WriteEnd::Open)
                {
                    PipeWriters::Peer
                } else if has(Kinship::SelfOrAncestor, WriteEnd::Open)
                    || has(Kinship::SelfOrAncestor, WriteEnd::Copy)
                {
                    PipeWriters::Ancestor
                } else if is_copied || has(Kinship::Group, WriteEnd::Unlisted) {
                    PipeWriters::Peer
                } else {
                    PipeWriters::Hidden
                };
                assert_eq!(pipe_writers(both), wanted, "{both:?}");
            }
        }
    }

    #[test]
    fn a_process_that_reads_from_another_pipe_may_be_a_filter() {
        use std::process::{Command, Stdio};

        for (reads_pipe, pipe_is_input, writes_output, expected) in [
            (false, false, true, false),
            (true, true, true, false),
            (true, false, true, true),
            (true, false, false, false),
        ] {
            let (beside, writer) = std::io::pipe().expect("a pipe");
            let (reader, output) = std::io::pipe().expect("a pipe");
            let input = PipeName::of(&writer).filter(|_| pipe_is_input);
            let outputs: Vec<PipeName> = PipeName::of(&reader).into_iter().collect();
            let mut sleep = Command::new("sleep");
            sleep.arg("600").stderr(Stdio::null());
            sleep.stdin(if reads_pipe { beside.into() } else { Stdio::null() });
            sleep.stdout(if writes_output { output.into() } else { Stdio::null() });
            let mut child = sleep.spawn().expect("a program");
            let found = has_filter(&outputs, input.as_ref());
            assert_eq!(found, expected, "{reads_pipe} {pipe_is_input} {writes_output}");
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
    }

    #[test]
    fn the_write_end_is_distinguished_from_the_read_end_by_its_flags() {
        for (flags, wanted) in [
            ("0100000", WriteEnd::Absent),
            ("02100000", WriteEnd::Absent),
            ("0100001", WriteEnd::Open),
            ("02000001", WriteEnd::Copy),
            ("02", WriteEnd::Open),
            ("x", WriteEnd::Absent),
        ] {
            let info = format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t14\n");
            assert_eq!(end_of(&info), wanted, "{flags}");
        }
        assert_eq!(end_of(""), WriteEnd::Absent);
    }

    #[test]
    fn a_program_that_is_just_started_is_not_a_filter() {
        let (beside, _writer) = std::io::pipe().expect("a pipe");
        let (reader, output) = std::io::pipe().expect("a pipe");
        let outputs: Vec<PipeName> = PipeName::of(&reader).into_iter().collect();
        // SAFETY: the child makes system calls only.
        let child = match unsafe { fork() }.expect("a child") {
            ForkResult::Child => loop {
                let _ = dup2_stdin(&beside);
                pause();
            },
            ForkResult::Parent { child } => child,
        };
        while !reads_elsewhere(child, None) {
            std::thread::yield_now();
        }
        let PipeName(pipe) = &outputs[0];
        let found = (write_end(child, pipe), has_filter(&outputs, None));
        kill(child, Signal::SIGKILL).expect("it waits");
        waitpid(child, None).expect("it ends");
        assert_eq!(found, (WriteEnd::Copy, false));
        drop(output);
    }
}
