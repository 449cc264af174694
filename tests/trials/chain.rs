//! The model chain: what switches the model, what does not, and the return to the preferred one.

use nix::sys::signal::Signal;
use outlast::rehearsal::{
    AfterLast, FaultPosition, ReceivedRequest, RehearsalServer, Scenario, ScriptedFaultKind,
};
use serde_json::{Value, json};

use super::resume_after_kill::messages as conversation;
use super::timeouts::{all, hasty, messages, with};
use crate::support::wire::dead_end;
use crate::support::{FinishedProcess, RunBuilder, serve, with_time_limit};

pub(super) const FIRST: &str = "claude-sonnet-5-5";
pub(super) const SECOND: &str = "claude-opus-5-5";
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

/// Both models are overloaded, and the first one comes back before the run has given up.
#[tokio::test]
async fn the_preferred_model_is_asked_once_more_before_the_end() {
    let scenario = Scenario::new().status(529).times(3 + 3).reply("It is back.");
    let server = serve(scenario);
    let settings = json!({ "retryFirstDelay": "1ms" });
    let run = with(RunBuilder::against(&server), &settings);
    let ended = run
        .args(["--model", FIRST, "--fallback-model", SECOND, "--max-retries", "2", "go"])
        .run()
        .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let asked = [vec![FIRST; 3], vec![SECOND; 3], vec![FIRST]].concat();
    assert_eq!(models(&server), asked);
    let strategies = &ended.result()["recovery"]["strategies"];
    assert_eq!(strategies["preferred_model_retry"], 1, "{strategies}");
}

fn switches(ended: &FinishedProcess) -> Vec<[Value; 2]> {
    let pair = |frame: &Value| [frame["from_model"].clone(), frame["to_model"].clone()];
    messages(ended, "model_fallback").iter().map(pair).collect()
}

/// Nothing of what `key` opens goes anywhere else.
#[track_caller]
fn assert_never_told(key: &str, server: &RehearsalServer) {
    for ReceivedRequest { headers, raw, path, .. } in server.requests() {
        let told = headers.iter().any(|(_, value)| value.contains(key));
        let written = String::from_utf8_lossy(&raw).contains(key) || path.contains(key);
        assert!(!told && !written, "{key}: {headers:?}");
    }
}

// --- what changes the model ---------------------------------------------------------------------

/// Whether the next model is at the same address.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    Here,
    There,
}

/// One way in which a model fails, which leads to the next.
struct Fall {
    what: &'static str,
    next: Next,
    /// Adds the failing answers.
    fails: fn(Scenario) -> Scenario,
    requests: usize,
    /// Why, as people are told.
    why: &'static str,
}

/// Retries in these trials, so that three attempts are all.
const RETRIES: &str = "--max-retries=2";

fn falls() -> Vec<Fall> {
    let fall = |what, next, requests, why, fails| Fall { what, next, fails, requests, why };
    vec![
        fall("404 model", Next::Here, 1, "after invalid_model", |scenario| {
            scenario.status(404).error("not_found_error", "model: claude-sonnet-5-5", None)
        }),
        fall("403 model", Next::Here, 1, "after auth_error", |scenario| {
            scenario.status(403).error("permission_error", "This model is not for you.", None)
        }),
        fall("529", Next::Here, 3, "due to high demand", |scenario| scenario.status(529).times(3)),
        fall("500", Next::Here, 3, "after server_error", |scenario| scenario.status(500).times(3)),
        fall("quota", Next::Here, 1, "after rate_limit", |scenario| {
            scenario.status(429).header("retry-after", "18000")
        }),
        fall("short limits", Next::Here, 3, "after rate_limit", |scenario| {
            scenario.status(429).times(3)
        }),
        fall("resets", Next::There, 3, "after connection_error", |scenario| {
            scenario.interrupted(ScriptedFaultKind::Reset, FaultPosition::Request).times(3)
        }),
        fall("torn streams", Next::There, 3, "after connection_error", |scenario| {
            scenario.interrupted(ScriptedFaultKind::Close, FaultPosition::Headers).times(3)
        }),
        fall("HTML", Next::Here, 3, "after server_error", |scenario| {
            scenario.status(200).body("text/html", "<html><title>Log in</title></html>").times(3)
        }),
        // A key that has worked is tried once more.
        fall("invalid key", Next::There, 2, "after invalid_api_key", |scenario| {
            scenario.status(401).times(2)
        }),
        fall("revoked token", Next::There, 1, "after token_revoked", |scenario| {
            scenario.status(403).error("permission_error", "token has been revoked", None)
        }),
        fall("credit", Next::There, 1, "after credit_balance_low", |scenario| {
            let low = "Your credit balance is too low to access the API.";
            scenario.status(400).error("invalid_request_error", low, None)
        }),
        fall("spend limit", Next::There, 1, "after credit_balance_low", |scenario| {
            let code = Some("enforced_spend_limit_reached");
            scenario.status(403).error("permission_error", "No more.", code)
        }),
    ]
}

fn trial(server: &RehearsalServer) -> RunBuilder {
    let stream = ["--output-format=stream-json", RETRIES];
    hasty(server).env("NIGHT_KEY", NIGHT_KEY).args(stream)
}

impl Fall {
    /// A first model that does a turn's work and then fails, and where the second one is.
    fn stage(&self) -> (RehearsalServer, Option<RehearsalServer>) {
        let turn = Scenario::new()
            .tool("Bash", json!({ "command": "echo kept >> work" }))
            .and_thinking("Only I may read this.")
            .usage(1000, 100);
        let last = |scenario: Scenario| scenario.reply("Done.").usage(1000, 100);
        match self.next {
            Next::Here => (serve(last((self.fails)(turn)).when_model(SECOND)), None),
            Next::There => (serve((self.fails)(turn)), Some(serve(last(Scenario::new())))),
        }
    }

