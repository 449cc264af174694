//! The model chain: what switches the model, what does not, and the return to the preferred one.

use nix::sys::signal::Signal;
use outlast::rehearsal::{AfterLast, FaultPosition, RehearsalServer, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};

use super::timeouts::{all, hasty, messages, with};
use crate::agent::model_chains::{FIRST, Fall, Next, SECOND, assert_never_told, falls};
use crate::support::wire::dead_end;
use crate::support::{FinishedProcess, RunBuilder, serve, with_time_limit};

const THIRD: &str = "claude-haiku-5-5";
const PRIMARY_KEY: &str = "test-key-0123456789";
const NIGHT_KEY: &str = "night-key-9876543210";

/// For runs in which minutes take no time: no answer is late only because time passes so fast.
pub(super) const TIMELESS: [&str; 3] = [
    "--first-byte-timeout=1000h",
    "--stream-idle-timeout=1000h",
    "--stream-progress-timeout=1000h",
];

/// A thousand seconds in one.
pub(super) const QUICKLY: &str = "--time-scale=1000";

/// Slowly enough for what must happen within ten minutes, even on a busy machine.
const BRISKLY: &str = "--time-scale=250";

/// A command that takes more than ten minutes of a run whose time passes so many times faster.
fn eleven_minutes(pace: &str) -> Value {
    let scale: f64 = pace.rsplit('=').next().and_then(|it| it.parse().ok()).expect("a number");
    json!({ "command": format!("sleep {:.2}", 660.0 / scale) })
}

fn models(server: &RehearsalServer) -> Vec<String> {
    server.requests().iter().map(|request| request.model().to_owned()).collect()
}

/// The model at another server, as the command line has it.
fn at(model: &str, server: &RehearsalServer) -> String {
    format!("{model}@{}#NIGHT_KEY", server.base_url())
}

fn errors(ended: &FinishedProcess) -> String {
    ended.result()["errors"].to_string()
}

#[tokio::test]
async fn an_end_by_the_retry_quota_says_so() {
    let server = serve(Scenario::new().status(529).after(AfterLast::RepeatLast));
    let settings = json!({ "retryQuota": 12, "retryFirstDelay": "1ms" });
    let ended = with(RunBuilder::against(&server), &settings).args(["go"]).run().await;
    assert_eq!((ended.code, server.requests().len()), (Some(75), 3), "{ended:?}");
    assert!(errors(&ended).contains("retry quota (retryQuota)"), "{}", errors(&ended));
    let server = serve(Scenario::new().status(529).after(AfterLast::RepeatLast));
    let few = with(RunBuilder::against(&server), &json!({ "retryFirstDelay": "1ms" }));
    let ended = few.args(["--max-retries", "2", "go"]).run().await;
    assert_eq!((ended.code, server.requests().len()), (Some(75), 3), "{ended:?}");
    assert!(!errors(&ended).contains("retryQuota"), "{}", errors(&ended));
}

fn switches(ended: &FinishedProcess) -> Vec<[Value; 2]> {
    let pair = |frame: &Value| [frame["from_model"].clone(), frame["to_model"].clone()];
    messages(ended, "model_fallback").iter().map(pair).collect()
}

// --- what changes the model ---------------------------------------------------------------------

/// Retries in these trials, so that three attempts are all.
const RETRIES: &str = "--max-retries=2";

fn trial(server: &RehearsalServer) -> RunBuilder {
    let stream = ["--output-format=stream-json", RETRIES];
    hasty(server).env("NIGHT_KEY", NIGHT_KEY).args(stream)
}

/// One failure of each kind: of the model, and of its address.
fn two_falls() -> impl Iterator<Item = Fall> {
    let of = |next| falls().into_iter().find(move |fall| fall.next == next && fall.requests > 1);
    [Next::Here, Next::There].into_iter().filter_map(of)
}

/// The servers of a failure.
fn stage(fall: &Fall) -> (RehearsalServer, Option<RehearsalServer>) {
    let (primary, other) = fall.stage();
    (serve(primary), other.map(serve))
}

