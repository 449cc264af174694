//! A conversation that fills its window.

use outlast_core::recovery::{
    Action, AvailableMitigations, Budgets, CallPurpose, CompactionTrigger, CutKind, ErrorClass,
    Event, Failure, FailureStage, Interrupt, Limits, ModelCall, Money, RecoveryPlan,
    ReplyDisposition, ReplyKind, ReplyMode, RetryHint, StopReason, TokenEstimate, Trim,
};

use super::super::{
    ANSWER, ANYTHING, FREE, Story, TOOL_CALLS, TOOLS_DONE, after, failure, failure_at_stage,
    failure_with_retry_after, limits, secs, with_budgets,
};

/// 200,000 tokens less 8,192 for the reply and 13,000 of headroom.
const THRESHOLD: u32 = 178_808;
const ROUNDS: AvailableMitigations =
    AvailableMitigations { rounds: true, ..AvailableMitigations::NONE };
const FOLDS: AvailableMitigations =
    AvailableMitigations { folds: true, ..AvailableMitigations::NONE };
const ROOMY: TokenEstimate =
    TokenEstimate { size: 20_000, window: 200_000, mitigations: ROUNDS, ..FREE };
const CROWDED: TokenEstimate = TokenEstimate { size: THRESHOLD, ..ROOMY };
const FULL: TokenEstimate = TokenEstimate { size: 200_000, ..ROOMY };

const AHEAD: CallPurpose = CallPurpose::Summary(CompactionTrigger::Threshold);
const LATE: CallPurpose = CallPurpose::Summary(CompactionTrigger::Overflow);

fn begin(weight: TokenEstimate, limits: Limits) -> Story {
    Story::unasked(limits).measure_with(weight).then(Event::Begin)
}

fn refusal(class: ErrorClass, remedies: AvailableMitigations) -> Event {
    Event::Failed(Failure { mitigations: remedies, ..failure(class) })
}

fn overflow(remedies: AvailableMitigations) -> Event {
    refusal(ErrorClass::PromptTooLong, remedies)
}

impl Story {
    /// A round of tools, and what the conversation weighs after it.
    #[track_caller]
    fn works(self, weight: TokenEstimate) -> Self {
        self.then(TOOL_CALLS).measure_with(weight).then(TOOLS_DONE)
    }

    /// The summary comes, and what the conversation weighs with it.
    #[track_caller]
    fn sums_up(self, weight: TokenEstimate) -> Self {
        assert_ne!(self.asked().purpose, CallPurpose::Reply, "no summary was requested");
        self.measure_with(weight).then(ANSWER)
    }

    #[track_caller]
    fn asks_for(&self, purpose: CallPurpose) -> ModelCall {
        assert_eq!(self.asked().purpose, purpose);
        self.asked()
    }
}

// --- ahead of need ----------------------------------------------------------------------------

