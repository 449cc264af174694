//! Reports as `JUnit` XML: a test case for each session.

use std::time::Duration;

use jiff::tz::TimeZone;

use crate::recovery::StopReason;
use crate::report::{SessionOutcome, SessionReport, SessionSubject};

use super::super::moved_session::resume_command;
use super::document::{BlockForm, ReportDocument, commands_note};
use super::markup::{escaped, escaped_lines};

/// Renders sessions, with the document of each for its output.
pub(super) fn render(sessions: &[(&SessionReport, ReportDocument)]) -> String {
    let number = |is_counted: fn(SessionOutcome) -> bool| {
        sessions.iter().filter(|(report, _)| is_counted(report.outcome)).count()
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
    for ((report, document), name) in sessions.iter().zip(names(sessions)) {
        text.push_str(&case(report, document, &name));
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

/// Returns the names of the test cases: equal for equal work in each run, so that CI systems have a
/// history of it. Names that several sessions share are numbered.
fn names(sessions: &[(&SessionReport, ReportDocument)]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(sessions.len());
    for (report, _) in sessions {
        let SessionSubject { name, prompt, id, .. } = &report.subject;
        let text = name.as_ref().or(prompt.as_ref()).unwrap_or(id);
        let is_same = |known: &&String| known.strip_prefix(text.as_str()).is_some_and(is_number);
        let name = match names.iter().filter(is_same).count() {
            0 => text.clone(),
            before => format!("{text} ({})", before + 1),
        };
        names.push(name);
    }
    names
}

/// Returns true if a text is empty, or a number as it is added to a name: ` (2)`.
fn is_number(rest: &str) -> bool {
    let number = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
    rest.is_empty() || number.is_some_and(|number| number.parse::<u32>().is_ok())
}

fn case(report: &SessionReport, document: &ReportDocument, name: &str) -> String {
    let subject = &report.subject;
    let project = subject.project.as_deref().map(|path| path.display().to_string());
    let class = project.unwrap_or_else(|| "outlast".to_owned());
    let (status, outcome) = (escaped(&document.status.text), report.outcome);
    let detail = match outcome {
        SessionOutcome::Ended(reason) => escaped(reason.info().hint),
        // A task that did not begin has no session to resume.
        SessionOutcome::Unfinished if subject.processes == 0 => String::new(),
        SessionOutcome::Unfinished => {
            let command = resume_command(&subject.id, subject.project.as_deref(), None, "");
            format!("to go on: {}", escaped(&command))
        }
        SessionOutcome::Running | SessionOutcome::NotStarted(_) | SessionOutcome::Foreign => {
            String::new()
        }
    };
    let detail = paragraphs([detail, failure_text(report, document)]);
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
        let comma = if figure.detail.is_empty() { "" } else { ", " };
        format!("{}: {}{comma}{}", figure.label, figure.value, figure.detail)
    });
    let figures = figures.collect::<Vec<_>>().join("; ");
    let files = report.work.files.iter();
    let files = files.map(|file| format!("{} +{} -{}", file.path, file.added, file.removed));
    let files = files.chain(commands_note(&report.work)).collect::<Vec<_>>().join("\n");
    let answer = report.work.answer.as_ref().map_or("", |answer| answer.text()).to_owned();
    let output = paragraphs([answer, files, figures]);
    format!(
        "    <testcase name=\"{}\" classname=\"{}\" time=\"{}\">\n\
         {end}      <system-out>{}</system-out>\n    </testcase>\n",
        escaped(name),
        escaped(&class),
        seconds(report.time.worked),
        escaped_lines(&output)
    )
}

/// Joins the texts that are not empty.
fn paragraphs<const N: usize>(texts: [String; N]) -> String {
    let texts = texts.into_iter().filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n\n")
}

/// Describes the output of the failed command, and the calls that were not run.
fn failure_text(report: &SessionReport, document: &ReportDocument) -> String {
    let outputs = document.blocks.iter().filter(|block| block.form == BlockForm::Output);
    let outputs = outputs.map(|block| format!("{}:\n{}", block.heading, block.text));
    let refused = report.work.refused.iter();
    let refused = refused.map(|refused| format!("not run: {}: {}", refused.call, refused.reason));
    escaped_lines(&outputs.chain(refused).collect::<Vec<_>>().join("\n"))
}

/// Returns true if a session has no result of its task: it has not ended, or another program
/// recorded it.
fn is_skipped(outcome: SessionOutcome) -> bool {
    !outcome.is_success() && !outcome.is_failure()
}

/// Returns true if a session was cut off, or outlast failed because of a bug.
fn is_error(outcome: SessionOutcome) -> bool {
    let is_defect = outcome == SessionOutcome::Ended(StopReason::InternalError);
    is_defect || outcome == SessionOutcome::Unfinished
}

fn is_failure(outcome: SessionOutcome) -> bool {
    outcome.is_failure() && !is_error(outcome)
}

fn seconds(time: Duration) -> String {
    format!("{}.{:03}", time.as_secs(), time.subsec_millis())
}
