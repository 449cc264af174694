//! Standard input: its kind, and the decision whether to wait for it.

use std::fs::{File, metadata};
use std::io::{self, IsTerminal, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use tokio::sync::mpsc;

use crate::process::{PipeWriters, spawn_detached, writers_of_stdin};

/// Time limit of the wait for data in a pipe that only ancestor processes hold open: a parent that
/// pipes the prompt in writes at once, a CI runner never writes.
pub const ANCESTOR_GRACE: Duration = Duration::from_secs(1);

/// Time limit of the wait if the writers of the pipe cannot be determined.
pub const HIDDEN_GRACE: Duration = Duration::from_secs(3);

/// Interval at which the reading thread checks that the receiver still exists, in milliseconds.
const POLL_MS: u16 = 100;

/// Standard input, or another pipe, in chunks; closed at the end of input.
pub type Pieces = mpsc::Receiver<io::Result<Vec<u8>>>;

/// Kind of standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StdinKind {
    Terminal,
    /// `/dev/null`.
    Null,
    /// A regular file, with the number of bytes already read, and of those left.
    File {
        read: u64,
        left: u64,
    },
    Pipe(PipeWriters),
    /// A socket or a device, whose writers are unknown.
    Other,
}

/// The user's choice about standard input, made with flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StdinMode {
    /// It is read if it appears to be meant for this run.
    #[default]
    Auto,
    /// It is read to its end.
    Insist,
    /// It is not read.
    Refuse,
}

/// The need of a run for standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// It is the prompt.
    Required,
    /// It follows the prompt, or a session continues without a prompt.
    Optional,
}

/// Decision about reading standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadPlan {
    /// It is read to its end, even if it begins late.
    ToEnd,
    /// It is read to its end if it begins within this time, and is left unread otherwise.
    IfWithin(Duration),
    /// It is not touched.
    Leave,
    /// It is not touched, although it contains data.
    LeaveInUse,
    /// Needed, but it cannot supply the prompt.
    Unavailable,
}

/// Decides whether standard input is read, and how long it is waited for.
pub fn plan(kind: StdinKind, mode: StdinMode, need: Need) -> ReadPlan {
    match (mode, need) {
        (StdinMode::Refuse, Need::Required) => ReadPlan::Unavailable,
        (StdinMode::Refuse, Need::Optional) => ReadPlan::Leave,
        (StdinMode::Insist, _) => ReadPlan::ToEnd,
        (StdinMode::Auto, Need::Required) => match kind {
            StdinKind::Terminal => ReadPlan::Unavailable,
            StdinKind::Null | StdinKind::File { .. } | StdinKind::Pipe(_) | StdinKind::Other => {
                ReadPlan::ToEnd
            }
        },
        (StdinMode::Auto, Need::Optional) => match kind {
            StdinKind::Terminal | StdinKind::Null => ReadPlan::Leave,
            StdinKind::File { read: 0, .. } => ReadPlan::ToEnd,
            StdinKind::File { left: 0, .. } => ReadPlan::Leave,
            // A partly read file, as in a shell loop: `while read line; do outlast ...; done <
            // file`.
            StdinKind::File { .. } => ReadPlan::LeaveInUse,
            StdinKind::Pipe(PipeWriters::Gone | PipeWriters::Peer) => ReadPlan::ToEnd,
            StdinKind::Pipe(PipeWriters::Ancestor) => ReadPlan::IfWithin(ANCESTOR_GRACE),
            StdinKind::Pipe(PipeWriters::Hidden) | StdinKind::Other => {
                ReadPlan::IfWithin(HIDDEN_GRACE)
            }
        },
    }
}

