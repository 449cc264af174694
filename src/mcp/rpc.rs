//! Messages of JSON-RPC 2.0, as the protocol uses them. Pure.

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::json;

/// The server does not support the request in its current state.
pub(super) const INVALID_REQUEST: i64 = -32600;

/// The server does not have the method.
pub(super) const METHOD_NOT_FOUND: i64 = -32601;

/// The parameters of a request are invalid.
pub(super) const INVALID_PARAMS: i64 = -32602;

/// An error within the server.
pub(super) const INTERNAL_ERROR: i64 = -32603;

/// The answer arrived, but cannot be parsed. The code is outlast's own, and not sent by servers.
/// The effect of the call is unknown.
pub(super) const UNREADABLE_ANSWER: i64 = i64::MIN;

/// A request without a handshake has no header with its protocol version, or header and body
/// differ.
pub(super) const HEADER_MISMATCH: i64 = -32020;

/// The server does not support the version of the protocol.
pub(super) const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;

/// The type of a result that demands more input of the client.
pub(super) const INPUT_REQUIRED: &str = "input_required";

/// The most characters of the `data` of an error that are kept.
const DETAIL_CHARS_MAX: usize = 500;

/// The user must open a page before the server can answer.
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// The number of our request that an identifier names. Some servers repeat it as text, or with a
/// fraction of zero.
pub(super) fn request_number(id: &Value) -> Option<u64> {
    let text = match id {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    text.strip_suffix(".0").unwrap_or(&text).parse().ok()
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ServerMessage {
    Request { id: Value, method: String, params: Value },
    Notification { method: String, params: Value },
    Response { id: Value, outcome: Result<Value, RpcError> },
}

/// The error in a response.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
    /// The beginning of its `data`: some servers give the reason there.
    detail: String,
    /// The versions of the protocol that its `data` names as supported.
    supported: Vec<String>,
}

impl ServerMessage {
    /// Parses a message, or a list of them: one version of the protocol allowed that. An answer
    /// that is invalid, but names its request, becomes an error that says why. Empty if there is no
    /// message.
    pub(super) fn parse_all(bytes: &[u8]) -> Vec<Self> {
        match json::read(bytes) {
            Ok(Value::Array(items)) => items.into_iter().filter_map(Self::from_value).collect(),
            // Some gateways encode messages twice.
            Ok(Value::String(text)) => Self::parse_all(text.as_bytes()),
            Ok(value) => Vec::from_iter(Self::from_value(value)),
            Err(error) => Self::parse_line(&json::decode(bytes), &error.to_string()),
        }
    }

    /// Parses a line with other than one value: threads of a server may write to the same line.
    fn parse_line(line: &str, why: &str) -> Vec<Self> {
        let (mut messages, mut rest) = (Vec::new(), line.trim_start());
        while let Some((value, after)) = first_value(rest) {
            messages.extend(Self::from_value(value));
            rest = after.trim_start();
        }
        let unreadable = |id| Self::unreadable(json!(id), why);
        messages.extend(answered_request(rest).map(unreadable));
        messages
    }

    /// Finds an answer between other output of the same line, such as a progress bar or the codes of
    /// colours. Other messages are ignored, since logs quote them.
    pub(super) fn find_answer(line: &[u8]) -> Option<Self> {
        let text = &line[memchr::memmem::find(line, b"{\"")?..];
        memchr::memmem::find(text, b"\"jsonrpc\"")?;
        let (value, _) = first_value(&json::decode(text))?;
        let message = Self::from_value(value)?;
        matches!(message, Self::Response { .. }).then_some(message)
    }

    /// The identifier and the outcome of an answer.
    pub(super) fn as_answer(&mut self) -> Option<(&mut Value, &Result<Value, RpcError>)> {
        match self {
            Self::Response { id, outcome } => Some((id, outcome)),
            Self::Request { .. } | Self::Notification { .. } => None,
        }
    }

    fn unreadable(id: Value, why: &str) -> Self {
        let message = format!("its answer cannot be read: {why}");
        Self::Response { id, outcome: Err(RpcError::new(UNREADABLE_ANSWER, message)) }
    }

    /// Converts a message that is already parsed as JSON. `None` if it is not a message.
    pub(super) fn from_value(message: Value) -> Option<Self> {
        let Value::Object(mut fields) = message else { return None };
        if fields.get("jsonrpc").is_none_or(|version| *version != "2.0") && !is_bare_answer(&fields)
        {
            return None;
        }
        // Some libraries also write the fields that a message does not have, or repeat the method in
        // the answer.
        let is_answer =
            ["result", "error"].iter().any(|key| fields.get(*key).is_some_and(|it| !it.is_null()));
        let mut take = |name: &str| fields.remove(name);
        if let Some(method) = take("method").filter(|method| !method.is_null() && !is_answer) {
            let Value::String(method) = method else { return None };
            let id = take("id").filter(|id| !id.is_null());
            let params = take("params").unwrap_or_default();
            return Some(match id {
                Some(id) => Self::Request { id, method, params },
                None => Self::Notification { method, params },
            });
        }
        let id = take("id").unwrap_or_default();
        let outcome = match (take("result"), take("error")) {
            (_, Some(Value::Object(error))) => Err(RpcError::from_fields(&error)),
            (None | Some(Value::Null), Some(Value::String(message))) => {
                Err(RpcError::new(INTERNAL_ERROR, message))
            }
            (None | Some(Value::Null), Some(error)) if !error.is_null() && error != false => {
                Err(RpcError::new(INTERNAL_ERROR, error.to_string()))
            }
            (Some(result), _) => Ok(result),
            (None, _) if id.is_null() => return None,
            (None, _) => return Some(Self::unreadable(id, "it has neither a result nor an error")),
        };
        Some(Self::Response { id, outcome })
    }
}

/// Splits a text after its first JSON value, if that is an object or an array.
fn first_value(text: &str) -> Option<(Value, &str)> {
    let (first, rest) = text.split_at(json::value_end(text)?);
    let is_container = first.starts_with(['{', '[']);
    Some((json::read_str(first).ok().filter(|_| is_container)?, rest))
}

/// True if an object that does not state the version of JSON-RPC is an answer: it has only the
/// fields of one. Log records have others.
fn is_bare_answer(fields: &Map<String, Value>) -> bool {
    fields.get("id").is_some_and(|id| request_number(id).is_some())
        && fields.keys().all(|key| ["jsonrpc", "id", "result", "error"].contains(&key.as_str()))
}

/// Describes why bytes are not a message of the protocol.
pub(super) fn describe_invalid(bytes: &[u8]) -> String {
    match json::read::<IgnoredAny>(bytes) {
        Ok(_) => "its answer is not a message of the protocol".to_owned(),
        Err(error) => format!("its answer is not a message of the protocol, nor JSON: {error}"),
    }
}

/// Finds the request that an unreadable answer belongs to, as far as possible: servers write the
/// identifier first or last.
fn answered_request(text: &str) -> Option<u64> {
    let outcome = ["\"result\"", "\"error\""].iter().filter_map(|key| text.find(key)).min()?;
    let is_request = text.find("\"method\"").is_some_and(|method| method < outcome);
    if is_request || !text.trim_start().starts_with('{') || !text.contains("\"jsonrpc\"") {
        return None;
    }
    let (head, body) = text.split_at(outcome);
    let first = head.match_indices("\"id\"").next();
    let last = body.match_indices("\"id\"").last();
    let number = |(at, _): (usize, &str), text: &str| {
        let value = text[at + "\"id\"".len()..].trim_start().strip_prefix(':')?.trim_start();
        let value = value.strip_prefix('"').unwrap_or(value);
        let length = value.bytes().take_while(u8::is_ascii_digit).count();
        value[..length].parse().ok()
    };
    first.and_then(|found| number(found, head)).or_else(|| number(last?, body))
}

impl RpcError {
    pub(super) fn new(code: i64, message: String) -> Self {
        Self { code, message, detail: String::new(), supported: Vec::new() }
    }

    /// True if the server names this version of the protocol, which was not asked for.
    pub(super) fn supports(&self, version: &str) -> bool {
        let is_listed = self.supported.iter().any(|supported| supported == version);
        is_listed || self.message.contains(version) || self.detail.contains(version)
    }

    /// The message and the detail.
    pub(super) fn text(&self) -> String {
        match (self.message.trim(), self.detail.as_str()) {
            (message, "") => message.to_owned(),
            ("", detail) => detail.to_owned(),
            (message, detail) => format!("{message}: {detail}"),
        }
    }

    fn from_fields(error: &Map<String, Value>) -> Self {
        let field = |name: &str| error.get(name);
        let code = field("code").and_then(Value::as_i64).unwrap_or(INTERNAL_ERROR);
        let mut message = match field("message") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        if code == URL_ELICITATION_REQUIRED {
            let pages = field("data").and_then(|data| data["elicitations"].as_array());
            let pages = pages.into_iter().flatten().filter_map(|page| page["url"].as_str());
            for page in pages {
                message.extend(["; the user must open ", page, " first"]);
            }
            return Self::new(code, message);
        }
        let detail = match field("data") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.trim().to_owned(),
            Some(data) => data.to_string(),
        };
        let is_new = !message.contains(&detail);
        let detail = detail.chars().filter(|_| is_new).take(DETAIL_CHARS_MAX).collect();
        let supported = field("data").and_then(|data| data["supported"].as_array());
        let versions = supported.into_iter().flatten().filter_map(Value::as_str);
        let supported = versions.map(str::to_owned).collect();
        Self { code, message, detail, supported }
    }
}

