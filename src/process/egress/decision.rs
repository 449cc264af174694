//! Decides socket calls of commands. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;

use super::address::{SocketAddress, as_connected};
use super::job_egress::{ConnectionTarget, EgressTerms};
use super::local_ports::LocalPorts;
use super::refusal::{Refusal, RefusalReason};

/// The port of DNS resolvers. outlast answers in place of all resolvers.
const RESOLVER_PORT: u16 = 53;

/// Ports whose use needs a privilege. Commands do not have it, even if outlast does.
const PRIVILEGED_PORTS: std::ops::Range<u16> = 1..1024;

/// The decision about a `connect`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConnectDecision {
    /// Connect to the relay, and register this target.
    Relay(ConnectionTarget),
    /// Connect to this loopback address.
    Loopback(SocketAddr),
    /// Connect to the socket with this path, if that is allowed.
    Unix(Vec<u8>),
    Refuse(Errno, Option<Refusal>),
}

pub(super) fn decide_connect(
    address: SocketAddress,
    terms: &EgressTerms,
    ports: &LocalPorts,
) -> ConnectDecision {
    let to = match address {
        SocketAddress::Inet(address) => as_connected(address),
        SocketAddress::UnixPath(path) => return ConnectDecision::Unix(path),
        SocketAddress::UnixAbstract => {
            let refusal = Refusal::new("an abstract socket", None, RefusalReason::UnixSocket);
            return ConnectDecision::Refuse(Errno::EPERM, Some(refusal));
        }
        SocketAddress::Netlink => return ConnectDecision::Refuse(Errno::EPERM, None),
    };
    if to.port() == RESOLVER_PORT {
        return ConnectDecision::Relay(ConnectionTarget::Resolver);
    }
    if !to.ip().is_loopback() {
        return ConnectDecision::Relay(ConnectionTarget::Address(to));
    }
    if to == SocketAddr::V4(terms.relay) {
        return ConnectDecision::Relay(ConnectionTarget::Proxy);
    }
    if let Some(found) = ports.find(to) {
        return ConnectDecision::Loopback(found);
    }
    if terms.loopback_ports.contains(&to.port()) {
        return ConnectDecision::Loopback(to);
    }
    let refusal = Refusal::new(to.ip().to_string(), Some(to.port()), RefusalReason::Loopback);
    ConnectDecision::Refuse(Errno::ECONNREFUSED, Some(refusal))
}

/// The decision about a `bind`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BindDecision {
    /// Bind outlast's duplicate to this address.
    Bind(SocketAddr),
    /// Let the kernel execute the call: Landlock restricts it.
    Continue,
    Refuse(Errno),
}

