//! Converts a server's results to content blocks for the model. Pure.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::transcript::Block;

/// The largest image that is passed on, in bytes of base64: the API rejects larger ones.
const LARGEST_IMAGE: usize = 5 << 20;

/// The image types that models accept.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// How much of an invalid result is quoted, in characters.
const LONGEST_EXCERPT: usize = 500;

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallReply {
    pub parts: Vec<ContentPart>,
    pub is_error: bool,
}

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
    pub(super) fn error(message: impl Into<String>) -> Self {
        let text = format!("<tool_use_error>{}</tool_use_error>", message.into());
        Self { parts: vec![ContentPart::Block(Block::text(text))], is_error: true }
    }

    /// Converts the result of `tools/call`, whatever shape it has. An invalid result is an error:
    /// whether the call was executed is unknown.
    pub(super) fn from_call_result(result: &Value) -> Self {
        let content: Vec<&Value> = match &result["content"] {
            Value::Array(items) => items.iter().collect(),
            // Against the protocol, but still the tool's output.
            one @ (Value::String(_) | Value::Object(_)) => vec![one],
            Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
        };
        let structured = result.get("structuredContent").filter(|value| !value.is_null());
        if !result["content"].is_array() && content.is_empty() && structured.is_none() {
            return Self::error(describe_invalid_result(result));
        }
        let mut pieces: Vec<ContentPart> =
            content.into_iter().map(convert_item).filter(is_not_blank).collect();
        if pieces.is_empty() {
            pieces.push(text(match structured {
                Some(value) => value.to_string(),
                None => "(the tool returned nothing)".to_owned(),
            }));
        }
        Self { parts: pieces, is_error: is_error_flag(&result["isError"]) }
    }
}

/// Whether a result is an error. An invalid flag counts as an error: a failure must not be reported
/// as a success.
fn is_error_flag(flag: &Value) -> bool {
    match flag {
        Value::Bool(flag) => *flag,
        Value::Null => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(words) => words != "false",
        Value::Array(_) | Value::Object(_) => true,
    }
}

/// Describes an answer that is not a result of a call.
fn describe_invalid_result(result: &Value) -> String {
    if result["resultType"] == "input_required" {
        return "the tool asks for more input in the middle of the call, which an unattended \
                run cannot give: the call was not done"
            .to_owned();
    }
    let shown: String = result.to_string().chars().take(LONGEST_EXCERPT).collect();
    format!(
        "the server's answer is not a result of a call: {shown}. Whether the call had an \
         effect is unknown: check before you call again."
    )
}

/// The API rejects blank text.
fn is_not_blank(piece: &ContentPart) -> bool {
    !matches!(piece, ContentPart::Block(Block::Text { text }) if text.trim().is_empty())
}

impl CallReply {
    /// Converts the result of `resources/read`, whatever shape it has.
    pub(super) fn from_resource(result: &Value) -> Self {
        let contents = result["contents"].as_array().into_iter().flatten();
        let mut parts: Vec<ContentPart> = contents.map(resource).filter(is_not_blank).collect();
        if parts.is_empty() {
            parts.push(text("(the resource is empty)"));
        }
        Self { parts, is_error: false }
    }

    pub(super) fn from_text(words: impl Into<String>) -> Self {
        Self { parts: vec![text(words)], is_error: false }
    }
}

fn text(text: impl Into<String>) -> ContentPart {
    ContentPart::Block(Block::text(text))
}

fn convert_item(item: &Value) -> ContentPart {
    if let Some(words) = item.as_str() {
        return text(words);
    }
    let field = |name: &str| item[name].as_str().unwrap_or_default();
    match field("type") {
        "text" => text(field("text")),
        "image" => match image(field("mimeType"), field("data")) {
            Some(image) => image,
            None => data("an image", field("mimeType"), field("data")),
        },
        "audio" => data("a recording", field("mimeType"), field("data")),
        "resource" => resource(&item["resource"]),
        "resource_link" => {
            let about = [field("name"), field("description"), field("mimeType")];
            let about: Vec<&str> = about.into_iter().filter(|part| !part.is_empty()).collect();
            text(format!("[A link to {}: {}]", field("uri"), about.join(", ")))
        }
        _ => text(item.to_string()),
    }
}

