//! The result object: how a run ended.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::agent::{DeferredCall, HookStats, JournalHealth, ModelStats, RunOutcome, RunStats};
use crate::cli::advice;
use crate::cli::args::Profile;
use crate::cli::exit::{self, ExitStatus};
use crate::cli::moved_session::resume_command;
use crate::cli::settings::ContractChange;
use crate::cli::timestamps::{WallTime, from_unix_seconds, millis};
use crate::cli::usage::UsageError;
use crate::cli::version::{COMMIT, SCHEMA_VERSION, VERSION};
use crate::config::repository::IgnoredSetting;
use crate::journal::Damage;
use crate::recovery::{Money, RecoveryCounts, RecoveryRecord, StopReason};
use crate::tools::{Acceptance, SandboxState};
use crate::transcript::Usage;

use super::agents;
use super::servers::servers;

/// The result fields of a resumed session.
#[derive(Clone, Debug, Default)]
pub struct Resumption {
    /// Differences from the contract that the session was started with.
    pub changes: Vec<ContractChange>,
    /// Damage of the session's file, if there was any.
    pub damage: Option<Damage>,
}

/// All inputs of the result object.
#[derive(Clone, Copy, Debug)]
pub struct ResultReport<'a> {
    pub outcome: &'a RunOutcome,
    pub session_id: &'a str,
    pub uuid: &'a str,
    pub now: &'a WallTime,
    pub warnings: &'a [String],
    pub sandbox: &'a SandboxState,
    pub resumption: &'a Resumption,
    pub ignored: &'a [IgnoredSetting],
    /// The working folder of the run.
    pub cwd: &'a Path,
    /// The restrictions of `--profile`, which a session does not keep.
    pub profile: Option<Profile>,
}

impl ResultReport<'_> {
    pub fn verdict(&self) -> ExitStatus {
        exit::exit_status(self.outcome.reason)
    }

    /// Returns the reasons of a failure, one line each; empty after a success.
    pub fn errors(&self) -> Vec<String> {
        advice::explain(self.outcome, self.now, self.session_id)
    }

    /// The last lines that the required command printed when it did not pass.
    pub fn requirement_output(&self) -> Vec<&str> {
        let requirement = self.outcome.acceptance.requirement.as_ref();
        let output = requirement.map_or("", |requirement| requirement.output.as_str());
        if self.verdict().is_error() { output.lines().collect() } else { Vec::new() }
    }

    /// Returns the structured output, or else the model's final text.
    pub fn answer(&self) -> String {
        let answer = self.outcome.acceptance.structured_output.as_ref();
        answer.map_or_else(|| self.outcome.text.clone(), ToString::to_string)
    }

    /// Returns the command that resumes the run, if it ended early and can be resumed.
    pub fn resume_command(&self) -> Option<String> {
        let unfinished = self.verdict().is_error() && self.outcome.reason != StopReason::Refusal;
        let can_go_on = self.outcome.has_messages && self.outcome.journal == JournalHealth::Durable;
        (unfinished && can_go_on)
            .then(|| resume_command(self.session_id, Some(self.cwd), self.profile))
    }

    /// Returns the result object.
    pub fn object(&self) -> Value {
        let (outcome, verdict) = (self.outcome, self.verdict());
        let mut object = common_fields(verdict, self.session_id, self.uuid);
        if verdict.is_error() {
            let partial = self.answer();
            if !partial.is_empty() {
                object.insert("partial_result".to_owned(), json!(partial));
            }
            object.insert("errors".to_owned(), json!(self.errors()));
        } else {
            object.insert("result".to_owned(), json!(self.answer()));
            if let Some(answer) = &outcome.acceptance.structured_output {
                object.insert("structured_output".to_owned(), answer.clone());
            }
        }
        object.extend(acceptance_fields(&outcome.acceptance));
        let resume = self
            .resume_command()
            .map(|command| json!({ "session_id": self.session_id, "command": command }));
        extend(&mut object, why(outcome, verdict));
        object.insert("resume".to_owned(), json!(resume));
        extend(&mut object, sums(&outcome.stats, outcome.session_cost()));
        if !outcome.agents.is_empty() {
            let agents: Vec<Value> = outcome.agents.iter().map(agents::agent).collect();
            object.insert("agents".to_owned(), json!(agents));
        }
        let background: Vec<Value> = outcome.tasks.iter().map(agents::background).collect();
        object.insert("background".to_owned(), json!(background));
        extend(
            &mut object,
            json!({
                "budget": {
                    "ceiling_usd": outcome.budget.map(Money::as_dollars),
                    "spent_usd": outcome.cost().map(Money::as_dollars),
                    "unsettled_usd": outcome.cost().map(|_| outcome.unsettled.as_dollars()),
                    "clamped_replies": outcome.stats.clamped,
                },
                "durable": outcome.journal == JournalHealth::Durable,
                "journal": journal(outcome, self.resumption.damage.as_ref()),
                "warnings": self.warnings,
                "sandbox": self.sandbox,
                "ignored_settings": ignored(self.ignored),
                "hooks": hooks(&outcome.hooks),
            }),
        );
        if let Some(egress) = &self.sandbox.egress {
            object.insert("network_refused".to_owned(), json!(egress.refusals()));
        }
        if !outcome.servers.servers.is_empty() {
            object.insert("mcp".to_owned(), servers(&outcome.servers));
        }
        if !self.resumption.changes.is_empty() {
            let changes: Vec<Value> = self.resumption.changes.iter().map(change).collect();
            object.insert("contract_changes".to_owned(), json!(changes));
        }
        if let Some(DeferredCall { call, .. }) = &outcome.deferred {
            let call = json!({ "id": call.id, "name": call.name, "input": call.input });
            object.insert("deferred_tool_use".to_owned(), call);
        }
        if let Some(limits) = &outcome.rate_limits {
            object.insert("rate_limits".to_owned(), json!(limits));
        }
        Value::Object(object)
    }
}

