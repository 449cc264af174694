//! Probes each service of the model chain: connection and credential.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::super::finding::Finding;
use super::super::time_limits::{self, CHECK_MAX};
use super::super::{ResolvedConfig, ServicePlace};
use crate::model::{BaseUrl, Credential, ModelClient, ProbeAnswer, Renewal, ServiceKind};
use crate::recovery::{ErrorBody, ErrorClass, Fault, FaultKind, KEY_HELPER_FAILED};

/// Timeout of a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Timeout of an answer: one second less than that of the check, so that it is reported first.
const ANSWER_MAX: Duration = CHECK_MAX.saturating_sub(Duration::from_secs(1));

/// Timeout of an API key helper, which runs before the service is contacted.
const HELPER_MAX: Duration = Duration::from_secs(7);

/// Additional time before a probe is abandoned, for the case that its own timeouts do not end it.
const GRACE: Duration = Duration::from_millis(500);

/// The outcome of probing a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceProbe {
    /// Not contacted, due to `--offline`.
    Offline,
    /// The address or a certificate file is invalid.
    Unusable(String),
    /// The proxy cannot be reached.
    NoProxy {
        proxy: String,
        why: String,
    },
    /// The host name does not resolve.
    UnknownHost(String),
    /// The connection was refused or lost.
    NoConnection(String),
    /// No connection or no answer within this many seconds.
    TimedOut(u64),
    /// The certificate is not trusted, or the TLS handshake is refused.
    Certificate(String),
    /// The API key helper printed no key.
    HelperFailed {
        why: String,
        /// The helper's timeout in a run.
        limit: Duration,
    },
    /// No credential is available, for another reason.
    NoCredential(String),
    Answered(ServiceAnswer),
}

/// The answer of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAnswer {
    /// The most informative answer about the credential.
    pub probe: ProbeAnswer,
    /// The models that it rejects, with its error messages.
    pub unknown: Vec<(String, String)>,
}

/// A service and the outcome of its probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Scheme, host and port.
    pub origin: String,
    pub proxy: Option<String>,
    pub service: ServiceKind,
    /// The identity that the credential belongs to, or the reason why the cloud did not return it.
    /// `None`: it was not asked, has no such request, or did not answer in time.
    pub identity: Option<Result<String, String>>,
    /// The models that a run requests from it.
    pub models: Vec<String>,
    /// True if it is used only as a fallback.
    pub standby: bool,
    /// Kind and source of its credential.
    pub credential: Option<(String, String)>,
    pub seen: ServiceProbe,
}

/// Probes all services in parallel, unless `offline`, until `until` at the latest.
pub async fn probe_services(
    known: &ResolvedConfig,
    offline: bool,
    until: Instant,
) -> Vec<Result<ServiceFacts, Finding>> {
    let mut asking = JoinSet::new();
    for (index, place) in known.endpoints.iter().cloned().enumerate() {
        asking.spawn(async move {
            let seen = timeout_at(until + GRACE, probe_service(place, offline, until)).await;
            let late = time_limits::late_finding("service");
            (index, seen.unwrap_or(Err(late)))
        });
    }
    let mut seen = Vec::new();
    while let Some(done) = asking.join_next().await {
        seen.extend(done.ok());
    }
    seen.sort_unstable_by_key(|(index, _)| *index);
    let (_, services): (Vec<usize>, Vec<_>) = seen.into_iter().unzip();
    services
}