fn resource(resource: &Value) -> ContentPart {
    let field = |name: &str| resource[name].as_str().unwrap_or_default();
    if let Some(words) = resource["text"].as_str() {
        return text(format!("[{}]\n{words}", field("uri")));
    }
    match image(field("mimeType"), field("blob")) {
        Some(image) => image,
        None => data(field("uri"), field("mimeType"), field("blob")),
    }
}

fn image(kind: &str, data: &str) -> Option<ContentPart> {
    let fits = IMAGE_TYPES.contains(&kind) && !data.is_empty() && data.len() <= LARGEST_IMAGE;
    // Invalid base64 would make the API reject every later request.
    let sound = fits && BASE64_STANDARD.decode(data).is_ok();
    sound.then(|| {
        let source = json!({ "type": "base64", "media_type": kind, "data": data });
        ContentPart::Block(Block::Image { source })
    })
}

fn data(what: &str, kind: &str, data: &str) -> ContentPart {
    let kind = if kind.is_empty() { "of an unknown kind" } else { kind };
    let what = format!("{what} ({kind})");
    match BASE64_STANDARD.decode(data) {
        Ok(bytes) => ContentPart::Data { what, bytes },
        Err(_) => text(format!("[{what}, which is not valid base64, is left out]")),
    }
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
    fn an_image_that_the_service_would_refuse_is_not_sent_to_it() {
        let image =
            |kind: &str, data: &str| json!({ "type": "image", "mimeType": kind, "data": data });
        let shown = only(&image("image/png", "aGk="));
        let ContentPart::Block(Block::Image { source }) = shown else { panic!("{shown:?}") };
        assert_eq!(source, json!({ "type": "base64", "media_type": "image/png", "data": "aGk=" }));
        let bytes = b"hi".to_vec();
        let what = "an image (image/tiff)".to_owned();
        assert_eq!(only(&image("image/tiff", "aGk=")), ContentPart::Data { what, bytes });
        let broken = only(&image("image/png", "?"));
        assert!(matches!(&broken, ContentPart::Block(Block::Text { .. })), "{broken:?}");
        let large = "AAAA".repeat(LARGEST_IMAGE / 4 + 1);
        assert!(matches!(only(&image("image/png", &large)), ContentPart::Data { .. }));
    }

    #[test]
    fn every_tool_result_becomes_non_empty_content() {
        let nothing = CallReply::from_call_result(&json!({ "content": [] }));
        assert_eq!(nothing.parts, [text("(the tool returned nothing)")]);
        let blank =
            CallReply::from_call_result(&json!({ "content": [{ "type": "text", "text": " \n" }] }));
        assert_eq!(blank, nothing, "the API rejects blank text");
        let structured =
            CallReply::from_call_result(&json!({ "content": [], "structuredContent": { "n": 1 } }));
        assert_eq!(structured.parts, [text(r#"{"n":1}"#)]);
        let failed = CallReply::from_call_result(&json!({ "content": [], "isError": true }));
        assert!(failed.is_error);
        let unknown = only(&json!({ "type": "hologram", "x": 1 }));
        assert_eq!(unknown, text(r#"{"type":"hologram","x":1}"#));
        let resource = json!({ "uri": "file:///a", "text": "words" });
        let resource = only(&json!({ "type": "resource", "resource": resource }));
        assert_eq!(resource, text("[file:///a]\nwords"));
    }

    #[test]
    fn an_invalid_tool_result_is_an_error_and_is_quoted() {
        for none in [
            json!({ "foo": 1 }),
            json!({}),
            json!([1]),
            json!("well"),
            json!({ "content": 7 }),
            json!({ "content": null, "structuredContent": null }),
            json!({ "isError": false }),
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
            let result = json!({ "content": [], "isError": flag });
            assert_eq!(CallReply::from_call_result(&result).is_error, wanted, "{flag}");
        }
    }
}
