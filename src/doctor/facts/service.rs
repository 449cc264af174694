//! Whether the service can be reached, and takes us in.

use std::time::{Duration, SystemTime};

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::super::Known;
use super::super::bounds::CHECK_MAX;
use crate::model::{Client, Endpoint, Knock};
use crate::recovery::{Fault, FaultKind};

/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long an answer may take: a second less than the check, so that this is what is told.
const ANSWER_MAX: Duration = CHECK_MAX.saturating_sub(Duration::from_secs(1));

/// What came of asking the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nobody was asked.
    Offline,
    /// The address or a certificate file makes no sense.
    Unusable(String),
    /// The proxy that leads there cannot be reached.
    NoProxy { proxy: String, why: String },
    /// The name of the host is not known.
    NoName(String),
    /// The connection was refused, cut, or led nowhere.
    NoConnection(String),
    /// No connection, or no answer, within so many seconds.
    Silent(u64),
    /// The certificate is not to be trusted.
    Certificate(String),
    /// The credential could not be had to ask with.
    NoCredential(String),
    Answered {
        asked: &'static str,
        status: u16,
        message: String,
        foreign: bool,
        /// The service's clock and ours.
        clocks: Option<(SystemTime, SystemTime)>,
    },
}

/// The service as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Scheme, host and port.
    pub origin: String,
    pub proxy: Option<String>,
    pub seen: Seen,
}

/// Asks it, unless nobody is to be asked.
pub async fn look(known: &Known, offline: bool) -> Service {
    let Some(endpoint) = known.endpoint.clone() else {
        let seen = Seen::Unusable("the settings do not say where it is".to_owned());
        return Service { origin: String::new(), proxy: None, seen };
    };
    let address = crate::model::Address::parse(&endpoint.base_url);
    let origin = address.map(|address| address.origin()).unwrap_or_default();
    let mut endpoint = endpoint;
    endpoint.timers.connect = endpoint.timers.connect.min(CONNECT_MAX);
    let client = match Client::new(endpoint.clone()) {
        Ok(client) => client,
        Err(error) => {
            return Service { origin, proxy: None, seen: Seen::Unusable(error.to_string()) };
        }
    };
    let proxy = client.proxy();
    let seen = if offline {
        Seen::Offline
    } else {
        ask(&client, proxy.as_deref(), known, &endpoint).await
    };
    Service { origin, proxy, seen }
}

async fn ask(client: &Client, proxy: Option<&str>, known: &Known, endpoint: &Endpoint) -> Seen {
    if let Some(proxy) = proxy
        && let Some(why) = closed(proxy).await
    {
        return Seen::NoProxy { proxy: proxy.to_owned(), why };
    }
    if known.login_expired {
        return Seen::NoCredential("the login has expired; the next run renews it".to_owned());
    }
    match timeout(ANSWER_MAX, client.knock(&known.model)).await {
        Err(_) => Seen::Silent(ANSWER_MAX.as_secs()),
        Ok(Ok(knock)) => answered(knock),
        Ok(Err(fault)) => failed(&fault, endpoint.timers.connect),
    }
}

/// Why nobody listens there.
async fn closed(proxy: &str) -> Option<String> {
    match timeout(CONNECT_MAX, TcpStream::connect(proxy)).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("no answer within {} s", CONNECT_MAX.as_secs())),
    }
}

fn answered(knock: Knock) -> Seen {
    let foreign = knock.is_foreign();
    let Knock { asked, status, message, clocks } = knock;
    Seen::Answered { asked, status, message, foreign, clocks }
}

fn failed(fault: &Fault, connect: Duration) -> Seen {
    let detail = fault.detail().to_owned();
    match &fault.kind {
        FaultKind::Certificate { .. } => Seen::Certificate(detail),
        FaultKind::Timeout { .. } => Seen::Silent(connect.as_secs()),
        FaultKind::Unsendable { .. } => Seen::Unusable(detail),
        FaultKind::Refused { status: 407, .. } => Seen::Answered {
            asked: "CONNECT",
            status: 407,
            message: detail,
            foreign: false,
            clocks: None,
        },
        FaultKind::Refused { .. } => Seen::NoCredential(detail),
        FaultKind::Connection { .. } if detail.contains("dns error") => Seen::NoName(detail),
        FaultKind::Connection { .. }
        | FaultKind::TornStream { .. }
        | FaultKind::Nonsense { .. } => Seen::NoConnection(detail),
    }
}
