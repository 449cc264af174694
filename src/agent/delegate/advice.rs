//! Advice on the end of a sub-agent for the agent that started it. Pure.

use crate::recovery::{ErrorClass, StopReason};

/// What a stop reason means for the agent that started the sub-agent, and what to do about it.
pub(super) fn advice(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Completed => "It says that it is done.",
        StopReason::MaxTurns => {
            "It used up the replies that it may give: what is left is another, smaller part."
        }
        StopReason::MaxBudgetUsd => {
            "The money of the whole run is spent or promised: no other agent can be paid for \
             either, so end the work with what there is."
        }
        StopReason::Deadline => "The time of the whole run is up: end the work with what there is.",
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
        StopReason::OutputFailed => "The file for its result could not be written.",
        StopReason::InternalError => {
            "A fault of outlast ended it, and not the task: it may go well once more."
        }
    }
}

/// The advice for a failure of the service.
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

/// Whether a second attempt may end differently.
pub(super) fn may_succeed_on_retry(reason: StopReason) -> bool {
    match reason {
        StopReason::MaxTurns
        | StopReason::StopHookBlocked
        | StopReason::BlockingLimit
        | StopReason::PromptTooLong
        | StopReason::MaxOutputTokens
        | StopReason::ImageError
        | StopReason::EmptyResponse
        | StopReason::Stalled
        | StopReason::BackgroundPending
        | StopReason::RequirementFailed
        | StopReason::StructuredOutputRetryExhausted
        | StopReason::OutputFailed
        | StopReason::InternalError => true,
        StopReason::ModelError(class) => !is_for_good(class),
        StopReason::Completed
        | StopReason::MaxBudgetUsd
        | StopReason::Deadline
        | StopReason::AbortedStreaming(_)
        | StopReason::AbortedTools(_)
        | StopReason::HookStopped
        | StopReason::StopHookPrevented
        | StopReason::Denied
        | StopReason::Refusal => false,
    }
}

/// Whether the service would refuse any other agent as well.
fn is_for_good(class: ErrorClass) -> bool {
    matches!(
        class,
        ErrorClass::QuotaExhausted
            | ErrorClass::CreditBalanceLow
            | ErrorClass::InvalidApiKey
            | ErrorClass::TokenRevoked
            | ErrorClass::AuthError
            | ErrorClass::SslCertError
            | ErrorClass::InvalidModel
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_class_has_advice_and_is_retried_only_where_it_may_help() {
        for class in ErrorClass::ALL {
            let reason = StopReason::ModelError(class);
            assert!(advice(reason).ends_with('.'), "{class}");
            let hopeless = advice(reason).contains("end the work")
                || advice(reason).contains("nothing that you do")
                || class == ErrorClass::InvalidModel;
            assert_eq!(may_succeed_on_retry(reason), !hopeless, "{class}");
        }
    }
}
