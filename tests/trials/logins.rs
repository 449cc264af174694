//! Trials of credentials that change while a run works.

use std::path::Path;

use outlast::rehearsal::{
    FaultPosition, ReceivedRequest, RehearsalServer, Scenario, ScriptedError, ScriptedFaultKind,
    ServerRules, TokenRules,
};
use serde_json::{Value, json};

use super::spending::{CROWDED, crowding, summaries};
use super::timeouts::hasty;
use crate::support::tokens::{read_login, write_login};
use crate::support::{FinishedProcess, RunBuilder, serve};

fn bearers(server: &RehearsalServer) -> Vec<String> {
    let bearer = |request: &ReceivedRequest| {
        let value = request.header("authorization").unwrap_or_default();
        value.strip_prefix("Bearer ").unwrap_or(value).to_owned()
    };
    server.requests().iter().map(bearer).collect()
}

/// A server whose tokens are good for so many requests each.
fn leasing(scenario: Scenario, rules: TokenRules) -> RehearsalServer {
    serve(scenario.rules(ServerRules { tokens: Some(rules), ..ServerRules::default() }))
}

fn leases(requests: u64) -> TokenRules {
    TokenRules {
        expire_token_after: Some(requests),
        ..TokenRules::new("secret-access", "secret-refresh")
    }
}

/// A login for that server, whose first token still looks good.
fn login(server: &RehearsalServer) -> Value {
    json!({ "claudeAiOauth": {
        "accessToken": "secret-access",
        "refreshToken": "secret-refresh",
        "expiresAt": 0,
        "tokenEndpoint": format!("{}/oauth/token", server.base_url()),
        "clientId": "outlast-tests",
    } })
}

/// A run with that login and no other credential.
fn logged_in(server: &RehearsalServer) -> RunBuilder {
    let trial = hasty(server).env("ANTHROPIC_API_KEY", "").args(["--output-format=stream-json"]);
    write_login(&trial.work().with_file_name("config"), &login(server));
    trial
}

/// Everything that was printed and kept, but for the login itself.
fn traces(ended: &FinishedProcess) -> String {
    fn read(folder: &Path, into: &mut String) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                read(&path, into);
            } else if entry.file_name() != ".credentials.json" {
                into.push_str(&String::from_utf8_lossy(&std::fs::read(path).expect("a file")));
            }
        }
    }
    let mut traces = ended.stdout.clone() + &ended.stderr;
    read(&ended.config(), &mut traces);
    traces
}

fn turn() -> Value {
    json!({ "command": "echo turn >> work" })
}

/// Every token is used up to its last request, and no turn is lost or done twice.
#[tokio::test]
async fn a_login_is_refreshed_whenever_its_token_expires() {
    let scenario = (0..5).fold(Scenario::new(), |scenario, _| scenario.tool("Bash", turn()));
    let server = leasing(scenario.reply("Done."), leases(2));
    let ended = logged_in(&server).args(["Do it."]).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (first, second, third) = ("secret-access", "secret-access.1", "secret-access.2");
    let sent = [first, first, first, second, second, second, third, third];
    assert_eq!(bearers(&server), sent, "{ended:?}");
    assert_eq!((server.grants().asked, server.grants().granted), (2, 2));
    assert_eq!(result["recovery"]["strategies"], json!({ "refresh_credentials": 2 }), "{result}");
    let work = std::fs::read_to_string(ended.work().join("work"));
    assert_eq!(work.expect("the tools ran"), "turn\n".repeat(5));
    assert_eq!(read_login(&ended.config())["claudeAiOauth"]["refreshToken"], "secret-refresh.2");
    let traces = traces(&ended);
    assert!(traces.contains("refresh_credentials"), "the journal was looked at");
    assert!(!traces.contains("secret-"), "{traces}");
}

