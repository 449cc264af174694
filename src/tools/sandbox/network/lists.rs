//! The lists of allowed and denied domains. Pure.

use std::net::IpAddr;

use crate::process::RefusalReason;

use super::super::super::domain::Domain;

/// An entry of a list that cannot be enforced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntry {
    #[error(
        "{0:?} is not a host; write example.com, *.example.com or an address, perhaps with :PORT"
    )]
    NotHost(String),
    #[error("\"*\" allows every host, which takes a list of denied ones beside it")]
    AllWithoutDenied,
    #[error("{0:?} needs a port, like localhost:8080")]
    NoPort(String),
}

/// A host or address, and perhaps a port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostEntry {
    domain: Domain,
    /// The address, if the entry is one.
    address: Option<IpAddr>,
    port: Option<u16>,
}

/// The lists of a run. Denied entries take precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainLists {
    allowed: Vec<HostEntry>,
    denied: Vec<HostEntry>,
    /// The entries as the user wrote them.
    allowed_texts: Vec<String>,
    denied_texts: Vec<String>,
}

/// A host that a tool may not fetch from, in words for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{host}:{port} {}; this cannot change during the run, so use what can be reached, or say what \
     is missing",
    if *.reason == RefusalReason::Denied {
        "is in sandbox.network.deniedDomains"
    } else {
        "is not in sandbox.network.allowedDomains"
    }
)]
pub(in super::super::super) struct RefusedHost {
    host: String,
    port: u16,
    reason: RefusalReason,
}

impl DomainLists {
    /// Parses the lists.
    ///
    /// # Errors
    /// An entry that cannot be enforced, and the name of its list.
    pub fn parse(
        allowed: &[String],
        denied: &[String],
    ) -> Result<Self, (&'static str, InvalidEntry)> {
        let parse = |key, texts: &[String]| {
            let entries = texts.iter().map(|text| HostEntry::parse(text));
            entries.collect::<Result<Vec<_>, _>>().map_err(|error| (key, error))
        };
        let lists = Self {
            allowed: parse("allowedDomains", allowed)?,
            denied: parse("deniedDomains", denied)?,
            allowed_texts: allowed.to_vec(),
            denied_texts: denied.to_vec(),
        };
        let allows_all = lists.allowed.iter().any(|entry| entry.domain == Domain::All);
        if allows_all && lists.denied.is_empty() {
            return Err(("allowedDomains", InvalidEntry::AllWithoutDenied));
        }
        // Other ports of this machine belong to programs that act for the user.
        let open = |entry: &&HostEntry| entry.is_loopback() && entry.port.is_none();
        if let Some(at) = lists.allowed.iter().position(|entry| open(&entry)) {
            let text = lists.allowed_texts[at].clone();
            return Err(("allowedDomains", InvalidEntry::NoPort(text)));
        }
        Ok(lists)
    }

    /// Checks a host, in canonical form, and a port.
    pub(super) fn check(&self, host: &str, port: u16) -> Result<(), RefusalReason> {
        if self.is_denied(host, |entry| entry.has_port(port)) {
            Err(RefusalReason::Denied)
        } else if self.is_allowed(host, |entry| entry.has_port(port)) {
            Ok(())
        } else {
            Err(RefusalReason::NotListed)
        }
    }

    /// Checks a host for a tool that fetches from it.
    pub(in super::super::super) fn check_host(
        &self,
        host: &str,
        port: u16,
    ) -> Result<(), RefusedHost> {
        let refused = |reason| RefusedHost { host: host.to_owned(), port, reason };
        self.check(host, port).map_err(refused)
    }

    /// Checks a name before its port is known.
    ///
    /// # Errors
    /// No port of the host may be reached.
    pub(super) fn check_name(&self, host: &str) -> Result<(), RefusalReason> {
        if self.is_denied(host, |entry| entry.port.is_none()) {
            Err(RefusalReason::Denied)
        } else if self.is_allowed(host, |_| true) {
            Ok(())
        } else {
            Err(RefusalReason::NotListed)
        }
    }

    /// True if an entry denies the host. The entry for every host denies addresses, too.
    fn is_denied(&self, host: &str, has_port: impl Fn(&HostEntry) -> bool) -> bool {
        let covers = |entry: &HostEntry| entry.domain == Domain::All || entry.covers(host);
        self.denied.iter().any(|entry| has_port(entry) && covers(entry))
    }

