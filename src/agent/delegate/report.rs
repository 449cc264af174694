//! Reports on a sub-agent for the agent that started it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::journal::Denial;
use crate::recovery::{ErrorClass, Money, StopReason};
use crate::secrets::Redactor;
use crate::text::{millis, shortened};
use crate::tools::{ToolOutcome, Toolbox};
use crate::transcript::with_error_tags;

use super::super::run_monitor::CancelReason;
use super::super::setup::RunStats;
use super::task::{AgentTask, CUT, SubagentUsage};

/// Most characters of its final text in the report of a failure.
const FINAL_TEXT_MAX: usize = 4_000;

/// Most characters of a message of a hook or a rule.
const REASON_MAX: usize = 1_000;

/// Most calls in a list of denied calls, or of calls that were cut off.
const LISTED_MAX: usize = 20;

/// The report on a sub-agent that has ended.
pub(super) struct SubagentReport {
    pub(super) reason: StopReason,
    pub(super) text: String,
    /// The error that failed it, as the service or outlast worded it.
    pub(super) error: Option<String>,
    pub(super) stats: RunStats,
    /// The tools that ran without an error, a line each.
    pub(super) finished: Vec<String>,
    /// Tools that were running when it ended, and background commands that ended with it.
    pub(super) cut: Vec<String>,
    /// The reason of the hook that stopped it, or that objects to its end.
    pub(super) objection: Option<String>,
}

impl SubagentReport {
    /// Redacts texts before they are shortened: a truncated secret would not be recognised.
    pub(super) fn hide_secrets(&mut self, redactor: &Redactor) {
        let reasons = self.stats.denials.iter_mut().map(|denial| &mut denial.reason);
        for text in reasons.chain(&mut self.error).chain([&mut self.text]) {
            redactor.redact_in_place(text);
        }
    }

    pub(super) fn unbegun(cut: CancelReason) -> Self {
        let reason = match cut {
            CancelReason::Interrupt(by) => StopReason::AbortedStreaming(by),
            CancelReason::Deadline => StopReason::Deadline,
            CancelReason::Denial => StopReason::Denied,
        };
        Self::empty(reason, None)
    }

    /// The report on a sub-agent that panicked, with the message.
    pub(super) fn broken(why: String) -> Self {
        Self::empty(StopReason::InternalError, Some(why))
    }

    fn empty(reason: StopReason, error: Option<String>) -> Self {
        Self {
            reason,
            text: String::new(),
            error,
            stats: RunStats::default(),
            finished: Vec::new(),
            cut: Vec::new(),
            objection: None,
        }
    }
}

/// Returns the answer of a sub-agent that is done.
pub(super) fn answer(report: &SubagentReport) -> String {
    if report.text.trim().is_empty() {
        "(the agent ended without any text)".to_owned()
    } else {
        report.text.clone()
    }
}

/// Returns the report on a sub-agent that is not done.
pub(super) fn failure(task: &AgentTask, report: &SubagentReport) -> String {
    let identity = &task.identity;
    let class = class_of(report.reason).map_or_else(String::new, |class| format!(", {class}"));
    let mut text = format!(
        "The agent {} ({}) did not finish. Stop reason: {}{class}. {}",
        identity.id,
        identity.kind,
        report.reason.name(),
        report.reason.info().subagent_advice
    );
    // Writing to a string cannot fail.
    if let Some(error) = &task.error {
        let _ = write!(text, " What went wrong: {error}.");
    }
    if let Some(before) = &task.retries {
        let _ = write!(text, " It was the second try, after {before} had failed.");
    }
    if let Some(objection) = objection(report) {
        let _ = write!(text, "\nThe hook said: {}", shortened(&objection, REASON_MAX, CUT));
    }
    let denied = |denial: &Denial| {
        format!("{}: {}", denial.tool_name, shortened(&denial.reason, REASON_MAX, CUT))
    };
    let denials = bounded(report.stats.denials.iter().map(denied).collect());
    list(&mut text, "What it was not allowed:", &denials);
    let SubagentUsage { turns, cost, unsettled, .. } = task.usage;
    let _ = write!(text, "\nTurns: {turns}. Cost: {}", cost.as_cost());
    if unsettled > Money::ZERO {
        let _ = write!(
            text,
            " (up to {unsettled} of it for replies that broke off or were not counted)"
        );
    }
    let _ = write!(text, ". Session: {}.", task.session);
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
    let last_text = report.text.trim();
    if last_text.is_empty() {
        text.push_str("\nIt had written nothing yet.");
    } else {
        let _ = write!(text, "\nIts last words:\n{}", shortened(last_text, FINAL_TEXT_MAX, CUT));
    }
    text
}

/// Returns a line for each call that was cut off.
fn unknown(cut: &[String]) -> Vec<String> {
    let line = |call: &String| format!("{call} was running when it ended: outcome unknown");
    bounded(cut.iter().map(line).collect())
}

/// Returns the first lines, followed by a line with the number of the others.
fn bounded(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(LISTED_MAX);
    if more > 0 {
        lines.truncate(LISTED_MAX);
        lines.push(format!("(and {more} more)"));
    }
    lines
}

fn list(text: &mut String, title: &str, lines: &[String]) {
    if !lines.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{title}\n- {}", lines.join("\n- "));
    }
}

/// Returns the message of the hook that ended it, if one did.
fn objection(report: &SubagentReport) -> Option<String> {
    let by_hook = matches!(
        report.reason,
        StopReason::HookStopped | StopReason::StopHookPrevented | StopReason::StopHookBlocked
    );
    report.objection.clone().filter(|_| by_hook)
}

