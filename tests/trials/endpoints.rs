//! Trials of the chain across endpoints: another service takes over, with its own key.

use std::time::Duration;

use nix::sys::signal::Signal;
use outlast::rehearsal::{ReceivedRequest, RehearsalServer, Scenario};
use serde_json::json;

use crate::support::{FinishedProcess, RunBuilder, serve, with_time_limit};

const FIRST: &str = "claude-sonnet-5-5";
const SECOND: &str = "claude-opus-5-5";
const PRIMARY_KEY: &str = "test-key-0123456789";
const NIGHT_KEY: &str = "night-key-9876543210";

/// The model at the other server, as the command line has it.
fn entry(model: &str, server: &RehearsalServer, key: &str) -> String {
    format!("{model}@{}{key}", server.base_url())
}

fn trial(server: &RehearsalServer, chain: &str) -> RunBuilder {
    RunBuilder::against(server).env("NIGHT_KEY", NIGHT_KEY).env("NIGHT_COPY", NIGHT_KEY).args([
        "--output-format",
        "stream-json",
        "--fallback-model",
        chain,
    ])
}

fn keys(server: &RehearsalServer) -> Vec<(String, Option<String>, Option<String>)> {
    let own = |value: Option<&str>| value.map(str::to_owned);
    let keys = |request: &ReceivedRequest| {
        let (key, bearer) = (request.header("x-api-key"), request.header("authorization"));
        (request.model().to_owned(), own(key), own(bearer))
    };
    server.requests().iter().map(keys).collect()
}

/// Neither key is in anything that was printed or kept.
#[track_caller]
fn assert_hidden(ended: &FinishedProcess) {
    let mut kept = ended.stdout.clone() + &ended.stderr;
    let mut folders = vec![ended.config()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                kept += &String::from_utf8_lossy(&std::fs::read(path).expect("a file"));
            }
        }
    }
    for key in [PRIMARY_KEY, NIGHT_KEY] {
        assert!(!kept.contains(key), "{key} is seen in {kept}");
    }
    assert!(kept.contains("model_fallback"), "the journal was looked at");
}

#[tokio::test]
async fn another_service_takes_over_with_its_own_key() {
    let other = Scenario::new()
        .tool("Bash", json!({ "command": "env; echo ${NIGHT_KEY:-unset}" }))
        .usage(1000, 100)
        .reply("Done elsewhere: the key is night-key-9876543210.")
        .usage(1000, 100);
    let (primary, other) = (serve(Scenario::new().status(529).times(3)), serve(other));
    let chain = entry("opus", &other, "#NIGHT_KEY");
    let ended = trial(&primary, &chain).args(["--pass-env=NIGHT_KEY", "Do it."]).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let first = (FIRST.to_owned(), Some(PRIMARY_KEY.to_owned()), None);
    assert_eq!(keys(&primary), vec![first; 3]);
    let second = (SECOND.to_owned(), Some(NIGHT_KEY.to_owned()), None);
    assert_eq!(keys(&other), vec![second; 2]);
    assert_eq!((primary.violations(), other.violations()), (vec![], vec![]));
    let label = entry(SECOND, &other, "#NIGHT_KEY");
    let used: Vec<&String> =
        result["modelUsage"].as_object().expect("it is there").keys().collect();
    assert_eq!(used, [&label]);
    let frames = ended.frames();
    let switch = frames.iter().find(|frame| frame["subtype"] == "model_fallback");
    let switch = switch.expect("it is told");
    assert_eq!([&switch["from_model"], &switch["to_model"]], [&json!(FIRST), &json!(label)]);
    let output = frames.iter().find(|frame| frame["type"] == "user").expect("a tool ran");
    let output = output.to_string();
    assert!(output.contains("unset") && !output.contains("NIGHT_"), "commands see none: {output}");
    assert_hidden(&ended);
}

