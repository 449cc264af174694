//! Requests that are rejected for their content: media and invalid blocks.

use outlast_core::recovery::{
    AccountKind, Action, AvailableMitigations, Budgets, CallPurpose, ErrorClass, Event, Failure,
    Limits, Persistence, RecoveryPlan, ReplyDisposition, RetryHint, StopReason, Trim,
};

use super::super::{
    ANSWER, ANYTHING, Story, TOOL_CALLS, TOOLS_DONE, failure, failure_with_retry_after, limits,
    secs, with_budgets,
};

const MEDIA: AvailableMitigations =
    AvailableMitigations { media: true, ..AvailableMitigations::NONE };
const BLOCK: AvailableMitigations =
    AvailableMitigations { block: true, ..AvailableMitigations::NONE };

const FOLDS: AvailableMitigations =
    AvailableMitigations { folds: true, ..AvailableMitigations::NONE };

const TOO_LARGE: [ErrorClass; 2] = [ErrorClass::ImageTooLarge, ErrorClass::PdfTooLarge];
const POISONED: [ErrorClass; 2] = [ErrorClass::InvalidRequest, ErrorClass::ToolUseMismatch];

fn refusal(class: ErrorClass, remedies: AvailableMitigations) -> Event {
    Event::Failed(Failure { mitigations: remedies, ..failure(class) })
}

// --- media --------------------------------------------------------------------------------------

#[test]
fn oversized_media_are_stripped_up_to_five_times_and_the_request_repeated() {
    for class in TOO_LARGE {
        let story = Story::begin(limits()).then(refusal(class, MEDIA));
        let decision = story.decision();
        assert_eq!(decision.plan, Some(RecoveryPlan::Strip), "{class}");
        assert_eq!(
            (decision.edit.trim, decision.edit.reply),
            (Some(Trim::Media), ReplyDisposition::Drop)
        );
        assert_eq!((story.asked().attempt, story.asked().purpose), (1, CallPurpose::Reply));
        assert!(story.retried_without_pause());
        assert_eq!(story.run.budgets.retries, 10, "another request is no retry");
        let story = (1..5).fold(story, |story, _| story.then(refusal(class, MEDIA)));
        assert_eq!(story.decision().plan, Some(RecoveryPlan::Strip), "{class}");
        let story = story.then(refusal(class, MEDIA));
        story.ends_as(StopReason::ImageError);
        assert_eq!(story.requests(), 6);
    }
}

#[test]
fn media_named_one_by_one_are_stripped_one_by_one() {
    let named = AvailableMitigations { block: true, ..MEDIA };
    for class in TOO_LARGE {
        let mut story = Story::begin(limits()).then(refusal(class, named));
        for _ in 1..5 {
            assert_eq!(story.decision().plan, Some(RecoveryPlan::Strip), "{class}");
            story = story.then(refusal(class, named));
        }
        for _ in 0..8 {
            story = story.then(refusal(class, named));
            assert_eq!(story.decision().plan, Some(RecoveryPlan::RepairBlock), "{class}");
            assert!(story.retried_without_pause());
        }
        let story = story.then(refusal(class, named));
        story.ends_as(StopReason::ImageError);
        assert_eq!(story.requests(), 14, "{class}");
    }
}

