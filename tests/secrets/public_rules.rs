//! Keys by the rules of a public scanner (gitleaks, MIT license): what they describe is redacted.

use outlast_core::secrets::{REDACTED, Redactor};
use proptest::strategy::{Strategy, ValueTree};
use proptest::string::string_regex;
use proptest::test_runner::TestRunner;

/// Keys of each rule.
const SAMPLES: usize = 20;

/// The names of rules, and their expressions without what must stand around a key. Left out are
/// rules that need a name before a value, or whose keys look like hashes.
const RULES: &[(&str, &str)] = &[
    ("1password-service-account-token", "ops_eyJ[a-zA-Z0-9+/]{250,300}={0,3}"),
    ("age-secret-key", "AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}"),
    ("airtable-personnal-access-token", "pat[a-zA-Z0-9]{14}\\.[a-f0-9]{64}"),
    ("anthropic-admin-api-key", "sk-ant-admin01-[a-zA-Z0-9_-]{93}AA"),
    ("anthropic-api-key", "sk-ant-api03-[a-zA-Z0-9_-]{93}AA"),
    ("artifactory-api-key", "AKCp[A-Za-z0-9]{69}"),
    ("artifactory-reference-token", "cmVmd[A-Za-z0-9]{59}"),
    ("aws-access-token", "(AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{15}[2-7]"),
    ("aws-amazon-bedrock-api-key-long-lived", "ABSK[A-Za-z0-9+/]{109,269}={0,2}"),
    ("aws-amazon-bedrock-api-key-short-lived", "bedrock-api-key-[A-Za-z0-9+/]{100}={0,2}"),
    ("cloudflare-origin-ca-key", "v1\\.0-[a-f0-9]{24}-[a-f0-9]{146}"),
    ("databricks-api-token", "dapi[a-f0-9]{32}"),
    ("digitalocean-access-token", "doo_v1_[a-f0-9]{64}"),
    ("digitalocean-pat", "dop_v1_[a-f0-9]{64}"),
    ("digitalocean-refresh-token", "dor_v1_[a-f0-9]{64}"),
    ("doppler-api-token", "dp\\.pt\\.[a-zA-Z0-9]{43}"),
    ("duffel-api-token", "duffel_(test|live)_[a-zA-Z0-9_=-]{43}"),
    ("dynatrace-api-token", "dt0c01\\.[a-zA-Z0-9]{24}\\.[a-zA-Z0-9]{64}"),
    ("easypost-api-token", "EZAK[a-zA-Z0-9]{54}"),
    ("easypost-test-api-token", "EZTK[a-zA-Z0-9]{54}"),
    ("flyio-access-token", "fo1_[a-zA-Z0-9_-]{43}|fm(1[ar]|2)_[a-zA-Z0-9+/]{100,150}={0,3}"),
    ("gcp-api-key", "AIza[a-zA-Z0-9_-]{35}"),
    ("github-app-token", "gh[us]_[0-9a-zA-Z]{36}"),
    ("github-fine-grained-pat", "github_pat_[0-9a-zA-Z_]{82}"),
    ("github-oauth", "gho_[0-9a-zA-Z]{36}"),
    ("github-pat", "ghp_[0-9a-zA-Z]{36}"),
    ("github-refresh-token", "ghr_[0-9a-zA-Z]{36}"),
    ("gitlab-cicd-job-token", "glcbt-[0-9a-zA-Z]{1,5}_[0-9a-zA-Z_-]{20}"),
    ("gitlab-deploy-token", "gldt-[0-9a-zA-Z_-]{20}"),
    ("gitlab-feature-flag-client-token", "glffct-[0-9a-zA-Z_-]{20}"),
    ("gitlab-feed-token", "glft-[0-9a-zA-Z_-]{20}"),
    ("gitlab-incoming-mail-token", "glimt-[0-9a-zA-Z_-]{25}"),
    ("gitlab-kubernetes-agent-token", "glagent-[0-9a-zA-Z_-]{50}"),
    ("gitlab-oauth-app-secret", "gloas-[0-9a-zA-Z_-]{64}"),
    ("gitlab-pat", "glpat-[0-9a-zA-Z_-]{20}"),
    ("gitlab-pat-routable", "glpat-[0-9a-zA-Z_-]{27,99}\\.[0-9a-z]{9}"),
    ("gitlab-ptt", "glptt-[0-9a-f]{40}"),
    ("gitlab-rrt", "GR1348941[0-9a-zA-Z_-]{20}"),
    ("gitlab-runner-authentication-token", "glrt-[0-9a-zA-Z_-]{20}"),
    ("gitlab-scim-token", "glsoat-[0-9a-zA-Z_-]{20}"),
    ("grafana-cloud-api-token", "glc_[A-Za-z0-9+/]{32,400}={0,3}"),
    ("grafana-service-account-token", "glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}"),
    ("harness-api-key", "(pat|sat)\\.[a-zA-Z0-9_-]{22}\\.[a-zA-Z0-9]{24}\\.[a-zA-Z0-9]{20}"),
    ("heroku-api-key-v2", "HRKU-AA[0-9a-zA-Z_-]{58}"),
    ("huggingface-access-token", "hf_[a-zA-Z]{34}"),
    ("huggingface-organization-api-token", "api_org_[a-zA-Z]{34}"),
    ("jwt", "eyJ[a-zA-Z0-9]{17,40}\\.eyJ[a-zA-Z0-9_-]{17,99}\\.[a-zA-Z0-9_-]{10,99}"),
    ("linear-api-key", "lin_api_[a-zA-Z0-9]{40}"),
    ("notion-api-token", "ntn_[0-9]{11}[A-Za-z0-9]{35}"),
    ("npm-access-token", "npm_[a-zA-Z0-9]{36}"),
    ("openai-api-key", "sk-(proj|svcacct|admin)-[A-Za-z0-9_-]{74}T3BlbkFJ[A-Za-z0-9_-]{74}"),
    ("openshift-user-token", "sha256~[a-zA-Z0-9_-]{43}"),
    ("perplexity-api-key", "pplx-[a-zA-Z0-9]{48}"),
    ("planetscale-api-token", "pscale_(tkn|oauth|pw)_[a-zA-Z0-9_=.-]{32,64}"),
    ("postman-api-token", "PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    ("prefect-api-token", "pnu_[a-zA-Z0-9]{36}"),
    ("pulumi-api-token", "pul-[a-f0-9]{40}"),
    ("pypi-upload-token", "pypi-AgEIcHlwaS5vcmc[a-zA-Z0-9_-]{50,200}"),
    ("readme-api-token", "rdme_[a-z0-9]{70}"),
    ("rubygems-api-token", "rubygems_[a-f0-9]{48}"),
    ("scalingo-api-token", "tk-us-[a-zA-Z0-9_-]{48}"),
    ("sendgrid-api-token", "SG\\.[a-zA-Z0-9_-]{22}\\.[a-zA-Z0-9_-]{43}"),
    ("sendinblue-api-token", "xkeysib-[a-f0-9]{64}-[a-zA-Z0-9]{16}"),
    ("sentry-user-token", "sntryu_[a-f0-9]{64}"),
    ("shippo-api-token", "shippo_(live|test)_[a-fA-F0-9]{40}"),
    ("shopify-access-token", "shp(at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    ("slack-app-token", "xapp-[0-9]-[A-Z0-9]{9,11}-[0-9]{13}-[a-z0-9]{64}"),
    ("slack-bot-token", "xoxb-[0-9]{10,13}-[0-9]{10,13}[a-zA-Z0-9-]{20,40}"),
    ("slack-config-access-token", "xoxe\\.xox[bp]-[0-9]-[A-Z0-9]{163,166}"),
    ("slack-user-token", "xox[pe](-[0-9]{10,13}){3}-[a-zA-Z0-9-]{28,34}"),
    (
        "slack-webhook-url",
        "https://hooks\\.slack\\.com/(services|workflows|triggers)/[A-Za-z0-9/]{43,56}",
    ),
    ("sourcegraph-access-token", "sgp_([a-fA-F0-9]{16}|local)_[a-fA-F0-9]{40}"),
    ("square-access-token", "sq0atp-[a-zA-Z0-9_-]{22,60}"),
    ("stripe-access-token", "(sk|rk)_(test|live|prod)_[a-zA-Z0-9]{10,99}"),
    ("hashicorp-tf-api-token", "[a-z0-9]{14}\\.atlasv1\\.[a-z0-9_=-]{60,70}"),
    ("vault-batch-token", "hvb\\.[a-zA-Z0-9_-]{138,200}"),
    ("vault-service-token", "hvs\\.[a-zA-Z0-9_-]{90,120}"),
];

#[test]
fn keys_of_public_rules_are_redacted_to_their_end() {
    let mut runner = TestRunner::deterministic();
    let mut seen = Vec::new();
    for (name, rule) in RULES {
        let keys = string_regex(rule).unwrap_or_else(|error| panic!("{name}: {error}"));
        for _ in 0..SAMPLES {
            let key = keys.new_tree(&mut runner).expect("nothing is refused").current();
            let hidden = Redactor::default().redact(&format!("KEY={key}\nNEXT=1"));
            let tail = &key[key.len() - 8..];
            if !hidden.contains(REDACTED) || hidden.contains(tail) || !hidden.ends_with("\nNEXT=1")
            {
                seen.push(format!("{name}: {key} became {hidden:?}"));
                break;
            }
        }
    }
    assert!(seen.is_empty(), "{}", seen.join("\n"));
}
