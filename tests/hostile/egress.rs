//! Ways round a list of domains.

use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use outlast::process::filters_system_calls;
use outlast::rehearsal::Scenario;
use outlast::tools::{
    DomainLists, Egress, EgressOptions, ProxyScheme, ToolSettings, UpstreamProxy,
};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::support::{FifoSignal, RunBuilder, serve};
use crate::tools::bench::text;
use crate::tools::sandbox::SandboxFixture;

/// The outside: a proxy that is all hosts, and records what is asked of it.
struct Outside {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    server: AbortHandle,
}

impl Outside {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let known = Arc::clone(&heads);
        let serve = async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&known)));
            }
        };
        Self { port, heads, server: tokio::spawn(serve).abort_handle() }
    }

    /// The heads of requests so far.
    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A sandbox whose commands reach these hosts, all of them through this proxy.
    fn fixture(&self, allowed: &[&str], denied: &[&str]) -> Option<SandboxFixture> {
        self.fixture_with(allowed, denied, |_| {})
    }

    fn fixture_with(
        &self,
        allowed: &[&str],
        denied: &[&str],
        change: impl FnOnce(&mut EgressOptions),
    ) -> Option<SandboxFixture> {
        let egress = self.egress(allowed, denied, change);
        let arrange = |settings: &mut ToolSettings| settings.sandbox.egress = Some(egress);
        match SandboxFixture::try_with(|settings, _| arrange(settings)) {
            Ok(fixture) => Some(fixture),
            Err((why, _)) => {
                assert!(!filters_system_calls(), "it can be held here: {why}");
                None
            }
        }
    }

    fn egress(
        &self,
        allowed: &[&str],
        denied: &[&str],
        change: impl FnOnce(&mut EgressOptions),
    ) -> Egress {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let proxy = UpstreamProxy {
            scheme: ProxyScheme::Http,
            host: "127.0.0.1".to_owned(),
            port: self.port,
            login: None,
        };
        let mut options = EgressOptions {
            lists: DomainLists::parse(&texts(allowed), &texts(denied)).expect("good lists"),
            allows_binding: true,
            allows_all_unix_sockets: false,
            unix_sockets: Vec::new(),
            proxy: Arc::new(move |_| Some(proxy.clone())),
        };
        change(&mut options);
        Egress::new(options)
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Answers a request: a greeting behind CONNECT, otherwise the head that was received.
async fn answer(mut stream: TcpStream, heads: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    heads.lock().unwrap_or_else(PoisonError::into_inner).push(head.clone());
    let answer = match head.split(' ').collect::<Vec<_>>()[..] {
        ["CONNECT", to, ..] => format!("HTTP/1.1 200 OK\r\n\r\nhello from {to}\n"),
        _ => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()),
    };
    // A client that is gone needs no answer.
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// A port of another program, which commands must not reach.
struct Neighbour {
    port: u16,
    listener: std::net::TcpListener,
}

impl Neighbour {
    fn open() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("it is ours");
        Self { port: listener.local_addr().expect("it is bound").port(), listener }
    }

    fn was_reached(&self) -> bool {
        self.listener.accept().is_ok()
    }
}

/// A command that runs a Python program of the working tree.
async fn python(fixture: &SandboxFixture, program: &str, arguments: &str) -> String {
    std::fs::write(fixture.root.join("work/program"), program).expect("a file");
    text(&fixture.bash(&format!("python3 program {arguments}")).await)
}

const WITHOUT_VARIABLES: &str = r#"
import socket, sys
for host, port in (("allowed.example", 443), ("a.sub.example", 22)):
    with socket.create_connection((host, port)) as made:
        print(made.recv(100).decode().strip())
for host in ("other.example", "sub.example", "denied.sub.example", "localhost.example"):
    try:
        socket.create_connection((host, 443))
        print("REACHED", host)
    except socket.gaierror:
        print("no", host)
made = socket.create_connection(("allowed.example", 80))
made.sendall(b"GET /x HTTP/1.1\r\nHost: other.example\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n")
print(made.makefile().read())
"#;