/// An endpoint that is down for a moment is a wait like any other.
#[tokio::test]
async fn a_token_endpoint_outage_is_waited_out() {
    let rules = TokenRules { failing_refreshes: 2, ..leases(1) };
    let server = leasing(Scenario::new().tool("Bash", turn()).reply("Done."), rules);
    let ended = logged_in(&server).args(["Do it."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((server.grants().asked, server.grants().granted), (3, 1));
    assert_eq!(bearers(&server), ["secret-access", "secret-access", "secret-access.1"]);
    assert_eq!(ended.result()["recovery"]["retries_by_class"]["server_error"], 2, "{ended:?}");
}

/// And when it stays down, another provider's key is none of its business.
#[tokio::test]
async fn a_login_that_cannot_be_refreshed_switches_provider_without_leaking() {
    let rules = TokenRules { failing_refreshes: u64::MAX, ..leases(1) };
    let server = leasing(Scenario::new().tool("Bash", turn()), rules);
    let other = serve(Scenario::new().reply("Done."));
    let label = format!("model-b@{}#NIGHT_KEY", other.base_url());
    let trial = logged_in(&server).env("NIGHT_KEY", "night-key-9876543210");
    let flags = ["--max-retries=1", "--fallback-model", &label, "Do it."];
    let ended = trial.args(flags).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let request = other.requests().remove(0);
    assert_eq!(request.header("x-api-key"), Some("night-key-9876543210"));
    assert!(request.headers.iter().all(|(_, value)| !value.contains("secret-")), "{request:?}");
    assert_eq!(ended.result()["recovery"]["strategies"]["model_fallback"], 1);
}

/// The limits of a subscription last for hours, so another account is asked at once, and only for
/// want of one is the end of the limit told.
#[tokio::test]
async fn an_exhausted_subscription_switches_to_another_account_at_once() {
    for chain in [true, false] {
        let server = serve(Scenario::new().status(429).header("retry-after", "30"));
        let other = serve(Scenario::new().reply("Done."));
        let trial = hasty(&server).env("ANTHROPIC_API_KEY", "").args(["--output-format=json"]);
        let mut file = login(&server);
        file["claudeAiOauth"]["subscriptionType"] = json!("max");
        write_login(&trial.work().with_file_name("config"), &file);
        let label = format!("model-b@{}", other.base_url());
        let flags: &[&str] = if chain { &["--fallback-model", &label] } else { &[] };
        let ended = trial.args(flags).args(["Do it."]).run().await;
        let result = ended.result();
        assert_eq!(ended.code, Some(if chain { 0 } else { 75 }), "{ended:?}");
        assert_eq!(result["recovery"]["waited_ms"], 0, "{result}");
        assert_eq!(result["retry_at"].is_string(), !chain, "{result}");
        assert_eq!((server.requests().len(), other.requests().len()), (1, usize::from(chain)));
        let told = other.requests().into_iter().flat_map(|request| request.headers);
        assert!(told.into_iter().all(|(_, value)| !value.contains("secret-")), "the login stays");
    }
}

/// A helper whose answer changes between two requests, as keys that are rotated do.
fn rotating(trial: RunBuilder) -> RunBuilder {
    std::fs::write(trial.work().join("key"), "first-key-1111111111").expect("a file");
    trial.args(["--api-key-helper", "cat key"]).env("ANTHROPIC_API_KEY", "")
}

fn keys(server: &RehearsalServer) -> Vec<String> {
    let key =
        |request: &ReceivedRequest| request.header("x-api-key").unwrap_or_default().to_owned();
    server.requests().iter().map(key).collect()
}

const OLD: &str = "first-key-1111111111";
const NEW: &str = "second-key-2222222222";

/// Replaces the key atomically, as a user would.
fn replace() -> Value {
    json!({ "command": format!("printf {NEW} > key; echo replaced") })
}

#[tokio::test]
async fn a_rotated_key_is_fetched_when_the_old_one_is_rejected() {
    let server = serve(
        Scenario::new().tool("Bash", replace()).status(401).tool("Bash", turn()).reply("Done."),
    );
    let ended = rotating(RunBuilder::against(&server)).args(["Do it."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(keys(&server), [OLD, OLD, NEW, NEW]);
    assert_eq!(ended.result()["recovery"]["strategies"], json!({ "refresh_credentials": 1 }));
    let config = traces(&ended);
    assert!(!config.contains(OLD), "{config}");
}

/// Once is enough to know: the second rejection in a row is final, of whatever key.
#[tokio::test]
async fn a_key_that_is_rejected_again_is_final() {
    let same = serve(Scenario::new().status(401).times(2));
    let ended = rotating(RunBuilder::against(&same)).args(["Do it."]).run().await;
    assert_eq!((ended.code, keys(&same).len()), (Some(77), 2), "the helper vouched: {ended:?}");
    let another = serve(Scenario::new().tool("Bash", replace()).status(401).times(2));
    let ended = rotating(RunBuilder::against(&another)).args(["Do it."]).run().await;
    assert_eq!(
        (ended.code, keys(&another)),
        (Some(77), [OLD, OLD, NEW].map(str::to_owned).to_vec())
    );
    assert_eq!(ended.result()["api_error_class"], "invalid_api_key");
}

/// Whatever was being done comes back when there is a key again.
#[tokio::test]
async fn a_summary_with_a_rejected_key_is_retried_and_used() {
    let rejected = ScriptedError {
        kind: "authentication_error".to_owned(),
        message: "invalid x-api-key".to_owned(),
        code: None,
    };
    let refused = Scenario::new().status(401);
    let within_a_stream =
        Scenario::new().interrupted(ScriptedFaultKind::Error(rejected), FaultPosition::Events(0));
    for refusal in [refused, within_a_stream] {
        let server = serve(
            crowding(replace()).compactions(refusal.reply("What was done so far.").usage(100, 10)),
        );
        let ended =
            rotating(RunBuilder::against(&server)).args(CROWDED).args(["Do it."]).run().await;
        let result = ended.result();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(server.violations(), [""; 0]);
        assert_eq!(summaries(&server), [false, false, true, true, false]);
        assert_eq!(keys(&server), [OLD, OLD, OLD, NEW, NEW]);
        let strategies = json!({ "auto_compact": 1, "refresh_credentials": 1 });
        assert_eq!(result["recovery"]["strategies"], strategies);
        let last = String::from_utf8_lossy(&server.requests()[4].raw).into_owned();
        assert!(last.contains("What was done so far."), "{last}");
    }
}
