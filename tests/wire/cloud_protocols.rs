//! Protocols of the vendors of clouds: renewal of logins, addresses of keys, programs of others.
//! `tests/oracles/aws` compares the same files with the SDK of AWS.

use std::fs;
use std::path::Path;

use outlast::model::{AwsIdentity, GoogleIdentity};
use outlast::recovery::ErrorClass;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::cloud_identities::{CACHE_FILE, KEYS, at_bedrock, at_vertex, aws, home, variables};
use crate::support::responder::Responder;

const CORP: &str = "[profile ci]\nsso_session = corp\nsso_account_id = 123\nsso_role_name = dev\n\
                    [sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://c.example\n";
const PAST: &str = "2020-01-01T00:00:00Z";
const FUTURE: &str = "2099-01-01T00:00:00Z";

/// The login of a session whose access token and registration end then.
fn login(ends: &str, registered: &str) -> Value {
    json!({
        "accessToken": "sso-old-83017", "expiresAt": ends, "region": "eu-west-1", "own": "kept",
        "clientId": "c", "clientSecret": "client-83017", "refreshToken": "refresh-83017",
        "registrationExpiresAt": registered,
    })
}

fn home_with(login: &Value) -> TempDir {
    let home = home(CORP);
    let file = home.path().join(".aws/sso/cache").join(CACHE_FILE);
    fs::write(file, login.to_string()).expect("writable");
    home
}

fn stored(home: &Path) -> Value {
    let text = fs::read(home.join(".aws/sso/cache").join(CACHE_FILE)).expect("it is there");
    serde_json::from_slice(&text).expect("it is JSON")
}

/// The services of IAM Identity Center.
async fn identity_center() -> Responder {
    Responder::start(|_, request| {
        let keys = json!({ "accessKeyId": "ASIASSO", "secretAccessKey": "s83017",
            "sessionToken": "t83017", "expiration": 4_070_908_800_000_u64 });
        let body = match request.split(' ').nth(1).unwrap_or_default() {
            "/token" => {
                let (_, body) = request.split_once("\r\n\r\n").expect("it has a body");
                let body: Value = serde_json::from_str(body).expect("it is JSON");
                let wanted = json!({ "clientId": "c", "clientSecret": "client-83017",
                    "grantType": "refresh_token", "refreshToken": "refresh-83017" });
                assert_eq!(body, wanted);
                json!({ "accessToken": "sso-new-83017", "expiresIn": 3600,
                    "refreshToken": "refresh-new-83017" })
            }
            _ if request.contains("x-amz-sso_bearer_token: sso-new-83017") => {
                json!({ "roleCredentials": keys })
            }
            _ => return Some((401, json!({ "message": "Session token not found" }).to_string())),
        };
        Some((200, body.to_string()))
    })
    .await
}

fn at_identity_center(home: &Path, center: &Responder) -> AwsIdentity {
    let pairs = [
        ("AWS_PROFILE", "ci"),
        ("AWS_ENDPOINT_URL_SSO", center.url.as_str()),
        ("AWS_ENDPOINT_URL_SSO_OIDC", center.url.as_str()),
    ];
    aws(home, &pairs)
}

#[tokio::test]
async fn a_login_of_the_identity_center_is_renewed_once_and_stored() {
    let center = identity_center().await;
    let home = home_with(&login(PAST, FUTURE));
    // Runs at the same time take turns.
    let identity = at_identity_center(home.path(), &center);
    let (one, two) = tokio::join!(at_bedrock(identity.clone()), at_bedrock(identity));
    for request in [one, two] {
        assert!(request.expect("a reply").contains("Credential=ASIASSO/"));
    }
    let renewals = center.requests().iter().filter(|it| it.starts_with("POST /token ")).count();
    assert_eq!(renewals, 1);
    let now = stored(home.path());
    assert_eq!(now["accessToken"], "sso-new-83017");
    assert_eq!(now["refreshToken"], "refresh-new-83017");
    assert_eq!((&now["own"], &now["clientId"]), (&json!("kept"), &json!("c")));
    let end = now["expiresAt"].as_str().expect("a text");
    assert!(end.len() == PAST.len() && end > "2026" && end.ends_with('Z'), "{end}");
}