#[tokio::test]
async fn listed_names_are_reached_without_a_proxy_and_others_do_not_exist() {
    let outside = Outside::open().await;
    let listed = ["allowed.example", "*.sub.example"];
    let Some(fixture) = outside.fixture(&listed, &["denied.sub.example"]) else { return };
    let shown = python(&fixture, WITHOUT_VARIABLES, "").await;
    for line in [
        "hello from allowed.example:443",
        "hello from a.sub.example:22",
        "no other.example",
        "no sub.example",
        "no denied.sub.example",
        "no localhost.example",
        "GET http://allowed.example/x HTTP/1.1",
        "Host: allowed.example",
        "other.example (not in sandbox.network.allowedDomains)",
        "denied.sub.example (in sandbox.network.deniedDomains)",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains("REACHED"), "{shown}");
    let heads = outside.heads();
    assert_eq!(heads.len(), 3, "{heads:?}");
    assert_eq!(fixture.toolbox.sandbox().network, "allowlist");
    assert_eq!(fixture.toolbox.sandbox().allowed_domains, listed);
    let refused = fixture.toolbox.sandbox().egress.as_ref().expect("it is on").refusals();
    assert!(refused.iter().any(|it| it.host == "other.example" && it.count > 0), "{refused:?}");
}

/// Programs with resolvers of the system know nothing of a proxy.
#[tokio::test]
async fn programs_of_other_languages_are_held_without_variables() {
    let outside = Outside::open().await;
    let Some(fixture) = outside.fixture(&["allowed.example"], &[]) else { return };
    let node = "const net = require(\"net\"); for (const host of [\"allowed.example\", \
                \"other.example\"]) { const made = net.connect(443, host); \
                made.on(\"data\", data => { console.log(String(data)); made.end() }); \
                made.on(\"error\", error => console.log(\"no\", host, error.code)) }";
    let java = "import java.net.*; class Try { public static void main(String[] a) throws Exception \
                { for (String host : a) try (Socket s = new Socket(host, 443)) { \
                System.out.println(new String(s.getInputStream().readNBytes(30))); } \
                catch (UnknownHostException e) { System.out.println(\"no \" + host); } } }";
    for (program, file, source) in [("node", "try.js", node), ("java", "Try.java", java)] {
        std::fs::write(fixture.root.join("work").join(file), source).expect("a file");
        let run = format!("command -v {program} || exit 0; {program} {file}");
        let run = format!("{run} allowed.example other.example 2>&1");
        let shown = text(&fixture.bash(&run).await);
        if shown.lines().count() > 1 {
            assert!(shown.contains("hello from allowed.example:443"), "{program}: {shown}");
            assert!(shown.contains("no other.example"), "{program}: {shown}");
        }
    }
    assert!(outside.heads().iter().all(|head| head.contains("allowed.example:443")));
}

const PROXY_VERBS: &str = r#"
import os, socket
address = os.environ["HTTP_PROXY"].removeprefix("http://")
assert os.environ["https_proxy"] == os.environ["HTTP_PROXY"], os.environ
assert os.environ["ALL_PROXY"] == "socks5h://" + address, os.environ
host, port = address.split(":")
def ask(data):
    with socket.create_connection((host, int(port))) as made:
        made.sendall(data)
        made.settimeout(10)
        got = b""
        while chunk := made.recv(4096):
            got += chunk
        return got
print(ask(b"CONNECT allowed.example:443 HTTP/1.1\r\n\r\n"))
print(ask(b"CONNECT other.example:443 HTTP/1.1\r\n\r\n"))
print(ask(b"GET http://other.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n"))
print(ask(b"GET http://allowed.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n"))
print(ask(b"CONNECT 127.0.0.1:22 HTTP/1.1\r\n\r\n"))
print(ask(b"CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n"))
print(ask(b"GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n"))
def socks(name):
    return ask(b"\x05\x01\x00" + b"\x05\x01\x00\x03" + bytes([len(name)]) + name + b"\x01\xbb")
print("socks", socks(b"allowed.example")[2:].hex(), socks(b"other.example")[2:].hex())
"#;

#[tokio::test]
async fn the_relay_refuses_in_the_words_of_each_protocol() {
    let outside = Outside::open().await;
    let Some(fixture) = outside.fixture(&["allowed.example"], &[]) else { return };
    let shown = python(&fixture, PROXY_VERBS, "").await;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines[0].contains("200 Connection established\\r\\n\\r\\nhello from allowed"),
        "{shown}"
    );
    for refused in [1, 2, 4, 5] {
        assert!(lines[refused].contains("403 Forbidden\\r\\nx-proxy-error: blocked"), "{shown}");
    }
    assert!(lines[3].contains("Host: allowed.example\\r\\n"), "{shown}");
    assert!(!lines[3].contains("other.example"), "{shown}");
    assert!(lines[6].contains("400 Bad Request"), "{shown}");
    assert!(lines[7].starts_with("socks 0500000100000000000068656c6c6f"), "{shown}");
    assert!(lines[7].ends_with("05020001000000000000"), "{shown}");
    assert!(outside.heads().iter().all(|head| !head.contains("other.example")));
}

