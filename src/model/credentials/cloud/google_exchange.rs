//! Fetches Google access tokens from their source.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use reqwest::Method;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};

use super::super::files::{FILE_BYTES_MAX, unblocked};
use super::google::{GoogleIdentity, GoogleSource, no_credentials};
use super::google_program;
use super::token::{CloudToken, TokenKind, expiry_in, parse_expiry};
use super::token_http::{TokenCall, TokenContext, has_answered, invalid_answer};
use crate::json;
use crate::model::headers::wall_clock;
use crate::process::file_reads;
use crate::recovery::Fault;

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
/// Lifetime of an assertion of a service account.
const ASSERTION_LIFETIME: Duration = Duration::from_hours(1);
/// Maximum nesting of credentials within others.
const DEPTH_MAX: u8 = 3;

/// Fetches a token of an identity from its source.
pub(super) async fn fetch(
    identity: &GoogleIdentity,
    context: &TokenContext,
) -> Result<CloudToken, Box<Fault>> {
    match &unblocked(identity, GoogleIdentity::plan).await? {
        GoogleSource::File { value, .. } => {
            let token = of_file(identity, value, context, DEPTH_MAX).await?;
            let project = value["quota_project_id"].as_str().map(str::to_owned);
            Ok(CloudToken { quota_project: project, ..token })
        }
        GoogleSource::Metadata { url } => of_metadata(url, context).await,
    }
}

async fn of_file(
    identity: &GoogleIdentity,
    value: &Value,
    context: &TokenContext,
    depth: u8,
) -> Result<CloudToken, Box<Fault>> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(no_credentials("the Google credentials are nested too deeply".to_owned()));
    };
    match value["type"].as_str().unwrap_or_default() {
        "service_account" => of_service_account(value, context).await,
        "authorized_user" => of_user(value, context).await,
        "external_account" => of_external_account(identity, value, context).await,
        "impersonated_service_account" => {
            let source = &value["source_credentials"];
            let source = Box::pin(of_file(identity, source, context, depth)).await?;
            let url = text(value, "service_account_impersonation_url")?;
            impersonate(url, value, &source, context).await
        }
        other => Err(no_credentials(format!(
            "the Google credentials are of the kind {other:?}, which is not supported; use a \
             service account, a workload identity federation or gcloud auth application-default \
             login"
        ))),
    }
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str, Box<Fault>> {
    value[field].as_str().filter(|text| !text.is_empty()).ok_or_else(|| {
        no_credentials(format!("the Google credentials lack {field:?}; create them again"))
    })
}

/// Signs an assertion with the key of a service account, and exchanges it for a token (RFC 7523).
async fn of_service_account(
    value: &Value,
    context: &TokenContext,
) -> Result<CloudToken, Box<Fault>> {
    let url = value["token_uri"].as_str().unwrap_or(TOKEN_URL);
    let assertion = assertion(value, url, wall_clock())?;
    let remedy = "check whether the key of the service account was deleted, and the clock";
    let call = TokenCall::new("Google's token service", Method::POST, url, remedy)?.form([
        ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        ("assertion", &assertion),
    ]);
    of_answer(&context.http.send_for_json(call).await?)
}