/// Serialises the hook statistics, and the hooks that were killed with the run.
fn hooks(stats: &HookStats) -> Value {
    let mut hooks = json!({
        "ran": stats.ran,
        "failed": stats.failed,
        "blocked": stats.blocked,
        "waited_ms": millis(stats.waited),
        "log": stats.log,
    });
    if !stats.cut.is_empty() {
        hooks["cut"] = json!(stats.cut);
    }
    hooks
}

/// Returns the fields about the end of the run: its reason, and whether a retry may succeed.
fn why(outcome: &RunOutcome, verdict: ExitStatus) -> Value {
    let fault = outcome.fault.as_ref();
    let deferred = outcome.deferred.is_some().then(|| outcome.reason.name());
    let stop_reason = deferred.or(outcome.stop_reason.as_deref());
    json!({
        "terminal_reason": outcome.reason.name(),
        "stop_reason": stop_reason,
        "api_error_status": fault.and_then(crate::recovery::Fault::status),
        "api_error_class": advice::error_class(outcome).map(crate::recovery::ErrorClass::name),
        "retryable": verdict.is_temporary(),
        "retry_at": outcome.retry_at.and_then(from_unix_seconds).map(|at| at.to_string()),
        "request_id": fault.and_then(|fault| fault.request_id.clone()),
    })
}

/// Returns the result object for a run that did not begin.
pub fn usage_error_result(error: &UsageError, session_id: &str, uuid: &str) -> Value {
    let mut object = common_fields(error.verdict(), session_id, uuid);
    extend(
        &mut object,
        json!({
            "errors": error.lines().collect::<Vec<_>>(),
            "stop_reason": null,
            "api_error_status": null,
            "api_error_class": error.class().map(crate::recovery::ErrorClass::name),
            "retryable": error.verdict().is_temporary(),
            "retry_at": null,
            "request_id": null,
            "resume": null,
        }),
    );
    if let Some(reason) = error.reason() {
        object.insert("terminal_reason".to_owned(), json!(reason));
    }
    extend(&mut object, sums(&RunStats::default(), Some(Money::ZERO)));
    Value::Object(object)
}

/// Returns the result object for a prompt that needed no run.
pub fn empty_result(session_id: &str, uuid: &str) -> Value {
    let mut object = common_fields(ExitStatus::Success, session_id, uuid);
    let fields = json!({ "result": "", "stop_reason": null, "api_error_status": null });
    extend(&mut object, fields);
    extend(&mut object, sums(&RunStats::default(), Some(Money::ZERO)));
    Value::Object(object)
}

/// Returns the common fields of every result. Subtype, `is_error` and exit code are set together, so
/// that they agree.
fn common_fields(verdict: ExitStatus, session_id: &str, uuid: &str) -> Map<String, Value> {
    let mut object = Map::new();
    extend(
        &mut object,
        json!({
            "type": "result",
            "subtype": verdict.subtype(),
            "is_error": verdict.is_error(),
            "exit_code": verdict.exit_code(),
            "schema_version": SCHEMA_VERSION,
            "outlast_version": VERSION,
            "outlast_commit": COMMIT,
            "session_id": session_id,
            "uuid": uuid,
        }),
    );
    object
}

fn extend(object: &mut Map<String, Value>, more: Value) {
    if let Value::Object(more) = more {
        object.extend(more);
    }
}

/// Serialises the ignored settings of the repository.
pub(super) fn ignored(ignored: &[IgnoredSetting]) -> Vec<Value> {
    let value = |one: &IgnoredSetting| json!({ "file": one.file, "key": one.key, "why": one.why });
    ignored.iter().map(value).collect()
}

