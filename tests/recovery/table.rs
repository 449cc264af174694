//! The whole recovery table as one reviewable text file.

use std::fmt::Write as _;
use std::time::Duration;

use outlast_core::recovery::{
    AccountKind, Attempts, AvailableMitigations, Budgets, Call, CallPurpose, CompactionTrigger,
    CutKind, EndpointStatus, ErrorBody, ErrorClass, Failure, Fast, FastMode, Incomplete, Limits,
    Moment, Persistence, Phase, PreferredModel, QuerySource, RecoveryCause, RecoveryPlan,
    RetryAfter, RetryAfterSource, RetryHint, Run, StopReason, Streaming, plan,
};

use super::{ANYTHING, NOTHING, after, failure, limits, secs};
use crate::support::golden;

/// A chain of two models and everything else in full.
const RICH: Budgets = Budgets { switches: 1, ..Budgets::DEFAULT };
const POOR: Budgets = Budgets { turns: Some(0), switches: 0, ..NOTHING };

const TRIED_AGAIN: PreferredModel =
    PreferredModel { fallback_from: Some(1), not_before: Moment::from_millis(0), retry_at: None };

/// A change to the run before the failure.
type Change = fn(Run) -> Run;

/// As many overloads in a row.
fn failed(times: u8) -> Attempts {
    Attempts { failures: times, overloads: times, ..Attempts::default() }
}

/// One column of the table: what differs from an ordinary call that fails for the first time.
struct Case {
    name: &'static str,
    limits: Limits,
    run: Change,
    failure: fn(Failure) -> Failure,
}

impl Case {
    fn named(name: &'static str) -> Self {
        let limits = Limits { budgets: RICH, ..limits() };
        Self { name, limits, run: |run| run, failure: |failure| failure }
    }

    fn under(name: &'static str, limits: Limits) -> Self {
        Self { limits: Limits { budgets: RICH, ..limits }, ..Self::named(name) }
    }

    fn of(name: &'static str, run: Change) -> Self {
        Self { run, ..Self::named(name) }
    }

    fn after(name: &'static str, failure: fn(Failure) -> Failure) -> Self {
        Self { failure, ..Self::named(name) }
    }

    fn with(self, budgets: Budgets) -> Self {
        Self { limits: Limits { budgets, ..self.limits }, ..self }
    }

    fn plan_for(&self, class: ErrorClass) -> String {
        let begun = Run::new(7, &self.limits);
        let phase = Phase::Calling(Call::Ask(CallPurpose::Reply));
        let run = (self.run)(Run { phase, attempts: failed(1), ..begun });
        let setback = RecoveryCause::Failed((self.failure)(failure(class)));
        let plan = plan(setback, &run, Moment::default(), &self.limits);
        assert_ne!(plan, RecoveryPlan::Stop(StopReason::InternalError), "{class}: no plan applies");
        show(plan)
    }
}

fn show(plan: RecoveryPlan) -> String {
    match plan {
        RecoveryPlan::Stop(StopReason::ModelError(class)) => format!("stop ({class})"),
        RecoveryPlan::Stop(reason) => format!("stop: {}", reason.name()),
        RecoveryPlan::Retry { tokens } => format!("retry for {tokens}"),
        RecoveryPlan::RetryAtOnce { tokens } => format!("retry at once for {tokens}"),
        RecoveryPlan::WaitForCapacity
        | RecoveryPlan::RetryOddRefusal
        | RecoveryPlan::SwitchModel
        | RecoveryPlan::Refresh
        | RecoveryPlan::Escalate
        | RecoveryPlan::Continue
        | RecoveryPlan::AskAgain
        | RecoveryPlan::RetryIncomplete
        | RecoveryPlan::RequestCompletion
        | RecoveryPlan::Resume
        | RecoveryPlan::Nudge
        | RecoveryPlan::Compact
        | RecoveryPlan::SkipCompaction
        | RecoveryPlan::CompactUnsummarised
        | RecoveryPlan::CommitFolds
        | RecoveryPlan::CompactReactively
        | RecoveryPlan::Trim
        | RecoveryPlan::LowerCap
        | RecoveryPlan::Strip
        | RecoveryPlan::RepairBlock
        | RecoveryPlan::OmitAdded
        | RecoveryPlan::DropThinking
        | RecoveryPlan::DropCacheMarks
        | RecoveryPlan::DropStreaming
        | RecoveryPlan::ResumeStreaming
        | RecoveryPlan::Remind
        | RecoveryPlan::RetryOverflow
        | RecoveryPlan::CoolDown
        | RecoveryPlan::DisableFastMode
        | RecoveryPlan::ReturnToPreferredModel
        | RecoveryPlan::RetryPreferredModel
        | RecoveryPlan::Restructure
        | RecoveryPlan::RetryRequirement
        | RecoveryPlan::RetryStopHook
        | RecoveryPlan::Report
        | RecoveryPlan::Probe
        | RecoveryPlan::ReturnEarly => plan.name().to_owned(),
    }
}

