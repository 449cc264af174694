//! Filter for the system calls of sandboxed commands (seccomp), for access that Landlock does not
//! restrict.
//!
//! A filter has the numeric arguments only. It cannot distinguish the processes of a job from
//! others, so a call that names any process but the caller is refused.

use std::io;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// The network that a program may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkAccess {
    #[default]
    Open,
    /// No connecting or listening over TCP, as far as Landlock alone can restrict it.
    NoTcp,
    /// Only sockets that the notifier connects, to the relay and to ports of the run. Needs a
    /// filter for system calls, and a [`JobEgress`](super::JobEgress) in addition to the policy.
    Listed,
    /// No sockets except connected pairs. Needs a filter for system calls.
    Off,
}

/// Returns true if this kernel can filter system calls. Tried in a thread that ends right away: a
/// container may forbid it. The result is cached.
pub fn filters_system_calls() -> bool {
    static IS_SUPPORTED: OnceLock<bool> = OnceLock::new();
    *IS_SUPPORTED.get_or_init(|| {
        let tried = || std::thread::Builder::new().spawn(|| kernel::verify().is_ok_and(|it| it));
        tried().is_ok_and(|trial| trial.join().unwrap_or(false))
    })
}

/// The system calls that are refused, besides those that make sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallFilter {
    /// None: this kernel may have no filters.
    #[default]
    Nothing,
    /// Those that control other processes.
    Commands,
    /// Also those of shared memory, semaphores and message queues (System V and POSIX queues),
    /// which Landlock does not restrict: they belong to other programs of the user.
    Isolated,
    /// Also those that change modes, owners, times and attributes of files, which Landlock allows
    /// everywhere.
    Readers,
}

/// A filter that is ready to be enforced.
#[derive(Debug)]
pub(super) struct SyscallFilter(kernel::Program);

impl SyscallFilter {
    /// Builds the filter. `None` if nothing is to be filtered.
    ///
    /// # Errors
    /// There is no filter for this processor. The program must then not be started.
    pub(super) fn build(calls: CallFilter, network: NetworkAccess) -> io::Result<Option<Self>> {
        if calls == CallFilter::Nothing {
            return Ok(None);
        }
        kernel::build(calls, network).map(|program| Some(Self(program)))
    }

    /// Restricts the calling thread and what it executes, irrevocably. May run between fork and
    /// exec.
    ///
    /// # Errors
    /// The kernel refuses. Nothing must then be executed.
    pub(super) fn restrict_self(&self) -> io::Result<()> {
        kernel::enter(&self.0)
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::collections::BTreeMap;

    use nix::libc::{self, c_long};
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule,
    };

    use super::{CallFilter, NetworkAccess, io};

    pub(super) type Program = BpfProgram;

    /// A condition on an argument of a call.
    #[derive(Clone, Copy)]
    enum Argument {
        Is(u8, u32),
        IsNot(u8, u32),
        /// The pointer is not null.
        IsGiven(u8),
        /// The argument is this kind of socket, apart from its flags.
        IsKind(u8, u32),
    }

    use Argument::{Is, IsGiven, IsKind, IsNot};