/// Determines the kind of standard input. May block for as long as reading `/proc` takes.
pub fn detect_kind() -> StdinKind {
    if io::stdin().is_terminal() {
        return StdinKind::Terminal;
    }
    let Ok(mut stdin) = duplicate() else { return StdinKind::Null };
    let Ok(facts) = stdin.metadata() else { return StdinKind::Other };
    let kind = facts.file_type();
    if kind.is_file() {
        let read = stdin.stream_position().unwrap_or(0);
        StdinKind::File { read, left: facts.len().saturating_sub(read) }
    } else if kind.is_fifo() {
        StdinKind::Pipe(writers_of_stdin())
    } else if kind.is_char_device()
        && metadata("/dev/null").is_ok_and(|it| it.rdev() == facts.rdev())
    {
        StdinKind::Null
    } else {
        StdinKind::Other
    }
}

/// Duplicates the descriptor: the same open file with the same offset.
fn duplicate() -> io::Result<File> {
    io::stdin().as_fd().try_clone_to_owned().map(File::from)
}

/// Reads standard input, or another pipe, and waits for it even if another process that has the
/// same open file has set `O_NONBLOCK`.
pub struct StdinReader {
    file: File,
}

impl StdinReader {
    /// # Errors
    /// Standard input is closed.
    pub fn open() -> io::Result<Self> {
        Ok(Self { file: duplicate()? })
    }

    /// Reads once there is data, the end or an error. `None`: there was nothing within `limit`.
    fn try_read(&mut self, buffer: &mut [u8], limit: PollTimeout) -> io::Result<Option<usize>> {
        if !is_ready(&self.file, limit) {
            return Ok(None);
        }
        match self.file.read(buffer) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Read for StdinReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(read) = self.try_read(buffer, PollTimeout::NONE)? {
                return Ok(read);
            }
        }
    }
}

/// Starts reading standard input on its own thread. Once the receiver is dropped nothing more is
/// read, so that unread data stays available to other programs.
pub fn start_reading() -> Pieces {
    start_reading_from(StdinReader::open)
}

/// Like [`start_reading`], for another pipe.
pub fn start_reading_pipe(file: File) -> Pieces {
    start_reading_from(|| Ok(StdinReader { file }))
}

fn start_reading_from(open: impl FnOnce() -> io::Result<StdinReader> + Send + 'static) -> Pieces {
    let (send, pieces) = mpsc::channel(4);
    let failed = send.clone();
    let reading = spawn_detached(thread::Builder::new(), move || {
        // The terminal stops a process in the background that reads it, unless the signal is
        // blocked: then the read fails.
        let background_read = SigSet::from_iter([Signal::SIGTTIN]);
        let _ = background_read.thread_block();
        let mut stdin = match open() {
            Ok(stdin) => stdin,
            Err(error) => return drop(send.blocking_send(Err(error))),
        };
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let piece = match stdin.try_read(&mut buffer, PollTimeout::from(POLL_MS)) {
                Ok(None) if send.is_closed() => return,
                Ok(None) => continue,
                Ok(Some(0)) => return,
                Ok(Some(read)) => Ok(buffer.get(..read).unwrap_or_default().to_vec()),
                Err(error) => Err(error),
            };
            let failed = piece.is_err();
            if send.blocking_send(piece).is_err() || failed {
                return;
            }
        }
    });
    if let Err(error) = reading {
        // The channel is empty, so it has room.
        let _ = failed.try_send(Err(error));
    }
    pieces
}

/// Waits for data, the end or an error.
fn is_ready(stdin: &File, limit: PollTimeout) -> bool {
    let mut polled = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    match poll(&mut polled, limit) {
        Ok(ready) => ready > 0,
        // The read returns the error.
        Err(error) => error != nix::Error::EINTR,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};
    use std::os::fd::OwnedFd;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;

    #[test]
    fn a_non_blocking_input_without_data_is_waited_for() {
        let (file, mut writer) = pipe().expect("a pipe");
        let file = File::from(OwnedFd::from(file));
        fcntl(&file, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("set");
        let mut reader = StdinReader { file };
        let mut buffer = [0; 8];
        assert_eq!(reader.try_read(&mut buffer, PollTimeout::ZERO).expect("no error"), None);
        writer.write_all(b"data").expect("written");
        assert_eq!(reader.read(&mut buffer).expect("no error"), 4);
        drop(writer);
        assert_eq!(reader.read(&mut buffer).expect("no error"), 0);
    }
}
