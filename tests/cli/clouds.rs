//! Runs whose models are at a cloud: the same run through each door, identities, and the chain.

use std::fs;

use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario, ServerRules};
use serde_json::{Value, json};

use crate::support::responder::Responder;
use crate::support::{FinishedProcess, RunBuilder, serve, with_time_limit};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYsecret0001";
const TOKEN: &str = "ya29.token-of-a-cloud-0001";

fn hello() -> Scenario {
    Scenario::new().reply("Hello.").after(AfterLast::RepeatLast)
}

/// A server that accepts only this bearer token or key.
fn accepting(key: &str) -> RehearsalServer {
    let rules = ServerRules { require_key: Some(key.to_owned()), ..ServerRules::default() };
    serve(hello().rules(rules))
}

/// A run at no address of the Messages API.
fn at_cloud() -> RunBuilder {
    RunBuilder::at("http://127.0.0.1:1")
        .env("ANTHROPIC_API_KEY", "key-of-the-messages-api-0001")
        .args(["--model", "claude-opus-5-5", "say hello"])
}

fn bedrock(url: &str) -> RunBuilder {
    at_cloud()
        .env("CLAUDE_CODE_USE_BEDROCK", "1")
        .env("AWS_REGION", "us-east-1")
        .env("ANTHROPIC_BEDROCK_BASE_URL", url)
}

fn with_keys(run: RunBuilder) -> RunBuilder {
    run.env("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE").env("AWS_SECRET_ACCESS_KEY", SECRET)
}

fn vertex(url: &str) -> RunBuilder {
    at_cloud()
        .env("CLAUDE_CODE_USE_VERTEX", "true")
        .env("CLOUD_ML_REGION", "global")
        .env("ANTHROPIC_VERTEX_PROJECT_ID", "p-1")
        .env("ANTHROPIC_VERTEX_BASE_URL", &format!("{url}/v1"))
}

fn foundry(url: &str) -> RunBuilder {
    at_cloud()
        .env("CLAUDE_CODE_USE_FOUNDRY", "1")
        .env("ANTHROPIC_FOUNDRY_BASE_URL", &format!("{url}/anthropic"))
}

async fn end(run: RunBuilder) -> FinishedProcess {
    with_time_limit("a run at a cloud", run.run()).await
}

/// Google credentials of a user, renewed at `url`.
fn google_file(run: &RunBuilder, url: &str) -> String {
    let path = run.work().join("google.json");
    let value = json!({
        "type": "authorized_user", "client_id": "c", "client_secret": "client-secret-0001",
        "refresh_token": "refresh-token-0001", "token_uri": format!("{url}/token"),
    });
    fs::write(&path, value.to_string()).expect("writable");
    path.display().to_string()
}

async fn google_tokens() -> Responder {
    Responder::start(|_, _| {
        Some((200, json!({ "access_token": TOKEN, "expires_in": 3600 }).to_string()))
    })
    .await
}

