//! The recovery log: one record per recovery, and totals.

use std::time::Duration;

use outlast_core::recovery::{
    AvailableMitigations, Budgets, CutKind, ErrorClass, Event, Failure, Interrupt, LeftOff, Limits,
    Money, RecoveryCause, RecoveryLog, RecoveryPlan, RecoveryRecord, ReplyDisposition, ReplyKind,
    StopHookDecision, StopReason, TokenEstimate,
};
use serde_json::json;

use super::{
    ANSWER, FREE, Story, TOOL_CALLS, TOOLS_DONE, after, failure, limits, secs, with_budgets,
};

const OVERLOAD: ErrorClass = ErrorClass::ServerOverload;
const ROUNDS: AvailableMitigations =
    AvailableMitigations { rounds: true, ..AvailableMitigations::NONE };
const ROOMY: TokenEstimate =
    TokenEstimate { size: 20_000, window: 200_000, mitigations: ROUNDS, ..FREE };
const CROWDED: TokenEstimate = TokenEstimate { size: 190_000, ..ROOMY };
const PASSED: Event = Event::Checked { passed: true };
const FAILED: Event = Event::Checked { passed: false };
const CUT: Event = Event::Replied(ReplyKind::CutShort(CutKind::Text));

/// A story's records. The first reply costs two tokens and pico-dollars, and each one twice as much
/// as the one before: so it shows which ones were charged.
struct Told {
    chronicle: RecoveryLog,
    ended: Vec<RecoveryRecord>,
}

fn told(story: &Story) -> Told {
    let mut told = Told { chronicle: RecoveryLog::default(), ended: Vec::new() };
    let (mut turns, mut calls) = (0, 0);
    for step in &story.told {
        if matches!(step.event, Event::Replied(_)) {
            calls += 1;
            told.chronicle.record_cost(Money::from_pico_dollars(1 << calls), 1 << calls);
        }
        turns += u32::from(step.edit.reply == ReplyDisposition::Keep);
        told.ended.extend(told.chronicle.observe(step, turns));
    }
    assert_eq!(told.ended, told.chronicle.records().cloned().collect::<Vec<_>>());
    told
}

impl Told {
    /// The only record.
    #[track_caller]
    fn only(self) -> RecoveryRecord {
        let [episode] = self.ended.try_into().expect("one record");
        episode
    }

    fn classes(&self) -> Vec<(&str, bool)> {
        self.ended.iter().map(|one| (one.class.as_str(), one.saved)).collect()
    }
}

/// The mitigations that a record lists.
fn tried(episode: &RecoveryRecord) -> Vec<(&str, u32)> {
    episode.strategies.iter().collect()
}

fn begin(weight: TokenEstimate, limits: Limits) -> Story {
    Story::unasked(limits).measure_with(weight).then(Event::Begin)
}

fn overflow(remedies: AvailableMitigations) -> Event {
    Event::Failed(Failure { mitigations: remedies, ..failure(ErrorClass::PromptTooLong) })
}

// --- calls --------------------------------------------------------------------------------------

#[test]
fn three_overloads_and_a_reply_are_one_recovery_with_four_attempts() {
    let story = Story::begin(limits()).at(after(10)).fails_and_waits(OVERLOAD, 3);
    let waited = after(10).until(story.now);
    let answered = story.now.after(secs(20));
    let told = told(&story.at(answered).then(ANSWER));
    assert_eq!(told.chronicle.totals().waited, waited);
    let episode = told.only();
    assert_eq!(episode.class, "server_overload");
    assert_eq!(tried(&episode), [("retry", 3)]);
    assert_eq!(episode.failures.of("server_overload"), 3);
    assert_eq!((episode.strategy.as_str(), episode.transition.as_deref()), ("retry", None));
    assert_eq!((episode.attempts, episode.turn), (4, 1));
    assert_eq!((episode.waited, episode.took), (waited, waited + secs(20)));
    assert_eq!((episode.saved, episode.lost_to), (true, None));
    assert_eq!((episode.cost, episode.tokens), (Money::ZERO, 0), "the answer was wanted anyway");
}

