//! Trials.
//! The final result states what happened, once.

use std::net::SocketAddr;

use jiff::Timestamp;
use outlast::rehearsal::{AfterLast, FaultPosition, RehearsalServer, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::support::wire::dead_end;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// The service of a run.
enum Service {
    Scripted(RehearsalServer),
    Elsewhere(String),
    Nowhere((TcpSocket, SocketAddr)),
}

impl Service {
    fn url(&self) -> String {
        match self {
            Self::Scripted(server) => server.base_url(),
            Self::Elsewhere(url) => url.clone(),
            Self::Nowhere((_reserved, address)) => format!("http://{address}"),
        }
    }
}

/// A way to fail, and what must come of it.
struct Failure {
    name: &'static str,
    service: fn() -> Service,
    code: i32,
    reason: &'static str,
    class: &'static str,
    status: Option<u16>,
    /// With `--max-retries 2`.
    requests: usize,
    /// The explanation on standard error.
    says: &'static str,
}

fn for_ever(scenario: Scenario) -> Service {
    Service::Scripted(serve(scenario.after(AfterLast::RepeatLast)))
}

fn unreachable_service() -> Service {
    Service::Nowhere(dead_end())
}

fn quota() -> Service {
    let reset = |scenario: Scenario, name, value| {
        scenario.header(&format!("anthropic-ratelimit-unified-{name}"), value)
    };
    let scenario = Scenario::new().status(429);
    let scenario = reset(scenario, "representative-claim", "five_hour");
    for_ever(reset(scenario, "reset", "${unix+5h}"))
}

fn missing_model() -> Service {
    let message = "model: no-such-model";
    for_ever(Scenario::new().status(404).error("not_found_error", message, None))
}

fn web_page() -> Service {
    let page = "<html><head><title>Sign in</title></head></html>";
    for_ever(Scenario::new().status(200).body("text/html", page))
}

/// One of the service's own statuses, for ever.
const fn of_status(
    name: &'static str,
    service: fn() -> Service,
    status: u16,
    code: i32,
    (class, requests, says): (&'static str, usize, &'static str),
) -> Failure {
    let status = Some(status);
    Failure { name, service, code, reason: "model_error", class, status, requests, says }
}

/// Nothing with a status of its own came back.
const fn of_class(
    name: &'static str,
    service: fn() -> Service,
    code: i32,
    (class, requests, says): (&'static str, usize, &'static str),
) -> Failure {
    Failure { name, service, code, reason: "model_error", class, status: None, requests, says }
}

const FAILURES: [Failure; 15] = [
    of_status(
        "401",
        || for_ever(Scenario::new().status(401)),
        401,
        77,
        ("invalid_api_key", 1, "rejected the credential"),
    ),
    of_status(
        "403",
        || for_ever(Scenario::new().status(403)),
        403,
        77,
        ("auth_error", 1, "may not do this"),
    ),
    of_status("404 model", missing_model, 404, 1, ("invalid_model", 1, "does not know this model")),
    of_status("429 quota", quota, 429, 75, ("quota_exhausted", 1, "the quota is used up")),
    of_status(
        "429 short",
        || for_ever(Scenario::new().status(429).header("retry-after", "2")),
        429,
        75,
        ("rate_limit", 3, "asks too often"),
    ),
    of_status(
        "500",
        || for_ever(Scenario::new().status(500)),
        500,
        75,
        ("server_error", 3, "the service failed"),
    ),
    of_status(
        "529",
        || for_ever(Scenario::new().status(529)),
        529,
        75,
        ("repeated_529", 3, "overloaded"),
    ),
    of_class(
        "unknown host",
        || Service::Elsewhere("http://no-such-host.invalid".to_owned()),
        75,
        ("connection_error", 0, "could not be reached"),
    ),
    of_class("refused", unreachable_service, 75, ("connection_error", 0, "could not be reached")),
    of_class(
        "TLS",
        || Service::Elsewhere(plain_server_as_https()),
        1,
        ("ssl_cert_error", 0, "speaks no TLS"),
    ),
    of_class(
        "reset midway",
        || {
            for_ever(
                Scenario::new().interrupted(ScriptedFaultKind::Reset, FaultPosition::Events(4)),
            )
        },
        75,
        ("connection_error", 3, "broke the connection"),
    ),
    of_class("HTML", web_page, 75, ("server_error", 3, "the service failed")),
    Failure {
        name: "empty",
        service: || for_ever(Scenario::new().empty()),
        code: 8,
        reason: "empty_response",
        class: "empty_response",
        status: None,
        requests: 4,
        says: "answering nothing",
    },
    Failure {
        name: "refusal",
        service: || for_ever(Scenario::new().reply("I will not.").stop_reason("refusal")),
        code: 1,
        reason: "refusal",
        class: "refusal",
        status: None,
        requests: 1,
        says: "declined",
    },
    Failure {
        name: "too long",
        service: || {
            let message = "prompt is too long: 300000 tokens > 200000 maximum";
            for_ever(Scenario::new().status(400).error("invalid_request_error", message, None))
        },
        code: 7,
        reason: "prompt_too_long",
        class: "prompt_too_long",
        status: Some(400),
        // A request that small is called too long by mistake, so it is sent once more.
        requests: 2,
        says: "does not fit",
    },
];

/// A server without TLS, at an address that promises some. It lives as long as the test.
fn plain_server_as_https() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        use std::io::Write;
        for mut socket in listener.incoming().flatten() {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
        }
    });
    format!("https://{address}")
}

