//! The secrets in environment variables, for redaction. Pure.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use percent_encoding::percent_decode_str;

use crate::types::ChildEnvironment;

use super::command_settings::CommandSettings;
use super::environment::{is_credential, is_essential, is_name_of_key, is_telling, looks_secret};
use crate::secrets::is_distinctive;

/// The minimum length of a password in an address that is looked for elsewhere, in bytes.
const PASSWORD_BYTES_MIN: usize = 6;

/// Words in names of headers, and of parameters of addresses, that mark the value as a secret.
const SECRET_WORDS: [&str; 9] =
    ["auth", "key", "token", "secret", "password", "passwd", "cookie", "credential", "sig"];

/// Returns the values of variables that are secret by name or are passed to commands by name, for
/// redaction. Commands may see them, if the policy passes them on; readers of logs may not.
///
/// Keys in headers and passwords in addresses are included, whatever the variable is called.
///
/// Three kinds of values are left out, because texts without them would be useless: words, numbers,
/// paths and commits that are also the value of a harmless variable (a commit's hash in a cache
/// key), unless they are passed by name; parts of a variable that every program has, such as `PATH`
/// or `HOME`; and a word of the variable's own name, which is not a secret
/// (`SHOP_DB_PASSWORD=shop`).
///
/// If commands get only the variables that are passed by name (`Allowlist`), ordinary ones have
/// to be passed, too, such as `NODE_ENV=production`. There, the name or the value has to look like
/// a secret. `commands` is `None` if nothing is passed.
pub fn secret_values(
    variables: &BTreeMap<OsString, OsString>,
    commands: Option<&CommandSettings>,
) -> Vec<String> {
    let is_passed = |name: &str| {
        commands.is_some_and(|commands| commands.pass_env.iter().any(|passed| passed == name))
    };
    let lists_all = commands.is_some_and(|it| it.child_environment == ChildEnvironment::Allowlist);
    let is_secret = |name: &OsStr, value: &OsStr| {
        let name = name.to_string_lossy();
        let is_like_secret = || looks_secret(&name, value) && !is_name_of_key(&name, value);
        let is_named = is_credential(&name, value) || is_like_secret();
        // Messages name this file, which is not a secret itself.
        let is_named = is_named && !is_credential_file(value);
        (is_named || is_passed(&name) && (!lists_all || is_telling(value))) && !is_essential(&name)
    };
    let (secret, open): (Vec<_>, Vec<_>) =
        variables.iter().partition(|(name, value)| is_secret(name, value));
    let is_everywhere = |text: &str| {
        let mut essential = open.iter().filter(|(name, _)| is_essential(&name.to_string_lossy()));
        essential.any(|(_, value)| value.to_string_lossy().contains(text))
    };
    let mut values = Vec::new();
    for (name, value) in secret {
        let Some(text) = value.to_str().map(str::trim) else { continue };
        let is_common = !is_telling(value) || is_commit(text);
        let is_open = is_common && open.iter().any(|(_, other)| *other == value);
        let name = name.to_string_lossy();
        let is_own_name = || is_word_of(text, &name) && !is_credential(&name, value);
        if !is_everywhere(text) && !is_own_name() && (!is_open || is_passed(&name)) {
            values.push(text.to_owned());
        }
    }
    for (name, value) in variables {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        if name.ends_with("HEADERS") || name.ends_with("HEADER") {
            values.extend(header_secrets(&value));
        }
        values.extend(value.split([' ', ',', '\n', '\t']).flat_map(address_secrets));
    }
    values
}

/// True if a value is the path of a file of credentials, as that of Google. A key in base64 has no
/// full stop, and one in JSON or PEM does not end so.
fn is_credential_file(value: &OsStr) -> bool {
    Path::new(value).extension().is_some_and(|kind| kind == "json" || kind == "pem")
}

/// True if a text in lower case is one of the words of a variable's name.
fn is_word_of(text: &str, name: &str) -> bool {
    let is_word = text.bytes().all(|byte| byte.is_ascii_lowercase());
    is_word && name.split('_').any(|word| word.eq_ignore_ascii_case(text))
}

/// True if a text is the hash of a commit.
fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The secrets in headers: `Name: value` in lines, or `name=value` separated by commas.
fn header_secrets(text: &str) -> Vec<String> {
    let mut secrets = Vec::new();
    for header in text.split(['\n', ',']) {
        let Some((name, value)) = header.split_once([':', '=']) else { continue };
        let value = value.trim();
        let decoded = percent_decoded(value);
        let is_named = is_secret_word(name);
        // `Bearer` and similar words are not secrets.
        let forms = [Some(value), decoded.as_deref()].into_iter().flatten();
        let words = forms.flat_map(str::split_whitespace);
        let is_secret =
            |word: &&str| is_distinctive(word) && (is_named || is_telling(word.as_ref()));
        secrets.extend(words.filter(is_secret).map(ToOwned::to_owned));
    }
    secrets
}

