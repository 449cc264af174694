//! The result object: how a run ended.

use crate::agent::{JournalHealth, ModelStats, RunOutcome, RunStats};
use crate::cli::advice;
use crate::cli::exit::{self, ExitStatus};
use crate::cli::moved_session::RepeatedTerms;
use crate::cli::timestamps::{WallTime, from_unix_seconds};
use crate::cli::usage::UsageError;
use crate::cli::version::{COMMIT, SCHEMA_VERSION, VERSION};
use crate::config::repository::IgnoredSetting;
use crate::journal::Damage;
use crate::messages::{
    BudgetSummary, ContractChange, DeferredToolUse, JournalState, JournalSummary, ModelUsage,
    ProbeTotals, RecoveryEntry, RecoverySummary, ResultObject, ResumeCommand, RetryAdvice,
    RunDetails, ServerToolUse, SharedLimitTotals, ToolCounts, UsageTotals,
};
use crate::recovery::{ErrorClass, Fault, Money, RecoveryRecord, StopReason};
use crate::text::millis;
use crate::tools::{Egress, SandboxState};
use crate::transcript::{ToolCall, Usage};

use super::agents;

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
    /// The terms that the command to resume the run repeats.
    pub terms: RepeatedTerms<'a>,
}

impl ResultReport<'_> {
    pub fn verdict(&self) -> ExitStatus {
        exit::exit_status(self.outcome.reason)
    }

    /// Returns the reasons of a failure, one line each; empty after a success.
    pub fn errors(&self) -> Vec<String> {
        advice::explain(self.outcome, self.now, self.session_id)
    }

    /// Returns the last lines of the output of the required command, if it did not pass.
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
        (unfinished && can_go_on).then(|| self.terms.resume_command(self.session_id))
    }

    /// Returns the warning that the command to resume the run lacks flags, if it does.
    pub fn resume_warning(&self) -> Option<String> {
        self.resume_command().and_then(|_| self.terms.given.loss_warning(self.terms.redactor))
    }

    /// Returns the result object.
    pub fn object(&self) -> ResultObject {
        let (outcome, verdict) = (self.outcome, self.verdict());
        let (answer, acceptance) = (self.answer(), &outcome.acceptance);
        let (result, partial, errors) = if verdict.is_error() {
            (None, Some(answer).filter(|text| !text.is_empty()), Some(self.errors()))
        } else {
            (Some(answer), None, None)
        };
        let fault = outcome.fault();
        let retry_at = outcome.failure.as_ref().and_then(|failure| failure.retry_at);
        let deferred = outcome.deferred.as_ref();
        let stop_reason = deferred.map(|_| outcome.reason.name().to_owned());
        ResultObject {
            result,
            partial_result: partial,
            errors,
            structured_output: acceptance.structured_output.clone().filter(|_| !verdict.is_error()),
            schema_attempts: acceptance.schema_attempts,
            requirement: acceptance.requirement.clone(),
            terminal_reason: Some(outcome.reason.name()),
            stop_reason: stop_reason.or_else(|| outcome.stop_reason.clone()),
            api_error_status: fault.and_then(Fault::status),
            retry: Some(RetryAdvice {
                api_error_class: advice::error_class(outcome).map(ErrorClass::name),
                retryable: verdict.is_temporary(),
                retry_at: retry_at.and_then(from_unix_seconds).map(|at| at.to_string()),
                request_id: fault.and_then(|fault| fault.request_id.clone()),
                resume: self.resume_command().map(|command| ResumeCommand {
                    session_id: self.session_id.to_owned(),
                    command,
                }),
            }),
            agents: outcome.agents.iter().map(agents::agent).collect(),
            run: Some(self.details()),
            network_refused: self.sandbox.egress.as_ref().map(Egress::refusals),
            mcp: Some(&outcome.servers).filter(|stats| !stats.servers.is_empty()).cloned(),
            contract_changes: self.resumption.changes.clone(),
            deferred_tool_use: deferred.map(|deferred| {
                let ToolCall { id, name, input } = deferred.call.clone();
                DeferredToolUse { id, name, input }
            }),
            rate_limits: outcome.rate_limits.clone(),
            ..without_run(
                verdict,
                (self.session_id, self.uuid),
                &outcome.stats,
                outcome.session_cost(),
            )
        }
    }

    fn details(&self) -> RunDetails {
        let outcome = self.outcome;
        RunDetails {
            background: outcome.tasks.iter().map(agents::background).collect(),
            budget: BudgetSummary {
                ceiling_usd: outcome.costs.budget.map(Money::as_dollars),
                spent_usd: outcome.cost().map(Money::as_dollars),
                unsettled_usd: outcome.cost().map(|_| outcome.costs.unsettled.as_dollars()),
                clamped_replies: outcome.stats.clamped,
            },
            durable: outcome.journal == JournalHealth::Durable,
            journal: journal(outcome, self.resumption.damage.as_ref()),
            warnings: self.warnings.iter().cloned().chain(self.resume_warning()).collect(),
            sandbox: self.sandbox.clone(),
            ignored_settings: self.ignored.to_vec(),
            hooks: outcome.hooks.clone(),
        }
    }
}

