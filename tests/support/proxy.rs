//! A proxy as companies have them, on loopback: it wants a password perhaps, takes requests in
//! absolute form, and opens every tunnel to look inside, with a certificate of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use rustls::StreamOwned;

use super::wire::session_as;

/// The only host whose certificate the proxy can forge.
pub(crate) const HOST: &str = "model.test";

/// The behaviour of a proxy.
pub(crate) struct ProxyBehavior {
    /// The `proxy-authorization` that it wants.
    pub(crate) wants: Option<&'static str>,
    /// The answer in place of the service's.
    pub(crate) answer: Vec<u8>,
    /// The answer to every request for a tunnel, in place of opening it.
    pub(crate) refusal: Option<&'static str>,
    /// It holds every answer back until it is told to go on.
    pub(crate) hold: Option<Receiver<()>>,
}

/// A proxy that listens. Its thread ends with the process.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    pub(crate) fn start(manners: ProxyBehavior) -> Self {
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
        self.seen.lock().expect("no panic while writing").clone()
    }
}

fn serve(
    mut socket: TcpStream,
    manners: &ProxyBehavior,
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let request = read(&mut socket)?;
    seen.lock().expect("no panic while writing").push(request.clone());
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
    if request.starts_with("connect ")
        && let Some(refusal) = manners.refusal
    {
        return write!(socket, "HTTP/1.0 {refusal}\r\nconnection: close\r\n\r\n<p>no</p>");
    }
    if !request.starts_with("connect ") {
        return reply(&mut socket, manners);
    }
    socket.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let mut tls = StreamOwned::new(session_as(HOST), socket);
    let inside = read(&mut tls)?;
    seen.lock().expect("no panic while writing").push(inside);
    reply(&mut tls, manners)?;
    tls.conn.send_close_notify();
    tls.flush()
}

fn reply(to: &mut impl Write, manners: &ProxyBehavior) -> std::io::Result<()> {
    if let Some(hold) = &manners.hold {
        // Dropping the sender releases the answer as well.
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
