//! The two forms in which a client sends its secret to an authorization server: in a header
//! (`client_secret_basic`) or in the body (`client_secret_post`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oauth2::HttpRequest;
use oauth2::url::form_urlencoded::{Serializer, byte_serialize, parse};
use reqwest::header::{AUTHORIZATION, HeaderValue};

/// Returns the request with the secret in the other form. A client is registered for one of the
/// forms, and the metadata name both, or neither. `None` if the request holds no secret.
pub(super) fn in_other_form(request: HttpRequest) -> Option<HttpRequest> {
    let (mut parts, body) = request.into_parts();
    let mut fields: Vec<(String, String)> = parse(&body).into_owned().collect();
    if let Some(header) = parts.headers.remove(AUTHORIZATION) {
        let (id, secret) = decode_basic(&header)?;
        fields.extend([("client_id".to_owned(), id), ("client_secret".to_owned(), secret)]);
    } else {
        let mut take = |name: &str| {
            let at = fields.iter().position(|(field, _)| field == name)?;
            Some(fields.remove(at).1)
        };
        let (id, secret) = take("client_id").zip(take("client_secret"))?;
        parts.headers.insert(AUTHORIZATION, encode_basic(&id, &secret)?);
    }
    let body = Serializer::new(String::new()).extend_pairs(fields).finish();
    Some(HttpRequest::from_parts(parts, body.into_bytes()))
}

/// Both words are form-encoded first (RFC 6749, section 2.3.1).
fn encode_basic(id: &str, secret: &str) -> Option<HeaderValue> {
    let encode = |word: &str| byte_serialize(word.as_bytes()).collect::<String>();
    let words = STANDARD.encode(format!("{}:{}", encode(id), encode(secret)));
    let mut header = HeaderValue::try_from(format!("Basic {words}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

fn decode_basic(header: &HeaderValue) -> Option<(String, String)> {
    let words = STANDARD.decode(header.to_str().ok()?.strip_prefix("Basic ")?).ok()?;
    let words = String::from_utf8(words).ok()?;
    let (id, secret) = words.split_once(':')?;
    let decode = |word: &str| parse(word.as_bytes()).next().map(|(word, _)| word.into_owned());
    decode(id).zip(decode(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_moves_between_header_and_body() {
        let body = "grant_type=x&client_id=c+%C3%A4&client_secret=s%3A+%26%2B%3D";
        let in_body = HttpRequest::new(body.into());
        let in_header = in_other_form(in_body.clone()).expect("it has a secret");
        assert_eq!(in_header.body(), b"grant_type=x");
        assert_eq!(
            decode_basic(&in_header.headers()[AUTHORIZATION]),
            Some(("c \u{e4}".to_owned(), "s: &+=".to_owned()))
        );
        let again = in_other_form(in_header).expect("it has a secret");
        assert_eq!((again.body(), again.headers()), (in_body.body(), in_body.headers()));
        assert!(in_other_form(HttpRequest::new(b"client_id=c".to_vec())).is_none());
    }
}