/// Returns the result object for a run that did not begin.
pub fn usage_error_result(error: &UsageError, session_id: &str, uuid: &str) -> ResultObject {
    ResultObject {
        errors: Some(error.lines().map(ToOwned::to_owned).collect()),
        terminal_reason: error.reason(),
        retry: Some(RetryAdvice {
            api_error_class: error.class().map(ErrorClass::name),
            retryable: error.verdict().is_temporary(),
            ..RetryAdvice::default()
        }),
        ..without_run(error.verdict(), (session_id, uuid), &RunStats::default(), Some(Money::ZERO))
    }
}

/// Returns the result object for a prompt that needed no run.
pub fn empty_result(session_id: &str, uuid: &str) -> ResultObject {
    let (verdict, stats) = (exit::exit_status(StopReason::Completed), RunStats::default());
    ResultObject {
        result: Some(String::new()),
        ..without_run(verdict, (session_id, uuid), &stats, Some(Money::ZERO))
    }
}

/// Returns a result object with the fields of every result. Subtype, `is_error` and exit code are
/// set together, so that they agree.
fn without_run(
    verdict: ExitStatus,
    (session_id, uuid): (&str, &str),
    stats: &RunStats,
    spent: Option<Money>,
) -> ResultObject {
    ResultObject {
        subtype: verdict.subtype(),
        is_error: verdict.is_error(),
        exit_code: verdict.exit_code(),
        schema_version: SCHEMA_VERSION,
        outlast_version: VERSION,
        outlast_commit: COMMIT,
        session_id: session_id.to_owned(),
        uuid: uuid.to_owned(),
        num_turns: stats.turns,
        duration_ms: millis(stats.duration),
        duration_api_ms: millis(stats.api_duration),
        ttft_ms: stats.first_token.map(millis),
        total_cost_usd: spent.map(Money::as_dollars),
        usage: usage(stats.usage),
        model_usage: model_usage(&stats.by_model),
        permission_denials: stats.denials.clone(),
        recovery: recovery(stats),
        tools: ToolCounts { stats: stats.tools, unknown_outcomes: stats.unknown_outcomes },
        ..ResultObject::default()
    }
}

/// Returns the recovery totals, the models with the turns from which they answered, and the latest
/// recoveries.
fn recovery(stats: &RunStats) -> RecoverySummary {
    let totals = stats.recovery.totals();
    RecoverySummary {
        requests: totals.requests,
        retries: totals.retries_by_class.sum(),
        retries_by_class: totals.retries_by_class.clone(),
        strategies: totals.strategies.clone(),
        waited_ms: millis(totals.waited),
        shared_limits: SharedLimitTotals {
            waits: totals.shared_limits.count,
            waited_ms: millis(totals.shared_limits.waited),
        },
        probes: ProbeTotals {
            sent: totals.probes.count,
            cost_usd: totals.probes.cost.total().map(Money::as_dollars),
        },
        repairs: stats.repairs,
        compactions: totals.compactions,
        fallbacks: totals.fallbacks,
        saved: totals.saved,
        lost: totals.lost,
        models: stats.models.clone(),
        records: stats.recovery.records().map(record).collect(),
        records_dropped: totals.forgotten,
    }
}

/// Returns the entry of a finished recovery.
pub(super) fn record(ended: &RecoveryRecord) -> RecoveryEntry {
    RecoveryEntry {
        class: ended.class.clone(),
        failures: ended.failures.clone(),
        strategy: ended.strategy.clone(),
        strategies: ended.strategies.clone(),
        transition: ended.transition.clone(),
        turn: ended.turn,
        attempts: ended.attempts,
        waited_ms: millis(ended.waited),
        took_ms: millis(ended.took),
        tokens: ended.tokens,
        cost_usd: ended.spending().total().map(Money::as_dollars),
        saved: ended.saved,
        lost_to: ended.lost_to.clone(),
    }
}

fn usage(usage: Usage) -> UsageTotals {
    UsageTotals {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cache_creation_input_tokens: usage.cache_creation_input_tokens,
        cache_read_input_tokens: usage.cache_read_input_tokens,
        server_tool_use: ServerToolUse {
            web_search_requests: usage.web_search_requests,
            web_fetch_requests: 0,
        },
        service_tier: None,
    }
}

/// Returns the usage by model, in the terms of the SDKs.
pub fn model_usage(lines: &[ModelStats]) -> Vec<(String, ModelUsage)> {
    let by_model = |stats: &ModelStats| ModelUsage {
        input_tokens: stats.usage.input_tokens,
        output_tokens: stats.usage.output_tokens,
        cache_read_input_tokens: stats.usage.cache_read_input_tokens,
        cache_creation_input_tokens: stats.usage.cache_creation_input_tokens,
        web_search_requests: stats.usage.web_search_requests,
        cost_usd: stats.cost.map(Money::as_dollars),
        context_window: stats.context_window,
        max_output_tokens: stats.max_output,
    };
    lines.iter().map(|stats| (stats.model.clone(), by_model(stats))).collect()
}

fn journal(outcome: &RunOutcome, damage: Option<&Damage>) -> JournalSummary {
    let (state, error) = match &outcome.journal {
        JournalHealth::Durable => (JournalState::Durable, None),
        JournalHealth::Off => (JournalState::Off, None),
        JournalHealth::Lost(why) => (JournalState::Lost, Some(why)),
        JournalHealth::TakenOver(why) => (JournalState::TakenOver, Some(why)),
    };
    JournalSummary {
        state,
        error: error.cloned(),
        dropped_records: outcome.stats.dropped_records,
        damage: damage.cloned(),
    }
}