#[derive(Clone, Debug)]
pub(super) struct ClientMessage {
    /// The identifier, if it is a request.
    pub(super) id: Option<u64>,
    pub(super) json: Value,
}

impl ClientMessage {
    pub(super) fn request(id: u64, method: &str, params: Value) -> Self {
        let mut json = json!({ "jsonrpc": "2.0", "id": id, "method": method });
        json["params"] = params;
        Self { id: Some(id), json }
    }

    pub(super) fn notification(method: &str) -> Self {
        Self { id: None, json: json!({ "jsonrpc": "2.0", "method": method }) }
    }

    /// A notification that the answer to a request is no longer needed.
    pub(super) fn cancellation(id: u64, why: &str) -> Self {
        let mut message = Self::notification("notifications/cancelled");
        message.json["params"] = json!({ "requestId": id, "reason": why });
        message
    }

    /// The response to a request of the server.
    pub(super) fn response(id: &Value, outcome: Result<Value, RpcError>) -> Self {
        let mut json = json!({ "jsonrpc": "2.0", "id": id });
        match outcome {
            Ok(result) => json["result"] = result,
            Err(error) => {
                json["error"] = json!({ "code": error.code, "message": error.message });
            }
        }
        Self { id: None, json }
    }

    /// Returns true if the message may be sent twice: only calls of tools have effects.
    pub(super) fn is_repeatable(&self) -> bool {
        self.method() != "tools/call"
    }

