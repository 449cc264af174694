//! The doctor and the services of a chain: each way in which one fails is told for what it is.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, SystemTime};

use rustls::StreamOwned;
use serde_json::{Value, json};

use super::doctor::{KEY, answering, doctor, report, tells, user_settings};
use crate::support::RunBuilder;
use crate::support::responder::{Answer, Responder};
use crate::support::wire::{session_as, tls};

const LIST: &str = "{\"data\":[]}";

/// An answer with this status, type of content and body.
fn answer(status: u16, kind: &str, body: &str) -> Answer {
    Answer::with_headers(status, &format!("content-type: {kind}\r\n"), body.to_owned())
}

fn refusal(status: u16, label: &str, message: &str) -> Answer {
    let error = json!({ "type": label, "message": message });
    Answer::json(status, &json!({ "type": "error", "error": error }))
}

/// A service that answers by what it is asked.
async fn service(reply: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Responder {
    Responder::start(move |_, request| Some(reply(request))).await
}

fn took(report: &Value) -> Duration {
    Duration::from_millis(report["duration_ms"].as_u64().expect("a number"))
}

#[tokio::test]
async fn doctor_blames_a_failing_key_helper_not_the_service() {
    let (url, asked) = answering(Some("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")).await;
    for (command, what) in [
        ("sleep 1000", "did not end within 7 s"),
        ("echo hush-0123456789; echo no vault >&2; exit 3", "no vault"),
        ("true", "printed nothing"),
    ] {
        let trial = doctor(&url).without("ANTHROPIC_API_KEY");
        // A second service with the same helper is no second fault.
        let other = [format!("b@{url}/other")];
        user_settings(&trial, &json!({ "apiKeyHelper": command, "fallbackModel": other }));
        let ended = trial.run().await;
        let report = report(&ended);
        let place = "(it is from the setting apiKeyHelper at ";
        let wanted = [
            "the API key helper",
            place,
            "config/settings.json:1",
            what,
            "by hand",
            "was not contacted",
        ];
        tells(&report, "credentials", "problem", &wanted);
        assert_eq!(report["problems"], 1, "{command}: {report:#}");
        assert!(took(&report) < Duration::from_secs(20), "{command}: {report:#}");
        assert!(!ended.stdout.contains("hush"), "{ended:?}");
    }
    assert_eq!(*asked.borrow(), 0, "the service was asked without a key");
}

#[tokio::test]
async fn doctor_names_the_cause_of_each_refusal() {
    let page = |status: u16| answer(status, "text/html; charset=utf-8", "<title>Log in</title>");
    let money = "Your credit balance is too low to access the API.";
    let to = "location: http://portal.test/login?token=hush-0123456789\r\n";
    let moved = Answer::with_headers(302, to, String::new());
    let rows: [(Answer, &str, &[&str]); 11] = [
        (
            refusal(400, "invalid_request_error", money),
            "problem",
            &["no credit left", money, "add credit"],
        ),
        (refusal(402, "billing_error", "pay"), "problem", &["no credit left"]),
        (refusal(403, "permission_error", "no"), "problem", &["forbids its use"]),
        (
            refusal(413, "request_too_large", "big"),
            "problem",
            &["too large", "client_max_body_size"],
        ),
        (refusal(429, "rate_limit_error", "slow"), "warning", &["rate limit is used up"]),
        (refusal(500, "api_error", "oops"), "warning", &["in trouble", "HTTP 500: oops"]),
        (refusal(529, "overloaded_error", "full"), "warning", &["overloaded"]),
        (page(200), "problem", &["not the service", "login page"]),
        (page(403), "problem", &["not the service", "Log in", "firewall"]),
        (page(502), "warning", &["in trouble", "Log in"]),
        (moved, "problem", &["not the service", "redirected to http://portal.test"]),
    ];
    for (answer, status, words) in rows {
        let server = service(move |_| answer.clone()).await;
        let ended = doctor(&server.url).run().await;
        let report = report(&ended);
        tells(&report, "acceptance", status, words);
        tells(&report, "service", "ok", &[&server.url, "answers"]);
        assert!(!ended.stdout.contains("hush"), "{ended:?}");
    }
}

#[tokio::test]
async fn doctor_names_an_unknown_model_without_blaming_the_key() {
    let server = service(|request| {
        if request.starts_with("GET /v1/models ") {
            answer(200, "application/json", LIST)
        } else if request.contains("no-such-model-7") {
            refusal(404, "not_found_error", "model: no-such-model-7")
        } else {
            answer(200, "application/json", "{\"input_tokens\":8}")
        }
    })
    .await;
    let flags = ["--", "--model", "good", "--fallback-model", "no-such-model-7"];
    let report = report(&doctor(&server.url).args(flags).run().await);
    tells(&report, "model", "problem", &["no-such-model-7", "--model"]);
    tells(&report, "acceptance", "ok", &["accepts the API key"]);
    assert_eq!(report["problems"], 1, "{report:#}");
}

#[tokio::test]
async fn doctor_checks_every_endpoint_of_the_chain_with_its_own_key() {
    let primary = service(|_| answer(200, "application/json", LIST)).await;
    let closed = service(|request| {
        let known = request.contains("x-api-key: other-key-0123456789");
        assert!(known && !request.contains(KEY), "another's key was sent: {request}");
        refusal(401, "authentication_error", "no such key")
    })
    .await;
    let (silent, _) = answering(None).await;
    let (mute, _) = answering(None).await;
    let chain = [
        format!("b@{}#OTHER_KEY", closed.url),
        format!("c@{silent}"),
        format!("d@{mute}"),
        "e@http://127.0.0.1:9".to_owned(),
    ];
    let trial = doctor(&primary.url).env("OTHER_KEY", "other-key-0123456789");
    let ended = trial.args(["--", "--fallback-model", &chain.join(",")]).run().await;
    let report = report(&ended);
    tells(&report, "acceptance", "ok", &["accepts the API key from the variable ANTHROPIC"]);
    let wanted = ["rejects the API key from the variable OTHER_KEY", &closed.url, "no such key"];
    tells(&report, "acceptance", "problem", &wanted);
    tells(&report, "service", "problem", &[&silent, "fallback, for c", "does not answer within 8"]);
    tells(&report, "service", "problem", &[&mute, "fallback, for d", "does not answer within 8"]);
    tells(&report, "service", "problem", &["http://127.0.0.1:9", "for e", "cannot be reached"]);
    assert!(took(&report) < Duration::from_secs(16), "one after the other: {report:#}");
    assert!(!ended.stdout.contains("other-key-0123456789"), "{ended:?}");
}

#[tokio::test]
async fn doctor_names_the_variable_of_a_clouds_key_not_that_of_the_first_service() {
    let primary = service(|_| answer(200, "application/json", LIST)).await;
    let cloud = service(|request| {
        assert!(request.contains("authorization: Bearer bedrock-key-0123456789"), "{request}");
        answer(403, "application/json", "{\"message\":\"Authentication failed\"}")
    })
    .await;
    let trial = doctor(&primary.url)
        .env("AWS_BEARER_TOKEN_BEDROCK", "bedrock-key-0123456789")
        .env("ANTHROPIC_BEDROCK_BASE_URL", &cloud.url);
    let ended = trial.args(["--", "--fallback-model", "opus@bedrock:us-east-1"]).run().await;
    let wanted = ["the variable AWS_BEARER_TOKEN_BEDROCK", &cloud.url];
    tells(&report(&ended), "acceptance", "problem", &wanted);
}

/// A service behind TLS whose clock is `hours` behind ours.
fn behind_tls(host: &'static str, hours: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut tls = StreamOwned::new(session_as(host), socket.expect("a connection"));
            let mut request = vec![0; 64 * 1024];
            if tls.read(&mut request).is_ok_and(|count| count > 0) {
                let then = SystemTime::now() - Duration::from_hours(hours);
                let date = httpdate::fmt_http_date(then);
                let reply = format!(
                    "HTTP/1.1 200 OK\r\ndate: {date}\r\nconnection: close\r\n\
                     content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
                );
                let _ = tls.write_all(reply.as_bytes());
                tls.conn.send_close_notify();
                let _ = tls.flush();
            }
        }
    });
    format!("https://localhost:{port}")
}

