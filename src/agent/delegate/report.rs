//! What is told of a sub-agent to whoever started it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::recovery::{ErrorClass, Money, StopReason};
use crate::tools::Outcome;
use crate::transcript::Block;

use super::super::conversation;
use super::super::setup::Denial;
use super::child::Report;
use super::tree::AgentTask;

/// How much of its last words stands in the report of a failure, in characters.
const LAST_WORDS: usize = 4_000;

/// How much of what a hook or a rule said is shown, in characters.
const OBJECTION: usize = 1_000;

/// How many calls of a kind are listed: those that were denied, or cut.
const LISTED: usize = 20;

/// The words of one that is done.
pub(super) fn answer(report: &Report) -> String {
    if report.text.trim().is_empty() {
        "(the agent ended without a word)".to_owned()
    } else {
        report.text.clone()
    }
}

/// What one that is not done came to.
pub(super) fn failure(task: &AgentTask, report: &Report) -> String {
    let mark = &task.mark;
    let class = class_of(report.reason).map_or_else(String::new, |class| format!(", {class}"));
    let mut text = format!(
        "The agent {} ({}) did not finish. Stop reason: {}{class}. {}",
        mark.id,
        mark.kind,
        report.reason.name(),
        advice(report.reason)
    );
    // A string takes all that is written to it.
    if let Some(error) = &task.error {
        let _ = write!(text, " What went wrong: {error}.");
    }
    if let Some(before) = &task.retries {
        let _ = write!(text, " It was the second try, after {before} had failed.");
    }
    if let Some(objection) = objection(report) {
        let _ = write!(text, "\nThe hook said: {}", shortened(&objection, OBJECTION));
    }
    let denied = |denial: &Denial| {
        format!("{}: {}", denial.tool_name, shortened(&denial.reason, OBJECTION))
    };
    let denials = bounded(report.tally.denials.iter().map(denied).collect());
    list(&mut text, "What it was not allowed:", &denials);
    let AgentTask { turns, cost, unsettled, session, .. } = task;
    let _ = write!(text, "\nTurns: {turns}. Cost: {cost}");
    if *unsettled > Money::ZERO {
        let _ = write!(text, " ({unsettled} of it charged for a call that may not be billed)");
    }
    let _ = write!(text, ". Session: {session}.");
    let done = &report.finished;
    if done.is_empty() {
        text.push_str(
            "\nIt had finished nothing: no tool of it ran to its end without an error. What a tool did \
             before it failed or was cut off may have had its effect.",
        );
    } else {
        list(&mut text, "What it had finished, each tool that ran without an error:", done);
    }
    list(&mut text, "What was cut off, so check before doing it again:", &unknown(&report.cut));
    let words = report.text.trim();
    if words.is_empty() {
        text.push_str("\nIt had said nothing yet.");
    } else {
        let _ = write!(text, "\nIts last words:\n{}", shortened(words, LAST_WORDS));
    }
    text
}

/// A line for each that was cut off.
fn unknown(cut: &[String]) -> Vec<String> {
    let line = |call: &String| format!("{call} was running when it ended: outcome unknown");
    bounded(cut.iter().map(line).collect())
}

/// The first of them, and how many more there are.
fn bounded(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(LISTED);
    if more > 0 {
        lines.truncate(LISTED);
        lines.push(format!("(and {more} more)"));
    }
    lines
}

fn list(text: &mut String, title: &str, lines: &[String]) {
    if !lines.is_empty() {
        // A string takes all that is written to it.
        let _ = write!(text, "\n{title}\n- {}", lines.join("\n- "));
    }
}

fn shortened(text: &str, limit: usize) -> String {
    let shown: String = text.chars().take(limit).collect();
    let rest = if shown.len() < text.len() { " [...]" } else { "" };
    format!("{shown}{rest}")
}

/// What a hook said, where that is why it ended.
fn objection(report: &Report) -> Option<String> {
    let by_hook = matches!(
        report.reason,
        StopReason::HookStopped | StopReason::StopHookPrevented | StopReason::StopHookBlocked
    );
    report.objection.clone().filter(|_| by_hook)
}