#[test]
fn a_failure_without_a_recovery_plan_creates_no_record() {
    let told = told(&Story::begin(limits()).fails(ErrorClass::InvalidRequest));
    assert_eq!(told.ended, []);
    let totals = told.chronicle.totals();
    assert_eq!((totals.saved, totals.lost, totals.requests), (0, 0, 1));
    assert_eq!(totals.retries_by_class.sum(), 0);
}

#[test]
fn a_failed_recovery_is_recorded_as_lost_with_all_its_attempts() {
    let story = Story::begin(limits()).fails_and_waits(OVERLOAD, 10).fails(OVERLOAD);
    story.ends_as(StopReason::ModelError(ErrorClass::Repeated529));
    let told = told(&story);
    let totals = told.chronicle.totals();
    assert_eq!((totals.saved, totals.lost, totals.requests), (0, 1, 11));
    assert_eq!(totals.retries_by_class.of("server_overload"), 10);
    let episode = told.only();
    assert_eq!((episode.attempts, episode.failures.sum(), episode.strategies.sum()), (11, 11, 10));
    assert_eq!((episode.saved, episode.lost_to.as_deref()), (false, Some("model_error")));
}

#[test]
fn each_turn_has_its_own_record_and_each_call_only_one() {
    let story = Story::begin(limits())
        .fails_and_waits(OVERLOAD, 1)
        .then(TOOL_CALLS)
        .then(TOOLS_DONE)
        .then(TOOL_CALLS)
        .then(TOOLS_DONE)
        .fails_and_waits(ErrorClass::ServerError, 1)
        .fails_and_waits(OVERLOAD, 1)
        .then(Event::Replied(ReplyKind::Empty))
        .wakes()
        .then(ANSWER);
    let told = told(&story);
    assert_eq!(told.classes(), [("server_overload", true), ("server_error", true)]);
    let [first, second] = &told.ended[..] else { panic!("two records") };
    assert_eq!((first.turn, first.attempts, second.turn, second.attempts), (1, 2, 3, 4));
    assert_eq!(tried(second), [("retry", 2), ("retry_empty_reply", 1)]);
    let failures: Vec<_> = second.failures.iter().collect();
    assert_eq!(failures, [("server_error", 1), ("server_overload", 1), ("empty_response", 1)]);
    let totals = told.chronicle.totals();
    assert_eq!(totals.waited, first.waited + second.waited);
    assert_eq!(totals.retries_by_class.of("empty_response"), 1);
    assert_eq!(totals.requests, 7);
}

#[test]
fn a_recovery_is_charged_for_dropped_replies_but_not_for_kept_ones() {
    let escalating = TokenEstimate { ceiling: 64_000, ..FREE };
    let story = begin(escalating, limits()).then(CUT).then(CUT).then(CUT).then(ANSWER);
    let episode = told(&story).only();
    assert_eq!(episode.class, "max_output_tokens");
    let names = [("max_output_tokens_escalate", 1), ("max_output_tokens_recovery", 2)];
    assert_eq!(tried(&episode), names);
    assert_eq!(episode.transition.as_deref(), Some("max_output_tokens_recovery"));
    assert_eq!((episode.tokens, episode.cost), (2, Money::from_pico_dollars(2)));
    assert_eq!((episode.attempts, episode.turn), (4, 1));
}

#[test]
fn a_continued_reply_is_recorded_in_the_turn_that_it_began() {
    let rules = with_budgets(Budgets { escalations: 0, ..Budgets::DEFAULT });
    let story = Story::begin(rules).then(TOOL_CALLS).then(TOOLS_DONE).then(CUT).then(ANSWER);
    let episode = told(&story).only();
    assert_eq!((episode.turn, episode.attempts, episode.tokens), (2, 2, 0));
}

#[test]
fn an_unfinished_reply_is_recorded_as_lost_although_parts_were_kept() {
    let story = Story::begin(limits()).then(CUT).then(CUT).then(CUT).then(CUT).then(CUT);
    story.ends_as(StopReason::MaxOutputTokens);
    let episode = told(&story).only();
    assert_eq!((episode.saved, episode.lost_to.as_deref()), (false, Some("max_output_tokens")));
}

