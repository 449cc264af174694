//! The chain of models across endpoints: how entries are written, and who is sent which key.

use std::collections::BTreeMap;
use std::ffi::OsString;

use outlast::cli::args::{self, CliRequest};
use outlast::cli::settings::{self, Settings};
use outlast::journal::Terms;
use outlast::model::{Credential, HelperCommand, Secret};

use super::binary_fixture::BinaryFixture;

const KEY: &str = "primary-key-0123456789";
const OTHER: &str = "other-key-0123456789";
const PRIMARY: &str = "https://gate.example/api";

fn resolve(flags: &[&str], user: &str) -> Result<Settings, String> {
    resolve_with(flags, user, &[])
}

fn resolve_with(flags: &[&str], user: &str, more: &[(&str, &str)]) -> Result<Settings, String> {
    let world = BinaryFixture::new().file("home/.outlast/settings.json", user);
    let words: Vec<String> = ["hi"].iter().chain(flags).map(ToString::to_string).collect();
    let CliRequest::Run(args) = args::parse(&words).map_err(|error| error.to_string())? else {
        panic!("a run");
    };
    let given = [
        ("ANTHROPIC_API_KEY", KEY),
        ("ANTHROPIC_BASE_URL", PRIMARY),
        ("ANTHROPIC_CUSTOM_HEADERS", "X-Team: a-team\nAuthorization: Bearer header-secret-1"),
        ("OTHER_KEY", OTHER),
    ];
    let mut variables: BTreeMap<OsString, OsString> =
        given.iter().chain(more).map(|(name, value)| (name.into(), value.into())).collect();
    variables.insert("HOME".into(), world.home().into());
    let home = world.home().display().to_string();
    settings::resolve(&args, variables, world.work(), &Terms::default())
        .map_err(|error| error.to_string().replace(&home, "HOME"))
}

fn chain(entries: &str) -> Result<Settings, String> {
    resolve(&["--model", "first", "--fallback-model", entries], "{}")
}

fn labels(settings: &Settings) -> Vec<&str> {
    settings.chain.links.iter().map(|link| link.label.as_str()).collect()
}

/// Base URL, credential and headers of the link with this index.
fn place(settings: &Settings, link: usize) -> (&str, &Credential, Vec<&str>) {
    let endpoint = &settings.chain.endpoints[settings.chain.links[link].endpoint];
    let headers = endpoint.extra_headers.iter().map(|(name, _)| name.as_str()).collect();
    (&endpoint.base_url, &endpoint.credential, headers)
}

fn key(text: &str) -> Credential {
    Credential::ApiKey(Secret::new(text))
}

#[test]
fn a_fallback_entry_names_its_model_base_url_and_key_variable() {
    let settings = chain(
        "plain,second#OTHER_KEY,local@http://127.0.0.1:8080/v1,far@https://far.example#OTHER_KEY,\
         bear@https://bear.example/x/#bearer:OTHER_KEY,vertex@20260131,bed.rock-v1:0",
    )
    .expect("they are right");
    assert_eq!(
        labels(&settings),
        [
            "first",
            "plain",
            "second#OTHER_KEY",
            "local@http://127.0.0.1:8080",
            "far@https://far.example#OTHER_KEY",
            "bear@https://bear.example/x#OTHER_KEY",
            "vertex@20260131",
            "bed.rock-v1:0",
        ]
    );
    let models: Vec<&str> = settings.chain.links.iter().map(|link| link.model.as_str()).collect();
    assert_eq!(
        models,
        ["first", "plain", "second", "local", "far", "bear", "vertex@20260131", "bed.rock-v1:0"]
    );
    let both = vec!["X-Team", "Authorization"];
    assert_eq!(place(&settings, 0), (PRIMARY, &key(KEY), both.clone()));
    assert_eq!(place(&settings, 1), (PRIMARY, &key(KEY), both));
    assert_eq!(place(&settings, 2), (PRIMARY, &key(OTHER), vec!["X-Team"]));
    assert_eq!(place(&settings, 3), ("http://127.0.0.1:8080", &Credential::None, vec![]));
    assert_eq!(place(&settings, 4), ("https://far.example", &key(OTHER), vec![]));
    let bearer = Credential::Bearer(Secret::new(OTHER));
    assert_eq!(place(&settings, 5), ("https://bear.example/x", &bearer, vec![]));
    assert_eq!(settings.config.limits.budgets.switches, 7);
}