/// Which failures lead to the next model is tested in [`agent::model_chains`](crate::agent).
#[tokio::test]
async fn a_switch_of_models_is_reported_once_with_its_reason() {
    let reasons = ["due to high demand", "after connection_error"];
    for (fall, why) in two_falls().zip(reasons) {
        let (primary, other) = stage(&fall);
        let label = other.as_ref().map_or(SECOND.to_owned(), |other| at(SECOND, other));
        let ended = trial(&primary).args(["--fallback-model", &label, "Do it."]).run().await;
        let result = ended.result();
        assert_eq!(ended.code, Some(0), "{why}: {ended:?}");
        assert_eq!(result["result"], "Done.", "{why}");
        assert_eq!(switches(&ended), [[json!(FIRST), json!(label)]], "{why}: told once");
        assert_eq!(result["recovery"]["strategies"]["model_fallback"], 1, "{why}: {result}");
        let told: Vec<&str> =
            ended.stderr.lines().filter(|line| line.contains("switched from")).collect();
        let line = format!("outlast: switched from {FIRST} to {label} {why}");
        assert_eq!(told, [line], "{}", ended.stderr);
        let used = result["modelUsage"].as_object().expect("it is there");
        assert_eq!(used.keys().collect::<Vec<_>>(), [FIRST, label.as_str()], "{why}");
        let asked = models(&primary);
        assert_eq!(asked[..=fall.requests], vec![FIRST; fall.requests + 1], "{why}");
        if let Some(other) = &other {
            assert_never_told(PRIMARY_KEY, other);
            assert_never_told(NIGHT_KEY, &primary);
            assert_eq!(other.requests()[0].header("x-api-key"), Some(NIGHT_KEY), "{why}");
        }
    }
}

#[tokio::test]
async fn no_fallback_outranks_the_chain_of_the_settings() {
    for fall in two_falls() {
        let (primary, other) = stage(&fall);
        let label = other.as_ref().map_or(SECOND.to_owned(), |other| at(SECOND, other));
        let settings = json!({ "fallbackModel": [label], "retryFirstDelay": "1ms",
            "retryLongestDelay": "1ms" });
        let trial = with(RunBuilder::against(&primary), &settings).env("NIGHT_KEY", NIGHT_KEY);
        let flags = [RETRIES, "--no-fallback", "--output-format=stream-json", "Do it."];
        let ended = trial.args(flags).run().await;
        assert!(ended.code.is_some_and(|code| code > 0), "{ended:?}");
        assert_eq!(switches(&ended), [] as [[Value; 2]; 0], "{ended:?}");
        assert_eq!(models(&primary), vec![FIRST; fall.requests + 1], "{ended:?}");
        assert_eq!(other.map_or(0, |other| other.requests().len()), 0, "{ended:?}");
    }
}

#[tokio::test]
async fn an_unreachable_provider_is_left_for_another() {
    let (_taken, address) = dead_end();
    let dead = format!("http://{address}");
    let other = serve(Scenario::new().reply("Done."));
    let label = at("model-b", &other);
    let hasty = json!({ "retryFirstDelay": "1ms", "retryLongestDelay": "1ms" });
    let trial = with(RunBuilder::at(&dead), &hasty).env("NIGHT_KEY", NIGHT_KEY);
    let flags = [RETRIES, "--output-format=stream-json", "--fallback-model", &label, "Do it."];
    let ended = trial.args(flags).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(switches(&ended), [[json!(FIRST), json!(label)]]);
    assert_eq!(result["recovery"]["retries_by_class"]["connection_error"], 3, "{result}");
    let used = result["modelUsage"].as_object().expect("it is there");
    assert_eq!(used.keys().collect::<Vec<_>>(), [&label]);
    assert_never_told(PRIMARY_KEY, &other);
}

/// Nor is one that takes the request and says nothing, by whichever timer that is found.
#[tokio::test]
async fn a_silent_provider_is_left_for_another() {
    let silences = [
        (FaultPosition::Request, ["--first-byte-timeout=3s", "--max-retries=1"], "api_timeout"),
        (
            FaultPosition::Events(1),
            ["--stream-idle-timeout=3s", "--max-retries=1"],
            "stream_stalled",
        ),
    ];
    all(silences.map(|(place, flags, class)| async move {
        let primary = serve(Scenario::new().interrupted(ScriptedFaultKind::Stall, place).times(2));
        let other = serve(Scenario::new().reply("Done."));
        let label = at("model-b", &other);
        let trial = hasty(&primary).env("NIGHT_KEY", NIGHT_KEY).args(flags);
        let chain = ["--output-format=stream-json", "--fallback-model", &label, "Do it."];
        let ended = trial.args(chain).run().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(switches(&ended), [[json!(FIRST), json!(label)]]);
        assert!(ended.stderr.contains(&format!("{label} after {class}")), "{ended:?}");
        assert_eq!((primary.requests().len(), other.requests().len()), (2, 1));
    }))
    .await;
}