async fn probe_service(
    place: ServicePlace,
    offline: bool,
    until: Instant,
) -> Result<ServiceFacts, Finding> {
    let ServicePlace { mut endpoint, models, credential, is_fallback: standby, login_expired } =
        place;
    let address = BaseUrl::parse(&endpoint.base_url);
    let origin = address.map(|address| address.origin()).unwrap_or_default();
    let mut service = ServiceFacts {
        origin,
        proxy: None,
        service: endpoint.kind.clone(),
        identity: None,
        models,
        standby,
        credential,
        seen: ServiceProbe::Offline,
    };
    endpoint.timers.connect = endpoint.timers.connect.min(CONNECT_MAX);
    let helper = if let Credential::Helper(command) = &mut endpoint.credential {
        let limit = command.limit;
        command.limit = limit.min(HELPER_MAX);
        // It runs once, and its key is used for all requests.
        command.ttl = command.ttl.max(Duration::from_mins(1));
        limit
    } else {
        Duration::ZERO
    };
    let connect = endpoint.timers.connect;
    // Reading certificate files may block.
    let client = match time_limits::blocking_within_limit("certificates", move || {
        ModelClient::new(endpoint)
    })
    .await?
    {
        Ok(client) => Arc::new(client),
        Err(error) => {
            return Ok(ServiceFacts { seen: ServiceProbe::Unusable(error.to_string()), ..service });
        }
    };
    service.proxy = client.proxy();
    if !offline {
        let asked = ServiceRequest { client, connect, helper, until };
        service.seen = match service.proxy.as_deref() {
            _ if login_expired => ServiceProbe::NoCredential(
                "the login has expired; the next run renews it".to_owned(),
            ),
            proxy => {
                let (seen, identity) =
                    tokio::join!(asked.probe(proxy, &service.models), asked.identity());
                service.identity = identity;
                seen
            }
        };
    }
    Ok(service)
}

/// A service that is being probed.
struct ServiceRequest {
    client: Arc<ModelClient>,
    /// Timeout of a connection.
    connect: Duration,
    /// The API key helper's timeout in a run.
    helper: Duration,
    until: Instant,
}

impl ServiceRequest {
    /// Checks proxy and credential first, then the service.
    async fn probe(&self, proxy: Option<&str>, models: &[String]) -> ServiceProbe {
        let (closed, renewal) = tokio::join!(unreachable_proxy(proxy), self.client.refresh());
        if let Some((proxy, why)) = closed {
            return ServiceProbe::NoProxy { proxy, why };
        }
        if let Renewal::Failed(fault) = renewal {
            return self.outcome_of_fault(&fault);
        }
        let begin = Instant::now();
        let until = self.until.min(begin + ANSWER_MAX);
        match timeout_at(until, self.client.list_models()).await {
            Err(_) => ServiceProbe::TimedOut(until.duration_since(begin).as_secs()),
            Ok(Err(fault)) => self.outcome_of_fault(&fault),
            Ok(Ok(list)) if list.refusal.is_some() && !list.is_unsupported() => {
                ServiceProbe::Answered(ServiceAnswer { probe: list, unknown: Vec::new() })
            }
            Ok(Ok(list)) => match timeout_at(until, self.count_tokens(models)).await {
                Err(_) if list.is_unsupported() => {
                    ServiceProbe::TimedOut(until.duration_since(begin).as_secs())
                }
                Err(_) => {
                    ServiceProbe::Answered(ServiceAnswer { probe: list, unknown: Vec::new() })
                }
                Ok(counts) => {
                    let mut seen = self.select_answer(list, counts);
                    if let ServiceProbe::Answered(answer) = &mut seen
                        && answer.probe.is_unsupported()
                        && !answer.probe.is_web_page
                        && let Ok(Ok(Some(reply))) = timeout_at(until, self.client.ask_nothing()).await
                        // The answers of the API: they tell nothing of the credential.
                        && !matches!(reply.status, 200..=299 | 400 | 422)
                    {
                        answer.probe = reply;
                    }
                    seen
                }
            },
        }
    }

    /// Returns the identity that the credential belongs to, or the reason why the cloud did not
    /// return it. `None`: the service has no such request, or did not answer in time.
    async fn identity(&self) -> Option<Result<String, String>> {
        match timeout_at(self.until, self.client.caller()).await {
            Ok(Ok(who)) => who.map(Ok),
            Ok(Err(fault)) => Some(Err(fault.detail().to_owned())),
            Err(_) => None,
        }
    }