/// A key must never reach another origin.
#[test]
fn primary_credentials_are_sent_only_to_the_primary_origin() {
    for (base, home) in [
        ("https://gate.example", true),
        ("https://gate.example/api/v1/messages", true),
        ("https://GATE.example:443/other", true),
        ("http://gate.example/api", false),
        ("https://gate.example:444/api", false),
        ("https://gate.example.evil.example/api", false),
        ("https://sub.gate.example/api", false),
        ("https://127.0.0.1/api", false),
    ] {
        for credential in ["", r#"{"apiKeyHelper": "print-key"}"#] {
            let user = if credential.is_empty() { "{}" } else { credential };
            let entry = format!("second@{base}");
            let flags = ["--model=first", "--fallback-model", entry.as_str()];
            let settings = resolve(&flags, user).expect("it is right");
            let (url, found, headers) = place(&settings, 1);
            let primary = if credential.is_empty() {
                key(KEY)
            } else {
                Credential::Helper(HelperCommand::new("print-key"))
            };
            if home {
                assert_eq!((found, headers.len()), (&primary, 2), "{base}");
            } else {
                assert_eq!((found, headers.len()), (&Credential::None, 0), "{base}");
            }
            assert!(url.starts_with("http"), "{url}");
        }
    }
}

#[test]
fn settings_accept_fallback_entries_as_strings_and_objects() {
    let user = r#"{"model": "first", "fallbackReturn": true, "fallbackModel": [
        "plain",
        "far@https://far.example#OTHER_KEY",
        {"model": "big", "baseUrl": "https://big.example/v1", "authTokenEnv": "OTHER_KEY",
         "headers": {"X-Title": "night"}, "contextWindow": 32000},
        {"model": "second", "apiKeyEnv": "OTHER_KEY"}
    ]}"#;
    let settings = resolve(&[], user).expect("they are right");
    let expected = [
        "first",
        "plain",
        "far@https://far.example#OTHER_KEY",
        "big@https://big.example#OTHER_KEY",
        "second#OTHER_KEY",
    ];
    assert_eq!(labels(&settings), expected);
    let bearer = Credential::Bearer(Secret::new(OTHER));
    assert_eq!(place(&settings, 3), ("https://big.example", &bearer, vec!["X-Title"]));
    assert_eq!(settings.chain.links[3].context_window, Some(32_000));
    assert!(settings.config.fallback_return);
    assert_eq!(settings.chain.key_variables, ["OTHER_KEY"]);
    let own =
        r#"{"env": {"GATE": "gate-0123456789"}, "fallbackModel": "m@https://h.example#GATE"}"#;
    let own = resolve(&[], own).expect("the settings' own variables count");
    assert_eq!(place(&own, 1).1, &key("gate-0123456789"));
    assert_eq!(own.chain.key_variables, ["GATE"]);
    let text = resolve(&["--model=first"], r#"{"fallbackModel": "a,b@http://[::1]:80#OTHER_KEY"}"#);
    assert_eq!(labels(&text.expect("right")), ["first", "a", "b@http://[::1]#OTHER_KEY"]);
}