/// A model that was left is not called again, even after successes of the others, but for the
/// preferred one before the end.
#[tokio::test]
async fn without_returning_each_model_is_used_once() {
    let turn = json!({ "command": "true" });
    let scenario = Scenario::new()
        .tool("Bash", turn.clone())
        .status(529)
        .times(3)
        .tool("Bash", turn.clone())
        .tool("Bash", eleven_minutes(QUICKLY))
        .status(529)
        .times(3)
        .tool("Bash", turn)
        .status(529)
        .after(AfterLast::RepeatLast);
    let server = serve(scenario);
    let flags = ["--output-format=stream-json", "--fallback-model=opus,haiku", QUICKLY];
    let trial = RunBuilder::against(&server).args(flags).args(TIMELESS).args(["Do it."]);
    let ended = trial.run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert_eq!(result["api_error_class"], "repeated_529");
    let changes = [
        [json!(FIRST), json!(SECOND)],
        [json!(SECOND), json!(THIRD)],
        [json!(THIRD), json!(FIRST)],
    ];
    assert_eq!(switches(&ended), changes);
    let mut asked = models(&server);
    asked.dedup();
    assert_eq!(asked, [FIRST, SECOND, THIRD, FIRST]);
    assert_eq!(server.requests().len(), 4 + 5 + 1 + 11 + 1, "the last one has all its attempts");
    let used = result["modelUsage"].as_object().expect("it is there");
    assert_eq!(used.keys().collect::<Vec<_>>(), [FIRST, SECOND, THIRD]);
}

/// A mistake in the settings is told with its place, before anything is sent (T43).
#[tokio::test]
async fn a_model_chain_settings_error_names_file_line_and_column() {
    let mistakes = [
        ("{\n  \"fallbackModels\": [\"opus\"]\n}", "2:3: unknown setting \"fallbackModels\""),
        ("{\n  \"fallbackModel\":\n    7\n}", "3:5: "),
        ("{\"fallbackModel\": [{\"modl\": \"a\"}]}", "unknown field `modl`"),
        ("{\"fallbackModel\": [\"a\", \"a\"]}", "has \"a\" twice"),
        ("{\"fallbackReturn\": \"often\"}", "1:20: "),
        ("{\"fast\": 1}", "1:10: "),
        ("{\"apiKeyHelper\": true}", "1:18: "),
        ("{\"prices\": {\"a\": {\"in\": 1}}}", "1:"),
        ("{\"maxBudgetUsd\": 0}", "1:18: "),
        ("{\"fast\": true", "not valid JSON"),
    ];
    let server = serve(Scenario::new().reply("Never."));
    for (settings, place) in mistakes {
        for format in ["text", "json", "stream-json"] {
            let trial = RunBuilder::against(&server).args(["--output-format", format, "Do it."]);
            let config = trial.work().with_file_name("config");
            std::fs::create_dir(&config).expect("a folder can be made");
            std::fs::write(config.join("settings.json"), settings).expect("a new file");
            let ended = trial.run().await;
            assert_eq!(ended.code, Some(2), "{settings}: {ended:?}");
            assert_eq!(ended.stderr.lines().count(), 1, "{settings}: {ended:?}");
            let file = format!("{}:", config.join("settings.json").display());
            let (_, rest) = ended.stderr.split_once(&file).expect("the file is named");
            assert!(rest.contains(place), "{settings}: {ended:?}");
            let number = |part: Option<&str>| part.is_some_and(|it| it.parse::<u32>().is_ok());
            let mut parts = rest.split(':');
            assert!(number(parts.next()) && number(parts.next()), "{settings}: {rest}");
            match format {
                "text" => assert_eq!(ended.stdout, "", "{settings}"),
                _ => assert_eq!(ended.result()["is_error"], true, "{settings}"),
            }
        }
    }
    assert_eq!(server.requests().len(), 0);
}

// --- the way back -------------------------------------------------------------------------------

fn returning(primary: &RehearsalServer, other: &RehearsalServer) -> RunBuilder {
    let label = at(SECOND, other);
    let flags = ["--output-format=stream-json", "--fallback-return", BRISKLY];
    let trial = RunBuilder::against(primary).env("NIGHT_KEY", NIGHT_KEY).args(flags).args(TIMELESS);
    trial.args(["--fallback-model", &label, "Do it."])
}