fn row(name: &str, cells: &[String]) -> String {
    let mut line = format!("{name:<20}");
    for cell in cells {
        write!(line, "{cell:<27}").expect("a string never fails");
    }
    line.trim_end().to_owned() + "\n"
}

fn head(title: &str, columns: &[&str]) -> String {
    let columns: Vec<String> = columns.iter().map(|&name| name.to_owned()).collect();
    format!("## {title}\n") + &row("", &columns)
}

/// Every class of failure; those that are met as on an ordinary day, with the same budgets, are
/// only named.
fn failures(title: &str, cases: &[Case]) -> String {
    let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
    let mut text = head(title, &names);
    let mut as_ever = Vec::new();
    for class in ErrorClass::ALL {
        let plans: Vec<String> = cases.iter().map(|case| case.plan_for(class)).collect();
        let ordinary = |case: &Case| Case::named("").with(case.limits.budgets).plan_for(class);
        let differs = cases.iter().zip(&plans).any(|(case, plan)| ordinary(case) != *plan);
        if title == ORDINARY || differs {
            text += &row(class.name(), &plans);
        } else {
            as_ever.push(class.name());
        }
    }
    for (nth, names) in as_ever.chunks(5).enumerate() {
        let label = if nth == 0 { "as ever:" } else { "" };
        text += &row(label, &[names.join(", ")]);
    }
    text + "\n"
}

const ORDINARY: &str = "An ordinary day";

fn in_every_mode() -> String {
    let plain = limits();
    let third: Change = |run| Run { attempts: failed(3), ..run };
    let mut text = failures(
        ORDINARY,
        &[
            Case::named("rich"),
            Case::of("the third overload", third),
            Case::named("poor").with(POOR),
        ],
    );
    let modes = [
        ("Waiting for capacity", Limits { persistence: Persistence::Capacity, ..plain }),
        ("Waiting for anything", Limits { persistence: Persistence::All, ..plain }),
        ("A subscription", Limits { account: AccountKind::Subscription, ..plain }),
        ("In the background", Limits { source: QuerySource::Background, ..plain }),
        ("A limit of one overload", Limits { overload_limit: Some(1), ..plain }),
    ];
    for (title, rules) in modes {
        let third = Case { run: third, ..Case::under("the third overload", rules) };
        let poor = Case::under("poor", rules).with(POOR);
        text += &failures(title, &[Case::under("rich", rules), third, poor]);
    }
    text
}

fn by_what_the_server_says() -> String {
    fn wishing(failure: Failure, wait: Duration) -> Failure {
        Failure {
            retry_after: Some(RetryAfter { wait, source: RetryAfterSource::RetryAfter }),
            ..failure
        }
    }
    let rulings = [
        Case::after("retry", |failure| Failure { retry_hint: Some(RetryHint::Retry), ..failure }),
        Case::after("do not retry", |failure| Failure {
            retry_hint: Some(RetryHint::Stop),
            ..failure
        }),
    ];
    let short = Limits { deadline: Some(after(60)), ..limits() };
    let past = |failure| wishing(failure, secs(90));
    let wishes = [
        Case::after("in a minute", |failure| wishing(failure, secs(60))),
        Case::after("in an hour", |failure| wishing(failure, secs(3_600))),
        Case { failure: past, ..Case::under("past the deadline", short) },
    ];
    let last = wishes.map(|case| case.with(Budgets::DEFAULT));
    failures("The server's verdict", &rulings)
        + &failures("When the server wants us back, the last model", &last)
}

