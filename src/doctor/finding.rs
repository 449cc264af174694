//! The result of a check.

use std::time::Duration;

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Ok,
    /// Runs work, but perhaps not as intended.
    Warning,
    /// Runs fail, or end badly.
    Problem,
}

/// A cause that several findings may share. Only one is reported, with the others as its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingCause {
    /// The credential is missing or invalid.
    Credential,
    /// A settings file cannot be read.
    Settings,
    UnknownHost,
    NoConnection,
    NoAnswer,
    Proxy,
}

/// One finding of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the check.
    pub check: String,
    /// The severity of the finding.
    pub status: Severity,
    pub what: String,
    /// Additional lines.
    pub details: Vec<String>,
    /// The effect on a run. Empty if nothing is wrong.
    pub why: String,
    /// The remedy. Empty if nothing is wrong.
    pub fix: String,
    /// The cause, if other findings may share it.
    pub cause: Option<FindingCause>,
}

impl Finding {
    pub fn ok(check: &str, what: impl Into<String>) -> Self {
        Self::new(check, Severity::Ok, what.into(), "", "")
    }

    pub fn warning(
        check: &str,
        what: impl Into<String>,
        why: impl AsRef<str>,
        fix: impl AsRef<str>,
    ) -> Self {
        Self::new(check, Severity::Warning, what.into(), why.as_ref(), fix.as_ref())
    }

    pub fn problem(
        check: &str,
        what: impl Into<String>,
        why: impl AsRef<str>,
        fix: impl AsRef<str>,
    ) -> Self {
        Self::new(check, Severity::Problem, what.into(), why.as_ref(), fix.as_ref())
    }

    /// Sets the additional lines.
    #[must_use]
    pub fn with(self, details: impl IntoIterator<Item = String>) -> Self {
        Self { details: details.into_iter().collect(), ..self }
    }

    #[must_use]
    pub fn caused_by(self, cause: Option<FindingCause>) -> Self {
        Self { cause, ..self }
    }

    fn new(check: &str, level: Severity, what: String, why: &str, fix: &str) -> Self {
        let (check, why, fix) = (check.to_owned(), why.to_owned(), fix.to_owned());
        Self { check, status: level, what, details: Vec::new(), why, fix, cause: None }
    }
}

/// All findings.
#[derive(Clone, Debug)]
pub struct DoctorReport {
    pub findings: Vec<Finding>,
    pub took: Duration,
}

impl DoctorReport {
    pub fn count(&self, level: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.status == level).count()
    }

    pub fn is_healthy(&self) -> bool {
        self.count(Severity::Problem) == 0
    }
}

/// Merges the findings of each cause into one: the most severe, and among equals the first. The
/// others become its details.
pub fn merge_causes(findings: Vec<Finding>) -> Vec<Finding> {
    let mut merged: Vec<Finding> = Vec::with_capacity(findings.len());
    for mut finding in findings {
        let is_same = |other: &&mut Finding| other.cause == finding.cause;
        let known = finding.cause.and_then(|_| merged.iter_mut().find(is_same));
        let Some(known) = known else {
            merged.push(finding);
            continue;
        };
        if finding.status > known.status {
            std::mem::swap(known, &mut finding);
        }
        known.details.push(format!("{}: {}", finding.check, finding.what));
        known.details.append(&mut finding.details);
    }
    merged
}

/// Formats a number of bytes.
pub(super) fn format_bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        1_000_000_000.. => format!("{} GB", bytes / 1_000_000_000),
    }
}