/// The secrets in an address: the password, or a user name that is a token, and parameters named
/// like secrets. As written, and decoded.
fn address_secrets(text: &str) -> Vec<String> {
    let Some((_, rest)) = text.split_once("://") else { return Vec::new() };
    let (authority, path) = rest.split_once(['/', '?', '#']).unwrap_or((rest, ""));
    let mut parts = Vec::new();
    if let Some((account, _)) = authority.rsplit_once('@') {
        let (user, password) = account.split_once(':').unwrap_or((account, ""));
        parts.extend(Some(user).filter(|user| is_telling(user.as_ref())));
        parts.extend(Some(password).filter(|password| *password != user && is_password(password)));
    }
    let parameters = path.split_once('?').map_or("", |(_, parameters)| parameters);
    for parameter in parameters.split(['&', '#']) {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        parts.extend(Some(value).filter(|value| is_secret_word(name) && is_password(value)));
    }
    let decoded = parts.iter().filter_map(|part| percent_decoded(part));
    decoded.chain(parts.iter().map(|part| (*part).to_owned())).collect()
}

/// True if a text is not an ordinary word: `postgres` is the password of many databases under test.
fn is_password(text: &str) -> bool {
    let is_word = text.bytes().all(|byte| byte.is_ascii_lowercase());
    text.len() >= PASSWORD_BYTES_MIN && !is_word && is_distinctive(text)
}