fn by_what_can_be_taken_out() -> String {
    let remedies = [
        Case::after("folds", |failure| Failure {
            mitigations: AvailableMitigations { folds: true, ..AvailableMitigations::NONE },
            ..failure
        }),
        Case::after("rounds", |failure| Failure {
            mitigations: AvailableMitigations { rounds: true, ..AvailableMitigations::NONE },
            ..failure
        }),
        Case::after("media", |failure| Failure {
            mitigations: AvailableMitigations { media: true, ..AvailableMitigations::NONE },
            ..failure
        }),
        Case::after("the block", |failure| Failure {
            mitigations: AvailableMitigations { block: true, ..AvailableMitigations::NONE },
            ..failure
        }),
        Case::after("the output cap", |failure| Failure {
            mitigations: AvailableMitigations { output: true, ..AvailableMitigations::NONE },
            ..failure
        }),
        Case::after("what was added", |failure| Failure {
            mitigations: AvailableMitigations { added: true, ..AvailableMitigations::NONE },
            ..failure
        }),
    ];
    let contradicted = [
        Case::after("rich", |failure| Failure { contradicted: true, ..failure }),
        Case::after("with all remedies", |failure| Failure {
            contradicted: true,
            mitigations: ANYTHING,
            ..failure
        }),
        Case::after("retried already", |failure| Failure {
            contradicted: true,
            mitigations: ANYTHING,
            ..failure
        })
        .with(Budgets { overflow_retries: 0, ..RICH }),
    ];
    let thinking = [
        Case::after("rich", |failure| Failure {
            mitigations: AvailableMitigations { thinking: true, ..AvailableMitigations::NONE },
            ..failure
        }),
        Case::after("given up already", |failure| Failure {
            mitigations: AvailableMitigations { thinking: true, ..AvailableMitigations::NONE },
            ..failure
        })
        .with(Budgets { thinking: 0, ..RICH }),
    ];
    let marks = [
        Case::after("rich", |failure| Failure {
            mitigations: AvailableMitigations { cache_marks: true, ..AvailableMitigations::NONE },
            ..failure
        }),
        Case::after("given up already", |failure| Failure {
            mitigations: AvailableMitigations { cache_marks: true, ..AvailableMitigations::NONE },
            ..failure
        })
        .with(Budgets { cache_marks: 0, ..RICH }),
    ];
    let streamed: fn(Failure) -> Failure = |failure| Failure {
        mitigations: AvailableMitigations { streaming: true, ..AvailableMitigations::NONE },
        ..failure
    };
    let streams = [
        Case::after("rich", streamed),
        Case::after("given up already", streamed).with(Budgets { streaming: 0, ..RICH }),
    ];
    let anything: fn(Failure) -> Failure = |failure| Failure { mitigations: ANYTHING, ..failure };
    let far: fn(Failure) -> Failure = |failure| {
        let wish = Some(RetryAfter { wait: secs(3_600), source: RetryAfterSource::RetryAfter });
        Failure { mitigations: ANYTHING, retry_after: wish, ..failure }
    };
    let all = [
        Case::after("rich", anything),
        Case::after("poor", anything).with(POOR),
        Case::after("in an hour, last model", far).with(Budgets::DEFAULT),
    ];
    failures("What the conversation could do without", &remedies)
        + &failures("It could do without all of that", &all)
        + &failures("It asks for thinking", &thinking)
        + &failures("It is sent as a stream", &streams)
        + &failures("It marks what the prompt cache may keep", &marks)
        + &failures("The request contradicts the refusal", &contradicted)
}

