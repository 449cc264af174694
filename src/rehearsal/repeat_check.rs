//! Detects repeated requests after a 400. A rejected request must not be sent again, except once if
//! the rejection is doubtful: a script rejects a small request as too long, a request without
//! thinking for its thinking, or the output of a request, or it has answered other requests.

use outlast_core::recovery::{FailureStage, Fault, FaultKind};
use serde_json::Value;

/// The request that was last answered with a 400, if any.
#[derive(Debug, Default)]
pub(super) struct LastRefusal(Option<RefusedRequest>);

/// The status of the server: whether it has answered a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ServerStatus {
    #[default]
    Untried,
    Proven,
}

#[derive(Debug)]
struct RefusedRequest {
    body: Value,
    /// True if streaming was refused, so that a request without streaming is another request.
    is_of_streaming: bool,
    /// The rule that rejected it. `None` for a script, which may reject several requests alike.
    rule: Option<String>,
    /// True if the request may be repeated unchanged, once.
    may_be_repeated: bool,
}

impl LastRefusal {
    /// Records that the request `body` was answered with a 400 and the body `response`, not marked
    /// as retryable.
    pub(super) fn record(
        &mut self,
        body: &Value,
        rule: Option<String>,
        response: &str,
        server: ServerStatus,
    ) {
        let is_of_streaming = response.contains("streaming");
        let body = comparable_request(body, is_of_streaming);
        let is_repeated = self.0.as_ref().is_some_and(|refused| refused.body == body);
        let is_contradicted = response.contains("thinking") && body.get("thinking").is_none();
        let answer: Value = serde_json::from_str(response).unwrap_or_default();
        let message = answer["error"]["message"].as_str().unwrap_or(response).to_owned();
        let (label, code) = (String::new(), String::new());
        let refused = FaultKind::Refused { status: 400, label, code, message };
        let refused = Fault::new(refused, FailureStage::Status);
        let is_doubtful = response.contains("too long")
            || is_contradicted
            || refused.is_filtered_output()
            || server == ServerStatus::Proven;
        let may_be_repeated = rule.is_none() && !is_repeated && is_doubtful;
        self.0 = Some(RefusedRequest { body, is_of_streaming, rule, may_be_repeated });
    }

    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// True if the same request was rejected and may not be repeated.
    pub(super) fn forbids(&self, body: &Value) -> bool {
        self.0.as_ref().is_some_and(|refused| {
            let body = comparable_request(body, refused.is_of_streaming);
            !refused.may_be_repeated && refused.body == body
        })
    }

    /// True if the last rejection was by a rule with this message.
    pub(super) fn has_message(&self, message: &str) -> bool {
        self.0.as_ref().is_some_and(|refused| refused.rule.as_deref() == Some(message))
    }
}

/// A request without fields that do not affect its validity: usually, `stream` is such a field.
fn comparable_request(body: &Value, is_of_streaming: bool) -> Value {
    let mut body = body.clone();
    if let Some(fields) = body.as_object_mut()
        && !is_of_streaming
    {
        fields.remove("stream");
    }
    body
}
