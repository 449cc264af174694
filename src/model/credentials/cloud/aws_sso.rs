//! Exchanges a login of IAM Identity Center (`aws sso login`) for keys, and renews it before its
//! end by its refresh token, as the AWS CLI does.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::Method;
use serde_json::{Value, json};

use super::super::files::{FILE_BYTES_MAX, unblocked};
use super::super::secret::Secret;
use super::super::store::ReplacementFile;
use super::aws_endpoint::AwsService;
use super::aws_identity::{AwsIdentity, SsoProfile, no_credentials};
use super::token::{CloudToken, expiry_in, parse_expiry};
use super::token_http::{TokenCall, TokenContext, invalid_answer};
use crate::json;
use crate::model::headers::wall_clock;
use crate::process::{FileLock, file_reads};
use crate::recovery::Fault;

const SERVICE: &str = "AWS IAM Identity Center";
/// Time before its end at which a login is renewed, as by the AWS SDKs.
const RENEWAL_MARGIN: Duration = Duration::from_mins(5);
/// The time limit for the lock of a login that another run holds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(40);

/// The content of the file that the AWS CLI writes at a login.
struct SsoLogin(Value);

impl SsoLogin {
    async fn read(file: &Path) -> Option<Self> {
        let bytes = file_reads::read_unblocked(file, FILE_BYTES_MAX).await.ok()?;
        let value: Value = json::read(&bytes).ok()?;
        (value["accessToken"].is_string() && parse_expiry(&value["expiresAt"]).is_some())
            .then_some(Self(value))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0[name].as_str().filter(|text| !text.is_empty())
    }

    fn is_valid_until(&self, at: SystemTime) -> bool {
        parse_expiry(&self.0["expiresAt"]).is_some_and(|end| end > at)
    }

    /// The request that renews the login. `None` if it cannot be renewed.
    fn renewal(&self, now: SystemTime) -> Option<Value> {
        let registered = parse_expiry(&self.0["registrationExpiresAt"])?;
        (registered > now).then_some(())?;
        Some(json!({
            "clientId": self.text("clientId")?,
            "clientSecret": self.text("clientSecret")?,
            "grantType": "refresh_token",
            "refreshToken": self.text("refreshToken")?,
        }))
    }
}

/// Fetches keys for the login of a profile.
pub(super) async fn fetch(
    identity: &AwsIdentity,
    sso: &SsoProfile,
    context: &TokenContext,
) -> Result<CloudToken, Box<Fault>> {
    let remedy = format!("run aws sso login --profile {}", sso.profile);
    let login = valid_login(identity, sso, &remedy, context).await?;
    let token = Secret::new(login.text("accessToken").unwrap_or_default());
    let region = sso.region.clone();
    let base = unblocked(identity, move |it| it.service_url(AwsService::Sso, &region)).await?;
    let url = format!("{}/federation/credentials", base.trim_end_matches('/'));
    let mut call = TokenCall::new(SERVICE, Method::GET, &url, &remedy)?
        .header("x-amz-sso_bearer_token", token.reveal());
    let fields = [("account_id", &sso.account), ("role_name", &sso.role)];
    call.request.url_mut().query_pairs_mut().extend_pairs(fields);
    let answer = context.http.send_for_json(call).await?;
    CloudToken::of_aws(&answer["roleCredentials"], SERVICE)
}

/// The login, renewed if it ends soon.
async fn valid_login(
    identity: &AwsIdentity,
    sso: &SsoProfile,
    remedy: &str,
    context: &TokenContext,
) -> Result<SsoLogin, Box<Fault>> {
    let ended = |what: &str| {
        no_credentials(format!("the SSO login of the profile {:?} {what}", sso.profile))
    };
    let expired = || ended(&format!("is missing or has expired; {remedy}"));
    let login = SsoLogin::read(&sso.cache_file).await.ok_or_else(expired)?;
    let now = wall_clock();
    if login.is_valid_until(now + RENEWAL_MARGIN) {
        return Ok(login);
    }
    let is_valid = login.is_valid_until(now);
    let can_renew = sso.has_session && login.renewal(now).is_some();
    let Some(folder) = identity.cache.as_deref().filter(|_| can_renew) else {
        return match (is_valid, can_renew) {
            (true, _) => Ok(login),
            (false, true) => Err(ended(&format!("has ended, and a run renews it; or {remedy}"))),
            (false, false) => Err(expired()),
        };
    };
    match renewed(identity, sso, folder, remedy, context).await {
        Ok(renewed) => Ok(renewed),
        Err(_) if is_valid => Ok(login),
        Err(fault) => Err(fault),
    }
}

/// Renews the login, unless another run of this host just did, and stores it for all programs.
async fn renewed(
    identity: &AwsIdentity,
    sso: &SsoProfile,
    folder: &Path,
    remedy: &str,
    context: &TokenContext,
) -> Result<SsoLogin, Box<Fault>> {
    let name = sso.cache_file.file_stem().unwrap_or_default().to_string_lossy();
    // Without the lock, two runs may both renew: the second is refused and needs a login.
    let lock = folder.join(format!("sso-{name}.lock"));
    let _lock = FileLock::take(&lock, LOCK_TIMEOUT).await.ok();
    let missing =
        || no_credentials(format!("the SSO login of {:?} is gone; {remedy}", sso.profile));
    let mut login = SsoLogin::read(&sso.cache_file).await.ok_or_else(missing)?;
    let now = wall_clock();
    if login.is_valid_until(now + RENEWAL_MARGIN) {
        return Ok(login);
    }
    let request = login.renewal(now).ok_or_else(missing)?;
    let region = sso.region.clone();
    let base = unblocked(identity, move |it| it.service_url(AwsService::SsoOidc, &region)).await?;
    let url = format!("{}/token", base.trim_end_matches('/'));
    let call = TokenCall::new(SERVICE, Method::POST, &url, remedy)?.json(&request);
    let unwritable = |error: io::Error| {
        let file = sso.cache_file.display();
        no_credentials(format!(
            "the SSO login in {file} cannot be renewed: writing it failed: {error}; make it \
             writable, or {remedy} elsewhere"
        ))
    };
    // Created first: the answer invalidates the old refresh token.
    let file = ReplacementFile::prepare(&sso.cache_file).map_err(unwritable)?;
    let answer = match context.http.send_for_json(call).await {
        Ok(answer) => answer,
        Err(fault) => {
            file.abandon();
            return Err(fault);
        }
    };
    let end = expiry_in(answer["expiresIn"].as_u64());
    let (Some(access), Some(end)) = (answer["accessToken"].as_str(), end) else {
        return Err(invalid_answer(SERVICE));
    };
    login.0["accessToken"] = json!(access);
    login.0["expiresAt"] = json!(rfc3339(end));
    if let Some(refresh) = answer["refreshToken"].as_str() {
        login.0["refreshToken"] = json!(refresh);
        context.known.add(refresh);
    }
    context.known.add(access);
    file.commit_text(login.0.to_string().as_bytes()).map_err(unwritable)?;
    Ok(login)
}

/// The form that the AWS CLI reads: whole seconds in UTC.
fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX).to_string()
}
