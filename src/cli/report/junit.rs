//! Reports as `JUnit` XML: a test case for each session.

use std::time::Duration;

use jiff::tz::TimeZone;

use crate::report::{SessionOutcome, SessionReport};

use super::document::ReportDocument;
use super::markup::escaped;

/// Renders sessions, with the document of each for its output.
pub(super) fn render(sessions: &[(SessionReport, ReportDocument)]) -> String {
    let number = |is: fn(SessionOutcome) -> bool| {
        sessions.iter().filter(|(report, _)| is(report.outcome)).count()
    };
    let worked: Duration = sessions.iter().map(|(report, _)| report.time.worked).sum();
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\"",
        sessions.len(),
        number(is_failure),
        number(is_error)
    );
    let (time, skipped) = (seconds(worked), number(is_skipped));
    let started = sessions.iter().filter_map(|(report, _)| report.subject.started).min();
    let started = started.map_or_else(String::new, |at| {
        let at = at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S");
        format!(" timestamp=\"{at}\"")
    });
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites name=\"outlast\" {counts} time=\"{time}\">\n\
         \x20 <testsuite name=\"outlast\" {counts} skipped=\"{skipped}\" time=\"{time}\"{started}>\n"
    );
    for (report, document) in sessions {
        text.push_str(&case(report, document));
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

fn case(report: &SessionReport, document: &ReportDocument) -> String {
    let subject = &report.subject;
    let project = subject.project.as_deref().map(|path| path.display().to_string());
    let class = project.unwrap_or_else(|| "outlast".to_owned());
    let name = match &subject.prompt {
        Some(prompt) => format!("{prompt} ({})", subject.id),
        None => subject.id.clone(),
    };
    let (status, outcome) = (escaped(&document.status.text), report.outcome);
    let detail = match outcome {
        SessionOutcome::Ended(reason) => escaped(reason.info().hint),
        // A task that never began has no session that could be resumed.
        SessionOutcome::Unfinished if subject.processes == 0 => String::new(),
        SessionOutcome::Unfinished => {
            format!("to go on: outlast --resume {}", escaped(&subject.id))
        }
        SessionOutcome::Running | SessionOutcome::Foreign => String::new(),
    };
    let end = |element: &str| {
        let kind = outcome.name();
        format!("      <{element} message=\"{status}\" type=\"{kind}\">{detail}</{element}>\n")
    };
    let end = if is_skipped(outcome) {
        format!("      <skipped message=\"{status}\"/>\n")
    } else if is_error(outcome) {
        end("error")
    } else if is_failure(outcome) {
        end("failure")
    } else {
        String::new()
    };
    let figures = document.figures.iter().map(|figure| {
        let detail = if figure.detail.is_empty() { "" } else { ", " };
        format!("{}: {}{detail}{}", figure.label, figure.value, figure.detail)
    });
    let figures = figures.collect::<Vec<_>>().join("; ");
    format!(
        "    <testcase name=\"{}\" classname=\"{}\" time=\"{}\">\n\
         {end}      <system-out>{}</system-out>\n    </testcase>\n",
        escaped(&name),
        escaped(&class),
        seconds(report.time.worked),
        escaped(&figures)
    )
}

/// Whether a session says nothing about its task: it is not over, or not one of outlast's.
fn is_skipped(outcome: SessionOutcome) -> bool {
    !outcome.is_success() && !outcome.is_failure()
}

/// Whether it was cut off, or outlast broke.
fn is_error(outcome: SessionOutcome) -> bool {
    let is_ours = outcome == SessionOutcome::Ended(crate::recovery::StopReason::InternalError);
    is_ours || outcome == SessionOutcome::Unfinished
}

fn is_failure(outcome: SessionOutcome) -> bool {
    outcome.is_failure() && !is_error(outcome)
}

fn seconds(time: Duration) -> String {
    format!("{}.{:03}", time.as_secs(), time.subsec_millis())
}
