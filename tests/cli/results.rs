//! The result object for every kind of end.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use jiff::tz::{TimeZone, offset};
use outlast::agent::{
    HookStats, JournalHealth, LastFailure, ModelSpan, ModelStats, RunCosts, RunOutcome, RunStats,
};
use outlast::cli::args::GivenFlags;
use outlast::cli::moved_session::RepeatedTerms;
use outlast::cli::output::{ResultReport, Resumption, shrink, usage_error_result};
use outlast::cli::output_file::{OutputFile, ResultRetention};
use outlast::cli::timestamps::WallTime;
use outlast::cli::usage::UsageError;
use outlast::cli::{advice, exit};
use outlast::journal::{Denial, RecordedPrompt, ToolStats};
use outlast::messages::ResultObject;
use outlast::recovery::{
    ErrorClass, Event, Failure, FailureStage, Fault, FaultKind, Interrupt, Limits, Moment, Money,
    RecoveryLog, ReplyKind, RetryAfter, RetryAfterSource, RetryHint, Run, StopReason, Timer,
    TokenEstimate, classify,
};
use outlast::secrets::Redactor;
use outlast::tools::{Enforced, SandboxMode, SandboxState};
use outlast::transcript::Usage;
use serde_json::{Value, json};

use super::golden;
use crate::support::schema;

fn now() -> WallTime {
    let at = "2026-11-21T21:30:00Z".parse().expect("an instant");
    WallTime { at, zone: TimeZone::fixed(offset(2)) }
}

fn dollars(amount: f64) -> Money {
    Money::from_dollars(amount).expect("an amount")
}

fn usage() -> Usage {
    Usage {
        input_tokens: 900,
        output_tokens: 250,
        cache_creation_input_tokens: 4_000,
        cache_read_input_tokens: 12_000,
        web_search_requests: 0,
    }
}

const WEIGHED: Event =
    Event::Estimated(TokenEstimate { ceiling: 64_000, window: 200_000, ..TokenEstimate::FREE });

/// The recoveries of the state machine for these events.
fn recoveries(script: &[(u64, Event)]) -> RecoveryLog {
    let limits = Limits::default();
    let (mut run, mut chronicle) = (Run::new(7, &limits), RecoveryLog::default());
    for &(millis, event) in script {
        let step = run.step(Moment::from_millis(millis), event, &limits).expect("in order");
        chronicle.observe(&step, u32::from(matches!(event, Event::Replied(_))));
        run = step.next;
    }
    chronicle
}

/// Two overloads, waited out for 15.75 s each.
fn two_overloads() -> RecoveryLog {
    let overload = Event::Failed(Failure::of(ErrorClass::ServerOverload));
    recoveries(&[
        (0, Event::Begin),
        (0, WEIGHED),
        (1_000, overload),
        (16_750, Event::WaitEnded),
        (16_750, WEIGHED),
        (17_000, overload),
        (32_750, Event::WaitEnded),
        (32_750, WEIGHED),
        (40_000, Event::Replied(ReplyKind::Answer { tokens: 250 })),
    ])
}

pub(super) fn outcome(reason: StopReason) -> RunOutcome {
    let stats = RunStats {
        turns: 3,
        duration: Duration::from_millis(65_432),
        api_duration: Duration::from_millis(9_876),
        first_token: Some(Duration::from_millis(412)),
        usage: usage(),
        by_model: vec![ModelStats {
            model: "model-a".to_owned(),
            usage: usage(),
            cost: Some(dollars(0.0123)),
            context_window: 200_000,
            max_output: 64_000,
        }],
        models: vec![ModelSpan { model: "model-a".to_owned(), from_turn: 1 }],
        recovery: two_overloads(),
        tools: ToolStats { calls: 4, failed: 1, denied: 0, abandoned: 0 },
        ..RunStats::default()
    };
    RunOutcome {
        has_messages: true,
        text: "Fixed the parser; all 12 tests pass.".to_owned(),
        stop_reason: Some("end_turn".to_owned()),
        costs: RunCosts { spent: dollars(0.0123).into(), ..RunCosts::default() },
        journal: JournalHealth::Durable,
        ..RunOutcome::new(reason, &RecordedPrompt::default(), stats)
    }
}