fn by_what_is_called() -> String {
    fn summing_up(run: Run, occasion: CompactionTrigger) -> Run {
        Run { phase: Phase::Calling(Call::Ask(CallPurpose::Summary(occasion))), ..run }
    }
    let ahead: Change = |run| summing_up(run, CompactionTrigger::Threshold);
    let late: Change = |run| summing_up(run, CompactionTrigger::Overflow);
    let rounds: fn(Failure) -> Failure = |failure| Failure { mitigations: ANYTHING, ..failure };
    let summaries = [
        Case::of("ahead of need", ahead),
        Case { failure: rounds, ..Case::of("the same, with rounds", ahead) },
        Case::of("after an overflow", late),
        Case { failure: rounds, ..Case::of("the same, with rounds", late) },
        Case::of("ahead, the last model", ahead).with(Budgets::DEFAULT),
    ];
    let refreshing: Change =
        |run| Run { phase: Phase::Calling(Call::Refresh(CallPurpose::Reply)), ..run };
    let away = Limits { endpoint_changes: 0b1, ..limits() };
    let refreshes = [
        Case::of("rich", refreshing),
        Case { run: refreshing, ..Case::under("the next elsewhere", away) },
        Case::of("poor", refreshing).with(POOR),
    ];
    let whole: Change = |run| {
        let streaming = Streaming { unstreamed_turns: 5, ..run.streaming };
        Run { streaming, ..run }
    };
    let unstreamed = [
        Case::of("rich", whole),
        Case { failure: rounds, ..Case::of("with all remedies", whole) },
        Case::of("tried already", whole).with(Budgets { odd_refusals: 0, ..RICH }),
    ];
    failures("A summary", &summaries)
        + &failures("A fresh credential", &refreshes)
        + &failures("It is not sent as a stream, after broken ones", &unstreamed)
}

fn by_who_is_asked() -> String {
    let away = Limits { endpoint_changes: 0b1, ..limits() };
    let spent = Budgets { retries: 0, refreshes: 0, ..RICH };
    let chain = [
        Case::under("elsewhere", away),
        Case::under("elsewhere, tries spent", away).with(spent),
        Case::named("same place, tries spent").with(spent),
        Case::under("none, tries spent", away).with(Budgets { switches: 0, ..spent }),
    ];
    let tried_again: Change = |run| Run { preferred: TRIED_AGAIN, ..run };
    let mendable: fn(Failure) -> Failure = |failure| Failure { mitigations: ANYTHING, ..failure };
    let again = [
        Case::of("rich", tried_again),
        Case { failure: mendable, ..Case::of("with all remedies", tried_again) },
    ];
    let last: Change = |run| {
        let budgets = Budgets { switches: 0, ..run.budgets };
        let retry_at = Some(Moment::default());
        Run {
            model_index: 1,
            preferred: PreferredModel { retry_at, ..run.preferred },
            budgets,
            ..run
        }
    };
    let gone = Budgets { preferred_retries: 0, ..spent };
    let at_the_end = [
        Case { run: last, ..Case::named("rich") },
        Case { run: last, ..Case::named("tries spent") }.with(spent),
        Case { run: last, ..Case::under("tries spent, elsewhere", away).with(spent) },
        Case { run: last, ..Case::under("asked again already", away).with(gone) },
    ];
    failures("Where the next model is", &chain)
        + &failures("At the last model of the chain", &at_the_end)
        + &failures("The preferred model, tried again", &again)
}

fn by_speed() -> String {
    fn fast(name: &'static str, failure: fn(Failure) -> Failure) -> Case {
        let rules = Limits { fast: Some(FastMode::default()), ..limits() };
        Case { run: |run| Run { fast: Fast::On, ..run }, failure, ..Case::under(name, rules) }
    }
    let short: fn(Failure) -> Failure = |failure| {
        let wish = Some(RetryAfter { wait: secs(19), source: RetryAfterSource::RetryAfter });
        Failure { retry_after: wish, ..failure }
    };
    let cases = [
        fast("no word, or 20 s", |failure| failure),
        fast("19 s", short),
        fast("denied", |failure| Failure { fast_denied: true, ..failure }),
        fast("spells spent", |failure| failure).with(Budgets { cool_downs: 0, ..RICH }),
    ];
    failures("Fast mode", &cases)
}

