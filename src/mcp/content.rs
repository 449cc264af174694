//! What a server answers, as the model can be shown it. Pure.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::transcript::Block;

/// The largest image that is shown, in bytes of base64: the service takes no larger one.
const LARGEST_IMAGE: usize = 5 << 20;

/// The kinds of images that models see.
const SHOWN: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub pieces: Vec<Piece>,
    pub is_error: bool,
}

/// A part of what came.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Block(Block),
    /// What a model cannot be shown: what it is, and its bytes.
    Data {
        what: String,
        bytes: Vec<u8>,
    },
}

impl Reply {
    pub(super) fn failure(message: impl Into<String>) -> Self {
        let text = format!("<tool_use_error>{}</tool_use_error>", message.into());
        Self { pieces: vec![Piece::Block(Block::text(text))], is_error: true }
    }

    /// Reads the result of `tools/call`, whatever shape it has.
    pub(super) fn of(result: &Value) -> Self {
        let is_error = result["isError"] == json!(true);
        let mut pieces: Vec<Piece> =
            result["content"].as_array().into_iter().flatten().map(piece).collect();
        if pieces.is_empty() {
            let structured = result.get("structuredContent").filter(|value| !value.is_null());
            pieces.push(text(match structured {
                Some(value) => value.to_string(),
                None => "(the tool returned nothing)".to_owned(),
            }));
        }
        Self { pieces, is_error }
    }
}

impl Reply {
    /// Reads the result of `resources/read`, whatever shape it has.
    pub(super) fn of_resource(result: &Value) -> Self {
        let contents = result["contents"].as_array().into_iter().flatten();
        let mut pieces: Vec<Piece> = contents.map(resource).collect();
        if pieces.is_empty() {
            pieces.push(text("(the resource is empty)"));
        }
        Self { pieces, is_error: false }
    }

    pub(super) fn of_text(words: impl Into<String>) -> Self {
        Self { pieces: vec![text(words)], is_error: false }
    }
}

fn text(text: impl Into<String>) -> Piece {
    Piece::Block(Block::text(text))
}

fn piece(item: &Value) -> Piece {
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

fn resource(resource: &Value) -> Piece {
    let field = |name: &str| resource[name].as_str().unwrap_or_default();
    if let Some(words) = resource["text"].as_str() {
        return text(format!("[{}]\n{words}", field("uri")));
    }
    match image(field("mimeType"), field("blob")) {
        Some(image) => image,
        None => data(field("uri"), field("mimeType"), field("blob")),
    }
}

fn image(kind: &str, data: &str) -> Option<Piece> {
    let fits = SHOWN.contains(&kind) && !data.is_empty() && data.len() <= LARGEST_IMAGE;
    // What is no base64 would have the service refuse all that follows.
    let sound = fits && BASE64_STANDARD.decode(data).is_ok();
    sound.then(|| {
        let source = json!({ "type": "base64", "media_type": kind, "data": data });
        Piece::Block(Block::Image { source })
    })
}

fn data(what: &str, kind: &str, data: &str) -> Piece {
    let kind = if kind.is_empty() { "of an unknown kind" } else { kind };
    let what = format!("{what} ({kind})");
    match BASE64_STANDARD.decode(data) {
        Ok(bytes) => Piece::Data { what, bytes },
        Err(_) => text(format!("[{what}, which is no valid base64, is left out]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(content: &Value) -> Piece {
        let reply = Reply::of(&json!({ "content": [content] }));
        assert!(!reply.is_error);
        let [piece] = <[Piece; 1]>::try_from(reply.pieces).expect("one for one");
        piece
    }

    #[test]
    fn an_image_that_the_service_would_refuse_is_not_sent_to_it() {
        let image =
            |kind: &str, data: &str| json!({ "type": "image", "mimeType": kind, "data": data });
        let shown = only(&image("image/png", "aGk="));
        let Piece::Block(Block::Image { source }) = shown else { panic!("{shown:?}") };
        assert_eq!(source, json!({ "type": "base64", "media_type": "image/png", "data": "aGk=" }));
        let bytes = b"hi".to_vec();
        let what = "an image (image/tiff)".to_owned();
        assert_eq!(only(&image("image/tiff", "aGk=")), Piece::Data { what, bytes });
        let broken = only(&image("image/png", "?"));
        assert!(matches!(&broken, Piece::Block(Block::Text { .. })), "{broken:?}");
        let large = "AAAA".repeat(LARGEST_IMAGE / 4 + 1);
        assert!(matches!(only(&image("image/png", &large)), Piece::Data { .. }));
    }

    #[test]
    fn every_shape_of_a_result_says_something() {
        let nothing = Reply::of(&json!({}));
        assert_eq!(nothing.pieces, [text("(the tool returned nothing)")]);
        let structured = Reply::of(&json!({ "content": [], "structuredContent": { "n": 1 } }));
        assert_eq!(structured.pieces, [text(r#"{"n":1}"#)]);
        let failed = Reply::of(&json!({ "content": [], "isError": true }));
        assert!(failed.is_error);
        let unknown = only(&json!({ "type": "hologram", "x": 1 }));
        assert_eq!(unknown, text(r#"{"type":"hologram","x":1}"#));
        let resource = json!({ "uri": "file:///a", "text": "words" });
        let resource = only(&json!({ "type": "resource", "resource": resource }));
        assert_eq!(resource, text("[file:///a]\nwords"));
    }
}
