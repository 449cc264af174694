//! The relay as a SOCKS proxy (RFC 1928), without a login.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The version of the protocol, which is the first byte from a client.
pub(super) const VERSION: u8 = 5;

const NO_LOGIN: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum SocksReply {
    Connected = 0,
    /// The lists refuse the destination.
    NotAllowed = 2,
    Unreachable = 4,
    NoSuchCommand = 7,
    NoSuchAddress = 8,
}

/// The host of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SocksHost {
    Address(SocketAddr),
    Name(String, u16),
}

/// Reads a request. `None`: it was refused, and a reply was sent.
///
/// # Errors
/// The connection fails, or it is not this protocol.
pub(super) async fn read_request(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> io::Result<Option<SocksHost>> {
    if client.read_u8().await? != VERSION {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut methods = vec![0; usize::from(client.read_u8().await?)];
    client.read_exact(&mut methods).await?;
    let method = if methods.contains(&NO_LOGIN) { NO_LOGIN } else { NO_METHOD };
    client.write_all(&[VERSION, method]).await?;
    if method == NO_METHOD {
        return Ok(None);
    }
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let [VERSION, command, _, kind] = head else { return Err(io::ErrorKind::InvalidData.into()) };
    if command != CONNECT {
        send_reply(client, SocksReply::NoSuchCommand).await?;
        return Ok(None);
    }
    let host = match kind {
        1 => {
            let address = Ipv4Addr::from(client.read_u32().await?);
            SocksHost::Address(SocketAddr::new(address.into(), client.read_u16().await?))
        }
        4 => {
            let address = Ipv6Addr::from(client.read_u128().await?);
            SocksHost::Address(SocketAddr::new(address.into(), client.read_u16().await?))
        }
        3 => {
            let mut name = vec![0; usize::from(client.read_u8().await?)];
            client.read_exact(&mut name).await?;
            let name = String::from_utf8(name).map_err(|_| io::ErrorKind::InvalidData)?;
            SocksHost::Name(name, client.read_u16().await?)
        }
        _ => {
            send_reply(client, SocksReply::NoSuchAddress).await?;
            return Ok(None);
        }
    };
    Ok(Some(host))
}

pub(super) async fn send_reply(
    client: &mut (impl AsyncWrite + Unpin),
    reply: SocksReply,
) -> io::Result<()> {
    // The address of the relay's own socket does not matter to clients.
    client.write_all(&[VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0]).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the request that is read from these bytes, and the replies to the client.
    async fn exchange(bytes: &[u8]) -> (io::Result<Option<SocksHost>>, Vec<u8>) {
        let (mut relay, mut client) = tokio::io::duplex(1024);
        client.write_all(bytes).await.expect("there is room");
        client.shutdown().await.expect("it is open");
        let read = read_request(&mut relay).await;
        drop(relay);
        let mut replies = Vec::new();
        client.read_to_end(&mut replies).await.expect("it is open");
        (read, replies)
    }

    #[tokio::test]
    async fn names_and_addresses_are_read() {
        let name = [&[5, 1, 0, 5, 1, 0, 3, 9][..], b"a.example", &[1, 187]].concat();
        let v4 = [5, 2, 2, 0, 5, 1, 0, 1, 192, 0, 2, 7, 0, 80];
        let v6 = [&[5, 1, 0, 5, 1, 0, 4][..], &Ipv6Addr::LOCALHOST.octets(), &[0, 22]].concat();
        let at = |text: &str| SocksHost::Address(text.parse().expect("an address"));
        for (bytes, expected) in [
            (&name[..], SocksHost::Name("a.example".to_owned(), 443)),
            (&v4, at("192.0.2.7:80")),
            (&v6, at("[::1]:22")),
        ] {
            let (read, replies) = exchange(bytes).await;
            assert_eq!(read.expect("it is a request"), Some(expected));
            assert_eq!(replies, [5, 0]);
        }
    }

    #[tokio::test]
    async fn other_commands_and_logins_are_refused() {
        for (bytes, replies) in [
            (&[5, 1, 2][..], &[5, 0xff][..]),
            (&[5, 1, 0, 5, 2, 0, 1], &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
            (&[5, 1, 0, 5, 3, 0, 1], &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
            (&[5, 1, 0, 5, 1, 0, 9], &[5, 0, 5, 8, 0, 1, 0, 0, 0, 0, 0, 0]),
        ] {
            let (read, sent) = exchange(bytes).await;
            assert_eq!(read.expect("it is this protocol"), None, "{bytes:?}");
            assert_eq!(sent, replies, "{bytes:?}");
        }
        for bytes in
            [&[4, 1][..], &[5], &[5, 1, 0, 4, 1, 0, 1], &[5, 1, 0, 5, 1, 0, 3, 1, 0xff, 0, 1]]
        {
            assert!(exchange(bytes).await.0.is_err(), "{bytes:?}");
        }
    }
}
