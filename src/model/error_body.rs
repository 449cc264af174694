//! Parses the body of an error response, in the formats of the known services and gateways. It
//! reports facts and does not classify them.

use serde_json::Value;

use crate::recovery::FaultKind;

/// Maximum length of a kept error message, in bytes. Some gateways include a stack trace.
const MESSAGE_LIMIT: usize = 2_000;

/// Returns the error that a JSON value reports, if any. Parses the official envelope, `OpenAI`'s
/// format (used by most gateways), Google's, the flat formats of llama.cpp streams and of Bedrock,
/// and any of them nested in another: gateways forward upstream errors.
pub(super) fn parse_error(value: &Value, status: u16) -> Option<FaultKind> {
    let ErrorFields { label, code, message, number } = ErrorFields::parse(value, DEPTH_MAX)?;
    let label = quoted_label(&label, &message).map_or(label, str::to_owned);
    let (label, code) = (truncate_message(label), truncate_message(code));
    let message = truncate_message(message);
    if status != 200 {
        return Some(FaultKind::Refused { status, label, code, message });
    }
    let status = number.or_else(|| implied_status(&label)).or_else(|| implied_status(&code));
    Some(match status {
        Some(status) => FaultKind::Refused { status, label, code, message },
        None => {
            FaultKind::InvalidContent { detail: format!("an error of unknown type: {message}") }
        }
    })
}

/// Maximum depth of nested errors that are parsed.
const DEPTH_MAX: u8 = 4;

/// The fields of an error in a JSON value.
#[derive(Debug, Default)]
struct ErrorFields {
    label: String,
    code: String,
    message: String,
    /// The status that the error itself reports, which may differ from the status line.
    number: Option<u16>,
}

impl ErrorFields {
    fn parse(value: &Value, depth: u8) -> Option<Self> {
        let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
        let depth = depth.checked_sub(1)?;
        let error = match &value["error"] {
            nested @ Value::Object(fields) if !fields.is_empty() => nested,
            Value::String(message) => return Some(Self::from_text(message, value, depth)),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => value,
        };
        let nested = !std::ptr::eq(error, value);
        if !nested && value["role"].is_string() {
            return None;
        }
        let inside = ["error", "upstream_error", "errors", "detail", "message"];
        let inside = inside.iter().map(|name| &error[*name]);
        let deeper = inside.filter(|one| is_error(one)).find_map(|one| Self::parse(one, depth));
        let message = message_of(error);
        if !nested && message.is_none() && deeper.is_none() {
            return None;
        }
        let mut parsed = Self {
            label: first_text(&[&error["type"], &error["status"], &error["__type"]]),
            code: first_text(&[
                &error["details"]["error_code"],
                &error["error_code"],
                // Azure, and what LiteLLM passes on of it.
                &error["innererror"]["code"],
                &error["provider_specific_fields"]["innererror"]["code"],
                &error["code"],
                &error["details"][0]["reason"],
                &error["metadata"]["error_type"],
            ]),
            number: STATUS_FIELDS.iter().find_map(|name| parse_status(&error[*name])),
            message: message.clone().unwrap_or_else(|| error.to_string()),
        };
        if let Some(deeper) = deeper {
            parsed.add(&deeper.message, message.is_some());
            parsed.adopt_specific(deeper);
        }
        parsed.unwrap_quotes(error, depth);
        parsed.add_window(error);
        parsed.add_guardrail(error);
        Some(parsed)
    }

    /// Parses an error that is only a text.
    fn from_text(error: &str, value: &Value, depth: u8) -> Self {
        let more = message_of(value).filter(|more| more != error);
        let message = more.map_or_else(|| error.to_owned(), |more| format!("{error}: {more}"));
        let mut parsed = Self { message, number: parse_status(&value["code"]), ..Self::default() };
        parsed.unwrap_quotes(value, depth);
        // OAuth: the text is the code.
        if parsed.label.is_empty() && error.chars().all(|it| it.is_ascii_lowercase() || it == '_') {
            error.clone_into(&mut parsed.label);
        }
        parsed
    }

    /// Adopts the upstream error that a gateway quotes, which is more precise.
    fn unwrap_quotes(&mut self, error: &Value, depth: u8) {
        if let Some(raw) = error["metadata"]["raw"].as_str().filter(|raw| !raw.is_empty()) {
            self.message = format!("{}: {raw}", self.message);
        }
        if !is_generic_label(&self.label) {
            return;
        }
        if let Some(quoted) = quoted_error(&self.message, depth) {
            if self.message.trim_start().starts_with('{') {
                self.message.clone_from(&quoted.message);
            }
            self.adopt_specific(quoted);
        }
    }

    /// Appends the text of a nested error, or uses it if there is no other text.
    fn add(&mut self, words: &str, has_words: bool) {
        if !has_words {
            words.clone_into(&mut self.message);
        } else if !self.message.contains(words) {
            self.message.push_str(": ");
            self.message.push_str(words);
        }
    }

