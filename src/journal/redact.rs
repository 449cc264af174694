//! Redaction of secrets in journal lines.

use serde_json::Value;

use crate::json;
use crate::secrets::{KnownSecrets, Redactor};
use crate::transcript::LOST_SIGNATURE;

/// Masks known secrets in lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Redaction(Redactor);

impl Redaction {
    pub(super) fn new(secrets: KnownSecrets) -> Self {
        Self(Redactor::new(secrets))
    }

    /// Masks the secrets in a JSON object. An object without any is returned unchanged.
    pub(super) fn mask(&self, json: Vec<u8>) -> Vec<u8> {
        let Ok(text) = String::from_utf8(json) else { return Vec::new() };
        if !self.0.may_contain_secret(&text) {
            return json::escape_line_ends(text).into_bytes();
        }
        let mut line: Value = json::read_str(&text).expect("serde_json reads what it wrote");
        for message in [line.get_mut("message")].into_iter().flatten() {
            self.unsign(message);
        }
        for message in line.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten()
        {
            self.unsign(message);
        }
        self.0.redact_json(&mut line);
        json::to_line(&line).into_bytes()
    }

    /// Masks the secrets in a value. Returns whether there were any.
    pub(super) fn mask_value(&self, value: &mut Value) -> bool {
        let before = value.clone();
        self.0.redact_json(value);
        *value != before
    }

    /// Replaces the signature of thinking that is about to be masked: the API rejects changed
    /// thinking with its signature, so a resume leaves it out.
    fn unsign(&self, message: &mut Value) {
        let blocks = message.get_mut("content").and_then(Value::as_array_mut);
        for block in blocks.into_iter().flatten() {
            let thinking = block.get("thinking").and_then(Value::as_str).unwrap_or_default();
            let is_signed = block["signature"].as_str().is_some_and(|signed| !signed.is_empty());
            if block["type"] == "thinking" && is_signed && self.0.redact(thinking) != thinking {
                block["signature"] = Value::from(LOST_SIGNATURE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn redaction_replaces_the_signature_of_masked_thinking_only() {
        let redaction = Redaction::new(KnownSecrets::new(["correct-horse-battery"]));
        let thinking = |text: &str, signature: &str| json!({"type": "thinking", "thinking": text, "signature": signature});
        let message = |blocks: [Value; 2]| json!({"role": "assistant", "content": blocks});
        let before = message([thinking("correct-horse-battery!", "a"), thinking("Hm.", "b")]);
        let after = message([thinking("[redacted]!", LOST_SIGNATURE), thinking("Hm.", "b")]);
        let lines = [
            (json!({"message": &before}), json!({"message": &after})),
            (json!({"messages": [&before]}), json!({"messages": [&after]})),
        ];
        for (line, wanted) in lines {
            let masked = redaction.mask(line.to_string().into_bytes());
            assert_eq!(String::from_utf8(masked), Ok(wanted.to_string()));
        }
    }
}