#[test]
fn a_model_refusal_counts_as_a_reply_that_ends_the_recovery() {
    let refusal = Event::Replied(ReplyKind::Refusal);
    let story = Story::begin(limits()).fails_and_waits(OVERLOAD, 1).then(refusal);
    story.ends_as(StopReason::Refusal);
    assert!(told(&story).only().saved);
}

#[test]
fn a_model_switch_is_recorded_under_the_transition_s_fallback_name() {
    let rules = with_budgets(Budgets { switches: 1, ..Budgets::DEFAULT });
    let story = Story::begin(rules).fails_and_waits(OVERLOAD, 2).fails(OVERLOAD).then(ANSWER);
    let told = told(&story);
    assert_eq!(told.chronicle.totals().fallbacks, 1);
    let episode = told.only();
    assert_eq!(tried(&episode), [("retry", 2), ("model_fallback", 1)]);
    assert_eq!(episode.transition.as_deref(), Some("model_fallback"));
    assert_eq!(episode.strategy, "model_fallback");
}

#[test]
fn a_credential_refresh_is_not_counted_as_an_attempt() {
    let story = Story::begin(limits()).fails(ErrorClass::InvalidApiKey).then(Event::Refreshed);
    let episode = told(&story.then(ANSWER)).only();
    assert_eq!((episode.class.as_str(), episode.attempts), ("invalid_api_key", 2));
    assert_eq!(tried(&episode), [("refresh_credentials", 1)]);
}

#[test]
fn the_return_to_the_preferred_model_is_recorded() {
    let rules = with_budgets(Budgets { switches: 1, ..Budgets::DEFAULT });
    let rules = Limits { fallback_return: Some(secs(600)), ..rules };
    let story = Story::begin(rules).fails(ErrorClass::InvalidModel).then(TOOL_CALLS);
    let later = story.now.after(secs(600));
    let told = told(&story.at(later).then(TOOLS_DONE).then(ANSWER));
    assert_eq!(told.classes(), [("invalid_model", true), ("on_fallback_model", true)]);
    assert_eq!((told.ended[1].attempts, told.ended[1].turn), (1, 2));
}

#[test]
fn ending_the_run_during_a_pause_closes_the_recovery_and_the_pause() {
    let story = Story::begin(limits()).fails(OVERLOAD);
    let story = story.at(after(0).after(Duration::from_millis(300)));
    let told = told(&story.then(Event::Interrupted(Interrupt::Sigterm)));
    assert_eq!(told.chronicle.totals().waited, Duration::from_millis(300));
    let episode = told.only();
    assert_eq!(episode.lost_to.as_deref(), Some("aborted_streaming"));
    assert_eq!(episode.waited, Duration::from_millis(300));
}

#[test]
fn a_run_that_aborts_without_a_last_step_closes_its_open_recoveries() {
    let story = Story::begin(limits()).fails(OVERLOAD);
    let mut told = told(&story);
    assert_eq!(told.ended, []);
    let ended = told.chronicle.end(after(2), StopReason::InternalError);
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].lost_to.as_deref(), Some("internal_error"));
    assert_eq!((ended[0].waited, told.chronicle.totals().waited), (secs(2), secs(2)));
    assert_eq!(told.chronicle.end(after(9), StopReason::InternalError), [], "and only once");
    assert_eq!(told.chronicle.totals().waited, secs(2));
}

// --- the window ---------------------------------------------------------------------------------

#[test]
fn a_compaction_record_is_saved_by_its_summary_and_charged_for_it() {
    let story =
        begin(CROWDED, limits()).fails_and_waits(OVERLOAD, 1).measure_with(ROOMY).then(ANSWER);
    let before_the_reply = told(&story);
    assert_eq!(before_the_reply.chronicle.totals().compactions, 1);
    let episode = before_the_reply.only();
    assert_eq!((episode.class.as_str(), episode.attempts), ("context_window", 2));
    assert_eq!(tried(&episode), [("auto_compact", 1), ("retry", 1)]);
    assert_eq!((episode.tokens, episode.transition), (2, None));
    let whole = told(&story.fails_and_waits(OVERLOAD, 1).then(ANSWER));
    assert_eq!(whole.classes(), [("context_window", true), ("server_overload", true)]);
}

