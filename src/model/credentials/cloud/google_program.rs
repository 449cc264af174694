//! The program of a workload identity federation, which prints a token of the other issuer.
//!
//! Google's protocol: the program runs only with `GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES=1`,
//! because a credentials file may come from a stranger. Variables describe the requested token. The
//! program may store its last answer in a file, which is used until it expires.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::super::files::FILE_BYTES_MAX;
use super::super::helper::HelperCommand;
use super::command::printed_json;
use super::google::{ALLOW_PROGRAMS, GoogleIdentity, no_credentials};
use super::token_http::TokenContext;
use crate::json;
use crate::model::headers::wall_clock;
use crate::process::file_reads;
use crate::recovery::Fault;

/// Timeout of the program without `timeout_millis`, and the valid range of `timeout_millis`.
const TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT_MILLIS: std::ops::RangeInclusive<u64> = 5_000..=120_000;
/// The newest version of the answer.
const VERSION: u64 = 1;

/// Returns the token of the program that `credentials` name.
pub(super) async fn token(
    identity: &GoogleIdentity,
    credentials: &Value,
    context: &TokenContext,
) -> Result<String, Box<Fault>> {
    let program = &credentials["credential_source"]["executable"];
    let command = program["command"].as_str().unwrap_or_default();
    if !identity.allows_programs() {
        return Err(no_credentials(format!(
            "the Google credentials name a program, {command:?}, which runs only with \
             {ALLOW_PROGRAMS}=1; set it if the file is your own"
        )));
    }
    let millis = &program["timeout_millis"];
    let limit = match millis.as_u64().filter(|millis| TIMEOUT_MILLIS.contains(millis)) {
        Some(millis) => Duration::from_millis(millis),
        None if millis.is_null() => TIMEOUT,
        None => {
            let wrong = "timeout_millis must be from 5000 to 120000; correct the credentials";
            return Err(invalid(wrong));
        }
    };
    let output_file = program["output_file"].as_str().filter(|file| !file.is_empty());
    if let Some(file) = output_file
        && let Some(stored) = stored_answer(file.as_ref()).await
        && let Ok(token) = of_answer(&stored, output_file)
    {
        return Ok(token);
    }
    let helper = HelperCommand {
        limit,
        variables: variables(credentials, output_file),
        ..HelperCommand::new(command)
    };
    of_answer(&printed_json("credential_source", helper, &context.supervisor).await?, output_file)
}

fn invalid(what: &str) -> Box<Fault> {
    no_credentials(format!("the program of the Google credentials: {what}"))
}

async fn stored_answer(file: &Path) -> Option<Value> {
    json::read(&file_reads::read_unblocked(file, FILE_BYTES_MAX).await.ok()?).ok()
}

/// The environment variables of the program.
fn variables(credentials: &Value, output_file: Option<&str>) -> Vec<(&'static str, String)> {
    let text = |name: &str| credentials[name].as_str().map(str::to_owned);
    // .../serviceAccounts/EMAIL:generateAccessToken
    let email = text("service_account_impersonation_url").and_then(|url| {
        let (_, account) = url.rsplit_once('/')?;
        Some(account.strip_suffix(":generateAccessToken")?.to_owned())
    });
    let pairs = [
        ("GOOGLE_EXTERNAL_ACCOUNT_AUDIENCE", text("audience")),
        ("GOOGLE_EXTERNAL_ACCOUNT_TOKEN_TYPE", text("subject_token_type")),
        ("GOOGLE_EXTERNAL_ACCOUNT_IMPERSONATED_EMAIL", email),
        ("GOOGLE_EXTERNAL_ACCOUNT_OUTPUT_FILE", output_file.map(str::to_owned)),
        ("GOOGLE_EXTERNAL_ACCOUNT_INTERACTIVE", Some("0".to_owned())),
    ];
    pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The token in an answer, which may also be a refusal.
fn of_answer(answer: &Value, output_file: Option<&str>) -> Result<String, Box<Fault>> {
    if answer["version"].as_u64().is_none_or(|version| version > VERSION) {
        return Err(invalid("it printed no version that is known (1)"));
    }
    match answer["success"].as_bool() {
        Some(true) => {}
        Some(false) => {
            let text = |name: &str| answer[name].as_str().unwrap_or("unknown").to_owned();
            let (code, message) = (text("code"), text("message"));
            return Err(invalid(&format!("it reports the failure {code}: {message}")));
        }
        None => return Err(invalid("it printed no \"success\"")),
    }
    let expires = answer["expiration_time"].as_u64().map(Duration::from_secs);
    match expires.map(|since| UNIX_EPOCH.checked_add(since)) {
        Some(end) if end.is_some_and(|end| end <= wall_clock()) => {
            return Err(invalid("its token has expired"));
        }
        None if output_file.is_some() => {
            return Err(invalid("it printed no expiration_time, which an output_file needs"));
        }
        Some(_) | None => {}
    }
    let field = match answer["token_type"].as_str().unwrap_or_default() {
        "urn:ietf:params:oauth:token-type:jwt" | "urn:ietf:params:oauth:token-type:id_token" => {
            "id_token"
        }
        "urn:ietf:params:oauth:token-type:saml2" => "saml_response",
        _ => return Err(invalid("it printed no token_type that is known")),
    };
    let token = answer[field].as_str().filter(|token| !token.is_empty());
    token.map(str::to_owned).ok_or_else(|| invalid(&format!("it printed no {field}")))
}
