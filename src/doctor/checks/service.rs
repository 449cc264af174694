//! Checks whether the services of the model chain are reachable: address, host name, proxy,
//! certificate and clock.

use std::time::{Duration, SystemTime};

use super::super::ResolvedConfig;
use super::super::facts::service::{ServiceAnswer, ServiceFacts, ServiceProbe};
use super::super::finding::{Finding, FindingCause};
use super::{acceptance, clouds};
use crate::config::format_duration;

/// Maximum clock difference: a larger one breaks logins and certificates.
const SKEW_MAX: Duration = Duration::from_mins(1);

/// Reports additional certificate files. Unusable ones are reported with the service.
pub fn trusted_certificates(config: &ResolvedConfig) -> Vec<Finding> {
    let mut files: Vec<String> = config.ca_files.iter().map(ToString::to_string).collect();
    files.sort_unstable();
    files.dedup();
    if files.is_empty() {
        return Vec::new();
    }
    vec![Finding::ok("certificates", format!("trusted beside the system's: {}", files.join(", ")))]
}

/// Returns the effect of an unreachable service on a run.
fn unreachable_effect(service: &ServiceFacts) -> &'static str {
    if service.is_fallback {
        "a run that falls back to it ends there"
    } else {
        "no request reaches the service, so that every run fails"
    }
}

/// Returns the address of a service and its proxy, for messages.
fn describe_route(service: &ServiceFacts) -> String {
    let at = if service.is_fallback {
        format!("{} (fallback, for {})", service.origin, service.models.join(", "))
    } else {
        service.origin.clone()
    };
    match &service.proxy {
        Some(proxy) => format!("{at} through the proxy {proxy}"),
        None => at,
    }
}

/// Reports whether a service is reachable, and otherwise the problem.
pub fn check_service(service: &ServiceFacts) -> Vec<Finding> {
    let route = describe_route(service);
    let cause = network_cause(service);
    let problem = |what: String, fix: &str| {
        let finding = Finding::problem("service", what, unreachable_effect(service), fix);
        vec![finding.caused_by(cause)]
    };
    match &service.outcome {
        ServiceProbe::Offline => {
            vec![Finding::ok("service", format!("{route}, not asked (--offline)"))]
        }
        ServiceProbe::Unusable(why) => problem(
            format!("the service cannot be asked: {why}"),
            "correct ANTHROPIC_BASE_URL, the certificate file or the header that is named",
        ),
        ServiceProbe::NoProxy { proxy, why } => vec![Finding::problem(
            "proxy",
            format!("the proxy {proxy} cannot be reached: {why}"),
            unreachable_effect(service),
            format!(
                "correct or unset HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, start the proxy, or name \
                 the host of {} in NO_PROXY",
                service.origin
            ),
        )
        .caused_by(cause)],
        ServiceProbe::UnknownHost(why) => problem(
            format!("the name of {route} is not known (DNS): {why}"),
            "correct the host in the base URL, or the name servers of this machine; see whether \
             a proxy is needed (HTTPS_PROXY)",
        ),
        ServiceProbe::NoConnection(why) => problem(
            format!("{route} cannot be reached: {why}"),
            "see whether the server runs, the port is right, and no firewall is in between",
        ),
        ServiceProbe::TimedOut(seconds) => problem(
            format!("{route} does not answer within {seconds} s"),
            "see whether the server hangs, or a firewall swallows what is sent; a proxy may be \
             needed (HTTPS_PROXY)",
        ),
        ServiceProbe::Certificate(why) => problem(format!("TLS: {why}"), &certificate_remedy(why)),
        ServiceProbe::HelperFailed { why, limit } => vec![helper_finding(service, why, *limit)],
        ServiceProbe::NoCredential(why) => vec![
            Finding::problem(
                "credentials",
                format!("no credential available for {route}: {why}"),
                "requests cannot be signed",
                clouds::credential_remedy(&service.service),
            )
            .caused_by(Some(FindingCause::Credential)),
        ],
        ServiceProbe::Answered(answer) => check_answer(service, answer, &route),
    }
}

