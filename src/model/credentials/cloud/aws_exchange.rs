//! Fetches AWS credentials from their source.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Method, Url};
use tokio::time::timeout;

use super::super::files::{FILE_BYTES_MAX, unblocked};
use super::super::secret::Secret;
use super::aws_endpoint::AwsService;
use super::aws_identity::{AwsIdentity, AwsRole, AwsSource, no_credentials};
use super::aws_sso;
use super::command::{printed_json, printing};
use super::signer::{are_usable, sign_request};
use super::token::{AwsKeys, CloudToken, TokenKind, parse_expiry};
use super::token_http::{
    METADATA_TIMEOUT, TokenCall, TokenContext, has_answered, invalid_answer, xml_text,
};
use crate::model::endpoint::host;
use crate::model::headers::wall_clock;
use crate::model::proxies::is_loopback;
use crate::process::file_reads;
use crate::recovery::Fault;

const STS: &str = "AWS STS";
const STS_VERSION: &str = "2011-06-15";

/// Fetches keys from a source of `identity`.
pub(super) async fn fetch(
    identity: &AwsIdentity,
    source: &AwsSource,
    context: &TokenContext,
) -> Result<CloudToken, Box<Fault>> {
    let token = match source {
        AwsSource::Keys { keys, .. } => CloudToken::aws(keys.clone(), None),
        AwsSource::Export { command } => {
            let printed =
                printed_json("awsCredentialExport", printing(command), &context.supervisor).await?;
            CloudToken::of_aws(&printed["Credentials"], "awsCredentialExport")?
        }
        AwsSource::Process { command, profile } => {
            let name = format!("credential_process in the profile {profile:?}");
            let printed = printed_json(&name, printing(command), &context.supervisor).await?;
            if printed["Version"] != 1 {
                let message = format!("{name} printed no \"Version\": 1; correct it");
                return Err(no_credentials(message));
            }
            CloudToken::of_aws(&printed, &name)?
        }
        AwsSource::WebIdentity { token_file, role } => {
            let token = read_token(token_file).await?;
            let fields = [("WebIdentityToken", token.reveal())];
            assume(identity, role, "AssumeRoleWithWebIdentity", &fields, None, context).await?
        }
        AwsSource::Role { role, source } => {
            let keys = Box::pin(fetch(identity, source, context)).await?;
            let external = role.external_id.as_deref();
            let fields: Vec<_> = external.map(|id| ("ExternalId", id)).into_iter().collect();
            assume(identity, role, "AssumeRole", &fields, Some(&keys), context).await?
        }
        AwsSource::Sso(sso) => aws_sso::fetch(identity, sso, context).await?,
        AwsSource::Container { url, token, token_file } => {
            let fresh = match token_file {
                Some(file) => Some(read_token(file).await?),
                None => None,
            };
            let token = fresh.as_ref().map(Secret::reveal).or(token.as_deref());
            of_container(url, token, context).await?
        }
        AwsSource::Instance { .. } if identity.has_no_metadata() => return Err(nowhere()),
        AwsSource::Instance { url } => of_instance(url, context).await?,
    };
    match &token.kind {
        TokenKind::Aws(keys) if !are_usable(keys) => Err(unsendable()),
        TokenKind::Aws(_) | TokenKind::Bearer(_) => Ok(token),
    }
}

fn unsendable() -> Box<Fault> {
    no_credentials("the AWS credentials have characters that cannot be sent".to_owned())
}

fn nowhere() -> Box<Fault> {
    no_credentials(
        "no AWS credentials were found: no AWS_ACCESS_KEY_ID, no profile, no web identity, no \
         container, and no EC2 metadata server that answers within 2 s; set AWS_PROFILE, or run aws \
         configure or aws sso login"
            .to_owned(),
    )
}

async fn read_token(path: &Path) -> Result<Secret, Box<Fault>> {
    let bytes = file_reads::read_unblocked(path, FILE_BYTES_MAX).await.map_err(|error| {
        no_credentials(format!("the token file {} cannot be read: {error}", path.display()))
    })?;
    let token = Secret::new(&String::from_utf8_lossy(&bytes));
    if token.is_empty() {
        return Err(no_credentials(format!("the token file {} is empty", path.display())));
    }
    Ok(token)
}