impl Failure {
    async fn in_format(&self, format: &str) {
        let service = (self.service)();
        let flags = ["do it", "--max-retries", "2", "--time-scale", "200", "--result-file"];
        let patience = ["--connect-timeout", "1h", "--first-byte-timeout", "1h"];
        let trial = RunBuilder::at(&service.url()).args(flags).args(["result.json"]).args(patience);
        let ended = trial.args(["--output-format", format]).run().await;
        let at = format!("{} as {format}: {ended:?}", self.name);
        let kept = std::fs::read_to_string(ended.work().join("result.json")).expect(&at);
        let result: Value = serde_json::from_str(&kept).expect(&at);
        self.is_told_by(&result, &at);
        assert_eq!(ended.code, Some(self.code), "{at}");
        if format == "text" {
            assert_eq!(ended.stdout, "", "{at}");
        } else {
            assert_eq!(ended.result(), result, "{at}");
        }
        self.is_told_to_people(&ended, &result, &at);
        if let Service::Scripted(server) = service {
            assert_eq!(server.requests().len(), self.requests, "{at}");
        }
    }

    fn is_told_by(&self, result: &Value, at: &str) {
        assert_eq!(result["type"], "result", "{at}");
        assert_eq!(result["subtype"], "error_during_execution", "{at}");
        assert_eq!(result["is_error"], true, "{at}");
        assert_eq!(result["exit_code"], self.code, "{at}");
        assert_eq!(result["terminal_reason"], self.reason, "{at}");
        assert_eq!(result["api_error_class"], self.class, "{at}");
        assert_eq!(result["api_error_status"], json!(self.status), "{at}");
        assert_eq!(result["retryable"], self.code == 75, "{at}");
        assert!(result["request_id"].is_string() || self.status.is_none(), "{at}");
        assert_eq!(result.get("result"), None, "no answer beside an error: {at}");
        let retry_at = result["retry_at"].as_str().map(|at| at.parse::<Timestamp>().expect(at));
        assert_eq!(retry_at.is_some(), self.name.starts_with("429"), "{at}");
    }

    /// One line says why; the others are about waits, or about going on.
    fn is_told_to_people(&self, ended: &FinishedProcess, result: &Value, at: &str) {
        let is_why = |line: &&str| {
            !line.starts_with("outlast: waiting ") && !line.starts_with("outlast: to go on ")
        };
        let why: Vec<&str> = ended.stderr.lines().filter(is_why).collect();
        let error = result["errors"][0].as_str().expect(at);
        assert_eq!(why, [format!("outlast: {error}")], "{at}");
        assert!(error.contains(self.says), "{at}");
    }
}

#[tokio::test]
async fn no_failure_looks_like_success_in_text() {
    for failure in &FAILURES {
        failure.in_format("text").await;
    }
}

