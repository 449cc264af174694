//! The proxy through which outlast itself reaches the internet.

use std::io;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::destination::Destination;

/// The longest head of a proxy's response, in bytes.
const HEAD_MAX: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyScheme {
    Http,
    Socks5,
    /// A protocol that the relay does not support: connections through it fail.
    Other,
}

/// A proxy that the relay connects to in place of the destination.
#[derive(Clone)]
pub struct UpstreamProxy {
    pub scheme: ProxyScheme,
    pub host: String,
    pub port: u16,
    /// User and password.
    pub login: Option<(String, String)>,
}

/// Chooses the proxy for a URL, by the variables of outlast's own environment.
pub type ChooseProxy = Arc<dyn Fn(&Url) -> Option<UpstreamProxy> + Send + Sync>;

impl UpstreamProxy {
    /// The line of the header with the login. Empty if there is none.
    pub(super) fn authorization(&self) -> String {
        self.login.as_ref().map_or_else(String::new, |(user, password)| {
            let login = STANDARD.encode(format!("{user}:{password}"));
            format!("Proxy-Authorization: Basic {login}\r\n")
        })
    }

    /// Requests a connection to the destination from the proxy.
    pub(super) async fn tunnel(&self, stream: &mut TcpStream, to: &Destination) -> io::Result<()> {
        match self.scheme {
            ProxyScheme::Http => self.tunnel_by_http(stream, to).await,
            ProxyScheme::Socks5 => self.tunnel_by_socks(stream, to).await,
            ProxyScheme::Other => {
                Err(broken("only http and socks5 proxies are used for the network of commands"))
            }
        }
    }

    async fn tunnel_by_http(&self, stream: &mut TcpStream, to: &Destination) -> io::Result<()> {
        let login = self.authorization();
        let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{login}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        // Bytes after the head belong to the connection.
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= HEAD_MAX {
                return Err(broken("the head of the proxy's response is too long"));
            }
            head.push(stream.read_u8().await?);
        }
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        response.parse(&head).map_err(|_| broken("the proxy does not speak HTTP"))?;
        match response.code {
            Some(200..=299) => Ok(()),
            Some(_) | None => Err(broken("the proxy refuses the connection")),
        }
    }

    async fn tunnel_by_socks(&self, stream: &mut TcpStream, to: &Destination) -> io::Result<()> {
        let length_of = |text: &str| u8::try_from(text.len()).ok();
        let method = if self.login.is_some() { 2 } else { 0 };
        stream.write_all(&[5, 1, method]).await?;
        let mut chosen = [0; 2];
        stream.read_exact(&mut chosen).await?;
        if chosen != [5, method] {
            return Err(broken("the proxy does not accept this kind of login"));
        }
        if let Some((user, password)) = &self.login {
            let lengths = length_of(user).zip(length_of(password));
            let (user_length, password_length) =
                lengths.ok_or_else(|| broken("the login is too long"))?;
            let login =
                [&[1, user_length], user.as_bytes(), &[password_length], password.as_bytes()]
                    .concat();
            stream.write_all(&login).await?;
            stream.read_exact(&mut chosen).await?;
            if chosen[1] != 0 {
                return Err(broken("the proxy does not accept the login"));
            }
        }
        let host = to.bare_host();
        let length = length_of(host).ok_or_else(|| broken("the name is too long"))?;
        let name = [&[5, 1, 0, 3, length], host.as_bytes(), &to.port.to_be_bytes()].concat();
        stream.write_all(&name).await?;
        let mut reply = [0; 4];
        stream.read_exact(&mut reply).await?;
        let rest = match reply {
            [5, 0, _, 1] => 4,
            [5, 0, _, 4] => 16,
            [5, 0, _, 3] => usize::from(stream.read_u8().await?),
            _ => return Err(broken("the proxy refuses the connection")),
        };
        stream.read_exact(&mut vec![0; rest + 2]).await.map(drop)
    }
}

fn broken(why: &str) -> io::Error {
    io::Error::other(why.to_owned())
}