    async fn leads_to_the_next(&self) {
        let (primary, other) = self.stage();
        let label = other.as_ref().map_or(SECOND.to_owned(), |other| at(SECOND, other));
        let ended = trial(&primary).args(["--fallback-model", &label, "Do it."]).run().await;
        let (what, result) = (self.what, ended.result());
        assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
        assert_eq!(result["result"], "Done.", "{what}");
        assert_eq!(switches(&ended), [[json!(FIRST), json!(label)]], "{what}: told once");
        assert_eq!(result["recovery"]["strategies"]["model_fallback"], 1, "{what}: {result}");
        let told: Vec<&str> =
            ended.stderr.lines().filter(|line| line.contains("switched from")).collect();
        let line = format!("outlast: switched from {FIRST} to {label} {}", self.why);
        assert_eq!(told, [line], "{what}: {}", ended.stderr);
        let used = result["modelUsage"].as_object().expect("it is there");
        assert_eq!(used.keys().collect::<Vec<_>>(), [FIRST, label.as_str()], "{what}");
        let asked = models(&primary);
        assert_eq!(asked[..=self.requests], vec![FIRST; self.requests + 1], "{what}");
        assert_eq!(primary.violations(), [""; 0], "{what}");
        let last = other.as_ref().unwrap_or(&primary);
        assert_eq!(last.violations(), [""; 0], "{what}");
        let requests = last.requests();
        let request = requests.last().expect("it was asked");
        let here = if other.is_none() { self.requests + 2 } else { 1 };
        assert_eq!((requests.len(), request.model()), (here, SECOND), "{what}");
        // The work stays; the thinking that only the first one can read does not.
        let raw = String::from_utf8_lossy(&request.raw).into_owned();
        assert!(!raw.contains("signature") && !raw.contains("Only I may"), "{what}: {raw}");
        assert_eq!(conversation(request).len(), 3, "{what}: {raw}");
        if let Some(other) = &other {
            assert_eq!(asked.len(), self.requests + 1, "{what}: {asked:?}");
            assert_never_told(PRIMARY_KEY, other);
            assert_never_told(NIGHT_KEY, &primary);
            assert_eq!(request.header("x-api-key"), Some(NIGHT_KEY), "{what}");
        }
        let work = std::fs::read_to_string(ended.work().join("work"));
        assert_eq!(work.expect("the tool ran"), "kept\n", "{what}");
    }

    /// What `--no-fallback` says outranks the settings.
    async fn leads_nowhere_without_a_chain(&self) {
        let (primary, other) = self.stage();
        let label = other.as_ref().map_or(SECOND.to_owned(), |other| at(SECOND, other));
        let settings = json!({ "fallbackModel": [label], "retryFirstDelay": "1ms",
            "retryLongestDelay": "1ms" });
        let trial = with(RunBuilder::against(&primary), &settings).env("NIGHT_KEY", NIGHT_KEY);
        let flags = [RETRIES, "--no-fallback", "--output-format=stream-json", "Do it."];
        let ended = trial.args(flags).run().await;
        let what = self.what;
        assert!(ended.code.is_some_and(|code| code > 0), "{what}: {ended:?}");
        assert_eq!(switches(&ended), [] as [[Value; 2]; 0], "{what}");
        assert_eq!(models(&primary), vec![FIRST; self.requests + 1], "{what}");
        assert_eq!(other.map_or(0, |other| other.requests().len()), 0, "{what}");
    }
}

#[tokio::test]
async fn every_failure_of_a_model_switches_to_the_next_once() {
    all(falls().into_iter().map(|fall| async move { fall.leads_to_the_next().await })).await;
}

#[tokio::test]
async fn without_a_model_chain_the_model_never_changes() {
    all(falls().into_iter().map(|fall| async move { fall.leads_nowhere_without_a_chain().await }))
        .await;
}

/// What is wrong with an address or its credential is wrong with every model there.
#[tokio::test]
async fn endpoint_failures_do_not_switch_to_a_model_at_the_same_endpoint() {
    let elsewhere = falls().into_iter().filter(|fall| fall.next == Next::There);
    all(elsewhere.map(|fall| async move {
        let (primary, _other) = fall.stage();
        let ended = trial(&primary).args(["--fallback-model", SECOND, "Do it."]).run().await;
        assert!(ended.code.is_some_and(|code| code > 0), "{}: {ended:?}", fall.what);
        assert_eq!(models(&primary), vec![FIRST; fall.requests + 1], "{}", fall.what);
    }))
    .await;
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

/// Overloads that pass are no reason to leave, however many turns have one.
#[tokio::test]
async fn a_single_overload_does_not_switch_the_model() {
    let turn =
        |scenario: Scenario, _| scenario.status(529).tool("Bash", json!({ "command": "true" }));
    let server = serve((0..4).fold(Scenario::new(), turn).status(529).reply("Done."));
    let flags = ["--output-format=stream-json", "--fallback-model=opus,haiku", "Do it."];
    let ended = hasty(&server).args(flags).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(models(&server), [FIRST; 10]);
    assert_eq!(switches(&ended), [] as [[Value; 2]; 0]);
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
    let primary = serve(first.status(404));
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
    assert_eq!((primary.requests().len(), other.requests().len()), (2, 4), "the rung is kept");
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
