//! The token count of a request, asked from the service.

use outlast::model::{ModelClient, Reasoning, RequestContent, ThinkingMode};
use outlast::transcript::{Block, Message};
use serde_json::Value;

use super::endpoint;
use super::server::Server;

fn answer(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = "content-type: application/json\r\nconnection: close";
    format!("HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// Asks twice, and returns both counts, or the status of a temporary refusal, and the requests.
async fn ask_twice(bytes: Vec<u8>) -> ([Result<Option<u64>, Option<u16>>; 2], Vec<String>) {
    let server = Server::answering(bytes).await;
    let client = ModelClient::new(endpoint(&server.url)).expect("the endpoint is valid");
    let messages = [Message::user(vec![Block::text("Count this.")])];
    let content = RequestContent {
        model: "claude-sonnet-5-5",
        system: "Be brief.",
        messages: &messages,
        reasoning: Reasoning { thinking: ThinkingMode::Budget(4_096), ..Reasoning::default() },
        ..RequestContent::default()
    };
    let counts = [client.count_tokens(&content).await, client.count_tokens(&content).await];
    (counts.map(|count| count.map_err(|fault| fault.status())), server.requests())
}

#[tokio::test]
async fn a_count_is_asked_for_with_the_content_and_nothing_else() {
    let (counts, requests) = ask_twice(answer("200 OK", r#"{"input_tokens": 61234}"#)).await;
    assert_eq!(counts, [Ok(Some(61_234)); 2]);
    let (head, body) = requests[0].split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("POST /v1/messages/count_tokens "), "{head}");
    assert!(head.contains("sk-test-8301746295"), "with the credential");
    let body: Value = serde_json::from_str(body).expect("JSON");
    let fields: Vec<&str> =
        body.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(fields, ["model", "system", "messages"]);
}

#[tokio::test]
async fn a_service_without_a_token_count_is_asked_once() {
    for status in ["404 Not Found", "405 Method Not Allowed", "400 Bad Request", "501 No"] {
        let (counts, requests) = ask_twice(answer(status, "{}")).await;
        assert_eq!((counts, requests.len()), ([Ok(None); 2], 1), "{status}");
    }
    for status in [429, 503, 529] {
        let (counts, requests) = ask_twice(answer(&format!("{status} Later"), "{}")).await;
        assert_eq!((counts, requests.len()), ([Err(Some(status)); 2], 2), "{status} may pass");
    }
}

#[tokio::test]
async fn an_answer_that_counts_nothing_is_no_count() {
    for body in ["{}", "<html></html>", r#"{"input_tokens": 0}"#, r#"{"input_tokens": "many"}"#] {
        let (counts, _) = ask_twice(answer("200 OK", body)).await;
        assert_eq!(counts, [Ok(None); 2], "{body}");
    }
}