#[test]
fn a_skipped_summary_is_recorded_as_saved_by_the_reply() {
    let empty = Event::Replied(ReplyKind::Empty);
    let story = begin(CROWDED, limits()).then(empty).then(ANSWER);
    let told = told(&story);
    assert_eq!(told.chronicle.totals().compactions, 0);
    let episode = told.only();
    assert_eq!(tried(&episode), [("auto_compact", 1), ("compact_skipped", 1)]);
    assert_eq!(episode.failures.of("no_summary"), 1);
    assert_eq!((episode.attempts, episode.tokens, episode.saved), (2, 2, true));
}

#[test]
fn an_overflow_recovery_ends_with_the_reply_not_with_the_summary() {
    let drains = AvailableMitigations { folds: true, rounds: true, ..AvailableMitigations::NONE };
    let story = begin(ROOMY, limits()).then(overflow(drains)).then(overflow(ROUNDS)).then(ANSWER);
    assert_eq!(told(&story).ended, [], "the summary is not what was wanted");
    let episode = told(&story.then(ANSWER)).only();
    assert_eq!(tried(&episode), [("collapse_drain_retry", 1), ("reactive_compact_retry", 1)]);
    assert_eq!(episode.transition.as_deref(), Some("reactive_compact_retry"));
    assert_eq!((episode.class.as_str(), episode.attempts), ("prompt_too_long", 4));
    assert_eq!(episode.tokens, 2, "the summary and not the reply");
}

#[test]
fn a_failed_compaction_record_is_not_saved_by_the_next_compaction() {
    let empty = Event::Replied(ReplyKind::Empty);
    let story = begin(CROWDED, limits()).then(empty).then(overflow(ROUNDS));
    let story = story.measure_with(ROOMY).then(ANSWER);
    assert_eq!(told(&story).ended, [], "now it is the reply that is wanted");
    let episode = told(&story.then(ANSWER)).only();
    assert_eq!((episode.attempts, episode.saved), (4, true));
}

#[test]
fn an_overflow_that_no_summary_resolves_is_recorded_as_lost() {
    let story = begin(ROOMY, limits()).then(overflow(ROUNDS));
    let story = story.then(ANSWER).then(overflow(AvailableMitigations::NONE));
    story.ends_as(StopReason::PromptTooLong);
    let episode = told(&story).only();
    assert_eq!(episode.failures.of("prompt_too_long"), 2);
    assert_eq!(episode.lost_to.as_deref(), Some("prompt_too_long"));
}

// --- acceptance ---------------------------------------------------------------------------------

#[test]
fn a_requirement_recovery_encloses_the_recoveries_of_its_calls() {
    let rules = Limits { requirement: true, ..limits() };
    let story = Story::begin(rules)
        .then(ANSWER)
        .then(FAILED)
        .fails_and_waits(OVERLOAD, 1)
        .then(TOOL_CALLS)
        .then(TOOLS_DONE)
        .then(ANSWER)
        .then(FAILED)
        .then(ANSWER)
        .then(PASSED);
    let told = told(&story);
    assert_eq!(told.classes(), [("server_overload", true), ("requirement", true)]);
    let [call, whole] = &told.ended[..] else { panic!("two records") };
    assert_eq!((whole.attempts, whole.failures.sum(), whole.turn), (3, 2, 1));
    assert_eq!(tried(whole), [("requirement_retry", 2)]);
    assert_eq!((whole.waited, call.tokens), (Duration::ZERO, 0));
    assert_eq!(told.chronicle.totals().waited, call.waited);
    assert_eq!(whole.tokens, 4 + 8 + 16, "all replies but the first");
}

#[test]
fn a_requirement_that_never_passes_is_recorded_as_lost() {
    let rules = Limits { requirement: true, ..limits() };
    let mut story = Story::begin(rules);
    for _ in 0..4 {
        story = story.then(ANSWER).then(FAILED);
    }
    story.ends_as(StopReason::RequirementFailed);
    let episode = told(&story).only();
    assert_eq!((episode.attempts, episode.failures.sum(), episode.strategies.sum()), (4, 4, 3));
    assert_eq!(episode.lost_to.as_deref(), Some("requirement_failed"));
}

