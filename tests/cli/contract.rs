//! The contract of a session: every term is stored, holds against settings and variables of the
//! process that resumes it, and is changed by flags only, which is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use outlast::cli::args::{self, CliRequest};
use outlast::cli::settings::{self, Settings};
use outlast::journal::{Contract, Kept, Terms};
use outlast::types::PermissionMode;
use serde_json::{Value, json};

use super::binary_fixture::BinaryFixture;

/// Flags of every command line of these tests.
const ALWAYS: [&str; 4] = [
    "--agents",
    r#"{"one": {"description": "d", "prompt": "p"}, "two": {"description": "d", "prompt": "p"}}"#,
    "--mcp-config",
    r#"{"mcpServers": {"gate": {"command": "true"}}}"#,
];

fn held(
    flags: &[&str],
    variables: &[(&str, &str)],
    user: &Value,
    (managed, terms): (Option<&str>, Terms),
) -> Result<Settings, String> {
    let world = BinaryFixture::new()
        .file("home/.outlast/settings.json", user.to_string())
        .file("managed.json", managed.unwrap_or("{}"));
    let words: Vec<String> = ALWAYS.iter().chain(flags).map(ToString::to_string).collect();
    let CliRequest::Run(args) = args::parse(&words).map_err(|error| error.to_string())? else {
        panic!("a run");
    };
    let mut all: BTreeMap<OsString, OsString> =
        variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
    all.insert("HOME".into(), world.home().into());
    all.insert("ANTHROPIC_API_KEY".into(), "a-key".into());
    all.insert("SECOND_KEY".into(), "another-key".into());
    let managed: Vec<PathBuf> =
        managed.map(|_| world.home().join("../managed.json")).into_iter().collect();
    settings::resolve_resumed(&managed, &args, &all.into(), world.work(), &terms)
        .map_err(|error| error.to_string())
}

fn started_under(contract: &Contract) -> (Option<&'static str>, Terms) {
    let kept =
        Kept { original: contract.clone(), latest: contract.clone(), here: Some(contract.clone()) };
    (None, Terms { contract: Some(kept), prompt: None })
}

fn new() -> (Option<&'static str>, Terms) {
    (None, Terms::default())
}

/// A term, and what is said of it.
struct Row {
    name: &'static str,
    /// Flags at the start of the session.
    flags: &'static [&'static str],
    file: Value,
    stored: Value,
    /// Settings at the resume that have no effect.
    other: Value,
    variables: &'static [(&'static str, &'static str)],
    /// Flags at the resume that have an effect.
    change: &'static [&'static str],
    now: Value,
}

impl Row {
    fn flags(name: &'static str, flags: &'static [&'static str], stored: Value) -> Self {
        Self {
            name,
            flags,
            file: json!({}),
            stored,
            other: json!({}),
            variables: &[],
            change: &[],
            now: Value::Null,
        }
    }

    fn file(name: &'static str, file: Value, stored: Value) -> Self {
        Self { file, ..Self::flags(name, &[], stored) }
    }

    fn against(self, other: Value) -> Self {
        Self { other, ..self }
    }

    fn and_variables(self, variables: &'static [(&'static str, &'static str)]) -> Self {
        Self { variables, ..self }
    }

    fn changed(self, change: &'static [&'static str], now: Value) -> Self {
        Self { change, now, ..self }
    }
}