    /// Adopts the code of a nested error, and its type if the own type is generic.
    fn adopt_specific(&mut self, other: Self) {
        self.number = self.number.or(other.number);
        if is_generic_label(&self.label) && !other.label.is_empty() {
            self.label = other.label;
        }
        if !other.code.is_empty() {
            self.code = other.code;
        }
    }

    /// Adds the window size of llama.cpp, which is in a separate field and not always in the
    /// message.
    fn add_window(&mut self, error: &Value) {
        if let Some(window) = error["n_ctx"].as_u64() {
            let window = window.to_string();
            if !self.message.contains(&window) {
                self.message = format!("{} (n_ctx: {window})", self.message);
            }
        }
    }

    /// Adds the guardrail of `LiteLLM` that refused the request: its words may be any, and its code
    /// is the status.
    fn add_guardrail(&mut self, error: &Value) {
        if let Some(name) = error["provider_specific_fields"]["guardrail_name"].as_str() {
            self.message = format!("{} (guardrail: {name})", self.message);
            "content_filter".clone_into(&mut self.code);
        }
    }
}

fn message_of(error: &Value) -> Option<String> {
    #[rustfmt::skip]
    const NAMES: [&str; 9] = [
        "message", "Message", "detail", "msg", "error_description", "title", "error_msg",
        "errorMessage", "status_msg",
    ];
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        // FastAPI lists the invalid fields of a request.
        Value::Array(list) if !list.is_empty() => Some(value.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) | Value::Array(_) => {
            None
        }
    };
    NAMES.iter().find_map(|name| text(&error[*name]))
}

/// True if a value inside an error may be an error itself.
fn is_error(value: &Value) -> bool {
    value.is_object() || value.as_array().is_some_and(|list| list.iter().all(is_error_entry))
}

/// True if this is an entry of a list of errors, and not of `FastAPI`'s list of fields.
fn is_error_entry(value: &Value) -> bool {
    value["message"].is_string() && value["loc"].is_null()
}

fn first_text(candidates: &[&Value]) -> String {
    let found = candidates.iter().find_map(|value| value.as_str());
    found.unwrap_or_default().to_owned()
}

/// The first error that a text quotes as JSON.
fn quoted_error(text: &str, depth: u8) -> Option<ErrorFields> {
    text.match_indices('{').take(4).find_map(|(at, _)| {
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        ErrorFields::parse(&values.next()?.ok()?, depth)
    })
}

/// Fields that may hold the status of an error.
const STATUS_FIELDS: [&str; 4] = ["code", "status", "statusCode", "status_code"];

/// Parses a status from an error's code field.
fn parse_status(code: &Value) -> Option<u16> {
    let number = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

/// Error types in a 200 response that are conclusive without a status.
#[rustfmt::skip]
const CONCLUSIVE: [&str; 14] = [
    "overloaded_error", "rate_limit_error", "rate_limit_exceeded", "api_error", "timeout_error",
    "authentication_error", "permission_error", "billing_error", "insufficient_quota",
    "exceed_context_size_error", "context_length_exceeded", "RESOURCE_EXHAUSTED", "UNAVAILABLE",
    "invalid_request_error",
];

/// The status implied by an error type in a 200 response; 200 if the type alone is conclusive.
fn implied_status(label: &str) -> Option<u16> {
    match label {
        "not_found_error" => Some(404),
        "conflict_error" => Some(409),
        "request_too_large" => Some(413),
        "server_error" | "internal_error" | "internal_server_error" => Some(500),
        // Amazon's error types end in "Exception".
        label => (CONCLUSIVE.contains(&label) || label.ends_with("Exception")).then_some(200),
    }
}

/// Error types that gateways use for any upstream error.
#[rustfmt::skip]
const GENERIC: [&str; 15] = [
    "", "error", "failure", "api_error", "invalid_request_error", "server_error",
    "internal_server_error", "upstream_error", "provider_error", "request_fail", "APIError",
    "BadRequestError", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "None",
];

fn is_generic_label(label: &str) -> bool {
    GENERIC.contains(&label)
}

/// Upstream errors that gateways quote as text or broken JSON, and their error types.
const QUOTED_ERRORS: [(&str, &str); 5] = [
    ("overloaded_error", "overloaded_error"),
    ("exceed_context_size_error", "exceed_context_size_error"),
    ("ContextWindowExceededError", "exceed_context_size_error"),
    ("ThrottlingException", "ThrottlingException"),
    ("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"),
];

fn quoted_label(label: &str, message: &str) -> Option<&'static str> {
    let quoted =
        QUOTED_ERRORS.iter().find(|(words, _)| is_generic_label(label) && message.contains(words));
    quoted.map(|(_, label)| *label)
}

pub(super) fn truncate_message(mut message: String) -> String {
    if message.len() > MESSAGE_LIMIT {
        message.truncate(message.floor_char_boundary(MESSAGE_LIMIT));
        message.push_str(" ...");
    }
    message
}
