//! Checks settings files and the limits that they set.

use super::super::ResolvedConfig;
use super::super::finding::{Finding, FindingCause};
use crate::text::listed;

/// Reports the settings files, mistakes, ignored settings, and the limits in force.
pub fn check_settings(config: &ResolvedConfig) -> Vec<Finding> {
    // Files that could not be read are reported as problems below.
    let is_read = |file: &&(String, &str)| !config.broken.contains(&file.0);
    let read = config.files.iter().filter(is_read);
    let files = match read.clone().count() {
        0 if config.broken.is_empty() => "no files".to_owned(),
        0 => "no other files".to_owned(),
        1 => "1 file".to_owned(),
        count => format!("{count} files, lowest first"),
    };
    let files =
        Finding::ok("settings", files).with(read.map(|(path, state)| format!("{path} ({state})")));
    let mut findings = vec![files];
    findings.extend(config.mistakes.iter().enumerate().map(|(index, mistake)| {
        let finding = Finding::problem(
            "settings",
            mistake,
            "every run ends with exit code 2 before anything is sent",
            "correct it there; outlast help settings lists every setting, outlast help environment \
             every variable",
        );
        if index > 0 {
            return finding;
        }
        // The first mistake also names the checks that the mistakes prevented.
        let unchecked = "until then, MCP servers and fallback models are not checked";
        let unchecked = config.run_unavailable.then(|| unchecked.to_owned());
        finding.with(unchecked).caused_by(Some(FindingCause::Settings))
    }));
    findings.extend(config.warnings.iter().map(|warning| {
        Finding::warning(
            "settings",
            warning,
            "it has no effect",
            "remove it, or see outlast help settings and outlast help security",
        )
    }));
    if !config.ignored.is_empty() {
        let finding = Finding::warning(
            "trust",
            "some settings of the repository are ignored",
            "the repository is not trusted, so its settings can only restrict",
            "if you trust it, run with --trust-project, or name it in trustedProjects of your own \
             settings",
        );
        findings.push(finding.with(config.ignored.iter().cloned()));
    }
    if !config.limits.is_empty() {
        let shown = |(name, value, origin): &(String, String, String)| match origin.as_str() {
            "default" => format!("{name} {value}"),
            _ => format!("{name} {value} ({origin})"),
        };
        let usual = config.limits.iter().filter(|(_, _, origin)| origin == "default").count();
        let what = match config.limits.len() - usual {
            0 => format!("{usual} timers and limits, all at their defaults"),
            changed => format!("{} timers and limits, {changed} changed", config.limits.len()),
        };
        findings.push(Finding::ok("limits", what).with(config.limits.iter().map(shown)));
    }
    findings
}

/// Returns a note about settings files that could not be read and may have further entries.
pub(super) fn unread_note(config: &ResolvedConfig) -> String {
    if config.broken.is_empty() {
        return String::new();
    }
    format!("; not checked, because it could not be read: {}", listed(&config.broken, NAMED_MAX))
}

/// Maximum number of files that one finding lists.
const NAMED_MAX: usize = 5;

/// Returns the finding for settings that could not be read, and the checks that this prevents.
pub fn settings_unreadable() -> Finding {
    Finding::warning(
        "settings",
        "credentials, service, hooks and servers were not checked",
        "they depend on the settings, which could not be read",
        "fix that first, and run doctor again",
    )
}
