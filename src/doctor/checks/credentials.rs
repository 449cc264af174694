//! Checks credentials: their kinds and sources, never their values.

use super::super::ResolvedConfig;
use super::super::finding::{Finding, FindingCause};
use super::settings::unread_note;

/// Reports the credential in use, unused ones, and a missing one.
pub fn check_credentials(config: &ResolvedConfig) -> Vec<Finding> {
    let shown = |(kind, source): &(&str, String)| format!("{kind} from {source}");
    let Some((used, others)) = config.credentials.split_first() else {
        return vec![check_missing(config)];
    };
    let others: Vec<String> = others.iter().map(shown).collect();
    let unused = match others.join(", ").as_str() {
        "" => String::new(),
        others => format!("; not used: {others}"),
    };
    let mut findings = vec![Finding::ok("credentials", format!("{}{unused}", shown(used)))];
    if config.endpoints.iter().any(|place| place.login_expired) {
        findings.push(Finding::warning(
            "credentials",
            "the login in use has expired",
            "it was not tried, because that would require renewing it",
            "nothing, if the next run renews it; otherwise log in again",
        ));
    }
    findings
}

fn check_missing(config: &ResolvedConfig) -> Finding {
    if !config.broken.is_empty() {
        let finding = Finding::warning(
            "credentials",
            format!("none in the variables{}", unread_note(config)),
            "one of these files may name a credential",
            "correct the settings first, and ask again",
        );
        return finding.caused_by(Some(FindingCause::Settings));
    }
    if !config.needs_credential {
        return Finding::ok("credentials", "none is set; requests are sent without one");
    }
    let finding = Finding::problem(
        "credentials",
        "no credential is set",
        "the service requires one, so no run can start",
        "put an API key in ANTHROPIC_API_KEY, a bearer token in ANTHROPIC_AUTH_TOKEN or the token of \
         a login in CLAUDE_CODE_OAUTH_TOKEN, or name another server in ANTHROPIC_BASE_URL",
    );
    finding.caused_by(Some(FindingCause::Credential))
}
