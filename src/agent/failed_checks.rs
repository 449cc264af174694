//! Reports a failed check of `--require` to the model: the number of checks, and the tool calls
//! since the check before, so that the model does not repeat its answer.

use crate::recovery::Nudge;
use crate::tools::RequirementCheck;
use crate::transcript::{Block, Message, Role, succeeded_calls};

const FINISHED_NOTHING: &str =
    "Since the attempt before, no tool call succeeded, so nothing has changed.";
const SAME_OUTPUT: &str = "The output is exactly the same as at the attempt before.";

/// The failed checks of a run.
#[derive(Debug, Default)]
pub(super) struct FailedChecks {
    /// The report that the model has not received yet.
    report: Option<String>,
    /// The output of the last check.
    output: Option<String>,
}

impl FailedChecks {
    pub(super) fn take_report(&mut self) -> Option<String> {
        self.report.take()
    }

    /// Records one more failed check: attempt `attempt` of `most`.
    pub(super) fn record(
        &mut self,
        check: &RequirementCheck,
        (attempt, most): (u32, u32),
        messages: &[Message],
    ) {
        let mut lines = vec![format!("This was attempt {attempt} of {most}.")];
        if let Some(before) = self.output.replace(check.output.clone()) {
            lines.push(describe_progress(messages));
            lines.extend((before == check.output).then(|| SAME_OUTPUT.to_owned()));
        }
        self.report = Some(format!("{}\n\n{}", lines.join(" "), check.report()));
    }
}

/// Describes the tool calls that have succeeded since the report of the previous check.
fn describe_progress(messages: &[Message]) -> String {
    let reported_at = messages.iter().rposition(is_failed_check_report);
    let calls = succeeded_calls(&messages[reported_at.map_or(0, |at| at + 1)..]);
    if calls.is_empty() {
        return FINISHED_NOTHING.to_owned();
    }
    format!(
        "Since the attempt before, these calls were made, and it still fails: {}.",
        calls.join("; ")
    )
}

fn is_failed_check_report(message: &Message) -> bool {
    let heads = [Nudge::Unmet, Nudge::UnmetAgain, Nudge::UnmetLast].map(Nudge::text);
    let texts = message.content.iter().filter_map(Block::as_text);
    let mut reports = texts.filter(|text| heads.iter().any(|head| text.starts_with(head)));
    message.role == Role::User && reports.next().is_some()
}