fn sums(stats: &RunStats, spent: Option<Money>) -> Value {
    let denials: Vec<Value> = stats
        .denials
        .iter()
        .map(|denial| {
            json!({
                "tool_name": denial.tool_name,
                "tool_use_id": denial.tool_use_id,
                "tool_input": denial.tool_input,
                "reason": denial.reason,
            })
        })
        .collect();
    json!({
        "num_turns": stats.turns,
        "duration_ms": millis(stats.duration),
        "duration_api_ms": millis(stats.api_duration),
        "ttft_ms": stats.first_token.map(millis),
        "total_cost_usd": spent.map(Money::as_dollars),
        "usage": usage(stats.usage),
        "modelUsage": model_usage(&stats.by_model),
        "permission_denials": denials,
        "recovery": recovery(stats),
        "tools": {
            "calls": stats.tools.calls,
            "failed": stats.tools.failed,
            "denied": stats.tools.denied,
            "abandoned": stats.tools.abandoned,
            "unknown_outcomes": stats.unknown_outcomes,
        },
    })
}

/// Serialises how often the acceptance checks ran, and their outcome.
fn acceptance_fields(acceptance: &Acceptance) -> Map<String, Value> {
    let mut fields = Map::new();
    if let Some(attempts) = acceptance.schema_attempts {
        fields.insert("schema_attempts".to_owned(), json!(attempts));
    }
    if let Some(requirement) = &acceptance.requirement {
        let mut value = json!({
            "command": requirement.command,
            "passed": requirement.passed,
            "attempts": requirement.attempts,
            "exit_code": requirement.exit_code,
        });
        if !requirement.output.is_empty() {
            value["output"] = json!(requirement.output);
        }
        fields.insert("requirement".to_owned(), value);
    }
    fields
}

/// Serialises the recovery totals, which model answered from which turn on, and the latest
/// recoveries.
fn recovery(stats: &RunStats) -> Value {
    let totals = stats.recovery.totals();
    let models =
        stats.models.iter().map(|span| json!({ "model": span.model, "from_turn": span.from_turn }));
    json!({
        "requests": totals.requests,
        "retries": totals.retries_by_class.sum(),
        "retries_by_class": counts(&totals.retries_by_class),
        "strategies": counts(&totals.strategies),
        "waited_ms": millis(totals.waited),
        "shared_limits": { "waits": totals.shared_limit_waits, "waited_ms": millis(totals.shared_limit_waited) },
        "probes": { "sent": totals.probes, "cost_usd": totals.probes_cost.total().map(Money::as_dollars) },
        "repairs": stats.repairs,
        "compactions": totals.compactions,
        "fallbacks": totals.fallbacks,
        "saved": totals.saved,
        "lost": totals.lost,
        "models": models.collect::<Vec<Value>>(),
        "records": stats.recovery.records().map(record).collect::<Vec<Value>>(),
        "records_dropped": totals.forgotten,
    })
}

/// Serialises a finished recovery.
pub(super) fn record(ended: &RecoveryRecord) -> Value {
    json!({
        "class": ended.class,
        "setbacks": counts(&ended.failures),
        "strategy": ended.strategy,
        "strategies": counts(&ended.strategies),
        "transition": ended.transition,
        "turn": ended.turn,
        "attempts": ended.attempts,
        "waited_ms": millis(ended.waited),
        "took_ms": millis(ended.took),
        "tokens": ended.tokens,
        "cost_usd": ended.spending().total().map(Money::as_dollars),
        "saved": ended.saved,
        "lost_to": ended.lost_to,
    })
}

fn counts(counts: &RecoveryCounts) -> Map<String, Value> {
    counts.iter().map(|(name, count)| (name.to_owned(), json!(count))).collect()
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "server_tool_use": {
            "web_search_requests": usage.web_search_requests,
            "web_fetch_requests": 0,
        },
        "service_tier": null,
    })
}

/// Serialises what each model was used for, in the terms of the SDKs.
pub fn model_usage(lines: &[ModelStats]) -> Value {
    Value::Object(lines.iter().map(by_model).collect())
}

fn by_model(stats: &ModelStats) -> (String, Value) {
    let value = json!({
        "inputTokens": stats.usage.input_tokens,
        "outputTokens": stats.usage.output_tokens,
        "cacheReadInputTokens": stats.usage.cache_read_input_tokens,
        "cacheCreationInputTokens": stats.usage.cache_creation_input_tokens,
        "webSearchRequests": stats.usage.web_search_requests,
        "costUSD": stats.cost.map(Money::as_dollars),
        "contextWindow": stats.context_window,
        "maxOutputTokens": stats.max_output,
    });
    (stats.model.clone(), value)
}

/// Serialises a changed term of the session's contract.
fn change(change: &ContractChange) -> Value {
    json!({ "name": change.name, "was": change.was, "now": change.now })
}

fn journal(outcome: &RunOutcome, damage: Option<&Damage>) -> Value {
    let (state, why) = match &outcome.journal {
        JournalHealth::Durable => ("durable", None),
        JournalHealth::Off => ("off", None),
        JournalHealth::Lost(why) => ("lost", Some(why)),
        JournalHealth::TakenOver(why) => ("taken_over", Some(why)),
    };
    let dropped = outcome.stats.dropped_records;
    let mut journal = json!({ "state": state, "error": why, "dropped_records": dropped });
    if let Some(damage) = damage {
        journal["damage"] = json!(damage);
    }
    journal
}
