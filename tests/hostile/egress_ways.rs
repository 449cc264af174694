//! Ways past a list of hosts.

use outlast::process::filters_system_calls;
use outlast::tools::ToolSettings;

use super::recording_proxy::{RecordingProxy, UnlistedPort};
use super::{SOCKET_WAYS, run_python};
use crate::tools::sandbox::SandboxFixture;

/// Prints each way that leads out.
const WAYS_PAST_LISTS: &str = r#"
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
def udp6():
    socket.socket(socket.AF_INET6, DGRAM)
@way
def streams():
    socket.socket(INET, STREAM, 132)
@way
def ping():
    socket.socket(INET, DGRAM, 1)
@way
def audit_netlink():
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)
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
    call(CONNECT, made.fileno(), unspecified, 16)
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
    call(UNSHARE, 0x50000000)
    socket.create_connection(("127.0.0.1", port))
@way
def own_filter():
    # A filter that allows everything: the stricter one still counts.
    call(PRCTL, 38, 1, 0, 0, 0)
    allow = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7fff0000))
    program = struct.pack("=HxxxxxxQ", 1, ctypes.addressof(allow))
    call(SECCOMP, 1, 0, program)
    socket.create_connection(("127.0.0.1", port))
@way
def own_listener():
    allow = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7fc00000))
    program = struct.pack("=HxxxxxxQ", 1, ctypes.addressof(allow))
    call(SECCOMP, 1, 8, program)
@way
def undumpable():
    call(PRCTL, 4, 0)
    socket.create_connection(("127.0.0.1", port))
@way
def shared_port():
    socket.socket(INET, STREAM).setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
try_ways()
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
    let (proxy, unlisted) = (RecordingProxy::open().await, UnlistedPort::open());
    let name = format!("outlast-egress-{}", unlisted.port);
    let address = SocketAddr::from_abstract_name(&name).expect("a short name");
    let by_name = UnixListener::bind_addr(&address).expect("a new socket");
    let mut by_path = None;
    let arrange = |settings: &mut ToolSettings, root: &std::path::Path| {
        // It is there before the run, in a folder that commands write to.
        let listener = UnixListener::bind(root.join("work/socket")).expect("a new socket");
        by_path = Some(listener);
        settings.sandbox.egress = Some(proxy.egress(&["allowed.example"], &[], |_| {}));
    };
    let Ok(fixture) = SandboxFixture::try_with(arrange) else {
        assert!(!filters_system_calls(), "it can be held here");
        return;
    };
    let path = fixture.path("work/socket");
    let arguments = format!("{} {path} {name}", unlisted.port);
    let shown = run_python(&fixture, &[SOCKET_WAYS, WAYS_PAST_LISTS].concat(), &arguments).await;
    let open: Vec<&str> =
        shown.lines().filter(|it| it.starts_with("OPEN") || it.starts_with("BROKEN")).collect();
    assert!(open.is_empty(), "{open:?}: {shown}");
    assert!(shown.contains("own sockets work"), "{shown}");
    assert!(!unlisted.was_reached(), "{shown}");
    for listener in [by_name, by_path.expect("it was bound")] {
        listener.set_nonblocking(true).expect("it is ours");
        assert!(listener.accept().is_err(), "{shown}");
    }
    assert!(proxy.heads().is_empty(), "{:?}", proxy.heads());
}

/// An address that another process changes in shared memory, and a descriptor that another thread
/// puts another socket in the place of.
const RACES: &str = r#"
port, tries = int(sys.argv[1]), int(sys.argv[2])
server = socket.create_server(("127.0.0.1", 0))
own = server.getsockname()[1]
def address(port, host="127.0.0.1"):
    return struct.pack("=H", 2) + struct.pack("!H", port) + socket.inet_aton(host) + bytes(8)
def race(name, act):
    # Until both outcomes were seen often enough, or there were many tries.
    outcomes = [0, 0]
    for tried in range(tries):
        outcomes[act()] += 1
        if tried >= 1000 and min(outcomes) >= 20:
            break
    print("race", name, *outcomes, sum(outcomes))
shared = mmap.mmap(-1, 4096)
at = ctypes.addressof(ctypes.c_char.from_buffer(shared))
shared[:16] = address(own)
changer = os.fork()
if changer == 0:
    good, bad = struct.pack("!H", own), struct.pack("!H", port)
    while True:
        shared[2:4] = bad
        shared[2:4] = good
def connect():
    with socket.socket() as made:
        if libc.connect(made.fileno(), ctypes.c_void_p(at), 16) != 0:
            return 0
        if made.getpeername()[1] != own:
            print("REACHED", made.getpeername())
        server.accept()[0].close()
        return 1
race("address", connect)
os.kill(changer, signal.SIGKILL)
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
def bind():
    bound = libc.bind(slot, address(0, "0.0.0.0"), 16)
    libc.listen(slot, 1)
    libc.connect(slot, address(port), 16)
    return int(bound == 0)
race("descriptor", bind)
stop = True
swapper.join()
"#;

/// The most tries of a race, after which an outcome counts as one that this machine does not show.
const TRIES_MAX: u32 = 10_000;

#[tokio::test]
async fn an_address_or_descriptor_that_changes_meanwhile_is_what_was_decided() {
    let (proxy, unlisted) = (RecordingProxy::open().await, UnlistedPort::open());
    let Some(fixture) = proxy.fixture(&["allowed.example"], &[]) else { return };
    let arguments = format!("{} {TRIES_MAX}", unlisted.port);
    let shown = run_python(&fixture, RACES, &arguments).await;
    for name in ["address", "descriptor"] {
        let line = shown.lines().find_map(|it| it.strip_prefix(&format!("race {name} ")));
        let numbers = line.unwrap_or_else(|| panic!("{name}: {shown}")).split(' ');
        let numbers: Vec<u32> = numbers.map(|it| it.parse().expect("a number")).collect();
        let [refused, done, tries] = numbers[..] else { panic!("{shown}") };
        assert!((refused > 0 && done > 0) || tries == TRIES_MAX, "{shown}");
    }
    assert!(!shown.contains("REACHED") && !shown.contains("BOUND"), "{shown}");
    assert!(!unlisted.was_reached(), "{shown}");
}
