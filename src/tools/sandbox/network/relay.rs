//! The relay: serves the connections that the notifier registered, and no others.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
    copy_bidirectional,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::process::{
    ConnectionTarget, JobEgress, Refusal, RefusalReason, RegisteredConnection, RunEgress,
};

use super::body::copy_body;
use super::destination::Destination;
use super::dns::{self, NameAnswer};
use super::http_proxy::{self, ForwardedRequest, HttpRequest};
use super::names::NameTable;
use super::outgoing::{ConnectError, Outgoing};

/// The header by which programs distinguish refusals of the relay from those of servers.
const REFUSED_HEADER: &str = "x-proxy-error: blocked-by-allowlist";

/// The port of plain HTTP, on which requests are parsed.
const HTTP_PORT: u16 = 80;

/// The time that a connection stays open after its job has ended; and the longest silence of a
/// server after the client has sent everything or closed the connection.
const GRACE: Duration = Duration::from_secs(30);

/// The size of the buffer for answers, in bytes.
const CHUNK: usize = 16 << 10;

pub(super) struct Relay {
    pub(super) run: Arc<RunEgress>,
    pub(super) outgoing: Outgoing,
    names: Mutex<NameTable>,
    grace: Duration,
}

/// A connection of a job that is served.
struct Client {
    relay: Arc<Relay>,
    stream: TcpStream,
    job: JobEgress,
}

impl Relay {
    pub(super) fn new(run: Arc<RunEgress>, outgoing: Outgoing) -> Self {
        Self { run, outgoing, names: Mutex::default(), grace: GRACE }
    }

    /// Serves connections until the run ends.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener, end: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = end.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, source)) => self.accept(stream, source, &end),
                // No descriptor is left; other connections will free theirs.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    fn accept(self: &Arc<Self>, stream: TcpStream, source: SocketAddr, end: &CancellationToken) {
        let Some(RegisteredConnection { target, job }) = self.run.register.take(source) else {
            return reset(&stream);
        };
        let Some(permit) = job.open_connection() else {
            job.refuse(Refusal::new("all", None, RefusalReason::TooMany));
            return reset(&stream);
        };
        let client = Client { relay: Arc::clone(self), stream, job: job.clone() };
        let (end, grace) = (end.clone(), self.grace);
        tokio::spawn(async move {
            let job_ended = async {
                job.ended().await;
                tokio::time::sleep(grace).await;
            };
            tokio::select! {
                () = end.cancelled() => {}
                () = job_ended => {}
                // An error ends the connection.
                _ = client.serve(target) => {}
            }
            drop(permit);
        });
    }

    /// Answers a query for a name. No other server is queried, so that a query cannot carry data to
    /// one.
    fn look_up(&self, name: &str, job: &JobEgress) -> NameAnswer {
        let found = Destination::new(name, 0, &NameTable::default());
        let Some(name) = found.filter(|to| to.address().is_none()).map(|to| to.host) else {
            return NameAnswer::Unknown;
        };
        match self.outgoing.lists.check_name(&name) {
            Ok(()) => {
                self.names.lock().address_of(&name).map_or(NameAnswer::Failure, NameAnswer::Address)
            }
            Err(reason) => {
                // Reverse lookups fail, too, but are not reported as refusals.
                if name.rsplit('.').next() != Some("arpa") {
                    job.refuse(Refusal::new(name, None, reason));
                }
                NameAnswer::Unknown
            }
        }
    }
}