pub(super) fn class_of(reason: StopReason) -> Option<ErrorClass> {
    if let StopReason::ModelError(class) = reason { Some(class) } else { None }
}

/// Returns the structured result, for programs.
pub(super) fn detail(task: &AgentTask, report: &SubagentReport, text: &str) -> Value {
    let (usage, tokens) = (&task.usage, report.stats.usage);
    json!({
        "status": task.status,
        "agentId": task.identity.id,
        "agentType": task.identity.kind,
        "reason": task.reason.map(StopReason::name),
        "prompt": task.prompt,
        "content": [{ "type": "text", "text": text }],
        "session": task.session,
        "totalDurationMs": millis(usage.took),
        "totalTokens": usage.tokens,
        "totalToolUseCount": usage.tool_calls,
        "usage": {
            "input_tokens": tokens.input_tokens,
            "output_tokens": tokens.output_tokens,
            "cache_creation_input_tokens": tokens.cache_creation_input_tokens,
            "cache_read_input_tokens": tokens.cache_read_input_tokens,
            "cache_creation": null,
            "server_tool_use": {
                "web_search_requests": tokens.web_search_requests,
                "web_fetch_requests": 0,
            },
            "service_tier": null,
        },
        "totalTurns": usage.turns,
        "totalCostUsd": usage.cost.total().map(Money::as_dollars),
        "unsettledUsd": usage.unsettled.as_dollars(),
    })
}

/// Returns the outcome of a call that failed for this reason.
pub(super) async fn failed_outcome(toolbox: &Toolbox, why: &str) -> ToolOutcome {
    let detail = Value::String(format!("Error: {why}"));
    toolbox.agent_outcome(with_error_tags(why), true, detail).await
}

#[cfg(test)]
mod tests {
    use super::super::task::{AgentIdentity, AgentStatus};
    use super::*;
    use crate::transcript::Usage;

    fn task(reason: StopReason) -> AgentTask {
        AgentTask {
            identity: AgentIdentity {
                id: "a1".to_owned(),
                call: "toolu_1".to_owned(),
                kind: "reviewer".to_owned(),
                description: "look".to_owned(),
            },
            parent: None,
            depth: 1,
            retries: None,
            background: false,
            prompt: "Look.".to_owned(),
            model: "m".to_owned(),
            session: "s/subagents/agent-a1".to_owned(),
            status: AgentStatus::of(reason),
            reason: Some(reason),
            error: None,
            usage: SubagentUsage {
                turns: 1,
                tokens: 1,
                tool_calls: 1,
                requests: 1,
                ..SubagentUsage::default()
            },
        }
    }

    fn report(reason: StopReason) -> SubagentReport {
        let denial = Denial {
            tool_name: "Bash".to_owned(),
            tool_use_id: "toolu_2".to_owned(),
            tool_input: json!({}),
            reason: "the rule Bash(rm *) denies it".to_owned(),
        };
        SubagentReport {
            reason,
            text: "I had begun.".to_owned(),
            error: None,
            stats: RunStats { denials: vec![denial], ..RunStats::default() },
            finished: vec!["Bash: make".to_owned()],
            cut: vec!["Bash `make test`".to_owned()],
            objection: Some("the changelog is missing".to_owned()),
        }
    }

    #[test]
    fn a_failure_report_explains_the_stop_reason_and_lists_all_known_facts() {
        for reason in StopReason::all() {
            let text = failure(&task(reason), &report(reason));
            let by_hook = reason.name().contains("hook");
            for part in [
                &format!("Stop reason: {}", reason.name()),
                reason.info().subagent_advice,
                "Bash: the rule Bash(rm *) denies it",
                "- Bash: make",
                "Bash `make test` was running when it ended: outcome unknown",
                "I had begun.",
            ] {
                assert!(text.contains(part), "{reason:?}: no {part:?} in {text}");
            }
            assert_eq!(text.contains("the changelog is missing"), by_hook, "{reason:?}: {text}");
            let advice = reason.info().subagent_advice;
            assert!(advice.ends_with('.') && advice.len() > 20, "{reason:?}");
        }
    }

    #[test]
    fn the_structured_result_has_the_tokens_by_kind() {
        let mut ended = report(StopReason::Completed);
        ended.stats.usage = Usage {
            input_tokens: 3,
            output_tokens: 4,
            cache_creation_input_tokens: 5,
            cache_read_input_tokens: 6,
            web_search_requests: 7,
        };
        let usage = &detail(&task(StopReason::Completed), &ended, "Done.")["usage"];
        let names = ["input_tokens", "output_tokens"];
        assert_eq!(names.map(|name| &usage[name]), [&json!(3), &json!(4)]);
        let names = ["cache_creation_input_tokens", "cache_read_input_tokens"];
        assert_eq!(names.map(|name| &usage[name]), [&json!(5), &json!(6)]);
        assert_eq!(usage["server_tool_use"]["web_search_requests"], json!(7));
    }

    #[test]
    fn a_failure_report_stays_short_with_long_inputs() {
        let mut long = report(StopReason::MaxTurns);
        long.cut = (0..500).map(|call| format!("Bash `{call}`")).collect();
        long.text = "word ".repeat(100_000);
        long.stats.denials[0].reason = "no ".repeat(100_000);
        let text = failure(&task(StopReason::MaxTurns), &long);
        assert!(text.len() < 10_000, "{}", text.len());
        assert!(text.contains("(and 480 more)"), "{text}");
    }
}