fn refusal(status: u16, message: &str) -> Fault {
    let kind = FaultKind::Refused {
        status,
        label: String::new(),
        code: String::new(),
        message: message.to_owned(),
    };
    Fault { request_id: Some("req_011".to_owned()), ..Fault::new(kind, FailureStage::Status) }
}

fn by_hook(reason: StopReason) -> RunOutcome {
    let why = Some("the tests do not pass".to_owned());
    let log = Some("/home/.outlast/hooks/.logs/hook-log.jsonl".into());
    RunOutcome {
        hooks: HookStats {
            ran: 3,
            failed: 1,
            blocked: 2,
            waited: Duration::from_millis(40),
            cut: vec!["Stop: ./slow.sh".to_owned()],
            why,
            log,
        },
        ..outcome(reason)
    }
}

fn failed(class: ErrorClass, fault: Fault) -> RunOutcome {
    RunOutcome {
        failure: Some(LastFailure { class: classify(&fault).class, fault, retry_at: None }),
        text: String::new(),
        stop_reason: None,
        ..outcome(StopReason::ModelError(class))
    }
}

pub(super) fn fenced() -> SandboxState {
    SandboxState {
        mode: SandboxMode::Workspace,
        enforced: Enforced::Full,
        abi: 7,
        network: "open",
        signals: "own_only",
        processes: "own_only",
        allowed_domains: Vec::new(),
        denied_domains: Vec::new(),
        egress: None,
        exposed: Vec::new(),
    }
}

pub(super) fn object(outcome: &RunOutcome) -> Value {
    result(outcome).to_value()
}

pub(super) fn result(outcome: &RunOutcome) -> ResultObject {
    ResultReport {
        outcome,
        session_id: "0190a1b2-0000-7000-8000-000000000001",
        uuid: "00000000-0000-4000-8000-000000000002",
        now: &now(),
        warnings: &[],
        sandbox: &fenced(),
        resumption: &Resumption::default(),
        ignored: &[],
        terms: RepeatedTerms {
            cwd: std::path::Path::new("/work"),
            config_dir: None,
            profile: None,
            given: &GivenFlags::default(),
            redactor: &Redactor::default(),
        },
    }
    .object()
}

fn limits() -> Vec<(&'static str, RunOutcome)> {
    vec![
        ("completed", outcome(StopReason::Completed)),
        (
            "completed-without-journal",
            RunOutcome {
                journal: JournalHealth::Lost("no space left on device".to_owned()),
                ..outcome(StopReason::Completed)
            },
        ),
        ("max-turns", outcome(StopReason::MaxTurns)),
        (
            "max-budget",
            RunOutcome {
                costs: RunCosts {
                    budget: Some(dollars(0.02)),
                    spent: dollars(0.0163).into(),
                    unsettled: dollars(0.004),
                    ..RunCosts::default()
                },
                ..outcome(StopReason::MaxBudgetUsd)
            },
        ),
        ("deadline", outcome(StopReason::Deadline)),
        ("hook-stopped", by_hook(StopReason::HookStopped)),
        ("stop-hook-blocked", by_hook(StopReason::StopHookBlocked)),
        ("max-output-tokens", outcome(StopReason::MaxOutputTokens)),
        ("refusal", outcome(StopReason::Refusal)),
        ("sigint-while-streaming", outcome(StopReason::AbortedStreaming(Interrupt::Sigint))),
        ("sigterm-while-tools-ran", outcome(StopReason::AbortedTools(Interrupt::Sigterm))),
        ("stdout-closed", outcome(StopReason::AbortedStreaming(Interrupt::StdoutClosed))),
        (
            "internal-error",
            RunOutcome {
                broken: Some("index out of bounds (src/agent/run.rs:10)".to_owned()),
                ..outcome(StopReason::InternalError)
            },
        ),
        (
            "output-failed",
            RunOutcome {
                broken: Some("the result file r.json could not be written: disk full".to_owned()),
                ..outcome(StopReason::OutputFailed)
            },
        ),
    ]
}