fn trusting(trial: RunBuilder, authority: &str) -> RunBuilder {
    trial.env("NODE_EXTRA_CA_CERTS", &tls(authority).display().to_string())
}

#[tokio::test]
async fn doctor_distinguishes_certificate_and_clock_errors_over_tls() {
    let unknown = report(&doctor(&behind_tls("localhost", 0)).run().await);
    tells(&unknown, "service", "problem", &["TLS", "UnknownIssuer", "--ca-file"]);

    let trusted = trusting(doctor(&behind_tls("localhost", 0)), "authority.pem").run().await;
    let trusted = report(&trusted);
    tells(&trusted, "acceptance", "ok", &["accepts"]);
    tells(&trusted, "clock", "ok", &["agrees"]);
    tells(&trusted, "certificates", "ok", &["authority.pem"]);

    let past = trusting(doctor(&behind_tls("expired", 0)), "expired.pem").run().await;
    tells(&report(&past), "service", "problem", &["expired", "clock", "certificate renewed"]);

    for (hours, skew) in [(1, "1h00m ahead of"), (24, "1d00h ahead of")] {
        let url = behind_tls("localhost", hours);
        let skewed = report(&trusting(doctor(&url), "authority.pem").run().await);
        tells(&skewed, "clock", "warning", &[skew, "NTP"]);
    }
}

#[tokio::test]
async fn doctor_skips_checks_that_depend_on_broken_settings() {
    let server = service(|_| answer(200, "application/json", LIST)).await;
    let trial = doctor(&server.url).without("ANTHROPIC_API_KEY");
    let path = trial.config().join("settings.json");
    fs::write(&path, "{ \"apiKeyHelper\": \"echo hush-0123456789\", \"hooks\": {},, ")
        .expect("ours");
    let ended = trial.run().await;
    let report = report(&ended);
    let path = path.display().to_string();
    tells(&report, "settings", "problem", &[&path, "not valid JSON"]);
    let unchecked = ["MCP servers and fallback models are not checked", "none in the variables"];
    tells(&report, "settings", "problem", &unchecked);
    tells(&report, "hooks", "ok", &["not checked", &path]);
    tells(&report, "mcp", "ok", &["not checked", &path]);
    assert!(!ended.stdout.contains("no MCP servers"), "{ended:?}");
    assert!(!ended.stdout.contains("hush"), "{ended:?}");
    assert_eq!(report["problems"], 1, "{report:#}");
}
