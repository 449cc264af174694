//! One table of AWS profiles, read by the SDK of the vendor and by outlast: both must ask Bedrock at
//! one address with one credential, or neither asks it. `OUTLAST` names the binary.

mod cases;
mod services;
mod vendor;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use cases::{CASES, Case};
use services::Services;

/// The outcome of a case.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// The key and the session with which Bedrock was asked on loopback.
    asked: Option<(String, String)>,
    /// Hosts that are not on loopback.
    remote: BTreeSet<String>,
}

#[tokio::test]
async fn every_profile_leads_to_what_the_sdk_finds() {
    let mut failures = Vec::new();
    for case in CASES {
        let (sdk, sdk_error) = {
            let services = Services::start().await;
            let home = home_of(case);
            vendor::outcome(&services, &variables_of(case, home.path(), &services)).await
        };
        let services = Services::start().await;
        let home = home_of(case);
        let variables = variables_of(case, home.path(), &services);
        let (own, text) = outcome_of_outlast(&services, &variables).await;
        let is_expected = sdk.asked.as_ref().map(|(id, _)| id.as_str()) == case.id;
        if own != sdk || !is_expected {
            let name = case.name;
            failures
                .push(format!("{name}:\n SDK {sdk:?}\n {sdk_error}\n outlast {own:?}\n {text}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn home_of(case: &Case) -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a folder");
    let cache = home.path().join(".aws/sso/cache");
    std::fs::create_dir_all(&cache).expect("writable");
    let write = |name: &str, text: &str| {
        let text = text.replace("{home}", &home.path().display().to_string());
        std::fs::write(home.path().join(name), text).expect("writable");
    };
    write(".aws/config", case.config);
    write(".aws/credentials", case.credentials);
    write("token", "token-of-the-pod");
    if !case.login.is_empty() {
        // SHA-1 of the session `corp`.
        write(".aws/sso/cache/ee0bfd2552fbd840c02cc48b6e823320543c450f.json", case.login);
    }
    home
}

fn variables_of(case: &Case, home: &Path, services: &Services) -> Vec<(String, String)> {
    let home = home.display().to_string();
    let usual = [
        ("HOME", home.as_str()),
        ("AWS_REGION", "us-east-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ];
    let local = [
        ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "{url}"),
        ("AWS_ENDPOINT_URL_STS", "{url}"),
        ("AWS_ENDPOINT_URL_SSO", "{url}"),
        ("AWS_ENDPOINT_URL_SSO_OIDC", "{url}"),
    ];
    let local = local.iter().filter(|_| case.is_local);
    let all = usual.iter().chain(local).chain(case.variables);
    all.map(|(name, value)| {
        let value = value.replace("{url}", &services.url).replace("{home}", &home);
        ((*name).to_owned(), value)
    })
    .collect()
}

async fn outcome_of_outlast(
    services: &Services,
    variables: &[(String, String)],
) -> (Outcome, String) {
    let binary = std::env::var_os("OUTLAST").expect("OUTLAST names the binary");
    let work = tempfile::tempdir().expect("a folder");
    let run = tokio::process::Command::new(binary)
        .args(["--model", "claude-opus-5-5", "--max-retries", "0", "hello"])
        .current_dir(work.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("CLAUDE_CODE_USE_BEDROCK", "1")
        .env("OUTLAST_CONFIG_DIR", work.path().join("config"))
        .env("HTTPS_PROXY", &services.proxy)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output()
        .await
        .expect("the binary starts");
    let outcome = Outcome { asked: services.asked(), remote: services.tunnels() };
    (outcome, String::from_utf8_lossy(&run.stderr).into_owned())
}
