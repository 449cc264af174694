//! The notifier decides the socket calls of one job, and makes them on outlast's duplicates.
//!
//! ```text
//!             ┌─ decided at once ─────────────────────────────► answered
//! received ───┤
//!             └─ connection takes a while ──► pending ── made, failed, thread gone ──► answered
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrLike, SockaddrStorage, bind, getsockname,
    getsockopt, listen, setsockopt, socket, sockopt,
};
use nix::unistd::Pid;
use tokio::time::Instant;

use super::super::threads::spawn_detached;
use super::address::{self, ADDRESS_BYTES_MAX, SocketAddress};
use super::decision::{BindDecision, ConnectDecision, decide_bind, decide_connect};
use super::filter::SOCKET_KIND;
use super::job_egress::{ConnectionTarget, JobEgress, RegisteredConnection};
use super::kept_sockets::{KeptSockets, SocketUse, kept_family, socket_of};
use super::notification::{CallAnswer, CallListener, WaitingCall};
use super::pending_connect::{
    PendingConnect, connect_to, connect_unix, restore_blocking, stop_blocking,
};
use super::refusal::{Refusal, RefusalReason};
use super::unix_paths::{UnixPathError, open_socket};

/// The most calls that wait for their connections at a time. Further calls are not received until
/// fewer wait.
const PENDING_MAX: usize = 64;

/// The interval, in milliseconds, at which connections to Unix sockets with full queues are
/// retried, and pending calls are checked for threads that are gone.
const RETRY_MILLISECONDS: u16 = 20;

/// Decides the calls of a job on a thread of its own, until all processes of the job have ended.
/// `control` is the socket to `job_init`, which ends the job if the listener is lost.
///
/// # Errors
/// No thread can be started. The calls of the job fail then.
pub(in super::super) fn start_notifier(
    listener: OwnedFd,
    job: JobEgress,
    control: UnixStream,
    job_init: Pid,
) -> io::Result<()> {
    let limit = Arc::clone(&job.run().session.limits().kept);
    let notifier = Notifier {
        listener: CallListener::new(listener),
        sockets: KeptSockets::new(limit, job_init),
        job,
        pending: Vec::new(),
    };
    let run = move || notifier.run(&control);
    spawn_detached(std::thread::Builder::new().name("egress".to_owned()), run)
}

struct Notifier {
    listener: CallListener,
    job: JobEgress,
    sockets: KeptSockets,
    pending: Vec<PendingConnect>,
}

/// The progress of a call.
enum Progress {
    Answer(CallAnswer),
    /// The call was answered with a descriptor, or waits for its connection.
    Nothing,
}

impl Notifier {
    fn run(mut self, control: &UnixStream) {
        if self.decide_calls().is_err() {
            self.job.refuse(Refusal::new("all", None, RefusalReason::ListenerLost));
            let _ = control.shutdown(Shutdown::Both);
        }
        self.job.end();
    }

