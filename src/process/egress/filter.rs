//! The filter that sends socket calls to the notifier (seccomp, classic BPF). The crate seccompiler
//! has no user notifications, so the BPF program is written here.

use std::io;
use std::os::fd::OwnedFd;

use nix::libc::{self, c_long, sock_filter};

use super::notification;

/// A filter that is ready to be enforced.
#[derive(Debug)]
pub(in super::super) struct SocketFilter(Vec<sock_filter>);

impl SocketFilter {
    /// # Errors
    /// There is no filter for this processor architecture.
    pub(in super::super) fn build() -> io::Result<Self> {
        program().map(Self).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Restricts the calling thread and what it executes, irrevocably, and returns the listener
    /// of its calls. May run between fork and exec.
    ///
    /// # Errors
    /// The kernel refuses. The program must then not be executed.
    pub(in super::super) fn restrict_self(&self) -> io::Result<OwnedFd> {
        notification::install(&self.0)
    }
}

/// The architecture of this processor, from linux/audit.h.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;

/// The numbers of the x32 ABI, which runs on the same processor, begin here.
const X32: u32 = 0x4000_0000;

/// Offsets in `struct seccomp_data`, from linux/seccomp.h.
const NUMBER: u32 = 0;
const ARCHITECTURE_FIELD: u32 = 4;
const ARGUMENTS: u32 = 16;

/// The bits of a socket's type that are its kind, as in linux/net.h.
pub(super) const SOCKET_KIND: i32 = 0xf;
const KIND: u32 = SOCKET_KIND.cast_unsigned();

const AF_INET: u32 = libc::AF_INET as u32;
const AF_INET6: u32 = libc::AF_INET6 as u32;
const AF_UNIX: u32 = libc::AF_UNIX as u32;
const AF_NETLINK: u32 = libc::AF_NETLINK as u32;
const STREAM: u32 = libc::SOCK_STREAM as u32;
const SEQPACKET: u32 = libc::SOCK_SEQPACKET as u32;
const TCP: u32 = libc::IPPROTO_TCP as u32;
const SCTP: u32 = libc::IPPROTO_SCTP as u32;
const MPTCP: u32 = libc::IPPROTO_MPTCP as u32;
const FAST_OPEN: u32 = libc::MSG_FASTOPEN as u32;

const LEVEL_SOCKET: u32 = libc::SOL_SOCKET as u32;
const LEVEL_IP: u32 = libc::IPPROTO_IP as u32;
const LEVEL_IPV6: u32 = libc::IPPROTO_IPV6 as u32;
const REUSE_PORT: u32 = libc::SO_REUSEPORT as u32;
const IP_OPTIONS: u32 = libc::IP_OPTIONS as u32;
/// `IPV6_2292RTHDR`, `IPV6_2292PKTOPTIONS` and `IPV6_RTHDR`, from linux/in6.h.
const IPV6_ROUTES: [u32; 3] = [5, 6, 57];

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

const fn refuse(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()
}

#[expect(clippy::cast_possible_truncation, reason = "codes of operations have 16 bits")]
const fn operation(code: u32, value: u32, if_true: u8, if_false: u8) -> sock_filter {
    sock_filter { code: code as u16, jt: if_true, jf: if_false, k: value }
}

const fn load(offset: u32) -> sock_filter {
    operation(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

/// Loads the lower half of an argument, which is all that the kernel uses of these arguments.
const fn argument(index: u32) -> sock_filter {
    load(ARGUMENTS + 8 * index)
}

const fn mask(bits: u32) -> sock_filter {
    operation(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, bits, 0, 0)
}

const fn end(action: u32) -> sock_filter {
    operation(libc::BPF_RET | libc::BPF_K, action, 0, 0)
}

/// Runs `then` if the comparison with the loaded value holds, and skips it otherwise. Every
/// `then` ends with a return.
fn when(comparison: u32, value: u32, then: &[sock_filter]) -> Vec<sock_filter> {
    // The blocks, which are written below, are short.
    let skipped = u8::try_from(then.len()).unwrap_or(u8::MAX);
    let code = libc::BPF_JMP | comparison | libc::BPF_K;
    [&[operation(code, value, 0, skipped)], then].concat()
}

fn when_equal(value: u32, then: &[sock_filter]) -> Vec<sock_filter> {
    when(libc::BPF_JEQ, value, then)
}

/// Sends calls for sockets of the supported kinds to the notifier, and refuses all others. The
/// tests list the kinds.
fn on_socket() -> Vec<sock_filter> {
    let streams = [
        when_equal(STREAM, &[end(NOTIFY)]),
        when_equal(SEQPACKET, &[end(NOTIFY)]),
        vec![end(refuse(libc::EPERM))],
    ];
    let unix = [vec![argument(1), mask(KIND)], streams.concat()].concat();
    let netlink = [vec![argument(2)], when_equal(0, &[end(ALLOW)]), vec![end(refuse(libc::EPERM))]];
    let stream = [
        vec![argument(2)],
        when_equal(0, &[end(NOTIFY)]),
        when_equal(TCP, &[end(NOTIFY)]),
        vec![end(refuse(libc::EPERM))],
    ];
    let inet = [
        vec![argument(2)],
        when_equal(MPTCP, &[end(refuse(libc::EPROTONOSUPPORT))]),
        when_equal(SCTP, &[end(refuse(libc::EPROTONOSUPPORT))]),
        vec![argument(1), mask(KIND)],
        when_equal(STREAM, &stream.concat()),
        vec![end(refuse(libc::EPERM))],
    ]
    .concat();
    [
        vec![argument(0)],
        when_equal(AF_INET, &inet),
        when_equal(AF_INET6, &inet),
        when_equal(AF_UNIX, &unix),
        when_equal(AF_NETLINK, &netlink.concat()),
        vec![end(refuse(libc::EPERM))],
    ]
    .concat()
}

/// Allows pairs of Unix sockets that stay connected to each other. Pairs of datagram sockets
/// are refused: they can be connected elsewhere.
fn on_socketpair() -> Vec<sock_filter> {
    let kinds = [
        vec![argument(1), mask(KIND)],
        when_equal(STREAM, &[end(ALLOW)]),
        when_equal(SEQPACKET, &[end(ALLOW)]),
        vec![end(refuse(libc::EPERM))],
    ];
    [vec![argument(0)], when_equal(AF_UNIX, &kinds.concat()), vec![end(refuse(libc::EPERM))]]
        .concat()
}

/// Refuses `MSG_FASTOPEN` in the argument with the index `flags`: a sending call with it
/// connects.
fn on_sending(flags: u32) -> Vec<sock_filter> {
    [
        vec![argument(flags)],
        when(libc::BPF_JSET, FAST_OPEN, &[end(refuse(libc::EOPNOTSUPP))]),
        vec![end(ALLOW)],
    ]
    .concat()
}

/// Refuses socket options: source routes, which lead a connection to another host than its
/// address, and `SO_REUSEPORT`, as a port shared with another program would count as opened by
/// the job. Programs expect `ENOPROTOOPT` from kernels without that option.
fn on_option() -> Vec<sock_filter> {
    let within = |options: &[u32], errno| {
        let refused = [end(refuse(errno))];
        let refusals = options.iter().flat_map(|option| when_equal(*option, &refused));
        [argument(2)].into_iter().chain(refusals).chain([end(ALLOW)]).collect::<Vec<_>>()
    };
    [
        vec![argument(1)],
        when_equal(LEVEL_SOCKET, &within(&[REUSE_PORT], libc::ENOPROTOOPT)),
        when_equal(LEVEL_IP, &within(&[IP_OPTIONS], libc::EPERM)),
        when_equal(LEVEL_IPV6, &within(&IPV6_ROUTES, libc::EPERM)),
        vec![end(ALLOW)],
    ]
    .concat()
}

/// Builds the program. `None` for a processor architecture that is not known here.
fn program() -> Option<Vec<sock_filter>> {
    let by_number: [(c_long, Vec<sock_filter>); 12] = [
        (libc::SYS_socket, on_socket()),
        (libc::SYS_connect, vec![end(NOTIFY)]),
        (libc::SYS_bind, vec![end(NOTIFY)]),
        (libc::SYS_listen, vec![end(NOTIFY)]),
        (libc::SYS_socketpair, on_socketpair()),
        (libc::SYS_setsockopt, on_option()),
        (libc::SYS_sendto, on_sending(3)),
        (libc::SYS_sendmsg, on_sending(2)),
        (libc::SYS_sendmmsg, on_sending(3)),
        // io_uring creates and connects sockets without these calls.
        (libc::SYS_io_uring_setup, vec![end(refuse(libc::EPERM))]),
        (libc::SYS_io_uring_enter, vec![end(refuse(libc::EPERM))]),
        (libc::SYS_io_uring_register, vec![end(refuse(libc::EPERM))]),
    ];
    let mut program = vec![load(ARCHITECTURE_FIELD)];
    program.push(operation(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, ARCHITECTURE?, 1, 0));
    program.push(end(KILL));
    program.push(load(NUMBER));
    if cfg!(target_arch = "x86_64") {
        program.extend(when(libc::BPF_JGE, X32, &[end(refuse(libc::ENOSYS))]));
    }
    for (number, block) in by_number {
        program.extend(when_equal(u32::try_from(number).ok()?, &block));
    }
    program.push(end(ALLOW));
    Some(program)
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use std::sync::LazyLock;

    use nix::libc::{self, c_long};

    use super::program;
    use crate::bpf_interpreter::{self, Instruction};

    static PROGRAM: LazyLock<Vec<Instruction>> = LazyLock::new(|| {
        let program = program().expect("this processor is known");
        program.into_iter().map(|it| (it.code, it.jt, it.jf, it.k)).collect()
    });

    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;

    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    fn run(architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let halves = arguments.map(|argument| [argument as u32, (argument >> 32) as u32]);
        let call = [&[number, architecture, 0, 0][..], halves.as_flattened()].concat();
        bpf_interpreter::run(&PROGRAM, &call).0
    }

    #[cfg(target_arch = "x86_64")]
    const NATIVE: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const NATIVE: u32 = 0xc000_00b7;

    fn call(number: c_long, arguments: &[i64]) -> u32 {
        let mut all = [0; 6];
        for (slot, argument) in all.iter_mut().zip(arguments) {
            *slot = argument.cast_unsigned();
        }
        run(NATIVE, u32::try_from(number).expect("a small number"), all)
    }

    fn refusal(errno: i32) -> u32 {
        libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()
    }

    #[test]
    fn every_family_kind_and_protocol_is_notified_or_refused() {
        let flags = [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC];
        for family in 0..48 {
            for kind in 0..=15 {
                for protocol in (0..20).chain([-1, 58, 132, 136, 255, 262, i32::MAX]) {
                    let is_inet = [libc::AF_INET, libc::AF_INET6].contains(&family);
                    let is_stream = kind == libc::SOCK_STREAM;
                    let is_kept_pair = is_stream || kind == libc::SOCK_SEQPACKET;
                    let expected = match (family, protocol) {
                        (_, 132 | 262) if is_inet => refusal(libc::EPROTONOSUPPORT),
                        (_, 0 | 6) if is_inet && is_stream => NOTIFY,
                        (libc::AF_UNIX, _) if is_kept_pair => NOTIFY,
                        (libc::AF_NETLINK, 0) => ALLOW,
                        (_, _) => refusal(libc::EPERM),
                    };
                    for flag in flags {
                        let socket = [family, kind | flag, protocol].map(i64::from);
                        let decided = call(libc::SYS_socket, &socket);
                        assert_eq!(decided, expected, "{socket:?}");
                    }
                    let pair = [family, kind, protocol].map(i64::from);
                    let is_pair = family == libc::AF_UNIX && is_kept_pair;
                    let expected = if is_pair { ALLOW } else { refusal(libc::EPERM) };
                    assert_eq!(call(libc::SYS_socketpair, &pair), expected, "{pair:?}");
                }
            }
        }
        // The kernel reads the lower half only, and so does the filter.
        let wide = [2 | 1 << 32, 2 | 1 << 40, 0];
        assert_eq!(call(libc::SYS_socket, &wide), refusal(libc::EPERM));
    }

    #[test]
    fn fast_open_is_refused_wherever_its_flag_is_and_nowhere_else() {
        let fast = i64::from(libc::MSG_FASTOPEN);
        for flags in [0, fast, fast | 1, 0x4000, 0x4000 | fast] {
            let expected = if flags & fast != 0 { refusal(libc::EOPNOTSUPP) } else { ALLOW };
            assert_eq!(call(libc::SYS_sendto, &[3, fast, fast, flags, fast, fast]), expected);
            assert_eq!(call(libc::SYS_sendmsg, &[3, fast, flags]), expected);
            assert_eq!(call(libc::SYS_sendmmsg, &[3, fast, fast, flags]), expected);
        }
    }

    #[test]
    fn options_that_name_a_route_or_share_a_port_are_refused() {
        for level in -1..300 {
            for option in -1..100 {
                let expected = match (level, option) {
                    (0, 4) | (41, 5 | 6 | 57) => refusal(libc::EPERM),
                    (1, 15) => refusal(libc::ENOPROTOOPT),
                    (_, _) => ALLOW,
                };
                let decided = call(libc::SYS_setsockopt, &[3, level, option, 0, 4]);
                assert_eq!(decided, expected, "{level} {option}");
            }
        }
    }

    #[test]
    fn other_calls_are_allowed_and_other_numbers_are_not() {
        for number in [libc::SYS_connect, libc::SYS_bind, libc::SYS_listen] {
            assert_eq!(call(number, &[3, 0, 0]), NOTIFY);
        }
        for number in [425, 426, 427] {
            assert_eq!(call(number, &[]), refusal(libc::EPERM));
        }
        for number in [libc::SYS_read, libc::SYS_accept4, libc::SYS_recvmsg, libc::SYS_execve] {
            assert_eq!(call(number, &[]), ALLOW);
        }
        for architecture in [0x4000_0003, 0x4000_0028, 0, NATIVE ^ 1] {
            let number = u32::try_from(libc::SYS_read).expect("a small number");
            let decided = run(architecture, number, [0; 6]);
            assert_eq!(decided, libc::SECCOMP_RET_KILL_PROCESS, "{architecture:#x}");
        }
        #[cfg(target_arch = "x86_64")]
        for number in [0x4000_0000, 0x4000_0029, 0x4000_002a, u32::MAX] {
            assert_eq!(run(NATIVE, number, [2, 1, 0, 0, 0, 0]), refusal(libc::ENOSYS));
        }
    }
}
