//! A proxy as companies have them, on loopback: it wants a password perhaps, takes requests in
//! absolute form, and opens every tunnel to look inside, with a certificate of its own. The key in
//! `tests/data/tls` opens nothing else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The only host whose certificate the proxy can forge.
pub(crate) const HOST: &str = "model.test";

/// How a proxy behaves.
pub(crate) struct Manners {
    /// The `proxy-authorization` that it wants.
    pub(crate) wants: Option<&'static str>,
    /// What it answers instead of the service.
    pub(crate) answer: Vec<u8>,
    /// It holds every answer back until it is told to go on.
    pub(crate) hold: Option<Receiver<()>>,
}

/// A proxy that listens. Its thread ends with the process.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

pub(crate) fn tls(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls").join(name)
}

impl Proxy {
    pub(crate) fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let address = listener.local_addr().expect("bound");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                // A client that hangs up has its reasons.
                let _ = serve(socket.expect("a connection"), &manners, &noted);
            }
        });
        Self { address, seen }
    }

    /// Every request so far, those inside of tunnels too.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("nobody panics while writing").clone()
    }
}

fn serve(
    mut socket: TcpStream,
    manners: &Manners,
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let request = read(&mut socket)?;
    seen.lock().expect("nobody panics while writing").push(request.clone());
    let offered = request.lines().find_map(|line| line.strip_prefix("proxy-authorization: "));
    if manners.wants.is_some() && offered != manners.wants {
        let page = "<html><title>Proxy login</title></html>";
        return write!(
            socket,
            "HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\n\
             content-length: {}\r\n\r\n{page}",
            page.len()
        );
    }
    if !request.starts_with("connect ") {
        return reply(&mut socket, manners);
    }
    socket.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let mut tls = StreamOwned::new(forged(), socket);
    let inside = read(&mut tls)?;
    seen.lock().expect("nobody panics while writing").push(inside);
    reply(&mut tls, manners)?;
    tls.conn.send_close_notify();
    tls.flush()
}

fn reply(to: &mut impl Write, manners: &Manners) -> std::io::Result<()> {
    if let Some(hold) = &manners.hold {
        // Whoever drops the other end lets it go on as well.
        let _ = hold.recv();
    }
    to.write_all(&manners.answer)?;
    to.flush()
}

/// A whole request, its head in small letters.
fn read(from: &mut impl Read) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                return Ok(format!("{head}\r\n\r\n{body}"));
            }
        }
        let count = from.read(&mut piece)?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&piece[..count]);
    }
}

/// A session that claims to be the service.
fn forged() -> ServerConnection {
    let file = |name| std::fs::read(tls(name)).expect("the file is there");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(file("model.test.key.der")).expect("a key");
    let chain = vec![CertificateDer::from(file("model.test.der"))];
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring speaks them")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("they belong together");
    ServerConnection::new(Arc::new(config)).expect("the settings are right")
}
