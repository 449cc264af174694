//! Converts a result for clients of the agent SDKs, where these expect other fields or values than
//! outlast's own.

use uuid::Uuid;

use crate::messages::{
    API_ERROR, AssistantMessage, BUDGET_EXHAUSTED, ReplyBlock, ReplyUsage, ResultObject,
};
use crate::transcript::Block;
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
fn terms(reason: StopReason) -> Option<HostTerms> {
    let (subtype, terminal_reason, ends_as_asked) = if let StopReason::ModelError(_) = reason {
        (Some(SUCCESS), API_ERROR, false)
    } else if reason == StopReason::MaxBudgetUsd {
        (None, BUDGET_EXHAUSTED, false)
    } else if matches!(
        reason,
        StopReason::HookStopped | StopReason::StopHookPrevented | StopReason::ToolDeferred
    ) {
        (Some(SUCCESS), reason.name(), true)
    } else {
        return None;
    };
    Some(HostTerms { subtype, terminal_reason, ends_as_asked })
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

/// Converts the exit code of a result to the one towards a host.
#[must_use]
pub fn exit_code_of_result_for_hosts(result: ResultObject) -> ResultObject {
    ResultObject { exit_code: exit_code_for_hosts(result.exit_code), ..result }
}

/// Converts a result to the terms of hosts. Except for turns that ended as asked, `is_error` stays.
/// Results of the subtype `success` have the text of their errors in `result`: there the SDKs look
/// for it.
#[must_use]
pub fn result_for_hosts(result: ResultObject, reason: StopReason) -> ResultObject {
    let result = exit_code_of_result_for_hosts(result);
    let Some(terms) = terms(reason) else { return result };
    let result = ResultObject { terminal_reason: Some(terms.terminal_reason), ..result };
    let Some(subtype) = terms.subtype else { return result };
    let errors = result.errors.unwrap_or_default().join("; ");
    let result = ResultObject { subtype, errors: None, ..result };
    if terms.ends_as_asked {
        // The host has the replies, but not the reason that a prompt was not accepted.
        let text = if result.num_turns == 0 { errors } else { String::new() };
        ResultObject { is_error: false, exit_code: 0, result: Some(text), ..result }
    } else {
        ResultObject { result: Some(format!("API Error: {errors}")), ..result }
    }
}

/// Returns the message that reports a failure of the API to a host, before its result. `None`: the
/// turn ended for another reason.
pub fn api_error_message(result: &ResultObject, reason: StopReason) -> Option<AssistantMessage> {
    let StopReason::ModelError(class) = reason else { return None };
    let id = Uuid::new_v4().to_string();
    let block = Block::text(result.result.clone().unwrap_or_default());
    let usage = ReplyUsage::Synthetic { input_tokens: 0, output_tokens: 0 };
    Some(AssistantMessage {
        message: ReplyBlock {
            stop_reason: Some("stop_sequence".to_owned()),
            stop_sequence: Some(String::new()),
            ..ReplyBlock::new(Some(&id), Some("<synthetic>"), block, usage)
        },
        request_id: None,
        error: Some(class.info().category),
        timestamp: None,
        parent_tool_use_id: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_for_hosts_are_success_failure_and_signals() {
        for code in 0..=u8::MAX {
            let wanted = if (1..=128).contains(&code) { 1 } else { code };
            assert_eq!(exit_code_for_hosts(code), wanted);
        }
    }
}