fn model_rows() -> Vec<Row> {
    let second = json!([
        { "model": "b" },
        { "model": "c", "apiKeyEnv": "SECOND_KEY" },
        { "model": "d", "service": "vertex:global/p" },
    ]);
    let one = |input: f64, output: f64| json!({ "a": { "input": input, "output": output } });
    vec![
        Row::flags("model", &["--model", "a"], json!("a"))
            .against(json!({ "model": "x" }))
            .and_variables(&[("ANTHROPIC_MODEL", "y")])
            .changed(&["--model", "z"], json!("z")),
        Row::flags(
            "fallbackModel",
            &["--fallback-model", "b,c#SECOND_KEY,d@vertex:global/p"],
            second,
        )
        .against(json!({ "fallbackModel": ["x"] }))
        .changed(&["--fallback-model", "d"], json!([{ "model": "d" }])),
        Row::flags("fallbackReturn", &[], json!(false))
            .against(json!({ "fallbackReturn": true }))
            .changed(&["--fallback-return"], json!(true)),
        Row::flags(
            "contextWindow",
            &["--model", "a", "--context-window", "32k"],
            json!({ "": 32_000, "a": 32_000 }),
        )
        .against(json!({ "contextWindow": 64_000 }))
        .changed(&["--context-window", "16k"], json!({ "": 16_000, "a": 16_000 })),
        Row::flags("prices", &["--model", "a", "--price", "a=1/2"], one(1.0, 2.0))
            .against(json!({ "prices": one(0.0, 0.0) }))
            .changed(&["--price", "a=3/4"], one(3.0, 4.0)),
        Row::flags("agent", &["--agent", "one"], json!("one"))
            .against(json!({ "agent": "two" }))
            .changed(&["--agent", "two"], json!("two")),
    ]
}