#[tokio::test]
async fn no_failure_looks_like_success_in_json() {
    for failure in &FAILURES {
        failure.in_format("json").await;
    }
}

#[tokio::test]
async fn no_failure_looks_like_success_in_a_stream() {
    for failure in &FAILURES {
        failure.in_format("stream-json").await;
    }
}

/// Exit code 0, `success` and no error are the same thing.
#[track_caller]
pub(super) fn agrees(ended: &FinishedProcess) -> Value {
    let result = ended.result();
    let succeeded = ended.code == Some(0);
    assert_eq!(result["subtype"] == "success", succeeded, "{ended:?}");
    assert_eq!(result["is_error"], !succeeded, "{ended:?}");
    assert_eq!(result["terminal_reason"] == "completed", succeeded, "{ended:?}");
    assert_eq!(result["result"].is_string(), succeeded, "{ended:?}");
    assert_eq!(result["errors"].is_array(), !succeeded, "{ended:?}");
    result
}

#[tokio::test]
async fn a_recovered_failure_is_not_reported_as_final() {
    let server = serve(Scenario::new().status(529).times(2).reply("Done."));
    let trial = RunBuilder::against(&server).args(["do it", "--output-format", "stream-json"]);
    let ended = trial.args(["--time-scale", "100"]).run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(0));
    assert_eq!(result["recovery"]["retries"], 2);
    assert_eq!(result["recovery"]["requests"], 3);
    assert_eq!(result["recovery"]["retries_by_class"], json!({ "server_overload": 2 }));
    for gone in ["api_error_class", "api_error_status", "request_id", "retry_at"] {
        assert_eq!(result[gone], Value::Null, "{gone}");
    }
    // On a busy machine a wait can be long enough for a heartbeat.
    let mut frames = ended.frames();
    frames.retain(|frame| frame["subtype"] != "heartbeat");
    let kinds: Vec<_> = frames.iter().map(|frame| (&frame["type"], &frame["subtype"])).collect();
    let system = |subtype| (json!("system"), json!(subtype));
    let expected = [
        system("init"),
        system("api_retry"),
        system("api_retry"),
        (json!("assistant"), json!(null)),
        system("recovery_end"),
    ];
    let expected: Vec<_> = expected.iter().map(|(kind, subtype)| (kind, subtype)).collect();
    assert_eq!(kinds[..kinds.len() - 1], expected);
    for (nth, frame) in (1..).zip(&frames[1..3]) {
        assert_eq!(frame["attempt"], nth);
        assert_eq!(frame["error_class"], "server_overload");
        assert_eq!(frame["error_status"], 529);
        assert!(frame["request_id"].is_string(), "{frame}");
    }
    let errors = frames.iter().filter(|frame| frame["is_error"] == true).count();
    assert_eq!(errors, 0, "{ended:?}");
}

#[tokio::test]
async fn a_final_error_says_what_failed_when_and_how_to_resume() {
    let server = serve(Scenario::new().status(429).header("retry-after", "3600"));
    let ended = RunBuilder::against(&server).args(["do it"]).run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(75));
    assert_eq!(result["api_error_class"], "quota_exhausted");
    assert_eq!(result["api_error_status"], 429);
    assert_eq!(result["retryable"], true);
    assert!(result["request_id"].as_str().is_some_and(|id| ended.stderr.contains(id)), "{ended:?}");
    let retry_at: Timestamp = result["retry_at"].as_str().expect("a time").parse().expect("a time");
    let away = retry_at.as_second() - Timestamp::now().as_second();
    assert!((3_500..=3_601).contains(&away), "{away} s away");
    let id = result["session_id"].as_str().expect("an id");
    assert_eq!(result["resume"]["session_id"], id);
    assert!(ended.stderr.contains(&format!(" --resume {id}")), "{ended:?}");
}

#[tokio::test]
async fn a_successful_run_reports_success_once_and_nothing_else() {
    let server = serve(Scenario::new().reply("All done."));
    let ended = RunBuilder::against(&server).args(["do it"]).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0));
    assert_eq!(result["subtype"], "success");
    assert_eq!(result["result"], "All done.");
    assert_eq!(ended.stderr, "");
}
