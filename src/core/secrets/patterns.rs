//! Patterns for the API keys and tokens of well-known services.
//!
//! Each pattern is strict enough to exclude hashes, ids, checksums, base64 and ordinary words.

use LeftContext::{Anything, Digit, Edge, WideEdge};
use PatternPart::{Run, Until, Word};

use super::byte_classes::{
    alnum, any_digit, any_hex, anything, base64, base64ish, basic_login, digit, dotted,
    has_key_line, hex, is_not_placeholder, lower, mixed, mixed_case, password, path, pem, percent,
    separator, upper, url_safe, user, word,
};

const ANY: usize = usize::MAX;

/// The pattern of one kind of key.
#[derive(Clone, Copy, Debug)]
pub struct KeyPattern {
    pub name: &'static str,
    /// The possible prefixes.
    pub prefixes: &'static [&'static str],
    pub(super) rest: &'static [PatternPart],
    pub(super) redacts: RedactedPart,
    pub(super) before: LeftContext,
    /// A final check that excludes ordinary words.
    pub(super) is_key: fn(&[u8]) -> bool,
    /// True if CI systems leave such tokens in a checkout, where the model would find them.
    pub in_checkouts: bool,
}

/// A predicate for the bytes of a part.
pub(super) type ByteClass = fn(u8) -> bool;

/// One part of a key pattern, after its prefix.
#[derive(Clone, Copy, Debug)]
pub(super) enum PatternPart {
    /// Exactly this text.
    Word(&'static str),
    /// A sequence of bytes of a class, with its minimum and maximum length.
    Run(ByteClass, usize, usize),
    /// All bytes up to this end marker or, without the marker, a sequence of bytes of a class.
    Until(&'static str, ByteClass),
}

/// The secret part of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedactedPart {
    All,
    /// Only the last part that is not a fixed word. The rest identifies the kind of key.
    Value,
}

/// The bytes that may precede a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftContext {
    Anything,
    /// Not a letter or digit.
    Gap,
    /// Not a letter, digit or underscore.
    Edge,
    /// Like `Edge`, and not a hyphen.
    WideEdge,
    Digit,
}

/// The pattern of a token that is recognised by its prefix.
const fn token(
    name: &'static str,
    prefixes: &'static [&'static str],
    rest: &'static [PatternPart],
) -> KeyPattern {
    KeyPattern {
        name,
        prefixes,
        rest,
        redacts: RedactedPart::All,
        before: LeftContext::Edge,
        is_key: anything,
        in_checkouts: false,
    }
}

/// The pattern of a value that is recognised by the text before it.
const fn value(
    name: &'static str,
    prefixes: &'static [&'static str],
    rest: &'static [PatternPart],
) -> KeyPattern {
    let token = token(name, prefixes, rest);
    KeyPattern { redacts: RedactedPart::Value, before: LeftContext::Gap, ..token }
}

impl KeyPattern {
    const fn only_if(self, is_key: fn(&[u8]) -> bool) -> Self {
        Self { is_key, ..self }
    }

    const fn after(self, before: LeftContext) -> Self {
        Self { before, ..self }
    }

    const fn in_checkouts(self) -> Self {
        Self { in_checkouts: true, ..self }
    }
}

/// The name of the pattern for a user and password in a URL.
pub const PASSWORD_IN_URL: &str = "password in an address";

