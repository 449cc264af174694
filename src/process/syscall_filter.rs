//! Filter for the system calls of sandboxed commands (seccomp), for access that Landlock does not
//! restrict.
//!
//! A filter has the numeric arguments only. It cannot distinguish the processes of a job from
//! others, so a call that names any process but the caller is refused.

use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
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

/// The result of the test of this kernel.
static IS_SUPPORTED: OnceLock<bool> = OnceLock::new();

/// Returns true if this kernel can filter system calls. Tried in a thread that ends right away: a
/// container may forbid it. The result is cached.
pub fn filters_system_calls() -> bool {
    *IS_SUPPORTED.get_or_init(|| {
        let tried = || std::thread::Builder::new().spawn(|| kernel::verify().is_ok_and(|it| it));
        tried().is_ok_and(|trial| trial.join().unwrap_or(false))
    })
}

/// Tests in the calling thread what [`filters_system_calls`] then returns. The thread may have a
/// filter afterwards, and has to end.
pub(super) fn test_in_this_thread() {
    IS_SUPPORTED.get_or_init(|| kernel::verify().is_ok_and(|it| it));
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
#[derive(Clone, Debug)]
pub(super) struct SyscallFilter(Arc<kernel::Program>);

/// The filters that were built before: most commands of a process have the same filter.
static BUILT: Mutex<Vec<(CallFilter, NetworkAccess, SyscallFilter)>> = Mutex::new(Vec::new());

impl SyscallFilter {
    /// Builds the filter. `None` if nothing is to be filtered.
    ///
    /// # Errors
    /// There is no filter for this processor. The program must then not be started.
    pub(super) fn build(calls: CallFilter, network: NetworkAccess) -> io::Result<Option<Self>> {
        if calls == CallFilter::Nothing {
            return Ok(None);
        }
        let mut built = BUILT.lock();
        let known = built.iter().find(|(of, with, _)| (*of, *with) == (calls, network));
        if let Some((.., filter)) = known {
            return Ok(Some(filter.clone()));
        }
        let filter = Self(Arc::new(kernel::build(calls, network)?));
        built.push((calls, network, filter.clone()));
        Ok(Some(filter))
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

    /// A call, and lists of conditions. The call is refused if all conditions of one list hold.
    type Refused = (c_long, &'static [&'static [Argument]]);

    /// Calls that act on other processes. A process may limit, slow down and pin itself only:
    /// processes outside of the job belong to the user, and one of them is outlast.
    const OTHER_PROCESSES: &[Refused] = &[
        (libc::SYS_prlimit64, &[&[IsNot(0, 0), IsGiven(2)]]),
        (libc::SYS_setpriority, &[&[Is(0, PRIO_USER)], &[IsNot(1, 0)]]),
        (libc::SYS_ioprio_set, &[&[Is(0, IOPRIO_WHO_USER)], &[IsNot(1, 0)]]),
        (libc::SYS_sched_setaffinity, &[&[IsNot(0, 0)]]),
        (libc::SYS_sched_setscheduler, &[&[IsNot(0, 0)]]),
        (libc::SYS_sched_setparam, &[&[IsNot(0, 0)]]),
        (libc::SYS_sched_setattr, &[&[IsNot(0, 0)]]),
    ];

    /// The keys of the user's session are credentials.
    const KEYS: &[c_long] = &[libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key];

    /// Calls that change attributes of files.
    #[rustfmt::skip]
    const ATTRIBUTES: &[c_long] = &[
        libc::SYS_fchmod, libc::SYS_fchmodat, libc::SYS_fchmodat2, libc::SYS_fchown,
        libc::SYS_fchownat, libc::SYS_utimensat, libc::SYS_setxattr, libc::SYS_lsetxattr,
        libc::SYS_fsetxattr, libc::SYS_removexattr, libc::SYS_lremovexattr, libc::SYS_fremovexattr,
        SETXATTRAT, REMOVEXATTRAT, FILE_SETATTR,
    ];

    /// Older forms of these calls, which only some architectures have.
    #[cfg(target_arch = "x86_64")]
    #[rustfmt::skip]
    const OLD_ATTRIBUTES: &[c_long] = &[
        libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes,
        libc::SYS_futimesat,
    ];
    #[cfg(not(target_arch = "x86_64"))]
    const OLD_ATTRIBUTES: &[c_long] = &[];

    /// From asm-generic/unistd.h, Linux 6.13. The numbers are the same on all architectures.
    const SETXATTRAT: c_long = 463;
    const REMOVEXATTRAT: c_long = 466;

    /// From the same file, Linux 6.17.
    const FILE_SETATTR: c_long = 469;

    /// System V shared memory, semaphores and message queues, and POSIX message queues. (POSIX
    /// shared memory and semaphores are files.)
    #[rustfmt::skip]
    const SHARED_OBJECTS: &[c_long] = &[
        libc::SYS_shmget, libc::SYS_shmat, libc::SYS_shmctl, libc::SYS_semget, libc::SYS_semop,
        libc::SYS_semtimedop, libc::SYS_semctl, libc::SYS_msgget, libc::SYS_msgsnd,
        libc::SYS_msgrcv, libc::SYS_msgctl, libc::SYS_mq_open, libc::SYS_mq_unlink,
    ];

    /// Pairs of connected sockets are allowed, except of kinds that could be connected elsewhere.
    const SOCKET_PAIRS: &[Refused] = &[(
        libc::SYS_socketpair,
        &[&[IsNot(0, AF_UNIX)], &[IsKind(1, SOCK_DGRAM)], &[IsKind(1, SOCK_RAW)]],
    )];

    /// Calls that make sockets, of every protocol. Those of `io_uring` do so without the first one.
    #[rustfmt::skip]
    const SOCKETS: &[c_long] = &[
        libc::SYS_socket, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
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

    /// The most calls whose numbers are compared one after the other.
    const COMPARED_MAX: usize = 4;

    /// The numbers of the x32 ABI, which runs on the same processor, have this bit.
    const X32: c_long = 0x4000_0000;

    pub(super) fn build(calls: CallFilter, network: NetworkAccess) -> io::Result<Program> {
        search(&refused_calls(calls, network)?.into_iter().collect::<Vec<_>>())
    }

    fn refused_calls(
        calls: CallFilter,
        network: NetworkAccess,
    ) -> io::Result<BTreeMap<c_long, Vec<SeccompRule>>> {
        let always: &[&[c_long]] = match calls {
            CallFilter::Nothing | CallFilter::Commands => &[KEYS],
            CallFilter::Isolated => &[KEYS, SHARED_OBJECTS],
            CallFilter::Readers => &[KEYS, SHARED_OBJECTS, ATTRIBUTES, OLD_ATTRIBUTES],
        };
        let (sockets, pairs) = match network {
            NetworkAccess::Off => (SOCKETS, SOCKET_PAIRS),
            NetworkAccess::Open | NetworkAccess::NoTcp | NetworkAccess::Listed => {
                (&[][..], &[][..])
            }
        };
        let always = always.iter().copied().flatten().chain(sockets);
        let always = always.map(|call| (*call, Vec::new()));
        let conditional = OTHER_PROCESSES.iter().chain(pairs).map(|(call, cases)| {
            let rules = cases.iter().map(|case| rule(case)).collect::<Result<Vec<_>, _>>();
            Ok((*call, rules.map_err(io::Error::other)?))
        });
        let mut refused =
            always.map(Ok).chain(conditional).collect::<io::Result<BTreeMap<_, _>>>()?;
        if cfg!(target_arch = "x86_64") {
            let of_x32: Vec<_> =
                refused.iter().map(|(call, rules)| (call | X32, rules.clone())).collect();
            refused.extend(of_x32);
        }
        Ok(refused)
    }

    /// A filter that refuses these calls, in ascending order. It finds the number of a call by
    /// bisection: when a process enters a filter, the kernel runs it for every number that there
    /// is.
    fn search(refused: &[(c_long, Vec<SeccompRule>)]) -> io::Result<Program> {
        if refused.len() <= COMPARED_MAX {
            return compare(refused.iter().cloned().collect());
        }
        let (lower, upper) = refused.split_at(refused.len() / 2);
        let (first_upper, lower, upper) = (upper[0].0, search(lower)?, search(upper)?);
        let instruction = |code: u32, k, jf| {
            let code = u16::try_from(code).expect("the codes are small");
            seccompiler::sock_filter { code, jt: 0, jf, k }
        };
        let length = u32::try_from(lower.len()).expect("there are few calls");
        let first_upper = u32::try_from(first_upper).map_err(io::Error::other)?;
        let number = u32::try_from(std::mem::offset_of!(libc::seccomp_data, nr));
        let number = number.expect("it is a small structure");
        // A number of the upper part jumps over the lower one, the others over that jump.
        let mut program = vec![
            instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number, 0),
            instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, first_upper, 1),
            instruction(libc::BPF_JMP | libc::BPF_JA, length, 0),
        ];
        program.extend(lower);
        program.extend(upper);
        Ok(program)
    }

    /// A filter that refuses these calls, and compares the number of a call with each of theirs.
    fn compare(refused: BTreeMap<c_long, Vec<SeccompRule>>) -> io::Result<Program> {
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

    /// Returns true if a thread whose filter refuses sockets really gets none. The filters of
    /// commands are far longer, which takes time to build and to enter.
    pub(super) fn verify() -> io::Result<bool> {
        enter(&search(&[(libc::SYS_socket, Vec::new())])?)?;
        Ok(std::net::UdpSocket::bind("127.0.0.1:0")
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied))
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::bpf_interpreter::{Instruction, run};

        fn instructions(program: &Program) -> Vec<Instruction> {
            program.iter().map(|it| (it.code, it.jt, it.jf, it.k)).collect()
        }

        #[test]
        fn bisection_decides_like_comparisons_with_all_numbers_in_fewer_steps() {
            // The second instruction compares the architecture.
            let native = compare(BTreeMap::new()).expect("a filter")[1].k;
            for (calls, network) in [
                (CallFilter::Commands, NetworkAccess::Open),
                (CallFilter::Isolated, NetworkAccess::NoTcp),
                (CallFilter::Readers, NetworkAccess::Off),
            ] {
                let filter = instructions(&build(calls, network).expect("a filter"));
                let linear = refused_calls(calls, network).and_then(compare).expect("a filter");
                let linear = instructions(&linear);
                let mut refused = 0;
                let numbers = (0..600).flat_map(|number| [number, number | 0x4000_0000]);
                for number in numbers.chain([0x3fff_ffff, u32::MAX]) {
                    for arguments in [[0; 4], [1; 4], [1, 0, 1, 0], [0, 0, 3, 0], [0, 0, 0, 1]] {
                        for arch in [native, native ^ 1] {
                            let call = [&[number, arch, 0, 0][..], &arguments, &[1; 8]].concat();
                            let (result, steps) = run(&filter, &call);
                            assert_eq!(result, run(&linear, &call).0, "{number} {arguments:?}");
                            assert!(steps <= 40, "{steps} for {number}");
                            refused += u32::from(result != libc::SECCOMP_RET_ALLOW);
                        }
                    }
                }
                assert!(refused > 0);
            }
        }
    }
}
