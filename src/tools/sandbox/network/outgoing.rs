//! Outgoing connections of the relay: checked by the lists and by address, and made to exactly the
//! address that was checked.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::dns::{Name, Resolve};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::process::RefusalReason;

use super::super::super::web::private_network;
use super::destination::Destination;
use super::lists::{DomainLists, is_own_machine};
use super::upstream::{ChooseProxy, ProxyScheme, UpstreamProxy};

/// The maximum time for a connection to one address.
const CONNECT_MAX: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) enum ConnectError {
    Refused(RefusalReason),
    Failed(io::Error),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

pub(super) struct Outgoing {
    pub(super) lists: DomainLists,
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) proxy: ChooseProxy,
}

impl Outgoing {
    /// Connects to a destination, through the proxy of outlast's environment if there is one.
    pub(super) async fn connect(&self, to: &Destination) -> Result<TcpStream, ConnectError> {
        self.check(to)?;
        let Some(proxy) = self.proxy_for(to) else { return self.connect_directly(to).await };
        let mut stream = connect_to_proxy(&proxy).await?;
        let tunnelled = timeout(CONNECT_MAX, proxy.tunnel(&mut stream, to)).await;
        tunnelled.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok(stream)
    }

    /// Connects for a request over plain HTTP. A proxy is returned along with its connection: the
    /// request names the whole URL to it, since few of them open tunnels to port 80.
    pub(super) async fn connect_for_http(
        &self,
        to: &Destination,
    ) -> Result<(TcpStream, Option<UpstreamProxy>), ConnectError> {
        let proxy = self.proxy_for(to).filter(|proxy| proxy.scheme == ProxyScheme::Http);
        let Some(proxy) = proxy else { return Ok((self.connect(to).await?, None)) };
        self.check(to)?;
        Ok((connect_to_proxy(&proxy).await?, Some(proxy)))
    }