#[test]
fn every_turn_has_its_own_media_strip() {
    let story = Story::begin(limits()).then(refusal(ErrorClass::ImageTooLarge, MEDIA));
    let story = story.then(TOOL_CALLS).then(TOOLS_DONE);
    let story = story.then(refusal(ErrorClass::PdfTooLarge, MEDIA));
    assert_eq!(story.decision().edit.trim, Some(Trim::Media));
    story.then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn a_media_error_without_media_to_strip_ends_the_run() {
    let others = AvailableMitigations { media: false, ..ANYTHING };
    for class in TOO_LARGE {
        let story = Story::begin(limits()).then(refusal(class, others));
        story.ends_as(StopReason::ImageError);
        assert_eq!(story.requests(), 1, "{class}");
    }
}

#[test]
fn a_request_over_the_byte_limit_is_stripped_then_folded_then_compacted() {
    let refused = || refusal(ErrorClass::RequestTooLarge, ANYTHING);
    let mut story = Story::begin(limits()).then(refused());
    for _ in 0..5 {
        assert_eq!(story.decision().edit.trim, Some(Trim::Media));
        story = story.then(refused());
    }
    assert_eq!(story.decision().edit.trim, Some(Trim::Folds));
    let story = story.then(refused());
    assert_ne!(story.asked().purpose, CallPurpose::Reply);
    let story = story.then(ANSWER).then(refused());
    story.ends_as(StopReason::PromptTooLong);
    assert_eq!(story.requests(), 9);
}

/// Only where no repair is known, and only for a refused request.
#[test]
fn added_content_is_omitted_from_a_request_that_is_refused_for_no_known_reason() {
    let suspect = AvailableMitigations { added: true, ..BLOCK };
    let class = ErrorClass::InvalidRequest;
    let mut story = Story::begin(limits());
    for trim in [vec![Trim::Block; 8], vec![Trim::Added; 2]].concat() {
        story = story.then(refusal(class, suspect));
        assert_eq!(story.decision().edit.trim, Some(trim));
        assert!(story.retried_without_pause());
    }
    story.then(refusal(class, suspect)).ends_as(StopReason::ModelError(class));
    let class = ErrorClass::ToolUseMismatch;
    let suspect = AvailableMitigations { block: false, ..suspect };
    Story::begin(limits()).then(refusal(class, suspect)).ends_as(StopReason::ModelError(class));
}

#[test]
fn a_context_overflow_does_not_strip_media() {
    let story = Story::begin(limits()).then(refusal(ErrorClass::PromptTooLong, MEDIA));
    story.ends_as(StopReason::PromptTooLong);
}

// --- rejected blocks ----------------------------------------------------------------------------

#[test]
fn rejected_blocks_are_repaired_one_by_one_up_to_eight() {
    for class in POISONED {
        let mut story = Story::begin(limits());
        for _ in 0..8 {
            story = story.then(refusal(class, BLOCK));
            let decision = story.decision();
            assert_eq!(decision.plan, Some(RecoveryPlan::RepairBlock), "{class}");
            assert_eq!(
                (decision.edit.trim, decision.edit.reply),
                (Some(Trim::Block), ReplyDisposition::Drop)
            );
            assert_eq!((story.asked().attempt, story.run.budgets.retries), (1, 10));
        }
        let healed = Story { told: story.told.clone(), ..story };
        healed.then(ANSWER).ends_as(StopReason::Completed);
        let story = eight_times(class).then(refusal(class, BLOCK));
        story.ends_as(StopReason::ModelError(class));
        assert_eq!(story.requests(), 9);
    }
}

fn eight_times(class: ErrorClass) -> Story {
    (0..8).fold(Story::begin(limits()), |story, _| story.then(refusal(class, BLOCK)))
}

#[test]
fn a_finished_turn_resets_the_repair_budget() {
    let story = eight_times(ErrorClass::InvalidRequest).then(TOOL_CALLS).then(TOOLS_DONE);
    assert_eq!(story.run.budgets.block_repairs, 8);
    let story = story.then(refusal(ErrorClass::ToolUseMismatch, BLOCK));
    assert_eq!(story.decision().edit.trim, Some(Trim::Block));
}

#[test]
fn a_resumed_run_may_strip_and_repair_again() {
    let image = refusal(ErrorClass::ImageTooLarge, MEDIA);
    let story = eight_times(ErrorClass::InvalidRequest).then(image);
    let left = story.run.budgets;
    assert_eq!((left.block_repairs, left.strips), (0, 4));
    let story = Story::unasked(limits()).goes_on_from(&story);
    assert_eq!(story.then(image).decision().plan, Some(RecoveryPlan::Strip));
    let story = Story::unasked(limits()).goes_on_from(&eight_times(ErrorClass::InvalidRequest));
    let story = story.then(refusal(ErrorClass::InvalidRequest, BLOCK));
    assert_eq!(story.decision().plan, Some(RecoveryPlan::RepairBlock));
}

#[test]
fn a_request_rejected_with_400_is_never_sent_again() {
    let others = AvailableMitigations { block: false, thinking: false, added: false, ..ANYTHING };
    let others =
        AvailableMitigations { output: false, cache_marks: false, streaming: false, ..others };
    for class in POISONED {
        let story = Story::begin(limits()).then(refusal(class, others));
        story.ends_as(StopReason::ModelError(class));
        assert_eq!(story.requests(), 1, "{class}");
    }
}

#[test]
fn neither_persistence_nor_fallback_repeats_a_rejected_request() {
    let chain = Budgets { switches: 2, ..Budgets::DEFAULT };
    let rules = [
        Limits { persistence: Persistence::All, ..limits() },
        Limits { account: AccountKind::Enterprise, ..limits() },
        Limits { endpoint_changes: 0b11, ..with_budgets(chain) },
    ];
    let refused = [
        ErrorClass::InvalidRequest,
        ErrorClass::ToolUseMismatch,
        ErrorClass::ImageTooLarge,
        ErrorClass::PdfTooLarge,
        ErrorClass::PromptTooLong,
        ErrorClass::RequestTooLarge,
        ErrorClass::Unknown,
    ];
    for limits in rules {
        for class in refused {
            let story = Story::begin(limits).fails(class);
            assert_eq!(story.last(), Action::Finish(StopReason::from_class(class)), "{class}");
        }
    }
}

// --- retry hints of the server ------------------------------------------------------------------

#[test]
fn a_no_retry_hint_does_not_forbid_a_repaired_request() {
    let cases = [
        (ErrorClass::ImageTooLarge, MEDIA, Trim::Media),
        (ErrorClass::InvalidRequest, BLOCK, Trim::Block),
        (ErrorClass::PromptTooLong, FOLDS, Trim::Folds),
    ];
    for (class, remedies, trim) in cases {
        let refused =
            Failure { retry_hint: Some(RetryHint::Stop), mitigations: remedies, ..failure(class) };
        let story = Story::begin(limits()).then(Event::Failed(refused));
        assert_eq!(story.decision().edit.trim, Some(trim), "{class}");
        let none = Failure { mitigations: AvailableMitigations::NONE, ..refused };
        let story = story.then(Event::Failed(none));
        assert_eq!(story.last(), Action::Finish(StopReason::from_class(class)), "{class}");
    }
}

#[test]
fn a_retry_hint_does_not_skip_the_repair() {
    let cases = [
        (ErrorClass::PdfTooLarge, MEDIA, RecoveryPlan::Strip),
        (ErrorClass::ToolUseMismatch, BLOCK, RecoveryPlan::RepairBlock),
        (ErrorClass::PromptTooLong, FOLDS, RecoveryPlan::CommitFolds),
        (ErrorClass::RequestTooLarge, FOLDS, RecoveryPlan::CommitFolds),
    ];
    for (class, remedies, cure) in cases {
        let told =
            Failure { retry_hint: Some(RetryHint::Retry), mitigations: remedies, ..failure(class) };
        let story = Story::begin(limits()).then(Event::Failed(told));
        assert_eq!(story.decision().plan, Some(cure));
        let none = Failure { mitigations: AvailableMitigations::NONE, ..told };
        let story = story.then(Event::Failed(none));
        assert_eq!(story.pause().retry, 1, "{class}: and then it is taken at its word");
    }
}

#[test]
fn a_repaired_request_waits_for_retry_after() {
    let refused = failure_with_retry_after(ErrorClass::InvalidRequest, secs(20));
    let story =
        Story::begin(limits()).then(Event::Failed(Failure { mitigations: BLOCK, ..refused }));
    assert_eq!(story.transition().edit.trim, Some(Trim::Block), "but is repaired at once");
    assert!(story.pause_millis() >= 20_000);
    assert_eq!((story.pause().class, story.pause().of), (ErrorClass::InvalidRequest, None));
    let far = Failure {
        mitigations: BLOCK,
        ..failure_with_retry_after(ErrorClass::InvalidRequest, secs(601))
    };
    let story = Story::begin(limits()).then(Event::Failed(far));
    story.ends_as(StopReason::ModelError(ErrorClass::InvalidRequest));
}

#[test]
fn a_repair_resets_the_backoff() {
    let story = Story::begin(limits()).fails_and_waits(ErrorClass::ServerError, 5);
    let story = story.then(refusal(ErrorClass::InvalidRequest, BLOCK));
    assert_eq!(story.asked().attempt, 1);
    let story = story.fails(ErrorClass::ServerError);
    assert!((500..=625).contains(&story.pause_millis()), "{}", story.pause_millis());
    assert_eq!(story.run.budgets.retries, 4, "but its retries stay spent");
}