#[test]
fn an_answer_that_violates_the_schema_is_saved_by_a_valid_one() {
    let rules = Limits { structured: true, ..limits() };
    let story = Story::begin(rules)
        .then(ANSWER)
        .then(TOOL_CALLS)
        .then(Event::SchemaMismatch)
        .then(TOOL_CALLS)
        .then(TOOLS_DONE)
        .then(TOOL_CALLS)
        .then(Event::Delivered);
    story.ends_as(StopReason::Completed);
    let episode = told(&story).only();
    assert_eq!((episode.class.as_str(), episode.attempts), ("structured_output", 3));
    assert_eq!(tried(&episode), [("structured_output_retry", 2)]);
}

#[test]
fn effort_nudges_are_one_recovery_up_to_the_accepted_answer() {
    let rules = Limits { effort: Some(10_000), ..limits() };
    let mut story = Story::begin(rules);
    for _ in 0..4 {
        story = story.then(TOOL_CALLS).then(TOOLS_DONE).then(ANSWER);
    }
    story.ends_as(StopReason::Completed);
    let episode = told(&story).only();
    assert_eq!((episode.class.as_str(), episode.saved), ("token_budget", true));
    assert_eq!(tried(&episode), [("budget_continuation", 3)]);
    assert_eq!(episode.transition.as_deref(), Some("budget_continuation"));
    assert_eq!((episode.attempts, episode.turn), (4, 2));
    assert_eq!(episode.tokens, (8 + 16) + (32 + 64) + (128 + 256));
}

// --- across processes, and in writing -----------------------------------------------------------

#[test]
fn a_recovery_interrupted_by_a_crash_continues_in_the_next_process() {
    let story = Story::begin(limits()).fails_and_waits(OVERLOAD, 1).at(after(5)).fails(OVERLOAD);
    let waited = told(&story).chronicle.totals().waited;
    let mut chronicle = told(&story).chronicle.resumed();
    assert_eq!(chronicle, chronicle.clone().resumed(), "twice is once");
    let next = Story::resume(story.run.resumed(), limits()).at(after(7)).then(ANSWER);
    let ended: Vec<RecoveryRecord> =
        next.told.iter().flat_map(|step| chronicle.observe(step, 1)).collect();
    assert_eq!(ended.len(), 1);
    assert_eq!((ended[0].attempts, ended[0].failures.sum(), ended[0].saved), (3, 2, true));
    assert_eq!((ended[0].took, ended[0].waited), (secs(5) + secs(7), waited));
    assert_eq!(chronicle.totals().requests, 3);
}

#[test]
fn the_recovery_log_keeps_the_latest_hundred_records_and_counts_all() {
    let mut story = Story::begin(with_budgets(Budgets { bucket: 60_000, ..Budgets::DEFAULT }));
    for _ in 0..102 {
        story = story.fails_and_waits(OVERLOAD, 1).then(TOOL_CALLS).then(TOOLS_DONE);
    }
    let (mut chronicle, mut turns) = (RecoveryLog::default(), 0);
    for step in &story.told {
        turns += u32::from(step.edit.reply == ReplyDisposition::Keep);
        chronicle.observe(step, turns);
    }
    let totals = chronicle.totals();
    assert_eq!((totals.saved, totals.forgotten, chronicle.records().len()), (102, 2, 100));
    assert_eq!(chronicle.records().next().map(|first| first.turn), Some(3), "the oldest go");
    assert_eq!(totals.strategies.of("retry"), 102);
}

#[test]
fn records_serialize_milliseconds_and_tolerate_unknown_fields() {
    let story = Story::begin(limits()).fails_and_waits(OVERLOAD, 2).then(ANSWER);
    let episode = told(&story).only();
    let mut written = serde_json::to_value(&episode).expect("JSON");
    let millis = u64::try_from(episode.waited.as_millis()).expect("short");
    let expected = json!({
        "class": "server_overload",
        "failures": { "server_overload": 2 },
        "strategy": "retry",
        "strategies": { "retry": 2 },
        "turn": 1,
        "attempts": 3,
        "waited_ms": millis,
        "took_ms": millis,
        "tokens": 0,
        "cost": 0,
        "saved": true,
    });
    assert_eq!(written, expected);
    written["later"] = json!("an unknown field");
    assert_eq!(serde_json::from_value::<RecoveryRecord>(written).expect("readable"), episode);
}

