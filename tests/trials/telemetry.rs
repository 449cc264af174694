//! Export to an OpenTelemetry collector: here a server that keeps what it is sent.

use outlast::rehearsal::Scenario;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::agents::{of_agent, of_root, task};
use crate::support::responder::{Answer, Responder};
use crate::support::wire::dead_end;
use crate::support::{RunBuilder, serve, with_time_limit};

const TOKEN: &str = "collector-token-0123456789";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A collector.
struct Collector(Responder);

impl Collector {
    async fn start() -> Self {
        Self::refusing(&[]).await
    }

    /// A collector that gives these answers first: their status, and their headers.
    async fn refusing(refusals: &[(u16, &'static str)]) -> Self {
        let refusals = refusals.to_vec();
        let answer = move |number: usize, _: &str| {
            let (status, headers) = refusals.get(number - 1).copied().unwrap_or((200, ""));
            Some(Answer::with_headers(status, headers, "{}".to_owned()))
        };
        Self(Responder::start(answer).await)
    }

    /// The bodies that were sent to a path, and that each had the token.
    fn bodies(&self, path: &str) -> Vec<Value> {
        let got = self.0.requests();
        let of_path = got.iter().filter(|request| request.starts_with(&format!("POST {path} ")));
        let body = |request: &String| {
            let (head, body) = request.split_once("\r\n\r\n").expect("it has a body");
            assert!(head.contains(&format!("authorization: Bearer {TOKEN}")), "{head}");
            serde_json::from_str(body).expect("the body is JSON")
        };
        of_path.map(body).collect()
    }

    fn spans(&self) -> Vec<Value> {
        let bodies = self.bodies("/v1/traces");
        let spans = bodies.iter().map(|body| &body["resourceSpans"][0]["scopeSpans"][0]["spans"]);
        spans.filter_map(Value::as_array).flatten().cloned().collect()
    }

    fn metric(&self, name: &str) -> Value {
        let bodies = self.bodies("/v1/metrics");
        let metrics = bodies[0]["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].clone();
        let found = metrics.as_array().and_then(|all| all.iter().find(|one| one["name"] == name));
        found.cloned().unwrap_or_else(|| panic!("{name} is not in {metrics}"))
    }
}

fn attribute(object: &Value, name: &str) -> Value {
    let all = object["attributes"].as_array().expect("attributes are a list");
    let found = all.iter().find(|one| one["key"] == name);
    found.map(|one| one["value"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_run_is_exported_as_one_trace_and_metrics_without_its_texts() {
    let collector = Collector::start().await;
    let server = serve(
        Scenario::new()
            .status(529)
            .header("retry-after", "1")
            .tool("Bash", json!({ "command": "echo a-private-word; exit 3" }))
            .reply("Another private-word."),
    );
    let ended = RunBuilder::against(&server)
        .args(["Say the private-word."])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.0.url)
        .env("OTEL_EXPORTER_OTLP_HEADERS", &format!("authorization=Bearer%20{TOKEN}"))
        .env("OTEL_SERVICE_NAME", "nightly")
        .env("TRACEPARENT", &format!("00-{TRACE}-{CALLER}-01"))
        .run()
        .await;
    let result = ended.result();
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span["traceId"] == TRACE), "{spans:?}");
    let [run] = named(&spans, "invoke_agent outlast")[..] else { panic!("one run: {spans:?}") };
    assert_eq!(run["parentSpanId"], CALLER);
    assert_eq!(run["status"], json!({}));
    let session = attribute(run, "gen_ai.conversation.id");
    assert_eq!(session["stringValue"], result["session_id"]);
    assert_eq!(run["events"][0]["name"], "outlast.recovery");
    let model = attribute(run, "gen_ai.request.model")["stringValue"].clone();
    let chat = format!("chat {}", model.as_str().unwrap_or_default());
    let [overload, first, second] = named(&spans, &chat)[..] else { panic!("three: {spans:?}") };
    assert_eq!(overload["status"]["message"], "server_overload");
    assert_eq!((&first["kind"], &second["status"]), (&json!(3), &json!({})));
    let reasons = attribute(first, "gen_ai.response.finish_reasons");
    assert_eq!(reasons["arrayValue"]["values"][0]["stringValue"], "tool_use");
    let [wait] = named(&spans, "wait server_overload")[..] else { panic!("one: {spans:?}") };
    let [tool] = named(&spans, "execute_tool Bash")[..] else { panic!("one: {spans:?}") };
    assert_eq!(attribute(tool, "error.type")["stringValue"], "tool_error");
    for inner in [overload, wait, first, tool, second] {
        assert_eq!(inner["parentSpanId"], run["spanId"]);
    }
    assert_eq!(spans.len(), 6);
    let tokens = collector.metric("gen_ai.client.token.usage");
    assert_eq!(tokens["histogram"]["dataPoints"][0]["count"], "2");
    let runs = collector.metric("outlast.runs");
    assert_eq!(runs["sum"]["dataPoints"][0]["asDouble"], json!(1.0));
    let all = collector.0.requests().concat();
    assert!(all.contains("nightly") && !all.contains("private-word"), "{all}");
}

#[tokio::test]
async fn a_subagent_has_a_span_and_the_requests_after_it_are_those_of_the_run() {
    let collector = Collector::start().await;
    let mut input = task("look");
    input["model"] = json!("haiku");
    let scenario = Scenario::new()
        .tool("Agent", input)
        .when(of_root())
        .reply("Seen.")
        .when(of_agent("look"))
        .reply("Done.")
        .when(of_root());
    let ended = RunBuilder::against(&serve(scenario))
        .args(["go now"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.0.url)
        .env("OTEL_EXPORTER_OTLP_HEADERS", &format!("authorization=Bearer%20{TOKEN}"))
        .run()
        .await;
    assert_eq!(ended.result()["result"], "Done.");
    let spans = collector.spans();
    let [run] = named(&spans, "invoke_agent outlast")[..] else { panic!("one run: {spans:?}") };
    let [agent] = named(&spans, "invoke_agent general-purpose")[..] else { panic!("{spans:?}") };
    assert_eq!((&agent["parentSpanId"], &agent["status"]), (&run["spanId"], &json!({})));
    assert_eq!(attribute(agent, "gen_ai.agent.id")["stringValue"], "a1");
    let model = attribute(run, "gen_ai.request.model")["stringValue"].clone();
    assert!(!model.to_string().contains("haiku"), "{model}");
    let chat = format!("chat {}", model.as_str().unwrap_or_default());
    let mut names: Vec<_> = spans.iter().filter_map(|span| span["name"].as_str()).collect();
    names.sort_unstable();
    let of_run = "invoke_agent outlast";
    let of_agent = "invoke_agent general-purpose";
    assert_eq!(names, [&chat, &chat, "execute_tool Agent", of_agent, of_run]);
}

fn named<'a>(spans: &'a [Value], name: &str) -> Vec<&'a Value> {
    spans.iter().filter(|span| span["name"] == name).collect()
}

#[tokio::test]
async fn a_collector_that_cannot_be_reached_or_hangs_changes_nothing_but_a_warning() {
    let (_reserved, nowhere) = dead_end();
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let silent = (silent.local_addr().expect("it is bound"), silent);
    for (address, why) in [(nowhere, "cannot be reached"), (silent.0, "within 2s 500ms")] {
        let server = serve(Scenario::new().reply("Done."));
        let run = RunBuilder::against(&server)
            .args(["go now"])
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{address}"))
            .run();
        let ended = with_time_limit("the end of the run", run).await;
        assert_eq!(ended.result()["result"], "Done.");
        assert!(ended.stderr.contains("telemetry was not exported"), "{}", ended.stderr);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn an_overloaded_collector_is_asked_again_and_one_that_refuses_is_not() {
    const BUSY: (u16, &str) = (503, "");
    let traces = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    for (refusals, attempts, warned) in [
        (&[BUSY][..], 2..=2, None),
        (&[(429, "retry-after: 1\r\n")], 2..=2, None),
        (&[(503, "retry-after: 3600\r\n")], 1..=1, Some("status 503")),
        (&[(400, "")], 1..=1, Some("status 400")),
        (&[BUSY; 9], 2..=4, Some("telemetry was not exported")),
    ] {
        let collector = Collector::refusing(refusals).await;
        let server = serve(Scenario::new().reply("Done."));
        let ended = RunBuilder::against(&server)
            .args(["go now"])
            .env(traces, &format!("{}/v1/traces", collector.0.url))
            .env("OTEL_EXPORTER_OTLP_HEADERS", &format!("authorization=Bearer%20{TOKEN}"))
            .run()
            .await;
        assert_eq!(ended.result()["result"], "Done.");
        let sent = collector.bodies("/v1/traces").len();
        assert!(attempts.contains(&sent), "{sent}: {refusals:?}");
        let told = ended.stderr.contains("telemetry was not exported");
        assert_eq!(told, warned.is_some(), "{refusals:?}: {}", ended.stderr);
        assert!(warned.is_none_or(|why| ended.stderr.contains(why)), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn what_is_not_supported_is_named_and_nothing_is_exported_unasked() {
    let server = serve(Scenario::new().reply("Done.").reply("Done."));
    let grpc = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    ];
    let run = RunBuilder::against(&server).args(["go now"]);
    let ended = grpc.into_iter().fold(run, |run, (name, value)| run.env(name, value)).run().await;
    let warnings = ended.result()["warnings"].to_string();
    assert!(warnings.contains("grpc") && warnings.contains("http/json"), "{warnings}");
    let ended = RunBuilder::against(&server).args(["go now"]).run().await;
    assert_eq!((ended.stderr.as_str(), &ended.result()["warnings"]), ("", &json!([])));
}