    /// True if the host is allowed. If only denied hosts are listed, all other names are allowed,
    /// but no address: it may be that of a denied name.
    fn is_allowed(&self, host: &str, has_port: impl Fn(&HostEntry) -> bool) -> bool {
        let is_open = self.allowed.is_empty() && address_in(host).is_none();
        is_open || self.allowed.iter().any(|entry| has_port(entry) && entry.covers(host))
    }

    /// True if the address itself is listed, and not only a name. Then it may be a private one.
    pub(super) fn lists_address(&self, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        self.allowed.iter().any(|entry| entry.address == Some(address) && entry.has_port(port))
    }

    /// True if an address is denied, by whatever name it is reached. All names and addresses of
    /// this machine count as one.
    pub(in super::super::super) fn denies_address(&self, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        let is_match = |entry: &HostEntry| {
            entry.address == Some(address) || (address.is_loopback() && entry.is_loopback())
        };
        self.denied.iter().any(|entry| is_match(entry) && entry.has_port(port))
    }

    /// The listed ports of this machine that are not denied. All its names and addresses count as
    /// one: a connection does not show the name.
    pub(super) fn loopback_ports(&self) -> Vec<u16> {
        let is_denied = |port: &u16| {
            let is_match = |entry: &HostEntry| entry.domain == Domain::All || entry.is_loopback();
            self.denied.iter().any(|entry| is_match(entry) && entry.has_port(*port))
        };
        let local = self.allowed.iter().filter(|entry| entry.is_loopback());
        local.filter_map(|entry| entry.port).filter(|port| !is_denied(port)).collect()
    }

    pub fn allowed(&self) -> &[String] {
        &self.allowed_texts
    }

    pub fn denied(&self) -> &[String] {
        &self.denied_texts
    }
}

impl HostEntry {
    fn parse(text: &str) -> Result<Self, InvalidEntry> {
        let not_host = || InvalidEntry::NotHost(text.to_owned());
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                let number = port.bytes().all(|byte| byte.is_ascii_digit());
                let port: u16 =
                    port.parse().ok().filter(|port| number && *port > 0).ok_or_else(not_host)?;
                (host, Some(port))
            }
            Some(_) | None => (text, None),
        };
        let domain = Domain::parse(host).map_err(|_| not_host())?;
        let address = match &domain {
            Domain::Exact(host) => address_in(host),
            Domain::All | Domain::Subdomains(_) => None,
        };
        Ok(Self { domain, address, port })
    }

    fn has_port(&self, port: u16) -> bool {
        self.port.is_none_or(|listed| listed == port)
    }

    fn covers(&self, host: &str) -> bool {
        match address_in(host) {
            // Wildcards match names only.
            Some(address) => self.address == Some(address),
            None => self.domain.covers(host),
        }
    }

    fn is_loopback(&self) -> bool {
        match &self.domain {
            Domain::Exact(host) => is_own_machine(host),
            Domain::Subdomains(parent) => is_local_name(parent),
            Domain::All => false,
        }
    }
}

