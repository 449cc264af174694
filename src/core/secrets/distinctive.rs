//! Distinguishes credentials from placeholders such as `local` or `none`. Pure.
//!
//! Local model servers accept any key, so users write `local`, `none` or `sk-no-key-required`.
//! Redacting such a value would corrupt ordinary text: `localhost` would become `[redacted]host`.

/// Minimum length of a secret, in bytes. A shorter value would be found in most ordinary words.
const SHORTEST: usize = 4;

/// Maximum length of a number in a placeholder, unless it only counts up, such as `123456`.
const DIGITS_MAX: usize = 4;

/// The words that placeholders consist of, in lower case.
const WORDS: &str = "\
    a abc admin an anon anonymous anthropic any anything api apikey auth bar baz bearer blank \
    change changeme claude default demo dev development dummy empty example fake false foo \
    free gateway guest here host ignored insert key litellm llama llamacpp lm lmstudio local \
    localhost me model my needed nil no none not nothing null ollama openai password \
    placeholder proxy public replace required sample server sk studio test testing token true \
    unused user vllm your";

/// The default passwords of services, which are also the names of programs and accounts.
///
/// Containers for tests are configured with them (`PGPASSWORD=postgres`). Each is the first guess
/// of every attacker, so redacting it protects nothing, and it corrupts image names, paths and
/// structured output. Only the whole value counts: in a longer one, such as `root-2024` or
/// `postgres123`, the rest may be secret.
const DEFAULT_PASSWORDS: &str = "\
    cassandra clickhouse couchbase couchdb docker elastic elasticsearch grafana influxdb \
    jenkins kafka keycloak mariadb master minio minioadmin mongo mongodb mysql neo4j \
    opensearch oracle postgres postgresql rabbitmq redis root secret supabase system vault";

/// True if a secret is to be redacted: it has at least four bytes and is not a placeholder. Numbers
/// of that length are redacted, since PINs are numbers.
pub fn is_distinctive(value: &str) -> bool {
    let value = value.trim();
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    value.len() >= SHORTEST && (is_number || !is_placeholder(value))
}

/// True if a value consists only of common words and short numbers, or is a service's default
/// password.
pub fn is_placeholder(value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    let mut parts = value.split(|letter: char| !letter.is_ascii_alphanumeric());
    let has_only_common_words =
        value.is_ascii() && parts.all(|part| part.is_empty() || is_common(part));
    has_only_common_words || contains_word(DEFAULT_PASSWORDS, &value)
}

fn is_common(part: &str) -> bool {
    if part.bytes().all(|byte| byte.is_ascii_digit()) {
        return part.len() <= DIGITS_MAX || "1234567890".starts_with(part);
    }
    part.bytes().all(|byte| byte == b'x') || contains_word(WORDS, part)
}

fn contains_word(list: &str, word: &str) -> bool {
    list.split(' ').any(|listed| listed == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_placeholder_accepts_placeholders_and_rejects_keys() {
        const PLACEHOLDERS: &str = "\
            local localhost none test dummy ollama OLLAMA sk-no-key sk-no-key-required \
            not-needed lm-studio your_api_key_here YOUR-API-KEY changeme password sk-1234 \
            12345678 1234567890 xxxxxxxxxxxxxxxx anything test-key-1 -------- postgres root \
            minioadmin";
        const KEYS: &str = "\
            long-secret test-key-0123456789 rehearsal-key localsecret abcdefgh 98765432 \
            sk-proj-4fK2 hunter2 s3cr root-2024 postgres123 secret-master sunshine";
        for placeholder in PLACEHOLDERS.split(' ').chain(["<api key>", ""]) {
            assert!(is_placeholder(placeholder), "{placeholder}");
            let is_number = placeholder.len() >= SHORTEST && placeholder.parse::<u64>().is_ok();
            assert_eq!(is_distinctive(placeholder), is_number, "{placeholder}");
        }
        for key in
            KEYS.split(' ').chain(["correct horse battery staple", "d\u{e9}j\u{e0} vu encore"])
        {
            assert!(!is_placeholder(key) && is_distinctive(key), "{key}");
        }
        for short in ["k3y", "é9", "42x"] {
            assert!(!is_placeholder(short) && !is_distinctive(short), "{short}");
        }
    }
}