/// What the reason means for whoever gave it the work, and what to do about it.
fn advice(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Completed => "It says that it is done.",
        StopReason::MaxTurns => {
            "It used up the replies that it may give: what is left is another, smaller part."
        }
        StopReason::MaxBudgetUsd => {
            "The money of the whole run is spent or promised: no other agent can be paid for \
             either, so end the work with what there is."
        }
        StopReason::Deadline => {
            "The time of the whole run is up: end the work with what there is."
        }
        StopReason::AbortedStreaming(_) | StopReason::AbortedTools(_) => {
            "It was told to stop and did not fail by itself."
        }
        StopReason::HookStopped | StopReason::StopHookPrevented => {
            "A hook of the user stopped it, and will stop the same again: go another way, or say \
             what the hook said."
        }
        StopReason::Denied => {
            "A tool call of it was denied, and a denied call ends this run: do not try to get \
             around it."
        }
        StopReason::StopHookBlocked => {
            "A hook of the user kept objecting to its end, so its work is not accepted: what the \
             hook wants is still to be done."
        }
        StopReason::BlockingLimit | StopReason::PromptTooLong => {
            "Its conversation became too long for the model: split the task, and have large files \
             read in parts."
        }
        StopReason::MaxOutputTokens => {
            "What it wanted to say at once was too long: ask for less, or have it written to a \
             file in pieces."
        }
        StopReason::ImageError => {
            "An image or document that it looked at is too large: have a smaller one made, or its \
             text extracted."
        }
        StopReason::ModelError(class) => advice_on(class),
        StopReason::EmptyResponse => {
            "The model kept answering nothing: put the task in other words, or do it yourself."
        }
        StopReason::Refusal => {
            "The model declined, and will decline the same again. Why stands below, if it said so."
        }
        StopReason::Stalled => {
            "It did the same again and again: say what to do differently, or do it yourself."
        }
        StopReason::BackgroundPending => {
            "It was done, but what it had started in the background was not, and was stopped."
        }
        StopReason::RequirementFailed | StopReason::StructuredOutputRetryExhausted => {
            "What it came to is not what was asked for."
        }
        StopReason::InternalError => {
            "A fault of outlast ended it, and not the task: it may go well once more."
        }
    }
}

/// The same where the service failed it.
fn advice_on(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::ApiTimeout
        | ErrorClass::StreamStalled
        | ErrorClass::ConnectionError
        | ErrorClass::RateLimit
        | ErrorClass::ServerOverload
        | ErrorClass::Repeated529
        | ErrorClass::ServerError
        | ErrorClass::BadResponse
        | ErrorClass::Aborted
        | ErrorClass::EmptyResponse => {
            "The service could not be reached, or was too busy, and it was asked as often as may \
             be: go on with what is left later, or by yourself."
        }
        ErrorClass::QuotaExhausted | ErrorClass::CreditBalanceLow => {
            "What may be used of the model is used up for now, for other agents as well: end the \
             work with what there is."
        }
        ErrorClass::InvalidApiKey
        | ErrorClass::TokenRevoked
        | ErrorClass::AuthError
        | ErrorClass::SslCertError => {
            "The service did not let it in, and will not let in others either: nothing that you \
             do can mend that."
        }
        ErrorClass::InvalidModel => {
            "The service does not know its model, or not for this user: name another one, or none."
        }
        ErrorClass::PromptTooLong
        | ErrorClass::RequestTooLarge
        | ErrorClass::PdfTooLarge
        | ErrorClass::ImageTooLarge
        | ErrorClass::ToolUseMismatch
        | ErrorClass::InvalidRequest
        | ErrorClass::Refusal
        | ErrorClass::Unknown => {
            "The service refused what it sent, and would refuse the same again: put the task in \
             other words or smaller parts."
        }
    }
}

pub(super) fn class_of(reason: StopReason) -> Option<ErrorClass> {
    if let StopReason::ModelError(class) = reason { Some(class) } else { None }
}

/// What programs see.
pub(super) fn detail(task: &AgentTask, text: &str) -> Value {
    json!({
        "status": task.status.name(),
        "agentId": task.mark.id,
        "agentType": task.mark.kind,
        "reason": task.reason.map(StopReason::name),
        "prompt": task.prompt,
        "content": [{ "type": "text", "text": text }],
        "session": task.session,
        "totalDurationMs": u64::try_from(task.took.as_millis()).unwrap_or(u64::MAX),
        "totalTokens": task.tokens,
        "totalToolUseCount": task.tool_calls,
        "totalTurns": task.turns,
        "totalCostUsd": task.cost.minus(task.unsettled).as_dollars(),
        "unsettledUsd": task.unsettled.as_dollars(),
    })
}

/// The text of an outcome.
pub(super) fn text_of(outcome: &Outcome) -> String {
    let blocks: Vec<Block> = outcome.content.clone();
    let text = conversation::text_of(&blocks);
    let bare = text.trim_start_matches("<tool_use_error>");
    bare.trim_end_matches("</tool_use_error>").to_owned()
}