#[test]
fn compaction_starts_exactly_at_the_token_threshold() {
    begin(TokenEstimate { size: THRESHOLD - 1, ..CROWDED }, limits()).asks_for(CallPurpose::Reply);
    let story = begin(CROWDED, limits());
    story.asks_for(AHEAD);
    assert_eq!(story.plans(), [RecoveryPlan::Compact]);
    let story = story.sums_up(ROOMY);
    assert_eq!(story.decision().edit.reply, ReplyDisposition::Summary);
    story.asks_for(CallPurpose::Reply);
    story.then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn the_compaction_threshold_follows_model_limits_and_headroom() {
    let at = |weight: TokenEstimate, size, rules| {
        begin(TokenEstimate { size, ..weight }, rules).asked().purpose
    };
    let terse = TokenEstimate { ceiling: 4_096, ..ROOMY };
    assert_eq!(at(terse, 182_903, limits()), CallPurpose::Reply);
    assert_eq!(at(terse, 182_904, limits()), AHEAD);
    let close = Limits { headroom: 1_000, ..limits() };
    assert_eq!(at(ROOMY, 190_807, close), CallPurpose::Reply);
    assert_eq!(at(ROOMY, 190_808, close), AHEAD);
    let small = TokenEstimate { window: 32_000, ..ROOMY };
    assert_eq!(at(small, 15_999, limits()), CallPurpose::Reply, "a small window is half used");
    assert_eq!(at(small, 16_000, limits()), AHEAD);
    let tiny = TokenEstimate { fixed: 3_000, window: 8_000, ..small };
    assert_eq!(at(tiny, 5_499, limits()), CallPurpose::Reply, "half of what the tools leave");
    assert_eq!(at(tiny, 5_500, limits()), AHEAD);
    let too_many = TokenEstimate { fixed: 9_000, ..tiny };
    assert_eq!(at(too_many, 7_999, limits()), CallPurpose::Reply);
}

#[test]
fn automatic_compaction_is_checked_after_tool_batches_and_costs_no_turn() {
    let rules = with_budgets(Budgets { turns: Some(3), ..Budgets::DEFAULT });
    let story = begin(ROOMY, rules).works(ROOMY).works(CROWDED);
    story.asks_for(AHEAD);
    let story = story.sums_up(ROOMY);
    assert_eq!(story.run.budgets.turns, Some(0));
    story.then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn compaction_needs_to_be_enabled_and_to_have_old_messages() {
    begin(CROWDED, Limits { auto_compact: false, ..limits() }).asks_for(CallPurpose::Reply);
    let fresh = TokenEstimate { mitigations: FOLDS, ..CROWDED };
    begin(fresh, limits()).asks_for(CallPurpose::Reply);
}

#[test]
fn automatic_compaction_does_not_start_after_a_failed_call() {
    let story = begin(ROOMY, limits()).measure_with(CROWDED).fails(ErrorClass::ServerError).wakes();
    story.asks_for(CallPurpose::Reply);
    story.works(CROWDED).asks_for(AHEAD);
}

#[test]
fn automatic_compaction_runs_once_per_turn() {
    let cut = Event::Replied(ReplyKind::CutShort(CutKind::Text));
    let story = begin(CROWDED, limits()).sums_up(CROWDED);
    story.asks_for(CallPurpose::Reply);
    let story = story.then(cut).then(cut);
    assert_eq!(story.asks_for(CallPurpose::Reply).cap, 21_192, "what the window leaves");
    assert_eq!(story.times(RecoveryPlan::Compact), 1);
}

#[test]
fn three_failed_summaries_in_a_row_disable_compaction() {
    let mut story = begin(CROWDED, limits());
    for nth in 1..=3 {
        story.asks_for(AHEAD);
        story = story.then(Event::Replied(ReplyKind::Empty));
        assert_eq!(story.times(RecoveryPlan::SkipCompaction), nth);
        story.asks_for(CallPurpose::Reply);
        story = story.works(CROWDED);
    }
    for _ in 0..5 {
        story.asks_for(CallPurpose::Reply);
        story = story.works(CROWDED);
    }
    let story = Story::resume(story.run.resumed(), limits()).works(CROWDED);
    story.asks_for(CallPurpose::Reply);
    let mut story = story.then(overflow(ROUNDS));
    story.asks_for(LATE);
    // The skipped summaries do not use up the last resort after an overflow.
    for _ in 0..3 {
        story = story.then(Event::Replied(ReplyKind::Empty)).wakes();
    }
    let story = story.then(Event::Replied(ReplyKind::Empty));
    assert_eq!(story.decision().plan, Some(RecoveryPlan::CompactUnsummarised));
    story.asks_for(CallPurpose::Reply);
}

#[test]
fn a_successful_summary_resets_the_compaction_circuit_breaker() {
    let in_vain = |story: Story| story.then(Event::Replied(ReplyKind::Refusal)).works(CROWDED);
    let story = in_vain(in_vain(begin(CROWDED, limits())));
    assert_eq!(story.run.budgets.failed_compactions, 1);
    let story = story.sums_up(ROOMY).works(CROWDED);
    assert_eq!(story.run.budgets.failed_compactions, 3);
    let story = in_vain(in_vain(story));
    story.asks_for(AHEAD);
    in_vain(story).asks_for(CallPurpose::Reply);
}

#[test]
fn two_ineffective_compactions_in_a_row_end_the_run() {
    let story = begin(CROWDED, limits()).sums_up(CROWDED);
    story.asks_for(CallPurpose::Reply);
    let story = story.works(CROWDED).sums_up(CROWDED);
    story.ends_as(StopReason::PromptTooLong);
    assert_eq!(story.requests(), 3);
}

#[test]
fn two_ineffective_compactions_in_one_turn_count_as_consecutive() {
    let story = begin(CROWDED, limits()).sums_up(CROWDED).then(overflow(ROUNDS));
    story.asks_for(LATE);
    story.sums_up(CROWDED).ends_as(StopReason::PromptTooLong);
}

#[test]
fn an_effective_compaction_resets_the_ineffective_count() {
    let story = begin(CROWDED, limits()).sums_up(CROWDED).works(CROWDED).sums_up(ROOMY);
    assert_eq!(story.run.compaction.useless, 0);
    let story = story.works(CROWDED).sums_up(CROWDED);
    story.asks_for(CallPurpose::Reply);
    story.works(CROWDED).sums_up(CROWDED).ends_as(StopReason::PromptTooLong);
}

#[test]
fn a_compaction_is_measured_once_by_the_first_request_after_it() {
    let cut = Event::Replied(ReplyKind::CutShort(CutKind::Text));
    let story = begin(CROWDED, limits()).sums_up(CROWDED);
    let story = story.fails(ErrorClass::ServerError).wakes().then(cut).then(cut);
    assert_eq!(story.run.compaction.useless, 1);
    story.asks_for(CallPurpose::Reply);
}

#[test]
fn a_resumed_run_starts_with_no_ineffective_compactions() {
    let story = begin(CROWDED, limits()).sums_up(CROWDED).works(CROWDED).sums_up(CROWDED);
    let story = Story { weight: ROOMY, ..Story::unasked(limits()) }.goes_on_from(&story);
    story.asks_for(CallPurpose::Reply);
    assert_eq!(story.run.compaction.useless, 0);
    story.works(CROWDED).asks_for(AHEAD);
}

#[test]
fn a_run_killed_during_compaction_compacts_after_resume() {
    let both = AvailableMitigations { folds: true, ..ROUNDS };
    let rules = with_budgets(Budgets { compactions: Some(8), ..Budgets::DEFAULT });
    let story = begin(ROOMY, rules).then(overflow(both)).then(overflow(ROUNDS));
    story.asks_for(LATE);
    let story = Story { weight: ROOMY, ..Story::unasked(rules) }.goes_on_from(&story);
    story.asks_for(CallPurpose::Reply);
    let story = story.then(overflow(both)).then(overflow(ROUNDS));
    story.asks_for(LATE);
    assert_eq!(story.run.budgets.compactions, Some(6), "and pays for it");
    story.sums_up(ROOMY).then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn compactions_that_make_room_have_no_bound_unless_one_is_set() {
    let mut story = begin(ROOMY, limits());
    for _ in 0..300 {
        story = story.works(CROWDED);
        story.asks_for(AHEAD);
        story = story.sums_up(ROOMY);
    }
    let few = with_budgets(Budgets { compactions: Some(8), ..Budgets::DEFAULT });
    let mut story = begin(ROOMY, few);
    for _ in 0..8 {
        story = story.works(CROWDED).sums_up(ROOMY);
    }
    let story = story.works(CROWDED);
    story.asks_for(CallPurpose::Reply);
    story.then(overflow(ROUNDS)).ends_as(StopReason::PromptTooLong);
}

#[test]
fn a_compaction_that_removes_a_quarter_is_progress_even_above_the_threshold() {
    let sized = |size| TokenEstimate { size, window: 400_000, ..CROWDED };
    let rules = Limits { compact_at: Some(200), ..limits() };
    let mut story = begin(sized(160_000), rules);
    for _ in 0..20 {
        story.asks_for(AHEAD);
        story = story.sums_up(sized(120_000));
        story.asks_for(CallPurpose::Reply);
        assert_eq!(story.run.compaction.useless, 0);
        story = story.works(sized(160_000));
    }
    let story = story.sums_up(sized(120_001)).works(sized(160_000)).sums_up(sized(120_001));
    story.ends_as(StopReason::PromptTooLong);
}

// --- after an overflow ------------------------------------------------------------------------

#[test]
fn folding_precedes_a_summary_and_happens_once_per_turn() {
    let both = AvailableMitigations { folds: true, ..ROUNDS };
    let story = begin(ROOMY, limits()).then(overflow(both));
    let decision = story.decision();
    assert_eq!(decision.plan, Some(RecoveryPlan::CommitFolds));
    assert_eq!(
        (decision.edit.trim, decision.edit.reply),
        (Some(Trim::Folds), ReplyDisposition::Drop)
    );
    assert_eq!((story.asked().attempt, story.retried_without_pause()), (1, true));
    let story = story.then(overflow(both));
    assert_eq!(story.decision().plan, Some(RecoveryPlan::CompactReactively));
    let story = story.sums_up(ROOMY).then(overflow(FOLDS));
    story.ends_as(StopReason::PromptTooLong);
    let again = begin(ROOMY, limits()).then(overflow(FOLDS)).works(ROOMY).then(overflow(FOLDS));
    assert_eq!(again.times(RecoveryPlan::CommitFolds), 2, "a turn that ended allows another");
}

#[test]
fn an_overflow_is_compacted_once_per_turn() {
    let story = begin(ROOMY, limits()).then(overflow(ROUNDS));
    assert_eq!(story.asks_for(LATE).attempt, 1);
    let story = story.sums_up(ROOMY);
    story.asks_for(CallPurpose::Reply);
    story.then(overflow(ROUNDS)).ends_as(StopReason::PromptTooLong);
    let again = begin(ROOMY, limits()).then(overflow(ROUNDS)).sums_up(ROOMY).works(ROOMY);
    let again = again.then(overflow(ROUNDS));
    again.asks_for(LATE);
    again.sums_up(ROOMY).then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn an_input_plus_output_overflow_lowers_the_output_cap_seven_times_per_turn() {
    let output = AvailableMitigations { output: true, ..AvailableMitigations::NONE };
    let all = AvailableMitigations { output: true, folds: true, ..ROUNDS };
    let story = begin(ROOMY, limits());
    assert_eq!(story.asks_for(CallPurpose::Reply).cap, 8_192);
    let small = TokenEstimate { size: 3_000, window: 8_000, ..ROOMY };
    let story = story.measure_with(small).then(overflow(all));
    assert_eq!(story.decision().plan, Some(RecoveryPlan::LowerCap));
    assert_eq!((story.decision().edit.trim, story.retried_without_pause()), (None, true));
    assert_eq!(story.asks_for(CallPurpose::Reply).cap, 5_000);
    let spent = (0..6).fold(story, |story, _| story.then(overflow(output)));
    spent.asks_for(CallPurpose::Reply);
    spent.then(overflow(output)).ends_as(StopReason::PromptTooLong);
    let again = begin(ROOMY, limits()).measure_with(small);
    let again = (0..7).fold(again, |story, _| story.then(overflow(output)));
    let again = again.works(small).then(overflow(output));
    assert_eq!(again.times(RecoveryPlan::LowerCap), 8, "a turn that ended allows another");
    again.then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn an_overflowing_summary_request_first_lowers_its_output_cap() {
    let refused = || overflow(AvailableMitigations { output: true, ..ROUNDS });
    let story = begin(CROWDED, limits()).then(refused());
    assert_eq!(story.decision().plan, Some(RecoveryPlan::LowerCap));
    story.asks_for(AHEAD);
    let story = (0..7).fold(story, |story, _| story.then(refused()));
    assert_eq!(story.times(RecoveryPlan::LowerCap), 7);
    assert_eq!(story.decision().plan, Some(RecoveryPlan::Trim));
}

#[test]
fn a_truncated_or_empty_reply_does_not_end_a_turn() {
    let story = begin(ROOMY, limits()).then(overflow(ROUNDS)).sums_up(ROOMY);
    let story = story.then(Event::Replied(ReplyKind::CutShort(CutKind::Text)));
    let story = story.then(Event::Replied(ReplyKind::Empty)).wakes();
    story.then(overflow(ROUNDS)).ends_as(StopReason::PromptTooLong);
}

#[test]
fn an_overflow_without_any_mitigation_ends_the_run_at_once() {
    for class in [ErrorClass::PromptTooLong, ErrorClass::RequestTooLarge] {
        let story = begin(ROOMY, limits()).fails(class);
        story.ends_as(StopReason::PromptTooLong);
        assert_eq!(story.requests(), 1);
    }
}

#[test]
fn an_overflow_is_compacted_even_if_automatic_compaction_is_off() {
    let rules = Limits { auto_compact: false, ..limits() };
    begin(ROOMY, rules).then(overflow(ROUNDS)).asks_for(LATE);
}

#[test]
fn overflow_compaction_is_not_followed_by_automatic_compaction() {
    let story = begin(ROOMY, limits()).then(overflow(ROUNDS)).sums_up(CROWDED);
    story.asks_for(CallPurpose::Reply);
    assert_eq!(story.times(RecoveryPlan::Compact), 0);
}

// --- a summary that does not fit, or does not come ----------------------------------------------

#[test]
fn a_summary_request_drops_its_oldest_rounds_up_to_three_times() {
    for (start, end) in [(begin(CROWDED, limits()), AHEAD), (late(), LATE)] {
        let mut story = start;
        for _ in 0..3 {
            story = story.then(overflow(ROUNDS));
            let decision = story.decision();
            assert_eq!(decision.plan, Some(RecoveryPlan::Trim));
            assert_eq!(decision.edit.trim, Some(Trim::OldestRounds));
            assert_eq!(story.asks_for(end).attempt, 1);
        }
        let story = story.then(overflow(ROUNDS));
        let without = if end == AHEAD {
            RecoveryPlan::SkipCompaction
        } else {
            RecoveryPlan::CompactUnsummarised
        };
        assert_eq!(story.decision().plan, Some(without));
        story.asks_for(CallPurpose::Reply);
    }
}

fn late() -> Story {
    begin(ROOMY, limits()).then(overflow(ROUNDS))
}

#[test]
fn a_summary_request_without_old_rounds_is_not_trimmed() {
    let story = begin(CROWDED, limits()).then(overflow(FOLDS));
    assert_eq!(story.decision().plan, Some(RecoveryPlan::SkipCompaction));
    let story = late().then(overflow(FOLDS));
    assert_eq!(story.decision().plan, Some(RecoveryPlan::CompactUnsummarised));
}

#[test]
fn every_summary_request_has_its_own_trim_budget() {
    let story = late().then(overflow(ROUNDS)).then(overflow(ROUNDS)).sums_up(ROOMY).works(ROOMY);
    let mut story = story.then(overflow(ROUNDS));
    for _ in 0..3 {
        story = story.then(overflow(ROUNDS));
        story.asks_for(LATE);
    }
}

#[test]
fn a_refused_summary_is_skipped_if_automatic_and_left_out_once_after_overflow() {
    let classes = [
        ErrorClass::InvalidRequest,
        ErrorClass::ToolUseMismatch,
        ErrorClass::ImageTooLarge,
        ErrorClass::PdfTooLarge,
        ErrorClass::Refusal,
        ErrorClass::Unknown,
    ];
    for class in classes {
        for ruling in [None, Some(RetryHint::Stop), Some(RetryHint::Retry)] {
            let mitigations = AvailableMitigations {
                output: false,
                cache_marks: false,
                streaming: false,
                thinking: false,
                ..ANYTHING
            };
            let refused = Failure { retry_hint: ruling, mitigations, ..failure(class) };
            let story = begin(CROWDED, limits()).then(Event::Failed(refused));
            assert_eq!(story.decision().plan, Some(RecoveryPlan::SkipCompaction), "{class}");
            assert_eq!(story.asks_for(CallPurpose::Reply).attempt, 1);
            let story = late().then(Event::Failed(refused));
            let told = (story.decision().plan, story.decision().edit.reply);
            let expected = (Some(RecoveryPlan::CompactUnsummarised), ReplyDisposition::Summary);
            assert_eq!(told, expected, "{class}");
            assert_eq!(story.asks_for(CallPurpose::Reply).attempt, 1);
            story.then(overflow(ROUNDS)).ends_as(StopReason::PromptTooLong);
        }
    }
}

/// A filter may refuse a summary. If the credential may do nothing, the next request shows it.
#[test]
fn a_run_goes_on_without_a_summary_that_is_not_permitted() {
    for class in [ErrorClass::AuthError, ErrorClass::InvalidModel] {
        let story = begin(CROWDED, limits()).fails(class);
        assert_eq!(story.decision().plan, Some(RecoveryPlan::SkipCompaction), "{class}");
        story.asks_for(CallPurpose::Reply);
        story.fails(class).ends_as(StopReason::ModelError(class));
        let story = late().fails(class);
        let told = (story.decision().plan, story.decision().edit.reply);
        let expected = (Some(RecoveryPlan::CompactUnsummarised), ReplyDisposition::Summary);
        assert_eq!(told, expected, "{class}");
        story.asks_for(CallPurpose::Reply);
        story.fails(class).ends_as(StopReason::ModelError(class));
    }
}

/// A summary asks for no thinking by a field, which a service may refuse.
#[test]
fn a_summary_is_asked_again_without_a_refused_field_for_thinking() {
    let mitigations = AvailableMitigations { thinking: true, ..AvailableMitigations::NONE };
    let refused = Failure { mitigations, ..failure(ErrorClass::InvalidRequest) };
    let story = begin(CROWDED, limits()).then(Event::Failed(refused));
    assert_eq!(story.decision().plan, Some(RecoveryPlan::DropThinking));
    assert_eq!(story.decision().edit.trim, Some(Trim::ThinkingParameter));
}

#[test]
fn a_truncated_summary_is_used_and_an_empty_one_is_not() {
    for reply in [ReplyKind::Answer { tokens: 0 }, ReplyKind::CutShort(CutKind::Text)] {
        let story = begin(CROWDED, limits()).measure_with(ROOMY).then(Event::Replied(reply));
        assert_eq!(story.decision().edit.reply, ReplyDisposition::Summary, "{reply:?}");
        assert_eq!(story.run.budgets.failed_compactions, 3);
    }
    let none = [
        ReplyKind::Empty,
        ReplyKind::Refusal,
        ReplyKind::ToolCalls { tokens: 9 },
        ReplyKind::Paused,
        ReplyKind::CutShort(CutKind::ToolCall),
        ReplyKind::CutShort(CutKind::Thinking),
    ];
    for reply in none {
        let story = begin(CROWDED, limits()).then(Event::Replied(reply));
        let decision = story.decision();
        let told = (decision.plan, decision.edit.reply);
        assert_eq!(told, (Some(RecoveryPlan::SkipCompaction), ReplyDisposition::Drop), "{reply:?}");
        assert_eq!(story.asks_for(CallPurpose::Reply).attempt, 1);
        // Without a summary the run cannot go on as it is: it is asked for again, and then the older
        // part is removed without it.
        let mut story = late();
        for _ in 0..3 {
            story = story.then(Event::Replied(reply));
            let told = (story.decision().plan, story.decision().edit.reply);
            assert_eq!(told, (Some(RecoveryPlan::AskAgain), ReplyDisposition::Drop), "{reply:?}");
            story = story.wakes();
            story.asks_for(LATE);
        }
        let story = story.then(Event::Replied(reply));
        let told = (story.decision().plan, story.decision().edit.reply);
        let expected = (Some(RecoveryPlan::CompactUnsummarised), ReplyDisposition::Summary);
        assert_eq!(told, expected, "{reply:?}");
        story.asks_for(CallPurpose::Reply);
        story.then(overflow(ROUNDS)).ends_as(StopReason::PromptTooLong);
    }
}

#[test]
fn summary_tokens_do_not_count_towards_the_token_budget() {
    let rules = Limits { effort: Some(1_000), ..limits() };
    let story = begin(CROWDED, rules).measure_with(ROOMY);
    let story = story.then(Event::Replied(ReplyKind::Answer { tokens: 5_000 }));
    let story = story.then(ANSWER);
    assert_eq!(story.decision().plan, Some(RecoveryPlan::Nudge));
}

// --- a summary is a call like any other ---------------------------------------------------------

#[test]
fn a_failed_summary_request_uses_the_ordinary_backoff() {
    for (start, purpose) in [(begin(CROWDED, limits()), AHEAD), (late(), LATE)] {
        let mut story = start;
        for retry in 1..=10 {
            story = story.fails(ErrorClass::ServerError);
            assert_eq!(story.pause().retry, retry);
            story = story.wakes();
            assert_eq!(story.asks_for(purpose).attempt, retry + 1);
        }
        story
            .fails(ErrorClass::ServerError)
            .ends_as(StopReason::ModelError(ErrorClass::ServerError));
    }
}

#[test]
fn a_successful_summary_resets_the_retries_of_its_reply() {
    let story = begin(CROWDED, limits()).fails_and_waits(ErrorClass::ServerError, 9).sums_up(ROOMY);
    assert_eq!((story.asked().attempt, story.run.budgets.retries), (1, 10));
}

#[test]
fn a_summary_request_may_refresh_the_credential() {
    for (start, purpose) in [(begin(CROWDED, limits()), AHEAD), (late(), LATE)] {
        let story = start.fails(ErrorClass::InvalidApiKey);
        assert_eq!(story.last(), Action::Refresh);
        let story = story.fails(ErrorClass::ServerError).wakes();
        assert_eq!(story.last(), Action::Refresh);
        let story = story.then(Event::Refreshed);
        story.asks_for(purpose);
        story.sums_up(ROOMY).asks_for(CallPurpose::Reply);
    }
}

#[test]
fn a_failed_summary_is_requested_from_the_next_model() {
    let rules = with_budgets(Budgets { switches: 1, ..Budgets::DEFAULT });
    let crowd = |story: Story| {
        story.fails_and_waits(ErrorClass::ServerOverload, 2).fails(ErrorClass::ServerOverload)
    };
    let ahead = crowd(begin(CROWDED, rules));
    assert_eq!((ahead.asks_for(AHEAD).model_index, ahead.asked().attempt), (1, 1));
    let late = crowd(begin(ROOMY, rules).then(overflow(ROUNDS)));
    assert_eq!(late.asks_for(LATE).model_index, 1);
    assert_eq!(late.sums_up(ROOMY).asks_for(CallPurpose::Reply).model_index, 1);
}

#[test]
fn a_summary_request_ends_with_the_deadline_or_an_interrupt() {
    let by = Interrupt::Sigint;
    let rules = Limits { deadline: Some(after(60)), ..limits() };
    begin(CROWDED, rules).then(Event::Interrupted(by)).ends_as(StopReason::AbortedStreaming(by));
    begin(CROWDED, rules).then(Event::DeadlinePassed).ends_as(StopReason::Deadline);
    let story = begin(CROWDED, rules).at(after(60)).sums_up(ROOMY);
    story.ends_as(StopReason::Deadline);
    assert_eq!(
        story.transition().edit.reply,
        ReplyDisposition::Summary,
        "it is not lost on who resumes"
    );
    begin(CROWDED, rules)
        .at(after(60))
        .fails(ErrorClass::InvalidRequest)
        .ends_as(StopReason::Deadline);
    let story = begin(ROOMY, rules).at(after(60)).then(overflow(ANYTHING));
    story.ends_as(StopReason::Deadline);
    let weighing = Story::unasked(rules).just(Event::Begin).at(after(60));
    weighing.just(Event::Estimated(CROWDED)).ends_as(StopReason::Deadline);
}

#[test]
fn a_summary_is_requested_without_streaming_after_broken_streams() {
    let torn = Event::Failed(failure_at_stage(ErrorClass::ConnectionError, FailureStage::Stream));
    let story = begin(CROWDED, limits()).then(torn).wakes().then(torn).wakes();
    assert_eq!((story.asks_for(AHEAD).mode, story.asked().cap), (ReplyMode::Whole, 8_192));
}

#[test]
fn a_changed_request_still_waits_for_retry_after() {
    let asking = |class, remedies| {
        Event::Failed(Failure {
            mitigations: remedies,
            ..failure_with_retry_after(class, secs(30))
        })
    };
    let too_long = ErrorClass::PromptTooLong;
    let stories = [
        begin(ROOMY, limits()).then(asking(too_long, FOLDS)),
        begin(ROOMY, limits()).then(asking(too_long, ROUNDS)),
        begin(CROWDED, limits()).then(asking(too_long, ROUNDS)),
        begin(CROWDED, limits()).then(asking(ErrorClass::InvalidRequest, ROUNDS)),
    ];
    for story in stories {
        assert!(story.pause_millis() >= 30_000, "{:?}", story.transition());
        let before = story.requests();
        assert_eq!(story.wakes().requests(), before + 1);
    }
    let far = Event::Failed(Failure {
        mitigations: ANYTHING,
        ..failure_with_retry_after(too_long, secs(601))
    });
    begin(ROOMY, limits()).then(far).ends_as(StopReason::PromptTooLong);
    let rules = Limits { deadline: Some(after(300)), ..limits() };
    let later = Event::Failed(Failure {
        mitigations: ANYTHING,
        ..failure_with_retry_after(too_long, secs(400))
    });
    begin(ROOMY, rules).then(later).ends_as(StopReason::Deadline);
}

// --- what cannot be sent ------------------------------------------------------------------------

const BARE: TokenEstimate = TokenEstimate { mitigations: AvailableMitigations::NONE, ..FULL };

#[test]
fn a_request_that_fills_the_window_is_changed_before_it_is_sent() {
    let off = Limits { auto_compact: false, ..limits() };
    for rules in [off, with_budgets(Budgets { failed_compactions: 0, ..Budgets::DEFAULT })] {
        let both = AvailableMitigations { folds: true, ..ROUNDS };
        let story = Story::unasked(rules).just(Event::Begin);
        let story = story.just(Event::Estimated(TokenEstimate { mitigations: both, ..FULL }));
        assert_eq!(story.transition().plan, Some(RecoveryPlan::CommitFolds));
        assert_eq!(story.transition().edit.trim, Some(Trim::Folds));
        let story = story.just(Event::Estimated(FULL));
        assert_eq!(story.transition().plan, Some(RecoveryPlan::CompactReactively));
        let story = story.measure_with(ROOMY).just(Event::Estimated(ROOMY));
        story.asks_for(LATE);
        assert_eq!(story.requests(), 1, "nothing was sent to be refused");
        story.sums_up(ROOMY).then(ANSWER).ends_as(StopReason::Completed);
    }
    let story = begin(FULL, limits()).then(Event::Replied(ReplyKind::Empty));
    story.asks_for(LATE);
    assert_eq!(story.plans()[1..], [RecoveryPlan::SkipCompaction, RecoveryPlan::CompactReactively]);
}

#[test]
fn a_request_that_is_known_not_to_fit_is_never_sent() {
    let counted = TokenEstimate { counted: true, ..BARE };
    let story = begin(counted, limits());
    story.ends_as(StopReason::PromptTooLong);
    assert_eq!(story.requests(), 0);
    begin(TokenEstimate { size: 199_999, ..counted }, limits()).asks_for(CallPurpose::Reply);
    begin(BARE, limits()).asks_for(CallPurpose::Reply);
    let spent = Budgets { reactive_compactions: 0, failed_compactions: 1, ..Budgets::DEFAULT };
    let story = begin(TokenEstimate { counted: true, ..FULL }, with_budgets(spent));
    let story = story.then(Event::Replied(ReplyKind::Empty));
    story.ends_as(StopReason::BlockingLimit);
    assert_eq!(story.requests(), 1, "only the summary");
}

#[test]
fn a_full_window_ends_the_run_only_without_mitigations() {
    let off = Limits { auto_compact: false, ..limits() };
    let blocked = begin(BARE, off);
    blocked.ends_as(StopReason::BlockingLimit);
    assert_eq!(blocked.requests(), 0);
    begin(TokenEstimate { size: 199_999, ..BARE }, off).asks_for(CallPurpose::Reply);
    let no_drains = Budgets { fold_commits: 0, ..Budgets::DEFAULT };
    let rules = Limits { budgets: no_drains, ..off };
    begin(TokenEstimate { mitigations: FOLDS, ..FULL }, rules).ends_as(StopReason::BlockingLimit);
    for spent in [
        Budgets { reactive_compactions: 0, ..Budgets::DEFAULT },
        Budgets { compactions: Some(0), ..Budgets::DEFAULT },
    ] {
        begin(FULL, Limits { budgets: spent, ..off }).ends_as(StopReason::BlockingLimit);
    }
    let broken = Budgets { failed_compactions: 0, ..Budgets::DEFAULT };
    begin(BARE, with_budgets(broken)).ends_as(StopReason::BlockingLimit);
}

#[test]
fn the_output_cap_never_exceeds_the_room_left_in_the_window() {
    let cap = |size| {
        begin(TokenEstimate { size, mitigations: AvailableMitigations::NONE, ..FULL }, limits())
            .asked()
            .cap
    };
    assert_eq!(cap(191_808), 8_192);
    assert_eq!(cap(191_809), 8_191);
    assert_eq!(cap(198_976), 1_024);
    assert_eq!(cap(199_999), 1_024, "the size is an estimate: what seems full may still fit");
    assert_eq!(cap(300_000), 1_024);
}

#[test]
fn a_larger_output_cap_is_not_tried_without_room_in_the_window() {
    let cut = Event::Replied(ReplyKind::CutShort(CutKind::Text));
    let tight = TokenEstimate { size: 191_808, mitigations: AvailableMitigations::NONE, ..FULL };
    let story = begin(tight, limits()).then(cut);
    assert_eq!(story.decision().plan, Some(RecoveryPlan::Continue));
    let story = begin(TokenEstimate { size: 191_807, ..tight }, limits()).then(cut);
    assert_eq!(story.decision().plan, Some(RecoveryPlan::Escalate));
}

// --- and money ----------------------------------------------------------------------------------

/// A request whose input costs 100 and whose tokens cost 1 each, out of `left`.
fn priced(left: u64, weight: TokenEstimate) -> TokenEstimate {
    let pico = Money::from_pico_dollars;
    TokenEstimate { input: pico(100), token: pico(1), left: Some(pico(left)), ..weight }
}

#[test]
fn the_summary_output_cap_is_lowered_by_budget_and_model() {
    let mut rules = limits();
    rules.caps.summary = 3_000;
    let cap = |weight| begin(weight, rules).asks_for(AHEAD).cap;
    assert_eq!(cap(CROWDED), 3_000);
    assert_eq!(cap(priced(3_099, CROWDED)), 2_999);
    assert_eq!(cap(priced(1_124, CROWDED)), 1_024);
    assert_eq!(cap(TokenEstimate { ceiling: 500, size: 190_000, ..CROWDED }), 500);
}

#[test]
fn an_unaffordable_automatic_summary_is_skipped() {
    let rich = priced(100_000, CROWDED);
    let story = Story::unasked(limits()).just(Event::Begin).just(Event::Estimated(rich));
    let story =
        story.measure_with(priced(5_000, CROWDED)).just(Event::Estimated(priced(1_123, CROWDED)));
    assert_eq!(story.transition().plan, Some(RecoveryPlan::SkipCompaction));
    let story = story.just(Event::Estimated(priced(5_000, CROWDED)));
    assert_eq!(
        (story.asks_for(CallPurpose::Reply).cap, story.run.budgets.failed_compactions),
        (4_900, 2)
    );
    begin(priced(1_123, CROWDED), limits()).ends_as(StopReason::MaxBudgetUsd);
}

#[test]
fn a_summary_skipped_for_budget_does_not_reduce_the_replys_retries() {
    let story = begin(priced(5_000, CROWDED), limits()).fails(ErrorClass::ServerError).wakes();
    let story = story.fails(ErrorClass::ServerError);
    let story = story.measure_with(priced(1_000, CROWDED)).wakes();
    story.ends_as(StopReason::MaxBudgetUsd);
    let story = begin(priced(5_000, CROWDED), limits()).fails(ErrorClass::ServerError);
    let Action::Wait { until } = story.last() else { panic!("{:?}", story.last()) };
    let story =
        story.at(until).just(Event::WaitEnded).just(Event::Estimated(priced(1_000, CROWDED)));
    let story = story.just(Event::Estimated(priced(5_000, CROWDED)));
    assert_eq!(story.asks_for(CallPurpose::Reply).attempt, 1);
}

#[test]
fn an_unaffordable_overflow_summary_ends_the_run_for_budget() {
    let story = begin(priced(100_000, ROOMY), limits()).just(overflow(ROUNDS));
    let story = story.just(Event::Estimated(priced(1_123, ROOMY)));
    story.ends_as(StopReason::MaxBudgetUsd);
}
