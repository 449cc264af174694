//! The status of a server, and its reconnect backoff. Pure.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

/// The wait before the first reconnect; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);

const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The most reconnects before giving up.
const ATTEMPTS: u32 = 5;

/// A connection that lasted this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_mins(1);

/// A stream that lasted this long resets the backoff: proxies end idle streams after some seconds.
const STREAM_STABLE_AFTER: Duration = Duration::from_secs(10);

/// The status of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServerStatus {
    /// It is connecting, for the first time or again.
    #[default]
    Pending,
    Connected,
    /// It requires a login, which an unattended run cannot do. It is not tried again.
    NeedsAuth,
    Failed,
    Disabled,
}

/// The status of one server, as reported in results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServerReport {
    pub name: String,
    pub status: ServerStatus,
    /// The reason that it is not connected, if known.
    #[serde(rename = "error", skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The name that it reported when it was last connected.
    #[serde(skip)]
    pub identity: Option<ServerIdentity>,
}

/// The name and the version that a server declares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerIdentity {
    pub name: String,
    pub version: String,
}

/// The statistics of a run's servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct McpStats {
    pub servers: Vec<ServerReport>,
    pub calls: u32,
    /// Calls without an answer, or with an error.
    pub failed: u32,
    /// Connections that were restored after a loss.
    pub reconnects: u32,
}

/// The reason that there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConnectionLoss {
    /// A retry may succeed.
    Transient(String),
    /// A retry is useless.
    Permanent(String),
    NeedsAuth(String),
    /// The server dropped the session: a new one can be opened at once.
    Expired,
    /// The stream of the first version of the protocol has ended: another can be opened at once.
    StreamEnded,
}

/// The use of a connection until its loss.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConnectionUse {
    pub(super) lasted: Duration,
    pub(super) has_answered: bool,
}

impl ConnectionUse {
    /// True if the loss does not indicate a broken server.
    fn resets_backoff(self, loss: &ConnectionLoss) -> bool {
        let stable_after = match loss {
            ConnectionLoss::StreamEnded => STREAM_STABLE_AFTER,
            ConnectionLoss::Transient(_)
            | ConnectionLoss::Permanent(_)
            | ConnectionLoss::NeedsAuth(_)
            | ConnectionLoss::Expired => STABLE_AFTER,
        };
        self.has_answered || self.lasted >= stable_after
    }
}

/// Counts recent losses of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReconnectBackoff {
    failures: u32,
}

impl ReconnectBackoff {
    /// Records the loss of a connection. Returns the wait before the next attempt, or `None` to
    /// give up.
    pub(super) fn record_loss(
        &mut self,
        loss: &ConnectionLoss,
        usage: ConnectionUse,
    ) -> Option<Duration> {
        if usage.resets_backoff(loss) {
            self.failures = 0;
        }
        self.failures += 1;
        if self.failures > ATTEMPTS {
            return None;
        }
        match loss {
            ConnectionLoss::Permanent(_) | ConnectionLoss::NeedsAuth(_) => None,
            ConnectionLoss::Expired | ConnectionLoss::StreamEnded if self.failures == 1 => {
                Some(Duration::ZERO)
            }
            ConnectionLoss::Transient(_)
            | ConnectionLoss::Expired
            | ConnectionLoss::StreamEnded => {
                Some((FIRST_WAIT * 2_u32.pow(self.failures - 1)).min(LONGEST_WAIT))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost() -> ConnectionLoss {
        ConnectionLoss::Transient("gone".to_owned())
    }

    fn usage(lasted: Duration) -> ConnectionUse {
        ConnectionUse { lasted, has_answered: false }
    }

    #[test]
    fn mcp_backoff_gives_up_after_five_attempts() {
        let mut backoff = ReconnectBackoff::default();
        let waits: Vec<_> =
            (0..6).map(|_| backoff.record_loss(&lost(), usage(Duration::from_secs(59)))).collect();
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(waits, [seconds(1), seconds(2), seconds(4), seconds(8), seconds(16), None]);
    }

    #[test]
    fn a_lasting_mcp_connection_resets_the_backoff() {
        let mut backoff = ReconnectBackoff::default();
        for _ in 0..5 {
            backoff.record_loss(&lost(), usage(Duration::ZERO));
        }
        assert_eq!(backoff.record_loss(&lost(), usage(STABLE_AFTER)), Some(FIRST_WAIT));
    }

    #[test]
    fn an_expired_mcp_session_is_renewed_at_once_but_only_once() {
        let mut backoff = ReconnectBackoff::default();
        assert_eq!(
            backoff.record_loss(&ConnectionLoss::Expired, usage(Duration::ZERO)),
            Some(Duration::ZERO)
        );
        assert_eq!(
            backoff.record_loss(&ConnectionLoss::Expired, usage(Duration::ZERO)),
            Some(Duration::from_secs(2))
        );
        let refused = ConnectionLoss::NeedsAuth("401".to_owned());
        assert_eq!(ReconnectBackoff::default().record_loss(&refused, usage(Duration::ZERO)), None);
    }

    #[test]
    fn the_loss_of_an_mcp_connection_that_was_of_use_is_not_counted() {
        let answered = ConnectionUse { lasted: Duration::ZERO, has_answered: true };
        let idle = usage(STREAM_STABLE_AFTER);
        for (loss, of_use, wait) in [
            (ConnectionLoss::Expired, answered, Duration::ZERO),
            (ConnectionLoss::StreamEnded, idle, Duration::ZERO),
            (lost(), answered, FIRST_WAIT),
        ] {
            let mut backoff = ReconnectBackoff::default();
            for _ in 0..2 * ATTEMPTS {
                assert_eq!(backoff.record_loss(&loss, of_use), Some(wait), "{loss:?}");
            }
        }
        // An idle stream that always ends soon is given up.
        for lasted in [Duration::ZERO, STREAM_STABLE_AFTER / 2] {
            let mut backoff = ReconnectBackoff::default();
            let waits = (0..=ATTEMPTS)
                .map(|_| backoff.record_loss(&ConnectionLoss::StreamEnded, usage(lasted)));
            assert_eq!(waits.last(), Some(None), "{lasted:?}");
        }
    }
}