    /// A refused call, and lists of conditions. It is refused if all conditions of one list hold,
    /// or always if there is no list.
    type Refused = (c_long, &'static [&'static [Argument]]);

    /// Calls that act on other processes, or use keys. A process may limit, slow down and pin
    /// itself only: processes outside of the job belong to the user, and one of them is outlast.
    const OTHER_PROCESSES: &[Refused] = &[
        (libc::SYS_prlimit64, &[&[IsNot(0, 0), IsGiven(2)]]),
        (libc::SYS_setpriority, &[&[Is(0, PRIO_USER)], &[IsNot(1, 0)]]),
        (libc::SYS_ioprio_set, &[&[Is(0, IOPRIO_WHO_USER)], &[IsNot(1, 0)]]),
        (libc::SYS_sched_setaffinity, &[&[IsNot(0, 0)]]),
        (libc::SYS_sched_setscheduler, &[&[IsNot(0, 0)]]),
        (libc::SYS_sched_setparam, &[&[IsNot(0, 0)]]),
        (libc::SYS_sched_setattr, &[&[IsNot(0, 0)]]),
        // The keys of the user's session are credentials.
        (libc::SYS_keyctl, &[]),
        (libc::SYS_add_key, &[]),
        (libc::SYS_request_key, &[]),
    ];

    /// Calls that change attributes of files. The numbers of the last three are the same on all
    /// architectures.
    const ATTRIBUTES: &[Refused] = &[
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, &[]),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chown, &[]),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_lchown, &[]),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_utime, &[]),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_utimes, &[]),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_futimesat, &[]),
        (libc::SYS_fchmod, &[]),
        (libc::SYS_fchmodat, &[]),
        (libc::SYS_fchmodat2, &[]),
        (libc::SYS_fchown, &[]),
        (libc::SYS_fchownat, &[]),
        (libc::SYS_utimensat, &[]),
        (libc::SYS_setxattr, &[]),
        (libc::SYS_lsetxattr, &[]),
        (libc::SYS_fsetxattr, &[]),
        (libc::SYS_removexattr, &[]),
        (libc::SYS_lremovexattr, &[]),
        (libc::SYS_fremovexattr, &[]),
        (SETXATTRAT, &[]),
        (REMOVEXATTRAT, &[]),
        (FILE_SETATTR, &[]),
    ];

    /// From asm-generic/unistd.h, Linux 6.13.
    const SETXATTRAT: c_long = 463;
    const REMOVEXATTRAT: c_long = 466;

    /// From the same file, Linux 6.17.
    const FILE_SETATTR: c_long = 469;

    /// System V shared memory, semaphores and message queues, and POSIX message queues. (POSIX
    /// shared memory and semaphores are files.)
    const SHARED_OBJECTS: &[Refused] = &[
        (libc::SYS_shmget, &[]),
        (libc::SYS_shmat, &[]),
        (libc::SYS_shmctl, &[]),
        (libc::SYS_semget, &[]),
        (libc::SYS_semop, &[]),
        (libc::SYS_semtimedop, &[]),
        (libc::SYS_semctl, &[]),
        (libc::SYS_msgget, &[]),
        (libc::SYS_msgsnd, &[]),
        (libc::SYS_msgrcv, &[]),
        (libc::SYS_msgctl, &[]),
        (libc::SYS_mq_open, &[]),
        (libc::SYS_mq_unlink, &[]),
    ];

    /// Calls that make sockets, of every protocol. Pairs of connected sockets stay allowed, except
    /// for datagram sockets, which could be connected elsewhere.
    const NETWORK: &[Refused] = &[
        (libc::SYS_socket, &[]),
        (
            libc::SYS_socketpair,
            &[&[IsNot(0, AF_UNIX)], &[IsKind(1, SOCK_DGRAM)], &[IsKind(1, SOCK_RAW)]],
        ),
        // io_uring makes sockets without these calls.
        (libc::SYS_io_uring_setup, &[]),
        (libc::SYS_io_uring_enter, &[]),
        (libc::SYS_io_uring_register, &[]),
    ];

    /// From linux/resource.h.
    const PRIO_USER: u32 = 2;
    /// From linux/ioprio.h.
    const IOPRIO_WHO_USER: u32 = 3;
    const AF_UNIX: u32 = libc::AF_UNIX as u32;
    const SOCK_DGRAM: u32 = libc::SOCK_DGRAM as u32;
    const SOCK_RAW: u32 = libc::SOCK_RAW as u32;
    /// The bits of a socket's type that are its kind, as in linux/net.h.
    const SOCK_TYPE_MASK: u64 = 0xf;

    /// The numbers of the x32 ABI, which runs on the same processor, have this bit.
    const X32: c_long = 0x4000_0000;

    pub(super) fn build(calls: CallFilter, network: NetworkAccess) -> io::Result<Program> {
        let (of_objects, of_files) = match calls {
            CallFilter::Nothing | CallFilter::Commands => (&[][..], &[][..]),
            CallFilter::Isolated => (SHARED_OBJECTS, &[][..]),
            CallFilter::Readers => (SHARED_OBJECTS, ATTRIBUTES),
        };
        let of_network = match network {
            NetworkAccess::Off => NETWORK,
            NetworkAccess::Open | NetworkAccess::NoTcp | NetworkAccess::Listed => &[],
        };
        let mut refused = BTreeMap::new();
        let of_objects = of_objects.iter().chain(of_files);
        for (call, cases) in OTHER_PROCESSES.iter().chain(of_objects).chain(of_network) {
            let rules: Result<Vec<SeccompRule>, _> = cases.iter().map(|case| rule(case)).collect();
            let rules = rules.map_err(io::Error::other)?;
            if cfg!(target_arch = "x86_64") {
                refused.insert(*call | X32, rules.clone());
            }
            refused.insert(*call, rules);
        }
        let arch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
        let refusal = SeccompAction::Errno(libc::EPERM as u32);
        // A program for another architecture, whose calls have other numbers, is killed.
        SeccompFilter::new(refused, SeccompAction::Allow, refusal, arch)
            .and_then(TryInto::try_into)
            .map_err(io::Error::other)
    }

    fn rule(case: &[Argument]) -> Result<SeccompRule, seccompiler::BackendError> {
        let condition = |argument: &Argument| {
            use SeccompCmpArgLen::{Dword, Qword};
            let (at, size, operation, value) = match *argument {
                Is(at, value) => (at, Dword, SeccompCmpOp::Eq, value),
                IsNot(at, value) => (at, Dword, SeccompCmpOp::Ne, value),
                IsGiven(at) => (at, Qword, SeccompCmpOp::Ne, 0),
                IsKind(at, value) => (at, Dword, SeccompCmpOp::MaskedEq(SOCK_TYPE_MASK), value),
            };
            SeccompCondition::new(at, size, operation, u64::from(value))
        };
        SeccompRule::new(case.iter().map(condition).collect::<Result<_, _>>()?)
    }

    pub(super) fn enter(program: &Program) -> io::Result<()> {
        seccompiler::apply_filter(program).map_err(io::Error::other)
    }

    /// Returns true if a thread without the network really gets no socket.
    pub(super) fn verify() -> io::Result<bool> {
        enter(&build(CallFilter::Readers, NetworkAccess::Off)?)?;
        Ok(std::net::UdpSocket::bind("127.0.0.1:0")
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied))
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    use super::{CallFilter, NetworkAccess, io};

    #[derive(Debug)]
    pub(super) enum Program {}

    pub(super) fn build(_: CallFilter, _: NetworkAccess) -> io::Result<Program> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn enter(program: &Program) -> io::Result<()> {
        match *program {}
    }

    pub(super) fn verify() -> io::Result<bool> {
        Ok(false)
    }
}
