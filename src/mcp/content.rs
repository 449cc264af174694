//! Converts a server's results to content blocks for the model. Pure.

use std::slice;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::transcript::{Block, with_error_tags};

use super::rpc::INPUT_REQUIRED;

/// Accepts base64 with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The most characters of an invalid result that are quoted.
const LONGEST_EXCERPT: usize = 500;

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallReply {
    pub parts: Vec<ContentPart>,
    pub is_error: bool,
}

/// The keys of a result without content.
const BARE: [&str; 3] = ["_meta", "isError", "is_error"];

/// A part of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentPart {
    Block(Block),
    /// Data that cannot be shown to the model: its description, and its bytes.
    Data {
        what: String,
        bytes: Vec<u8>,
    },
}

impl CallReply {
    pub(super) fn error(message: impl AsRef<str>) -> Self {
        let text = with_error_tags(message.as_ref());
        Self { parts: vec![ContentPart::Block(Block::text(text))], is_error: true }
    }

    /// Converts the result of `tools/call`, of any shape. An invalid result is an error: whether
    /// the call was executed is unknown.
    pub(super) fn from_call_result(result: &Value) -> Self {
        let inner = &result["result"];
        let is_wrapped = result.get("content").is_none() && inner["content"].is_array();
        let result = if is_wrapped { inner } else { result };
        // The first version of the protocol has `toolResult`.
        let key = if result.get("content").is_none() { "toolResult" } else { "content" };
        let content: Vec<&Value> = match &result[key] {
            Value::Array(items) => items.iter().collect(),
            // This violates the protocol, but is still the tool's output.
            one @ (Value::String(_) | Value::Object(_)) => vec![one],
            Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
        };
        let structured = result.get("structuredContent").filter(|value| !value.is_null());
        // Servers written in Go send an empty list as null, and others nothing at all.
        let is_bare =
            result.as_object().is_some_and(|it| it.keys().all(|key| BARE.contains(&key.as_str())));
        let is_empty =
            is_bare || result[key].is_array() || result.get("content") == Some(&Value::Null);
        if !is_empty && content.is_empty() && structured.is_none() {
            return Self::error(describe_invalid_result(result));
        }
        let mut pieces: Vec<ContentPart> =
            content.into_iter().map(convert_item).filter(is_not_blank).collect();
        // A text may be a summary, and the data only here.
        pieces.extend(
            structured.filter(|value| !is_shown(value, &pieces)).map(Value::to_string).map(text),
        );
        // It is not of the protocol, but says that the tool failed.
        let error = Some(&result["error"]).filter(|error| is_stated(error));
        pieces.extend(error.filter(|_| pieces.is_empty()).map(convert_item));
        if pieces.is_empty() {
            pieces.push(text("(the tool returned nothing)"));
        }
        let is_error = error.is_some()
            || ["isError", "is_error"].iter().any(|flag| is_error_flag(&result[*flag]));
        Self { parts: pieces, is_error }
    }
}

/// Returns true if the parts of a result already contain its structured content: as JSON or, for a
/// value that a server has wrapped in an object, as the text of the value or of its items.
fn is_shown(structured: &Value, pieces: &[ContentPart]) -> bool {
    let is_text = |value: &Value| {
        pieces.iter().any(|piece| match piece {
            ContentPart::Block(Block::Text { text }) => {
                value.as_str() == Some(text.as_str())
                    || serde_json::from_str::<Value>(text).is_ok_and(|shown| shown == *value)
            }
            ContentPart::Block(_) | ContentPart::Data { .. } => false,
        })
    };
    let only = structured.as_object().filter(|object| object.len() == 1);
    let wrapped = only.and_then(|object| object.get("result"));
    let are_items = |value: &Value| {
        value.as_array().is_some_and(|items| !items.is_empty() && items.iter().all(is_text))
    };
    is_text(structured) || wrapped.is_some_and(|value| is_text(value) || are_items(value))
}

/// Returns true if a result is an error. An invalid flag counts as an error: a failure must not be
/// reported as a success.
fn is_error_flag(flag: &Value) -> bool {
    match flag {
        Value::Bool(flag) => *flag,
        Value::Null => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(words) => words != "false",
        Value::Array(_) | Value::Object(_) => true,
    }
}

/// True if the field of an error says something.
fn is_stated(error: &Value) -> bool {
    match error {
        Value::String(text) => !text.trim().is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
    }
}