fn limit_rows() -> Vec<Row> {
    vec![
        Row::flags("maxTurns", &["--max-turns", "3"], json!(3))
            .against(json!({ "maxTurns": 50 }))
            .and_variables(&[("CLAUDE_CODE_MAX_TURNS", "60")])
            .changed(&["--max-turns", "9"], json!(9)),
        Row::flags("maxBudgetUsd", &["--max-budget-usd", "0.37"], json!(0.37))
            .against(json!({ "maxBudgetUsd": 99 }))
            .changed(&["--max-budget-usd", "2.5"], json!(2.5)),
        Row::flags("budgetMode", &[], json!("ceiling"))
            .against(json!({ "budgetMode": "after" }))
            .changed(&["--budget-mode", "after"], json!("after")),
        Row::flags("maxDuration", &["--max-duration", "45m"], json!("45m"))
            .against(json!({ "maxDuration": "9h" }))
            .changed(&["--max-duration", "90m"], json!("1h 30m")),
        Row::flags("tokenBudget", &["--token-budget", "10k"], json!(10_000))
            .against(json!({ "tokenBudget": 500_000 }))
            .changed(&["--token-budget", "20k"], json!(20_000)),
        Row::file("maxAgentDepth", json!({ "maxAgentDepth": 1 }), json!(1))
            .against(json!({ "maxAgentDepth": 3 }))
            .changed(&["--settings", r#"{"maxAgentDepth": 2}"#], json!(2)),
        Row::file("maxLiveAgents", json!({ "maxLiveAgents": 1 }), json!(1))
            .against(json!({ "maxLiveAgents": 30 }))
            .changed(&["--settings", r#"{"maxLiveAgents": 2}"#], json!(2)),
        Row::file("maxAgents", json!({ "maxAgents": 1 }), json!(1))
            .against(json!({ "maxAgents": 300 }))
            .changed(&["--settings", r#"{"maxAgents": 2}"#], json!(2)),
    ]
}

fn demand_rows() -> Vec<Row> {
    vec![
        Row::flags("require", &["--require", "make check"], json!("make check"))
            .against(json!({ "require": "true" }))
            .changed(&["--require", "make all"], json!("make all")),
        Row::flags(
            "requireTimeout",
            &["--require", "x", "--require-timeout", "90s"],
            json!("1m 30s"),
        )
        .against(json!({ "requireTimeout": "5h" }))
        .changed(&["--require-timeout", "2m"], json!("2m")),
        Row::file("requireRetries", json!({ "requireRetries": 1 }), json!(1))
            .against(json!({ "requireRetries": 9 }))
            .changed(&["--settings", r#"{"requireRetries": 2}"#], json!(2)),
        Row::flags(
            "jsonSchema",
            &["--json-schema", r#"{"type": "string"}"#],
            json!({ "type": "string" }),
        )
        .changed(&["--json-schema", r#"{"type": "number"}"#], json!({ "type": "number" })),
        Row::flags(
            "jsonSchema",
            &["--json-schema", r#"{"type": "string"}"#],
            json!({ "type": "string" }),
        )
        .changed(&["--json-schema", "none"], Value::Null),
        Row::file("schemaTries", json!({ "schemaTries": 2 }), json!(2))
            .against(json!({ "schemaTries": 9 }))
            .and_variables(&[("MAX_STRUCTURED_OUTPUT_RETRIES", "9")])
            .changed(&["--settings", r#"{"schemaTries": 3}"#], json!(3)),
        Row::flags("mcpRequired", &["--mcp-required", "gate"], json!(["gate"]))
            .changed(&["--mcp-required", "none"], json!([])),
    ]
}

fn tool_rows() -> Vec<Row> {
    vec![
        Row::flags("tools", &["--tools", "Read,Grep"], json!(["Read", "Grep"]))
            .changed(&["--tools", "Read"], json!(["Read"])),
        Row::flags("tools", &["--tools", ""], json!([]))
            .changed(&["--tools", "Read"], json!(["Read"])),
        Row::flags("permissions.defaultMode", &["--permission-mode", "plan"], json!("plan"))
            .against(json!({ "permissions": { "defaultMode": "acceptEdits" } }))
            .changed(&["--permission-mode", "dontAsk"], json!("dontAsk")),
        Row::flags("permissions.allow", &["--allowed-tools", "Read"], json!(["Read"]))
            .against(json!({ "permissions": { "allow": ["Bash"] } }))
            .changed(&["--allowed-tools", "Edit"], json!(["Read", "Edit"])),
        Row::file(
            "permissions.ask",
            json!({ "permissions": { "ask": ["Bash"] } }),
            json!(["Bash"]),
        )
        .changed(
            &["--settings", r#"{"permissions": {"ask": ["WebFetch"]}}"#],
            json!(["Bash", "WebFetch"]),
        ),
        Row::flags("permissions.deny", &["--disallowed-tools", "WebFetch"], json!(["WebFetch"]))
            .changed(&["--disallowed-tools", "Bash"], json!(["WebFetch", "Bash"])),
        Row::flags("permissions.additionalDirectories", &["--add-dir", "/tmp"], json!(["/tmp"]))
            .against(json!({ "permissions": { "additionalDirectories": ["/usr"] } }))
            .changed(&["--add-dir", "/var"], json!(["/tmp", "/var"])),
        Row::flags(
            "permissionPromptTool",
            &["--permission-prompt-tool", "mcp__gate__ask"],
            json!("mcp__gate__ask"),
        )
        .changed(&["--permission-prompt-tool", "mcp__gate__b"], json!("mcp__gate__b")),
        Row::flags("onDenied", &["--on-denied", "fail"], json!("fail"))
            .against(json!({ "onDenied": "continue" }))
            .changed(&["--on-denied", "continue"], json!("continue")),
    ]
}

fn sandbox_rows() -> Vec<Row> {
    let files = |key: &str, path: &str| json!({ "sandbox": { "filesystem": { key: [path] } } });
    let domains = |key: &str| json!({ "sandbox": { "network": { key: ["a.example"] } } });
    vec![
        Row::flags("sandbox.mode", &["--sandbox", "read-only"], json!("read-only"))
            .against(json!({ "sandbox": { "mode": "off" } }))
            .changed(&["--sandbox", "workspace"], json!("workspace")),
        Row::file("sandbox.terminals", json!({ "sandbox": { "terminals": true } }), json!(true))
            .against(json!({ "sandbox": { "terminals": false } }))
            .changed(&["--settings", r#"{"sandbox": {"terminals": false}}"#], json!(false)),
        Row::file(
            "sandbox.capabilities",
            json!({ "sandbox": { "capabilities": true } }),
            json!(true),
        )
        .against(json!({ "sandbox": { "capabilities": false } }))
        .changed(&["--settings", r#"{"sandbox": {"capabilities": false}}"#], json!(false)),
        Row::flags("sandbox.network.enabled", &["--sandbox-network", "off"], json!(false))
            .against(json!({ "sandbox": { "network": { "enabled": true } } }))
            .changed(&["--sandbox-network", "on"], json!(true)),
        Row::file(
            "sandbox.network.allowedDomains",
            domains("allowedDomains"),
            json!(["a.example"]),
        )
        .against(json!({ "sandbox": { "network": { "allowedDomains": ["b.example"] } } }))
        .changed(
            &["--settings", r#"{"sandbox": {"network": {"allowedDomains": ["c.example"]}}}"#],
            json!(["a.example", "c.example"]),
        ),
        Row::file("sandbox.network.deniedDomains", domains("deniedDomains"), json!(["a.example"]))
            .changed(
                &["--settings", r#"{"sandbox": {"network": {"deniedDomains": ["c.example"]}}}"#],
                json!(["a.example", "c.example"]),
            ),
        Row::file("sandbox.filesystem.allowWrite", files("allowWrite", "/a"), json!(["/a"]))
            .against(files("allowWrite", "/"))
            .changed(
                &["--settings", r#"{"sandbox": {"filesystem": {"allowWrite": ["/b"]}}}"#],
                json!(["/a", "/b"]),
            ),
        Row::file("sandbox.filesystem.allowRead", files("allowRead", "/a"), json!(["/a"]))
            .against(files("allowRead", "/"))
            .changed(
                &["--settings", r#"{"sandbox": {"filesystem": {"allowRead": ["/b"]}}}"#],
                json!(["/a", "/b"]),
            ),
        Row::file("sandbox.filesystem.denyWrite", files("denyWrite", "/a"), json!(["/a"])).changed(
            &["--settings", r#"{"sandbox": {"filesystem": {"denyWrite": ["/b"]}}}"#],
            json!(["/a", "/b"]),
        ),
        Row::file("sandbox.filesystem.denyRead", files("denyRead", "/a"), json!(["/a"])).changed(
            &["--settings", r#"{"sandbox": {"filesystem": {"denyRead": ["/b"]}}}"#],
            json!(["/a", "/b"]),
        ),
        Row::flags("childEnv", &["--child-env", "allowlist"], json!("allowlist"))
            .against(json!({ "childEnv": "inherit" }))
            .changed(&["--child-env", "inherit"], json!("inherit")),
        Row::flags("passEnv", &["--pass-env", "A"], json!(["A"]))
            .against(json!({ "passEnv": ["B"] }))
            .changed(&["--pass-env", "C"], json!(["A", "C"])),
        Row::file(
            "webFetchPrivateHosts",
            json!({ "webFetchPrivateHosts": ["a.example"] }),
            json!(["a.example"]),
        )
        .against(json!({ "webFetchPrivateHosts": ["b.example"] }))
        .changed(
            &["--settings", r#"{"webFetchPrivateHosts": ["c.example"]}"#],
            json!(["a.example", "c.example"]),
        ),
    ]
}

fn rows() -> Vec<Row> {
    [model_rows(), limit_rows(), demand_rows(), tool_rows(), sandbox_rows()]
        .into_iter()
        .flatten()
        .collect()
}

fn told_changes(settings: &Settings) -> Vec<&String> {
    let told = |line: &&String| line.starts_with("the contract of the session changes: ");
    settings.warnings.iter().filter(told).collect()
}

#[test]
fn every_contract_term_is_stored_enforced_and_changed_only_by_flags() {
    for row in rows() {
        let name = row.name;
        let first = held(row.flags, &[], &row.file, new()).expect(name);
        let contract = first.contract();
        assert_eq!(contract.terms[name], row.stored, "{name}: stored");
        let alone = held(&[], row.variables, &row.other, new()).expect(name);
        assert_ne!(alone.contract().terms[name], row.stored, "{name}: the row can fail");

        let again = held(&[], row.variables, &row.other, started_under(&contract)).expect(name);
        assert_eq!(again.contract(), contract, "{name}: held");
        assert_eq!(again.contract_changes(), [], "{name}");
        assert_eq!(told_changes(&again), Vec::<&String>::new(), "{name}");
        let same = held(row.flags, &[], &row.file, started_under(&contract)).expect(name);
        assert_eq!(same.contract(), contract, "{name}: the same command line again");

        let other = held(row.change, row.variables, &row.other, started_under(&contract));
        let other = other.expect(name);
        let changes = other.contract_changes();
        assert_eq!(changes.len(), 1, "{name}: {changes:?}");
        assert_eq!(
            (changes[0].name, &changes[0].was, &changes[0].now),
            (name, &row.stored, &row.now)
        );
        let [line] = &told_changes(&other)[..] else { panic!("{name}: one line") };
        assert!(line.contains(&format!("{name} was ")), "{line}");
    }
}

#[test]
fn the_contract_table_has_every_term() {
    let contract = held(&[], &[], &json!({}), new()).expect("good settings").contract();
    let terms: BTreeSet<&str> = contract.terms.keys().map(String::as_str).collect();
    let told: BTreeSet<&str> = rows().iter().map(|row| row.name).collect();
    assert_eq!(terms, told);
}

/// In another folder, rules that allow are dropped; rules that deny and everything else stay.
#[test]
fn permissions_of_a_contract_count_only_in_their_own_folder() {
    let of = |name: &str, value: Value| (name.to_owned(), value);
    let kept: BTreeMap<String, Value> = BTreeMap::from([
        of("maxTurns", json!(7)),
        of("permissions.deny", json!(["Bash(rm *)"])),
        of("permissions.defaultMode", json!("plan")),
        of("sandbox.mode", json!("read-only")),
        of("sandbox.network.enabled", json!(false)),
        of("childEnv", json!("allowlist")),
    ]);
    let dropped: BTreeMap<String, Value> = BTreeMap::from([
        of("permissions.defaultMode", json!("bypassPermissions")),
        of("permissions.allow", json!(["Bash"])),
        of("permissions.additionalDirectories", json!(["/usr"])),
        of("permissionPromptTool", json!("mcp__gate__ask")),
        of("sandbox.mode", json!("off")),
        of("sandbox.terminals", json!(true)),
        of("sandbox.capabilities", json!(true)),
        of("sandbox.filesystem.allowWrite", json!(["/a"])),
        of("sandbox.filesystem.allowRead", json!(["/a"])),
        of("childEnv", json!("inherit")),
        of("passEnv", json!(["A"])),
        of("webFetchPrivateHosts", json!(["a.example"])),
    ]);
    let plain = held(&[], &[], &json!({}), new()).expect("good settings").contract();
    for (terms, stays) in [(&kept, true), (&dropped, false)] {
        let mut other = Contract { folder: Some("/srv/other".to_owned()), ..plain.clone() };
        other.terms.extend(terms.clone());
        let kept = Kept { original: other.clone(), latest: other.clone(), here: None };
        let terms = Terms { contract: Some(kept), prompt: None };
        let settings = held(&[], &[], &json!({}), (None, terms)).expect("good settings");
        let expected = if stays { &other.terms } else { &plain.terms };
        assert_eq!(&settings.contract().terms, expected);
        let told = told_changes(&settings);
        assert_eq!(told.len(), usize::from(!stays), "{told:?}");
        assert!(told.iter().all(|line| line.contains("/srv/other")), "{told:?}");
    }
}

/// The folder has its own permissions again, whatever another one had meanwhile.
#[test]
fn the_last_permissions_of_a_folder_hold_there() {
    let contract =
        |flags: &[&str]| held(flags, &[], &json!({}), new()).expect("good settings").contract();
    let here = contract(&["--allowed-tools", "Read", "--max-turns", "3"]);
    let latest = contract(&["--dangerously-skip-permissions", "--max-turns", "5"]);
    let kept = Kept { original: here.clone(), latest, here: Some(here) };
    let terms = Terms { contract: Some(kept), prompt: None };
    let settings = held(&[], &[], &json!({}), (None, terms)).expect("good settings");
    assert_eq!(settings.config.permissions.mode, PermissionMode::Default);
    assert_eq!(settings.config.permissions.allow, ["Read"]);
    assert_eq!(settings.config.limits.budgets.turns, Some(5));
}

/// A session that has no limit is not given one by a settings file either, but what a file forbids
/// is forbidden.
#[test]
fn settings_files_can_only_add_denials_to_a_contract() {
    let contract = held(&["--disallowed-tools", "Edit"], &[], &json!({}), new());
    let contract = contract.expect("good settings").contract();
    let other = json!({ "maxTurns": 5, "permissions": { "deny": ["Bash"], "allow": ["Read"] } });
    let settings = held(&[], &[], &other, started_under(&contract)).expect("good settings");
    assert_eq!(settings.config.limits.budgets.turns, None);
    assert_eq!(settings.config.permissions.deny, ["Edit", "Bash"]);
    assert_eq!(settings.config.permissions.allow, [""; 0]);
    let names: Vec<&str> = settings.contract_changes().iter().map(|it| it.name).collect();
    assert_eq!(names, ["permissions.deny"], "and that is said");
}

#[test]
fn managed_files_outrank_the_contract() {
    let flags = ["--max-turns", "40", "--allowed-tools", "Bash"];
    let contract = held(&flags, &[], &json!({}), new()).expect("good settings").contract();
    let managed = r#"{"maxTurns": 2, "allowManagedPermissionRulesOnly": true,
        "permissions": {"allow": ["Read"]}, "env": {"ANTHROPIC_MODEL": "theirs"}}"#;
    let (_, terms) = started_under(&contract);
    let settings = held(&[], &[], &json!({}), (Some(managed), terms)).expect("good settings");
    assert_eq!(settings.config.limits.budgets.turns, Some(2));
    assert_eq!(settings.config.permissions.allow, ["Read"]);
    assert_eq!(settings.chain.links[0].model, "theirs");
    let names: Vec<&str> = settings.contract_changes().iter().map(|it| it.name).collect();
    assert_eq!(names, ["model", "permissions.allow", "maxTurns"]);
}

/// The model that an alias stands for and its price are part of the contract.
#[test]
fn a_stored_alias_keeps_the_model_it_resolved_to() {
    let flags = ["--model", "sonnet", "--price", "sonnet=1/2"];
    let first = held(&flags, &[], &json!({}), new()).expect("good settings");
    let variables = [("ANTHROPIC_DEFAULT_SONNET_MODEL", "dearer")];
    let again = held(&[], &variables, &json!({}), started_under(&first.contract()));
    let again = again.expect("good settings");
    let label = &first.chain.links[0].label;
    assert_eq!(&again.chain.links[0].label, label);
    assert_eq!(again.config.prices.get(label), first.config.prices.get("sonnet"));
}

#[test]
fn a_contract_change_is_reported_once_against_the_first_contract() {
    let first = held(&["--max-turns", "3"], &[], &json!({}), new()).expect("good").contract();
    let second = held(&["--max-turns", "5"], &[], &json!({}), started_under(&first));
    let second = second.expect("good settings").contract();
    let kept = Kept { original: first, here: Some(second.clone()), latest: second };
    let terms = (None, Terms { contract: Some(kept), prompt: None });
    let third = held(&[], &[], &json!({}), terms).expect("good settings");
    let [change] = &third.contract_changes()[..] else { panic!("one change") };
    assert_eq!((&change.was, &change.now), (&json!(3), &json!(5)));
    assert_eq!(told_changes(&third), Vec::<&String>::new(), "it is not new");
}

#[test]
fn a_requirement_that_was_stored_without_its_secret_must_be_given_again() {
    let first = held(&["--require", "curl [redacted]"], &[], &json!({}), new());
    let contract =
        Contract { redacted: vec!["require".to_owned()], ..first.expect("good").contract() };
    let error = held(&[], &[], &json!({}), started_under(&contract)).expect_err("it is lost");
    assert!(error.contains("\"require\"") && error.contains("give it again"), "{error}");
    let given = held(&["--require", "curl x"], &[], &json!({}), started_under(&contract));
    assert!(given.is_ok(), "{given:?}");
}

#[test]
fn secrets_of_fallbacks_are_not_stored_and_read_again() {
    let file = json!({ "fallbackModel": [
        { "model": "b", "baseUrl": "https://gate.example",
          "headers": { "x-api-key": "hush-hush-hush", "x-team": "blue" } }] });
    let first = held(&[], &[], &file, new()).expect("good settings");
    let stored = first.contract().terms["fallbackModel"].clone();
    let headers = json!({ "x-api-key": "[redacted]", "x-team": "blue" });
    assert_eq!(stored[0]["headers"], headers);
    let contract = Contract { redacted: vec!["fallbackModel".to_owned()], ..first.contract() };
    let again = held(&[], &[], &file, started_under(&contract)).expect("good settings");
    let headers = &again.chain.endpoints[1].extra_headers;
    assert!(headers.iter().any(|(_, value)| value == "hush-hush-hush"), "{headers:?}");
    assert_eq!(again.contract_changes(), []);
}

#[test]
fn a_contract_that_is_newer_or_invalid_is_refused() {
    let contract = held(&[], &[], &json!({}), new()).expect("good settings").contract();
    let later = Contract { version: 2, ..contract.clone() };
    let error = held(&[], &[], &json!({}), started_under(&later)).expect_err("newer");
    assert!(error.contains("update outlast"), "{error}");
    let mut senseless = contract;
    senseless.terms["maxTurns"] = json!("many");
    let error = held(&[], &[], &json!({}), started_under(&senseless)).expect_err("no sense");
    assert!(error.contains("makes no sense"), "{error}");
}

#[test]
fn a_session_is_not_resumed_without_its_guards_unless_settings_are_given() {
    let hooks = |event: &str| {
        let hook = json!({ "type": "command", "command": "./guard.py" });
        json!({ "hooks": { event: [{ "hooks": [hook] }] } }).to_string()
    };
    for (event, is_guarded) in [("PreToolUse", true), ("PostToolUse", false)] {
        let first = held(&["--settings", &hooks(event)], &[], &json!({}), new());
        let contract = first.expect("good settings").contract();
        let resumed = held(&[], &[], &json!({}), started_under(&contract));
        let error = resumed.err().unwrap_or_default();
        assert_eq!(error.contains("repeat --settings"), is_guarded, "{event}: {error}");
        for given in [hooks(event), "{}".to_owned()] {
            let again = held(&["--settings", &given], &[], &json!({}), started_under(&contract));
            assert_eq!(
                again.expect("it is given").contract().has_guards,
                is_guarded && given != "{}"
            );
        }
    }
    let of_user = serde_json::from_str(&hooks("PreToolUse")).expect("JSON");
    let contract = held(&[], &[], &of_user, new()).expect("good settings").contract();
    assert!(held(&[], &[], &json!({}), started_under(&contract)).is_ok(), "files are no terms");
}
