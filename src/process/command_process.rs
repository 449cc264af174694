//! Starts the process of a command.
//!
//! The new process shares the memory of this one until it executes the command. This process is
//! suspended meanwhile (`vfork`). So neither pages nor page tables are copied.

use std::ffi::{CStr, c_char};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr;

use nix::errno::Errno;
use nix::libc;
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout};

use super::job::ProcessSpec;

/// The stack of a new process, apart from the copy of its arguments that `execvp` makes if the
/// program is a script without an interpreter. The process uses a few kilobytes of it.
const STACK_BYTES: usize = 256 << 10;

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// The standard streams of a command, above those of this process.
#[derive(Debug)]
pub(super) struct CommandStreams {
    pub(super) input: OwnedFd,
    pub(super) output: OwnedFd,
    pub(super) errors: OwnedFd,
}

/// Starts commands, one after the other.
#[derive(Debug, Default)]
pub(super) struct CommandStarter {
    /// The stack of a new process.
    stack: Vec<u8>,
}

impl CommandStarter {
    /// Starts a command, and returns once it executes its program. `prepare` is called in the new
    /// process before that.
    ///
    /// # Safety
    /// This process has one thread, no signal handler, and its own standard streams. `prepare` does
    /// not change memory that it shares.
    ///
    /// # Errors
    /// Those of the system calls, of `prepare`, and of the execution.
    pub(super) unsafe fn start(
        &mut self,
        spec: &ProcessSpec<'_>,
        streams: &CommandStreams,
        prepare: impl Fn() -> io::Result<()>,
    ) -> io::Result<Pid> {
        let (arguments, environment) = (pointers(&spec.arguments), pointers(&spec.environment));
        let program = spec.arguments.first().ok_or(io::ErrorKind::InvalidData)?;
        let stack_bytes = STACK_BYTES + size_of_val(arguments.as_slice());
        if self.stack.len() < stack_bytes {
            self.stack = vec![0; stack_bytes];
        }
        let execute = || {
            let entered = enter(spec, streams).map_err(io::Error::from);
            let error = entered.and_then(|()| prepare()).err().unwrap_or_else(|| {
                // SAFETY: the texts end with NUL and the lists of them with null, and all of them
                // live until the program is executed.
                unsafe { libc::execvp(program.as_ptr(), arguments.as_ptr()) };
                io::Error::last_os_error()
            });
            error.raw_os_error().unwrap_or(libc::EINVAL)
        };
        // SAFETY: the environment, in which `execvp` also looks for `PATH`, is restored before this
        // process uses it. For the new process, see the safety section of this function.
        let (process, failure) = unsafe {
            let saved = environ;
            environ = environment.as_ptr();
            let started = start_process(&mut self.stack, &execute);
            environ = saved;
            started?
        };
        let Some(errno) = failure else { return Ok(process) };
        while waitpid(process, None) == Err(Errno::EINTR) {}
        Err(io::Error::from_raw_os_error(errno))
    }
}

/// Sets the streams and the folder of the new process.
fn enter(spec: &ProcessSpec<'_>, streams: &CommandStreams) -> nix::Result<()> {
    dup2_stdin(&streams.input)?;
    dup2_stdout(&streams.output)?;
    dup2_stderr(&streams.errors)?;
    chdir(spec.cwd)
}

/// The addresses of texts, ended by null.
fn pointers(texts: &[&CStr]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Starts a process that calls `execute`, which returns an errno if it cannot execute a program.
/// Returns the process and that errno.
///
/// # Safety
/// This process has one thread and no signal handler. `stack` is large enough for `execute`.
unsafe fn start_process(
    stack: &mut [u8],
    execute: &dyn Fn() -> i32,
) -> nix::Result<(Pid, Option<i32>)> {
    use nix::sched::{CloneFlags, clone};

    let failure = std::cell::Cell::new(None);
    let run = || {
        failure.set(Some(execute()));
        1
    };
    let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
    // SAFETY: the kernel suspends this process until the other one executes a program or ends, so
    // the memory has one user at a time; no handler runs in it, as there is none.
    let process = unsafe { clone(Box::new(run), stack, flags, Some(libc::SIGCHLD)) }?;
    Ok((process, failure.get()))
}
