//! Checks settings files and the limits that they set.

use super::super::ResolvedConfig;
use super::super::finding::{Finding, listed};

/// Reports files, mistakes, ignored settings, and the limits in force.
pub fn check_settings(known: &ResolvedConfig) -> Vec<Finding> {
    let seen = |(path, state): &(String, &str)| format!("{path} ({state})");
    let files = match known.files.len() {
        0 => "no files".to_owned(),
        1 => "1 file".to_owned(),
        count => format!("{count} files, lowest first"),
    };
    let files = Finding::ok("settings", files).with(known.files.iter().map(seen));
    let mut findings = vec![files];
    findings.extend(known.mistakes.iter().map(|mistake| {
        Finding::problem(
            "settings",
            mistake,
            "every run ends with exit code 2 before anything is sent",
            "correct it there; outlast-settings(5) lists every setting, outlast(1) every variable",
        )
    }));
    findings.extend(known.warnings.iter().map(|warning| {
        Finding::warning(
            "settings",
            warning,
            "it has no effect",
            "remove it, or see outlast-settings(5) and outlast-security(7)",
        )
    }));
    if !known.ignored.is_empty() {
        let finding = Finding::warning(
            "trust",
            "some settings of the repository are ignored",
            "the repository is not trusted, so that its settings can only forbid",
            "if you trust it, run with --trust-project, or name it in trustedProjects of your own \
             settings",
        );
        findings.push(finding.with(known.ignored.iter().cloned()));
    }
    if known.run_unavailable {
        findings.push(Finding::warning(
            "settings",
            "MCP servers and fallback models were not checked",
            "they are known only when a run can be set up, which these mistakes prevent",
            "correct the mistakes first, and ask again",
        ));
    }
    if !known.limits.is_empty() {
        let shown = |(name, value, origin): &(String, String, String)| match origin.as_str() {
            "default" => format!("{name} {value}"),
            _ => format!("{name} {value} ({origin})"),
        };
        let usual = known.limits.iter().filter(|(_, _, origin)| origin == "default").count();
        let what = format!(
            "{} timers and limits, {} of them changed",
            known.limits.len(),
            known.limits.len() - usual
        );
        findings.push(Finding::ok("limits", what).with(known.limits.iter().map(shown)));
    }
    findings
}

/// A note about unreadable files, which may hold more of the same.
pub(super) fn unread_note(known: &ResolvedConfig) -> String {
    if known.broken.is_empty() {
        return String::new();
    }
    format!("; not checked, because it could not be read: {}", listed(&known.broken, NAMED_MAX))
}

/// The most files listed in one finding.
const NAMED_MAX: usize = 5;

/// The finding when the settings could not be read: what depends on them is not checked.
pub fn settings_unreadable() -> Finding {
    Finding::warning(
        "settings",
        "credentials, service, hooks and servers were not checked",
        "they depend on the settings, which could not be read",
        "fix that first, and run doctor again",
    )
}
