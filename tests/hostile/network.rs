//! Ways round a network that is off.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use outlast::process::filters_system_calls;
use outlast::tools::{PermissionMode, SandboxMode};

use super::{SOCKET_WAYS, run_python};
use crate::support::programs::write_program;
use crate::tools::bench::text;
use crate::tools::sandbox::SandboxFixture;

/// Prints each way that leads to a socket.
const WAYS_WITHOUT_NETWORK: &str = r#"
@way
def tcp():
    socket.create_connection(("127.0.0.1", port))
@way
def tcp6():
    socket.socket(socket.AF_INET6, STREAM)
@way
def listen_unbound():
    socket.socket(INET, STREAM).listen()
@way
def netlink():
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
@way
def inherited():
    own = [os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd")
           if os.path.islink("/proc/self/fd/" + fd)]
    if not any(name.startswith("socket:") for name in own):
        raise OSError()
try_ways()
for kind in (STREAM, socket.SOCK_SEQPACKET):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    one.send(b"pair")
    print(other.recv(4).decode())
import asyncio
asyncio.run(asyncio.sleep(0))
print("asyncio")
"#;

#[tokio::test]
async fn a_network_that_is_off_has_no_sockets() {
    for (no_network, mode) in [(false, SandboxMode::Workspace), (true, SandboxMode::Required)] {
        let fixture = SandboxFixture::try_with(|settings, _| {
            settings.sandbox.mode = mode;
            settings.sandbox.no_network = no_network;
        });
        let fixture = match fixture {
            Ok(fixture) => fixture,
            Err((why, _)) => {
                assert!(!filters_system_calls(), "it can hold, and does not begin: {why}");
                return;
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let path = fixture.path("socket");
        let _by_path = UnixListener::bind(&path).expect("a new socket");
        let name = format!("outlast-hostile-{port}");
        let address = SocketAddr::from_abstract_name(&name).expect("a short name");
        let _by_name = UnixListener::bind_addr(&address).expect("a new socket");
        let arguments = format!("{port} {path} {name}");
        let shown =
            run_python(&fixture, &[SOCKET_WAYS, WAYS_WITHOUT_NETWORK].concat(), &arguments).await;
        let open: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("OPEN ")).collect();
        if no_network {
            assert_eq!(fixture.toolbox.sandbox().network, "off");
            assert!(open.is_empty() && !shown.contains("BROKEN"), "{open:?}: {shown}");
        } else {
            assert_eq!(fixture.toolbox.sandbox().network, "open");
            assert!(open.len() >= 10, "these work at all: {open:?}: {shown}");
        }
        assert!(shown.ends_with("pair\npair\nasyncio"), "pairs of sockets stay: {shown}");
    }
}

/// A command without a rule has no network either, whatever it runs.
#[tokio::test]
async fn commands_without_a_rule_have_no_sockets() {
    if !filters_system_calls() {
        return;
    }
    let fixture =
        SandboxFixture::with(|settings, _| settings.permissions.mode = PermissionMode::Plan);
    let script = "#!/usr/bin/perl\nuse Socket;\nfor ([2, 1], [2, 2], [1, 1], [16, 3]) {\n\
                  print STDERR socket(S, $$_[0], $$_[1], 0) ? \"OPEN\\n\" : \"shut\\n\" }\n";
    let work = fixture.root.join("work");
    for command in ["init -q", "config core.fsmonitor ./attempts"] {
        let mut git = std::process::Command::new("git");
        git.args(command.split(' ')).current_dir(&work).env("HOME", &work);
        assert!(git.status().expect("git is installed").success());
    }
    write_program(&work.join("attempts"), script);
    let shown = text(&fixture.bash("git status").await);
    assert!(shown.contains("shut") && !shown.contains("OPEN"), "{shown}");
}
