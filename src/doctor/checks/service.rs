//! What the service's answer means: address, name, proxy, certificate, credential, clock.

use std::time::{Duration, SystemTime};

use super::super::Known;
use super::super::facts::service::{Seen, Service};
use super::super::finding::Finding;

/// A clock that differs more breaks logins and certificates sooner or later.
const SKEW_MAX: Duration = Duration::from_mins(1);

const UNREACHED: &str = "no request reaches the service, so that every run fails";

/// Certificate files beside the system's. One that cannot be used is told with the service.
pub fn trusted(known: &Known) -> Vec<Finding> {
    let files: Vec<String> = known.ca_files.iter().map(|file| file.display().to_string()).collect();
    if files.is_empty() {
        return Vec::new();
    }
    vec![Finding::ok("certificates", format!("trusted beside the system's: {}", files.join(", ")))]
}

/// Tells apart what can go wrong on the way.
pub fn judge(service: &Service, known: &Known) -> Vec<Finding> {
    let at = &service.origin;
    let way = match &service.proxy {
        Some(proxy) => format!("{at} through the proxy {proxy}"),
        None => at.clone(),
    };
    let problem = |what: String, fix: &str| vec![Finding::problem("service", what, UNREACHED, fix)];
    match &service.seen {
        Seen::Offline => vec![Finding::ok("service", format!("{way}, not asked (--offline)"))],
        Seen::Unusable(why) => problem(
            format!("the service cannot be asked: {why}"),
            "correct ANTHROPIC_BASE_URL, the certificate file or the header that is named",
        ),
        Seen::NoProxy { proxy, why } => vec![Finding::problem(
            "proxy",
            format!("the proxy {proxy} cannot be reached: {why}"),
            UNREACHED,
            format!(
                "correct or unset HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, start the proxy, or name \
                 the host of {at} in NO_PROXY"
            ),
        )],
        Seen::NoName(why) => problem(
            format!("the name of {way} is not known (DNS): {why}"),
            "correct the host in ANTHROPIC_BASE_URL, or the name servers of this machine",
        ),
        Seen::NoConnection(why) => problem(
            format!("{way} cannot be reached: {why}"),
            "see whether the server runs, the port is right, and no firewall is in between",
        ),
        Seen::Silent(seconds) => problem(
            format!("{way} does not answer within {seconds} s"),
            "see whether the server hangs, or a firewall swallows what is sent; a proxy may be \
             needed (HTTPS_PROXY)",
        ),
        Seen::Certificate(why) => problem(
            format!("TLS: the certificate is not trusted: {why}"),
            "if a company inspects the traffic, name its certificate authority with --ca-file or \
             NODE_EXTRA_CA_CERTS; see whether the clock is right",
        ),
        Seen::NoCredential(why) => vec![Finding::problem(
            "credentials",
            format!("no credential could be had: {why}"),
            "requests cannot be signed",
            "try the apiKeyHelper command by hand, or log in again",
        )],
        Seen::Answered { .. } => answered(service, known, &way),
    }
}

fn answered(service: &Service, known: &Known, way: &str) -> Vec<Finding> {
    let Seen::Answered { asked, status, message, foreign, clocks } = &service.seen else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    if *status == 407 {
        findings.push(Finding::problem(
            "proxy",
            format!("the proxy wants another user and password (HTTP 407): {message}"),
            UNREACHED,
            "put user and password into the variable that names the proxy, as in \
             http://user:password@host:port",
        ));
        return findings;
    }
    findings.push(Finding::ok("service", format!("{way} answers ({asked}: HTTP {status})")));
    findings.push(accepted(*status, message, *foreign, known));
    findings.extend(clocks.map(|(theirs, ours)| clock(theirs, ours)));
    findings
}

/// What the status says of the credential.
fn accepted(status: u16, message: &str, foreign: bool, known: &Known) -> Finding {
    let used = known.credentials.first();
    let used = used.map_or("the request without a credential".to_owned(), |(kind, source)| {
        format!("the {kind} from {source}")
    });
    let said = if message.is_empty() { String::new() } else { format!(": {message}") };
    match status {
        200..300 if !message.is_empty() => Finding::problem(
            "acceptance",
            format!("something answers that is not the service: {message} (HTTP {status})"),
            "every run would end with an answer that cannot be read",
            "see whether a login page of the network or a proxy is in between, and whether \
             ANTHROPIC_BASE_URL is right",
        ),
        200..300 => Finding::ok("acceptance", format!("the service accepts {used}")),
        401 => Finding::problem(
            "acceptance",
            format!("the service rejects {used} (HTTP 401{said})"),
            "every run ends at once with exit code 77",
            format!(
                "{}: it is wrong, revoked, or for another service than ANTHROPIC_BASE_URL names",
                known.credentials.first().map_or_else(
                    || "put a key into ANTHROPIC_API_KEY".to_owned(),
                    |(kind, source)| format!("put a good {kind} into {source}"),
                )
            ),
        ),
        403 => Finding::problem(
            "acceptance",
            format!("the service knows {used} and forbids its use (HTTP 403{said})"),
            "runs are refused, whatever they ask for",
            "have the account, the region or the right to the model looked at by whoever owns it",
        ),
        _ if foreign => Finding::ok(
            "acceptance",
            format!(
                "the service lists no models and counts no tokens (HTTP {status}), so whether it \
                 accepts {used} is known at the first real request"
            ),
        ),
        429 => Finding::warning(
            "acceptance",
            format!("the service accepts {used}, but its rate limit is used up (HTTP 429{said})"),
            "runs begin with a wait",
            "wait, or use fewer runs at a time",
        ),
        500.. => Finding::warning(
            "acceptance",
            format!("the service is in trouble (HTTP {status}{said})"),
            "runs wait and try again, for as long as their limits allow",
            "try again later, or name a further model with --fallback-model",
        ),
        _ => Finding::warning(
            "acceptance",
            format!("the service answers with HTTP {status}{said}"),
            "it may not be a Messages API",
            "see whether ANTHROPIC_BASE_URL is right",
        ),
    }
}

fn clock(theirs: SystemTime, ours: SystemTime) -> Finding {
    let (skew, direction) = match ours.duration_since(theirs) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    if skew <= SKEW_MAX {
        return Finding::ok("clock", "this machine's clock agrees with the service's");
    }
    Finding::warning(
        "clock",
        format!("this machine's clock is {} s {direction} the service's", skew.as_secs()),
        "certificates and logins are taken for expired or not yet valid, and waits until a moment \
         that the service names are wrong",
        "set the clock, for example by NTP",
    )
}
