//! Renders a report as text or JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::finding::{DoctorReport, Finding, Severity, counted};

/// Renders text, with the worst findings last, where the user sees them.
pub fn text(report: &DoctorReport) -> String {
    let mut sorted: Vec<&Finding> = report.findings.iter().collect();
    sorted.sort_by_key(|finding| finding.status);
    let mut text = String::new();
    for finding in sorted {
        let Finding { check, status, what, details, why, fix } = finding;
        let _ = writeln!(text, "{:<8} {:<13} {}", status.name(), plain(check), plain(what));
        for line in details {
            let _ = writeln!(text, "{:<8} {:<13} {}", "", "", plain(line));
        }
        for (word, said) in [("why", why), ("fix", fix)] {
            if !said.is_empty() {
                let _ = writeln!(text, "{:<8} {word:>12}: {}", "", plain(said));
            }
        }
    }
    let (problems, warnings) = (report.count(Severity::Problem), report.count(Severity::Warning));
    let verdict = if report.is_healthy() { "healthy" } else { "not healthy" };
    let seconds = report.took.as_secs_f32();
    let _ = writeln!(
        text,
        "{verdict}: {}, {}, {seconds:.1} s",
        counted(problems, "problem"),
        counted(warnings, "warning")
    );
    text
}

/// Renders JSON.
pub fn json(report: &DoctorReport, schema_version: u32) -> Value {
    let finding = |finding: &Finding| {
        let said = |text: &String| (!text.is_empty()).then(|| text.clone());
        json!({
            "check": finding.check,
            "status": finding.status.name(),
            "what": finding.what,
            "details": finding.details,
            "why": said(&finding.why),
            "fix": said(&finding.fix),
        })
    };
    json!({
        "type": "doctor",
        "schema_version": schema_version,
        "healthy": report.is_healthy(),
        "problems": report.count(Severity::Problem),
        "warnings": report.count(Severity::Warning),
        "duration_ms": u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

/// Removes line breaks and terminal control characters, which foreign names may contain.
fn plain(text: &str) -> String {
    let letters = text.chars().map(|one| if one.is_control() { ' ' } else { one });
    letters.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}
