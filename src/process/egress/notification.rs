//! The kernel's interface for notifications of system calls (linux/seccomp.h).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::libc::{self, c_long, sock_filter};

/// Installs the filter for the calling thread.
///
/// # Errors
/// The kernel refuses: `EBUSY` if a filter with a listener is installed already.
pub(super) fn install(program: &[sock_filter]) -> io::Result<OwnedFd> {
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // Without the second flag, since Linux 5.19, the timers of Go programs interrupt calls that
    // are being decided.
    for flags in [listener | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, listener] {
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: the kernel only reads the program, which lives as long as the call.
        let result = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
        match Errno::result(result) {
            Ok(number) => {
                let descriptor = i32::try_from(number).map_err(io::Error::other)?;
                // SAFETY: the kernel has just created it for this process.
                return Ok(unsafe { OwnedFd::from_raw_fd(descriptor) });
            }
            Err(Errno::EINVAL) if flags != listener => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::EINVAL.into())
}

/// A system call that waits for its decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingCall {
    pub(super) id: u64,
    /// The thread that made it.
    pub(super) thread: u32,
    pub(super) number: c_long,
    pub(super) arguments: [u64; 6],
}

impl WaitingCall {
    /// The lower half of an argument, which is all that the kernel uses of a number.
    #[expect(clippy::cast_possible_truncation, reason = "the upper half is left out")]
    pub(super) fn number_at(&self, index: usize) -> i32 {
        (self.arguments[index] as u32).cast_signed()
    }
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallAnswer {
    Done,
    Fails(Errno),
    /// The kernel executes the call, with the values that its arguments then have.
    Continues,
}

/// The listener of a filter.
#[derive(Debug)]
pub(super) struct CallListener(OwnedFd);

impl CallListener {
    pub(super) fn new(listener: OwnedFd) -> Self {
        Self(listener)
    }

    /// Receives a call. `None` if the thread that made it is gone.
    pub(super) fn receive(&self) -> Result<Option<WaitingCall>, Errno> {
        // SAFETY: zero is a value of every field.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        match self.control(libc::SECCOMP_IOCTL_NOTIF_RECV, &mut call) {
            Ok(_) => Ok(Some(WaitingCall {
                id: call.id,
                thread: call.pid,
                number: c_long::from(call.data.nr),
                arguments: call.data.args,
            })),
            Err(Errno::ENOENT | Errno::EINTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Returns true if the thread still waits for its answer. Then its id was not reused, so
    /// everything that was read by this id before belongs to it.
    pub(super) fn is_waiting(&self, mut id: u64) -> bool {
        self.control(libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &mut id).is_ok()
    }

    /// Answers a call. A thread that is gone needs no answer.
    #[expect(clippy::cast_possible_truncation, reason = "the flag has 32 bits in the kernel")]
    pub(super) fn answer(&self, id: u64, answer: CallAnswer) {
        let (error, flags) = match answer {
            CallAnswer::Done => (0, 0),
            CallAnswer::Fails(errno) => (-(errno as i32), 0),
            CallAnswer::Continues => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        };
        let mut response = libc::seccomp_notif_resp { id, val: 0, error, flags };
        let _ = self.control(libc::SECCOMP_IOCTL_NOTIF_SEND, &mut response);
    }

    /// Answers a call with a copy of a descriptor.
    ///
    /// # Errors
    /// The program may open no more files, or is gone.
    #[expect(clippy::cast_possible_truncation, reason = "the flag has 32 bits in the kernel")]
    pub(super) fn hand_over(
        &self,
        id: u64,
        descriptor: &OwnedFd,
        closes_on_exec: bool,
    ) -> Result<(), Errno> {
        let mut handed = libc::seccomp_notif_addfd {
            id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: descriptor.as_raw_fd().cast_unsigned(),
            newfd: 0,
            newfd_flags: if closes_on_exec { libc::O_CLOEXEC.cast_unsigned() } else { 0 },
        };
        self.control(libc::SECCOMP_IOCTL_NOTIF_ADDFD, &mut handed).map(drop)
    }

    /// Reads memory of the thread that made a call.
    ///
    /// # Errors
    /// The error that the call of the program returns.
    pub(super) fn read_memory(
        &self,
        call: &WaitingCall,
        at: u64,
        length: usize,
    ) -> Result<Vec<u8>, Errno> {
        let memory = File::open(format!("/proc/{}/mem", call.thread)).map_err(|_| Errno::EPERM)?;
        let mut bytes = vec![0; length];
        let read = memory.read_exact_at(&mut bytes, at);
        // The id may have been reused, so the memory may be that of another process.
        if !self.is_waiting(call.id) {
            return Err(Errno::EPERM);
        }
        read.map_err(|_| Errno::EFAULT)?;
        Ok(bytes)
    }

    fn control<T>(&self, request: libc::Ioctl, value: &mut T) -> Result<i32, Errno> {
        // SAFETY: each caller passes the type that its request takes, by linux/seccomp.h.
        Errno::result(unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw mut *value) })
    }
}

impl AsFd for CallListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