    fn decide_calls(&mut self) -> Result<(), Errno> {
        loop {
            let (events, ready) = self.wait()?;
            self.proceed(&ready);
            if events.contains(PollFlags::POLLIN) {
                if let Some(call) = self.listener.receive()? {
                    self.decide(&call);
                }
            } else if events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
                return Ok(());
            }
        }
    }

    /// Waits for a call, or for a pending connection. Returns the events of the listener, and for
    /// each pending connection whether it has an event.
    fn wait(&self) -> Result<(PollFlags, Vec<bool>), Errno> {
        let waiting = self.pending.iter().filter(|pending| pending.call.is_some()).count();
        let calls = if waiting < PENDING_MAX { PollFlags::POLLIN } else { PollFlags::empty() };
        let mut polled = vec![PollFd::new(self.listener.as_fd(), calls)];
        for pending in &self.pending {
            let events = match (self.sockets.get(pending.inode), &pending.unix) {
                (Some(kept), None) => PollFd::new(kept.socket.as_fd(), PollFlags::POLLOUT),
                // An unconnected Unix socket reports events at all times.
                (_, _) => PollFd::new(self.listener.as_fd(), PollFlags::empty()),
            };
            polled.push(events);
        }
        let timeout = if self.pending.is_empty() {
            PollTimeout::NONE
        } else {
            PollTimeout::from(RETRY_MILLISECONDS)
        };
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut events = polled.iter().map(|one| one.revents().unwrap_or(PollFlags::empty()));
        let of_listener = events.next().unwrap_or(PollFlags::empty());
        Ok((of_listener, events.map(|events| !events.is_empty()).collect()))
    }

    /// Continues the pending connections.
    fn proceed(&mut self, ready: &[bool]) {
        let pending = std::mem::take(&mut self.pending);
        for (index, pending) in pending.into_iter().enumerate() {
            let is_ready = ready.get(index).is_some_and(|ready| *ready);
            let Some(kept) = self.sockets.get_mut(pending.inode) else {
                // The program closed the socket meanwhile, or another thread connected it.
                if let Some(id) = pending.call {
                    let errno = self.sockets.use_of(pending.inode).map(|_| Errno::EISCONN);
                    let errno = errno.unwrap_or(Errno::EBADF);
                    self.listener.answer(id, CallAnswer::Fails(errno));
                }
                continue;
            };
            let is_gone = pending.call.is_some_and(|id| !self.listener.is_waiting(id));
            if is_gone {
                kept.is_interrupted = true;
                restore_blocking(&kept.socket);
                continue;
            }
            let Some(made) = pending.proceed(&kept.socket, is_ready) else {
                self.pending.push(pending);
                continue;
            };
            if pending.call.is_some() {
                restore_blocking(&kept.socket);
            }
            if made.is_ok() {
                self.sockets.release(pending.inode, SocketUse::Connected);
            }
            if let Some(id) = pending.call {
                self.listener
                    .answer(id, made.map_or_else(CallAnswer::Fails, |()| CallAnswer::Done));
            }
        }
    }

    fn decide(&mut self, call: &WaitingCall) {
        let progress = match call.number {
            libc::SYS_socket => self.make_socket(call),
            libc::SYS_connect => self.connect(call),
            libc::SYS_bind => self.bind(call),
            libc::SYS_listen => self.listen(call),
            _ => Err(Errno::EPERM),
        };
        match progress {
            Ok(Progress::Answer(answer)) => self.listener.answer(call.id, answer),
            Ok(Progress::Nothing) => {}
            Err(errno) => self.listener.answer(call.id, CallAnswer::Fails(errno)),
        }
    }

    fn make_socket(&mut self, call: &WaitingCall) -> Result<Progress, Errno> {
        let family = kept_family(call.number_at(0)).ok_or(Errno::EPERM)?;
        let (kind, flags) = (call.number_at(1), call.number_at(1) & !SOCKET_KIND);
        let kind = match (family, kind & SOCKET_KIND) {
            (_, libc::SOCK_STREAM) => SockType::Stream,
            (AddressFamily::Unix, libc::SOCK_SEQPACKET) => SockType::SeqPacket,
            (_, _) => return Err(Errno::EPERM),
        };
        if flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
            return Err(Errno::EINVAL);
        }
        let nonblocking = SockFlag::from_bits_truncate(flags & libc::SOCK_NONBLOCK);
        let made = socket(family, kind, SockFlag::SOCK_CLOEXEC | nonblocking, None)?;
        let inode = self.sockets.add(made, family, call.thread, Instant::now())?;
        let kept = self.sockets.get(inode).ok_or(Errno::EPERM)?;
        let closes = flags & libc::SOCK_CLOEXEC != 0;
        let handed = self.listener.hand_over(call.id, &kept.socket, closes);
        handed.map(|()| Progress::Nothing).inspect_err(|_| self.sockets.discard(inode))
    }

    fn connect(&mut self, call: &WaitingCall) -> Result<Progress, Errno> {
        let inode = socket_of(call.thread, call.number_at(0))?;
        let address = self.read_address(call)?;
        let Some(kept) = self.sockets.get(inode) else {
            return Err(match self.sockets.use_of(inode) {
                Some(SocketUse::Connected | SocketUse::Listening) => Errno::EISCONN,
                None => Errno::EPERM,
            });
        };
        check_family(kept.family, &address)?;
        let (family, run) = (kept.family, self.job.run());
        match decide_connect(address, &run.terms, run.session.ports()) {
            ConnectDecision::Relay(target) => {
                let source = self.register(inode, target)?;
                let relay = as_storage(family, SocketAddr::V4(run.terms.relay));
                let progress = self.start_connecting(call, inode, &relay);
                if matches!(progress, Err(errno) if errno != Errno::EINPROGRESS) {
                    self.job.run().register.take(source);
                }
                progress
            }
            ConnectDecision::Loopback(to) => {
                // From a loopback address, the kernel sends nothing to another host.
                bind_to_loopback(&kept.socket, family, to.ip())?;
                self.start_connecting(call, inode, &as_storage(family, to))
            }
            ConnectDecision::Unix(path) => self.connect_unix(call, inode, &path),
            ConnectDecision::Refuse(errno, refusal) => {
                if let Some(refusal) = refusal {
                    self.job.refuse(refusal);
                }
                Err(errno)
            }
        }
    }

    /// Gives the socket a source address, and registers its target for the relay.
    fn register(&self, inode: u64, target: ConnectionTarget) -> Result<SocketAddr, Errno> {
        let kept = self.sockets.get(inode).ok_or(Errno::EPERM)?;
        let source = bind_to_loopback(&kept.socket, kept.family, Ipv4Addr::LOCALHOST.into())?;
        let job = self.job.clone();
        self.job.run().register.add(source, RegisteredConnection { target, job });
        Ok(source)
    }

    fn start_connecting(
        &mut self,
        call: &WaitingCall,
        inode: u64,
        to: &dyn SockaddrLike,
    ) -> Result<Progress, Errno> {
        let kept = self.sockets.get_mut(inode).ok_or(Errno::EPERM)?;
        let is_interrupted = std::mem::take(&mut kept.is_interrupted);
        let is_blocking = stop_blocking(&kept.socket)?;
        let made = match connect_to(&kept.socket, to) {
            // The connection of the interrupted call was made meanwhile.
            Err(Errno::EISCONN) if is_interrupted => Ok(()),
            made => made,
        };
        let is_in_progress = made == Err(Errno::EINPROGRESS)
            || (made == Err(Errno::EALREADY) && is_interrupted && is_blocking);
        if is_in_progress {
            // The call waits only for a socket that was blocking.
            let waiting = is_blocking.then_some(call.id);
            self.pending.push(PendingConnect { inode, call: waiting, unix: None });
            return if is_blocking { Ok(Progress::Nothing) } else { Err(Errno::EINPROGRESS) };
        }
        if is_blocking {
            restore_blocking(&kept.socket);
        }
        made?;
        self.sockets.release(inode, SocketUse::Connected);
        Ok(Progress::Answer(CallAnswer::Done))
    }

    fn connect_unix(
        &mut self,
        call: &WaitingCall,
        inode: u64,
        path: &[u8],
    ) -> Result<Progress, Errno> {
        let opened = match open_socket(call.thread, path, &self.job.run().terms.unix) {
            Ok(opened) => opened,
            Err(UnixPathError::Missing(errno)) => return Err(errno),
            Err(UnixPathError::NotOfTheRun(path)) => {
                let path = path.display().to_string();
                self.job.refuse(Refusal::new(path, None, RefusalReason::UnixSocket));
                return Err(Errno::EPERM);
            }
        };
        // The folders of the thread were those of the caller only if it still waits.
        if !self.listener.is_waiting(call.id) {
            return Err(Errno::EPERM);
        }
        let kept = self.sockets.get(inode).ok_or(Errno::EPERM)?;
        let is_blocking = stop_blocking(&kept.socket)?;
        let made = connect_unix(&kept.socket, &opened);
        if made == Err(Errno::EAGAIN) && is_blocking {
            self.pending.push(PendingConnect { inode, call: Some(call.id), unix: Some(opened) });
            return Ok(Progress::Nothing);
        }
        if is_blocking {
            restore_blocking(&kept.socket);
        }
        made?;
        self.sockets.release(inode, SocketUse::Connected);
        Ok(Progress::Answer(CallAnswer::Done))
    }

    fn bind(&mut self, call: &WaitingCall) -> Result<Progress, Errno> {
        let inode = socket_of(call.thread, call.number_at(0))?;
        let address = self.read_address(call)?;
        let terms = &self.job.run().terms;
        let Some(kept) = self.sockets.get(inode) else {
            return if matches!(address, SocketAddress::Inet(_)) {
                Err(Errno::EINVAL)
            } else {
                Ok(Progress::Answer(CallAnswer::Continues))
            };
        };
        check_family(kept.family, &address)?;
        match decide_bind(&address, is_dual(kept.family, &kept.socket), terms) {
            BindDecision::Bind(to) => {
                bind(kept.socket.as_raw_fd(), &as_storage(kept.family, to))?;
                Ok(Progress::Answer(CallAnswer::Done))
            }
            BindDecision::Continue => Ok(Progress::Answer(CallAnswer::Continues)),
            BindDecision::Refuse(errno) => {
                if let (SocketAddress::Inet(to), Errno::EPERM) = (address, errno) {
                    self.refuse_binding(to);
                }
                Err(errno)
            }
        }
    }

    fn listen(&mut self, call: &WaitingCall) -> Result<Progress, Errno> {
        let inode = socket_of(call.thread, call.number_at(0))?;
        if !self.listener.is_waiting(call.id) {
            return Err(Errno::EPERM);
        }
        let Some(kept) = self.sockets.get(inode) else {
            let is_listening = self.sockets.use_of(inode) == Some(SocketUse::Listening);
            let answer = Progress::Answer(CallAnswer::Done);
            return if is_listening { Ok(answer) } else { Err(Errno::EPERM) };
        };
        let backlog = call.number_at(1).clamp(0, libc::SOMAXCONN);
        let backlog = Backlog::new(backlog).unwrap_or(Backlog::MAXCONN);
        if kept.family == AddressFamily::Unix {
            listen(&kept.socket, backlog)?;
        } else {
            let address = bind_to_loopback(&kept.socket, kept.family, Ipv4Addr::LOCALHOST.into())?;
            let run = self.job.run();
            if !run.terms.allows_binding {
                self.refuse_binding(address);
                return Err(Errno::EPERM);
            }
            listen(&kept.socket, backlog)?;
            run.session.ports().add(address, self.job.number());
        }
        self.sockets.release(inode, SocketUse::Listening);
        Ok(Progress::Answer(CallAnswer::Done))
    }

    fn refuse_binding(&self, to: SocketAddr) {
        let host = to.ip().to_string();
        self.job.refuse(Refusal::new(host, Some(to.port()), RefusalReason::LocalBinding));
    }

    fn read_address(&self, call: &WaitingCall) -> Result<SocketAddress, Errno> {
        let length = usize::try_from(call.number_at(2)).map_err(|_| Errno::EINVAL)?;
        if length > ADDRESS_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        address::parse(&self.listener.read_memory(call, call.arguments[1], length)?)
    }
}