    /// Requests a token count for each model, in parallel.
    async fn count_tokens(
        &self,
        models: &[String],
    ) -> Vec<(String, Result<ProbeAnswer, Box<Fault>>)> {
        let mut counting = JoinSet::new();
        for (index, model) in models.iter().cloned().enumerate() {
            let client = Arc::clone(&self.client);
            counting.spawn(async move {
                let counted = client.count_word(&model).await;
                (index, model, counted)
            });
        }
        let mut counts: Vec<_> = counting.join_all().await;
        counts.sort_unstable_by_key(|(index, ..)| *index);
        counts.into_iter().map(|(_, model, counted)| (model, counted)).collect()
    }

    /// Selects the most informative answer, and collects the unknown models.
    fn select_answer(
        &self,
        list: ProbeAnswer,
        counts: Vec<(String, Result<ProbeAnswer, Box<Fault>>)>,
    ) -> ServiceProbe {
        let (mut unknown, mut telling) = (Vec::new(), None);
        for (model, counted) in counts {
            let mut count = match counted {
                Ok(count) => count,
                Err(fault) if list.is_unsupported() && telling.is_none() => {
                    return self.outcome_of_fault(&fault);
                }
                Err(_) => continue,
            };
            if let Some(words) = model_rejection(&model, &count) {
                unknown.push((model, words));
                // An answer about the model means that the credential was accepted.
                (count.refusal, count.status) = (None, 200);
            }
            let class = count.refusal.as_ref().map(|refusal| refusal.class);
            let unpaid = class == Some(ErrorClass::CreditBalanceLow);
            if (list.is_unsupported() && telling.is_none()) || unpaid {
                telling = Some(count);
            }
        }
        ServiceProbe::Answered(ServiceAnswer { probe: telling.unwrap_or(list), unknown })
    }

    fn outcome_of_fault(&self, fault: &Fault) -> ServiceProbe {
        let detail = fault.detail().to_owned();
        match &fault.kind {
            FaultKind::Certificate { .. } => ServiceProbe::Certificate(detail),
            FaultKind::Timeout { .. } => ServiceProbe::TimedOut(self.connect.as_secs()),
            FaultKind::Unsendable { .. } => ServiceProbe::Unusable(detail),
            FaultKind::Refused { status: 407, .. } => {
                let probe = ProbeAnswer {
                    request: "CONNECT",
                    status: 407,
                    refusal: Some(fault.clone().into()),
                    is_web_page: false,
                    clocks: None,
                };
                ServiceProbe::Answered(ServiceAnswer { probe, unknown: Vec::new() })
            }
            FaultKind::Refused { code, .. } if code == KEY_HELPER_FAILED => {
                ServiceProbe::HelperFailed { why: detail, limit: self.helper }
            }
            FaultKind::Refused { .. }
                if self.client.proxy().is_some() && fault.body != ErrorBody::Api =>
            {
                ServiceProbe::NoConnection(fault.summary())
            }
            FaultKind::Refused { .. } => ServiceProbe::NoCredential(detail),
            FaultKind::Connection { .. } if detail.contains("dns error") => {
                ServiceProbe::UnknownHost(detail)
            }
            FaultKind::Connection { .. }
            | FaultKind::TornStream { .. }
            | FaultKind::InvalidContent { .. }
            | FaultKind::HtmlPage { .. } => ServiceProbe::NoConnection(detail),
        }
    }
}

/// Returns the service's error message about a model, if it names the model. Errors about an
/// unknown path or request do not name it.
fn model_rejection(model: &str, count: &ProbeAnswer) -> Option<String> {
    let refusal = count.refusal.as_ref()?;
    let detail = refusal.fault.detail();
    let is_about_it = refusal.class == ErrorClass::InvalidModel && detail.contains(model);
    is_about_it.then(|| detail.to_owned())
}

/// Returns the proxy and the reason if no connection to it is possible.
async fn unreachable_proxy(proxy: Option<&str>) -> Option<(String, String)> {
    let proxy = proxy?;
    let why = match timeout(CONNECT_MAX, TcpStream::connect(proxy)).await {
        Ok(Ok(_)) => return None,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", CONNECT_MAX.as_secs()),
    };
    Some((proxy.to_owned(), why))
}