fn failures() -> Vec<(&'static str, RunOutcome)> {
    let stalled = FaultKind::Timeout { timer: Timer::StreamIdle };
    let torn = FaultKind::Connection { detail: "connection refused (os error 111)".to_owned() };
    vec![
        ("repeated-529", failed(ErrorClass::Repeated529, refusal(529, "Overloaded"))),
        ("quota-exhausted", {
            let fault = refusal(429, "You hit your limit");
            // Three hours and twelve minutes from now.
            let retry_at = Some(1_795_308_120);
            let class = ErrorClass::RateLimit;
            let failure = Some(LastFailure { fault, class, retry_at });
            let reason = StopReason::ModelError(ErrorClass::QuotaExhausted);
            RunOutcome { failure, text: String::new(), stop_reason: None, ..outcome(reason) }
        }),
        ("invalid-api-key", failed(ErrorClass::InvalidApiKey, refusal(401, "invalid x-api-key"))),
        ("invalid-model", failed(ErrorClass::InvalidModel, refusal(404, "model: nonesuch"))),
        (
            "stream-stalled",
            failed(ErrorClass::StreamStalled, Fault::new(stalled, FailureStage::Stream)),
        ),
        (
            "connection-error",
            failed(ErrorClass::ConnectionError, Fault::new(torn, FailureStage::Unsent)),
        ),
        ("prompt-too-long", {
            let fault = refusal(400, "prompt is too long: 210000 tokens > 200000 maximum");
            let failure = LastFailure { fault, class: ErrorClass::PromptTooLong, retry_at: None };
            RunOutcome { failure: Some(failure), ..outcome(StopReason::PromptTooLong) }
        }),
        ("pdf-too-large", {
            let fault = refusal(400, "The PDF is too large: a maximum of 100 pages");
            let failure = LastFailure { fault, class: ErrorClass::PdfTooLarge, retry_at: None };
            RunOutcome { failure: Some(failure), ..outcome(StopReason::ImageError) }
        }),
        ("empty-response", outcome(StopReason::EmptyResponse)),
    ]
}

#[test]
fn results_match_the_golden_files() {
    for (name, outcome) in limits().into_iter().chain(failures()) {
        let object = object(&outcome);
        schema::check_result(&object);
        let pretty = serde_json::to_string_pretty(&object).unwrap() + "\n";
        golden::compare(&format!("tests/cli/golden/results/{name}.json"), &pretty);
    }
    let error = UsageError::new("unknown flag --max-turn; did you mean --max-turns?");
    let refused = usage_error_result(&error, "", "00000000-0000-4000-8000-000000000002").to_value();
    schema::check_result(&refused);
    let pretty = serde_json::to_string_pretty(&refused).unwrap() + "\n";
    golden::compare("tests/cli/golden/results/usage-error.json", &pretty);
}

#[test]
fn exit_code_subtype_and_is_error_agree_for_every_outcome() {
    for reason in StopReason::all() {
        let object = object(&outcome(reason));
        let success = object["subtype"] == "success";
        assert_eq!(success, object["is_error"] == false, "{reason:?}");
        assert_eq!(success, object["exit_code"] == 0, "{reason:?}");
        assert_eq!(success, object.get("result").is_some(), "{reason:?}");
        assert_eq!(success, object.get("errors").is_none(), "{reason:?}");
        assert_eq!(object["exit_code"], exit::exit_status(reason).exit_code());
        assert_eq!(object["terminal_reason"], reason.name());
        assert_eq!(object["num_turns"], 3);
    }
}

#[test]
fn a_lost_recovery_names_the_failure_that_ended_it() {
    let overload = Event::Failed(Failure::of(ErrorClass::ServerOverload));
    let interrupted = Event::Interrupted(Interrupt::Sigterm);
    let script = [(0, Event::Begin), (0, WEIGHED), (1_000, overload), (1_200, interrupted)];
    let mut outcome = outcome(StopReason::AbortedStreaming(Interrupt::Sigterm));
    outcome.stats.recovery = recoveries(&script);
    let recovery = &object(&outcome)["recovery"];
    assert_eq!((&recovery["saved"], &recovery["lost"]), (&json!(0), &json!(1)));
    let record = &recovery["records"][0];
    assert_eq!(
        (&record["saved"], &record["lost_to"]),
        (&json!(false), &json!("aborted_streaming"))
    );
    assert_eq!((&record["waited_ms"], &recovery["waited_ms"]), (&json!(200), &json!(200)));
}

