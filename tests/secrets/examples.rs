//! A key of each shape. None is real, and none is written out: scanners read this file, too.

/// `count` characters of an alphabet, in an order that has all kinds of them early.
fn letters(alphabet: &str, count: usize) -> String {
    let letters: Vec<char> = alphabet.chars().collect();
    (0..count).map(|index| letters[(index * 7 + 3) % letters.len()]).collect()
}

fn alnum(count: usize) -> String {
    letters("aB3cD4eF5gH6iJ7kL8mN9oP0qR1sT2uVwXyZ", count)
}

fn hex(count: usize) -> String {
    letters("0123456789abcdef", count)
}

fn upper(count: usize) -> String {
    letters("ABC2DEF3GHJ4KLM5NPQ6RST7", count)
}

/// The name of a shape, a text with such a key in it, and the part that must not be seen.
pub(crate) struct Example {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) secret: String,
}

/// A key, plain.
fn key(name: &'static str, parts: &[&str]) -> Example {
    let secret = parts.concat();
    Example { name, text: secret.clone(), secret }
}

/// A secret after something that says what it is.
fn within(name: &'static str, before: &str, secret: &str, after: &str) -> Example {
    Example { name, text: [before, secret, after].concat(), secret: secret.to_owned() }
}

/// Lines of base64 between marks.
fn block(kind: &str) -> Example {
    let body: Vec<String> = (0..6).map(|line| alnum(60 + line)).collect();
    let body = body.join("\n");
    let dashes = "-----";
    let before = [dashes, "BEGIN ", kind, dashes, "\n"].concat();
    let after = ["\n", dashes, "END ", kind, dashes].concat();
    within("private key", &before, &body, &after)
}

/// Keys of services that have one form each.
fn further_examples() -> Vec<Example> {
    let (a, h) = (alnum, hex);
    vec![
        key("Bedrock key", &["AB", "SK", &a(132)]),
        within("Terraform token", "abc123.atlasv1.", &a(67), "\n"),
        key("Fly.io token", &["fm", "2_", &a(140)]),
        key("Heroku key", &["HRK", "U-AA", &a(58)]),
        key("OpenShift token", &["sha", "256~", &a(43)]),
        key("Scalingo token", &["tk", "-us-", &a(48)]),
        key("PlanetScale token", &["psc", "ale_tkn_", &a(43)]),
        key("Cloudflare origin key", &["v1", ".0-", &h(24), "-", &h(146)]),
        key("Artifactory key", &["AK", "Cp", &a(69)]),
        key("Artifactory token", &["cm", "Vmd", &a(59)]),
        key("Shippo token", &["shi", "ppo_live_", &h(40)]),
        key("EasyPost key", &["EZ", "AK", &a(54)]),
        key("Duffel token", &["duf", "fel_live_", &a(43)]),
        key("Brevo key", &["xke", "ysib-", &h(64), "-", &a(16)]),
        key("1Password token", &["op", "s_eyJ", &a(209)]),
        key("Airtable token", &["pa", "t", &a(14), ".", &h(64)]),
        key("Dynatrace token", &["dt0", "c01.", &a(24), ".", &a(64)]),
        key("Harness key", &["pa", "t.", &a(22), ".", &a(24), ".", &a(20)]),
        key("Prefect key", &["pn", "u_", &a(36)]),
        key("ReadMe key", &["rd", "me_", &a(70)]),
        key("Sourcegraph token", &["sg", "p_", &h(40)]),
        key("DeepSeek or Qwen key", &["s", "k-", &h(32)]),
        key("model service key", &["nv", "api-", &a(64)]),
        key("model service key", &["cs", "k-", &a(48)]),
        key("ElevenLabs key", &["s", "k_", &h(48)]),
        key("cloud service token", &["vc", "p_", &a(56)]),
        key("cloud service token", &["nf", "p_", &a(36)]),
        key("cloud service token", &["sq", "p_", &h(40)]),
        key("cloud service token", &["tsk", "ey-auth-", &a(14), "CNTRL-", &a(32)]),
        within("Azure client secret", "abc8Q~", &a(34), "\n"),
        key("Mapbox token", &["sk", ".ey", "J", &a(60), ".", &a(22)]),
        within("key of a Kubernetes user", "client-key-data: ", &a(400), "\n"),
        within("npm registry token", "//r.invalid/:_password=", &a(22), "\n"),
        key("NuGet key", &["oy", "2", &a(43).to_lowercase()]),
        within("Docker login", "\"auth\": \"", "bWU6aHVudGVyMi1hQjNjRA==", "\""),
        key("PayPal token", &["access_to", "ken$production$", &a(16), "$", &h(32)]),
        key("Resend key", &["r", "e_", &a(8), "_", &a(24)]),
        key("Notion token", &["sec", "ret_", &a(43)]),
        within("PuTTY private key", "Private-Lines: 1\n", &a(48), "\nPrivate-MAC: 0"),
        within("password of netrc", "machine h.invalid login me password ", &a(12), "\n"),
        within("password parameter", "jdbc:postgresql://h/db?user=u&password=", &a(14), "\n"),
        within("token header", "Authorization: token ", &h(40), "\r\n"),
    ]
}

