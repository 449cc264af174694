//! Signs requests to AWS (Signature Version 4).

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use reqwest::Request;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};

use super::super::secret::Secret;
use super::token::AwsKeys;

/// Adds the headers of the signature to a request whose body is in memory. `None` if the request or
/// a key has characters that cannot be signed.
pub(in super::super) fn sign_request(
    request: &mut Request,
    keys: &AwsKeys,
    region: &str,
    service: &str,
    now: SystemTime,
) -> Option<()> {
    let session = keys.session.as_ref().map(|session| session.reveal().to_owned());
    let identity =
        Credentials::new(keys.id.clone(), keys.secret.reveal(), session, None, "outlast").into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(service)
        .time(now)
        .settings(SigningSettings::default())
        .build()
        .ok()?;
    let body = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default();
    // Proxies and gateways may change other headers on the way.
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let signed = kind.map(|kind| (CONTENT_TYPE.as_str(), kind));
    let signable = SignableRequest::new(
        request.method().as_str(),
        request.url().as_str(),
        signed.into_iter(),
        SignableBody::Bytes(body),
    );
    let (instructions, _) = sign(signable.ok()?, &params.into()).ok()?.into_parts();
    let headers: Vec<(HeaderName, HeaderValue)> = instructions
        .headers()
        .map(|(name, value)| {
            let mut value = HeaderValue::from_str(value).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
        })
        .collect::<Option<_>>()?;
    request.headers_mut().extend(headers);
    Some(())
}

/// True if keys can be sent in headers.
pub(super) fn are_usable(keys: &AwsKeys) -> bool {
    HeaderValue::from_str(&keys.id).is_ok() && keys.session.as_ref().is_none_or(Secret::fits_header)
}
