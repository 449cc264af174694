//! Determines whether a signal comes from a program that this process started. Such a signal is not
//! an order of the user: `pkill` of a command may match outlast.

use std::io::Write;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd;

use super::stat;

/// The longest chain of parents that is followed.
const CHAIN_MAX: u32 = 4_096;

/// Bytes of a `stat` file that are read: enough for its first fields, even if the program's name is
/// long.
const STAT_BYTES: usize = 512;

/// The longest name of a `stat` file, with the zero that ends it.
const PATH_BYTES: usize = 32;

/// Returns true if the process `sender` is a descendant of this one.
///
/// May be called in a signal handler: it allocates nothing and takes no lock. The answer is certain
/// only there, while the sender is still in the process list. A sender that is gone does not count
/// as a descendant.
pub(super) fn is_descendant(sender: i32) -> bool {
    let own = unistd::getpid().as_raw();
    let mut process = sender;
    for _ in 0..CHAIN_MAX {
        match parent_of(process) {
            Some(parent) if parent == own => return true,
            Some(parent) if parent > 1 => process = parent,
            Some(_) | None => return false,
        }
    }
    false
}

/// The parent of a process, also of one that has ended and was not waited for.
fn parent_of(process: i32) -> Option<i32> {
    let mut path = [0; PATH_BYTES];
    // The terminating zero is there already.
    let mut unused = &mut path[..PATH_BYTES - 1];
    write!(unused, "/proc/{process}/stat").ok()?;
    let path = std::ffi::CStr::from_bytes_until_nul(&path).ok()?;
    let file = open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    let mut stat = [0; STAT_BYTES];
    let length = unistd::read(&file, &mut stat).ok()?;
    stat::parent(&stat[..length])
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn descendants_are_distinguished_from_parents_and_from_processes_that_are_gone() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("a shell");
        let mut line = String::new();
        let mut output = std::io::BufReader::new(shell.stdout.take().expect("piped"));
        std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
        let child = i32::try_from(shell.id()).expect("a process");
        let grandchild: i32 = line.trim().parse().expect("a process");
        assert!(is_descendant(child) && is_descendant(grandchild));
        assert!(!is_descendant(unistd::getppid().as_raw()) && !is_descendant(1));
        let grandchild = unistd::Pid::from_raw(grandchild);
        nix::sys::signal::kill(grandchild, nix::sys::signal::Signal::SIGKILL).expect("killed");
        shell.wait().expect("it ends");
        assert!(!is_descendant(child));
    }
}