/// Checks that an address has the family of its socket: the kernel would refuse another one, and
/// the decision would not be about this socket.
fn check_family(family: AddressFamily, address: &SocketAddress) -> Result<(), Errno> {
    let is_own = match address {
        SocketAddress::Inet(SocketAddr::V4(_)) => family == AddressFamily::Inet,
        SocketAddress::Inet(SocketAddr::V6(_)) => family == AddressFamily::Inet6,
        SocketAddress::UnixPath(_) | SocketAddress::UnixAbstract => family == AddressFamily::Unix,
        SocketAddress::Netlink => false,
    };
    if is_own { Ok(()) } else { Err(Errno::EAFNOSUPPORT) }
}

/// An address in the form that sockets of this family take.
fn as_storage(family: AddressFamily, address: SocketAddr) -> SockaddrStorage {
    match (family, address.ip()) {
        (AddressFamily::Inet6, IpAddr::V4(host)) => {
            SocketAddr::new(host.to_ipv6_mapped().into(), address.port()).into()
        }
        (_, _) => address.into(),
    }
}

fn is_dual(family: AddressFamily, socket: &OwnedFd) -> bool {
    family == AddressFamily::Inet6
        && getsockopt(socket, sockopt::Ipv6V6Only).is_ok_and(|only| !only)
}

