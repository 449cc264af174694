//! Converts a result for clients of the agent SDKs, where these expect other fields or values than
//! outlast's own (PROTOCOL, introduction and 4.4).

use serde_json::{Value, json};
use uuid::Uuid;

use crate::types::{StopReason, exit_code};

/// The subtype of a result that ended normally.
const SUCCESS: &str = "success";

/// The values that a host receives for a stop reason, where they differ from outlast's own.
struct HostTerms {
    /// The subtype of the result. `None`: unchanged.
    subtype: Option<&'static str>,
    terminal_reason: &'static str,
    /// True if the turn ended as the user requested, which is not an error to a host.
    ends_as_asked: bool,
}

/// Returns the host's values for a stop reason. `None`: they do not differ.
const fn terms(reason: StopReason) -> Option<HostTerms> {
    match reason {
        StopReason::ModelError(_) => Some(HostTerms {
            subtype: Some(SUCCESS),
            terminal_reason: "api_error",
            ends_as_asked: false,
        }),
        StopReason::MaxBudgetUsd => Some(HostTerms {
            subtype: None,
            terminal_reason: "budget_exhausted",
            ends_as_asked: false,
        }),
        StopReason::HookStopped | StopReason::StopHookPrevented | StopReason::ToolDeferred => {
            Some(HostTerms {
                subtype: Some(SUCCESS),
                terminal_reason: reason.name(),
                ends_as_asked: true,
            })
        }
        StopReason::Completed
        | StopReason::MaxTurns
        | StopReason::Deadline
        | StopReason::AbortedStreaming(_)
        | StopReason::AbortedTools(_)
        | StopReason::Denied
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
        | StopReason::RehearsalFailed
        | StopReason::InternalError => None,
    }
}

/// True if the turn ended as the user requested. It is then not an error to a host: its exit code
/// is 0.
pub fn ends_as_asked(reason: StopReason) -> bool {
    terms(reason).is_some_and(|terms| terms.ends_as_asked)
}

/// Converts an exit code for a host: 0 for success, 1 for failures, whose cause is in the result.
/// Codes for signals (129 and above) are unchanged.
pub const fn exit_code_for_hosts(code: u8) -> u8 {
    if code == exit_code::SUCCESS || code >= exit_code::SIGHUP { code } else { exit_code::FAILED }
}

/// Replaces the exit code of a result object by that of [`exit_code_for_hosts`].
pub fn translate_exit_code(result: &mut Value) {
    let code = result["exit_code"].as_u64().and_then(|code| u8::try_from(code).ok());
    if let Some(code) = code {
        result["exit_code"] = json!(exit_code_for_hosts(code));
    }
}

/// Converts a result object for a host. `is_error` is unchanged, except for turns that ended as the
/// user requested. A result of the subtype `success` has the text of its errors in `result`, where
/// the SDKs read it.
pub fn translate_result(result: &mut Value, reason: StopReason) {
    translate_exit_code(result);
    let Some(terms) = terms(reason) else { return };
    result["terminal_reason"] = json!(terms.terminal_reason);
    let Some(subtype) = terms.subtype else { return };
    result["subtype"] = json!(subtype);
    let errors = result.as_object_mut().and_then(|result| result.remove("errors"));
    let errors = errors.iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str);
    let errors = errors.collect::<Vec<_>>().join("; ");
    result["result"] = if terms.ends_as_asked {
        result["is_error"] = json!(false);
        result["exit_code"] = json!(0);
        // The host already has the replies. A prompt that was not accepted has none.
        json!(if result["num_turns"] == 0 { errors } else { String::new() })
    } else {
        json!(format!("API Error: {errors}"))
    };
}

/// Returns the fields of the assistant message that reports an API failure to a host, before the
/// result (PROTOCOL 4.2). `None`: the turn ended for another reason.
pub fn api_error_message(result: &Value, reason: StopReason) -> Option<Value> {
    let StopReason::ModelError(class) = reason else { return None };
    Some(json!({
        "message": {
            "id": Uuid::new_v4().to_string(),
            "type": "message",
            "role": "assistant",
            "model": "<synthetic>",
            "content": [{ "type": "text", "text": result["result"] }],
            "stop_reason": "stop_sequence",
            "stop_sequence": "",
            "usage": { "input_tokens": 0, "output_tokens": 0 },
        },
        "error": class.info().category,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_towards_hosts_are_success_failure_and_signals() {
        for code in 0..=u8::MAX {
            let wanted = match code {
                0 | 129.. => code,
                1..=128 => 1,
            };
            assert_eq!(exit_code_for_hosts(code), wanted);
            let mut result = json!({ "exit_code": code });
            translate_exit_code(&mut result);
            assert_eq!(result["exit_code"], wanted);
        }
    }
}
