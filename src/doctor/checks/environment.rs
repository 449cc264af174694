//! Checks environment variables: unknown, malformed, or contradictory ones.

use std::ffi::OsStr;

use super::super::ResolvedConfig;
use super::super::finding::{Finding, FindingCause};

/// Reports problems of environment variables.
pub fn check_environment(config: &ResolvedConfig) -> Vec<Finding> {
    let mut findings: Vec<Finding> = [
        credentials(config),
        proxies(config),
        check_home_and_path(config),
        check_unknown_variables(config),
    ]
    .concat();
    if config.bypasses_as_root {
        findings.push(Finding::warning(
            "environment",
            "outlast runs as root, and without permission checks (bypassPermissions)",
            "the model's commands run with all rights",
            "run it as a user of its own, or in a container with nothing else in it",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("environment", "no variables contradict each other"));
    }
    findings
}

/// Returns the value of a variable without surrounding spaces. `None`: it is unset or empty.
fn get<'a>(config: &'a ResolvedConfig, name: &str) -> Option<&'a str> {
    raw(config, name).map(str::trim).filter(|value| !value.is_empty())
}

fn raw<'a>(config: &'a ResolvedConfig, name: &str) -> Option<&'a str> {
    config.variables.get(OsStr::new(name))?.to_str()
}

fn warning(what: impl Into<String>, why: &str, fix: impl AsRef<str>) -> Finding {
    Finding::warning("environment", what, why, fix)
}

fn credentials(config: &ResolvedConfig) -> Vec<Finding> {
    let has = |name: &str| get(config, name).is_some();
    let both = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"];
    // With several credentials, the service may have received another one.
    let cause = (config.credentials.len() <= 1).then_some(FindingCause::Credential);
    let mut findings: Vec<Finding> = both
        .into_iter()
        .chain(["CLAUDE_CODE_OAUTH_TOKEN"])
        .filter_map(|name| check_credential_format(name, raw(config, name)?))
        .map(|finding| finding.caused_by(cause))
        .collect();
    if both.into_iter().all(has) {
        findings.push(warning(
            "both ANTHROPIC_API_KEY and ANTHROPIC_AUTH_TOKEN are set",
            "only the token is used, and it decides which account is billed",
            "unset the unintended one",
        ));
    }
    findings
}

/// Reports a malformed key or token, without showing any part of it.
fn check_credential_format(name: &str, value: &str) -> Option<Finding> {
    let trimmed = value.trim();
    if trimmed.is_empty() {
        return Some(warning(
            format!("{name} is set, and empty"),
            "it counts as not set; a job without access to its secret looks like this",
            format!("give the job its secret, or unset {name}"),
        ));
    }
    let quotes = ['"', '\'', '`', '\u{201c}', '\u{201d}'];
    let what = if trimmed.starts_with(quotes) || trimmed.ends_with(quotes) {
        "stands in quotation marks, which are sent too"
    } else if trimmed.to_ascii_lowercase().starts_with("bearer ") {
        "begins with the word Bearer, which is then sent twice"
    } else if trimmed.contains(char::is_whitespace) {
        "has a space or a line break inside"
    } else if !trimmed.is_ascii() {
        "contains characters that are invalid in a header"
    } else if trimmed.len() < value.len() {
        return Some(warning(
            format!("{name} has a space or a line break at one of its ends"),
            "outlast removes it, but other programs that read it do not",
            format!("store the secret of {name} without it, for example with printf %s"),
        ));
    } else {
        return None;
    };
    Some(Finding::problem(
        "environment",
        format!("the value of {name} {what}"),
        "the service rejects such a key",
        format!("set {name} to the key and nothing else"),
    ))
}

const PROXIES: [[&str; 2]; 3] =
    [["https_proxy", "HTTPS_PROXY"], ["http_proxy", "HTTP_PROXY"], ["all_proxy", "ALL_PROXY"]];

fn proxies(config: &ResolvedConfig) -> Vec<Finding> {
    let has = |name: &&str| get(config, name).is_some();
    let mut findings = Vec::new();
    for [small, large] in PROXIES.into_iter().chain([["no_proxy", "NO_PROXY"]]) {
        if let (Some(one), Some(other)) = (get(config, small), get(config, large))
            && one != other
        {
            findings.push(warning(
                format!("{small} and {large} differ; {small} is used"),
                "other programs use the other one",
                format!("set both to the same, or unset {large}"),
            ));
        }
    }
    // In a CGI program, HTTP_PROXY can come from the client's header `Proxy`.
    let is_cgi = raw(config, "REQUEST_METHOD").is_some();
    if is_cgi && has(&"HTTP_PROXY") && !has(&"http_proxy") {
        findings.push(warning(
            "HTTP_PROXY is not used, because REQUEST_METHOD is set",
            "in a CGI program a client can set it with a header",
            "name the proxy in http_proxy, or unset REQUEST_METHOD",
        ));
    }
    let used = |name: &&str| has(name) && !(is_cgi && *name == "HTTP_PROXY");
    let proxy = PROXIES.into_iter().find_map(|names| names.into_iter().rev().find(used));
    let except = get(config, "no_proxy").or(get(config, "NO_PROXY")).unwrap_or_default();
    if let Some(proxy) = proxy.filter(|_| !except.split([',', ' ']).any(spares_this_machine)) {
        findings.push(warning(
            format!("{proxy} is set, and NO_PROXY does not name localhost"),
            "outlast reaches this machine directly, but commands that it runs may ask the proxy \
             for servers on this machine",
            "add localhost,127.0.0.1,::1 to NO_PROXY",
        ));
    }
    findings
}

/// True if an entry of `NO_PROXY` covers this machine.
fn spares_this_machine(entry: &str) -> bool {
    let host = entry.trim().trim_start_matches('.').to_ascii_lowercase();
    host == "*" || ["localhost", "127.", "::1", "[::1]"].iter().any(|one| host.starts_with(one))
}

fn check_home_and_path(config: &ResolvedConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    if get(config, "HOME").is_none() {
        findings.push(warning(
            "HOME is not set",
            "commands and other tools do not find their settings, and outlast has to guess its own",
            "set HOME, or OUTLAST_CONFIG_DIR for outlast alone",
        ));
    }
    if get(config, "PATH").is_none() {
        findings.push(warning(
            "PATH is not set, or is empty",
            "commands, hooks and servers without a path are not found",
            "set PATH, for example to /usr/local/bin:/usr/bin:/bin",
        ));
    }
    findings
}

/// Reports unknown variables whose names resemble those of outlast.
fn check_unknown_variables(config: &ResolvedConfig) -> Vec<Finding> {
    let describe = |(name, meant): &(String, Option<&'static str>)| {
        let guess = meant.map_or(String::new(), |meant| format!("; did you mean {meant}?"));
        warning(
            format!("outlast reads no variable {name}{guess}"),
            "it has no effect",
            "see ENVIRONMENT in outlast(1) for its spelling, or unset it",
        )
    };
    config.unknown_variables.iter().map(describe).collect()
}