/// Prints each way that leads out. Whatever could end the program runs in a child.
const ATTEMPTS: &str = r#"
import array, ctypes, mmap, os, socket, struct, sys, threading
port, path, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
INET, STREAM, DGRAM = socket.AF_INET, socket.SOCK_STREAM, socket.SOCK_DGRAM
ways = {}
def way(act):
    ways[act.__name__] = act
def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "call")
    return result
def greeted(made):
    made.settimeout(5)
    if not made.recv(1):
        raise OSError("closed")
@way
def other_port():
    socket.create_connection(("127.0.0.1", port))
@way
def other_port_by_no_address():
    socket.create_connection(("0.0.0.0", port))
@way
def other_port_mapped():
    socket.socket(socket.AF_INET6, STREAM).connect(("::ffff:127.0.0.1", port))
@way
def literal():
    greeted(socket.create_connection(("192.0.2.1", 443)))
@way
def literal6():
    greeted(socket.create_connection(("2001:db8::1", 443)))
@way
def metadata():
    made = socket.create_connection(("169.254.169.254", 80))
    made.sendall(b"GET / HTTP/1.1\r\n\r\n")
    if b"403" in made.recv(100):
        raise OSError("refused")
@way
def made_up_that_was_not_given_out():
    greeted(socket.create_connection(("198.18.99.99", 443)))
@way
def udp():
    socket.socket(INET, DGRAM).sendto(b"x", ("127.0.0.1", port))
@way
def udp6():
    socket.socket(socket.AF_INET6, DGRAM)
@way
def multipath():
    socket.socket(INET, STREAM, 262)
@way
def streams():
    socket.socket(INET, STREAM, 132)
@way
def raw():
    socket.socket(INET, socket.SOCK_RAW, 1)
@way
def ping():
    socket.socket(INET, DGRAM, 1)
@way
def packet():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
@way
def vsock():
    socket.socket(40, STREAM)
@way
def algorithm():
    socket.socket(38, socket.SOCK_SEQPACKET)
@way
def audit_netlink():
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)
@way
def unix_datagram():
    socket.socket(socket.AF_UNIX, DGRAM)
@way
def datagram_pair():
    socket.socketpair(socket.AF_UNIX, DGRAM | socket.SOCK_NONBLOCK)
@way
def unix():
    socket.socket(socket.AF_UNIX, STREAM).connect(path)
@way
def unix_by_link():
    os.path.lexists("link") or os.symlink(path, "link")
    socket.socket(socket.AF_UNIX, STREAM).connect("link")
@way
def unix_by_hard_link():
    os.link(path, "same")
    socket.socket(socket.AF_UNIX, STREAM).connect("same")
@way
def unix_by_process_link():
    socket.socket(socket.AF_UNIX, STREAM).connect("/proc/self/root" + path)
@way
def abstract():
    socket.socket(socket.AF_UNIX, STREAM).connect("\0" + name)
@way
def fast_open():
    socket.socket(INET, STREAM).sendto(b"x", 0x20000000, ("127.0.0.1", port))
@way
def fast_open_message():
    socket.socket(INET, STREAM).sendmsg([b"x"], [], 0x20000000, ("127.0.0.1", port))
@way
def fast_open_connect():
    made = socket.socket(INET, STREAM)
    made.setsockopt(6, 30, 1)
    made.connect(("127.0.0.1", port))
@way
def disconnected_and_again():
    made = socket.create_connection(("192.0.2.1", 53))
    unspecified = struct.pack("=HH12x", 0, 0)
    call(42, made.fileno(), unspecified, 16)
@way
def source_route():
    made = socket.socket(INET, STREAM)
    made.setsockopt(0, 4, bytes([131, 7, 4]) + socket.inet_aton("192.0.2.1") + b"\0")
@way
def source_route6():
    made = socket.socket(socket.AF_INET6, STREAM)
    made.setsockopt(41, 57, bytes([0, 2, 2, 1, 0, 0, 0, 0]) + socket.inet_pton(10, "2001:db8::1"))
@way
def copied():
    made = os.dup(socket.socket(INET, STREAM).fileno())
    socket.socket(fileno=made).connect(("127.0.0.1", port))