#[tokio::test]
async fn a_chain_entry_without_a_key_variable_is_called_without_credentials() {
    let left = "anthropic-ratelimit-requests-remaining";
    let (primary, other) = (
        serve(Scenario::new().status(404).header(left, "7")),
        serve(Scenario::new().reply("Done.").header(left, "9")),
    );
    let ended = trial(&primary, &entry("local", &other, "")).args(["Do it."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(keys(&other), [("local".to_owned(), None, None)]);
    let limits = &ended.result()["rate_limits"];
    assert_eq!(limits["windows"][0]["remaining"], 9, "of the service in use last: {limits}");
}

/// Every way to give a bearer token, and a header of the user's.
#[tokio::test]
async fn bearer_tokens_and_headers_are_sent_only_to_their_endpoint() {
    for form in ["text", "object"] {
        let (primary, other) =
            (serve(Scenario::new().status(404)), serve(Scenario::new().reply("Done.")));
        let trial = RunBuilder::against(&primary)
            .env("NIGHT_TOKEN", NIGHT_KEY)
            .env("ANTHROPIC_CUSTOM_HEADERS", "x-team: primary");
        let text = entry("m", &other, "#bearer:NIGHT_TOKEN");
        let object = json!({ "fallbackModel": [{ "model": "m", "baseUrl": other.base_url(),
            "authTokenEnv": "NIGHT_TOKEN", "headers": { "x-title": "night" } }] });
        let ended = match form {
            "text" => trial.args(["--fallback-model", &text, "Do it."]),
            _ => trial.args(["--settings", &object.to_string(), "Do it."]),
        };
        let ended = ended.run().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let bearer = Some(format!("Bearer {NIGHT_KEY}"));
        assert_eq!(keys(&other), [("m".to_owned(), None, bearer)]);
        let request = &other.requests()[0];
        assert_eq!(request.header("x-team"), None, "the primary's headers stay with it");
        assert_eq!(request.header("x-title"), (form == "object").then_some("night"));
        assert_eq!(primary.requests()[0].header("x-team"), Some("primary"));
    }
}

/// The same model at two services is two things: signatures, prices and sums.
#[tokio::test]
async fn one_model_at_two_endpoints_has_separate_costs_and_signatures() {
    let first = Scenario::new()
        .tool("Bash", json!({ "command": "true" }))
        .and_thinking("Only I may read this.")
        .usage(1000, 100)
        .status(529)
        .times(3);
    let (primary, other) = (serve(first), serve(Scenario::new().reply("Done.").usage(1000, 100)));
    let chain = entry("sonnet", &other, "#NIGHT_KEY");
    let price = format!("{}=0/0", entry(FIRST, &other, ""));
    let ended = trial(&primary, &chain)
        .args(["--price", &price, "--max-budget-usd", "1", "Do it."])
        .run()
        .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let usage = &ended.result()["modelUsage"];
    assert_eq!(usage.as_object().map(serde_json::Map::len), Some(2), "{usage}");
    assert_eq!(usage[FIRST]["inputTokens"], 1000);
    assert!(usage[FIRST]["costUSD"].as_f64() > Some(0.0), "{usage}");
    assert_eq!(usage[entry(FIRST, &other, "#NIGHT_KEY")]["costUSD"], 0.0, "{usage}");
    let raw = String::from_utf8_lossy(&other.requests()[0].raw).into_owned();
    assert!(!raw.contains("signature"), "{raw}");
}

/// No request, no session, one line, exit code 2.
#[tokio::test]
async fn an_invalid_model_chain_is_rejected_before_any_request() {
    let (primary, other) = (serve(Scenario::new().reply("Never.")), serve(Scenario::new()));
    let gone = entry("m", &other, "#NO_SUCH_KEY");
    let free = entry("m", &other, "");
    let cases: [(&[&str], &str); 3] = [
        (
            &["--fallback-model", &gone],
            "the variable NO_SUCH_KEY must contain a key, but is not set",
        ),
        (
            &["--fallback-model", &free, "--max-budget-usd=1"],
            "no price is known for the model \"m@http://127.0.0.1:",
        ),
        (&["--fallback-model=opus", "--no-fallback"], "cannot be used together"),
    ];
    for (flags, words) in cases {
        let ended = RunBuilder::against(&primary).args(flags).args(["Do it."]).run().await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        assert!(ended.stderr.contains(words), "{ended:?}");
        assert_eq!(ended.result()["num_turns"], 0);
    }
    assert_eq!((primary.requests().len(), other.requests().len()), (0, 0));
}

/// A rehearsal meets the scripted server and nothing of the real ones.
#[tokio::test]
async fn a_rehearsal_ignores_the_model_chain_of_the_users_settings() {
    let other = serve(Scenario::new().reply("Never."));
    let trial = RunBuilder::bare("http://127.0.0.1:9").args(["rehearse", "hopeless"]);
    let config = trial.work().with_file_name("config");
    std::fs::create_dir(&config).expect("a folder can be made");
    let settings = json!({ "fallbackModel": [format!("m@{}", other.base_url())] });
    std::fs::write(config.join("settings.json"), settings.to_string()).expect("a new file");
    let ended = trial.run().await;
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert_eq!(other.requests().len(), 0);
}

/// A session that was cut off at the other service goes on there, with its sums.
#[tokio::test]
async fn a_resumed_run_continues_at_the_endpoint_that_it_switched_to() {
    let second = Scenario::new()
        .tool("Bash", json!({ "command": "true" }))
        .usage(1000, 100)
        .reply("Too late.")
        .delay(Duration::from_mins(10))
        .reply("Done.")
        .usage(1000, 100);
    let (primary, other) = (serve(Scenario::new().status(404)), serve(second));
    let flags = [
        "--output-format=json".to_owned(),
        "--context-window=opus=50k".to_owned(),
        format!("--fallback-model={}", entry("opus", &other, "#NIGHT_KEY")),
    ];
    let run =
        RunBuilder::against(&primary).env("NIGHT_KEY", NIGHT_KEY).args(&flags).args(["Do it."]);
    let run = run.start();
    with_time_limit("the second turn", other.wait_for_request(2)).await;
    run.signal(Signal::SIGKILL);
    let again = run.end().await.again(&primary.base_url());
    let ended = again.env("NIGHT_KEY", NIGHT_KEY).args(&flags).args(["--continue"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((primary.requests().len(), other.requests().len()), (1, 3));
    let usage = &ended.result()["modelUsage"][entry(SECOND, &other, "#NIGHT_KEY")];
    assert_eq!((&usage["inputTokens"], &usage["contextWindow"]), (&json!(2000), &json!(50_000)));
}