    pub(super) fn method(&self) -> &str {
        self.json["method"].as_str().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_message_is_distinguished_by_its_fields() {
        let parse = |text: &str| ServerMessage::parse_all(text.as_bytes()).pop();
        let method = "ping".to_owned();
        let params = json!({ "a": 1 });
        let request = ServerMessage::Request { id: json!("a"), method: method.clone(), params };
        let text = r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{"a":1}}"#;
        assert_eq!(parse(text), Some(request));
        let notice = ServerMessage::Notification { method, params: json!([1]) };
        assert_eq!(parse(r#"{"jsonrpc":"2.0","method":"ping","params":[1]}"#), Some(notice));
        let result = ServerMessage::Response { id: json!(1), outcome: Ok(Value::Null) };
        for others in ["", r#","method":null,"params":null"#] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":null,"error":null{others}}}"#);
            assert_eq!(parse(&text).as_ref(), Some(&result), "{text}");
        }
        let error = RpcError::new(-1, "no".to_owned());
        let error = ServerMessage::Response { id: Value::Null, outcome: Err(error) };
        let text = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}"#;
        assert_eq!(parse(text), Some(error));
        let page = r#"{"code":-32042,"message":"Sign in","data":{"elicitations":[{"url":"x:y"}]}}"#;
        let message = "Sign in; the user must open x:y first".to_owned();
        let error = RpcError::new(URL_ELICITATION_REQUIRED, message);
        let error = ServerMessage::Response { id: json!(1), outcome: Err(error) };
        assert_eq!(parse(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{page}}}"#)), Some(error));
        let odd = RpcError::new(INTERNAL_ERROR, String::new());
        let odd = ServerMessage::Response { id: json!(1), outcome: Err(odd) };
        assert_eq!(parse(r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":"x"}}"#), Some(odd));
        for repeated in [r#""result":null,"error":"no""#, r#""error":["no"]"#] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping",{repeated}}}"#);
            let Some(ServerMessage::Response { outcome: Err(error), .. }) = parse(&text) else {
                panic!("{text} is an answer")
            };
            assert!(error.text().contains("no"), "{error:?}");
        }
        let text = parse(r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#);
        let error = RpcError::new(INTERNAL_ERROR, "no".to_owned());
        assert_eq!(text, Some(ServerMessage::Response { id: json!(1), outcome: Err(error) }));
    }

    #[test]
    fn an_error_supports_the_versions_that_it_names_in_any_way() {
        let (asked, older) = ("2025-11-25", "2024-11-05");
        for error in [
            json!({ "message": "no", "data": { "supported": [older] } }),
            json!({ "message": "no", "data": { "supportedVersions": [older], "asked": asked } }),
            json!({ "message": format!("not {asked}, but {older}") }),
        ] {
            let error = RpcError::from_fields(error.as_object().expect("fields"));
            assert!(error.supports(older) && !error.supports("2025-03-26"), "{error:?}");
        }
    }

    #[test]
    fn the_data_of_an_error_are_part_of_its_text() {
        let long = "x".repeat(DETAIL_CHARS_MAX + 1);
        for (message, data, wanted) in [
            ("Internal error", json!("disk full"), "Internal error: disk full".to_owned()),
            (
                "boom",
                json!({ "detail": "disk full" }),
                r#"boom: {"detail":"disk full"}"#.to_owned(),
            ),
            ("", json!("disk full"), "disk full".to_owned()),
            ("the disk full", json!("disk full"), "the disk full".to_owned()),
            ("no", Value::Null, "no".to_owned()),
            ("no", json!(long), format!("no: {}", "x".repeat(DETAIL_CHARS_MAX))),
        ] {
            let error = json!({ "code": -1, "message": message, "data": data });
            let answer = json!({ "jsonrpc": "2.0", "id": 1, "error": error });
            let Some(ServerMessage::Response { outcome: Err(error), .. }) =
                ServerMessage::from_value(answer)
            else {
                panic!("it is an error")
            };
            assert_eq!(error.text(), wanted);
        }
    }

    #[test]
    fn an_unreadable_answer_is_an_error_of_the_request_that_it_names() {
        for text in [
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"cut"#,
            r#"{"jsonrpc": "2.0", "id": "7", "result": {"a": .5, "id": 8}}"#,
            r#"{"result":{"id":3,"a":"\x"},"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","error":{"message":"a "quoted" word"},"id" : 7 }"#,
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","id":7,"error":null}"#,
        ] {
            match ServerMessage::parse_all(text.as_bytes()).pop() {
                Some(ServerMessage::Response { id, outcome: Err(error) }) => {
                    assert_eq!(request_number(&id), Some(7), "{text}");
                    assert_eq!(error.code, UNREADABLE_ANSWER, "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
        let read = ServerMessage::parse_all(br#"{"jsonrpc":"2.0","id":7,"result":["\ud83d"]}"#);
        let result = Ok(json!(["\u{fffd}"]));
        assert_eq!(read, [ServerMessage::Response { id: json!(7), outcome: result }]);
    }

    #[test]
    fn an_identifier_may_come_back_as_text_or_as_a_fraction() {
        for (id, wanted) in [
            (json!(7), Some(7)),
            (json!("7"), Some(7)),
            (json!(7.0), Some(7)),
            (json!(7.5), None),
            (json!("server-error"), None),
            (json!(-7), None),
            (Value::Null, None),
        ] {
            assert_eq!(request_number(&id), wanted, "{id}");
        }
    }

    #[test]
    fn a_list_of_messages_is_read_without_the_items_that_are_not_messages() {
        let text = br#"[{"jsonrpc":"2.0","method":"a"},7,{"jsonrpc":"2.0","id":1,"result":{}}]"#;
        let notice = ServerMessage::Notification { method: "a".to_owned(), params: Value::Null };
        let answer = ServerMessage::Response { id: json!(1), outcome: Ok(json!({})) };
        assert_eq!(ServerMessage::parse_all(text), [notice, answer]);
    }

    #[test]
    fn several_messages_may_be_on_one_line_and_an_answer_without_a_version() {
        let answer = |id: u64| ServerMessage::Response { id: json!(id), outcome: Ok(json!({})) };
        let notice = ServerMessage::Notification { method: "a".to_owned(), params: Value::Null };
        for (text, wanted) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{}} {"jsonrpc":"2.0","id":2,"result":{}}"#,
                vec![answer(1), answer(2)],
            ),
            (
                r#"{"jsonrpc":"2.0","method":"a"}{"jsonrpc":"2.0","id":2,"result":{}}"#,
                vec![notice, answer(2)],
            ),
            (r#"{"id":1,"result":{}}"#, vec![answer(1)]),
            (r#"{"jsonrpc":2.0,"id":1,"result":{}}"#, vec![answer(1)]),
            (r#"{"jsonrpc":"1.0","id":1,"result":{}}"#, vec![answer(1)]),
        ] {
            assert_eq!(ServerMessage::parse_all(text.as_bytes()), wanted, "{text}");
        }
        let cut = br#"{"jsonrpc":"2.0","id":1,"result":{}}{"jsonrpc":"2.0","id":2,"result":{"a"#;
        let [first, ServerMessage::Response { id, outcome: Err(_) }] =
            &ServerMessage::parse_all(cut)[..]
        else {
            panic!("an answer, and one that is cut off")
        };
        assert_eq!((first, id), (&answer(1), &json!(2)));
    }

    #[test]
    fn only_an_answer_is_found_behind_other_output() {
        let find = |text: &str| ServerMessage::find_answer(text.as_bytes());
        let answer = ServerMessage::Response { id: json!(1), outcome: Ok(json!({})) };
        for before in ["loading 100%\r", "\u{1b}[0m", "ready"] {
            let text = format!("{before}{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{}}}}\n");
            assert_eq!(find(&text), Some(answer.clone()), "{text}");
        }
        for text in [
            r#"got {"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"sent {"jsonrpc":"2.0","id":1,"result":"#,
            r#"{"level":"info"}"#,
            "loading",
        ] {
            assert_eq!(find(text), None, "{text}");
        }
    }

    #[test]
    fn other_json_is_not_a_message() {
        for text in [
            "",
            "{",
            "[1,2]",
            "7",
            r#"{"level":"info","method":"GET"}"#,
            r#"{"id":1,"result":1,"level":"info"}"#,
            r#"{"id":"x","result":1}"#,
            r#"{"id":null,"error":"x"}"#,
            r#"{"jsonrpc":"2.0","method":7}"#,
            r#"{"jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{"error": \x}}"#,
            r#"{"level":"error","id":1,"error":"cut"#,
            r#"log: {"jsonrpc":"2.0","id":1,"result":"#,
        ] {
            assert_eq!(ServerMessage::parse_all(text.as_bytes()), [], "{text}");
        }
    }
}
