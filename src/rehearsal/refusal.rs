//! Never the same 400 twice: what was refused is not sent again, but for a small request that a
//! script calls too long. That may be repeated once.

use serde_json::Value;

/// The request that was answered with a 400 just before, if one was.
#[derive(Debug, Default)]
pub(super) struct LastRefusal(Option<RefusedRequest>);

#[derive(Debug)]
struct RefusedRequest {
    body: Value,
    /// What a rule had to say. A script may well say the same of several requests.
    rule: Option<String>,
    repeat: Repeat,
}

/// Whether a request that was refused may come again as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    Never,
    Once,
}

impl LastRefusal {
    /// Notes that `body` was answered with a 400, in these `words`, that no header invites to
    /// repeat.
    pub(super) fn note(&mut self, body: &Value, rule: Option<String>, words: &str) {
        let body = comparable_request(body);
        let known = self.0.as_ref().is_some_and(|refused| refused.body == body);
        let doubtful = rule.is_none() && !known && words.contains("too long");
        let repeat = if doubtful { Repeat::Once } else { Repeat::Never };
        self.0 = Some(RefusedRequest { body, rule, repeat });
    }

    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// Whether the same request was refused, and may not come again.
    pub(super) fn forbids(&self, body: &Value) -> bool {
        self.0
            .as_ref()
            .is_some_and(|refused| refused.repeat == Repeat::Never && refused.body == comparable_request(body))
    }

    /// Whether another request was refused in the same words.
    pub(super) fn has_message(&self, message: &str) -> bool {
        self.0.as_ref().is_some_and(|refused| refused.rule.as_deref() == Some(message))
    }
}

/// A request without what changes nothing about its meaning.
fn comparable_request(body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(fields) = body.as_object_mut() {
        fields.remove("stream");
    }
    body
}