/// Refusals by endpoints that have answered well before, in the API's words or in others.
fn by_standing() -> String {
    let api: fn(Failure) -> Failure = |failure| proven(failure, ErrorBody::Api);
    let foreign: fn(Failure) -> Failure = |failure| proven(failure, ErrorBody::Foreign);
    let refreshing: Change =
        |run| Run { phase: Phase::Calling(Call::Refresh(CallPurpose::Reply)), ..run };
    let spent = Budgets { odd_refusals: 0, ..RICH };
    let doubted: Change =
        |run| Run { budgets: Budgets { odd_refusals: 3, refreshes: 0, ..run.budgets }, ..run };
    let cases = [
        Case::after("an API error", api),
        Case { failure: api, ..Case::of("an API error, refreshing", refreshing) },
        Case { failure: api, ..Case::of("an API error again", doubted) },
        Case::after("something else", foreign),
        Case { failure: foreign, ..Case::of("something else, refreshing", refreshing) },
        Case::after("something else, spent", foreign).with(spent),
        Case::after("the last model", foreign).with(Budgets::DEFAULT),
    ];
    failures("A proven endpoint refuses", &cases)
}

fn proven(failure: Failure, body: ErrorBody) -> Failure {
    Failure { body, endpoint_status: EndpointStatus::Proven, ..failure }
}

/// Events that are not failed calls.
fn other_setbacks() -> String {
    let room = |run: Run| run;
    let home: Change = |run| Run { preferred: TRIED_AGAIN, ..run };
    let escalate: Change = |run| Run { may_escalate: true, ..run };
    let hurried: Change = |run| Run { wrapping_up: true, ..run };
    let asked_again: Change =
        |run| Run { budgets: Budgets { incomplete_retries: 0, ..run.budgets }, ..run };
    let asked: Change = |run| Run { budgets: Budgets { completions: 1, ..run.budgets }, ..run };
    let setbacks: [(&str, RecoveryCause, Change); 27] = [
        ("cut, more room", RecoveryCause::CutShort(CutKind::Text), escalate),
        ("cut", RecoveryCause::CutShort(CutKind::Text), room),
        ("empty", RecoveryCause::Empty, room),
        ("empty, tried again", RecoveryCause::Empty, home),
        ("incomplete", RecoveryCause::Incomplete(Incomplete::UnknownReason), room),
        ("incomplete again", RecoveryCause::Incomplete(Incomplete::UnknownReason), asked_again),
        ("incomplete, home", RecoveryCause::Incomplete(Incomplete::UnknownReason), home),
        ("filtered", RecoveryCause::Incomplete(Incomplete::Filtered), room),
        ("a call in the text", RecoveryCause::Incomplete(Incomplete::CallInText), room),
        ("a call, told of", RecoveryCause::Incomplete(Incomplete::CallInText), asked),
        ("paused", RecoveryCause::Paused, room),
        ("left open", RecoveryCause::LeftOpen, room),
        ("left open, late", RecoveryCause::LeftOpen, hurried),
        ("idle", RecoveryCause::Idle, room),
        ("idle, wrapping up", RecoveryCause::Idle, hurried),
        ("crowded", RecoveryCause::Crowded, room),
        ("full, removable", RecoveryCause::Full(ANYTHING), room),
        ("full, nothing left", RecoveryCause::Full(AvailableMitigations::NONE), room),
        ("no summary, ahead", RecoveryCause::NoSummary(CompactionTrigger::Threshold), room),
        ("no summary, late", RecoveryCause::NoSummary(CompactionTrigger::Overflow), room),
        ("no usable summary", RecoveryCause::UnusableSummary, room),
        ("unstructured", RecoveryCause::Unstructured, room),
        ("unmet", RecoveryCause::Unmet, room),
        ("objected", RecoveryCause::Objected, room),
        ("unreported", RecoveryCause::Unreported, room),
        ("probe due", RecoveryCause::ProbeDue, room),
        ("probe answered", RecoveryCause::CapacityBack, room),
    ];
    let mut text = head("What is no failed call", &["rich", "poor"]);
    for (name, setback, change) in setbacks {
        let plans = [RICH, POOR].map(|budgets| {
            let rules = Limits { budgets, ..limits() };
            let run = change(Run::new(7, &rules));
            show(plan(setback, &run, Moment::default(), &rules))
        });
        text += &row(name, &plans);
    }
    text
}

#[test]
fn every_failure_has_a_recovery_plan_in_every_context() {
    let table = in_every_mode()
        + &by_what_the_server_says()
        + &by_what_can_be_taken_out()
        + &by_what_is_called()
        + &by_who_is_asked()
        + &by_speed()
        + &by_standing()
        + &other_setbacks();
    golden::compare("tests/recovery/table.txt", &table);
}
