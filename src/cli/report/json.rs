//! Reports as JSON, for programs.

use std::path::Path;

use serde_json::{Value, json};

use crate::journal::ModelTotals;
use crate::recovery::{Money, Spending};
use crate::report::{
    AgentSummary, Answer, SessionReport, SessionsOverview, SpendSummary, TimeSpent, ToolCounts,
    WorkDone,
};
use crate::text::millis;

use super::super::version::SCHEMA_VERSION;

/// Returns the report on sessions as one object.
pub(super) fn object(overview: &SessionsOverview, reports: &[SessionReport]) -> Value {
    json!({
        "type": "report",
        "schema_version": SCHEMA_VERSION,
        "overview": self::overview(overview),
        "sessions": reports.iter().map(session).collect::<Vec<_>>(),
    })
}

fn overview(overview: &SessionsOverview) -> Value {
    let outcomes = &overview.outcomes;
    let mut object = json!({
        "sessions": outcomes.sessions(),
        "succeeded": outcomes.succeeded,
        "failed": outcomes.failed,
        "saved_by_recovery": overview.saved,
        "outcomes": outcomes.by_name,
        "damaged": overview.damaged,
        "num_turns": overview.turns,
        "num_agents": overview.agents,
        "model_switches": overview.changes.model_switches,
        "compactions": overview.changes.compactions,
        "tools": tools(overview.tools),
        "recoveries": overview.recoveries,
    });
    add_time(&mut object, overview.time);
    add_spending(&mut object, &overview.spending);
    object
}

fn session(report: &SessionReport) -> Value {
    let subject = &report.subject;
    let mut object = json!({
        "session_id": subject.id,
        "project": subject.project.as_deref().map(Path::to_string_lossy),
        "name": subject.name,
        "prompt": subject.prompt,
        "started": subject.started.map(|at| at.to_string()),
        "ended": subject.ended.map(|at| at.to_string()),
        "processes": subject.processes,
        "outcome": report.outcome.name(),
        "exit_code": report.outcome.exit_code(),
        "is_error": report.outcome.is_failure(),
        "error": report.error,
        "num_turns": report.turns,
        "model_switches": report.changes.model_switches,
        "compactions": report.changes.compactions,
        "tools": tools(report.tools),
        "recoveries": report.recoveries.classes(),
        "agents": report.agents.iter().map(agent).collect::<Vec<_>>(),
        "unreadable_lines": report.damage.unreadable_lines,
        "is_torn": report.damage.is_torn,
    });
    add_time(&mut object, report.time);
    add_spending(&mut object, &report.spending);
    add_work(&mut object, &report.work);
    object
}

/// Adds the results. An answer that matches a schema has a member of its own.
fn add_work(object: &mut Value, work: &WorkDone) {
    let (text, structured) = match &work.answer {
        None => (None, None),
        Some(Answer::Text(text)) => (Some(text), None),
        Some(Answer::Structured(text)) => (None, serde_json::from_str::<Value>(text).ok()),
    };
    object["answer"] = json!(text);
    object["structured_output"] = json!(structured);
    object["changed_files"] = json!(work.files);
    object["writing_commands"] = json!(work.writing_commands);
    object["not_run"] = json!(work.refused);
    object["failed_command"] = json!(work.failed);
}

fn add_time(object: &mut Value, time: TimeSpent) {
    object["worked_ms"] = json!(millis(time.worked));
    object["waited_ms"] = json!({
        "total": millis(time.waited()),
        "retries": millis(time.retries),
        "shared_limits": millis(time.shared_limits),
        "background": millis(time.background),
    });
}

fn add_spending(object: &mut Value, spending: &SpendSummary) {
    object["total_cost_usd"] = dollars(spending.cost);
    object["known_cost_usd"] = json!(spending.cost.amount.as_dollars());
    object["unsettled_usd"] = json!(spending.upper_bounds.as_dollars());
    object["usage"] = json!(spending.usage);
    object["cache_hit_ratio"] = json!(spending.cache_hits());
    object["models"] = spending.by_model.iter().map(model).collect();
}

/// Returns `null` if a price is unknown.
fn dollars(cost: Spending) -> Value {
    json!(cost.total().map(Money::as_dollars))
}

fn model(total: &ModelTotals) -> Value {
    json!({
        "model": total.model,
        "usage": total.usage,
        "cost_usd": total.cost.map(Money::as_dollars),
    })
}

fn tools(counts: ToolCounts) -> Value {
    json!({
        "calls": counts.calls(),
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "not_run": counts.not_run,
        "running": counts.running,
        "unknown": counts.unknown,
    })
}

fn agent(agent: &AgentSummary) -> Value {
    json!({
        "agent_id": agent.id,
        "agent_type": agent.kind,
        "description": agent.description,
        "outcome": agent.outcome.name(),
        "num_turns": agent.turns,
        "tools": tools(agent.tools),
        "worked_ms": millis(agent.worked),
        "total_cost_usd": dollars(agent.cost),
    })
}
