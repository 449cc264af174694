//! Which credentials there are: kinds and sources, and never a value.

use super::super::ResolvedConfig;
use super::super::finding::Finding;
use super::settings::unread_note;

/// What is used, what is not, and what is missing.
pub fn check_credentials(known: &ResolvedConfig) -> Vec<Finding> {
    let shown = |(kind, source): &(String, String)| format!("{kind} from {source}");
    let Some((used, others)) = known.credentials.split_first() else {
        return vec![if !known.broken.is_empty() {
            Finding::warning(
                "credentials",
                format!("none in the variables{}", unread_note(known)),
                "one of these files may name a credential, and nobody can tell",
                "correct the settings first, and ask again",
            )
        } else if known.needs_credential {
            Finding::problem(
                "credentials",
                "no credential is set",
                "the service answers nobody without one, so that no run can begin",
                "put an API key in ANTHROPIC_API_KEY or a bearer token in ANTHROPIC_AUTH_TOKEN, or \
                 name another server in ANTHROPIC_BASE_URL",
            )
        } else {
            Finding::ok("credentials", "none is set; the server is asked without")
        }];
    };
    let others: Vec<String> = others.iter().map(shown).collect();
    let unused = if others.is_empty() {
        String::new()
    } else {
        format!("; not used: {}", others.join(", "))
    };
    let mut findings = vec![Finding::ok("credentials", format!("{}{unused}", shown(used)))];
    if known.endpoints.iter().any(|place| place.login_expired) {
        findings.push(Finding::warning(
            "credentials",
            "the login in use has expired",
            "it was not tried, because it would have to be renewed for that",
            "nothing, if the next run renews it; otherwise log in again",
        ));
    }
    findings
}
