//! Another process of this binary, which works for this process and ends with it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::supervisor_handle::own_binary;

/// A started process of this binary. It is in a process group of its own, so that the keys of a
/// terminal reach it only through this process.
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
}

impl WorkerProcess {
    /// Starts the process, with its standard error in `log`. Must be called on a thread that lives
    /// until the process ends: the process asks the kernel for SIGTERM at the end of that thread.
    ///
    /// # Errors
    /// The system refuses.
    pub fn start(arguments: &[OsString], log: File) -> io::Result<Self> {
        let child = Command::new(own_binary()?)
            .arg0("outlast")
            .args(arguments)
            .stdin(Stdio::null())
            // Its result is in a file.
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()?;
        Ok(Self { child })
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The error of the system call.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks it to end (SIGTERM). It writes its result first.
    pub fn terminate(&self) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid {
            // The process was not waited for yet, so its id cannot have been reused.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
}
