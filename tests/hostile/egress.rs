//! Commands that are held to a list of hosts: what they reach, and what they are told.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use outlast::process::filters_system_calls;
use outlast::rehearsal::Scenario;
use outlast::tools::EgressOptions;
use serde_json::json;
use tokio::net::TcpSocket;

use super::recording_proxy::{RecordingProxy, UnlistedPort};
use super::run_python;
use crate::support::{FifoSignal, RunBuilder, serve};
use crate::tools::bench::text;

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
    let proxy = RecordingProxy::open().await;
    let listed = ["allowed.example", "*.sub.example"];
    let Some(fixture) = proxy.fixture(&listed, &["denied.sub.example"]) else { return };
    let shown = run_python(&fixture, WITHOUT_VARIABLES, "").await;
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
    let heads = proxy.heads();
    assert_eq!(heads.len(), 3, "{heads:?}");
    assert_eq!(fixture.toolbox.sandbox().network, "allowlist");
    assert_eq!(fixture.toolbox.sandbox().allowed_domains, listed);
    let refused = fixture.toolbox.sandbox().egress.as_ref().expect("it is on").refusals();
    assert!(refused.iter().any(|it| it.host == "other.example" && it.count > 0), "{refused:?}");
}

/// Programs with resolvers of the system know nothing of a proxy.
#[tokio::test]
async fn programs_of_other_languages_are_held_without_variables() {
    let proxy = RecordingProxy::open().await;
    let Some(fixture) = proxy.fixture(&["allowed.example"], &[]) else { return };
    let node = "const net = require(\"net\"); for (const host of [\"allowed.example\", \
                \"other.example\"]) { const made = net.connect(443, host); \
                made.on(\"data\", data => { console.log(String(data)); made.end() }); \
                made.on(\"error\", error => console.log(\"no\", host, error.code)) }";
    let java = "import java.net.*; class Try { \
                public static void main(String[] a) throws Exception { for (String host : a) try (Socket s = new Socket(host, 443)) { \
                System.out.println(new String(s.getInputStream().readNBytes(30))); } \
                catch (UnknownHostException e) { System.out.println(\"no \" + host); } } }";
    for (program, file, source) in [("node", "try.js", node), ("java", "Try.java", java)] {
        std::fs::write(fixture.root.join("work").join(file), source).expect("a file");
        let found = fixture.bash(&format!("command -v {program} || echo none")).await;
        if text(&found).trim() == "none" {
            continue;
        }
        let run = format!("{program} {file} allowed.example other.example 2>&1");
        let shown = text(&fixture.bash(&run).await);
        assert!(shown.contains("hello from allowed.example:443"), "{program}: {shown}");
        assert!(shown.contains("no other.example"), "{program}: {shown}");
    }
    assert!(proxy.heads().iter().all(|head| head.contains("allowed.example:443")));
}

const PROXY_VERBS: &str = r#"
import os, socket
address = os.environ["HTTP_PROXY"].removeprefix("http://")
assert os.environ["https_proxy"] == os.environ["HTTP_PROXY"], os.environ
assert os.environ["ALL_PROXY"] == os.environ["all_proxy"] == "", os.environ
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
"#;