/// Twice ten minutes: the first time the provider still fails, the second time it is back.
#[tokio::test]
async fn the_preferred_provider_is_retried_every_ten_minutes() {
    let primary = serve(
        Scenario::new()
            .tool("Bash", json!({ "command": "true" }))
            .and_thinking("Of the first.")
            .status(529)
            .times(3)
            .status(503)
            .tool("Bash", eleven_minutes(BRISKLY))
            .and_thinking("Of the first, again.")
            .reply("Done at home."),
    );
    let away = |scenario: Scenario| {
        scenario.tool("Bash", eleven_minutes(BRISKLY)).and_thinking("Of the second.")
    };
    let other = serve(away(away(Scenario::new())));
    let ended = returning(&primary, &other).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(result["result"], "Done at home.");
    let (home, away) = (json!(FIRST), json!(at(SECOND, &other)));
    let there = [home.clone(), away.clone()];
    let back = [away, home];
    assert_eq!(switches(&ended), [there.clone(), back.clone(), there, back]);
    assert_eq!((primary.requests().len(), other.requests().len()), (7, 2), "{ended:?}");
    // Neither gets the other's thinking: their servers would refuse it.
    assert_eq!((primary.violations(), other.violations()), (vec![], vec![]));
    assert_never_told(PRIMARY_KEY, &other);
    assert_never_told(NIGHT_KEY, &primary);
    let strategies = &result["recovery"]["strategies"];
    assert_eq!(strategies["fallback_return"], 2, "{strategies}");
    assert_eq!(strategies["model_fallback"], 2, "{strategies}");
    let told: Vec<&str> =
        ended.stderr.lines().filter(|line| line.contains("switched from")).collect();
    let reasons =
        ["due to high demand", "to try it again", "after server_error", "to try it again"];
    assert_eq!(told.len(), reasons.len(), "{told:?}");
    for (line, reason) in told.iter().zip(reasons) {
        assert!(line.ends_with(reason), "{line}");
    }
}

#[tokio::test]
async fn the_preferred_model_is_not_retried_before_ten_minutes() {
    let primary = serve(Scenario::new().status(404));
    let quick = json!({ "command": "true" });
    let away = Scenario::new().tool("Bash", quick.clone()).tool("Bash", quick).reply("Done.");
    let other = serve(away);
    let flags = ["--fallback-return", "--fallback-model", &at(SECOND, &other), "Do it."];
    let ended = RunBuilder::against(&primary).env("NIGHT_KEY", NIGHT_KEY).args(flags).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((primary.requests().len(), other.requests().len()), (1, 3));
}

// --- a run that is taken up again ---------------------------------------------------------------

/// The journal holds the thinking of both. Only the thinking of who is asked may be sent.
#[tokio::test]
async fn after_a_switch_and_resume_no_model_gets_thinking_of_another() {
    let turn = json!({ "command": "echo turn >> work" });
    let first = Scenario::new().tool("Bash", turn.clone()).and_thinking("Of the first.");
    let primary = serve(first.status(404).times(2));
    let second = Scenario::new()
        .tool("Bash", turn.clone())
        .and_thinking("Of the second.")
        .reply("Too late.")
        .delay(std::time::Duration::from_mins(10))
        .tool("Bash", turn)
        .reply("Done.");
    let other = serve(second);
    let label = at(SECOND, &other);
    let flags = ["--output-format=stream-json", "--fallback-model", &label];
    let run =
        RunBuilder::against(&primary).env("NIGHT_KEY", NIGHT_KEY).args(flags).args(["Do it."]);
    let run = run.start();
    with_time_limit("the second turn there", other.wait_for_request(2)).await;
    run.signal(Signal::SIGKILL);
    let again = run.end().await.again(&primary.base_url()).env("NIGHT_KEY", NIGHT_KEY);
    let ended = again.args(flags).args(["--continue"]).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((primary.requests().len(), other.requests().len()), (3, 4), "the rung is kept");
    assert_eq!(switches(&ended), [] as [[Value; 2]; 0], "it was told when it happened");
    assert_eq!((primary.violations(), other.violations()), (vec![], vec![]));
    let requests = other.requests();
    for request in &requests {
        let raw = String::from_utf8_lossy(&request.raw).into_owned();
        assert!(!raw.contains("Of the first."), "{raw}");
    }
    assert_never_told(PRIMARY_KEY, &other);
    let used = result["modelUsage"].as_object().expect("it is there");
    assert_eq!(used.keys().collect::<Vec<_>>(), [FIRST, label.as_str()]);
    let work = std::fs::read_to_string(ended.work().join("work"));
    assert_eq!(work.expect("the tools ran"), "turn\nturn\nturn\n");
}
