//! Notifies systemd that the run has begun, that it is alive, and that it ends: the protocol of
//! `sd_notify(3)`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::agent::{Observer, RunEvent};
use crate::config::environment::Variables;

/// Number of heartbeat intervals without an event after which a run counts as hung.
const MISSED_HEARTBEATS: u32 = 3;

/// Pings the watchdog of a service as long as the run reports events, heartbeats included. A run
/// that hangs reports no events, so that systemd ends it.
pub struct ServiceNotifier {
    service: Arc<Service>,
    pings: Option<JoinHandle<()>>,
}

struct Service {
    socket: UnixDatagram,
    /// Time of the run's last event.
    last_event: Mutex<Instant>,
}

/// The socket of systemd cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("systemd is not notified of this run: NOTIFY_SOCKET {name}: {error}")]
pub struct UnusableSocket {
    name: String,
    error: io::Error,
}

impl ServiceNotifier {
    /// Notifies systemd that the run has begun, if `NOTIFY_SOCKET` is set. `heartbeat` is the
    /// longest time between two events of a run.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn begin(
        variables: &Variables,
        heartbeat: Duration,
    ) -> Result<Option<Self>, UnusableSocket> {
        let set = |name: &str| variables.get(OsStr::new(name)).filter(|value| !value.is_empty());
        let Some(name) = set("NOTIFY_SOCKET") else { return Ok(None) };
        let unusable = |error| UnusableSocket { name: name.to_string_lossy().into(), error };
        let socket = connect(name).map_err(unusable)?;
        let service = Arc::new(Service { socket, last_event: Mutex::new(Instant::now()) });
        service.send("READY=1");
        let number = |name: &str| set(name)?.to_str()?.trim().parse::<u64>().ok();
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let limit = number("WATCHDOG_USEC").filter(|limit| is_ours && *limit > 0);
        let pings = limit.map(|limit| {
            let period = Duration::from_micros(limit / 2).max(Duration::from_millis(1));
            tokio::spawn(Arc::clone(&service).ping_while_alive(period, heartbeat))
        });
        Ok(Some(Self { service, pings }))
    }
}

impl Observer for ServiceNotifier {
    fn observe(&mut self, _: &RunEvent) {
        *self.service.last_event.lock() = Instant::now();
    }
}

impl Drop for ServiceNotifier {
    fn drop(&mut self) {
        if let Some(pings) = &self.pings {
            pings.abort();
        }
        self.service.send("STOPPING=1");
    }
}

impl Service {
    fn send(&self, state: &str) {
        // If systemd does not read the message, its own time limits apply.
        let _unread = self.socket.send(state.as_bytes());
    }

    async fn ping_while_alive(self: Arc<Self>, period: Duration, heartbeat: Duration) {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let last = *self.last_event.lock();
            if last.elapsed() <= heartbeat.saturating_mul(MISSED_HEARTBEATS) {
                self.send("WATCHDOG=1");
            }
        }
    }
}

/// Connects to a socket with a path, or with an abstract name after `@`.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match name.as_bytes() {
        [b'/', ..] => socket.connect(name)?,
        [b'@', rest @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(rest)?)?,
        _ => return Err(io::Error::other("it is neither a path nor an abstract name")),
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARTBEAT: Duration = Duration::from_secs(30);

    fn received(socket: &UnixDatagram) -> Vec<String> {
        let mut buffer = [0; 256];
        let mut all = Vec::new();
        while let Ok(length) = socket.recv(&mut buffer) {
            all.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        all
    }

    /// A watchdog of 20 seconds, for the process `pid`.
    fn service(pid: &str) -> (tempfile::TempDir, UnixDatagram, Variables) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a setting of a socket");
        let set = [("WATCHDOG_USEC", "20000000"), ("WATCHDOG_PID", pid)];
        let mut variables: Variables =
            set.map(|(name, value)| (name.into(), value.into())).into_iter().collect();
        variables.insert("NOTIFY_SOCKET".into(), path.into());
        (folder, socket, variables)
    }

    #[tokio::test(start_paused = true)]
    async fn pings_come_at_half_the_watchdog_time_and_stop_when_the_run_hangs() {
        let (_folder, socket, variables) = service(&std::process::id().to_string());
        let notifier = ServiceNotifier::begin(&variables, HEARTBEAT).expect("it can be used");
        tokio::time::sleep(Duration::from_secs(89)).await;
        let mut wanted = vec!["WATCHDOG=1".to_owned(); 9];
        wanted.insert(0, "READY=1".to_owned());
        assert_eq!(received(&socket), wanted, "at 0, 10, ... 80 seconds");
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(received(&socket), ["WATCHDOG=1"], "the last one after 90 seconds of silence");
        let mut notifier = notifier.expect("a socket was named");
        notifier.observe(&RunEvent::Warning(String::new()));
        tokio::time::sleep(Duration::from_secs(25)).await;
        drop(notifier);
        tokio::time::sleep(Duration::from_mins(1)).await;
        let after = received(&socket);
        assert_eq!(after.len(), 4, "it works again: {after:?}");
        assert_eq!(after.last().map(String::as_str), Some("STOPPING=1"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_of_another_process_is_left_alone() {
        let (_folder, socket, variables) = service("1");
        let notifier = ServiceNotifier::begin(&variables, HEARTBEAT).expect("it can be used");
        tokio::time::sleep(Duration::from_mins(1)).await;
        drop(notifier);
        assert_eq!(received(&socket), ["READY=1", "STOPPING=1"]);
    }

    #[test]
    fn a_socket_that_cannot_be_used_is_named() {
        let (folder, _socket, mut variables) = service("1");
        for name in [folder.path().join("none").display().to_string(), "vsock:2:99".to_owned()] {
            variables.insert("NOTIFY_SOCKET".into(), name.clone().into());
            let error = ServiceNotifier::begin(&variables, HEARTBEAT).err().expect("unusable");
            assert!(error.to_string().contains(&name), "{error}");
        }
        variables.insert("NOTIFY_SOCKET".into(), "".into());
        assert!(ServiceNotifier::begin(&variables, HEARTBEAT).expect("not asked for").is_none());
    }
}
