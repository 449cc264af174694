//! Records refused connections, for the model and for the result.

use std::sync::Arc;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;

/// The most different refusals that are kept. Others are not recorded.
const REFUSALS_MAX: usize = 50;

/// The rule that refused a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// No entry of the list of allowed domains covers it.
    NotListed,
    /// An entry of the list of denied domains covers it.
    Denied,
    /// The host has a private address, which is not listed.
    PrivateAddress,
    /// A port of this machine that no job of the run opened.
    Loopback,
    /// A Unix socket that existed before the run, or an abstract one.
    UnixSocket,
    /// Commands may not open ports.
    LocalBinding,
    /// The job has too many connections.
    TooMany,
    /// The job's listener was lost, so that it was ended.
    ListenerLost,
}

/// A refused connection, and how often it was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Refusal {
    /// A host, an address, or the path of a Unix socket.
    pub host: String,
    /// `None` for names that were only looked up, and for Unix sockets.
    pub port: Option<u16>,
    pub reason: RefusalReason,
    pub count: u32,
}

impl Refusal {
    pub fn new(host: impl Into<String>, port: Option<u16>, reason: RefusalReason) -> Self {
        Self { host: host.into(), port, reason, count: 1 }
    }

    /// Returns true if both have the same host, port and reason.
    fn is_like(&self, other: &Self) -> bool {
        (&self.host, self.port, self.reason) == (&other.host, other.port, other.reason)
    }
}

/// The refusals of a job or of a run.
#[derive(Debug)]
pub struct RefusalLog {
    known: Mutex<Vec<Refusal>>,
    /// The domains that resolvers append to names.
    search: Arc<[String]>,
}

impl RefusalLog {
    pub(super) fn new(search: &Arc<[String]>) -> Self {
        Self { known: Mutex::default(), search: Arc::clone(search) }
    }

    pub fn record(&self, refusal: Refusal) {
        let mut known = self.known.lock();
        // A resolver that finds no such name appends the domains of its search list.
        let is_searched = |known: &Refusal| {
            let appended = refusal.host.strip_prefix(&known.host);
            let domain = appended.and_then(|rest| rest.strip_prefix('.'));
            refusal.port.is_none()
                && domain.is_some_and(|domain| self.search.iter().any(|one| one == domain))
        };
        if let Some(same) = known.iter_mut().find(|known| known.is_like(&refusal)) {
            same.count = same.count.saturating_add(refusal.count);
        } else if known.len() < REFUSALS_MAX && !known.iter().any(is_searched) {
            known.push(refusal);
        }
    }

    pub fn list(&self) -> Vec<Refusal> {
        self.known.lock().clone()
    }
}

/// The domains that the resolver of this machine appends to names, from the text of
/// /etc/resolv.conf. The last line with such domains counts.
pub(super) fn search_domains(configuration: &str) -> Vec<String> {
    let list = |line: &str| {
        let mut words = line.split_whitespace();
        let is_list = matches!(words.next(), Some("search" | "domain"));
        is_list.then(|| words.map(|word| word.trim_matches('.').to_lowercase()).collect())
    };
    configuration.lines().rev().find_map(list).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> RefusalLog {
        let domains = "domain old.example\nnameserver 192.0.2.1\n search Corp.example. b.example\n";
        RefusalLog::new(&search_domains(domains).into())
    }

    #[test]
    fn equal_refusals_are_counted_and_names_of_the_search_list_are_left_out() {
        let log = log();
        for (host, port) in [
            ("evil.example", None),
            ("evil.example", None),
            ("evil.example.corp.example", None),
            ("evil.example.b.example", None),
            ("www", None),
            ("www.evil.example", None),
            ("evil.example.old.example", None),
            ("evil.example", Some(443)),
            ("evil.examples", None),
        ] {
            log.record(Refusal::new(host, port, RefusalReason::NotListed));
        }
        let counts: Vec<_> =
            log.list().into_iter().map(|it| (it.host, it.port, it.count)).collect();
        assert_eq!(
            counts,
            [
                ("evil.example".to_owned(), None, 2),
                ("www".to_owned(), None, 1),
                ("www.evil.example".to_owned(), None, 1),
                ("evil.example.old.example".to_owned(), None, 1),
                ("evil.example".to_owned(), Some(443), 1),
                ("evil.examples".to_owned(), None, 1),
            ]
        );
    }

    #[test]
    fn the_log_is_bounded() {
        let log = log();
        for port in 0..200 {
            log.record(Refusal::new("evil.example", Some(port), RefusalReason::Denied));
        }
        assert_eq!(log.list().len(), REFUSALS_MAX);
    }
}
