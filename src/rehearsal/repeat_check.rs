//! Detects repeated requests after a 400. A rejected request must not be sent again, except once
//! where a script rejects a small request as too long, or one without thinking for its thinking, or
//! because of its output, or after it has answered another one.

use outlast_core::recovery::{FailureStage, Fault, FaultKind};
use serde_json::Value;

/// The request that was last answered with a 400, if any.
#[derive(Debug, Default)]
pub(super) struct LastRefusal(Option<RefusedRequest>);

/// Whether the server has answered a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ServerStatus {
    #[default]
    Untried,
    Proven,
}

#[derive(Debug)]
struct RefusedRequest {
    body: Value,
    /// True if streaming was refused, so that one without it is another request.
    is_of_streaming: bool,
    /// The rule that rejected it. `None` for a script, which may reject several requests alike.
    rule: Option<String>,
    repeat: Repeat,
}

/// The permission to repeat a rejected request unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    Never,
    Once,
}

impl LastRefusal {
    /// Records that `body` was answered with a 400 with the message `words`, not marked as
    /// retryable.
    pub(super) fn note(
        &mut self,
        body: &Value,
        rule: Option<String>,
        words: &str,
        server: ServerStatus,
    ) {
        let is_of_streaming = words.contains("streaming");
        let body = comparable_request(body, is_of_streaming);
        let known = self.0.as_ref().is_some_and(|refused| refused.body == body);
        let is_contradicted = words.contains("thinking") && body.get("thinking").is_none();
        let answer: Value = serde_json::from_str(words).unwrap_or_default();
        let message = answer["error"]["message"].as_str().unwrap_or(words).to_owned();
        let (label, code) = (String::new(), String::new());
        let refused = FaultKind::Refused { status: 400, label, code, message };
        let refused = Fault::new(refused, FailureStage::Status);
        let is_implausible = words.contains("too long")
            || is_contradicted
            || refused.is_filtered_output()
            || server == ServerStatus::Proven;
        let doubtful = rule.is_none() && !known && is_implausible;
        let repeat = if doubtful { Repeat::Once } else { Repeat::Never };
        self.0 = Some(RefusedRequest { body, is_of_streaming, rule, repeat });
    }

    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// Returns true if the same request was rejected and may not be repeated.
    pub(super) fn forbids(&self, body: &Value) -> bool {
        self.0.as_ref().is_some_and(|refused| {
            let body = comparable_request(body, refused.is_of_streaming);
            refused.repeat == Repeat::Never && refused.body == body
        })
    }

    /// Returns true if the last rejection was by a rule with this message.
    pub(super) fn has_message(&self, message: &str) -> bool {
        self.0.as_ref().is_some_and(|refused| refused.rule.as_deref() == Some(message))
    }
}

/// A request without fields that do not affect its validity. Whether it asks for a stream usually
/// does not.
fn comparable_request(body: &Value, is_of_streaming: bool) -> Value {
    let mut body = body.clone();
    if let Some(fields) = body.as_object_mut()
        && !is_of_streaming
    {
        fields.remove("stream");
    }
    body
}
