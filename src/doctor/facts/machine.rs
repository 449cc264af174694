//! The process and the kernel: limits, terminals, sandbox.

use std::io::{self, IsTerminal};
use std::time::Duration;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::super::Scene;
use crate::process::{Job, Supervisor, Support};

/// What the process may and has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The version of Landlock's interface that works; 0 without.
    pub landlock: u32,
    pub holds_files: bool,
    pub holds_tcp: bool,
    /// Soft limits; `None` where there is none. In bytes, but for the number of open files.
    pub file_size: Option<u64>,
    pub open_files: Option<u64>,
    pub address_space: Option<u64>,
    pub processor: Option<Duration>,
    /// Which of standard input, output and error are terminals.
    pub terminals: [bool; 3],
}

/// Asks the system.
pub fn look() -> Machine {
    let support = Support::probe();
    let limit = |resource| {
        let soft = getrlimit(resource).ok().map(|(soft, _)| soft)?;
        (soft != RLIM_INFINITY).then_some(soft)
    };
    Machine {
        landlock: support.abi,
        holds_files: support.holds_files(),
        holds_tcp: support.holds_tcp(),
        file_size: limit(Resource::RLIMIT_FSIZE),
        open_files: limit(Resource::RLIMIT_NOFILE),
        address_space: limit(Resource::RLIMIT_AS),
        processor: limit(Resource::RLIMIT_CPU).map(Duration::from_secs),
        terminals: [
            io::stdin().is_terminal(),
            io::stdout().is_terminal(),
            io::stderr().is_terminal(),
        ],
    }
}

/// Starts a program that does nothing, as commands are started. Says why it could not.
pub async fn start_one(scene: &Scene) -> Option<String> {
    let supervisor = Supervisor::own();
    let job = Job {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), ":".into()],
        cwd: scene.cwd.clone(),
        environment: Vec::new(),
        input: false,
        fence: None,
    };
    let mut running = match supervisor.start(&job).await {
        Ok(running) => running,
        Err(error) => return Some(error.to_string()),
    };
    let status = running.exit().await;
    running.sweep().await;
    match status {
        Some(status) if status.success() => None,
        Some(status) => Some(format!("/bin/sh ended with {status}")),
        None => Some("what looks after commands was killed".to_owned()),
    }
}