impl Client {
    async fn serve(mut self, target: ConnectionTarget) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        match target {
            ConnectionTarget::Resolver => self.serve_resolver().await,
            ConnectionTarget::Proxy => self.serve_http(None).await,
            ConnectionTarget::Address(address) => self.serve_address(address).await,
        }
    }

    async fn serve_resolver(&mut self) -> io::Result<()> {
        loop {
            let Ok(length) = self.stream.read_u16().await else { return Ok(()) };
            let mut message = vec![0; usize::from(length)];
            self.stream.read_exact(&mut message).await?;
            let look_up = |name: &str| self.relay.look_up(name, &self.job);
            let Some(answer) = dns::respond(&message, look_up) else { return Ok(()) };
            let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
            self.stream.write_all(&[&length.to_be_bytes()[..], &answer].concat()).await?;
        }
    }

    /// Serves a connection that a program made without a proxy.
    async fn serve_address(mut self, address: SocketAddr) -> io::Result<()> {
        let found = Destination::at(address, &self.relay.names.lock());
        let Some(to) = found else {
            self.record(&address.ip().to_string(), address.port(), RefusalReason::NotListed);
            reset(&self.stream);
            return Ok(());
        };
        if to.port == HTTP_PORT {
            return self.serve_http(Some(to)).await;
        }
        if let Ok(mut server) = self.connect(&to).await {
            copy_bidirectional(&mut self.stream, &mut server).await.map(drop)
        } else {
            reset(&self.stream);
            Ok(())
        }
    }

    /// Serves one request. `known` is the destination of a connection that was made without a
    /// proxy.
    async fn serve_http(mut self, known: Option<Destination>) -> io::Result<()> {
        let mut received = Vec::new();
        let (length, request) = loop {
            if self.stream.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
            let parsed = http_proxy::parse(&received, known.as_ref(), &self.relay.names.lock());
            match parsed {
                Ok(Some(found)) => break found,
                Ok(None) => {}
                Err(http_proxy::BadRequest) => {
                    return self
                        .send_error("400 Bad Request", "", "outlast: malformed request")
                        .await;
                }
            }
        };
        let rest = received.split_off(length);
        match request {
            HttpRequest::Connect(to) => match self.connect(&to).await {
                Ok(mut server) => {
                    self.stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
                    server.write_all(&rest).await?;
                    copy_bidirectional(&mut self.stream, &mut server).await.map(drop)
                }
                Err(error) => self.send_connect_error(&to, &error).await,
            },
            HttpRequest::Forward(request) => self.forward(&request, &rest).await,
        }
    }

    async fn forward(mut self, request: &ForwardedRequest, rest: &[u8]) -> io::Result<()> {
        let connected = self.relay.outgoing.connect_for_http(&request.to).await;
        let (mut server, proxy) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                self.record_error(&request.to, &error);
                return self.send_connect_error(&request.to, &error).await;
            }
        };
        server.write_all(&request.head(proxy.as_ref())).await?;
        let (from_client, mut to_client) = self.stream.split();
        let (mut from_server, mut to_server) = server.split();
        let mut body = BufReader::new(rest.chain(from_client));
        let sent = CancellationToken::new();
        let upload = async {
            // A server answers or closes the connection if the rest of a body is missing.
            let _ = copy_body(&mut body, &mut to_server, request.body).await;
            read_to_end(&mut body).await;
            sent.cancel();
            std::future::pending().await
        };
        let grace = self.relay.grace;
        let answered = tokio::select! {
            never = upload => never,
            answered = copy_answer(&mut from_server, &mut to_client, &sent, grace) => answered,
        };
        match answered {
            Ok(()) => to_client.shutdown().await,
            Err(error) => {
                // The end of the connection may mean that the answer is complete.
                reset(&self.stream);
                Err(error)
            }
        }
    }

    async fn connect(&self, to: &Destination) -> Result<TcpStream, ConnectError> {
        let connected = self.relay.outgoing.connect(to).await;
        connected.inspect_err(|error| self.record_error(to, error))
    }

    fn record_error(&self, to: &Destination, error: &ConnectError) {
        if let ConnectError::Refused(reason) = error {
            self.record(&to.host, to.port, *reason);
        }
    }

    fn record(&self, host: &str, port: u16, reason: RefusalReason) {
        self.job.refuse(Refusal::new(host, Some(port), reason));
    }

    async fn send_connect_error(
        &mut self,
        to: &Destination,
        error: &ConnectError,
    ) -> io::Result<()> {
        match error {
            ConnectError::Refused(_) => {
                let text = format!("outlast: {to} is not among the hosts that commands may reach");
                self.send_error("403 Forbidden", REFUSED_HEADER, &text).await
            }
            ConnectError::Failed(error) => {
                let text = format!("outlast: no connection to {to}: {error}");
                self.send_error("502 Bad Gateway", "", &text).await
            }
        }
    }

    async fn send_error(&mut self, status: &str, header: &str, text: &str) -> io::Result<()> {
        let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
        let response = format!(
            "HTTP/1.1 {status}\r\n{header}Content-Type: text/plain\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{text}\n",
            text.len() + 1
        );
        self.stream.write_all(response.as_bytes()).await?;
        self.stream.shutdown().await
    }
}