@way
def passed_on():
    one, other = socket.socketpair()
    socket.send_fds(one, [b"x"], [socket.socket(INET, STREAM).fileno()])
    made = socket.recv_fds(other, 1, 1)[1][0]
    socket.socket(fileno=made).connect(("127.0.0.1", port))
@way
def ring():
    call(425, 8, ctypes.create_string_buffer(256))
@way
def other_numbers():
    call(0x40000000 | 41, 2, 1, 0)
@way
def other_architecture():
    # socket(AF_INET, SOCK_STREAM, 0) by the 32-bit interface: mov eax, 359; ...; int 0x80; ret
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("53b867010000bb02000000b901000000ba00000000cd805bc3"))
    at = ctypes.addressof(ctypes.c_char.from_buffer(code))
    if ctypes.CFUNCTYPE(ctypes.c_int)(at)() < 0:
        raise OSError()
@way
def listen_unbound():
    made = socket.socket(INET, STREAM)
    made.listen()
    if made.getsockname()[0] == "127.0.0.1":
        raise OSError("loopback only")
@way
def listen_everywhere():
    made = socket.socket(INET, STREAM)
    made.bind(("0.0.0.0", 0))
    made.listen()
    if made.getsockname()[0] == "127.0.0.1":
        raise OSError("loopback only")
@way
def privileged_port():
    socket.socket(INET, STREAM).bind(("127.0.0.1", 1))
@way
def other_namespace():
    call(272, 0x50000000)
    socket.create_connection(("127.0.0.1", port))
@way
def own_filter():
    # A filter that allows everything: the stricter one still counts.
    call(157, 38, 1, 0, 0, 0)
    allow = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7fff0000))
    program = struct.pack("=HxxxxxxQ", 1, ctypes.addressof(allow))
    call(317, 1, 0, program)
    socket.create_connection(("127.0.0.1", port))
@way
def own_listener():
    allow = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7fc00000))
    program = struct.pack("=HxxxxxxQ", 1, ctypes.addressof(allow))
    call(317, 1, 8, program)
@way
def undumpable():
    call(157, 4, 0)
    socket.create_connection(("127.0.0.1", port))
for name_of_way, act in ways.items():
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            act()
        except OSError as error:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status == 0:
        print("OPEN", name_of_way)
    elif os.WIFEXITED(status) and os.WEXITSTATUS(status) != 1:
        print("BROKEN", name_of_way)
server = socket.create_server(("", 0))
inner = socket.create_connection(("127.0.0.1", server.getsockname()[1]))
server6 = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
for host in ("127.0.0.1", "::1"):
    socket.create_connection((host, server6.getsockname()[1]))
young = socket.socket(socket.AF_UNIX)
young.bind("young")
young.listen()
socket.socket(socket.AF_UNIX).connect("young")
for kind in (STREAM, socket.SOCK_SEQPACKET):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    one.send(b"pair")
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).bind((0, 0))
print("own sockets work")
"#;

#[tokio::test]
async fn no_other_way_leads_out_and_own_sockets_work() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let (outside, neighbour) = (Outside::open().await, Neighbour::open());
    let name = format!("outlast-egress-{}", neighbour.port);
    let address = SocketAddr::from_abstract_name(&name).expect("a short name");
    let by_name = UnixListener::bind_addr(&address).expect("a new socket");
    let mut by_path = None;
    let arrange = |settings: &mut ToolSettings, root: &std::path::Path| {
        // It is there before the run, in a folder that commands write to.
        let listener = UnixListener::bind(root.join("work/socket")).expect("a new socket");
        by_path = Some(listener);
        settings.sandbox.egress = Some(outside.egress(&["allowed.example"], &[], |_| {}));
    };
    let Ok(fixture) = SandboxFixture::try_with(arrange) else {
        assert!(!filters_system_calls(), "it can be held here");
        return;
    };
    let path = fixture.path("work/socket");
    let arguments = format!("{} {path} {name}", neighbour.port);
    let shown = python(&fixture, ATTEMPTS, &arguments).await;
    let open: Vec<&str> =
        shown.lines().filter(|it| it.starts_with("OPEN") || it.starts_with("BROKEN")).collect();
    assert!(open.is_empty(), "{open:?}: {shown}");
    assert!(shown.contains("own sockets work"), "{shown}");
    assert!(!neighbour.was_reached(), "{shown}");
    for listener in [by_name, by_path.expect("it was bound")] {
        listener.set_nonblocking(true).expect("it is ours");
        assert!(listener.accept().is_err(), "{shown}");
    }
    assert!(outside.heads().is_empty(), "{:?}", outside.heads());
}