#[tokio::test]
async fn a_login_that_cannot_be_renewed_names_the_command_and_is_left_alone() {
    let center = identity_center().await;
    let mut without = login(PAST, FUTURE);
    without["refreshToken"] = json!("");
    for old in [login(PAST, PAST), without] {
        let home = home_with(&old);
        let found = at_bedrock(at_identity_center(home.path(), &center)).await;
        let (class, detail) = found.expect_err("the login has ended");
        assert_eq!(class, ErrorClass::InvalidApiKey);
        assert!(detail.contains("run aws sso login --profile ci"), "{detail}");
        assert_eq!(stored(home.path()), old);
    }
    assert!(center.requests().is_empty(), "{:?}", center.requests());

    let refusing = Responder::start(|_, _| {
        let body = json!({ "error": "invalid_grant", "error_description": "expired" });
        Some((400, body.to_string()))
    })
    .await;
    let home = home_with(&login(PAST, FUTURE));
    let found = at_bedrock(at_identity_center(home.path(), &refusing)).await;
    let (class, detail) = found.expect_err("it is refused");
    assert_eq!(class, ErrorClass::InvalidApiKey);
    assert!(detail.contains("expired") && detail.contains("aws sso login"), "{detail}");
    assert!(!detail.contains("83017"), "{detail}");
    assert_eq!(stored(home.path()), login(PAST, FUTURE));

    // The doctor stores nothing, so it leaves the renewal to a run.
    let unchanged = AwsIdentity { cache: None, ..at_identity_center(home.path(), &center) };
    let (_, detail) = at_bedrock(unchanged).await.expect_err("it is not renewed");
    assert!(detail.contains("a run renews it"), "{detail}");
    assert!(center.requests().is_empty(), "{:?}", center.requests());
}

#[tokio::test]
async fn keys_of_a_container_are_fetched_from_this_host_only_or_encrypted() {
    let home = home("");
    let server = Responder::start(|_, _| Some((200, KEYS.to_owned()))).await;
    let port = server.url.rsplit(':').next().unwrap_or_default();
    for (url, place) in [
        ("http://192.0.2.7/pod", "192.0.2.7"),
        ("http://metadata.example/pod", "metadata.example"),
        ("http://169.254.170.3/pod", "169.254.170.3"),
        ("http://[fd00:ec2::24]/pod", "fd00:ec2::24"),
    ] {
        let found = aws(home.path(), &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)]);
        let (class, detail) = at_bedrock(found).await.expect_err("it is not asked");
        assert_eq!(class, ErrorClass::InvalidApiKey);
        assert!(detail.contains(place) && detail.contains("neither https"), "{detail}");
        assert!(detail.contains("AWS_CONTAINER_CREDENTIALS_FULL_URI"), "{detail}");
    }
    assert!(server.requests().is_empty(), "{:?}", server.requests());
    let named = format!("http://localhost:{port}/pod");
    let found = aws(home.path(), &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", &named)]);
    at_bedrock(found).await.expect("it is on this host");
}

#[tokio::test]
async fn an_address_that_contradicts_validated_cryptography_is_not_asked() {
    let home = home(
        "[profile ci]\nrole_arn = arn:aws:iam::1:role/ci\nsource_profile = ci\n\
         aws_access_key_id = AKIACI\naws_secret_access_key = secret-key-83017\n",
    );
    let sts = Responder::start(|_, _| Some((500, String::new()))).await;
    let pairs = [
        ("AWS_PROFILE", "ci"),
        ("AWS_ENDPOINT_URL_STS", sts.url.as_str()),
        ("AWS_USE_FIPS_ENDPOINT", "true"),
    ];
    let (class, detail) = at_bedrock(aws(home.path(), &pairs)).await.expect_err("no keys");
    assert_eq!(class, ErrorClass::InvalidApiKey);
    let wanted = "AWS_USE_FIPS_ENDPOINT contradicts the address in AWS_ENDPOINT_URL_STS";
    assert!(detail.contains(wanted), "{detail}");
    assert!(sts.requests().is_empty());
}