    fn check(&self, to: &Destination) -> Result<(), ConnectError> {
        if is_own_machine(&to.host) {
            // Commands connect to ports of this machine without the relay.
            return Err(ConnectError::Refused(RefusalReason::Loopback));
        }
        self.lists.check(&to.host, to.port).map_err(ConnectError::Refused)?;
        let is_private = |ip| private_network(ip).is_some();
        match to.address().filter(|ip| is_private(*ip)) {
            Some(ip) if !self.lists.lists_address(ip, to.port) => {
                Err(ConnectError::Refused(RefusalReason::PrivateAddress))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn proxy_for(&self, to: &Destination) -> Option<UpstreamProxy> {
        let scheme = if to.port == 80 { "http" } else { "https" };
        (self.proxy)(&Url::parse(&format!("{scheme}://{to}/")).ok()?)
    }

    async fn connect_directly(&self, to: &Destination) -> Result<TcpStream, ConnectError> {
        let addresses = self.addresses_of(to).await?;
        let mut failure = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses {
            match timeout(CONNECT_MAX, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failure = error,
                Err(_) => failure = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(failure.into())
    }

    /// Resolves the host, and leaves out denied addresses, and private ones that are not listed.
    async fn addresses_of(&self, to: &Destination) -> Result<Vec<SocketAddr>, ConnectError> {
        let found = if let Some(address) = to.address() {
            vec![address]
        } else {
            let name = Name::from_str(&to.host).map_err(io::Error::other)?;
            let found = self.resolver.resolve(name).await.map_err(io::Error::other)?;
            found.map(|address| address.ip().to_canonical()).collect()
        };
        let is_public =
            |ip: IpAddr| private_network(ip).is_none() || self.lists.lists_address(ip, to.port);
        let (mut open, mut refused) = (Vec::new(), None);
        for ip in found {
            if self.lists.denies_address(ip, to.port) {
                refused = refused.or(Some(RefusalReason::Denied));
            } else if is_public(ip) {
                open.push(SocketAddr::new(ip, to.port));
            } else {
                refused = Some(RefusalReason::PrivateAddress);
            }
        }
        match refused.filter(|_| open.is_empty()) {
            Some(reason) => Err(ConnectError::Refused(reason)),
            None => Ok(open),
        }
    }
}

async fn connect_to_proxy(proxy: &UpstreamProxy) -> io::Result<TcpStream> {
    let connecting = TcpStream::connect((proxy.host.as_str(), proxy.port));
    timeout(CONNECT_MAX, connecting).await.map_err(|_| io::ErrorKind::TimedOut)?
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::super::super::super::web::Rebinding;
    use super::super::names::NameTable;
    use super::*;

    fn outgoing(allowed: &[String], answers: Vec<Vec<&'static str>>) -> Outgoing {
        let denied = ["denied.example", "192.0.2.7", "127.0.0.1:444"].map(str::to_owned);
        let lists = DomainLists::parse(allowed, &denied);
        Outgoing {
            lists: lists.expect("good lists"),
            resolver: Arc::new(Rebinding::new(answers)),
            proxy: Arc::new(|_| None),
        }
    }

    async fn reason(outgoing: &Outgoing, host: &str, port: u16) -> Option<RefusalReason> {
        let to = Destination::new(host, port, &NameTable::default()).expect("a host");
        match outgoing.connect(&to).await {
            Err(ConnectError::Refused(reason)) => Some(reason),
            Ok(_) | Err(ConnectError::Failed(_)) => None,
        }
    }

    #[tokio::test]
    async fn hosts_are_refused_by_the_lists_and_by_their_addresses() {
        let allowed = ["*", "10.0.0.1:9"].map(str::to_owned);
        let private = vec![vec!["127.0.0.1"], vec!["10.0.0.2", "169.254.169.254"], vec!["::1"]];
        let outgoing = outgoing(&allowed, private);
        for (host, expected) in [
            ("denied.example", RefusalReason::Denied),
            ("a.example", RefusalReason::PrivateAddress),
            ("b.example", RefusalReason::PrivateAddress),
            ("c.example", RefusalReason::PrivateAddress),
            ("8.8.8.8", RefusalReason::NotListed),
            ("10.0.0.1", RefusalReason::NotListed),
            ("localhost", RefusalReason::Loopback),
            ("x.localhost", RefusalReason::Loopback),
            ("127.0.0.1", RefusalReason::Loopback),
            ("0x7f000001", RefusalReason::Loopback),
            ("[::1]", RefusalReason::Loopback),
            ("0", RefusalReason::Loopback),
        ] {
            assert_eq!(reason(&outgoing, host, 443).await, Some(expected), "{host}");
        }
    }

    #[tokio::test]
    async fn a_denied_address_is_not_reached_by_another_name() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let allowed = ["*".to_owned(), format!("127.0.0.1:{port}"), "127.0.0.1:444".to_owned()];
        let answers = vec![
            vec!["192.0.2.7"],
            vec!["127.0.0.1"],
            vec!["192.0.2.7", "10.0.0.1"],
            vec!["192.0.2.7", "127.0.0.1"],
        ];
        let outgoing = outgoing(&allowed, answers);
        for expected in
            [RefusalReason::Denied, RefusalReason::Denied, RefusalReason::PrivateAddress]
        {
            assert_eq!(reason(&outgoing, "a.example", 444).await, Some(expected));
        }
        let to = Destination::new("a.example", port, &NameTable::default()).expect("a host");
        let stream = outgoing.connect(&to).await.expect("the second address is not denied");
        assert_eq!(stream.peer_addr().expect("it is connected").port(), port);
    }

    #[tokio::test]
    async fn the_address_that_was_checked_is_connected_to() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let allowed = ["a.example".to_owned(), format!("127.0.0.1:{port}")];
        let outgoing = outgoing(&allowed, vec![vec!["10.0.0.1", "127.0.0.1"], vec!["10.0.0.1"]]);
        let to = Destination::new("a.example", port, &NameTable::default()).expect("a host");
        let stream = outgoing.connect(&to).await.expect("the second address is listed");
        assert_eq!(stream.peer_addr().expect("it is connected").port(), port);
        let again = outgoing.connect(&to).await;
        assert!(matches!(again, Err(ConnectError::Refused(RefusalReason::PrivateAddress))));
    }
}