/// At least one for each shape.
pub(crate) fn examples() -> Vec<Example> {
    let (a, h, u) = (alnum, hex, upper);
    let jwt = ["ey", "J", &a(30), ".ey", "J", &a(60), ".", &a(43)].concat();
    let mut all = vec![
        key("Anthropic key", &["sk-", "ant-", "api03-", &a(40), "-", &a(20)]),
        key("OpenAI project key", &["sk-", "proj-", &a(30), "_", &a(20)]),
        key("OpenAI key", &["sk", "-", &a(48)]),
        key("Hugging Face token", &["h", "f_", &a(34)]),
        key("Groq, xAI or Perplexity key", &["gs", "k_", &a(52)]),
        key("Replicate token", &["r", "8_", &a(37)]),
        key("GitHub token", &["gh", "p_", &a(36)]),
        key("GitHub token", &["gh", "o_", &a(36)]),
        key("GitHub job token", &["gh", "s_", &a(36)]),
        key("GitHub fine-grained token", &["github", "_pat_", &a(22), "_", &a(59)]),
        key("GitLab token", &["glp", "at-", &a(20)]),
        key("GitLab job token", &["glc", "bt-", "64_", &a(20)]),
        key("Atlassian token", &["ATA", "TT3", &a(180), "=", &u(8)]),
        key("AWS access key id", &["AK", "IA", &u(16)]),
        key("AWS access key id", &["AS", "IA", &u(16)]),
        within("AWS secret access key", "aws_secret_access_key = ", &a(40), "\n"),
        within("AWS secret access key", "\"SecretAccessKey\": \"", &a(40), "\""),
        within("AWS session token", "aws_session_token=", &a(300), "\n"),
        key("Google API key", &["AI", "za", &a(35)]),
        key("Google OAuth token", &["ya", "29.", &a(100)]),
        key("Google OAuth secret", &["GOC", "SPX-", &a(28)]),
        within("Azure storage key", "AccountName=x;AccountKey=", &[&a(86), "=="].concat(), ";"),
        within("Azure access key", "SharedAccessKey=", &[&a(43), "="].concat(), ""),
        within("signed address", "https://x.invalid/b?se=1&sig=", &[&a(43), "%3D"].concat(), ""),
        key("DigitalOcean token", &["dop", "_v1_", &h(64)]),
        key("Databricks token", &["da", "pi", &h(32)]),
        key("Vault token", &["hv", "s.", &a(24)]),
        key("Doppler token", &["dp.", "pt.", &a(43)]),
        key("Pulumi token", &["pu", "l-", &h(40)]),
        key("npm token", &["np", "m_", &a(36)]),
        key("PyPI token", &["py", "pi-", &a(150)]),
        within("npm registry token", "//r.invalid/:_authToken=", &a(36), "\n"),
        key("RubyGems key", &["ruby", "gems_", &h(48)]),
        key("Docker Hub token", &["dckr", "_pat_", &a(27)]),
        key("crates.io token", &["ci", "o", &a(32)]),
        key("Slack token", &["xo", "xb-", "123456789012-", &a(24)]),
        within(
            "Slack webhook",
            "https://hooks.slack.com/services/",
            &["T", &u(8), "/B", &u(8), "/", &a(24)].concat(),
            "",
        ),
        within(
            "Discord webhook",
            "https://discord.com/api/webhooks/",
            &["123456789012345678/", &a(68)].concat(),
            "",
        ),
        within("Telegram bot token", "123456789", &[":A", "A", &a(33)].concat(), ""),
        key("Stripe key", &["sk", "_live_", &a(24)]),
        key("Stripe key", &["rk", "_live_", &a(24)]),
        key("webhook secret", &["wh", "sec_", &a(32)]),
        key("SendGrid key", &["S", "G.", &a(22), ".", &a(43)]),
        key("Twilio key", &["S", "K", &h(32)]),
        key("Mailgun key", &["ke", "y-", &h(32)]),
        key("Shopify token", &["shp", "at_", &h(32)]),
        key("Square token", &["sq0", "csp-", &a(43)]),
        key("Linear key", &["lin", "_api_", &a(40)]),
        key("Notion token", &["nt", "n_", &a(46)]),
        key("Figma token", &["fi", "gd_", &a(40)]),
        key("Postman key", &["PM", "AK-", &a(24), "-", &a(34)]),
        key("New Relic key", &["NR", "AK-", &a(27)]),
        key("Grafana token", &["gl", "sa_", &a(32), "_", &h(8)]),
        key("Sentry token", &["sn", "trys_", &a(80)]),
        key("Supabase token", &["sb", "p_", &h(40)]),
        key("age key", &["AGE-", "SECRET-KEY-1", &u(58)]),
        within("bearer token", "authorization: Bearer ", &a(32), "\r\n"),
        within("basic credentials", "Authorization: Basic ", &[&a(22), "=="].concat(), "\r\n"),
        within(
            "checkout header",
            "extraheader = AUTHORIZATION: basic ",
            &[&a(50), "="].concat(),
            "\n",
        ),
        within("key header", "x-api-key: ", &a(32), "\r\n"),
        within("password in an address", "postgres://me:", &a(12), "@db.invalid/x"),
        within("CI password in an address", "https://gitlab-ci-token:", &a(20), "@git.invalid"),
        within(
            "SSH2 private key",
            "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n",
            &a(200),
            "\n---- END SSH2",
        ),
    ];
    all.extend(further_examples());
    all.push(Example { name: "JSON web token", text: jwt.clone(), secret: jwt });
    for kind in ["", "ENCRYPTED ", "RSA ", "EC ", "DSA ", "OPENSSH "] {
        all.push(block(&[kind, "PRIVATE KEY"].concat()));
    }
    all.push(block("PGP PRIVATE KEY BLOCK"));
    all
}