/// True if a host in canonical form is this machine.
pub(super) fn is_own_machine(host: &str) -> bool {
    is_local_name(host)
        || address_in(host).is_some_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

fn is_local_name(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

/// Parses a host in canonical form as an address. `None`: it is a name.
pub(super) fn address_in(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse().ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(allowed: &[&str], denied: &[&str]) -> DomainLists {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        DomainLists::parse(&texts(allowed), &texts(denied)).expect("good lists")
    }

    #[test]
    fn denied_entries_win_over_allowed_ones_and_ports_count() {
        use RefusalReason::{Denied, NotListed};
        let both = lists(
            &["a.example", "*.b.example", "c.example:443", "192.0.2.7", "[2001:db8::1]:22"],
            &["x.b.example", "a.example:25", "*.bad.b.example"],
        );
        for (host, port, expected) in [
            ("a.example", 443, Ok(())),
            ("a.example", 25, Err(Denied)),
            ("www.a.example", 443, Err(NotListed)),
            ("y.b.example", 1, Ok(())),
            ("z.y.b.example", 1, Ok(())),
            ("b.example", 1, Err(NotListed)),
            ("x.b.example", 1, Err(Denied)),
            ("q.bad.b.example", 1, Err(Denied)),
            ("bad.b.example", 1, Ok(())),
            ("c.example", 443, Ok(())),
            ("c.example", 80, Err(NotListed)),
            ("192.0.2.7", 5, Ok(())),
            ("192.0.2.8", 5, Err(NotListed)),
            ("[2001:db8::1]", 22, Ok(())),
            ("[2001:db8:0::1]", 22, Ok(())),
            ("[2001:db8::1]", 23, Err(NotListed)),
            ("notb.example", 1, Err(NotListed)),
        ] {
            assert_eq!(both.check(host, port), expected, "{host}:{port}");
        }
        assert_eq!(both.check_name("c.example"), Ok(()));
        assert_eq!(both.check_name("a.example"), Ok(()), "only one port is denied");
        assert_eq!(both.check_name("x.b.example"), Err(Denied));
        assert_eq!(both.check_name("d.example"), Err(NotListed));
    }

    #[test]
    fn with_denied_hosts_only_other_names_are_allowed_but_addresses_are_not() {
        use RefusalReason::{Denied, NotListed};
        for open in [lists(&[], &["a.example"]), lists(&["*"], &["a.example"])] {
            assert_eq!(open.check("b.example", 443), Ok(()));
            assert_eq!(open.check("a.example", 443), Err(Denied));
            assert_eq!(open.check("192.0.2.7", 443), Err(NotListed));
            assert_eq!(open.check("[2001:db8::1]", 443), Err(NotListed));
        }
        let closed = lists(&["a.example", "192.0.2.7"], &["*"]);
        assert_eq!(closed.check("192.0.2.7", 443), Err(Denied));
        assert_eq!(closed.check("a.example", 443), Err(Denied));
        assert_eq!(closed.check_name("a.example"), Err(Denied));
    }

    #[test]
    fn entries_that_cannot_be_enforced_are_refused() {
        let parse = |allowed: &str| DomainLists::parse(&[allowed.to_owned()], &[]);
        for text in [
            "",
            "a b",
            "https://a.example",
            "a.example/x",
            "a.example:",
            "a.example:0",
            "a.example:65536",
            "a.example:+80",
            "*x.example",
            "a.*",
            "*.",
            ":443",
            "[::1",
            "user@a.example",
        ] {
            let wrong = Err(("allowedDomains", InvalidEntry::NotHost(text.to_owned())));
            assert_eq!(parse(text), wrong, "{text}");
        }
        assert_eq!(parse("*"), Err(("allowedDomains", InvalidEntry::AllWithoutDenied)));
        for text in ["localhost", "127.0.0.1", "[::1]", "*.localhost", "0.0.0.0", "127.1"] {
            let wrong = Err(("allowedDomains", InvalidEntry::NoPort(text.to_owned())));
            assert_eq!(parse(text), wrong, "{text}");
        }
        let denied = DomainLists::parse(&[], &["a b".to_owned()]);
        assert!(matches!(denied, Err(("deniedDomains", InvalidEntry::NotHost(_)))));
    }

    #[test]
    fn a_denied_port_of_this_machine_is_closed_though_it_is_allowed() {
        let allowed = ["localhost:5432", "127.0.0.1:80"];
        for (denied, open) in [
            (&["a.example"][..], &[5432, 80][..]),
            (&["localhost"], &[]),
            (&["127.0.0.1"], &[]),
            (&["[::1]"], &[]),
            (&["*"], &[]),
            (&["localhost:5432"], &[80]),
            (&["[::1]:80"], &[5432]),
            (&["*:80"], &[5432]),
            (&["localhost:81", "192.0.2.1"], &[5432, 80]),
        ] {
            assert_eq!(lists(&allowed, denied).loopback_ports(), open, "{denied:?}");
        }
    }

    #[test]
    fn denied_addresses_are_known_with_their_ports() {
        let denied = ["192.0.2.7", "[2001:db8::1]:22", "a.example", "localhost:5432"];
        let lists = lists(&["*"], &denied);
        for (address, port, is_denied) in [
            ("192.0.2.7", 443, true),
            ("::ffff:192.0.2.7", 1, true),
            ("192.0.2.8", 443, false),
            ("2001:db8::1", 22, true),
            ("2001:db8::1", 23, false),
            ("127.0.0.1", 5432, true),
            ("::1", 5432, true),
            ("127.0.0.1", 5433, false),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(lists.denies_address(address, port), is_denied, "{address} {port}");
        }
    }

    #[test]
    fn listed_addresses_and_loopback_ports_are_known() {
        let lists = lists(&["localhost:8080", "127.0.0.1:9090", "10.0.0.7", "a.example:1"], &[]);
        assert_eq!(lists.loopback_ports(), [8080, 9090]);
        let at = |text: &str| text.parse().expect("an address");
        assert!(lists.lists_address(at("10.0.0.7"), 1));
        assert!(lists.lists_address(at("::ffff:10.0.0.7"), 1));
        assert!(!lists.lists_address(at("10.0.0.8"), 1));
        assert!(!lists.lists_address(at("127.0.0.1"), 1));
    }
}
