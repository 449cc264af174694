//! Redaction of JSON: the text stays valid, and signed fields stay byte for byte.

use outlast_core::secrets::{KnownSecrets, REDACTED, Redactor};
use serde_json::{Value, json};

use super::examples;

const OURS: &str = "our-own-key-0123456789";

fn hidden(mut value: Value) -> Value {
    Redactor::new(KnownSecrets::new([OURS])).redact_json(&mut value);
    value
}

#[test]
fn json_redaction_keeps_signatures_and_ids() {
    for example in examples() {
        let sealed = example.text;
        let message = json!({
            "id": sealed,
            "request_id": sealed,
            "content": [
                { "type": "thinking", "thinking": "hm", "signature": sealed },
                { "type": "redacted_thinking", "data": sealed },
                { "type": "tool_use", "id": sealed, "name": "Bash", "input": {} },
                { "type": "tool_result", "tool_use_id": sealed, "content": [
                    { "type": "image", "source": { "type": "base64", "data": sealed } },
                ] },
                { "type": "web_search_tool_result", "encrypted_content": sealed },
            ],
            "delta": { "type": "signature_delta", "signature": sealed },
        });
        assert_eq!(hidden(message.clone()), message);
    }
}

#[test]
fn json_redaction_covers_all_other_fields() {
    for example in examples() {
        let secret = example.text.as_str();
        let shown = hidden(json!({
            "type": "tool_use",
            "name": "Bash",
            "input": { "command": secret, "signature": secret, "id": [secret], secret: 1 },
            "text": secret,
            "tool_use_result": { "stdout": secret, "id": secret },
        }));
        let text = shown.to_string();
        let first = example.secret.lines().next().expect("a line");
        assert!(!text.contains(first), "{}: {text}", example.name);
        assert_eq!(shown["name"], "Bash");
        assert!(shown["input"]["command"].as_str().is_some_and(|text| text.contains(REDACTED)));
    }
}

#[test]
fn the_runs_own_key_is_redacted_even_in_exempt_fields() {
    let shown = hidden(json!({
        "content": [{ "type": "thinking", "thinking": OURS, "signature": format!("x{OURS}y") }],
        "id": OURS,
    }));
    assert!(!shown.to_string().contains(OURS), "{shown}");
    assert_eq!(shown["content"][0]["signature"], "x[redacted]y");
}

#[test]
fn a_secret_that_equals_a_json_key_does_not_break_the_line() {
    let mut line = json!({ "type": "assistant", "role": "assistant", "text": "my assistant" });
    Redactor::new(KnownSecrets::new(["assistant"])).redact_json(&mut line);
    assert_eq!(line, json!({ "type": "assistant", "role": "assistant", "text": "my [redacted]" }));
}
