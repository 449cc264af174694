//! Whether a signal comes from a program that this process started: `pkill -f` with a text of the
//! prompt matches outlast's own command line, too.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::job::Job;

/// What the command lines have in common that send signals by programs which end at once.
const KILLING: &[u8] = b"kill";

/// How long after the end of such a job a signal of a process that is gone may be from it.
const DELIVERY_MAX: Duration = Duration::from_secs(2);

/// How often a chain of parents is followed that changes meanwhile, and its longest length.
const CHAIN_ATTEMPTS: u32 = 3;
const CHAIN_MAX: u32 = 4_096;

/// Jobs whose command line may send signals: how many run, and when the last one ended.
static KILLING_JOBS: Mutex<(usize, Option<Instant>)> = Mutex::new((0, None));

fn killing_jobs() -> MutexGuard<'static, (usize, Option<Instant>)> {
    KILLING_JOBS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a job whose command line may send signals, as long as it runs.
#[derive(Debug)]
pub(super) struct KillingJob(());

impl KillingJob {
    /// `None`: the command line does not look like one that sends signals.
    pub(super) fn of(job: &Job) -> Option<Self> {
        let has = |text: &[u8]| text.windows(KILLING.len()).any(|part| part == KILLING);
        let mut words = job.arguments.iter().map(|word| word.as_encoded_bytes());
        let is_killing = has(job.program.as_os_str().as_encoded_bytes()) || words.any(has);
        is_killing.then(|| {
            killing_jobs().0 += 1;
            Self(())
        })
    }
}

impl Drop for KillingJob {
    fn drop(&mut self) {
        let mut jobs = killing_jobs();
        *jobs = (jobs.0.saturating_sub(1), Some(Instant::now()));
    }
}

/// Whether the process `sender` is or was a descendant of this one. A program like `pkill` may be
/// gone by now; then the commands that run or have just ended decide.
pub fn is_own_command(sender: u32) -> bool {
    let own = std::process::id();
    for _ in 0..CHAIN_ATTEMPTS {
        let (mut process, mut length) = (sender, 0);
        while let Some(parent) = parent_of(process) {
            length += 1;
            if parent == own {
                return true;
            }
            if parent <= 1 || length > CHAIN_MAX {
                return false;
            }
            process = parent;
        }
        if process == sender {
            let (running, ended) = *killing_jobs();
            return running > 0 || ended.is_some_and(|ended| ended.elapsed() < DELIVERY_MAX);
        }
    }
    false
}

/// The parent of a process, also of one that has ended and was not waited for.
fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = str::from_utf8(&stat[name_ends + 1..]).ok()?.split_whitespace();
    fields.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::process::ProgramTerms;

    #[test]
    fn descendants_are_own_commands_and_parents_are_not() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("a shell");
        let mut line = String::new();
        let mut output = std::io::BufReader::new(shell.stdout.take().expect("piped"));
        std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
        let grandchild: u32 = line.trim().parse().expect("a process");
        assert!(is_own_command(shell.id()) && is_own_command(grandchild));
        let parent = u32::try_from(nix::unistd::getppid().as_raw()).expect("a process");
        assert!(!is_own_command(parent) && !is_own_command(1));
        let grandchild = nix::unistd::Pid::from_raw(i32::try_from(grandchild).expect("a process"));
        nix::sys::signal::kill(grandchild, nix::sys::signal::Signal::SIGKILL).expect("killed");
        shell.wait().expect("it ends");
    }

    #[test]
    fn a_sender_that_is_gone_is_own_only_beside_a_command_that_kills() {
        let mut gone = Command::new("true").spawn().expect("a process");
        let sender = gone.id();
        gone.wait().expect("it ends");
        let job = |script: &str| Job {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            cwd: "/".into(),
            environment: Vec::new(),
            input: false,
            memory: None,
            landlock: None,
            terms: ProgramTerms::default(),
        };
        assert!(KillingJob::of(&job("make test")).is_none());
        assert!(!is_own_command(sender));
        let running = KillingJob::of(&job("pkill -f 'next start'")).expect("it kills");
        assert!(is_own_command(sender));
        drop(running);
        assert!(is_own_command(sender), "the signal may be on its way");
    }
}
