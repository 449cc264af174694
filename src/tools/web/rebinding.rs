//! A resolver for tests of the checks of addresses.

use std::net::SocketAddr;

use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Returns different addresses at each lookup, like a DNS rebinding attack.
pub(in super::super) struct Rebinding(Mutex<Vec<Vec<&'static str>>>);

impl Rebinding {
    pub(in super::super) fn new(answers: Vec<Vec<&'static str>>) -> Self {
        Self(Mutex::new(answers))
    }
}

impl Resolve for Rebinding {
    fn resolve(&self, _: Name) -> Resolving {
        let parse = |address: &str| SocketAddr::new(address.parse().expect("an address"), 0);
        let found: Vec<SocketAddr> = self.0.lock().remove(0).into_iter().map(parse).collect();
        Box::pin(async move { Ok(Box::new(found.into_iter()) as Addrs) })
    }
}
