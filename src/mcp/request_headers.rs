//! The HTTP headers that repeat parts of a message, for gateways that do not read bodies. Versions
//! of the protocol without a handshake require them; others ignore them. Pure.

use std::collections::{HashMap, HashSet};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

/// The annotation in a tool's schema that names the header of an argument.
const ANNOTATION: &str = "x-mcp-header";

/// The headers of the arguments of each tool.
#[derive(Debug, Default)]
pub(super) struct ArgumentHeaders(HashMap<String, Vec<ArgumentHeader>>);

#[derive(Debug, PartialEq)]
struct ArgumentHeader {
    /// The names of the fields that lead to the argument.
    path: Vec<String>,
    header: HeaderName,
}

impl ArgumentHeaders {
    /// Reads the annotations in a list of tools.
    pub(super) fn new(listed: &[Value]) -> Self {
        let headers = listed.iter().map(|tool| {
            let (mut path, mut headers) = (Vec::new(), Vec::new());
            collect(&tool["inputSchema"], &mut path, &mut headers);
            (tool["name"].as_str().unwrap_or_default().to_owned(), headers)
        });
        Self(headers.filter(|(_, headers)| !headers.is_empty()).collect())
    }

    /// Adds the headers of a message. A response has none.
    pub(super) fn add(&self, message: &Value, headers: &mut HeaderMap) {
        let Some(method) = message["method"].as_str() else { return };
        let params = &message["params"];
        let mut put = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(&encode(value)) {
                headers.insert(name, value);
            }
        };
        put(HeaderName::from_static("mcp-method"), method);
        let name = match method {
            "tools/call" => params["name"].as_str(),
            "resources/read" => params["uri"].as_str(),
            _ => None,
        };
        let Some(name) = name else { return };
        put(HeaderName::from_static("mcp-name"), name);
        for ArgumentHeader { path, header } in self.0.get(name).into_iter().flatten() {
            let value = path.iter().fold(&params["arguments"], |value, field| &value[field]);
            match value {
                Value::String(text) => put(header.clone(), text),
                Value::Bool(_) | Value::Number(_) => put(header.clone(), &value.to_string()),
                Value::Null | Value::Array(_) | Value::Object(_) => {}
            }
        }
    }
}

/// Returns true if the annotations of a tool are valid in the protocol. A tool with invalid ones
/// must not be used over HTTP: a gateway may read its headers differently from the server.
pub(super) fn has_valid_headers(tool: &Value) -> bool {
    are_valid(&tool["inputSchema"], &mut HashSet::new())
}

fn are_valid(schema: &Value, names: &mut HashSet<String>) -> bool {
    schema["properties"].as_object().into_iter().flatten().all(|(_, field)| {
        let is_valid = match &field[ANNOTATION] {
            Value::Null => true,
            Value::String(name) => {
                !name.is_empty()
                    && HeaderName::try_from(format!("mcp-param-{name}")).is_ok()
                    && matches!(field["type"].as_str(), Some("string" | "integer" | "boolean"))
                    && names.insert(name.to_ascii_lowercase())
            }
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
        };
        is_valid && are_valid(field, names)
    })
}

/// Collects the annotations of a schema's fields, which are reached through `properties` only.
fn collect(schema: &Value, path: &mut Vec<String>, headers: &mut Vec<ArgumentHeader>) {
    let none = Map::new();
    for (name, field) in schema["properties"].as_object().unwrap_or(&none) {
        path.push(name.clone());
        let header = field[ANNOTATION].as_str().map(|header| format!("mcp-param-{header}"));
        if let Some(header) = header.and_then(|header| HeaderName::try_from(header).ok()) {
            headers.push(ArgumentHeader { path: path.clone(), header });
        }
        collect(field, path, headers);
        path.pop();
    }
}