#[test]
fn each_fallback_says_whether_it_uses_another_endpoint() {
    let settings = chain(
        "same,account#OTHER_KEY,account2#OTHER_KEY,path@https://gate.example/other#OTHER_KEY,\
         far@https://far.example#OTHER_KEY,far2@https://far.example#OTHER_KEY,back",
    )
    .expect("they are right");
    assert_eq!(settings.chain.endpoint_changes(), 0b101_0010);
    assert_eq!(chain("second").expect("right").chain.endpoint_changes(), 0);
    let hosts = "a@https://x.example#OTHER_KEY,b@https://y.example#OTHER_KEY";
    assert_eq!(chain(hosts).expect("right").chain.endpoint_changes(), 0b11);
    let accounts = "a@https://x.example#OTHER_KEY,b@https://x.example";
    assert_eq!(chain(accounts).expect("right").chain.endpoint_changes(), 0b11);
    let customers = r#"{"model": "m", "fallbackModel": ["a@https://x.example",
        {"model": "b", "baseUrl": "https://x.example", "headers": {"X-Customer": "2"}}]}"#;
    assert_eq!(resolve(&[], customers).expect("right").chain.endpoint_changes(), 0b11);
    assert_eq!(chain("second@http://127.0.0.1:1").expect("right").chain.endpoint_changes(), 1);
}

#[test]
fn fallback_entries_with_the_same_endpoint_share_it() {
    let settings = chain("a@https://far.example#OTHER_KEY,b@https://far.example/v1/#OTHER_KEY,c");
    let settings = settings.expect("they are right");
    let indexes: Vec<usize> = settings.chain.links.iter().map(|link| link.endpoint).collect();
    assert_eq!(indexes, [0, 1, 1, 0]);
    assert_eq!(settings.chain.endpoints.len(), 2);
}

#[test]
fn a_fallback_entry_that_is_in_the_chain_already_is_left_out() {
    for (entries, kept) in [
        ("first", &["first"][..]),
        ("a,b,a", &["first", "a", "b"]),
        ("sonnet,claude-sonnet-5-5,default", &["first", "claude-sonnet-5-5"]),
        ("a@http://h.example,a@http://h.example/v1/messages", &["first", "a@http://h.example"]),
        ("first@https://gate.example/api/v1", &["first"]),
    ] {
        assert_eq!(labels(&chain(entries).expect(entries)), kept, "{entries}");
    }
    let default = resolve(&["--fallback-model", "sonnet"], "{}").expect("the default is the same");
    assert_eq!(default.chain.links.len(), 1);
}

#[test]
fn invalid_fallback_entries_are_refused_with_the_reason() {
    for (entry, reason) in [
        ("a@ftp://h.example", "\"a\": the base URL is wrong: it must begin with http://"),
        ("a@https://", "\"a\": the base URL is wrong"),
        ("a@localhost:8080", "\"localhost:8080\" after the @ is neither an address, which begins"),
        ("a@h.example", "begins with http://"),
        ("a@nonsense", "\"nonsense\" after the @ is neither an address"),
        ("a@1.5", "nor a version"),
        ("a@", "nor a version"),
        ("@https://h.example", "an entry names no model"),
        ("https://h.example", "an address without a model"),
        ("#OTHER_KEY", "an entry names no model"),
        ("a@https://me:hush-hush@h.example", "\"a\": an address holds no user, password"),
        ("a@https://h.example?key=hush-hush", "\"a\": an address holds no user, password or query"),
        ("a@https://h.example#", "not the name of a variable"),
        ("a@https://h.example#hush-hush", "\"a\": what names its key is not the name"),
        ("a@https://h.example#1KEY", "not the name of a variable"),
        (
            "a@https://h.example#NO_SUCH_KEY",
            "the variable NO_SUCH_KEY must contain a key, but is not set",
        ),
        ("a@https://h.example#EMPTY_KEY", "the variable EMPTY_KEY must contain a key"),
        ("a@https://h.example#hush_hush_hush", "the variable hush... must contain a key"),
        ("a@https://api.anthropic.com", "https://api.anthropic.com needs a key"),
        (" , ", "it names no model"),
    ] {
        let flags = ["--model", "first", "--fallback-model", entry];
        let error = resolve_with(&flags, "{}", &[("EMPTY_KEY", " ")]).expect_err(entry);
        assert!(error.starts_with("--fallback-model: "), "{entry}: {error}");
        assert!(error.contains(reason), "{entry}: {error}");
        assert!(!error.contains("hush-hush") && !error.contains("hush_hush"), "{error}");
    }
    let many: Vec<String> = (0..32).map(|number| format!("m{number}")).collect();
    assert!(chain(&many.join(",")).expect_err("too many").contains("at most 32"));
    let settings = chain(&many[..31].join(",")).expect("32 models in all");
    assert_eq!(settings.chain.links.len(), 32);
}

