//! The loopback ports that jobs of a run opened.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use parking_lot::Mutex;

/// The addresses on which jobs listen, with the number of the job.
#[derive(Debug, Default)]
pub(super) struct LocalPorts(Mutex<HashMap<SocketAddr, u64>>);

impl LocalPorts {
    pub(super) fn add(&self, address: SocketAddr, job: u64) {
        self.0.lock().insert(address, job);
    }

    /// Finds the address at which a job of the run can be reached. A program that listens on all
    /// addresses is bound to 127.0.0.1 only, so that is tried for an IPv6 address, too.
    pub(super) fn find(&self, address: SocketAddr) -> Option<SocketAddr> {
        let known = self.0.lock();
        let over_ipv4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port());
        let candidates = [Some(address), address.is_ipv6().then_some(over_ipv4)];
        candidates.into_iter().flatten().find(|candidate| known.contains_key(candidate))
    }

    pub(super) fn remove_job(&self, job: u64) {
        let mut known = self.0.lock();
        known.retain(|_, owner| *owner != job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_address_of_a_listener_is_found() {
        let ports = LocalPorts::default();
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        ports.add(at("127.0.0.1:3000"), 1);
        ports.add(at("[::1]:4000"), 2);
        for (wanted, found) in [
            ("127.0.0.1:3000", Some("127.0.0.1:3000")),
            ("[::1]:3000", Some("127.0.0.1:3000")),
            ("127.0.0.2:3000", None),
            ("127.0.0.1:3001", None),
            ("[::1]:4000", Some("[::1]:4000")),
            ("127.0.0.1:4000", None),
        ] {
            assert_eq!(ports.find(at(wanted)), found.map(at), "{wanted}");
        }
        ports.remove_job(1);
        assert_eq!(ports.find(at("127.0.0.1:3000")), None);
        assert_eq!(ports.find(at("[::1]:4000")), Some(at("[::1]:4000")));
    }
}