fn assert_untold(ended: &FinishedProcess) {
    for text in [&ended.stdout, &ended.stderr] {
        for secret in [SECRET, TOKEN, "refresh-token-0001", "client-secret-0001", "session-0001"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

fn only_request(server: &RehearsalServer) -> (String, Value) {
    let requests = server.requests();
    assert_eq!((requests.len(), server.violations()), (1, vec![]));
    (requests[0].path.clone(), requests[0].body.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_prompt_runs_the_same_way_through_four_doors() {
    let plain = serve(hello());
    let direct = RunBuilder::against(&plain).args(["--model", "claude-opus-5-5", "say hello"]);
    let expected = end(direct).await.result();
    let (_, expected_body) = only_request(&plain);

    let tokens = google_tokens().await;
    let (one, two, three) = (serve(hello()), accepting(TOKEN), accepting("foundry-key-0001"));
    let at_vertex = vertex(&two.base_url());
    let file = google_file(&at_vertex, &tokens.url);
    let runs = [
        (with_keys(bedrock(&one.base_url())), &one, 1.1),
        (at_vertex.env("GOOGLE_APPLICATION_CREDENTIALS", &file), &two, 1.0),
        (
            foundry(&three.base_url()).env("ANTHROPIC_FOUNDRY_API_KEY", "foundry-key-0001"),
            &three,
            1.0,
        ),
    ];
    let paths = [
        "/model/us.anthropic.claude-opus-5-5/invoke-with-response-stream",
        "/v1/projects/p-1/locations/global/publishers/anthropic/models/claude-opus-5-5:streamRawPredict",
        "/anthropic/v1/messages",
    ];
    for ((run, server, percent), path) in runs.into_iter().zip(paths) {
        let ended = end(run).await;
        let result = ended.result();
        assert_eq!((ended.code, &result["result"]), (Some(0), &expected["result"]), "{ended:?}");
        assert_eq!(result["usage"]["output_tokens"], expected["usage"]["output_tokens"]);
        let tokens = |name: &str| result["usage"][name].as_f64().expect("a count");
        let list_price = 4.0 * tokens("input_tokens")
            + 20.0 * tokens("output_tokens")
            + 5.0 * tokens("cache_creation_input_tokens")
            + 0.2 * tokens("cache_read_input_tokens");
        let cost = result["total_cost_usd"].as_f64().expect("a cost");
        let share = cost * 1e6 / list_price;
        assert!((share - percent).abs() < 1e-6, "{path}: {share} of the list price");
        let (found, mut body) = only_request(server);
        assert_eq!(found, path);
        body["model"] = expected_body["model"].clone();
        assert_eq!(body["messages"], expected_body["messages"]);
        let tools = |body: &Value| {
            let all = body["tools"].as_array().cloned().unwrap_or_default().into_iter();
            all.filter(|tool| tool["name"] != "WebSearch").collect::<Vec<_>>()
        };
        assert_eq!(tools(&body), tools(&expected_body));
        let searches = body["tools"].to_string().contains("\"WebSearch\"");
        assert_eq!(searches, !path.starts_with("/model/"), "Bedrock has no search");
        assert_eq!(body["max_tokens"], expected_body["max_tokens"]);
        let request = &server.requests()[0];
        let sent: Vec<&str> = request.headers.iter().map(|(_, value)| value.as_str()).collect();
        assert!(!sent.iter().any(|value| value.contains("key-of-the-messages-api")), "{sent:?}");
        assert_untold(&ended);
    }
    assert!(
        one.requests()[0].header("authorization").is_some_and(|value| value
            .starts_with("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/")
            && value.contains("/us-east-1/bedrock/aws4_request")),
        "{:?}",
        one.requests()
    );
}

/// Each cloud in the chain gets its own credentials and no other.
#[tokio::test(flavor = "multi_thread")]
async fn the_chain_goes_on_at_another_cloud_with_the_money_right() {
    let down = serve(Scenario::new().status(529).after(AfterLast::RepeatLast));
    let (tokens, up) = (google_tokens().await, accepting(TOKEN));
    let run = with_keys(bedrock(&down.base_url()))
        .env("ANTHROPIC_VERTEX_BASE_URL", &format!("{}/v1", up.base_url()))
        .args(["--fallback-model", "haiku@vertex:europe-west1/p-2"])
        .args(["--output-format", "json"]);
    let file = google_file(&run, &tokens.url);
    let ended = end(run.env("GOOGLE_APPLICATION_CREDENTIALS", &file)).await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let label = "claude-haiku-5-5@vertex:europe-west1/p-2";
    assert!(ended.stderr.contains(&format!("switched from claude-opus-5-5 to {label}")));
    let usage = &result["modelUsage"][label];
    let input = usage["inputTokens"].as_f64().expect("a count");
    let output = usage["outputTokens"].as_f64().expect("a count");
    let written = usage["cacheCreationInputTokens"].as_f64().expect("a count");
    let read = usage["cacheReadInputTokens"].as_f64().expect("a count");
    // A short prompt, and a tenth more outside of the global endpoint.
    let price = 1.1e-6 * (0.1 * input + 0.5 * output + 0.125 * written + 0.01 * read);
    let cost = result["total_cost_usd"].as_f64().expect("a cost");
    assert!((cost - price).abs() < 1e-9, "{cost} is not {price}: {result}");
    assert!(down.requests().iter().all(|request| {
        request.header("authorization").is_some_and(|value| value.starts_with("AWS4-"))
    }));
    assert_untold(&ended);
}

fn sts_answer(number: usize) -> String {
    format!(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
         <AccessKeyId>ASIA{number:016}</AccessKeyId><SecretAccessKey>{SECRET}{number}\
         </SecretAccessKey><SessionToken>session-0001-{number}</SessionToken>\
         <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>\
         </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_identity_that_expires_in_mid_run_is_exchanged_once_more() {
    let sts = Responder::start(|number, _| Some((200, sts_answer(number)))).await;
    let expired = json!({ "message": "The security token included in the request is expired" });
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "echo one" }))
        .status(403)
        .body("application/json", &expired.to_string())
        .reply("Still here.");
    let server = serve(scenario);
    let run = bedrock(&server.base_url())
        .env("AWS_ENDPOINT_URL_STS", &sts.url)
        .env("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/ci");
    let file = run.work().join("token");
    fs::write(&file, "oidc-token-0001").expect("writable");
    let run = run.env("AWS_WEB_IDENTITY_TOKEN_FILE", &file.display().to_string());
    let config = run.config();
    let ended = end(run.args(["--max-turns", "5"])).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(sts.requests()[0].contains("WebIdentityToken=oidc-token-0001"));
    let ids: Vec<_> = server
        .requests()
        .into_iter()
        .filter_map(|request| request.header("x-amz-security-token").map(str::to_owned))
        .collect();
    assert_eq!(ids, ["session-0001-1", "session-0001-1", "session-0001-2"]);
    let shared: Vec<_> = fs::read_dir(config.join("cloud-tokens")).expect("it is there").collect();
    assert_eq!(shared.len(), 2, "a token and its lock");
    assert_untold(&ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runs_of_a_host_exchange_an_identity_once() {
    let (tokens, server) = (google_tokens().await, accepting(TOKEN));
    let first = vertex(&server.base_url());
    let file = google_file(&first, &tokens.url);
    let config = first.config().display().to_string();
    let more = (0..3).map(|_| vertex(&server.base_url()).env("OUTLAST_CONFIG_DIR", &config));
    let runs: Vec<_> = [first]
        .into_iter()
        .chain(more)
        .map(|run| tokio::spawn(end(run.env("GOOGLE_APPLICATION_CREDENTIALS", &file))))
        .collect();
    // The folder of the first one holds the file that all of them read.
    let mut ended = Vec::new();
    for run in runs {
        ended.push(run.await.expect("no run panics"));
    }
    for run in &ended {
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    assert_eq!((tokens.requests().len(), server.requests().len()), (1, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metadata_server_that_hangs_ends_the_run_with_its_name() {
    let hung = Responder::start(|_, _| None::<(u16, String)>).await;
    let server = serve(hello());
    let run = bedrock(&server.base_url())
        .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &hung.url)
        .args(["--max-retries", "0"]);
    let ended = end(run).await;
    assert_ne!(ended.code, Some(0));
    assert!(ended.stdout.contains("EC2 metadata server"), "{ended:?}");
    assert_eq!((server.requests().len(), hung.requests().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn contradictions_and_gaps_end_before_anything_is_sent() {
    let server = serve(hello());
    let url = server.base_url();
    let cases = [
        (bedrock(&url).env("CLAUDE_CODE_USE_VERTEX", "1"), 2, "CLAUDE_CODE_USE_VERTEX"),
        (bedrock(&url).without("AWS_REGION"), 2, "AWS_REGION"),
        (vertex(&url).without("CLOUD_ML_REGION"), 2, "CLOUD_ML_REGION"),
        (vertex(&url).without("ANTHROPIC_VERTEX_PROJECT_ID"), 2, "ANTHROPIC_VERTEX_PROJECT_ID"),
        (foundry(&url).env("ANTHROPIC_FOUNDRY_RESOURCE", "r"), 2, "contradict"),
        (at_cloud().args(["--fallback-model", "opus@bedrock:us/x"]), 2, "bedrock:REGION"),
        (bedrock(&url).env("AWS_PROFILE", "nowhere"), 77, "nowhere"),
        (vertex(&url).env("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json"), 77, "GOOGLE_"),
    ];
    for (run, code, word) in cases {
        let ended = end(run).await;
        assert_eq!(ended.code, Some(code), "{word}: {ended:?}");
        assert!(ended.stdout.contains(word) || ended.stderr.contains(word), "{word}: {ended:?}");
    }
    assert_eq!(server.requests().len(), 0);
}
