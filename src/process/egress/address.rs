//! Parses the addresses that programs pass to socket calls. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;
use nix::libc;

/// The longest address of a socket, `sizeof(struct sockaddr_storage)`.
pub(super) const ADDRESS_BYTES_MAX: usize = 128;

/// Sizes of `struct sockaddr_in`, and of `sockaddr_in6` without its scope.
const INET_BYTES: usize = 16;
const INET6_BYTES: usize = 24;

/// An address as a program passed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SocketAddress {
    /// An IPv4 address that is mapped to an IPv6 address is not converted: the socket is an IPv6
    /// socket.
    Inet(SocketAddr),
    /// A path of the file system.
    UnixPath(Vec<u8>),
    /// A Unix address without a file.
    UnixAbstract,
    Netlink,
}

/// Parses an address.
///
/// # Errors
/// The error that the call of the program returns.
pub(super) fn parse(bytes: &[u8]) -> Result<SocketAddress, Errno> {
    let [low, high, rest @ ..] = bytes else { return Err(Errno::EINVAL) };
    match i32::from(u16::from_ne_bytes([*low, *high])) {
        libc::AF_INET if bytes.len() >= INET_BYTES => {
            let host: [u8; 4] = copied(rest, 2);
            Ok(SocketAddress::Inet(SocketAddr::new(Ipv4Addr::from(host).into(), port(rest))))
        }
        libc::AF_INET6 if bytes.len() >= INET6_BYTES => {
            let host: [u8; 16] = copied(rest, 6);
            Ok(SocketAddress::Inet(SocketAddr::new(Ipv6Addr::from(host).into(), port(rest))))
        }
        libc::AF_INET | libc::AF_INET6 => Err(Errno::EINVAL),
        libc::AF_UNIX => match rest {
            [] => Err(Errno::EINVAL),
            [0, ..] => Ok(SocketAddress::UnixAbstract),
            path => {
                let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
                Ok(SocketAddress::UnixPath(path[..end].to_vec()))
            }
        },
        libc::AF_NETLINK => Ok(SocketAddress::Netlink),
        // AF_UNSPEC would disconnect a connected socket, which could then be connected elsewhere.
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

fn port(rest: &[u8]) -> u16 {
    u16::from_be_bytes(copied(rest, 0))
}

/// Copies `N` bytes from `at`. The caller has checked the length.
fn copied<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut copy = [0; N];
    copy.copy_from_slice(&bytes[at..at + N]);
    copy
}

/// Returns the address that the kernel connects to: the IPv4 address for one that is mapped to
/// IPv6, and the loopback address for the unspecified address.
pub(super) fn as_connected(address: SocketAddr) -> SocketAddr {
    let host = match address.ip().to_canonical() {
        IpAddr::V4(host) if host.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(host) if host.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        host @ (IpAddr::V4(_) | IpAddr::V6(_)) => host,
    };
    SocketAddr::new(host, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inet(family: i32, port: u16, host: &[u8], pad: usize) -> Vec<u8> {
        let family = u16::try_from(family).expect("a small number").to_ne_bytes();
        let flow: &[u8] = if host.len() == 16 { &[0; 4] } else { &[] };
        [&family[..], &port.to_be_bytes(), flow, host, &vec![0; pad]].concat()
    }

    #[test]
    fn addresses_of_all_families_are_parsed_and_short_ones_are_refused() {
        let v4 = inet(libc::AF_INET, 443, &[192, 0, 2, 7], 8);
        let v6 = inet(libc::AF_INET6, 80, &Ipv6Addr::LOCALHOST.octets(), 4);
        let of = |text: &str| SocketAddress::Inet(text.parse().expect("an address"));
        assert_eq!(parse(&v4), Ok(of("192.0.2.7:443")));
        assert_eq!(parse(&v6), Ok(of("[::1]:80")));
        assert_eq!(parse(&v6[..24]), Ok(of("[::1]:80")));
        for length in 0..v4.len() {
            assert_eq!(parse(&v4[..length]), Err(Errno::EINVAL), "{length}");
        }
        for length in 2..24 {
            assert_eq!(parse(&v6[..length]), Err(Errno::EINVAL), "{length}");
        }
        let unix = |path: &[u8]| {
            let family = u16::try_from(libc::AF_UNIX).expect("a small number").to_ne_bytes();
            parse(&[&family, path].concat())
        };
        assert_eq!(unix(b"/a/b\0rest"), Ok(SocketAddress::UnixPath(b"/a/b".to_vec())));
        assert_eq!(unix(b"a"), Ok(SocketAddress::UnixPath(b"a".to_vec())));
        assert_eq!(unix(b"\0name"), Ok(SocketAddress::UnixAbstract));
        assert_eq!(unix(b""), Err(Errno::EINVAL));
        for family in (0..=64u16).chain([u16::MAX]) {
            let known = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX, libc::AF_NETLINK];
            if !known.contains(&i32::from(family)) {
                let bytes = [&family.to_ne_bytes()[..], &[0; 30]].concat();
                assert_eq!(parse(&bytes), Err(Errno::EAFNOSUPPORT), "{family}");
            }
        }
    }

    #[test]
    fn an_address_is_what_the_kernel_connects_to() {
        for (written, connected) in [
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("[::]:1", "[::1]:1"),
            ("[::ffff:0.0.0.0]:1", "127.0.0.1:1"),
            ("[::ffff:127.0.0.1]:1", "127.0.0.1:1"),
            ("[::ffff:8.8.8.8]:53", "8.8.8.8:53"),
            ("[2001:db8::1]:1", "[2001:db8::1]:1"),
            ("8.8.8.8:1", "8.8.8.8:1"),
        ] {
            let written: SocketAddr = written.parse().expect("an address");
            assert_eq!(as_connected(written).to_string(), connected);
        }
    }
}