/// An address that another process changes in shared memory, and a descriptor that another thread
/// puts another socket in the place of.
const RACES: &str = r#"
import ctypes, mmap, os, signal, socket, struct, sys, threading
port, tries = int(sys.argv[1]), int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
server = socket.create_server(("127.0.0.1", 0), backlog=4000)
own = server.getsockname()[1]
shared = mmap.mmap(-1, 4096)
at = ctypes.addressof(ctypes.c_char.from_buffer(shared))
shared[:16] = struct.pack("=H", 2) + struct.pack("!H", own) + socket.inet_aton("127.0.0.1") + bytes(8)
changer = os.fork()
if changer == 0:
    good, bad = struct.pack("!H", own), struct.pack("!H", port)
    while True:
        shared[2:4] = bad
        shared[2:4] = good
done = refused = 0
for _ in range(tries):
    made = socket.socket()
    if libc.connect(made.fileno(), ctypes.c_void_p(at), 16) == 0:
        done += 1
        if made.getpeername()[1] != own:
            print("REACHED", made.getpeername())
    else:
        refused += 1
    made.close()
os.kill(changer, signal.SIGKILL)
print("connected", done, "refused", refused)
slot = os.dup(0)
stop = False
def swap():
    while not stop:
        one, other = socket.socket(), socket.socket(socket.AF_UNIX)
        os.dup2(other.fileno(), slot)
        os.dup2(one.fileno(), slot)
        bound = one.getsockname()
        if bound not in (("0.0.0.0", 0),) and bound[0] != "127.0.0.1":
            print("BOUND", bound)
swapper = threading.Thread(target=swap)
swapper.start()
wildcard = struct.pack("=HH4s8x", 2, 0, bytes(4))
for _ in range(tries):
    libc.bind(slot, wildcard, 16)
    libc.listen(slot, 1)
    libc.connect(slot, struct.pack("=H", 2) + struct.pack("!H", port) + bytes([127, 0, 0, 1]) + bytes(8), 16)
stop = True
swapper.join()
print("raced")
"#;

#[tokio::test]
async fn an_address_or_descriptor_that_changes_meanwhile_is_what_was_decided() {
    let (outside, neighbour) = (Outside::open().await, Neighbour::open());
    let Some(fixture) = outside.fixture(&["allowed.example"], &[]) else { return };
    let shown = python(&fixture, RACES, &format!("{} 1500", neighbour.port)).await;
    assert!(shown.contains("raced"), "{shown}");
    assert!(!shown.contains("REACHED") && !shown.contains("BOUND"), "{shown}");
    assert!(!neighbour.was_reached(), "{shown}");
}

const MANY_SOCKETS: &str = r#"
import socket, threading
for _ in range(3000):
    socket.socket().close()
kept = [socket.socket() for _ in range(100)]
server = socket.create_server(("127.0.0.1", 0), backlog=1)
address = server.getsockname()
made = []
def connect():
    one = socket.socket()
    one.connect(address)
    assert one.getblocking()
    made.append(one)
waiting = [threading.Thread(target=connect) for _ in range(6)]
for thread in waiting:
    thread.start()
# While these wait for a place in the queue, others are decided.
with socket.create_connection(("allowed.example", 443)) as other:
    print(other.recv(100).decode())
accepted = []
server.settimeout(0.1)
while any(thread.is_alive() for thread in waiting):
    try:
        accepted.append(server.accept()[0])
    except TimeoutError:
        pass
print("made", len(made))
server = socket.create_server(("127.0.0.1", 0))
later = socket.socket()
later.setblocking(False)
try:
    later.connect(server.getsockname())
except BlockingIOError:
    pass
accepted.append(server.accept()[0])
for one in made + [later]:
    one.close()
for one in accepted:
    one.settimeout(60)
    assert one.recv(1) == b"", "a closed connection ends"
print("ended")
fresh = socket.create_server(("127.0.0.1", 0))
kept[0].connect(fresh.getsockname())
print("kept")
"#;

