//! The result as clients of the agent SDKs expect it, where that differs from ours (PROTOCOL,
//! introduction and 4.4).

use serde_json::{Value, json};

use crate::types::StopReason;

/// How a host is told of a stop reason, where that differs.
struct HostTerms {
    /// `None`: as elsewhere.
    subtype: Option<&'static str>,
    terminal_reason: &'static str,
}

/// The table of the differences.
const fn terms(reason: StopReason) -> Option<HostTerms> {
    match reason {
        StopReason::ModelError(_) => {
            Some(HostTerms { subtype: Some("success"), terminal_reason: "api_error" })
        }
        StopReason::MaxBudgetUsd => {
            Some(HostTerms { subtype: None, terminal_reason: "budget_exhausted" })
        }
        StopReason::Completed
        | StopReason::MaxTurns
        | StopReason::Deadline
        | StopReason::AbortedStreaming(_)
        | StopReason::AbortedTools(_)
        | StopReason::HookStopped
        | StopReason::Denied
        | StopReason::StopHookPrevented
        | StopReason::StopHookBlocked
        | StopReason::BlockingLimit
        | StopReason::PromptTooLong
        | StopReason::MaxOutputTokens
        | StopReason::ImageError
        | StopReason::EmptyResponse
        | StopReason::Refusal
        | StopReason::Stalled
        | StopReason::BackgroundPending
        | StopReason::RequirementFailed
        | StopReason::StructuredOutputRetryExhausted
        | StopReason::OutputFailed
        | StopReason::InternalError => None,
    }
}

/// Changes a result object to the terms of hosts. `is_error` and the exit code stay.
pub fn translate_result(result: &mut Value, reason: StopReason) {
    let Some(HostTerms { subtype, terminal_reason }) = terms(reason) else { return };
    result["terminal_reason"] = json!(terminal_reason);
    if let Some(subtype) = subtype {
        result["subtype"] = json!(subtype);
        let errors = result["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
        result["result"] = json!(format!("API Error: {}", errors.collect::<Vec<_>>().join("; ")));
    }
}