/// All known patterns.
pub static KEY_PATTERNS: &[KeyPattern] = &[
    // Models.
    token("Anthropic key", &["sk-ant-"], &[Run(url_safe, 8, ANY)]),
    token(
        "OpenAI project key",
        &["sk-proj-", "sk-svcacct-", "sk-admin-", "sk-or-v1-"],
        &[Run(url_safe, 20, ANY)],
    )
    .after(WideEdge),
    token("OpenAI key", &["sk-"], &[Run(alnum, 32, 64)]).after(WideEdge).only_if(mixed),
    token("DeepSeek or Qwen key", &["sk-"], &[Run(hex, 32, 32)]).after(WideEdge).only_if(any_digit),
    token(
        "model service key",
        &[
            "sk-None-",
            "sk-lf-",
            "sk-helicone-",
            "nvapi-",
            "tgp_v1_",
            "tvly-",
            "lsv2_pt_",
            "lsv2_sk_",
            "pcsk_",
            "wandb_v1_",
            "hf_oauth_",
            "AQ.Ab8",
        ],
        &[Run(url_safe, 28, ANY)],
    )
    .only_if(any_digit),
    token("model service key", &["csk-", "jina_", "rpa_"], &[Run(alnum, 40, 64)])
        .after(WideEdge)
        .only_if(any_digit),
    token("ElevenLabs key", &["sk_"], &[Run(hex, 48, 48)]).only_if(any_digit),
    token("Hugging Face token", &["hf_", "api_org_"], &[Run(alnum, 30, 40)]).only_if(mixed_case),
    token("Groq, xAI or Perplexity key", &["gsk_", "xai-", "pplx-"], &[Run(alnum, 40, 120)]),
    token("Replicate token", &["r8_"], &[Run(alnum, 37, 40)]),
    // Forges.
    token("GitHub token", &["ghp_", "gho_", "ghu_", "ghr_"], &[Run(word, 36, ANY)]),
    token("GitHub job token", &["ghs_"], &[Run(dotted, 36, ANY)]).in_checkouts(),
    token("GitHub fine-grained token", &["github_pat_"], &[Run(word, 40, ANY)]),
    token(
        "GitLab token",
        &[
            "glpat-",
            "gldt-",
            "glrt-",
            "glptt-",
            "glft-",
            "glsoat-",
            "glimt-",
            "glagent-",
            "glffct-",
            "gloas-",
            "GR1348941",
        ],
        &[Run(dotted, 20, ANY)],
    ),
    token("GitLab job token", &["glcbt-"], &[Run(dotted, 20, ANY)]).in_checkouts(),
    token("Atlassian token", &["ATATT3", "ATCTT3"], &[Run(base64ish, 60, ANY)]),
    // Clouds.
    token("AWS access key id", &["AKIA", "ASIA", "ABIA", "ACCA"], &[Run(upper, 16, 16)])
        .only_if(any_digit),
    value("AWS secret access key", AWS_SECRETS, &[Run(separator, 1, 16), Run(base64, 40, 40)]),
    value("AWS session token", AWS_TOKENS, &[Run(separator, 1, 16), Run(base64, 100, ANY)]),
    token("Bedrock key", &["ABSK", "bedrock-api-key-"], &[Run(base64, 100, ANY)]),
    token("Google API key", &["AIza"], &[Run(url_safe, 35, 35)]),
    token("Google OAuth token", &["ya29."], &[Run(dotted, 20, ANY)]),
    token("Google OAuth secret", &["GOCSPX-"], &[Run(url_safe, 28, 28)]),
    value("Azure storage key", &["AccountKey="], &[Run(base64, 86, 88)]),
    value("Azure access key", &["SharedAccessKey="], &[Run(base64, 43, 44)]),
    value("signed address", &["&sig=", "?sig="], &[Run(percent, 43, 128)])
        .after(Anything)
        .only_if(any_digit),
    token("DigitalOcean token", &["dop_v1_", "doo_v1_", "dor_v1_"], &[Run(hex, 64, 64)]),
    token("Databricks token", &["dapi"], &[Run(hex, 32, 32)]).only_if(any_digit),
    token("Vault token", &["hvs.", "hvb.", "hvr."], &[Run(url_safe, 24, ANY)]),
    token("Doppler token", &["dp.pt.", "dp.st.", "dp.ct.", "dp.sa."], &[Run(dotted, 40, ANY)]),
    token("Pulumi token", &["pul-"], &[Run(hex, 40, 40)]),
    value("Terraform token", &["atlasv1."], &[Run(base64ish, 60, ANY)]),
    token("Fly.io token", &["fm1a_", "fm1r_", "fm2_"], &[Run(base64, 100, ANY)]),
    token("Fly.io token", &["fo1_"], &[Run(url_safe, 43, 43)]),
    token("Heroku key", &["HRKU-AA"], &[Run(url_safe, 58, 58)]),
    token("OpenShift token", &["sha256~"], &[Run(url_safe, 43, 43)]),
    token("Scalingo token", &["tk-us-"], &[Run(url_safe, 48, 48)]),
    token(
        "PlanetScale token",
        &["pscale_tkn_", "pscale_oauth_", "pscale_pw_"],
        &[Run(base64ish, 32, ANY)],
    ),
    token("Cloudflare origin key", &["v1.0-"], &[Run(hex, 24, 24), Word("-"), Run(hex, 146, 146)]),
    token(
        "cloud service token",
        &["vcp_", "vck_", "napi_", "phx_", "cfut_", "cfat_", "hcaik_"],
        &[Run(alnum, 40, 64)],
    )
    .only_if(any_digit),
    token(
        "cloud service token",
        &["rnd_", "nfp_", "ddp_", "apify_api_", "ATBB"],
        &[Run(alnum, 28, 40)],
    )
    .only_if(mixed),
    token("cloud service token", &["e2b_", "bkua_", "sqa_", "sqp_", "squ_"], &[Run(hex, 40, 40)]),
    token(
        "cloud service token",
        &[
            "vercel_blob_rw_",
            "sb_secret_",
            "mdb_sa_sk_",
            "tskey-api-",
            "tskey-auth-",
            "tskey-client-",
            "CCIPAT_",
            "CCIPRJ_",
            "pat-eu1-",
            "pat-na1-",
            "sl.u.",
        ],
        &[Run(url_safe, 28, ANY)],
    )
    .only_if(any_digit),
    value("Azure client secret", &["7Q~", "8Q~"], &[Run(base64ish, 31, 34)]).after(Anything),
    token(
        "Mapbox token",
        &["sk.eyJ"],
        &[Run(url_safe, 20, ANY), Word("."), Run(url_safe, 20, ANY)],
    ),
    value("key of a Kubernetes user", &["client-key-data: "], &[Run(base64, 64, ANY)]),
    // Packages.
    token("npm token", &["npm_"], &[Run(alnum, 36, 36)]),
    token("PyPI token", &["pypi-"], &[Run(url_safe, 50, ANY)]),
    value(
        "npm registry token",
        &["_authToken=", "_auth=", ":_password="],
        &[Run(base64ish, 16, ANY)],
    )
    .after(Anything),
    token("Artifactory key", &["AKCp"], &[Run(alnum, 69, 69)]),
    token("Artifactory token", &["cmVmd"], &[Run(alnum, 59, 59)]),
    token("RubyGems key", &["rubygems_"], &[Run(hex, 48, 48)]),
    token("NuGet key", &["oy2"], &[Run(lower, 43, 43)]),
    value(
        "Docker login",
        &["\"auth\": \"", "\"auth\":\"", "\\\"auth\\\": \\\"", "\\\"auth\\\":\\\""],
        &[Run(base64, 8, ANY)],
    )
    .after(Anything)
    .only_if(basic_login),
    token("Docker Hub token", &["dckr_pat_", "dckr_oat_"], &[Run(url_safe, 27, ANY)]),
    token("crates.io token", &["cio"], &[Run(alnum, 32, 32)]).only_if(mixed),
    // Messages and payments.
    token(
        "Slack token",
        &["xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxe.", "xoxp-", "xoxr-", "xoxs-", "xapp-"],
        &[Run(dotted, 10, ANY)],
    )
    .only_if(any_digit),
    value(
        "Slack webhook",
        &["hooks.slack.com/services/", "hooks.slack.com/workflows/", "hooks.slack.com/triggers/"],
        &[Run(path, 20, ANY)],
    ),
    value(
        "Discord webhook",
        &["discord.com/api/webhooks/", "discordapp.com/api/webhooks/"],
        &[Run(path, 60, ANY)],
    ),
    token("Telegram bot token", &[":AA"], &[Run(url_safe, 33, 33)]).after(Digit),
    token(
        "Stripe key",
        &[
            "sk_live_",
            "rk_live_",
            "sk_test_",
            "rk_test_",
            "sk_prod_",
            "rk_prod_",
            "sk_org_live_",
            "sk_org_test_",
        ],
        &[Run(alnum, 10, ANY)],
    ),
    token(
        "PayPal token",
        &["access_token$production$", "access_token$sandbox$"],
        &[Run(alnum, 16, 16), Word("$"), Run(hex, 32, 32)],
    ),
    token("Resend key", &["re_"], &[Run(alnum, 8, 8), Word("_"), Run(alnum, 24, 24)])
        .only_if(mixed),
    token("webhook secret", &["whsec_"], &[Run(base64, 24, ANY)]),
    token("SendGrid key", &["SG."], &[Run(url_safe, 16, 64), Word("."), Run(url_safe, 32, 64)]),
    token("Twilio key", &["SK"], &[Run(hex, 32, 32)]).only_if(any_digit),
    token("Mailgun key", &["key-"], &[Run(hex, 32, 32)]).after(WideEdge).only_if(any_digit),
    token("Shopify token", &["shpat_", "shpca_", "shppa_", "shpss_"], &[Run(any_hex, 32, 32)]),
    token("Shippo token", &["shippo_live_", "shippo_test_"], &[Run(any_hex, 40, 40)]),
    token("EasyPost key", &["EZAK", "EZTK"], &[Run(alnum, 54, 54)]),
    token("Duffel token", &["duffel_live_", "duffel_test_"], &[Run(base64ish, 43, 43)]),
    token("Brevo key", &["xkeysib-"], &[Run(hex, 64, 64), Word("-"), Run(alnum, 16, 16)]),
    token("Square token", &["sq0atp-", "sq0csp-"], &[Run(url_safe, 22, ANY)]),
    // Tools.
    token("1Password token", &["ops_eyJ"], &[Run(base64, 100, ANY)]),
    token("Airtable token", &["pat"], &[Run(alnum, 14, 14), Word("."), Run(hex, 64, 64)]),
    token("Dynatrace token", &["dt0c01."], &[Run(alnum, 24, 24), Word("."), Run(alnum, 64, 64)]),
    token(
        "Harness key",
        &["pat.", "sat."],
        &[Run(url_safe, 22, 22), Word("."), Run(alnum, 24, 24), Word("."), Run(alnum, 20, 20)],
    ),
    token("Prefect key", &["pnu_"], &[Run(alnum, 36, 36)]),
    token("ReadMe key", &["rdme_"], &[Run(alnum, 70, 70)]),
    token("Sourcegraph token", &["sgp_"], &[Run(word, 40, ANY)]),
    token("Linear key", &["lin_api_", "lin_oauth_"], &[Run(alnum, 32, ANY)]),
    token("Notion token", &["ntn_"], &[Run(alnum, 40, ANY)]),
    token("Notion token", &["secret_"], &[Run(alnum, 43, 43)]).only_if(mixed),
    token("Figma token", &["figd_"], &[Run(url_safe, 40, ANY)]),
    token("Postman key", &["PMAK-"], &[Run(url_safe, 59, 59)]),
    token("New Relic key", &["NRAK-"], &[Run(alnum, 27, 27)]),
    token("Grafana token", &["glsa_", "glc_"], &[Run(base64ish, 32, ANY)]),
    token("Sentry token", &["sntrys_", "sntryu_"], &[Run(base64ish, 60, ANY)]),
    token("Supabase token", &["sbp_"], &[Run(hex, 40, 40)]),
    token("age key", &["AGE-SECRET-KEY-1"], &[Run(upper, 58, 58)]),
    // Usable by any service.
    token(
        "JSON web token",
        &["eyJ"],
        &[
            Run(url_safe, 10, ANY),
            Word(".eyJ"),
            Run(url_safe, 10, ANY),
            Word("."),
            Run(url_safe, 10, ANY),
        ],
    ),
    value("private key", PRIVATE_KEYS, &[Until("-----END", pem)])
        .after(Anything)
        .only_if(has_key_line),
    value(
        "SSH2 private key",
        &["---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----"],
        &[Until("---- END", pem)],
    )
    .after(Anything)
    .only_if(has_key_line),
    value(
        "PuTTY private key",
        &["Private-Lines: "],
        &[Run(digit, 1, 4), Until("Private-MAC:", pem)],
    )
    .only_if(has_key_line),
    value(
        "password of netrc",
        &["machine "],
        &[
            Run(dotted, 1, 255),
            Word(" login "),
            Run(user, 1, 128),
            Word(" password "),
            Run(password, 4, 512),
        ],
    )
    .only_if(is_not_placeholder),
    value("password parameter", &["?password=", "&password="], &[Run(percent, 8, 512)])
        .after(Anything)
        .only_if(any_digit),
    value(
        "token header",
        &["Authorization: token ", "authorization: token ", "Authorization: Token "],
        &[Run(base64ish, 16, ANY)],
    )
    .only_if(any_digit),
    value(
        "checkout header",
        &[
            "AUTHORIZATION: basic ",
            "AUTHORIZATION: bearer ",
            "AUTHORIZATION: Basic ",
            "AUTHORIZATION: Bearer ",
        ],
        &[Run(base64ish, 8, ANY)],
    )
    .in_checkouts(),
    value("bearer token", &["Bearer ", "bearer ", "BEARER "], &[Run(base64ish, 16, ANY)])
        .after(Edge)
        .only_if(any_digit),
    value("basic credentials", &["Basic ", "basic ", "BASIC "], &[Run(base64, 12, ANY)])
        .after(Edge)
        .only_if(mixed),
    value("key header", KEY_HEADERS, &[Run(separator, 1, 8), Run(base64ish, 16, ANY)])
        .only_if(any_digit),
    value(
        "CI password in an address",
        &["x-access-token:", "gitlab-ci-token:"],
        &[Run(password, 4, ANY), Word("@")],
    )
    .in_checkouts(),
    value(
        PASSWORD_IN_URL,
        &["://"],
        &[Run(user, 0, 128), Word(":"), Run(password, 1, 512), Word("@")],
    )
    .after(Anything)
    .only_if(is_not_placeholder),
];

const AWS_SECRETS: &[&str] = &[
    "aws_secret_access_key",
    "AWS_SECRET_ACCESS_KEY",
    "aws_secret_key",
    "AWS_SECRET_KEY",
    "SecretAccessKey",
    "secretAccessKey",
    "secret_access_key",
];
const AWS_TOKENS: &[&str] =
    &["aws_session_token", "AWS_SESSION_TOKEN", "SessionToken", "sessionToken"];
const KEY_HEADERS: &[&str] = &[
    "x-api-key",
    "X-Api-Key",
    "X-API-Key",
    "X-API-KEY",
    "PRIVATE-TOKEN",
    "Private-Token",
    "JOB-TOKEN",
];
const PRIVATE_KEYS: &[&str] = &[
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN ENCRYPTED PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----",
    "-----BEGIN EC PRIVATE KEY-----",
    "-----BEGIN DSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----",
];
