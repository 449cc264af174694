//! How a server stands, and when it is started anew. Pure.

use std::time::Duration;

/// The first wait before a lost server is started anew; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// No wait is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How often a server is started anew before it is given up.
const ATTEMPTS: u32 = 5;

/// A connection that held so long owes nothing to the ones before it.
const STABLE_AFTER: Duration = Duration::from_mins(1);

/// How a server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerStatus {
    /// It is being started, for the first time or anew.
    Pending,
    Connected,
    /// It wants somebody to log in, and nobody is there. It is not asked again.
    NeedsAuth,
    Failed,
    Disabled,
}

impl ServerStatus {
    /// The name used in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Connected => "connected",
            Self::NeedsAuth => "needs-auth",
            Self::Failed => "failed",
            Self::Disabled => "disabled",
        }
    }
}

/// A server, for whoever watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    pub name: String,
    pub status: ServerStatus,
    /// Why it is not connected, as far as that is known.
    pub why: Option<String>,
}

/// What the servers of a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpStats {
    pub servers: Vec<ServerReport>,
    pub calls: u32,
    /// Calls that were not answered, or answered with an error.
    pub failed: u32,
    /// Connections that were made again after a loss.
    pub reconnects: u32,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConnectionLoss {
    /// Another try may find it well.
    Transient(String),
    /// No further try is of use.
    Permanent(String),
    NeedsAuth(String),
    /// The session was forgotten by the server: a new one can be had at once.
    Expired,
}

/// How often a server was lost of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReconnectBackoff {
    failures: u32,
}

impl ReconnectBackoff {
    /// The server was lost after it was connected for `held`. Says how long to wait before the
    /// next attempt, or that there is none.
    pub(super) fn record_loss(&mut self, loss: &ConnectionLoss, held: Duration) -> Option<Duration> {
        if held >= STABLE_AFTER {
            self.failures = 0;
        }
        self.failures += 1;
        if self.failures > ATTEMPTS {
            return None;
        }
        match loss {
            ConnectionLoss::Permanent(_) | ConnectionLoss::NeedsAuth(_) => None,
            ConnectionLoss::Expired if self.failures == 1 => Some(Duration::ZERO),
            ConnectionLoss::Transient(_) | ConnectionLoss::Expired => {
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

    #[test]
    fn a_server_that_is_lost_again_and_again_is_given_up_after_five_attempts() {
        let mut backoff = ReconnectBackoff::default();
        let waits: Vec<_> =
            (0..6).map(|_| backoff.record_loss(&lost(), Duration::from_secs(59))).collect();
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(waits, [seconds(1), seconds(2), seconds(4), seconds(8), seconds(16), None]);
    }

    #[test]
    fn a_connection_that_held_owes_nothing() {
        let mut backoff = ReconnectBackoff::default();
        for _ in 0..5 {
            backoff.record_loss(&lost(), Duration::ZERO);
        }
        assert_eq!(backoff.record_loss(&lost(), STABLE_AFTER), Some(FIRST_WAIT));
    }

    #[test]
    fn a_forgotten_session_is_renewed_at_once_but_not_in_a_storm() {
        let mut backoff = ReconnectBackoff::default();
        assert_eq!(backoff.record_loss(&ConnectionLoss::Expired, Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(backoff.record_loss(&ConnectionLoss::Expired, Duration::ZERO), Some(Duration::from_secs(2)));
        let refused = ConnectionLoss::NeedsAuth("401".to_owned());
        assert_eq!(ReconnectBackoff::default().record_loss(&refused, Duration::ZERO), None);
    }
}