#[test]
fn invalid_fallback_settings_are_reported_with_file_and_line() {
    for (text, wanted) in [
        (
            "{\"fallbackModel\": [\"a\", \"b@ftp://h\"]}",
            "1:25: \"fallbackModel.1\": \"b\": the base",
        ),
        (
            "{\"fallbackModel\": \"a@localhost:1\"}",
            "1:19: \"fallbackModel\" takes a list of models",
        ),
        ("{\"fallbackModel\": [7]}", "1:20: \"fallbackModel.0\": integer `7`"),
        ("{\"fallbackModel\": [{\"modl\": \"a\"}]}", "unknown field `modl`"),
        ("{\"fallbackModel\": [{\"baseUrl\": \"http://h\"}]}", "missing field `model`"),
        (
            "{\"fallbackModel\": [{\"model\": \"a\", \"apiKeyEnv\": \"A\", \"authTokenEnv\": \"B\"}]}",
            "exclude each other",
        ),
        ("{\"fallbackModel\": [{\"model\": \"a\", \"contextWindow\": 5}]}", "at least 1024"),
        ("{\"fallbackModel\": [\"a\", \"a\"]}", "1:19: \"fallbackModel\" has \"a\" twice"),
        ("{\"contextWindow\": \"big\"}", "1:19: \"contextWindow\" takes a number of tokens"),
        ("{\"contextWindow\": {\"a\": 5}}", "1:25: \"contextWindow\" must be at least 1024"),
        ("{\"compactAt\": 0}", "1:15: \"compactAt\" takes a number above 0 and at most 1"),
        ("{\"fast\": \"yes\"}", "1:10: \"fast\" takes true or false"),
    ] {
        let error = resolve(&[], text).expect_err(text);
        assert!(error.starts_with("HOME/.outlast/settings.json:"), "{error}");
        assert!(error.contains(wanted), "{text}\n{error}\n{wanted}");
    }
    let error = resolve(&[], r#"{"fallbackModel": "a@http://h#GONE"}"#).expect_err("not set");
    assert!(error.contains("\"fallbackModel\": the variable GONE"), "{error}");
}

/// A user's list is written once, for whatever model a run is asked for.
#[test]
fn a_fallback_flag_replaces_the_chain_in_settings() {
    let user = r#"{"fallbackModel": ["opus", "sonnet", "far@http://h#GONE"]}"#;
    let none = resolve(&["--model=m", "--no-fallback"], user).expect("the list is not looked at");
    assert_eq!(labels(&none), ["m"]);
    assert_eq!(none.config.limits.budgets.switches, 0);
    let flag = resolve(&["--model=m", "--fallback-model=n"], user).expect("nor is it here");
    assert_eq!(labels(&flag), ["m", "n"]);
    let user = r#"{"fallbackModel": ["opus", "sonnet"]}"#;
    let primary = resolve(&["--model=claude-opus-5-5"], user).expect("the primary is left out");
    assert_eq!(labels(&primary), ["claude-opus-5-5", "claude-sonnet-5-5"]);
    let more = r#"{"fallbackModel": ["sonnet", "haiku"]}"#;
    let joined = resolve(&["--model=m", "--settings", more], user).expect("lists are joined");
    assert_eq!(labels(&joined), ["m", "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"]);
    let both = resolve(&["--no-fallback", "--fallback-model=n"], "{}").expect_err("not both");
    assert!(both.contains("--no-fallback") && both.contains("cannot be used together"), "{both}");
}

#[test]
fn every_secret_of_the_chain_is_known_and_none_is_shown() {
    let user = r#"{"fallbackModel": ["a#OTHER_KEY", {"model": "b", "baseUrl": "https://h.example",
        "headers": {"X-Api-Token": "token-0123456789", "X-Title": "a night job"}}]}"#;
    let proxy = ("HTTPS_PROXY", "http://me:proxy%20word@proxy.example:3128");
    let base = ("ANTHROPIC_BASE_URL", "https://me:base%20word@gateway.example");
    let settings = resolve_with(&["--model=first"], user, &[proxy, base]).expect("right");
    let secrets = settings.secrets;
    for secret in [KEY, OTHER, "header-secret-1", "token-0123456789", "proxy word", "base word"] {
        assert!(secrets.iter().any(|known| known.reveal() == secret), "{secret}: {secrets:?}");
    }
    let harmless = ["a night job", "a-team"];
    assert!(!secrets.iter().any(|known| harmless.contains(&known.reveal())));
    let shown = format!("{:?}", settings.chain.endpoints[1].credential)
        + &format!("{:?}", settings.endpoint.connection.proxies);
    assert!(!shown.contains(OTHER) && !shown.contains("word"), "{shown}");
}