fn is_secret_word(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Decodes `%20` and similar escapes. `None` if that changes nothing.
fn percent_decoded(text: &str) -> Option<String> {
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    (decoded != text).then(|| decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_headers_and_passwords_in_addresses_are_secret() {
        for (name, value, secrets) in [
            (
                "ANTHROPIC_CUSTOM_HEADERS",
                "X-Team: platform\nX-Api-Key: k3y-of-gateway",
                &["X-Team: platform\nX-Api-Key: k3y-of-gateway", "k3y-of-gateway"][..],
            ),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer%20abc%2Fdef1,x-tenant=blue",
                &["Bearer%20abc%2Fdef1", "abc/def1"],
            ),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "dd-api-key=0123abcd", &["0123abcd"]),
            (
                "PIP_INDEX_URL",
                concat!("https://me:", "p%40ss-1", "@pypi.corp/simple"),
                &["p@ss-1", "p%40ss-1"],
            ),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/home/ci/gha-creds-1f2e.json", &[]),
            ("GOOGLE_APPLICATION_CREDENTIALS", "./keys/gcp-1f2e.json", &[]),
            ("SERVICE_CREDENTIALS", "/x4fKq7rT2mBv9zLw+3e", &["/x4fKq7rT2mBv9zLw+3e"]),
            ("GOPROXY", "https://a1b2c3d4e5f6g@proxy.corp,direct", &["a1b2c3d4e5f6g"]),
            ("MY_BASE_URL", "https://h.test/v1?key=Kq7-123&page=10", &["Kq7-123"]),
            ("DATABASE_URL", concat!("postgres://postgres:", "postgres", "@localhost/x"), &[]),
            ("HOMEPAGE", "https://h.test/a@b:c", &[]),
            ("X_HEADERS", "accept: text/html", &[]),
        ] {
            let variables = [(name.into(), value.into())].into_iter().collect();
            assert_eq!(secret_values(&variables, None), secrets, "{name}");
        }
    }

    #[test]
    fn names_of_keys_and_settings_of_logins_are_no_secrets_unless_the_value_looks_like_one() {
        for (name, value, is_secret) in [
            ("SONAR_PROJECT_KEY", "acme-web", false),
            ("SONAR_PROJECT_KEY", "Kq7x-93mv-Lw2p", true),
            ("CACHE_KEY", "deps-linux", false),
            ("LOOKUP_KEYS", "name,email", false),
            ("LOOKUP_KEYS", "Kq7x-93mv-Lw2p", true),
            ("LOOKUP_KEYS", "correct,horse,battery", true),
            ("BYPASS", "src/legacy", false),
            ("DB_PASS", "swordfish", true),
            ("API_KEY", "swordfish", true),
            ("MY_APIKEY", "swordfish", true),
            ("DEPLOY_KEYS", "swordfish", true),
            ("ACCESS_TOKEN_EXPIRE_MINUTES", "1440", false),
            ("JWT_EXPIRES_IN", "3600", false),
            ("TOKEN_ENDPOINT", "/oauth/token", false),
            ("TOKEN_URL", "https://login.test/oauth/token", false),
            ("TOKEN_URL", "https://login.test/oauth?code=swordfish", true),
            ("TOKEN_URL", "https://login.test/Kq7x-93mv-Lw2p", true),
            ("SECRETS_DIR", "/run/app", false),
            ("SECRET_NAME", "my-app", false),
            ("SECRET_NAME", "correct horse battery", true),
            ("SECRET_ID", "swordfish", true),
            ("SECRETS_BACKEND", "kubernetes", false),
            ("SECRETS_BACKEND", "Kq7x-93mv-Lw2p", true),
            ("PASSWORD_POLICY", "strictest", false),
            ("TOKEN_AUDIENCE", "sts.amazonaws.com", false),
            ("CI_JOB_TOKEN_SCOPE", "enabled-everywhere", false),
            ("DOCKER_CREDENTIAL_HELPER", "ecr-login", false),
            ("AUTH_TOKEN_HEADER", "Authorization", false),
            ("AUTH_HEADER", "swordfish", true),
            ("ENCRYPTION_KEY_ID", "alias/production", false),
            ("KMS_KEY_ID", "arn:aws:kms:eu-west-1:111122223333:key/abcd", false),
            ("KMS_KEY_ID", "arn:aws:kms:eu-west-1:111122223333:key/Kq7x-93mv-Lw2p", true),
            ("MAX_MCP_OUTPUT_TOKENS", "many", false),
            ("MAX_MCP_OUTPUT_TOKENS", "100_000_000", false),
            ("MAX_MCP_OUTPUT_TOKENS", "swordfish", true),
            ("MAX_DEPLOY_TOKENS", "Kq7x-93mv-Lw2p", true),
            ("DEPLOY_TOKENS", "swordfish", true),
            ("BW_SESSION", "Kq7x93mvLw2pKq7x93mvLw2p==", true),
            ("BW_SESSION", "session", false),
            ("OP_SESSION_my", "Kq7x-93mv-Lw2p", true),
            ("BUNDLE_GEMS__EXAMPLE__COM", "89a71fa8:c5d3f5b1", true),
            ("BUNDLE_BUILD__PG", "--with-pg-config=/usr/pgsql-12/bin/pg_config", false),
            ("BUNDLE_JOBS", "Kq7x-93mv-Lw2p", false),
            ("KUBE_CONFIG", "/home/me/.kube/cluster-2-production", false),
            ("KUBE_CONFIG", "apiVersion: v1\nusers: []", true),
            ("KUBE_CONFIG", "YXBpVmVyc2lvbjogdjE=", true),
            ("APPLE_P12", "certificates/app-store-2026.p12", false),
            ("CERTIFICATE_P12", "MIIKcAIBAzCCCiwGCSqGSIb3DQEHAaCC", true),
            ("STRIPE_SK", "swordfish", false),
            ("OPENAI_API", "https://api.openai.test/v1", false),
            ("TELEGRAM_BOT", "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw", true),
        ] {
            let variables = [(name.into(), value.into())].into_iter().collect();
            let found = secret_values(&variables, None);
            assert_eq!(found.iter().any(|it| it == value), is_secret, "{name}={value}: {found:?}");
        }
    }

    #[test]
    fn words_of_the_own_name_and_passed_values_that_look_like_no_secret_are_left_out() {
        for (name, value, is_passed, is_secret) in [
            ("SHOP_DB_PASSWORD", "shop", false, false),
            ("SHOP_DB_PASSWORD", "shopper", false, true),
            ("SHOP_DB_PASSWORD", "Shop", false, true),
            ("SHOP_DB_PASSWORD", "sunshine", false, true),
            ("SHOP_DB_PASSWORD", "sunshine", true, true),
            ("NODE_ENV", "production", true, false),
            ("JAVA_HOME", "/usr/lib/jvm/java-21-openjdk", true, false),
            ("DEPLOY_CODE", "Kq7x-93mv-Lw2p", true, true),
            ("DEPLOY_CODE", "Kq7x-93mv-Lw2p", false, false),
        ] {
            let variables = [(name.into(), value.into())].into_iter().collect();
            let mut commands = CommandSettings {
                child_environment: ChildEnvironment::Allowlist,
                pass_env: Vec::from_iter(is_passed.then(|| name.to_owned())),
                ..CommandSettings::default()
            };
            let found = secret_values(&variables, Some(&commands));
            assert_eq!(!found.is_empty(), is_secret, "{name}={value}: {found:?}");
            // Elsewhere, only what is withheld has to be passed by name.
            commands.child_environment = ChildEnvironment::Scrub;
            let found = secret_values(&variables, Some(&commands));
            let is_own_name = value == "shop";
            assert_eq!(!found.is_empty(), is_secret || is_passed && !is_own_name, "{name}={value}");
        }
    }
}