/// Returns the network problem for which a service is unreachable. `None`: there is none, or the
/// service is on this machine, so that other services do not share the problem.
pub fn network_cause(service: &ServiceFacts) -> Option<FindingCause> {
    let cause = match &service.outcome {
        ServiceProbe::NoProxy { .. } => Some(FindingCause::Proxy),
        ServiceProbe::UnknownHost(_) => Some(FindingCause::UnknownHost),
        ServiceProbe::NoConnection(_) => Some(FindingCause::NoConnection),
        ServiceProbe::TimedOut(_) => Some(FindingCause::NoAnswer),
        ServiceProbe::Offline
        | ServiceProbe::Unusable(_)
        | ServiceProbe::Certificate(_)
        | ServiceProbe::HelperFailed { .. }
        | ServiceProbe::NoCredential(_)
        | ServiceProbe::Answered(_) => None,
    };
    cause.filter(|_| !is_on_this_machine(&service.origin))
}

/// True if an address, `https://host:port`, is on this machine.
pub(super) fn is_on_this_machine(origin: &str) -> bool {
    let host = origin.split("//").nth(1).unwrap_or_default();
    ["localhost", "127.", "[::1]"].iter().any(|own| host.starts_with(own))
}

/// Returns the remedy for a failed TLS handshake, according to the reason.
fn certificate_remedy(why: &str) -> String {
    let usual = "if a company inspects the traffic, name its certificate authority with --ca-file \
                 or NODE_EXTRA_CA_CERTS";
    if why.contains("expired") || why.contains("not valid yet") {
        format!(
            "see whether this machine's clock is right; if it is, have the server's certificate \
             renewed; {usual}"
        )
    } else if why.contains("speaks no TLS") {
        "write http:// in ANTHROPIC_BASE_URL, or correct its port".to_owned()
    } else if why.contains("the server ") {
        "see whether the address is right, and what the server demands of its clients".to_owned()
    } else if why.contains("not valid for") {
        format!(
            "correct the host in the base URL: it must be one that the certificate is for; \
             {usual}"
        )
    } else {
        format!("{usual}; see whether the clock is right")
    }
}

/// Reports a failed API key helper. The service was then not contacted.
fn helper_finding(service: &ServiceFacts, why: &str, limit: Duration) -> Finding {
    let source = service.credential.as_ref().map_or("", |(_, source)| source);
    Finding::problem(
        "credentials",
        format!("{why} (it is from {source}); {} was not contacted", service.origin),
        format!(
            "no request can be signed: a run waits {} for it, and ends with exit code 77",
            format_duration(limit)
        ),
        format!(
            "run the command of {source} by hand, as this user and without a terminal: it must \
             print one key and end with exit code 0, and not wait for a login, a password or a \
             prompt"
        ),
    )
    .caused_by(Some(FindingCause::Credential))
}

fn check_answer(service: &ServiceFacts, answer: &ServiceAnswer, route: &str) -> Vec<Finding> {
    let reply = &answer.probe;
    let (status, asked) = (reply.status, reply.request);
    let detail = reply.refusal.as_ref().map_or("", |refusal| refusal.fault.detail());
    if status == 407 {
        return vec![Finding::problem(
            "proxy",
            format!("the proxy requires another user and password (HTTP 407): {detail}"),
            unreachable_effect(service),
            "put user and password into the variable that names the proxy, as in \
             http://user:password@host:port",
        )];
    }
    let mut findings =
        vec![Finding::ok("service", format!("{route} answers ({asked}: HTTP {status})"))];
    findings.extend(clouds::check_identity(service));
    findings.extend(acceptance::check_acceptance(service, answer));
    findings.extend(reply.clocks.map(|(theirs, ours)| check_clock(theirs, ours, service)));
    findings
}

fn check_clock(theirs: SystemTime, ours: SystemTime, service: &ServiceFacts) -> Finding {
    let (skew, direction) = match ours.duration_since(theirs) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    let origin = &service.origin;
    if skew <= SKEW_MAX {
        return Finding::ok("clock", format!("this machine's clock agrees with that of {origin}"));
    }
    Finding::warning(
        "clock",
        format!("this machine's clock is {} {direction} that of {origin}", format_duration(skew)),
        "certificates and logins seem expired or not yet valid, and waits until a time \
         given by the service are wrong",
        "set the clock, for example by NTP",
    )
}
