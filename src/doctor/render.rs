//! Renders a report as JSON.

use serde_json::{Value, json};

use crate::text::millis;

use super::finding::{DoctorReport, Finding, Severity};

/// Returns the JSON object of a report.
pub fn json(report: &DoctorReport, schema_version: u32) -> Value {
    let finding = |finding: &Finding| {
        let unless_empty = |text: &String| (!text.is_empty()).then(|| text.clone());
        json!({
            "check": finding.check,
            "status": finding.status,
            "what": finding.what,
            "details": finding.details,
            "why": unless_empty(&finding.why),
            "fix": unless_empty(&finding.fix),
        })
    };
    json!({
        "type": "doctor",
        "schema_version": schema_version,
        "healthy": report.is_healthy(),
        "problems": report.count(Severity::Problem),
        "warnings": report.count(Severity::Warning),
        "duration_ms": millis(report.took),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}
