//! The protocol between outlast, its supervisor process and the job init processes, over Unix
//! sockets.
//!
//! ```text
//! outlast → supervisor   JOB, its memory bound + control socket   END
//! outlast → job init     length + descriptors, process spec; then TERMINATE, KILL, SWEEP
//! supervisor → job init  JOB + control socket, to one that is idle
//! job init → supervisor  IDLE
//! either → outlast       a report: its kind and a number, five bytes
//! ```

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// To the supervisor: find a job init process for the job with the attached socket. To an idle job
/// init: run this job.
pub(super) const JOB: u8 = b'j';
/// To the supervisor: the run is over.
pub(super) const END: u8 = b'e';
/// To a job init: send SIGTERM to all.
pub(super) const TERMINATE: u8 = b't';
/// To a job init: kill all.
pub(super) const KILL: u8 = b'k';
/// To a job init: the command is over. End the processes that it left, and report whether there
/// were any.
pub(super) const SWEEP: u8 = b's';

/// To the supervisor: the job is over and nothing is left of it, so another one may follow.
pub(super) const IDLE: u8 = b'i';

/// The most descriptors in one message: a ruleset, and standard input, output and error.
pub(super) const DESCRIPTORS_MAX: usize = 4;

/// The longest process specification, in bytes: more than the kernel accepts for `execve`.
pub(super) const SPEC_BYTES_MAX: usize = 32 << 20;

/// The bytes of the length of a process specification.
pub(super) const LENGTH_BYTES: usize = 4;

/// The bytes of a `JOB` message to the supervisor: the order, and the memory that the job may take.
pub(super) const JOB_BYTES: usize = 9;

/// A report to outlast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobReport {
    /// The command is started next: from now on it may have run, whatever follows.
    Starting,
    /// The command runs.
    Started,
    /// The listener of the command's socket calls is attached. Has the id of the job init process.
    /// Comes right after `Starting`.
    Listener(i32),
    /// The command could not be started. Has the errno.
    StartFailed(i32),
    /// The command ended with this wait status. Processes of the job may be left.
    Exited(i32),
    /// The command ended with this wait status, and nothing is left. The last report.
    Ended(i32),
    /// The job took too much memory, and is ended. Has its memory in MiB.
    MemoryExceeded(i32),
    /// No process is left. True if some were ended after the command.
    LeftoversEnded(bool),
    /// Nothing is left of any job. Has the number of processes that were ended.
    AllEnded(i32),
}

impl JobReport {
    pub(super) const BYTES: usize = 5;

    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let (kind, number) = match self {
            Self::Starting => (b'B', 0),
            Self::Started => (b'S', 0),
            Self::Listener(job_init) => (b'L', job_init),
            Self::StartFailed(errno) => (b'R', errno),
            Self::Exited(status) => (b'X', status),
            Self::Ended(status) => (b'F', status),
            Self::MemoryExceeded(taken) => (b'M', taken),
            Self::LeftoversEnded(left) => (b'W', i32::from(left)),
            Self::AllEnded(count) => (b'E', count),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [kind, a, b, c, d]
    }

    pub(super) fn decode([kind, number @ ..]: [u8; Self::BYTES]) -> Option<Self> {
        let number = i32::from_le_bytes(number);
        match kind {
            b'B' => Some(Self::Starting),
            b'S' => Some(Self::Started),
            b'L' => Some(Self::Listener(number)),
            b'R' => Some(Self::StartFailed(number)),
            b'X' => Some(Self::Exited(number)),
            b'F' => Some(Self::Ended(number)),
            b'M' => Some(Self::MemoryExceeded(number)),
            b'W' => Some(Self::LeftoversEnded(number != 0)),
            b'E' => Some(Self::AllEnded(number)),
            _ => None,
        }
    }
}

/// Sends bytes and descriptors. Never raises SIGPIPE.
///
/// # Errors
/// The receiver is gone, or not everything could be sent at once.
pub(super) fn send(socket: &impl AsFd, bytes: &[u8], descriptors: &[impl AsFd]) -> io::Result<()> {
    whole(bytes, send_part(socket, [bytes], descriptors)?)
}

/// Sends as many bytes as the socket takes at once, with descriptors. Returns their number. Never
/// raises SIGPIPE.
///
/// # Errors
/// The receiver is gone.
pub(super) fn send_part<const N: usize>(
    socket: &impl AsFd,
    parts: [&[u8]; N],
    descriptors: &[impl AsFd],
) -> io::Result<usize> {
    send_flagged(socket, parts, descriptors, MsgFlags::MSG_NOSIGNAL)
}

/// Like [`send`], but fails where that would wait until the receiver reads.
///
/// # Errors
/// Those of [`send`]; also if the socket is full.
pub(super) fn send_at_once(
    socket: &impl AsFd,
    bytes: &[u8],
    descriptors: &[impl AsFd],
) -> io::Result<()> {
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    whole(bytes, send_flagged(socket, [bytes], descriptors, flags)?)
}

/// An error unless all of the bytes were sent.
fn whole(bytes: &[u8], sent: usize) -> io::Result<()> {
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn send_flagged<const N: usize>(
    socket: &impl AsFd,
    parts: [&[u8]; N],
    descriptors: &[impl AsFd],
    flags: MsgFlags,
) -> io::Result<usize> {
    let descriptors: Vec<RawFd> = descriptors.iter().map(|one| one.as_fd().as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let rights = if descriptors.is_empty() { &[][..] } else { &rights[..] };
    let (socket, parts) = (socket.as_fd().as_raw_fd(), parts.map(IoSlice::new));
    loop {
        match sendmsg::<()>(socket, &parts, rights, flags, None) {
            Err(Errno::EINTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// Receives bytes and descriptors. Without bytes, the other side is gone.
///
/// # Errors
/// The system call fails, or this process may open no more files.
pub(super) fn receive(socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = cmsg_space!([RawFd; DESCRIPTORS_MAX]);
    let mut slices = [IoSliceMut::new(bytes)];
    let socket = socket.as_fd().as_raw_fd();
    let (count, raw) = loop {
        match recvmsg::<()>(socket, &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC) {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
            // This process may open no more files. Of several descriptors, those that were received
            // stay open.
            Ok(message) if message.flags.contains(MsgFlags::MSG_CTRUNC) => {
                return Err(Errno::EMFILE.into());
            }
            Ok(message) => {
                let mut raw: Vec<RawFd> = Vec::new();
                for control in message.cmsgs()? {
                    if let ControlMessageOwned::ScmRights(descriptors) = control {
                        raw.extend(descriptors);
                    }
                }
                break (message.bytes, raw);
            }
        }
    };
    // SAFETY: the kernel has just created these descriptors for this process; no other code owns
    // them.
    let owned = raw.into_iter().map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }).collect();
    Ok((count, owned))
}
