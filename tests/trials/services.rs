//! A run as a service of systemd: what it says on the socket that systemd names.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use outlast::rehearsal::Scenario;
use serde_json::json;

use crate::support::{FifoSignal, RunBuilder, serve, with_time_limit};

/// The next message on a socket.
async fn next(socket: &tokio::net::UnixDatagram) -> String {
    let mut buffer = [0; 256];
    let length = with_time_limit("a notice", socket.recv(&mut buffer)).await.expect("a notice");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

async fn notifies(socket: UnixDatagram, name: &str) {
    socket.set_nonblocking(true).expect("a setting of a socket");
    let socket = tokio::net::UnixDatagram::from_std(socket).expect("a socket");
    let command = "echo ${NOTIFY_SOCKET-none} ${WATCHDOG_USEC-none} > bell; read line < hold";
    let scenario = Scenario::new().tool("Bash", json!({ "command": command })).reply("Done.");
    let server = serve(scenario);
    let run = RunBuilder::against(&server)
        .env("NOTIFY_SOCKET", name)
        .env("WATCHDOG_USEC", "200000")
        .args(["Do it."]);
    let mut bell = FifoSignal::at(&run.work().join("bell"));
    let hold = run.work().join("hold");
    nix::unistd::mkfifo(&hold, nix::sys::stat::Mode::S_IRWXU).expect("a pipe can be made");
    let running = run.start();
    assert_eq!(next(&socket).await, "READY=1");
    assert_eq!(bell.wait_for_line().await, "none none", "a command is no service");
    for _ in 0..5 {
        assert_eq!(next(&socket).await, "WATCHDOG=1", "pings come while a command runs");
    }
    std::fs::write(&hold, "go\n").expect("the command reads it");
    let ended = running.end().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.result()["warnings"], json!([]), "{ended:?}");
    let mut last = next(&socket).await;
    while last == "WATCHDOG=1" {
        last = next(&socket).await;
    }
    assert_eq!(last, "STOPPING=1");
}

#[tokio::test]
async fn systemd_is_told_of_the_begin_the_life_and_the_end_of_a_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    notifies(UnixDatagram::bind(&path).expect("a socket"), &path.display().to_string()).await;
}

#[tokio::test]
async fn systemd_may_name_an_abstract_socket() {
    let name = format!("outlast-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    notifies(UnixDatagram::bind_addr(&address).expect("a socket"), &format!("@{name}")).await;
}

#[tokio::test]
async fn a_socket_that_is_gone_costs_a_warning_and_not_the_run() {
    let server = serve(Scenario::new().reply("Done."));
    let run = RunBuilder::against(&server).env("NOTIFY_SOCKET", "/nowhere/notify");
    let ended = run.args(["Do it."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let warning = ended.result()["warnings"][0].as_str().unwrap_or_default().to_owned();
    assert!(warning.contains("NOTIFY_SOCKET /nowhere/notify"), "{ended:?}");
}