#[tokio::test]
async fn many_sockets_and_a_full_queue_neither_block_nor_leak() {
    let outside = Outside::open().await;
    let Some(fixture) = outside.fixture(&["allowed.example"], &[]) else { return };
    let shown = python(&fixture, MANY_SOCKETS, "").await;
    for line in ["hello from allowed.example:443", "made 6", "ended", "kept"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

const RESOLVERS: &str = r#"
import socket, struct
def ask(server, name):
    query = struct.pack("!6H", 7, 0x100, 1, 0, 0, 0)
    query += b"".join(bytes([len(part)]) + part for part in name.split(b".")) + b"\0\0\1\0\1"
    with socket.create_connection((server, 53)) as made:
        made.sendall(struct.pack("!H", len(query)) + query)
        size = struct.unpack("!H", made.recv(2))[0]
        answer = made.recv(size)
        return answer[3] & 15, socket.inet_ntoa(answer[-4:]) if answer[7] else None
for server in ("127.0.0.53", "192.0.2.53", "127.0.0.1"):
    print(ask(server, b"allowed.example"), ask(server, b"secret.other.example"))
"#;

#[tokio::test]
async fn every_resolver_is_outlasts_and_asks_no_other() {
    let outside = Outside::open().await;
    let Some(fixture) = outside.fixture(&["allowed.example"], &[]) else { return };
    let shown = python(&fixture, RESOLVERS, "").await;
    let answers = shown.lines().filter(|line| *line == "(0, '198.18.0.1') (3, None)").count();
    assert_eq!(answers, 3, "{shown}");
    assert!(outside.heads().is_empty(), "{:?}", outside.heads());
}

#[tokio::test]
async fn listed_ports_of_this_machine_are_reached_and_binding_can_be_closed() {
    let (outside, neighbour) = (Outside::open().await, Neighbour::open());
    let listed = format!("localhost:{}", neighbour.port);
    let close = |options: &mut EgressOptions| options.allows_binding = false;
    let Some(fixture) = outside.fixture_with(&[&listed], &[], close) else { return };
    let program = "import socket, sys\n\
                   made = socket.create_connection((\"127.0.0.1\", int(sys.argv[1])))\n\
                   print(\"connected\")\n\
                   for act in (lambda: socket.socket().bind((\"127.0.0.1\", 0)), \
                   lambda: socket.socket().listen()):\n\
                   \x20   try:\n        act()\n        print(\"OPEN\")\n\
                   \x20   except PermissionError:\n        print(\"closed\")\n";
    let shown = python(&fixture, program, &neighbour.port.to_string()).await;
    assert!(shown.contains("connected") && !shown.contains("OPEN"), "{shown}");
    assert_eq!(shown.lines().filter(|line| *line == "closed").count(), 2, "{shown}");
    assert!(neighbour.was_reached(), "{shown}");
}

const ORPHAN: &str = r#"
import os, socket, time
bell = open("bell", "w", buffering=1)
print(os.getpid(), file=bell)
end = time.time() + 60
while time.time() < end:
    try:
        socket.socket().close()
    except OSError as error:
        print("errno", error.errno, file=bell)
        break
"#;

/// What is left of a command whose supervisor, job init process and outlast were killed at once has
/// no sockets.
#[tokio::test]
async fn an_orphan_of_killed_supervisors_has_no_sockets() {
    if !filters_system_calls() {
        return;
    }
    let scenario = Scenario::new().tool("Bash", json!({ "command": "python3 orphan.py" }));
    let server = serve(scenario.reply("Done."));
    let trial = RunBuilder::bare(&server.base_url());
    let settings = r#"{"sandbox": {"network": {"allowedDomains": ["a.example"]}}}"#;
    for (name, text) in [("settings.json", settings), ("orphan.py", ORPHAN)] {
        std::fs::write(trial.work().join(name), text).expect("a file");
    }
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let args = ["Do it.", "--allowedTools", "Bash", "--settings", "settings.json"];
    let run = trial.args(args).start();
    let orphan: i32 = bell.wait_for_line().await.parse().expect("a process");
    let above =
        std::iter::successors(Some(orphan), |pid| (*pid != run.pid()).then(|| parent(*pid)));
    let above: Vec<i32> = above.skip(1).collect();
    // Outlast, its supervisor and the job init process: the shell of the command dies with these.
    let killed = &above[above.len() - 3..];
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        for pid in killed {
            kill(Pid::from_raw(*pid), signal).expect("it is alive");
        }
    }
    assert_eq!(bell.wait_for_line().await, "errno 38", "the calls are not implemented any more");
}

/// The parent of a process.
fn parent(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is alive");
    let fields = stat.rsplit_once(')').expect("the name is in brackets").1;
    fields.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()).expect("a process")
}