#[test]
fn a_deadline_within_an_outage_advises_about_the_service() {
    let refused = FaultKind::Connection { detail: "connection refused (os error 111)".to_owned() };
    let outage = failed(ErrorClass::ConnectionError, Fault::new(refused, FailureStage::Unsent));
    let object = object(&RunOutcome { reason: StopReason::Deadline, ..outage });
    let error = object["errors"][0].as_str().expect("a line");
    assert!(error.starts_with("time ran out (connection refused"), "{error}");
    assert!(error.contains("Check ANTHROPIC_BASE_URL") && !error.contains("Raise"), "{error}");
}

#[test]
fn a_wait_that_is_too_long_is_named_as_the_cause() {
    let overload = Fault {
        retry_after: Some(RetryAfter {
            wait: Duration::from_hours(2),
            source: RetryAfterSource::RetryAfter,
        }),
        ..refusal(529, "Overloaded")
    };
    let ended = |reason| {
        let outcome = failed(ErrorClass::ServerOverload, overload.clone());
        let object = object(&RunOutcome { reason, ..outcome });
        object["errors"][0].as_str().expect("a line").to_owned()
    };
    let error = ended(StopReason::ModelError(ErrorClass::QuotaExhausted));
    assert!(error.starts_with("the service is overloaded, and asks for a longer wait"), "{error}");
    assert!(error.contains("--max-retry-wait") && !error.contains("quota"), "{error}");
    let error = ended(StopReason::Deadline);
    assert!(error.starts_with("the service asks for a wait of 2h00m, which would end"), "{error}");
}

#[test]
fn a_redirection_is_named_as_the_cause() {
    let fault =
        refusal(301, "redirected to https://gateway.test/v1/messages, which is not followed");
    let object = object(&failed(ErrorClass::Unknown, fault));
    let error = object["errors"][0].as_str().expect("a line");
    assert!(error.starts_with("the request was redirected"), "{error}");
    assert!(error.contains("set ANTHROPIC_BASE_URL to it") && !error.contains("report"), "{error}");
}

#[test]
fn partial_work_is_kept_when_a_limit_ends_the_run() {
    let object = object(&outcome(StopReason::MaxTurns));
    assert_eq!(object["partial_result"], "Fixed the parser; all 12 tests pass.");
    let id = "0190a1b2-0000-7000-8000-000000000001";
    assert_eq!(object["resume"]["command"], format!("outlast -C /work --resume {id}"));
}

#[test]
fn a_session_that_was_not_saved_is_not_offered_for_resumption() {
    let lost = JournalHealth::Lost("disk full".to_owned());
    for journal in [JournalHealth::Off, lost] {
        let outcome = RunOutcome { journal, ..outcome(StopReason::MaxTurns) };
        assert_eq!(object(&outcome)["resume"], Value::Null);
    }
}

#[test]
fn denials_are_listed_in_full() {
    let mut outcome = outcome(StopReason::Completed);
    outcome.stats.denials = vec![Denial {
        tool_name: "Bash".to_owned(),
        tool_use_id: "toolu_1".to_owned(),
        tool_input: json!({ "command": "git push" }),
        reason: "no rule allows it".to_owned(),
    }];
    let denial = &object(&outcome)["permission_denials"][0];
    assert_eq!(denial["tool_input"]["command"], "git push");
    assert_eq!(denial["reason"], "no rule allows it");
}

#[test]
fn advice_requires_no_interactive_action() {
    for class in ErrorClass::ALL {
        let (what, advice) = advice::class_advice(class);
        assert!(!what.is_empty() && what.starts_with(char::is_lowercase), "{class}: {what}");
        assert!(!what.ends_with('.'), "{class}: {what}");
        assert!(advice.is_empty() || advice.ends_with(['.', 'F', 't', 'g']), "{class}: {advice}");
        for word in ["press", "Esc", "/login", "click"] {
            assert!(!format!("{what} {advice}").contains(word), "{class}: {word}");
        }
    }
}