/// Google credentials with a program that prints `answer` and tells that it ran.
fn with_program(folder: &Path, sts: &str, answer: &str, executable: Value) -> GoogleIdentity {
    let script = folder.join("program");
    let ran = folder.join("ran");
    let told = "$GOOGLE_EXTERNAL_ACCOUNT_AUDIENCE $GOOGLE_EXTERNAL_ACCOUNT_TOKEN_TYPE \
                $GOOGLE_EXTERNAL_ACCOUNT_INTERACTIVE $GOOGLE_EXTERNAL_ACCOUNT_OUTPUT_FILE";
    let text = format!("echo \"{told}\" >> {}\ncat <<'END'\n{answer}\nEND\n", ran.display());
    fs::write(&script, text).expect("writable");
    let mut program = executable;
    program["command"] = json!(format!("sh {}", script.display()));
    let value = json!({
        "type": "external_account", "audience": "//iam/p", "subject_token_type": "jwt",
        "token_url": format!("{sts}/token"), "credential_source": { "executable": program },
    });
    let file = folder.join("google.json");
    fs::write(&file, value.to_string()).expect("writable");
    GoogleIdentity {
        variables: variables(&[
            ("GOOGLE_APPLICATION_CREDENTIALS", &file.display().to_string()),
            ("GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES", "1"),
        ]),
        home: Some(folder.to_owned()),
        cache: None,
    }
}

fn runs(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("ran")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_program_of_google_credentials_runs_only_where_it_is_allowed() {
    let sts = Responder::start(|_, request| {
        assert!(request.contains("subject_token=subject-83017"), "{request}");
        Some((200, json!({ "access_token": "token-83017", "expires_in": 3600 }).to_string()))
    })
    .await;
    let answer = json!({ "version": 1, "success": true, "id_token": "subject-83017",
        "token_type": "urn:ietf:params:oauth:token-type:jwt" });
    let folder = tempfile::tempdir().expect("a folder");
    let allowed = with_program(folder.path(), &sts.url, &answer.to_string(), json!({}));
    for value in [None, Some("0"), Some("true")] {
        let mut identity = allowed.clone();
        let name = "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES";
        identity.variables.remove(std::ffi::OsStr::new(name));
        identity.variables.extend(value.map(|value| (name.into(), value.into())));
        let (class, detail) = at_vertex(identity).await.expect_err("it is not allowed");
        assert_eq!(class, ErrorClass::InvalidApiKey);
        assert!(detail.contains(&format!("{name}=1")), "{detail}");
    }
    assert_eq!(runs(folder.path()), Vec::<String>::new());
    at_vertex(allowed).await.expect("a reply");
    assert_eq!(runs(folder.path()), ["//iam/p jwt 0 "]);
}

#[tokio::test]
async fn answers_of_a_google_program_are_checked_and_kept_until_they_expire() {
    let sts = Responder::start(|_, _| {
        Some((200, json!({ "access_token": "token-83017", "expires_in": 3600 }).to_string()))
    })
    .await;
    let good = json!({ "version": 1, "success": true, "saml_response": "subject-83017",
        "token_type": "urn:ietf:params:oauth:token-type:saml2",
        "expiration_time": 4_070_908_800_u64 });
    let with = |name: &str, value: Value| {
        let mut answer = good.clone();
        answer[name] = value;
        answer
    };
    let mut failed = with("success", json!(false));
    failed["message"] = json!("no such user");
    for (answer, why) in [
        (with("version", json!(2)), "version"),
        (with("success", Value::Null), "success"),
        (failed, "no such user"),
        (with("expiration_time", json!(1)), "expired"),
        (with("token_type", json!("other")), "token_type"),
        (with("saml_response", json!("")), "saml_response"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let identity = with_program(folder.path(), &sts.url, &answer.to_string(), json!({}));
        let (class, detail) = at_vertex(identity).await.expect_err(why);
        assert_eq!(class, ErrorClass::InvalidApiKey);
        assert!(detail.contains(why) && !detail.contains("83017"), "{detail}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let kept = folder.path().join("kept.json");
    let program = json!({ "output_file": kept.display().to_string(), "timeout_millis": 5000 });
    let identity = with_program(folder.path(), &sts.url, &good.to_string(), program);
    let old = with("expiration_time", json!(1));
    for (content, ran) in [(&old, 1), (&good, 1)] {
        fs::write(&kept, content.to_string()).expect("writable");
        at_vertex(identity.clone()).await.expect("a reply");
        assert_eq!(runs(folder.path()).len(), ran);
    }
    let program = json!({ "timeout_millis": 1 });
    let hasty = with_program(folder.path(), &sts.url, &good.to_string(), program);
    let (_, detail) = at_vertex(hasty).await.expect_err("it is too short");
    assert!(detail.contains("timeout_millis"), "{detail}");
}