#[test]
fn loop_transitions_have_their_documented_names() {
    let named = [
        (RecoveryPlan::Escalate, "max_output_tokens_escalate"),
        (RecoveryPlan::Continue, "max_output_tokens_recovery"),
        (RecoveryPlan::CommitFolds, "collapse_drain_retry"),
        (RecoveryPlan::CompactReactively, "reactive_compact_retry"),
        (RecoveryPlan::Strip, "media_strip_retry"),
        (RecoveryPlan::SwitchModel, "model_fallback"),
        (RecoveryPlan::Nudge, "budget_continuation"),
    ];
    for (plan, name) in named {
        assert_eq!(plan.transition(), Some(name));
    }
    for plan in
        [RecoveryPlan::Retry { tokens: 5 }, RecoveryPlan::Compact, RecoveryPlan::RepairBlock]
    {
        assert_eq!(plan.transition(), None);
    }
}

// --- Stop hooks ---------------------------------------------------------------------------------

#[test]
fn a_stop_hook_objection_is_saved_when_satisfied_and_lost_otherwise() {
    let block = Event::Consulted(StopHookDecision::Block);
    let pass = Event::Consulted(StopHookDecision::Pass);
    let rules = Limits { stop_hooks: true, requirement: true, ..limits() };
    let story = Story::begin(rules).then(ANSWER).then(block).then(ANSWER);
    let told_so_far = told(&Story { told: story.told.clone(), ..story });
    assert_eq!(told_so_far.classes(), [], "it is under way");
    let story = story.then(pass);
    assert_eq!(told(&story).classes(), [("stop_hook", true)]);
    let story = story.then(FAILED).then(ANSWER).then(pass).then(PASSED);
    assert_eq!(told(&story).classes(), [("stop_hook", true), ("requirement", true)]);
    let again = Event::Consulted(StopHookDecision::BlockAgain);
    let story = Story::begin(rules).then(ANSWER).then(block).then(ANSWER).then(again);
    let episode = told(&story).only();
    assert_eq!((episode.class.as_str(), episode.saved), ("stop_hook", false));
    assert_eq!(episode.lost_to.as_deref(), Some("stop_hook_blocked"));
}

#[test]
fn an_effort_recovery_is_saved_only_when_stop_hooks_agree_too() {
    let pass = Event::Consulted(StopHookDecision::Pass);
    let rules = Limits { stop_hooks: true, effort: Some(10_000), ..limits() };
    let enough = Event::Replied(ReplyKind::Answer { tokens: 9_990 });
    let little = Event::Replied(ReplyKind::Answer { tokens: 10 });
    let story = Story::begin(rules).then(little).then(pass).then(enough).then(pass);
    assert_eq!(told(&story).classes(), [("token_budget", true)]);
}

#[test]
fn a_compaction_prevented_by_a_hook_is_recorded_as_skipped() {
    let story = begin(CROWDED, limits()).then(Event::SummaryPrevented);
    assert_eq!(story.decision().plan, Some(RecoveryPlan::SkipCompaction));
    let told = told(&story.then(ANSWER));
    assert_eq!(told.classes(), [("context_window", true)]);
    assert_eq!(told.chronicle.totals().requests, 1, "that for the summary was not sent");
}

/// A recovery is named after the cause of its plan, whatever event showed it.
#[test]
fn a_step_records_the_cause_of_its_plan() {
    let effort = Limits { effort: Some(10_000), ..limits() };
    let stories = [
        (begin(CROWDED, limits()), RecoveryCause::Crowded, "context_window"),
        (
            begin(ROOMY, limits()).then(overflow(ROUNDS)).then(Event::Replied(ReplyKind::Empty)),
            RecoveryCause::UnusableSummary,
            "no_summary",
        ),
        (
            Story::unasked(effort).then(Event::Resumed(LeftOff::Answered)),
            RecoveryCause::Idle,
            "token_budget",
        ),
    ];
    for (story, cause, class) in stories {
        let step = story.told.iter().rfind(|step| step.cause.is_some()).expect("a plan");
        assert_eq!((step.cause, step.failure_class()), (Some(cause), Some(class)));
    }
}
