//! Exit code and result of every reason to stop.

use std::collections::BTreeSet;
use std::fmt::Write;

use outlast::cli::exit::{MEANINGS, exit_status};
use outlast::recovery::{ErrorClass, Interrupt, StopReason};

use super::golden;

pub(super) const INTERRUPTS: [Interrupt; 9] = [
    Interrupt::Sigint,
    Interrupt::Sigterm,
    Interrupt::Sighup,
    Interrupt::Sigquit,
    Interrupt::Sigusr1,
    Interrupt::Sigusr2,
    Interrupt::Sigalrm,
    Interrupt::Sigxcpu,
    Interrupt::StdoutClosed,
];

/// Every reason there is. The match breaks the build when one is added and not listed.
pub(crate) fn every_reason() -> Vec<StopReason> {
    let mut reasons = vec![
        StopReason::Completed,
        StopReason::MaxTurns,
        StopReason::MaxBudgetUsd,
        StopReason::Deadline,
        StopReason::HookStopped,
        StopReason::Denied,
        StopReason::StopHookPrevented,
        StopReason::StopHookBlocked,
        StopReason::BlockingLimit,
        StopReason::Stalled,
        StopReason::BackgroundPending,
        StopReason::RequirementFailed,
        StopReason::StructuredOutputRetryExhausted,
        StopReason::PromptTooLong,
        StopReason::MaxOutputTokens,
        StopReason::ImageError,
        StopReason::EmptyResponse,
        StopReason::Refusal,
        StopReason::OutputFailed,
        StopReason::InternalError,
    ];
    reasons.extend(INTERRUPTS.map(StopReason::AbortedStreaming));
    reasons.extend(INTERRUPTS.map(StopReason::AbortedTools));
    reasons.extend(ErrorClass::ALL.map(StopReason::ModelError));
    for reason in &reasons {
        match reason {
            StopReason::Completed
            | StopReason::MaxTurns
            | StopReason::MaxBudgetUsd
            | StopReason::Deadline
            | StopReason::AbortedStreaming(_)
            | StopReason::AbortedTools(_)
            | StopReason::HookStopped
            | StopReason::Denied
            | StopReason::StopHookPrevented
            | StopReason::StopHookBlocked
            | StopReason::BlockingLimit
            | StopReason::Stalled
            | StopReason::BackgroundPending
            | StopReason::RequirementFailed
            | StopReason::StructuredOutputRetryExhausted
            | StopReason::PromptTooLong
            | StopReason::MaxOutputTokens
            | StopReason::ImageError
            | StopReason::ModelError(_)
            | StopReason::EmptyResponse
            | StopReason::Refusal
            | StopReason::OutputFailed
            | StopReason::InternalError => {}
        }
    }
    reasons
}

#[test]
fn the_exit_code_table_matches_the_golden_file() {
    let mut table = String::new();
    for reason in every_reason() {
        let verdict = exit_status(reason);
        let row = format!(
            "{:<42} {:>3}  {:<24} {}{}",
            format!("{reason:?}"),
            verdict.exit_code(),
            verdict.subtype(),
            if verdict.is_error() { "error" } else { "success" },
            if verdict.is_temporary() { ", temporary" } else { "" }
        );
        writeln!(table, "{}", row.trim_end()).unwrap();
    }
    golden::compare("tests/cli/golden/ends.txt", &table);
}

#[test]
fn exit_0_success_and_no_error_are_the_same_thing() {
    for reason in every_reason() {
        let verdict = exit_status(reason);
        let zero = verdict.exit_code() == 0;
        assert_eq!(zero, verdict.subtype() == "success", "{reason:?}");
        assert_eq!(zero, !verdict.is_error(), "{reason:?}");
        assert_eq!(zero, reason == StopReason::Completed, "{reason:?}");
    }
}

#[test]
fn every_possible_exit_code_is_in_the_manual_once() {
    let documented: Vec<u8> = MEANINGS.iter().map(|(code, _)| *code).collect();
    let distinct: BTreeSet<u8> = documented.iter().copied().collect();
    assert_eq!(distinct.len(), documented.len());
    for reason in every_reason() {
        assert!(distinct.contains(&exit_status(reason).exit_code()), "{reason:?}");
    }
}