/// Encodes text that a header cannot contain as it is.
fn encode(text: &str) -> String {
    let is_plain = |letter: char| matches!(letter, ' '..='~');
    let looks_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
    if text.chars().all(is_plain) && text.trim() == text && !looks_encoded {
        return text.to_owned();
    }
    format!("=?base64?{}?=", BASE64_STANDARD.encode(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(listed: &Value, request: &Value) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        let listed = listed.as_array().expect("a list");
        ArgumentHeaders::new(listed).add(request, &mut headers);
        let text = |value: &HeaderValue| value.to_str().expect("plain").to_owned();
        headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    }

    #[test]
    fn a_call_states_its_tool_and_its_annotated_arguments() {
        let city = json!({ "type": "string", "x-mcp-header": "City" });
        let number = json!({ "type": "integer", "x-mcp-header": "Number" });
        let bad = json!({ "type": "string", "x-mcp-header": "not a name" });
        let place = json!({ "type": "object", "properties": { "city": city } });
        let fields = json!({ "place": place, "n": number, "bad": bad, "plain": {} });
        let listed = json!([{ "name": "find", "inputSchema": { "properties": fields } }]);
        let arguments = json!({ "place": { "city": "Köln" }, "n": 7, "bad": "x", "plain": "x" });
        let params = json!({ "name": "find", "arguments": arguments });
        let request = json!({ "method": "tools/call", "params": params });
        let wanted = [
            ("mcp-method", "tools/call"),
            ("mcp-name", "find"),
            ("mcp-param-city", "=?base64?S8O2bG4=?="),
            ("mcp-param-number", "7"),
        ];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(headers(&listed, &request), wanted);
    }

    #[test]
    fn a_tool_with_a_header_that_cannot_be_one_is_invalid() {
        let tool = |fields: Value| json!({ "inputSchema": { "properties": fields } });
        let field = |kind: &str, name: Value| json!({ "type": kind, "x-mcp-header": name });
        let inner = json!({ "type": "object", "properties": { "b": field("string", "X".into()) } });
        for fields in [
            json!({}),
            json!({ "a": field("string", "X".into()), "b": field("boolean", "Y".into()) }),
            json!({ "a": { "type": "number" }, "b": inner }),
        ] {
            assert!(has_valid_headers(&tool(fields.clone())), "{fields}");
        }
        for fields in [
            json!({ "a": field("string", "".into()) }),
            json!({ "a": field("string", "a b".into()) }),
            json!({ "a": field("string", 7.into()) }),
            json!({ "a": field("number", "X".into()) }),
            json!({ "a": field("object", "X".into()) }),
            json!({ "a": field("string", "X".into()), "b": field("string", "x".into()) }),
            json!({ "a": field("string", "x".into()), "b": inner }),
        ] {
            assert!(!has_valid_headers(&tool(fields.clone())), "{fields}");
        }
    }

    #[test]
    fn an_argument_that_is_not_given_has_no_header() {
        let city = json!({ "type": "string", "x-mcp-header": "City" });
        let listed = json!([{ "name": "find", "inputSchema": { "properties": { "city": city } } }]);
        let params = json!({ "name": "find", "arguments": { "city": null } });
        let request = json!({ "method": "tools/call", "params": params });
        assert_eq!(headers(&listed, &request).len(), 2);
        let read = json!({ "method": "resources/read", "params": { "uri": "x://a b" } });
        assert_eq!(headers(&listed, &read)[1], ("mcp-name".to_owned(), "x://a b".to_owned()));
        let list = json!({ "method": "tools/list", "params": {} });
        assert_eq!(headers(&listed, &list).len(), 1);
    }

    #[test]
    fn text_that_a_header_would_change_is_encoded() {
        for text in ["", "plain text", "~"] {
            assert_eq!(encode(text), text);
        }
        for text in [" before", "after ", "a\nb", "ö", "=?base64?eA==?="] {
            let encoded = encode(text);
            let inner = encoded.strip_prefix("=?base64?").and_then(|it| it.strip_suffix("?="));
            let bytes = BASE64_STANDARD.decode(inner.expect("encoded")).expect("base64");
            assert_eq!(bytes, text.as_bytes());
        }
    }
}