/// Copies an answer to the client until the server closes the connection.
///
/// # Errors
/// A connection failed; or nothing came for the time `grace` after the client had `sent`
/// everything.
async fn copy_answer(
    server: &mut (impl AsyncRead + Unpin),
    client: &mut (impl AsyncWrite + Unpin),
    sent: &CancellationToken,
    grace: Duration,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let silence = async {
            sent.cancelled().await;
            tokio::time::sleep(grace).await;
        };
        let count = tokio::select! {
            biased;
            count = server.read(&mut buffer) => count?,
            () = silence => return Err(io::ErrorKind::TimedOut.into()),
        };
        if count == 0 {
            return Ok(());
        }
        client.write_all(&buffer[..count]).await?;
    }
}

/// Reads and discards what a client sends after its request, until the client has sent everything.
async fn read_to_end(from_client: &mut (impl AsyncBufRead + Unpin)) {
    while let Ok(count @ 1..) = from_client.fill_buf().await.map(<[u8]>::len) {
        from_client.consume(count);
    }
}

/// Makes the connection end with a reset, as if no program listened.
fn reset(stream: &TcpStream) {
    // On failure, the connection ends without a reset.
    let _ = stream.set_zero_linger();
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::timeout;

    use super::super::super::super::web::SystemResolver;
    use super::super::lists::DomainLists;
    use super::super::upstream::{ProxyScheme, UpstreamProxy};
    use super::*;
    use crate::process::{EgressTerms, SessionEgress, UnixSocketTerms};

    /// A timeout that only a connection that stays open reaches.
    const PATIENCE: Duration = Duration::from_mins(1);

    struct Fixture {
        relay: Arc<Relay>,
        job: JobEgress,
        listener: TcpListener,
        /// The proxy through which `a.example` is reached.
        outside: TcpListener,
    }

    impl Fixture {
        /// A relay without any grace.
        async fn open() -> Self {
            let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
            let listener = bind().await.expect("a free port");
            let outside = bind().await.expect("a free port");
            let SocketAddr::V4(address) = listener.local_addr().expect("it is bound") else {
                panic!("it is bound to an IPv4 address");
            };
            let proxy = UpstreamProxy {
                scheme: ProxyScheme::Http,
                host: Ipv4Addr::LOCALHOST.to_string(),
                port: outside.local_addr().expect("it is bound").port(),
                login: None,
            };
            let outgoing = Outgoing {
                lists: DomainLists::parse(&["a.example".to_owned()], &[]).expect("good lists"),
                resolver: Arc::new(SystemResolver),
                proxy: Arc::new(move |_| Some(proxy.clone())),
            };
            let session = SessionEgress::default();
            let unix = UnixSocketTerms {
                allows_all: false,
                listed: Vec::new(),
                writable: Vec::new(),
                since: session.since(),
            };
            let (allows_binding, loopback_ports) = (false, Vec::new());
            let terms = EgressTerms { relay: address, allows_binding, loopback_ports, unix };
            let run = Arc::new(RunEgress::new(terms, session, Vec::new()));
            let job = JobEgress::new(&run, &Arc::new(CancellationToken::new().drop_guard()));
            let relay = Relay { grace: Duration::ZERO, ..Relay::new(run, outgoing) };
            Self { relay: Arc::new(relay), job, listener, outside }
        }

        /// A connection that the relay serves.
        async fn connect(&self, target: ConnectionTarget, end: &CancellationToken) -> TcpStream {
            let to = self.listener.local_addr().expect("it is bound");
            let stream = TcpStream::connect(to).await.expect("it listens");
            let source = stream.local_addr().expect("it is connected");
            let connection = RegisteredConnection { target, job: self.job.clone() };
            self.relay.run.register.add(source, connection);
            let (accepted, source) = self.listener.accept().await.expect("it is connected");
            self.relay.accept(accepted, source, end);
            stream
        }
    }

    /// Waits until the other side has closed the connection.
    async fn is_closed(stream: &mut TcpStream) -> bool {
        let read = timeout(PATIENCE, stream.read(&mut [0; 1])).await;
        matches!(read, Ok(Ok(0) | Err(_)))
    }

    #[tokio::test]
    async fn connections_end_with_the_run_and_with_their_job() {
        let fixture = Fixture::open().await;
        for ends_job in [false, true] {
            let end = CancellationToken::new();
            let mut stream = fixture.connect(ConnectionTarget::Resolver, &end).await;
            // A question for `b.example`, which is answered first.
            let question = b"\0\x1b\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01b\x07example\0\0\x01\0\x01";
            stream.write_all(question).await.expect("it is open");
            let length = stream.read_u16().await.expect("an answer");
            stream.read_exact(&mut vec![0; usize::from(length)]).await.expect("an answer");
            if ends_job {
                fixture.job.end();
            } else {
                end.cancel();
            }
            assert!(is_closed(&mut stream).await, "{ends_job}");
        }
    }

    #[tokio::test]
    async fn a_request_ends_when_its_client_is_gone_and_no_answer_comes() {
        let fixture = Fixture::open().await;
        let end = CancellationToken::new();
        let mut client = fixture.connect(ConnectionTarget::Proxy, &end).await;
        // The bytes after the request are not a second request.
        let request = b"GET http://a.example/ HTTP/1.1\r\n\r\nmore";
        client.write_all(request).await.expect("it is open");
        let (mut server, _) = fixture.outside.accept().await.expect("it is connected");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(server.read_u8().await.expect("a head"));
        }
        drop(client);
        assert!(is_closed(&mut server).await, "{}", String::from_utf8_lossy(&head));
    }

    /// Its end would otherwise mean that the answer is complete.
    #[tokio::test]
    async fn an_answer_that_breaks_off_ends_with_a_reset() {
        let fixture = Fixture::open().await;
        let end = CancellationToken::new();
        let mut client = fixture.connect(ConnectionTarget::Proxy, &end).await;
        let request = b"GET http://a.example/ HTTP/1.1\r\n\r\n";
        client.write_all(request).await.expect("it is open");
        let (_server, _) = fixture.outside.accept().await.expect("it is connected");
        client.shutdown().await.expect("it is open");
        let read = timeout(PATIENCE, client.read(&mut [0; 1])).await.expect("the grace is over");
        assert_eq!(read.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_goes_on_after_its_client_has_sent_everything() {
        let (mut server, mut from_server) = tokio::io::duplex(64);
        let (mut to_client, mut client) = tokio::io::duplex(64);
        let (sent, grace) = (CancellationToken::new(), Duration::from_secs(30));
        sent.cancel();
        let pieces = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                server.write_all(b"piece").await.expect("it is open");
            }
            server
        };
        let copied = copy_answer(&mut from_server, &mut to_client, &sent, grace);
        let (copied, server) = tokio::join!(copied, pieces);
        assert_eq!(copied.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        drop((to_client, server));
        let mut received = String::new();
        client.read_to_string(&mut received).await.expect("text");
        assert_eq!(received, "piece".repeat(5));
    }
}
