//! The fallback for killed supervisors: an environment variable that tags every command.
//!
//! The tag is searched for only if a supervisor was killed, since reading all environments takes
//! time. A program that clears its environment is not found.

use std::fs;
use std::io::Read;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};

use super::stat;

/// The environment variable that holds the tag.
pub(super) const TAG_VARIABLE: &str = "OUTLAST_CALL";

/// The longest environment that is searched for the tag, in bytes.
const ENVIRON_BYTES_MAX: u64 = 1 << 20;

/// Kills every process that carries the tag. Returns the number of killed processes.
pub(super) fn kill_tagged(tag: &str) -> u32 {
    let mut killed = 0;
    // A process may have started another one before it was killed.
    for _ in 0..10 {
        let found = tagged_processes(tag);
        if found.is_empty() {
            break;
        }
        for process in found {
            killed += u32::from(kill(process, Signal::SIGKILL).is_ok());
        }
    }
    killed
}

fn tagged_processes(tag: &str) -> Vec<Pid> {
    let variable = format!("{TAG_VARIABLE}={tag}");
    let processes = stat::process_ids().into_iter().flatten();
    processes.filter(|pid| *pid != getpid() && has_variable(*pid, variable.as_bytes())).collect()
}

fn has_variable(pid: Pid, wanted: &[u8]) -> bool {
    let mut environ = Vec::new();
    let read = fs::File::open(format!("/proc/{pid}/environ"))
        .and_then(|file| file.take(ENVIRON_BYTES_MAX).read_to_end(&mut environ));
    read.is_ok() && environ.split(|byte| *byte == 0).any(|variable| variable == wanted)
}