#[test]
fn an_error_quotes_the_service_message_request_id_and_time() {
    let quota = failures().into_iter().find(|(name, _)| *name == "quota-exhausted").unwrap().1;
    let [line] = &advice::explain(&quota, &now(), "an-id")[..] else { panic!("one line") };
    for part in ["HTTP 429", "You hit your limit", "req_011", "2026-11-22", "+02:00", "in 3h"] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn an_error_counts_only_the_attempts_that_were_made() {
    let explained = |outcome: &RunOutcome| advice::explain(outcome, &now(), "an-id").join(" ");
    let fault = || refusal(500, "Internal server error");
    let once = failed(ErrorClass::ServerError, fault());
    assert!(explained(&once).starts_with("the service failed (HTTP 500"), "{}", explained(&once));
    let ruled_out = Fault { retry_hint: Some(RetryHint::Stop), ..fault() };
    let line = explained(&failed(ErrorClass::ServerError, ruled_out));
    assert!(line.contains("x-should-retry: false") && !line.contains("attempts"), "{line}");
    let broke = Event::Failed(Failure::of(ErrorClass::ServerError));
    let stopped =
        Failure { retry_hint: Some(RetryHint::Stop), ..Failure::of(ErrorClass::ServerError) };
    let mut twice = once;
    twice.stats.recovery = recoveries(&[
        (0, Event::Begin),
        (0, WEIGHED),
        (1_000, broke),
        (9_000, Event::WaitEnded),
        (9_000, WEIGHED),
        (10_000, Event::Failed(stopped)),
    ]);
    assert!(explained(&twice).contains("the service failed, in 2 attempts"));
}

#[test]
fn a_reply_that_stays_paused_is_not_called_senseless() {
    let mut paused = failed(ErrorClass::BadResponse, refusal(500, "no"));
    (paused.failure, paused.stop_reason) = (None, Some("pause_turn".to_owned()));
    let line = advice::explain(&paused, &now(), "an-id").join(" ");
    assert!(line.starts_with("the service paused its reply") && !line.contains("portal"), "{line}");
    paused.stop_reason = Some("tool_use".to_owned());
    let line = advice::explain(&paused, &now(), "an-id").join(" ");
    assert!(line.starts_with("the answers made no sense"), "{line}");
}

#[test]
fn an_error_is_one_line_whatever_the_server_says() {
    let fault = refusal(500, &"<html>\n\n\tBad\r\nGateway</html>".repeat(100));
    let class = classify(&fault).class;
    let [line] = &advice::explain(&failed(class, fault), &now(), "an-id")[..] else {
        panic!("one line")
    };
    assert!(!line.contains(['\n', '\r', '\t']) && line.len() < 1200, "{line}");
}

#[test]
fn long_texts_are_truncated_in_the_middle() {
    let long = "é".repeat(900_000);
    let value = json!({ "keep": "short", "nested": [{ "cut": long }] });
    let shrunk = shrink(value.clone(), 1_000_000);
    assert!(shrunk.to_string().len() <= 1_000_000);
    assert_eq!(shrunk["keep"], "short");
    let cut = shrunk["nested"][0]["cut"].as_str().unwrap();
    assert!(cut.starts_with('é') && cut.ends_with('é') && cut.contains("bytes left out"));
    assert_eq!(shrink(value.clone(), 10_000_000), value);
}

#[test]
fn the_result_file_is_replaced_atomically_without_leftovers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.json");
    std::fs::write(&path, "an older result that is much longer than the new one").unwrap();
    OutputFile::open(&path).unwrap().write("{}", ResultRetention::Synced).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let missing = folder.path().join("gone/result.json");
    assert!(OutputFile::open(&missing).is_err());
}

#[test]
fn a_staged_result_that_is_not_published_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.json");
    let place = OutputFile::open(&path).unwrap();
    drop(place.stage("{}", ResultRetention::AtOnce).unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    place.stage("{}", ResultRetention::AtOnce).unwrap().publish(ResultRetention::AtOnce).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
}

#[test]
fn the_result_file_has_the_mode_of_any_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    let (plain, path) = (folder.path().join("plain"), folder.path().join("result.json"));
    std::fs::File::create(&plain).unwrap();
    OutputFile::open(&path).unwrap().write("{}", ResultRetention::Synced).unwrap();
    assert_eq!(mode(&path), mode(&plain));
}