#[test]
fn context_windows_are_set_by_label_model_name_or_index() {
    let user = r#"{"contextWindow": {"a": 10000, "": 20000}, "fallbackModel": [
        {"model": "c", "contextWindow": 40000}, "sonnet"]}"#;
    let windows = |flags: &[&str], user: &str| -> Vec<Option<u32>> {
        let settings = resolve(flags, user).expect("they are right");
        settings.chain.links.iter().map(|link| link.context_window).collect()
    };
    assert_eq!(windows(&["--model=a"], user), [Some(10_000), Some(40_000), Some(20_000)]);
    let flags = ["--model=a", "--context-window=c=64k", "--context-window", "sonnet=1m"];
    assert_eq!(windows(&flags, user), [Some(10_000), Some(64_000), Some(1_000_000)]);
    let flags = [
        "--model=a",
        "--fallback-model=a@http://h#OTHER_KEY",
        "--context-window=a@http://h=8k",
        "--context-window=99k",
    ];
    assert_eq!(windows(&flags, "{}"), [Some(99_000), Some(8_000)]);
    assert_eq!(windows(&["--model=a"], r#"{"contextWindow": 5000}"#), [Some(5_000)]);
    assert_eq!(windows(&["--model=a"], "{}"), [None]);
    for wrong in ["much", "0", "1000", "-3", "a=b"] {
        let error = resolve(&["--context-window", wrong], "{}").expect_err(wrong);
        assert!(error.starts_with("--context-window: "), "{error}");
    }
}

#[test]
fn switches_of_the_context_and_of_speed_are_read() {
    let switches = |flags: &[&str], user: &str, more: &[(&str, &str)]| {
        let settings = resolve_with(flags, user, more).expect("they are right");
        (
            settings.config.limits.auto_compact,
            settings.config.limits.compact_at,
            settings.config.fast,
            settings.config.fallback_return,
        )
    };
    assert_eq!(switches(&[], "{}", &[]), (true, None, false, false));
    let flags = ["--no-auto-compact", "--fast", "--fallback-return"];
    assert_eq!(switches(&flags, "{}", &[]), (false, None, true, true));
    let user = r#"{"autoCompactEnabled": false, "compactAt": 0.5, "fast": true}"#;
    assert_eq!(switches(&[], user, &[]), (false, Some(500), true, false));
    let more = [("DISABLE_AUTO_COMPACT", "Yes"), ("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "80")];
    assert_eq!(switches(&[], "{}", &more), (false, Some(800), false, false));
    assert_eq!(switches(&[], "{}", &[("DISABLE_AUTO_COMPACT", "0")]), (true, None, false, false));
    for (name, value) in
        [("DISABLE_AUTO_COMPACT", "maybe"), ("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "most")]
    {
        let error = resolve_with(&[], "{}", &[(name, value)]).expect_err(name);
        assert!(error.contains(name), "{error}");
    }
}
