//! Denies access to hosts that only this machine and its neighbours can reach.
//!
//! The check applies to the addresses that the client then connects to, so a second DNS answer (DNS
//! rebinding) cannot evade it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::super::domain::host_of;
use super::super::sandbox::DomainLists;
use super::address::private_network;

/// A host that is not on the public internet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{host} is at {place}, which is not fetched from unless the setting webFetchPrivateHosts \
     names the host"
)]
pub(super) struct Private {
    host: String,
    place: String,
}

pub(in super::super) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(Box::new(found.collect::<Vec<_>>().into_iter()) as Addrs)
        })
    }
}

/// A resolver that passes only public addresses.
pub(super) struct AddressGuard(pub(super) Arc<dyn Resolve>);

impl Resolve for AddressGuard {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let looked_up = self.0.resolve(name);
        Box::pin(async move {
            let found = filter_public(&host, looked_up.await?)?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// A resolver that leaves out addresses that the user's lists of domains deny.
pub(super) struct ListGuard {
    pub(super) inner: Arc<dyn Resolve>,
    pub(super) lists: DomainLists,
    pub(super) port: u16,
}

impl Resolve for ListGuard {
    fn resolve(&self, name: Name) -> Resolving {
        let (host, lists, port) = (name.as_str().to_owned(), self.lists.clone(), self.port);
        let looked_up = self.inner.resolve(name);
        Box::pin(async move {
            let is_denied = |it: &SocketAddr| lists.denies_address(it.ip(), port);
            let (denied, open): (Vec<_>, Vec<_>) = looked_up.await?.partition(is_denied);
            match denied.first() {
                Some(address) if open.is_empty() => {
                    Err(DeniedAddress { host, address: address.ip() }.into())
                }
                Some(_) | None => Ok(Box::new(open.into_iter()) as Addrs),
            }
        })
    }
}

/// A host with denied addresses only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} is at {address}, which is in sandbox.network.deniedDomains")]
struct DeniedAddress {
    host: String,
    address: IpAddr,
}

fn filter_public(host: &str, found: Addrs) -> Result<Vec<SocketAddr>, Private> {
    let mut hidden = None;
    let mut open = Vec::new();
    for address in found {
        match private_network(address.ip()) {
            Some(network) => hidden = Some((address.ip(), network)),
            None => open.push(address),
        }
    }
    match hidden {
        Some((address, network)) if open.is_empty() => Err(private_host(host, address, network)),
        Some(_) | None => Ok(open),
    }
}

fn private_host(host: &str, address: IpAddr, network: &str) -> Private {
    Private { host: host.to_owned(), place: format!("{address}, {network}") }
}

/// Checks a host written as an IP address, which is not resolved.
pub(super) fn check_literal(url: &Url) -> Result<(), Private> {
    let host = host_of(url);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let Ok(address) = bare.parse() else { return Ok(()) };
    match private_network(address) {
        Some(network) => Err(private_host(&host, address, network)),
        None => Ok(()),
    }
}

/// Checks a host name that the proxy resolves: only the name itself can be checked.
pub(super) fn check_name(url: &Url) -> Result<(), Private> {
    let host = host_of(url);
    let is_own = host == "localhost" || host.ends_with(".localhost");
    if is_own { Err(Private { place: "this machine".to_owned(), host }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::super::rebinding::Rebinding;
    use super::*;

    type BoxError = Box<dyn std::error::Error + Send + Sync>;

    async fn ask(guard: &dyn Resolve) -> Result<Vec<String>, BoxError> {
        let name = Name::from_str("evil.example").expect("a name");
        let found = guard.resolve(name).await?;
        Ok(found.map(|address| address.ip().to_string()).collect())
    }

    #[tokio::test]
    async fn each_look_up_is_checked_and_private_addresses_are_left_out() {
        let answers = vec![vec!["8.8.8.8"], vec!["127.0.0.1"], vec!["10.0.0.1", "1.1.1.1"]];
        let guard = AddressGuard(Arc::new(Rebinding::new(answers)));
        assert_eq!(ask(&guard).await.unwrap(), ["8.8.8.8"]);
        let refused = ask(&guard).await.unwrap_err().to_string();
        assert!(refused.contains("evil.example is at 127.0.0.1, this machine"), "{refused}");
        assert_eq!(ask(&guard).await.unwrap(), ["1.1.1.1"]);
    }

    #[tokio::test]
    async fn a_denied_address_is_left_out_whatever_name_leads_to_it() {
        let answers = vec![vec!["192.0.2.7"], vec!["192.0.2.7", "8.8.8.8"], vec!["192.0.2.8"]];
        let denied = ["192.0.2.7", "192.0.2.8:80"].map(str::to_owned);
        let lists = DomainLists::parse(&[], &denied).expect("good lists");
        let inner = Arc::new(Rebinding::new(answers));
        let guard = ListGuard { inner, lists, port: 443 };
        let refused = ask(&guard).await.unwrap_err().to_string();
        assert!(refused.contains("evil.example is at 192.0.2.7, which is in"), "{refused}");
        assert_eq!(ask(&guard).await.unwrap(), ["8.8.8.8"]);
        assert_eq!(ask(&guard).await.unwrap(), ["192.0.2.8"], "another port is denied");
    }

    #[test]
    fn an_address_is_seen_through_in_every_spelling() {
        for host in [
            "127.0.0.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "127.1",
            "[::1]",
            "0",
            "[::ffff:7f00:1]",
            "169.254.169.254",
            "0xa9fea9fe",
            "127.0.0.1.",
        ] {
            let url = Url::parse(&format!("http://{host}/")).expect("an address");
            assert!(check_literal(&url).is_err(), "{host}");
        }
        let open = Url::parse("http://8.8.8.8/").expect("an address");
        assert_eq!(check_literal(&open), Ok(()));
    }
}
