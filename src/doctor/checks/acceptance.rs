//! Checks the answers of services: whether they accept the credential, the account and the models.

use super::super::facts::service::{ServiceAnswer, ServiceFacts};
use super::super::finding::{Finding, FindingCause};
use super::clouds;
use crate::model::ProbeRefusal;
use crate::recovery::ErrorClass;

/// Reports whether the service accepts the credential, and which models it rejects.
pub(super) fn check_acceptance(service: &ServiceFacts, answer: &ServiceAnswer) -> Vec<Finding> {
    let mut findings = vec![check_admission(service, answer)];
    findings.extend(answer.unknown.iter().map(|(model, words)| {
        Finding::problem(
            "model",
            format!(
                "{} does not know the model {model:?}, or not for this account: {words}",
                service.origin
            ),
            if service.is_fallback {
                "a run that falls back to it ends there"
            } else {
                "every run ends at once, or goes on with a fallback model"
            },
            clouds::model_remedy(&service.service),
        )
    }));
    findings
}

fn check_admission(service: &ServiceFacts, answer: &ServiceAnswer) -> Finding {
    let reply = &answer.probe;
    let (status, used) = (reply.status, describe_credential(service));
    match &reply.refusal {
        None => Finding::ok("acceptance", format!("the service accepts {used}")),
        Some(_) if reply.is_unsupported() && reply.is_web_page => Finding::warning(
            "acceptance",
            format!("{} answers every request with a web page (HTTP {status})", service.origin),
            "it may not be a Messages API, so that every run would fail",
            "see whether the base URL is right, and what it shows in a browser",
        ),
        Some(refusal) if reply.lacks_replies() => Finding::warning(
            "acceptance",
            format!(
                "{} has no Messages API at this path: {} ends with {}",
                service.origin,
                reply.request,
                refusal.fault.summary()
            ),
            "every run would fail",
            "see whether the path of ANTHROPIC_BASE_URL is right",
        ),
        Some(_) if reply.is_unsupported() => Finding::ok(
            "acceptance",
            format!(
                "the service lists no models and counts no tokens (HTTP {status}), so whether it \
                 accepts {used} is known at the first real request"
            ),
        ),
        Some(refusal) if reply.is_web_page && status < 500 => Finding::problem(
            "acceptance",
            format!(
                "something answers that is not the service: {} (HTTP {status})",
                refusal.fault.detail()
            ),
            UNREADABLE,
            "see whether a login page of the network, a firewall or a proxy is in between, and \
             whether the base URL is right",
        ),
        Some(refusal) => refusal_finding(service, refusal, status),
    }
}

fn describe_credential(service: &ServiceFacts) -> String {
    let used = service.credential.as_ref();
    let used = used.map_or("the request without a credential".to_owned(), |(kind, source)| {
        format!("the {kind} from {source}")
    });
    if service.is_fallback { format!("{used} at {}", service.origin) } else { used }
}

/// Converts a refusal to a finding, according to its error class.
fn refusal_finding(service: &ServiceFacts, refusal: &ProbeRefusal, status: u16) -> Finding {
    let quoted = match refusal.fault.detail().trim() {
        "" => format!("HTTP {status}"),
        words => format!("HTTP {status}: {words}"),
    };
    let finding = meaning(refusal.class, &describe_credential(service), service);
    let of_cloud = clouds::refusal_remedy(&service.service, refusal.class);
    let fix = of_cloud.map_or(finding.fix, str::to_owned);
    let what = format!("{} ({quoted})", finding.what);
    let is_credential =
        matches!(refusal.class, ErrorClass::InvalidApiKey | ErrorClass::TokenRevoked);
    let cause = is_credential.then_some(FindingCause::Credential);
    Finding { what, fix, cause, ..finding }
}

const ENDS: &str = "every run ends at once with exit code 77";
const REFUSED: &str = "runs are refused, whatever they ask for";
const UNREADABLE: &str = "every run would end with an answer that cannot be read";
const WAITS: &str = "runs wait and try again, for as long as their limits allow";

fn rejected(used: &str, service: &ServiceFacts) -> Finding {
    let put = service.credential.as_ref().map_or_else(
        || "put a key into ANTHROPIC_API_KEY".to_owned(),
        |(kind, source)| format!("put a good {kind} into {source}"),
    );
    let fix =
        format!("{put}: it is wrong, revoked, or for another service than {}", service.origin);
    Finding::problem("acceptance", format!("the service rejects {used}"), ENDS, fix)
}

fn service_trouble(what: &str) -> Finding {
    let fix = "try again later, or name a further model with --fallback-model";
    Finding::warning("acceptance", what, WAITS, fix)
}

/// The consequences and the remedy of a class of refusals.
fn meaning(class: ErrorClass, used: &str, service: &ServiceFacts) -> Finding {
    match class {
        ErrorClass::InvalidApiKey => rejected(used, service),
        ErrorClass::TokenRevoked => Finding::problem(
            "acceptance",
            format!("the service says that {used} was revoked or has expired"),
            ENDS,
            "make a new one; one that lives shorter than a run is best fetched by an apiKeyHelper",
        ),
        ErrorClass::AuthError => Finding::problem(
            "acceptance",
            format!("the service knows {used} and forbids its use"),
            REFUSED,
            "have the account's owner check the account, the region and the right to the model",
        ),
        ErrorClass::CreditBalanceLow | ErrorClass::QuotaExhausted => Finding::problem(
            "acceptance",
            format!("the account of {used} has no credit left, or has reached its spend limit"),
            REFUSED,
            "add credit or raise the limit in the console of the service or gateway; until then \
             no retry helps",
        ),
        ErrorClass::RateLimit => Finding::warning(
            "acceptance",
            format!("the service accepts {used}, but its rate limit is used up"),
            "runs begin with a wait",
            "wait, or use fewer runs at a time, or have the account's limits raised",
        ),
        ErrorClass::ServerOverload | ErrorClass::Repeated529 => {
            service_trouble("the service is overloaded")
        }
        ErrorClass::ServerError
        | ErrorClass::ApiTimeout
        | ErrorClass::StreamStalled
        | ErrorClass::ConnectionError => service_trouble("the service is in trouble"),
        ErrorClass::RequestTooLarge | ErrorClass::PromptTooLong => Finding::problem(
            "acceptance",
            "even a request of a few bytes is called too large",
            REFUSED,
            "raise the limit of whatever is in front of the service (nginx: client_max_body_size), \
             and see whether the base URL is right",
        ),
        ErrorClass::BadResponse | ErrorClass::Unknown => Finding::problem(
            "acceptance",
            "something answers that is not the service",
            UNREADABLE,
            "correct ANTHROPIC_BASE_URL: see whether it leads to an API and not to a web page, a \
             login portal or another address",
        ),
        ErrorClass::InvalidModel
        | ErrorClass::InvalidRequest
        | ErrorClass::PdfTooLarge
        | ErrorClass::ImageTooLarge
        | ErrorClass::ToolUseMismatch
        | ErrorClass::SslCertError
        | ErrorClass::Refusal
        | ErrorClass::ContentFiltered
        | ErrorClass::EmptyResponse
        | ErrorClass::Aborted => Finding::problem(
            "acceptance",
            "the service rejects the simplest request as invalid",
            REFUSED,
            "see whether ANTHROPIC_BASE_URL leads to a Messages API, and whether the headers in \
             ANTHROPIC_CUSTOM_HEADERS and the betas are supported by it",
        ),
    }
}