/// Describes an answer that is not a result of a call.
fn describe_invalid_result(result: &Value) -> String {
    if result["resultType"] == INPUT_REQUIRED {
        return "the tool asks for more input in the middle of the call, which this run cannot \
                give: the call was not done"
            .to_owned();
    }
    let shown: String = result.to_string().chars().take(LONGEST_EXCERPT).collect();
    format!(
        "the server's answer is not a result of a call: {shown}. Whether the call had an \
         effect is unknown: check before you call again."
    )
}

/// Returns true unless a part is blank text, which the API rejects.
fn is_not_blank(piece: &ContentPart) -> bool {
    !matches!(piece, ContentPart::Block(Block::Text { text }) if text.trim().is_empty())
}

impl CallReply {
    /// Converts the result of `resources/read`, of any shape.
    pub(super) fn from_resource(result: &Value) -> Self {
        let contents = match &result["contents"] {
            Value::Array(items) => items.as_slice(),
            // This violates the protocol, but is still the content.
            one @ (Value::String(_) | Value::Object(_)) => slice::from_ref(one),
            Value::Null | Value::Bool(_) | Value::Number(_) => &[],
        };
        let contents = contents.iter();
        let mut parts: Vec<ContentPart> = contents.map(resource).filter(is_not_blank).collect();
        if parts.is_empty() {
            parts.push(text("(the resource is empty)"));
        }
        Self { parts, is_error: false }
    }

    pub(super) fn from_text(content: impl Into<String>) -> Self {
        Self { parts: vec![text(content)], is_error: false }
    }
}

fn text(text: impl Into<String>) -> ContentPart {
    ContentPart::Block(Block::text(text))
}

pub(super) fn convert_item(item: &Value) -> ContentPart {
    if let Some(words) = item.as_str() {
        return text(words);
    }
    let field = |name: &str| item[name].as_str().unwrap_or_default();
    let known = match field("type") {
        "text" => item["text"].as_str().map(text),
        "image" => encoded(item).map(|(kind, data)| image("an image", kind, data)),
        "audio" => encoded(item).map(|(kind, bytes)| data("a recording", kind, bytes)),
        "resource" if item["resource"].is_null() => Some(resource(item)),
        "resource" => Some(resource(&item["resource"])),
        "resource_link" => item["uri"].as_str().map(|uri| {
            let about = [field("name"), field("description"), field("mimeType")];
            let about: Vec<&str> = about.into_iter().filter(|part| !part.is_empty()).collect();
            text(format!("[A link to {uri}: {}]", about.join(", ")))
        }),
        _ => None,
    };
    known.unwrap_or_else(|| as_json(item))
}

/// Shows an item that does not follow the protocol as JSON: a tool's output must not get lost.
fn as_json(item: &Value) -> ContentPart {
    let has_content = item.as_object().is_none_or(|fields| fields.keys().any(|key| key != "type"));
    text(if has_content { item.to_string() } else { String::new() })
}

/// The media type and the encoded data of an item, also in the form of the Messages API.
fn encoded(item: &Value) -> Option<(&str, &str)> {
    let source = &item["source"];
    let data = item["data"].as_str().or_else(|| source["data"].as_str())?;
    let kinds = [&item["mimeType"], &source["media_type"], &source["mimeType"]];
    Some((kinds.into_iter().find_map(Value::as_str).unwrap_or_default(), data))
}

fn resource(resource: &Value) -> ContentPart {
    if let Some(words) = resource.as_str() {
        return text(words);
    }
    let field = |name: &str| resource[name].as_str().unwrap_or_default();
    if let Some(words) = resource["text"].as_str() {
        return text(format!("[{}]\n{words}", field("uri")));
    }
    let Some(blob) = resource["blob"].as_str() else { return as_json(resource) };
    if field("mimeType").trim_start().to_ascii_lowercase().starts_with("image/") {
        return image(field("uri"), field("mimeType"), blob);
    }
    data(field("uri"), field("mimeType"), blob)
}

/// Converts an image of any declared type: its bytes decide whether it can be shown, when the
/// result is prepared for the model.
fn image(what: &str, kind: &str, text: &str) -> ContentPart {
    match decode(text) {
        Some(bytes) if !bytes.is_empty() => {
            let media_type = kind.split(';').next().unwrap_or_default().trim();
            let data = BASE64_STANDARD.encode(bytes);
            let source = json!({ "type": "base64", "media_type": media_type, "data": data });
            ContentPart::Block(Block::Image { source })
        }
        Some(_) | None => data(what, kind, text),
    }
}