/// Decides a `bind`. `is_dual` is true for an IPv6 socket that also accepts IPv4 connections.
pub(super) fn decide_bind(
    address: &SocketAddress,
    is_dual: bool,
    terms: &EgressTerms,
) -> BindDecision {
    let SocketAddress::Inet(wanted) = *address else { return BindDecision::Continue };
    if !terms.allows_binding {
        return BindDecision::Refuse(Errno::EPERM);
    }
    if PRIVILEGED_PORTS.contains(&wanted.port()) {
        return BindDecision::Refuse(Errno::EACCES);
    }
    let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
    let host = match wanted.ip() {
        IpAddr::V4(host) if host.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(host) if host.is_unspecified() && is_dual => mapped,
        IpAddr::V6(host) if host.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        host if host.to_canonical() == IpAddr::V4(Ipv4Addr::UNSPECIFIED) => mapped,
        host if host.to_canonical().is_loopback() => host,
        IpAddr::V4(_) | IpAddr::V6(_) => return BindDecision::Refuse(Errno::EADDRNOTAVAIL),
    };
    BindDecision::Bind(SocketAddr::new(host, wanted.port()))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV4;
    use std::time::SystemTime;

    use super::*;

    fn terms(allows_binding: bool) -> EgressTerms {
        let relay = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 4000);
        let closed = EgressTerms::closed(relay, SystemTime::UNIX_EPOCH);
        EgressTerms { allows_binding, loopback_ports: vec![8080], ..closed }
    }

    fn inet(text: &str) -> SocketAddress {
        SocketAddress::Inet(text.parse().expect("an address"))
    }

    #[test]
    fn a_connect_goes_to_the_relay_or_to_a_port_of_the_run() {
        let ports = LocalPorts::default();
        ports.add("127.0.0.1:3000".parse().expect("an address"), 1);
        let decide = |text: &str| decide_connect(inet(text), &terms(true), &ports);
        let relay = ConnectDecision::Relay;
        let address = |text: &str| ConnectionTarget::Address(text.parse().expect("an address"));
        for resolver in ["8.8.8.8:53", "127.0.0.53:53", "[::1]:53", "0.0.0.0:53"] {
            assert_eq!(decide(resolver), relay(ConnectionTarget::Resolver), "{resolver}");
        }
        for (wanted, target) in [
            ("192.0.2.1:443", "192.0.2.1:443"),
            ("[::ffff:192.0.2.1]:443", "192.0.2.1:443"),
            ("[2001:db8::1]:22", "[2001:db8::1]:22"),
            ("169.254.169.254:80", "169.254.169.254:80"),
        ] {
            assert_eq!(decide(wanted), relay(address(target)), "{wanted}");
        }
        for proxy in ["127.0.0.1:4000", "0.0.0.0:4000", "[::ffff:127.0.0.1]:4000"] {
            assert_eq!(decide(proxy), relay(ConnectionTarget::Proxy), "{proxy}");
        }
        for (wanted, found) in [
            ("127.0.0.1:3000", "127.0.0.1:3000"),
            ("[::]:3000", "127.0.0.1:3000"),
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("[::1]:8080", "[::1]:8080"),
        ] {
            let found = found.parse().expect("an address");
            assert_eq!(decide(wanted), ConnectDecision::Loopback(found), "{wanted}");
        }
        for other in ["127.0.0.1:22", "127.9.9.9:3000", "[::1]:22", "0.0.0.0:22", "127.0.0.2:4000"]
        {
            let decided = decide(other);
            let ConnectDecision::Refuse(Errno::ECONNREFUSED, Some(refusal)) = decided else {
                panic!("{other}: {decided:?}");
            };
            assert_eq!(refusal.reason, RefusalReason::Loopback, "{other}");
        }
    }

    #[test]
    fn other_families_are_decided_by_path_or_refused() {
        let ports = LocalPorts::default();
        let decide = |address| decide_connect(address, &terms(true), &ports);
        let path = b"/tmp/socket".to_vec();
        assert_eq!(decide(SocketAddress::UnixPath(path.clone())), ConnectDecision::Unix(path));
        for refused in [SocketAddress::UnixAbstract, SocketAddress::Netlink] {
            assert!(matches!(decide(refused), ConnectDecision::Refuse(Errno::EPERM, _)));
        }
    }

    #[test]
    fn a_bind_is_to_loopback_only() {
        let bind = |text: &str, is_dual| decide_bind(&inet(text), is_dual, &terms(true));
        for (wanted, is_dual, bound) in [
            ("0.0.0.0:3000", false, "127.0.0.1:3000"),
            ("127.0.0.1:0", false, "127.0.0.1:0"),
            ("127.1.2.3:3000", false, "127.1.2.3:3000"),
            ("[::]:3000", true, "[::ffff:127.0.0.1]:3000"),
            ("[::]:3000", false, "[::1]:3000"),
            ("[::1]:1024", true, "[::1]:1024"),
            ("[::ffff:0.0.0.0]:3000", true, "[::ffff:127.0.0.1]:3000"),
        ] {
            let bound = bound.parse().expect("an address");
            assert_eq!(bind(wanted, is_dual), BindDecision::Bind(bound), "{wanted} {is_dual}");
        }
        for (wanted, errno) in [
            ("192.0.2.1:3000", Errno::EADDRNOTAVAIL),
            ("[2001:db8::1]:3000", Errno::EADDRNOTAVAIL),
            ("[::ffff:192.0.2.1]:3000", Errno::EADDRNOTAVAIL),
            ("255.255.255.255:3000", Errno::EADDRNOTAVAIL),
            ("127.0.0.1:1", Errno::EACCES),
            ("0.0.0.0:1023", Errno::EACCES),
        ] {
            assert_eq!(bind(wanted, true), BindDecision::Refuse(errno), "{wanted}");
        }
        let closed = decide_bind(&inet("127.0.0.1:0"), false, &terms(false));
        assert_eq!(closed, BindDecision::Refuse(Errno::EPERM));
        for other in [SocketAddress::UnixPath(b"a".to_vec()), SocketAddress::Netlink] {
            assert_eq!(decide_bind(&other, false, &terms(false)), BindDecision::Continue);
        }
    }
}
