//! The host and port to which a command connects.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::super::super::domain::canonical_host;
use super::lists::address_in;
use super::names::{NameTable, is_made_up};

/// A host in canonical form, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    /// IPv6 addresses are in brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Destination {
    /// Returns the destination of a host as a program wrote it. `None`: it is not a host, or it is
    /// a made-up address without a name.
    pub(super) fn new(host: &str, port: u16, names: &NameTable) -> Option<Self> {
        let host = canonical_host(host)?;
        match address_in(&host) {
            Some(address) => Self::at(SocketAddr::new(address, port), names),
            None => Some(Self { host, port }),
        }
    }

    /// Returns the destination of an address. `None`: it is a made-up address without a name.
    pub(super) fn at(address: SocketAddr, names: &NameTable) -> Option<Self> {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        if is_made_up(ip) {
            return names.name_of(ip).map(|name| Self { host: name.to_owned(), port });
        }
        let host = match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        Some(Self { host, port })
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        address_in(&self.host)
    }

    /// The host without brackets.
    pub(super) fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Formats the host for the `Host` header of HTTP.
    pub(super) fn http_host(&self) -> String {
        if self.port == 80 { self.host.clone() } else { self.to_string() }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_canonical_and_made_up_addresses_become_their_names() {
        let mut names = NameTable::default();
        names.address_of("a.example").expect("there is room");
        for (host, expected) in [
            ("A.Example.", Some("a.example:443")),
            ("198.18.0.1", Some("a.example:443")),
            ("::ffff:198.18.0.1", Some("a.example:443")),
            ("0xc6120001", Some("a.example:443")),
            ("198.18.0.2", None),
            ("198.19.255.255", None),
            ("127.1", Some("127.0.0.1:443")),
            ("2001:DB8::1", Some("[2001:db8::1]:443")),
            ("[2001:db8::1]", Some("[2001:db8::1]:443")),
            ("::ffff:10.0.0.1", Some("10.0.0.1:443")),
            ("a b", None),
            ("a/b", None),
            ("user@a.example", None),
            ("", None),
        ] {
            let found = Destination::new(host, 443, &names).map(|found| found.to_string());
            assert_eq!(found.as_deref(), expected, "{host}");
        }
    }
}
