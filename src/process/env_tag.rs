//! The fallback for killed supervisors: an environment variable that tags every command.
//!
//! It is searched for only when a supervisor was killed, since reading every environment takes
//! time. A program that clears its environment is not found.

use std::fs;
use std::io::Read;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The environment variable that holds the tag.
pub(super) const TAG_VARIABLE: &str = "OUTLAST_CALL";

/// The longest environment that is searched for the tag, in bytes.
const ENVIRON_BYTES_MAX: u64 = 1 << 20;

/// Kills every process that carries the tag. Returns the number of killed processes.
pub(super) fn kill_tagged(mark: &str) -> u32 {
    let mut killed = 0;
    // A process may have started another before it was killed: repeat until none is found.
    for _ in 0..10 {
        let found = tagged_processes(mark);
        if found.is_empty() {
            break;
        }
        for process in found {
            killed += u32::from(kill(process, Signal::SIGKILL).is_ok());
        }
    }
    killed
}

fn tagged_processes(mark: &str) -> Vec<Pid> {
    let wanted = format!("{TAG_VARIABLE}={mark}");
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let own = nix::unistd::getpid();
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .filter(|pid| *pid != own && has_tag(*pid, wanted.as_bytes()))
        .collect()
}

fn has_tag(pid: Pid, wanted: &[u8]) -> bool {
    let mut environ = Vec::new();
    let read = fs::File::open(format!("/proc/{pid}/environ"))
        .and_then(|file| file.take(ENVIRON_BYTES_MAX).read_to_end(&mut environ));
    read.is_ok() && environ.split(|byte| *byte == 0).any(|variable| variable == wanted)
}
