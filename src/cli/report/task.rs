//! Reports on a task of a batch whose session is missing: it was recorded on another machine, or
//! deleted.

use std::time::Duration;

use serde_json::Value;

use crate::batch::{TaskOutcome, TaskReport, TaskState};
use crate::history::SessionHistory;
use crate::journal::ModelTotals;
use crate::recovery::{ErrorClass, Money, StopReason};
use crate::report::{
    Answer, ConversationChanges, FailedCommand, RefusedCall, SessionOutcome, SessionReport,
    SpendSummary, TimeSpent, ToolCounts, shortened_prompt,
};
use crate::transcript::{Usage, summarize_call};

/// Reports on a task from its result. Without a result it is unfinished, without any work.
pub(super) fn of_task(task: &TaskReport<'_>) -> SessionReport {
    let id = task.session_id.to_string();
    let mut report = SessionReport::of(&SessionHistory { id, ..SessionHistory::default() });
    let is_running = task.state == TaskState::Running;
    report.outcome = if is_running { SessionOutcome::Running } else { SessionOutcome::Unfinished };
    report.subject.name = Some(task.task.id.clone());
    report.subject.prompt = Some("the task has no session".to_owned());
    let Some(outcome) = &task.outcome else { return report };
    let result = &outcome.result;
    let number = |pointer: &str| number(result.pointer(pointer));
    let millis = |pointer: &str| Duration::from_millis(number(pointer));
    let count = |pointer: &str| u32::try_from(number(pointer)).unwrap_or(u32::MAX);
    // A task that runs again has the result of an earlier attempt.
    if !is_running {
        report.outcome = outcome_of(outcome);
        report.error = outcome.error().map(str::to_owned);
    }
    report.subject.prompt = Some(shortened_prompt(&task.task.prompt));
    report.subject.processes = u32::try_from(task.attempts).unwrap_or(u32::MAX);
    report.turns = count("/num_turns");
    let shared_limits = millis("/recovery/shared_limits/waited_ms");
    report.time = TimeSpent {
        worked: millis("/duration_ms"),
        retries: millis("/recovery/waited_ms").saturating_sub(shared_limits),
        shared_limits,
        background: Duration::ZERO,
    };
    let spending = outcome.spending();
    let unsettled = result.pointer("/budget/unsettled_usd").and_then(Value::as_f64);
    let unsettled = unsettled.and_then(Money::from_dollars).unwrap_or_default();
    report.spending = SpendSummary {
        cost: spending,
        ..SpendSummary::new(spending.amount, unsettled, models(&result["modelUsage"]))
    };
    let (failed, not_run) = (count("/tools/failed"), count("/tools/denied"));
    let unknown = count("/tools/abandoned");
    let without_success = failed.saturating_add(not_run).saturating_add(unknown);
    let succeeded = count("/tools/calls").saturating_sub(without_success);
    report.tools = ToolCounts { succeeded, failed, not_run, running: 0, unknown };
    report.changes = ConversationChanges {
        model_switches: count("/recovery/fallbacks"),
        compactions: count("/recovery/compactions"),
    };
    report.work.answer = answer(result);
    let denials = result["permission_denials"].as_array().into_iter().flatten();
    report.work.refused = denials.map(refused).collect();
    report.work.failed = requirement(&result["requirement"]);
    report
}

/// Returns the reason why the run ended. Results of runs that did not begin have none.
fn outcome_of(outcome: &TaskOutcome) -> SessionOutcome {
    let class = outcome.result["api_error_class"].as_str();
    let of_result = |reason: &StopReason| {
        let info = reason.info();
        Some(info.name) == outcome.reason() && info.exit_code == outcome.exit_code
    };
    let is_of_class =
        |reason: &StopReason| reason.info().error_class.map(ErrorClass::name) == class;
    let mut reasons: Vec<StopReason> = StopReason::all().filter(of_result).collect();
    reasons.sort_by_key(|reason| !is_of_class(reason));
    let first = reasons.first().copied();
    first.map_or(SessionOutcome::NotStarted(outcome.exit_code), SessionOutcome::Ended)
}

fn models(usage: &Value) -> Vec<ModelTotals> {
    let model = |(name, usage): (&String, &Value)| ModelTotals {
        model: name.clone(),
        usage: Usage {
            input_tokens: number(usage.get("inputTokens")),
            output_tokens: number(usage.get("outputTokens")),
            cache_creation_input_tokens: number(usage.get("cacheCreationInputTokens")),
            cache_read_input_tokens: number(usage.get("cacheReadInputTokens")),
            web_search_requests: number(usage.get("webSearchRequests")),
        },
        cost: usage["costUSD"].as_f64().and_then(Money::from_dollars),
    };
    usage.as_object().into_iter().flatten().map(model).collect()
}

fn answer(result: &Value) -> Option<Answer> {
    let structured = Some(&result["structured_output"]).filter(|answer| !answer.is_null());
    let structured = structured.map(|answer| Answer::Structured(format!("{answer:#}")));
    let texts = [&result["result"], &result["partial_result"]];
    let text = texts.into_iter().find_map(Value::as_str).filter(|text| !text.trim().is_empty());
    structured.or_else(|| text.map(|text| Answer::Text(text.trim().to_owned())))
}

fn refused(denial: &Value) -> RefusedCall {
    let text = |key: &str| denial[key].as_str().unwrap_or_default();
    RefusedCall {
        call: summarize_call(text("tool_name"), &denial["tool_input"]),
        reason: text("reason").to_owned(),
    }
}

/// Returns the command of `--require`, if it ran and failed.
fn requirement(report: &Value) -> Option<FailedCommand> {
    let has_failed = report["passed"] == false && number(report.get("attempts")) > 0;
    let exit_code = report["exit_code"].as_i64();
    has_failed.then(|| FailedCommand {
        command: report["command"].as_str().unwrap_or_default().to_owned(),
        end: exit_code.map_or("failed".to_owned(), |code| format!("ended with exit code {code}")),
        output: report["output"].as_str().unwrap_or_default().to_owned(),
        is_requirement: true,
    })
}

fn number(value: Option<&Value>) -> u64 {
    value.and_then(Value::as_u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use crate::batch::PlannedTask;

    use super::*;

    #[test]
    fn a_task_that_runs_again_is_running_whatever_its_earlier_attempt_was() {
        let planned: PlannedTask = serde_json::from_value(json!({
            "index": 0, "id": "lint", "name": "b-0", "session_id": Uuid::nil(), "line": 1,
            "prompt": "Do it.", "cwd": null, "git": null, "flags": [], "limits": {},
        }))
        .unwrap();
        let result = json!({
            "exit_code": 75, "is_error": true, "terminal_reason": "model_error",
            "api_error_class": "server_overload", "errors": ["overloaded"], "num_turns": 2,
        });
        let of = |state| {
            let outcome = TaskOutcome::parse(&result.to_string());
            let session_id = planned.session_id;
            of_task(&TaskReport { task: &planned, state, attempts: 1, outcome, session_id })
        };
        let (again, failed) = (of(TaskState::Running), of(TaskState::Failed));
        assert_eq!((again.outcome, again.error), (SessionOutcome::Running, None));
        assert_ne!(failed.outcome, SessionOutcome::Running);
        assert_eq!((failed.error.as_deref(), failed.turns), (Some("overloaded"), 2));
    }
}
