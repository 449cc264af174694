//! Probes each service of the model chain: connection and credential.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::super::finding::Finding;
use super::super::time_limits::{self, CHECK_MAX};
use super::super::{ResolvedConfig, ServicePlace};
use crate::model::{
    BaseUrl, Credential, ModelClient, ProbeAnswer, Renewal, ServiceKind, Transport,
};
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

impl ServiceAnswer {
    fn of(probe: ProbeAnswer) -> ServiceProbe {
        ServiceProbe::Answered(Self { probe, unknown: Vec::new() })
    }
}

/// A service and the outcome of its probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Scheme, host and port.
    pub origin: String,
    pub proxy: Option<String>,
    pub service: ServiceKind,
    /// The identity that the credential belongs to, or the reason why the cloud did not return it.
    /// `None`: it was not contacted, has no such request, or did not answer in time.
    pub identity: Option<Result<String, String>>,
    /// The models that a run requests from it.
    pub models: Vec<String>,
    /// True if it is used only as a fallback.
    pub is_fallback: bool,
    /// Kind and source of its credential.
    pub credential: Option<(&'static str, String)>,
    pub outcome: ServiceProbe,
}

/// Probes all services in parallel, unless `offline`, until `until` at the latest.
pub async fn probe_services(
    config: &ResolvedConfig,
    offline: bool,
    until: Instant,
) -> Vec<Result<ServiceFacts, Finding>> {
    let probes = config.endpoints.iter().cloned().map(|place| async move {
        let probe = timeout_at(until + GRACE, probe_service(place, offline, until)).await;
        probe.unwrap_or(Err(time_limits::late_finding("service")))
    });
    in_parallel(probes).await
}

/// Awaits futures in parallel tasks. Returns their results in the order of the futures, without
/// those that panicked.
async fn in_parallel<F>(futures: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for (index, future) in futures.enumerate() {
        tasks.spawn(async move { (index, future.await) });
    }
    let mut results = Vec::new();
    while let Some(result) = tasks.join_next().await {
        results.extend(result.ok());
    }
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

async fn probe_service(
    place: ServicePlace,
    offline: bool,
    until: Instant,
) -> Result<ServiceFacts, Finding> {
    let ServicePlace { mut endpoint, models, credential, is_fallback, login_expired } = place;
    let address = BaseUrl::parse(&endpoint.base_url);
    let origin = address.map(|address| address.origin()).unwrap_or_default();
    let mut service = ServiceFacts {
        origin,
        proxy: None,
        service: endpoint.kind.clone(),
        identity: None,
        models,
        is_fallback,
        credential,
        outcome: ServiceProbe::Offline,
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
    let make_client = move || ModelClient::new(endpoint);
    let client = match time_limits::blocking_within_limit("certificates", make_client).await? {
        Ok(client) => Arc::new(client),
        Err(error) => {
            let outcome = ServiceProbe::Unusable(error.to_string());
            return Ok(ServiceFacts { outcome, ..service });
        }
    };
    service.proxy = client.proxy();
    if login_expired && !offline {
        let why = "the login has expired; the next run renews it";
        service.outcome = ServiceProbe::NoCredential(why.to_owned());
    } else if !offline {
        let request = ServiceRequest { client, connect, helper, until };
        let probe = request.probe(service.proxy.as_deref(), &service.models);
        (service.outcome, service.identity) = tokio::join!(probe, request.identity());
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
        let timed_out = || ServiceProbe::TimedOut(until.duration_since(begin).as_secs());
        let list = match timeout_at(until, self.client.list_models()).await {
            Err(_) => return timed_out(),
            Ok(Err(fault)) => return self.outcome_of_fault(&fault),
            Ok(Ok(list)) => list,
        };
        if list.refusal.is_some() && !list.is_unsupported() {
            return ServiceAnswer::of(list);
        }
        let mut outcome = match timeout_at(until, self.count_tokens(models)).await {
            Err(_) if list.is_unsupported() => return timed_out(),
            Err(_) => return ServiceAnswer::of(list),
            Ok(counts) => self.select_answer(list, counts),
        };
        if let ServiceProbe::Answered(answer) = &mut outcome
            && answer.probe.is_unsupported()
            && !answer.probe.is_web_page
            && let Ok(Ok(Some(reply))) = timeout_at(until, self.client.ask_nothing()).await
            // These are answers of the API, which do not depend on the credential.
            && !matches!(reply.status, 200..=299 | 400 | 422)
        {
            answer.probe = reply;
        }
        outcome
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
        let counts = models.iter().cloned().map(|model| {
            let client = Arc::clone(&self.client);
            async move {
                let counted = client.count_word(&model).await;
                (model, counted)
            }
        });
        in_parallel(counts).await
    }

    /// Selects the most informative answer, and collects the unknown models.
    fn select_answer(
        &self,
        list: ProbeAnswer,
        counts: Vec<(String, Result<ProbeAnswer, Box<Fault>>)>,
    ) -> ServiceProbe {
        let (mut unknown, mut informative) = (Vec::new(), None);
        for (model, counted) in counts {
            let mut count = match counted {
                Ok(count) => count,
                Err(fault) if list.is_unsupported() && informative.is_none() => {
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
            let is_unpaid = class == Some(ErrorClass::CreditBalanceLow);
            if (list.is_unsupported() && informative.is_none()) || is_unpaid {
                informative = Some(count);
            }
        }
        ServiceProbe::Answered(ServiceAnswer { probe: informative.unwrap_or(list), unknown })
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
                ServiceAnswer::of(probe)
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