/// A JSON web token that names the service account, signed with RS256.
fn assertion(value: &Value, audience: &str, now: SystemTime) -> Result<String, Box<Fault>> {
    let invalid = || {
        let message = "the private key of the service account is not valid; create a new one";
        no_credentials(message.to_owned())
    };
    let pem = text(value, "private_key")?;
    let begin = "-----BEGIN PRIVATE KEY-----";
    let inner = pem.split_once(begin).and_then(|(_, rest)| rest.split_once("-----END"));
    let (inner, _) = inner.ok_or_else(invalid)?;
    let inner: String = inner.split_whitespace().collect();
    let der = STANDARD.decode(inner).map_err(|_| invalid())?;
    let key = RsaKeyPair::from_pkcs8(&der).map_err(|_| invalid())?;
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let header = json!({
        "alg": "RS256",
        "typ": "JWT",
        "kid": value["private_key_id"].as_str().unwrap_or_default(),
    });
    let account = text(value, "client_email")?;
    let claims = json!({
        "iss": account,
        "sub": account,
        "scope": SCOPE,
        "aud": audience,
        "iat": since.as_secs(),
        "exp": (since + ASSERTION_LIFETIME).as_secs(),
    });
    let [header, claims] = [header, claims].map(|it| URL_SAFE_NO_PAD.encode(it.to_string()));
    let signed = format!("{header}.{claims}");
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
        .map_err(|_| invalid())?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

async fn of_user(value: &Value, context: &TokenContext) -> Result<CloudToken, Box<Fault>> {
    let url = value["token_uri"].as_str().unwrap_or(TOKEN_URL);
    let remedy = "run gcloud auth application-default login";
    let call = TokenCall::new("Google's token service", Method::POST, url, remedy)?.form([
        ("grant_type", "refresh_token"),
        ("client_id", text(value, "client_id")?),
        ("client_secret", text(value, "client_secret")?),
        ("refresh_token", text(value, "refresh_token")?),
    ]);
    of_answer(&context.http.send_for_json(call).await?)
}

/// Workload identity federation: exchanges a token of another issuer at Google's STS (RFC 8693),
/// and perhaps the result for the token of a service account.
async fn of_external_account(
    identity: &GoogleIdentity,
    value: &Value,
    context: &TokenContext,
) -> Result<CloudToken, Box<Fault>> {
    let subject = match &value["credential_source"] {
        source if source["executable"]["command"].is_string() => {
            google_program::token(identity, value, context).await?
        }
        source => subject_token(source, context).await?,
    };
    let remedy = "check the provider of the workload identity pool, and whether the token expired";
    let url = text(value, "token_url")?;
    let call = TokenCall::new("Google's STS", Method::POST, url, remedy)?.form([
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("audience", text(value, "audience")?),
        ("scope", SCOPE),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
        ("subject_token", &subject),
        ("subject_token_type", text(value, "subject_token_type")?),
    ]);
    let token = of_answer(&context.http.send_for_json(call).await?)?;
    match value["service_account_impersonation_url"].as_str() {
        Some(url) => impersonate(url, value, &token, context).await,
        None => Ok(token),
    }
}

/// The token of the other issuer, from a file or an address.
async fn subject_token(source: &Value, context: &TokenContext) -> Result<String, Box<Fault>> {
    let raw = if let Some(path) = source["file"].as_str() {
        file_reads::read_unblocked(path.as_ref(), FILE_BYTES_MAX).await.map_err(|error| {
            no_credentials(format!("the token file {path} cannot be read: {error}"))
        })?
    } else if let Some(url) = source["url"].as_str() {
        let remedy = "check the credential_source of the Google credentials";
        let mut call = TokenCall::local("the issuer of the identity", Method::GET, url, remedy)?;
        let headers = source["headers"].as_object().into_iter().flatten();
        for (name, value) in headers.filter_map(|(name, it)| Some((name, it.as_str()?))) {
            call = call.header(name, value);
        }
        context.http.send(call.with_service_timeout()).await?
    } else {
        return Err(no_credentials(
            "the credential_source of the Google credentials has no file, no url and no \
             executable, and other sources are not supported"
                .to_owned(),
        ));
    };
    let raw = json::decode(&raw).trim().to_owned();
    let field = source["format"]["subject_token_field_name"].as_str();
    let token = match field.filter(|_| source["format"]["type"] == "json") {
        None => raw,
        Some(field) => {
            let value: Value = json::read_str(&raw).unwrap_or_default();
            value[field].as_str().unwrap_or_default().to_owned()
        }
    };
    if token.is_empty() {
        return Err(no_credentials("the credential_source gave no token".to_owned()));
    }
    Ok(token)
}

/// Exchanges a token for one of a service account.
async fn impersonate(
    url: &str,
    value: &Value,
    source: &CloudToken,
    context: &TokenContext,
) -> Result<CloudToken, Box<Fault>> {
    let TokenKind::Bearer(token) = &source.kind else {
        return Err(invalid_answer("Google's token service"));
    };
    let remedy = "grant roles/iam.workloadIdentityUser or roles/iam.serviceAccountTokenCreator";
    let mut body = json!({ "scope": [SCOPE] });
    if value["delegates"].is_array() {
        body["delegates"] = value["delegates"].clone();
    }
    let call = TokenCall::new("Google's IAM credentials service", Method::POST, url, remedy)?
        .header("authorization", &format!("Bearer {}", token.reveal()))
        .json(&body);
    let answer = context.http.send_for_json(call).await?;
    let token = answer["accessToken"].as_str();
    let token = token.ok_or_else(|| invalid_answer("Google's IAM credentials service"))?;
    Ok(CloudToken::bearer(token, parse_expiry(&answer["expireTime"])))
}

async fn of_metadata(url: &str, context: &TokenContext) -> Result<CloudToken, Box<Fault>> {
    let url = format!("{url}/computeMetadata/v1/instance/service-accounts/default/token");
    let remedy = "attach a service account to this machine";
    let call = TokenCall::local("the metadata server", Method::GET, &url, remedy)?
        .header("metadata-flavor", "Google");
    let answer = context.http.send_for_json(call).await.map_err(|fault| {
        if has_answered(&fault) {
            return fault;
        }
        no_credentials(
            "no Google credentials were found: no GOOGLE_APPLICATION_CREDENTIALS, no login of \
             gcloud, and no metadata server that answers within 2 s; run gcloud auth \
             application-default login"
                .to_owned(),
        )
    })?;
    of_answer(&answer)
}

fn of_answer(answer: &Value) -> Result<CloudToken, Box<Fault>> {
    let token = answer["access_token"].as_str();
    let token = token.ok_or_else(|| invalid_answer("Google's token service"))?;
    Ok(CloudToken::bearer(token, expiry_in(answer["expires_in"].as_u64())))
}