/// Assumes a role. With `keys` the request is signed.
async fn assume(
    identity: &AwsIdentity,
    role: &AwsRole,
    action: &str,
    fields: &[(&str, &str)],
    keys: Option<&CloudToken>,
    context: &TokenContext,
) -> Result<CloudToken, Box<Fault>> {
    let usual = [
        ("Action", action),
        ("Version", STS_VERSION),
        ("RoleArn", &role.arn),
        ("RoleSessionName", &role.session),
    ];
    let remedy = "check the trust policy of the role, and whether the token has expired";
    let fields = usual.into_iter().chain(fields.iter().copied());
    let body = call_sts(identity, fields, keys, remedy, context).await?;
    let text = |name| xml_text(&body, name).filter(|text| !text.is_empty());
    let (Some(id), Some(secret)) = (text("AccessKeyId"), text("SecretAccessKey")) else {
        return Err(invalid_answer(STS));
    };
    let keys = AwsKeys {
        id: id.to_owned(),
        secret: Secret::new(secret),
        session: text("SessionToken").map(Secret::new),
    };
    let expires = text("Expiration").and_then(|end| parse_expiry(&end.into()));
    Ok(CloudToken::aws(keys, expires))
}

/// Requests the ARN of the owner of `keys` from STS.
pub(super) async fn caller(
    identity: &AwsIdentity,
    keys: &CloudToken,
    context: &TokenContext,
) -> Result<String, Box<Fault>> {
    let fields = [("Action", "GetCallerIdentity"), ("Version", STS_VERSION)];
    let remedy = "check the credentials with aws sts get-caller-identity";
    let body = call_sts(identity, fields, Some(keys), remedy, context).await?;
    xml_text(&body, "Arn").map(str::to_owned).ok_or_else(|| invalid_answer(STS))
}

async fn call_sts<'a>(
    identity: &AwsIdentity,
    fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    keys: Option<&CloudToken>,
    remedy: &str,
    context: &TokenContext,
) -> Result<String, Box<Fault>> {
    let url = unblocked(identity, |it| it.service_url(AwsService::Sts, &it.region)).await?;
    let mut call = TokenCall::new(STS, Method::POST, &url, remedy)?.form(fields);
    call.request.headers_mut().insert(ACCEPT, HeaderValue::from_static("*/*"));
    if let Some(CloudToken { kind: TokenKind::Aws(keys), .. }) = keys {
        let signed = sign_request(&mut call.request, keys, &identity.region, "sts", wall_clock());
        signed.ok_or_else(unsendable)?;
    }
    let body = context.http.send(call).await?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// True if keys may be fetched from an address without encryption, as by the AWS SDKs.
fn is_container_service(url: &Url) -> bool {
    const SERVICES: [IpAddr; 3] = [
        IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
        IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    ];

    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    url.scheme() == "http"
        && (is_loopback(url) || host.parse().is_ok_and(|ip| SERVICES.contains(&ip)))
}

async fn of_container(
    url: &str,
    token: Option<&str>,
    context: &TokenContext,
) -> Result<CloudToken, Box<Fault>> {
    let remedy = "check the role of the task or pod";
    let mut call = TokenCall::local("the container's credentials", Method::GET, url, remedy)?;
    let url = call.request.url();
    if url.scheme() == "https" {
        call = call.with_service_timeout();
    } else if !is_container_service(url) {
        let host = host(url);
        return Err(no_credentials(format!(
            "the address of the container's credentials is at {host}, which is neither https nor \
             on this host nor the service of ECS or EKS; correct AWS_CONTAINER_CREDENTIALS_FULL_URI \
             or AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
        )));
    }
    if let Some(token) = token {
        call = call.header("authorization", token);
    }
    let answer = context.http.send_for_json(call).await?;
    CloudToken::of_aws(&answer, "the container")
}

/// Fetches the keys of the instance's role, all requests within one timeout.
async fn of_instance(base: &str, context: &TokenContext) -> Result<CloudToken, Box<Fault>> {
    const ROLES: &str = "latest/meta-data/iam/security-credentials/";

    let base = base.trim_end_matches('/');
    let remedy = "attach a role to the instance, or set AWS_PROFILE";
    let call = |method, path: &str| {
        TokenCall::local("the EC2 metadata server", method, &format!("{base}/{path}"), remedy)
    };
    let asking = async {
        let token = call(Method::PUT, "latest/api/token")?
            .header("x-aws-ec2-metadata-token-ttl-seconds", "21600");
        let token = context.http.send(token).await?;
        let token = String::from_utf8_lossy(&token).trim().to_owned();
        let header = "x-aws-ec2-metadata-token";
        let roles = context.http.send(call(Method::GET, ROLES)?.header(header, &token)).await?;
        let roles = String::from_utf8_lossy(&roles).into_owned();
        let role = roles.lines().next().unwrap_or_default().trim();
        let keys = call(Method::GET, &format!("{ROLES}{role}"))?.header(header, &token);
        CloudToken::of_aws(&context.http.send_for_json(keys).await?, "the EC2 metadata server")
    };
    match timeout(METADATA_TIMEOUT, asking).await {
        Ok(Ok(token)) => Ok(token),
        Ok(Err(fault)) if has_answered(&fault) => Err(fault),
        // Most machines without credentials have no metadata server.
        Ok(Err(_)) | Err(_) => Err(nowhere()),
    }
}