/// Binds a socket to this loopback address, unless it is already bound. Returns its address.
///
/// # Errors
/// It is bound to an address other than loopback, or cannot be bound.
fn bind_to_loopback(
    socket: &OwnedFd,
    family: AddressFamily,
    host: IpAddr,
) -> Result<SocketAddr, Errno> {
    let mut bound = local_address(socket)?;
    if bound.port() == 0 {
        if family == AddressFamily::Inet6 && host.is_ipv4() {
            // The relay listens on an IPv4 address.
            setsockopt(socket, sockopt::Ipv6V6Only, &false)?;
        }
        bind(socket.as_raw_fd(), &as_storage(family, SocketAddr::new(host, 0)))?;
        bound = local_address(socket)?;
    }
    if bound.ip().is_loopback() { Ok(bound) } else { Err(Errno::EPERM) }
}

fn local_address(socket: &OwnedFd) -> Result<SocketAddr, Errno> {
    let name: SockaddrStorage = getsockname(socket.as_raw_fd())?;
    let v4 = name.as_sockaddr_in().map(|name| SocketAddr::V4((*name).into()));
    let v6 = || name.as_sockaddr_in6().map(|name| SocketAddr::V6((*name).into()));
    let address = v4.or_else(v6).ok_or(Errno::EPERM)?;
    Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
}