#[tokio::test]
async fn the_relay_refuses_in_the_words_of_http() {
    let proxy = RecordingProxy::open().await;
    let Some(fixture) = proxy.fixture(&["allowed.example"], &[]) else { return };
    let shown = run_python(&fixture, PROXY_VERBS, "").await;
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
    assert!(proxy.heads().iter().all(|head| !head.contains("other.example")));
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
    let proxy = RecordingProxy::open().await;
    let Some(fixture) = proxy.fixture(&["allowed.example"], &[]) else { return };
    let shown = run_python(&fixture, MANY_SOCKETS, "").await;
    for line in ["hello from allowed.example:443", "made 6", "ended", "kept"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

const INHERITED_SOCKETS: &str = r#"
for kind in (STREAM, STREAM | socket.SOCK_CLOEXEC):
    print("inherited", os.get_inheritable(libc.socket(socket.AF_INET, kind, 0)))
"#;

#[tokio::test]
async fn programs_that_a_command_starts_inherit_its_sockets_unless_it_closes_them() {
    let proxy = RecordingProxy::open().await;
    let Some(fixture) = proxy.fixture(&["allowed.example"], &[]) else { return };
    let shown = run_python(&fixture, INHERITED_SOCKETS, "").await;
    assert_eq!(shown.trim(), "inherited True\ninherited False");
}

const FAILED_CONNECTS: &str = r#"
import select
closed = ("127.0.0.1", int(sys.argv[1]))
print("waited", socket.socket().connect_ex(closed))
made = socket.socket()
made.setblocking(False)
print("began", made.connect_ex(closed) == errno.EINPROGRESS)
select.select([], [made], [])
# Further calls are decided after what is known of the connection.
for _ in range(3):
    socket.socket().close()
print("then", made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
full, free = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
for listener, path in ((full, "full"), (free, "free")):
    listener.bind(path)
    listener.listen(0)
first, shared = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
first.connect("full")
def connect():
    print("elsewhere", shared.connect_ex("full"))
waiting = threading.Thread(target=connect)
waiting.start()
def is_calling():
    with open("/proc/self/task/%d/syscall" % waiting.native_id) as call:
        return call.read().split()[0] == str(CONNECT)
while waiting.is_alive() and not is_calling():
    pass
shared.connect("free")
waiting.join(60)
print("still waits", waiting.is_alive())
sys.stdout.flush()
os._exit(0)
"#;

#[tokio::test]
async fn a_failed_connection_is_an_error_for_those_who_wait_and_for_those_who_do_not() {
    let proxy = RecordingProxy::open().await;
    // Bound, so that no other program takes it, and not listening.
    let closed = TcpSocket::new_v4().expect("the system has sockets");
    closed.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let port = closed.local_addr().expect("it is bound").port();
    let Some(fixture) = proxy.fixture(&[&format!("localhost:{port}")], &[]) else { return };
    let shown = run_python(&fixture, FAILED_CONNECTS, &port.to_string()).await;
    let refused = nix::errno::Errno::ECONNREFUSED as i32;
    let elsewhere = nix::errno::Errno::EISCONN as i32;
    for line in [
        format!("waited {refused}"),
        "began True".to_owned(),
        format!("then {refused}"),
        format!("elsewhere {elsewhere}"),
        "still waits False".to_owned(),
    ] {
        assert!(shown.lines().any(|it| it == line), "{line}: {shown}");
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
    let proxy = RecordingProxy::open().await;
    let Some(fixture) = proxy.fixture(&["allowed.example"], &[]) else { return };
    let shown = run_python(&fixture, RESOLVERS, "").await;
    let answers = shown.lines().filter(|line| *line == "(0, '198.18.0.1') (3, None)").count();
    assert_eq!(answers, 3, "{shown}");
    assert!(proxy.heads().is_empty(), "{:?}", proxy.heads());
}

#[tokio::test]
async fn listed_ports_of_this_machine_are_reached_and_binding_can_be_closed() {
    let (proxy, unlisted) = (RecordingProxy::open().await, UnlistedPort::open());
    let listed = format!("localhost:{}", unlisted.port);
    let close = |options: &mut EgressOptions| options.allows_binding = false;
    let Some(fixture) = proxy.fixture_with(&[&listed], &[], close) else { return };
    let program = "import socket, sys\n\
                   made = socket.create_connection((\"127.0.0.1\", int(sys.argv[1])))\n\
                   print(\"connected\")\n\
                   for act in (lambda: socket.socket().bind((\"127.0.0.1\", 0)), \
                   lambda: socket.socket().listen()):\n\
                   \x20   try:\n        act()\n        print(\"OPEN\")\n\
                   \x20   except PermissionError:\n        print(\"closed\")\n";
    let shown = run_python(&fixture, program, &unlisted.port.to_string()).await;
    assert!(shown.contains("connected") && !shown.contains("OPEN"), "{shown}");
    assert_eq!(shown.lines().filter(|line| *line == "closed").count(), 2, "{shown}");
    assert!(unlisted.was_reached(), "{shown}");
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

/// Processes of a command whose supervisor, job init process and outlast were killed at once have
/// no sockets.
#[tokio::test]
async fn an_orphan_of_killed_supervisors_has_no_sockets() {
    if !filters_system_calls() {
        return;
    }
    let scenario = Scenario::new().tool("Bash", json!({ "command": "python3 -I -S orphan.py" }));
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