fn data(what: &str, kind: &str, data: &str) -> ContentPart {
    let kind = if kind.is_empty() { "of an unknown kind" } else { kind };
    let what = format!("{what} ({kind})");
    match decode(data) {
        Some(bytes) => ContentPart::Data { what, bytes },
        None => text(format!("[{what}, which is not valid base64, is left out]")),
    }
}

/// Decodes base64 in the forms that servers send: with line feeds, in either alphabet, as a `data:`
/// URL.
fn decode(text: &str) -> Option<Vec<u8>> {
    let is_url = |(head, _): &(&str, &str)| head.starts_with("data:") && head.ends_with(";base64");
    let text = text.trim().split_once(',').filter(is_url).map_or(text, |(_, data)| data);
    let letter = |byte: u8| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => other,
    };
    let plain = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).map(letter);
    BASE64.decode(plain.collect::<Vec<u8>>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(content: &Value) -> ContentPart {
        let reply = CallReply::from_call_result(&json!({ "content": [content] }));
        assert!(!reply.is_error);
        let [piece] = <[ContentPart; 1]>::try_from(reply.parts).expect("one for one");
        piece
    }

    #[test]
    fn an_image_is_decoded_as_servers_write_it() {
        let image =
            |kind: &str, data: &str| json!({ "type": "image", "mimeType": kind, "data": data });
        for (kind, given, media_type, wanted) in [
            ("image/png", "aGk=", "image/png", "aGk="),
            ("image/jpg", "aGk", "image/jpg", "aGk="),
            ("image/png; charset=binary", " a\r\nGk=\n", "image/png", "aGk="),
            ("image/png", "-_-_", "image/png", "+/+/"),
            ("", "data:image/png;base64,aGk=", "", "aGk="),
        ] {
            let shown = only(&image(kind, given));
            let ContentPart::Block(Block::Image { source }) = shown else { panic!("{shown:?}") };
            let wanted = json!({ "type": "base64", "media_type": media_type, "data": wanted });
            assert_eq!(source, wanted, "{kind} {given}");
        }
        for broken in ["?", ""] {
            let shown = only(&image("image/png", broken));
            assert!(!matches!(&shown, ContentPart::Block(Block::Image { .. })), "{shown:?}");
        }
        let blob = json!({ "uri": "x://a", "mimeType": "Image/JPG", "blob": "aG\nk=" });
        let shown = only(&json!({ "type": "resource", "resource": blob }));
        assert!(matches!(shown, ContentPart::Block(Block::Image { .. })), "{shown:?}");
        let blob = json!({ "uri": "x://a", "mimeType": "audio/wav", "blob": "aG\nk=" });
        let shown = only(&json!({ "type": "resource", "resource": blob }));
        let what = "x://a (audio/wav)".to_owned();
        assert_eq!(shown, ContentPart::Data { what, bytes: b"hi".to_vec() });
    }

    #[test]
    fn every_tool_result_becomes_non_empty_content() {
        let nothing = CallReply::from_call_result(&json!({ "content": [] }));
        assert_eq!(nothing.parts, [text("(the tool returned nothing)")]);
        let blank =
            CallReply::from_call_result(&json!({ "content": [{ "type": "text", "text": " \n" }] }));
        assert_eq!(blank, nothing, "the API rejects blank text");
        let null = CallReply::from_call_result(&json!({ "content": null, "isError": false }));
        assert_eq!(null, nothing);
        let structured =
            CallReply::from_call_result(&json!({ "content": [], "structuredContent": { "n": 1 } }));
        assert_eq!(structured.parts, [text(r#"{"n":1}"#)]);
        let both = |words: &[&str], structured: Value| {
            let content: Vec<Value> =
                words.iter().map(|text| json!({ "type": "text", "text": text })).collect();
            let result = json!({ "content": content, "structuredContent": structured });
            CallReply::from_call_result(&result).parts.len() - words.len()
        };
        assert_eq!(both(&["Found 3 users"], json!({ "users": [{ "id": 1 }] })), 1);
        assert_eq!(both(&["Found"], json!({ "result": "Found 3 users" })), 1);
        for (words, structured) in [
            (&["{ \"a\": [1],\n\"b\": 2 }"][..], json!({ "b": 2, "a": [1] })),
            (&["Some of it", "{\"n\": 1}"], json!({ "n": 1 })),
            (&["plain"], json!({ "result": "plain" })),
            (&["4"], json!({ "result": 4 })),
            (&["a", "{\"b\": 1}"], json!({ "result": ["a", { "b": 1 }] })),
            (&["x"], Value::Null),
        ] {
            assert_eq!(both(words, structured.clone()), 0, "{structured}");
        }
        let failed = CallReply::from_call_result(&json!({ "content": [], "isError": true }));
        assert!(failed.is_error);
        let unknown = only(&json!({ "type": "hologram", "x": 1 }));
        assert_eq!(unknown, text(r#"{"type":"hologram","x":1}"#));
        let resource = json!({ "uri": "file:///a", "text": "words" });
        let resource = only(&json!({ "type": "resource", "resource": resource }));
        assert_eq!(resource, text("[file:///a]\nwords"));
    }

    #[test]
    fn content_that_is_not_as_the_protocol_has_it_is_kept() {
        for item in [
            json!({ "type": "text", "text": { "needle": 1 } }),
            json!({ "type": "text", "text": ["needle"] }),
            json!({ "type": "text", "content": "needle" }),
            json!({ "type": "image", "url": "https://x.test/needle.png" }),
            json!({ "type": "audio", "data": { "needle": 1 } }),
            json!({ "type": "resource_link", "url": "needle" }),
        ] {
            assert_eq!(only(&item), text(item.to_string()));
        }
        let odd = json!({ "uri": "a://b", "text": { "needle": 1 } });
        assert_eq!(only(&json!({ "type": "resource", "resource": odd })), text(odd.to_string()));
        let flat = json!({ "type": "resource", "uri": "a://b", "text": "needle" });
        assert_eq!(only(&flat), text("[a://b]\nneedle"));
        assert_eq!(only(&json!({ "type": "resource", "resource": "needle" })), text("needle"));
        let source = json!({ "type": "base64", "media_type": "image/png", "data": "aGk=" });
        let shown = only(&json!({ "type": "image", "source": source }));
        assert_eq!(shown, ContentPart::Block(Block::Image { source }));
        let one = json!({ "contents": { "uri": "a://b", "text": "needle" } });
        assert_eq!(CallReply::from_resource(&one).parts, [text("[a://b]\nneedle")]);
        let words = json!({ "contents": "needle" });
        assert_eq!(CallReply::from_resource(&words).parts, [text("needle")]);
    }

    #[test]
    fn an_invalid_tool_result_is_an_error_and_is_quoted() {
        for none in [
            json!({ "foo": 1 }),
            json!([1]),
            json!("well"),
            json!({ "content": 7 }),
            json!({ "tools": [] }),
        ] {
            let reply = CallReply::from_call_result(&none);
            assert!(reply.is_error, "{none}");
            let shown = format!("{:?}", reply.parts).replace('\\', "");
            assert!(shown.contains("not a result of") && shown.contains("unknown"), "{shown}");
            assert!(shown.contains(&none.to_string()), "{shown}");
        }
        let long = CallReply::from_call_result(&json!({ "foo": "x".repeat(10_000) }));
        assert!(format!("{long:?}").len() < 1_000, "bounded");
        let asks = CallReply::from_call_result(
            &json!({ "resultType": "input_required", "inputRequests": {} }),
        );
        assert!(asks.is_error && format!("{asks:?}").contains("asks for more input"));
    }

    #[test]
    fn a_tool_result_of_an_unexpected_shape_is_still_converted() {
        let words = json!({ "content": "well" });
        assert_eq!(CallReply::from_call_result(&words).parts, [text("well")]);
        let oldest = json!({ "toolResult": "well" });
        assert_eq!(CallReply::from_call_result(&oldest).parts, [text("well")]);
        let one = json!({ "content": { "type": "text", "text": "well" } });
        assert_eq!(CallReply::from_call_result(&one).parts, [text("well")]);
        let mixed = json!({ "content": ["a", { "type": "text" }, 7] });
        assert_eq!(CallReply::from_call_result(&mixed).parts, [text("a"), text("7")]);
        for (flag, wanted) in [
            (json!(true), true),
            (json!(false), false),
            (json!(null), false),
            (json!("false"), false),
            (json!("true"), true),
            (json!(0), false),
            (json!(1), true),
            (json!({}), true),
        ] {
            for key in ["isError", "is_error"] {
                let result = json!({ "content": [], key: flag });
                assert_eq!(CallReply::from_call_result(&result).is_error, wanted, "{key} {flag}");
            }
        }
    }
}
