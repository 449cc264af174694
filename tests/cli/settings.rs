//! Settings: where mistakes are, who outranks whom, and what the table says.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use outlast::cli::args::{self, CliRequest, OutputFormat};
use outlast::cli::settings::{self, Settings};
use outlast::config::registry;
use outlast::config::values::LONGEST;
use outlast::journal::Terms;
use outlast::model::{Credential, HelperCommand, Secret, ThinkingMode};
use outlast::recovery::{Money, Persistence};

use super::binary_fixture::BinaryFixture;
use super::managed::load_settings;

/// The settings that result from flags, variables and `~/.outlast/settings.json`.
pub(crate) fn resolve(
    flags: &[&str],
    variables: &[(&str, &str)],
    user: &str,
) -> Result<Settings, String> {
    let world = BinaryFixture::new().file("home/.outlast/settings.json", user);
    let words: Vec<String> = flags.iter().map(ToString::to_string).collect();
    let CliRequest::Run(args) = args::parse(&words).map_err(|error| error.to_string())? else {
        panic!("a run");
    };
    let mut all: BTreeMap<OsString, OsString> =
        variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
    all.insert("HOME".into(), world.home().into());
    all.entry("ANTHROPIC_API_KEY".into()).or_insert_with(|| "a-key".into());
    let home = world.home().display().to_string();
    settings::resolve(&args, all, world.work(), &Terms::default())
        .map_err(|error| error.to_string().replace(&home, "HOME"))
}

/// The labels of the models of the chain.
fn labels(settings: &Settings) -> Vec<&str> {
    settings.chain.links.iter().map(|link| link.label.as_str()).collect()
}

#[test]
fn a_flag_outranks_settings_of_the_command_line_and_they_outrank_variables() {
    let variables = [("ANTHROPIC_MODEL", "of-variable"), ("CLAUDE_CODE_MAX_RETRIES", "3")];
    let user = r#"{"model": "of-file", "maxRetries": 2}"#;
    let given = ["hi", "--settings", r#"{"model": "of-settings"}"#];
    let settings = resolve(&given, &variables, user).expect("settings");
    assert_eq!(labels(&settings), ["of-settings"]);
    assert_eq!(settings.config.limits.budgets.retries, 3, "the variable outranks the file");
    let settings = resolve(&[&given[..], &["--model", "of-flag"]].concat(), &variables, user);
    assert_eq!(labels(&settings.expect("settings")), ["of-flag"]);
    assert_eq!(labels(&resolve(&["hi"], &variables, user).expect("settings")), ["of-variable"]);
}

#[test]
fn a_run_without_a_user_waits_out_outages_unless_the_settings_wait_out_more() {
    let waits = |flags: &[&str], user| {
        let settings = resolve(flags, &[], user).expect("settings");
        (settings.config.limits.persistence, settings.output.format)
    };
    let (text, json) = (OutputFormat::Text, OutputFormat::Json);
    assert_eq!(waits(&["hi"], "{}"), (Persistence::Off, json));
    assert_eq!(waits(&["hi", "--unattended"], "{}"), (Persistence::Capacity, text));
    let all = r#"{"unattendedRetry": "all"}"#;
    assert_eq!(waits(&["hi", "--unattended"], all), (Persistence::All, text));
}

#[test]
fn an_unknown_effort_of_a_variable_is_answered_with_all_levels() {
    let variables = [("CLAUDE_CODE_EFFORT_LEVEL", "big")];
    let why = resolve(&["hi"], &variables, "{}").expect_err("there is no such level");
    let levels = "is none of low, medium, high, xhigh, max, auto, unset";
    assert!(why.contains(levels), "{why}");
}

#[test]
fn an_invalid_variable_is_no_mistake_where_a_flag_outranks_it() {
    let variables = [("MAX_THINKING_TOKENS", "many"), ("ANTHROPIC_MODEL", "opus")];
    let why = resolve(&["hi"], &variables, "{}").expect_err("it is no number");
    assert!(why.contains("MAX_THINKING_TOKENS") && why.contains("whole number"), "{why}");
    let flags = ["--max-thinking-tokens", "2.048k", "--model", "", "hi"];
    let settings = resolve(&flags, &variables, "{}").expect("the flag outranks the variable");
    assert_eq!(settings.config.reasoning.thinking, ThinkingMode::Budget(2048));
    // A blank flag sets nothing, so that the variable counts.
    assert!(labels(&settings)[0].contains("opus"), "{:?}", labels(&settings));
}

#[test]
fn every_mistake_has_file_line_and_column() {
    let cases = [
        ("{\n  \"maxTurns\": \"ten\"\n}", "2:15: \"maxTurns\" takes a whole number, at least 1"),
        ("{\"maxTurns\": 0}", "1:14: \"maxTurns\" takes a whole number, at least 1; found integer"),
        ("{\n\n   \"maxTurn\": 3}", "3:4: unknown setting \"maxTurn\"; did you mean \"maxTurns\"?"),
        ("{\"a\": 1, \"permisions\": {}}", "1:10: unknown setting \"permisions\"; did you mean"),
        (
            "{\"permisson\": {}}",
            "1:2: unknown setting \"permisson\"; did you mean \"permissions\"?",
        ),
        ("{\"permissions\": {\"denny\": []}}", "1:18: unknown setting \"permissions.denny\""),
        (
            "{\"sandbox\": {\"filesystem\": {\"denyReed\": []}}}",
            "mean \"sandbox.filesystem.denyRead\"",
        ),
        ("{\"maxTurns\": 3,,}", "1:16: not valid JSON"),
        ("{\"maxTurns\": three}", "not valid JSON: expected true, false, null, or a text"),
        ("{\n  // so many\n  \"maxTurns\": 0}", "3:15: \"maxTurns\" takes a whole number"),
        ("{\"env\": {}, /* so\n many */ \"maxTurns\": 0,}", "2:22: \"maxTurns\" takes a whole"),
        ("{\n  # so many\n  \"maxTurns\": 3}", "2:3: not valid JSON: there are no comments"),
        ("{\"maxTurns\": 3 /* so many }", "1:27: not valid JSON: the text ends"),
        ("{\"env\": {\"A\": \"1\",\n \"A\": \"2\"}}", "2:2: duplicate key \"env.A\", which line 1"),
        (
            "{\"env\": \"KEY=hush\"}",
            "1:9: \"env\" takes an object of texts or numbers; found a text",
        ),
        (
            "{\"env\": {\"A\": 1, \"B\": [\"hush\"]}}",
            "1:23: \"env.B\": sequence, expected a text, a number",
        ),
        ("{\"maxTurns\": 3", "1:14: not valid JSON: the text ends"),
        ("[1]", "1:1: settings are a JSON object"),
        ("{\"permissions\": {\"allow\": [\"Read\", 7]}}", "1:36: \"permissions.allow.1\": integer"),
        (
            "{\"maxDuration\": \"soon\"}",
            "1:17: \"maxDuration\" takes a duration such as \"90s\" or \"1h30m\", or a number of \
             seconds; \"soon\" is not a duration",
        ),
        (
            "{\"maxBudgetUsd\": -1}",
            "1:18: \"maxBudgetUsd\" takes a number of US dollars above 0; found -1",
        ),
        ("{\"maxBudgetUsd\": 1e999}", "above 0; found 17976931348623157000000000"),
        ("{\"maxBudgetUsd\": 1e999}", "0000..."),
        (
            "{\"wrapUpAt\": 1.5}",
            "1:14: \"wrapUpAt\" takes a number above 0 and at most 1; found 1.5",
        ),
        ("{\"prices\": {\"m\": {\"input\": -3, \"output\": 1}}}", "1:18: \"prices\" has no price"),
        ("{\"maxTurns\": 1, \"maxTurns\": 2}", "1:17: duplicate key \"maxTurns\""),
        (
            "{\"maxThinkingTokens\": 9}",
            "1:23: \"maxThinkingTokens\" takes 0, or a whole number of tokens, at least 1024",
        ),
        ("{\"budgetMode\": \"never\"}", "1:16: \"budgetMode\" takes \"ceiling\" or \"after\""),
    ];
    for (text, wanted) in cases {
        let error = resolve(&["hi"], &[], text).unwrap_err();
        let file = "HOME/.outlast/settings.json:";
        assert!(error.starts_with(file) && error.contains(wanted), "{text}\n{error}\n{wanted}");
        assert!(!error.contains("hush"), "{error}");
        let inline = resolve(&["hi", "--settings", text], &[], "{}");
        if text.starts_with('{') {
            assert!(inline.unwrap_err().starts_with("--settings:"), "{text}");
        }
    }
}

#[test]
fn a_file_that_is_not_utf_8_says_where() {
    let world =
        BinaryFixture::new().file("home/.outlast/settings.json", b"{\n \"model\": \"\xff\"}");
    let ended = world.run(&["run", "hi"]);
    assert_eq!(ended.code, 2);
    assert!(ended.line().contains("settings.json:2:12: not valid UTF-8"), "{}", ended.line());
}

#[test]
fn settings_of_other_tools_are_ignored_silently_unless_relied_on() {
    let quiet = r#"{"theme": "x", "cleanupPeriodDays": 3, "outputStyle": "default",
        "respectGitignore": true, "enabledPlugins": {}}"#;
    assert_eq!(resolve(&["hi"], &[], quiet).unwrap().warnings, Vec::<String>::new());
    let counted_on = "{\n\"language\": \"german\",\n\"respectGitignore\": false}";
    let [warning] = &resolve(&["hi"], &[], counted_on).unwrap().warnings[..] else { panic!("one") };
    let wanted = "settings.json: outlast does not act on these settings: \"language\" (line 2), \
        \"respectGitignore\" (line 3)";
    assert!(warning.ends_with(wanted), "{warning}");
    let hooks = r#"{"hooks": {"Setup": [{"hooks": []}]}}"#;
    let [warning] = &resolve(&["hi"], &[], hooks).unwrap().warnings[..] else { panic!("one") };
    assert!(warning.contains("hooks.Setup has no effect"), "{warning}");
    assert!(resolve(&["hi"], &[], r#"{"hooks": {}}"#).unwrap().warnings.is_empty());
}

#[test]
fn numbers_in_the_env_setting_are_converted_to_text() {
    let file = r#"{"env": {"CLAUDE_CODE_MAX_TURNS": 7, "A": 1.0, "B": true, "C": -2, "D": "x"}}"#;
    let settings = resolve(&["hi"], &[], file).unwrap();
    assert_eq!(settings.config.limits.budgets.turns, Some(7));
    for (name, wanted) in [("A", "1"), ("B", "true"), ("C", "-2"), ("D", "x")] {
        let value = settings.variables.get(OsStr::new(name)).and_then(|value| value.to_str());
        assert_eq!(value, Some(wanted), "{name}");
    }
}

#[test]
fn opusplan_is_opus_while_planning_and_sonnet_otherwise() {
    let rows: [(&[&str], &str, &str); 5] = [
        (&["hi", "--model=opusplan"], "{}", "sonnet"),
        (&["hi", "--model=opusplan", "--permission-mode=plan"], "{}", "opus"),
        (&["hi"], r#"{"model": "opusplan", "permissions": {"defaultMode": "plan"}}"#, "opus"),
        (&["hi"], r#"{"model": "opusplan"}"#, "sonnet"),
        (&["hi", "--model=x", "--fallback-model=opusplan"], "{}", "sonnet"),
    ];
    for (flags, file, family) in rows {
        let label = |settings: &Settings| (*labels(settings).last().unwrap()).to_owned();
        let known = resolve(&["hi", &format!("--model={family}")], &[], "{}").unwrap();
        assert_eq!(label(&resolve(flags, &[], file).unwrap()), label(&known), "{flags:?} {file}");
        let variable = format!("ANTHROPIC_DEFAULT_{}_MODEL", family.to_uppercase());
        let own = resolve(flags, &[(&variable, "own")], file).unwrap();
        assert_eq!(label(&own), "own", "{flags:?} {file}");
    }
}

#[test]
fn the_run_ends_when_stop_hooks_reach_their_limit() {
    let name = "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP";
    let usual = resolve(&["hi"], &[], "{}").unwrap().config.limits;
    assert_eq!((usual.budgets.objections, usual.repeats_objections), (2, false));
    for (cap, objections) in [("8", 7), ("1", 0), (" 3 ", 2), ("0", 254), ("1000", 254)] {
        let settings = resolve(&["hi"], &[(name, cap)], "{}").unwrap();
        let limits = settings.config.limits;
        let found = (limits.budgets.objections, limits.repeats_objections);
        assert_eq!(found, (objections, true), "{cap}");
    }
    let file = format!(r#"{{"env": {{"{name}": 5}}}}"#);
    assert_eq!(resolve(&["hi"], &[], &file).unwrap().config.limits.budgets.objections, 4);
    for wrong in ["-1", "2.5", "inf", "many"] {
        let error = resolve(&["hi"], &[(name, wrong)], "{}").unwrap_err();
        assert!(error.contains(name) && error.contains("a whole number"), "{error}");
    }
}

/// Reads a value of the settings.
type Reading<T> = fn(&Settings) -> T;

/// Values that the reference accepts in its variables are not mistakes.
#[test]
fn numbers_in_variables_of_the_reference_are_read_as_it_reads_them() {
    let minutes = Duration::from_mins;
    let wait = |settings: &Settings| settings.config.limits.background.most;
    let whole = |settings: &Settings| settings.endpoint.timers.whole;
    let patience = |settings: &Settings| settings.config.limits.max_retry_wait;
    let times: [(&str, &str, Reading<Duration>, Duration); 8] = [
        ("CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS", "0", wait, LONGEST),
        ("CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS", "60000", wait, minutes(1)),
        ("API_TIMEOUT_MS", "3_000_000", whole, minutes(50)),
        ("API_TIMEOUT_MS", "6e5", whole, minutes(10)),
        ("API_TIMEOUT_MS", "600000.0", whole, minutes(10)),
        ("API_TIMEOUT_MS", "1e999", whole, LONGEST),
        ("CLAUDE_CODE_RETRY_WATCHDOG_MAX_WAIT_MS", "60000", patience, minutes(1)),
        ("CLAUDE_CODE_RETRY_WATCHDOG_MAX_WAIT_MS", "0", patience, minutes(10)),
    ];
    for (name, value, found, expected) in times {
        let settings = resolve(&["hi"], &[(name, value)], "{}").expect(name);
        assert_eq!(found(&settings), expected, "{name}={value}");
    }
    let retries = |settings: &Settings| u32::from(settings.config.limits.budgets.retries);
    let tries = |settings: &Settings| u32::from(settings.config.schema_tries);
    let thinking = |settings: &Settings| settings.config.max_thinking_tokens.unwrap_or(1);
    let chars = |settings: &Settings| settings.config.results.chars;
    let numbers: [(&str, &str, Reading<u32>, u32); 9] = [
        ("CLAUDE_CODE_MAX_RETRIES", "1000000", retries, 100),
        ("CLAUDE_CODE_MAX_RETRIES", "0", retries, 0),
        ("MAX_STRUCTURED_OUTPUT_RETRIES", "1", tries, 2),
        ("MAX_STRUCTURED_OUTPUT_RETRIES", "1000", tries, 255),
        ("MAX_THINKING_TOKENS", "0", thinking, 0),
        ("MAX_THINKING_TOKENS", "500", thinking, 1024),
        ("MAX_THINKING_TOKENS", "99999999999", thinking, u32::MAX),
        ("BASH_MAX_OUTPUT_LENGTH", "0", chars, 30_000),
        ("BASH_MAX_OUTPUT_LENGTH", "5_000", chars, 5_000),
    ];
    for (name, value, found, expected) in numbers {
        let settings = resolve(&["hi"], &[(name, value)], "{}").expect(name);
        assert_eq!(found(&settings), expected, "{name}={value}");
    }
}

#[test]
fn a_zero_that_cannot_be_obeyed_is_no_mistake_and_is_named() {
    let timeouts = ["API_TIMEOUT_MS", "MCP_TIMEOUT", "MCP_TOOL_TIMEOUT", "BASH_DEFAULT_TIMEOUT_MS"];
    for name in timeouts {
        let settings = resolve(&["hi"], &[(name, "0")], "{}").expect(name);
        let told = |text: &String| text.starts_with(name) && text.contains("is 0");
        assert!(settings.warnings.iter().any(told), "{name}: {:?}", settings.warnings);
    }
    for (name, value) in [("API_TIMEOUT_MS", "600000"), ("CLAUDE_CODE_API_KEY_HELPER_TTL_MS", "0")]
    {
        let settings = resolve(&["hi"], &[(name, value)], "{}").expect(name);
        assert_eq!(settings.warnings, [""; 0], "{name}={value}");
    }
    // Our own are as strict as flags.
    let error = resolve(&["hi"], &[("OUTLAST_MCP_START_TIMEOUT", "0")], "{}").unwrap_err();
    assert!(error.contains("must be above 0"), "{error}");
}

#[test]
fn a_whole_number_may_be_written_with_a_fraction_of_zero() {
    let file = r#"{"maxTurns": 2.0, "maxRetries": 1.0, "permissions": {}}"#;
    let settings = resolve(&["hi"], &[], file).expect("JSON does not distinguish them");
    let budgets = settings.config.limits.budgets;
    assert_eq!((budgets.turns, budgets.retries), (Some(2), 1));
    for wrong in ["2.5", "-1.0", "0.0"] {
        let error = resolve(&["hi"], &[], &format!(r#"{{"maxTurns": {wrong}}}"#)).unwrap_err();
        assert!(error.contains("takes a whole number, at least 1"), "{wrong}: {error}");
    }
}

#[test]
fn unknown_settings_keys_are_reported_in_one_line_and_do_not_stop_the_run() {
    let text = "{\n \"frobnicate\": 3,\n \"maxRetrys\": 1, \"statusLine\": {},\n \
        \"permissions\": {\"allou\": [], \"deny\": [\"WebFetch\"]}\n}";
    let settings = resolve(&["hi"], &[], text).unwrap();
    assert_eq!(settings.config.permissions.deny, ["WebFetch"]);
    let [warning] = &settings.warnings[..] else { panic!("{:?}", settings.warnings) };
    let wanted = "unknown settings have no effect: \"frobnicate\" (line 2), \"maxRetrys\" (line 3; \
        did you mean \"maxRetries\"?), \"permissions.allou\" (line 4; did you mean \
        \"permissions.allow\"?)";
    assert!(warning.ends_with(wanted), "{warning}");
    let many: Vec<String> = (0..500).map(|n| format!("\"key{n}\": 1")).collect();
    let many = resolve(&["hi"], &[], &format!("{{{}}}", many.join(","))).unwrap().warnings;
    assert!(many.len() == 1 && many[0].ends_with("492 more"), "{many:?}");
    let nine: Vec<String> = (0..9).map(|n| format!("\"key{n}\": 1")).collect();
    let nine = resolve(&["hi"], &[], &format!("{{{}}}", nine.join(","))).unwrap().warnings;
    assert!(nine.len() == 1 && nine[0].ends_with(", 1 more"), "{nine:?}");
}

#[test]
fn rules_and_events_at_the_top_are_named_with_the_setting_for_them() {
    let text = "{\n \"deny\": [\"Read(x)\"], \"disallowedTools\": [\"Edit\"], \"tools\": [\"Read\"], \
        \"ask\": []}";
    let warnings = resolve(&["hi"], &[], text).unwrap().warnings;
    let [unknown, deny, tools] = &warnings[..] else { panic!("{warnings:?}") };
    // Two edits make `hooks` of it, which would be a mistake.
    assert!(unknown.contains("unknown settings have no effect: \"tools\" (line 2)"), "{unknown}");
    let wanted = ":2:2: \"deny\" has no effect; the rules belong in \"permissions.deny\"";
    assert!(deny.ends_with(wanted), "{deny}");
    assert!(tools.contains("\"disallowedTools\" has no effect"), "{tools}");
    assert!(tools.ends_with("\"permissions.deny\""), "{tools}");
    let world = BinaryFixture::new().file("home/.claude/settings.json", text);
    let warnings = load_settings(&world, &[], &[]).expect("good").warnings;
    assert!(warnings.len() == 2 && warnings[0].ends_with(wanted), "{warnings:?}");
    let event = resolve(&["hi"], &[], r#"{"preToolUse": [{}]}"#).unwrap().warnings;
    let wanted = "\"preToolUse\" has no effect; it belongs in \"hooks\", as \"PreToolUse\"";
    assert!(event.len() == 1 && event[0].ends_with(wanted), "{event:?}");
}

#[test]
fn settings_of_the_reference_that_outlast_does_not_act_on_are_named() {
    let text = r#"{"theme": "x", "unknown": 1, "claudeMdExcludes": ["**/x.md"],
        "worktree": {"baseRef": "head"}}"#;
    let world = BinaryFixture::new().file("home/.claude/settings.json", text);
    let warnings = load_settings(&world, &[], &[]).expect("good").warnings;
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(
        warning.contains("\"claudeMdExcludes\" (line 1), \"worktree.baseRef\" (line 2)"),
        "{warning}"
    );
    let calm = r#"{"worktree": {"baseRef": "fresh"}, "respectGitignore": true}"#;
    let world = BinaryFixture::new().file("home/.claude/settings.json", calm);
    assert!(load_settings(&world, &[], &[]).expect("good").warnings.is_empty());
}

#[test]
fn settings_of_the_reference_that_are_there_but_out_of_reach_are_reported() {
    for target in ["settings.json", "nowhere.json"] {
        let world = BinaryFixture::new().file("home/.claude/CLAUDE.md", "");
        let file = world.home().join(".claude/settings.json");
        std::os::unix::fs::symlink(target, &file).expect("a link");
        let warnings = load_settings(&world, &[], &[]).expect("good").warnings;
        let [warning] = &warnings[..] else { panic!("{target}: {warnings:?}") };
        assert!(warning.starts_with(&file.display().to_string()), "{warning}");
        assert!(warning.ends_with("(this file is not used)"), "{warning}");
    }
}

#[test]
fn all_commands_of_a_repeated_require_must_pass() {
    for (texts, expected) in [
        (&["exit 0 # x", "b"][..], "( exit 0 # x\n) && ( b\n)"),
        (&["a"], "a"),
        (&["a", "none", "b"], "b"),
        (&["a", "none"], "none"),
    ] {
        let flags = texts.iter().flat_map(|text| ["--require", text]).chain(["hi"]);
        let settings = resolve(&flags.collect::<Vec<_>>(), &[], "{}").expect("good");
        assert_eq!(settings.config.require.as_deref(), Some(expected), "{texts:?}");
    }
    let error = resolve(&["--require", "a", "--require", " ", "hi"], &[], "{}").unwrap_err();
    assert!(error.contains("is empty"), "{error}");
}

#[test]
fn a_mistake_of_another_program_in_what_restricts_a_run_is_not_left_out() {
    for (part, key) in [
        (r#"{"sandbox": {"network": {"enabled": "false"}}}"#, "sandbox.network.enabled"),
        (r#"{"sandbox": {"enabled": "true"}}"#, "sandbox.enabled"),
        (r#"{"onDenied": true}"#, "onDenied"),
        (r#"{"maxAgentDepth": "1"}"#, "maxAgentDepth"),
        (r#"{"disabledMcpjsonServers": 7}"#, "disabledMcpjsonServers"),
        (r#"{"enableAllProjectMcpServers": "no"}"#, "enableAllProjectMcpServers"),
    ] {
        let world = BinaryFixture::new().file("home/.claude/settings.json", part);
        let error = load_settings(&world, &[], &[]).expect_err(part);
        assert!(error.contains("settings.json:1:") && error.contains(key), "{part}: {error}");
    }
}

#[test]
fn a_file_with_a_system_prompt_may_have_any_encoding() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prompt.md");
    let utf_16 = "\u{feff}Très court.".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for bytes in [b"Tr\xe8s court.".to_vec(), utf_16, "\u{feff}Très court.".into()] {
        std::fs::write(&file, bytes).expect("a file");
        for flag in ["--system-prompt-file", "--append-system-prompt-file"] {
            let path = file.display().to_string();
            let system = resolve(&[flag, &path, "hi"], &[], "{}").expect("good").system;
            let text = system.replaced.or(system.appended);
            assert_eq!(text.as_deref(), Some("Très court."), "{flag}");
        }
    }
}

#[test]
fn settings_that_are_given_twice_are_joined_and_the_later_ones_win() {
    let first = r#"{"maxTurns": 3, "model": "one", "permissions": {"deny": ["Edit"]}}"#;
    let second = r#"{"maxTurns": 5, "permissions": {"deny": ["Write"], "allow": ["Bash"]}}"#;
    let flags = ["--settings", first, "--settings", second, "hi"];
    let config = resolve(&flags, &[], r#"{"permissions": {"deny": ["WebFetch"]}}"#).unwrap().config;
    assert_eq!(config.permissions.deny, ["WebFetch", "Edit", "Write"]);
    assert_eq!(config.permissions.allow, ["Bash"]);
    assert_eq!(config.limits.budgets.turns, Some(5));
    let wrong = resolve(&["--settings", "{\"maxTurns\": 0}", "--settings", "{}", "hi"], &[], "{}");
    assert!(wrong.unwrap_err().contains("--settings:1:14: "));
}

#[test]
fn a_settings_file_may_start_with_a_byte_order_mark_and_has_a_size_limit() {
    let marked = resolve(&["hi"], &[], "\u{feff}{\"maxTurns\": 7}").unwrap();
    assert_eq!(marked.config.limits.budgets.turns, Some(7));
    let mistake = resolve(&["hi"], &[], "\u{feff}{\"maxTurns\": 0}").unwrap_err();
    assert!(mistake.contains("settings.json:1:14: "), "{mistake}");
    let huge = format!("{{\"model\": \"{}\"}}", "x".repeat(2 << 20));
    let error = resolve(&["hi"], &[], &huge).unwrap_err();
    assert!(error.contains("larger than 1024 kB") && error.len() < 300, "{error}");
}

#[test]
fn the_program_that_uses_an_sdk_is_named_in_the_user_agent() {
    let with = |app: &str, headers: &str| {
        let variables =
            [("CLAUDE_AGENT_SDK_CLIENT_APP", app), ("ANTHROPIC_CUSTOM_HEADERS", headers)];
        resolve(&["hi"], &variables, "{}").unwrap().chain.endpoints[0].extra_headers.clone()
    };
    let header = |name: &str, value: String| vec![(name.to_owned(), value)];
    let both = format!("outlast/{} my-app/1.0.0", env!("CARGO_PKG_VERSION"));
    assert_eq!(with("my-app/1.0.0", ""), header("user-agent", both));
    assert_eq!(with("my-app/1.0.0", "User-Agent: x"), header("User-Agent", "x".to_owned()));
    assert_eq!(with("no\theader", ""), []);
}

#[test]
fn debug_output_of_settings_holds_no_secret() {
    let file = r#"{"env": {"A_KEY": "hush-1"}, "mcpServers": {
        "a": {"command": "x", "args": ["hush-2"], "env": {"T": "hush-3"}},
        "b": {"type": "http", "url": "https://h/hush-4", "headers": {"Authorization": "hush-5"}}}}"#;
    let variables = [
        ("ANTHROPIC_API_KEY", "hush-6"),
        ("ANTHROPIC_CUSTOM_HEADERS", "X-Key: hush-7"),
        ("HTTPS_PROXY", "http://u:hush-8@p.test"),
    ];
    let shown = format!("{:?}", resolve(&["hi"], &variables, file).unwrap());
    assert!(!shown.contains("hush"), "{shown}");
    assert!(shown.contains("ANTHROPIC_API_KEY"), "{shown}");
}

#[test]
fn hooks_of_all_files_run_once_each_unless_they_are_switched_off() {
    let hook = |command: &str| {
        format!(r#""Stop": [{{"hooks": [{{"type": "command", "command": "{command}"}}]}}]"#)
    };
    let (file, flag) = (format!("{{\"hooks\": {{{}}}}}", hook("a")), hook("b"));
    for (extra, wanted) in [("", 2), (", \"disableAllHooks\": true", 0)] {
        let flag = format!("{{\"hooks\": {{{flag}}}{extra}}}");
        let settings = resolve(&["hi", "--settings", &flag], &[], &file).unwrap();
        assert_eq!(settings.hooks.len(), wanted, "{flag}");
    }
    let twice = resolve(&["hi", "--settings", &file], &[], &file).unwrap().hooks;
    assert_eq!(twice.len(), 1);
    assert_eq!(twice[0].source, "--settings", "it belongs to who says it last");
}

#[test]
fn a_mistake_in_a_hook_is_reported_with_file_and_line() {
    let text = "{\n  \"hooks\": {\"Stop\": [\n    {\"hooks\": [{\"type\": \"comand\"}]}]}}";
    let error = resolve(&["hi"], &[], text).unwrap_err();
    assert!(error.contains("settings.json:3:16: \"hooks.Stop[0].hooks[0]\": "), "{error}");
}

#[test]
fn flags_outrank_variables_variables_outrank_files() {
    let file = r#"{"maxTurns": 1, "maxRetries": 1, "model": "m1", "requestTimeout": 1}"#;
    let variables = [("CLAUDE_CODE_MAX_TURNS", "2"), ("ANTHROPIC_MODEL", "m2")];
    let more = [("API_TIMEOUT_MS", "2500"), ("CLAUDE_CODE_MAX_RETRIES", "2")];
    let variables = [&variables[..], &more].concat();
    let only_file = resolve(&["hi"], &[], file).unwrap();
    assert_eq!(only_file.config.limits.budgets.turns, Some(1));
    assert_eq!(labels(&only_file), ["m1"]);
    assert_eq!(only_file.endpoint.timers.whole, Duration::from_secs(1));
    let both = resolve(&["hi"], &variables, file).unwrap();
    assert_eq!(
        (both.config.limits.budgets.turns, both.config.limits.budgets.retries),
        (Some(2), 2)
    );
    assert_eq!(labels(&both), ["m2"]);
    assert_eq!(both.endpoint.timers.whole, Duration::from_millis(2500));
    let flags = ["hi", "--max-turns", "3", "--model=m3", "--request-timeout=3s"];
    let flags = [&flags[..], &["--max-retries=3"]].concat();
    let all = resolve(&flags, &variables, file).unwrap();
    assert_eq!((all.config.limits.budgets.turns, all.config.limits.budgets.retries), (Some(3), 3));
    assert_eq!(labels(&all), ["m3"]);
    assert_eq!(all.endpoint.timers.whole, Duration::from_secs(3));
    let inline = resolve(&["hi", "--settings", r#"{"maxRetries": 9}"#], &[], file).unwrap();
    assert_eq!(
        (inline.config.limits.budgets.turns, inline.config.limits.budgets.retries),
        (Some(1), 9)
    );
    let none = resolve(&["hi", "--setting-sources="], &[], file).unwrap();
    assert_eq!(none.config.limits.budgets.turns, None);
}

#[test]
fn null_means_that_a_file_says_nothing_of_a_list_an_object_or_a_group() {
    let file = r#"{"env": {"A": "1"}, "permissions": {"deny": ["Read(a)"]}, "fallbackModel": "m",
        "sandbox": {"network": {"allowedDomains": ["a.test"]}}}"#;
    let kept = resolve(&["hi"], &[], file).unwrap().config;
    for over in [
        r#"{"env": null, "fallbackModel": null, "prices": null, "mcpServers": null, "hooks": null}"#,
        r#"{"permissions": {"allow": null, "ask": null, "deny": null}}"#,
        r#"{"permissions": null, "sandbox": null}"#,
        r#"{"sandbox": {"network": null, "filesystem": null}}"#,
        // Some programs write an empty object as a list, or what is not set as null.
        r#"{"permissions": [ ], "env": [], "hooks": [], "sandbox": {"network": []}}"#,
        r#"{"permissions": {"allow": {}, "deny": [null]}, "env": {"B": null}}"#,
        r#"{"hooks": {"PreToolUse": {}, "Stop": [null], "PreCompact": [{"hooks": null}]}}"#,
    ] {
        let settings = resolve(&["hi", "--settings", over], &[], file).unwrap();
        assert_eq!(format!("{:?}", settings.config), format!("{kept:?}"), "{over}");
    }
}

#[test]
fn an_empty_object_keeps_what_other_files_say_and_null_removes_it() {
    let file = r#"{"env": {"A": "1"}, "contextWindow": {"m": 5000}, "maxTurns": 5}"#;
    let over = r#"{"env": {}, "contextWindow": {}, "maxTurns": null}"#;
    let settings = resolve(&["hi", "--model=m", "--settings", over], &[], file).unwrap();
    let set = settings.variables.get(OsStr::new("A")).and_then(|value| value.to_str());
    assert_eq!(set, Some("1"));
    assert_eq!(settings.chain.links[0].context_window, Some(5000));
    assert_eq!(settings.config.limits.budgets.turns, None);
}

#[test]
fn a_blank_model_is_none() {
    let known = resolve(&["hi"], &[], "{}").unwrap();
    let blank = resolve(&["hi", "--model="], &[], r#"{"model": " "}"#).unwrap();
    assert_eq!(labels(&blank), labels(&known));
    let file = resolve(&["hi", "--model", ""], &[], r#"{"model": "m"}"#).unwrap();
    assert_eq!(labels(&file), ["m"]);
}

#[test]
fn objects_of_fallback_models_mean_what_they_say() {
    let file = r#"{"model": "m", "fallbackModel": [{"model": "team@prod"}, {"model": "a#Q4"}]}"#;
    let settings = resolve(&["hi"], &[("Q4", "not-a-key-0123456789")], file).unwrap();
    assert_eq!(labels(&settings), ["m", "team@prod", "a#Q4"]);
    assert_eq!(settings.chain.endpoints.len(), 1);
}

#[test]
fn a_variable_that_is_not_text_is_a_mistake_whichever_it_is() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = BinaryFixture::new();
    let CliRequest::Run(args) = args::parse(&["hi".to_owned()]).unwrap() else { panic!("a run") };
    let pairs = [("HOME", world.home().into_os_string()), ("ANTHROPIC_API_KEY", "k".into())];
    let mut all: BTreeMap<OsString, OsString> =
        pairs.into_iter().map(|(name, value)| (name.into(), value)).collect();
    all.insert("TERM".into(), OsStr::from_bytes(b"\xff").to_owned());
    let error = settings::resolve(&args, all, world.work(), &Terms::default()).unwrap_err();
    assert!(error.to_string().contains("TERM"), "{error}");
}

#[test]
fn permission_rules_of_all_sources_are_merged() {
    let file = r#"{"permissions": {"allow": ["Read"], "deny": ["WebFetch"]}}"#;
    let inline = r#"{"permissions": {"allow": ["Glob"], "defaultMode": "acceptEdits"}}"#;
    let flags = ["hi", "--settings", inline, "--allowedTools", "Bash(git log:*),Grep"];
    let permissions = resolve(&flags, &[], file).unwrap().config.permissions;
    assert_eq!(permissions.allow, ["Read", "Glob", "Bash(git log:*)", "Grep"]);
    assert_eq!(permissions.deny, ["WebFetch"]);
    assert_eq!(permissions.mode.name(), "acceptEdits");
}

#[test]
fn prices_and_windows_of_unused_models_are_reported() {
    let flags = ["hi", "--model=sonnet", "--fallback-model=b,c@http://127.0.0.1:9"];
    let warnings =
        |more: &[&str]| resolve(&[&flags[..], more].concat(), &[], "{}").unwrap().warnings;
    let known = ["--price=1/2", "--price=sonnet=1/2", "--price=b=1/2", "--context-window=32k"];
    assert_eq!(warnings(&known), Vec::<String>::new());
    assert_eq!(warnings(&["--price=c@http://127.0.0.1:9=1/2"]), Vec::<String>::new());
    for (flag, value) in [("--price", "1/2"), ("--context-window", "32k")] {
        let [warning] = &warnings(&[&format!("{flag}=sonet={value}")])[..] else { panic!("one") };
        assert!(warning.starts_with(&format!("{flag}: \"sonet\" is not a model of this run")));
        assert!(warning.contains("b, c@http://127.0.0.1:9"), "{warning}");
    }
}

#[test]
fn the_number_of_compactions_is_a_flag_and_a_setting() {
    let left = |flags: &[&str], file: &str| {
        resolve(&[&["hi"], flags].concat(), &[], file).unwrap().config.limits.budgets.compactions
    };
    assert_eq!(left(&[], "{}"), None);
    assert_eq!(left(&[], r#"{"maxCompactions": 20}"#), Some(20));
    assert_eq!(left(&["--max-compactions=0"], r#"{"maxCompactions": 20}"#), Some(0));
}

#[test]
fn the_headroom_of_compaction_is_a_setting() {
    let begins_at = |file: &str| {
        resolve(&["hi"], &[], file).unwrap().config.limits.crowded_from(200_000, 8_192, 0)
    };
    assert_eq!(begins_at("{}") - begins_at(r#"{"compactHeadroom": 14000}"#), 1_000);
}

#[test]
fn the_unattended_flag_is_read_in_every_spelling() {
    for (value, wanted) in [
        ("1", Persistence::Capacity),
        ("True", Persistence::Capacity),
        ("YES", Persistence::Capacity),
        ("on", Persistence::Capacity),
        ("ALL", Persistence::All),
        ("0", Persistence::Off),
        ("", Persistence::Off),
    ] {
        for name in ["OUTLAST_UNATTENDED_RETRY", "CLAUDE_CODE_UNATTENDED_RETRY"] {
            let limits = resolve(&["hi"], &[(name, value)], "{}").unwrap().config.limits;
            assert_eq!(limits.persistence, wanted, "{name}={value}");
            let unattended = wanted != Persistence::Off;
            let wait = if unattended { Duration::from_hours(6) } else { Duration::from_mins(10) };
            assert_eq!(limits.max_retry_wait, wait, "{name}={value}");
        }
    }
    let ours_first = [("OUTLAST_UNATTENDED_RETRY", "off"), ("CLAUDE_CODE_UNATTENDED_RETRY", "all")];
    let limits = resolve(&["hi"], &ours_first, "{}").unwrap().config.limits;
    assert_eq!(limits.persistence, Persistence::Off);
}

#[test]
fn limit_settings_are_passed_to_the_run() {
    let flags = [
        "hi",
        "--max-duration=100s",
        "--token-budget",
        "500k",
        "--max-budget-usd",
        "2.5",
        "--fallback-model",
        "b,c",
        "--fallbackModel=d",
        "--max-output-tokens=4k",
        "--maxRetryWait=90",
    ];
    let settings = resolve(&flags, &[], r#"{"model": "a", "overloadLimit": 3}"#).unwrap();
    let limits = settings.config.limits;
    assert_eq!(limits.deadline.unwrap().as_millis(), 100_000);
    assert_eq!(limits.wrap_up.unwrap().as_millis(), 90_000);
    assert_eq!(limits.effort, Some(500_000));
    assert_eq!(settings.config.max_budget_usd, Money::from_dollars(2.5));
    assert_eq!(labels(&settings), ["a", "b", "c", "d"]);
    assert_eq!(limits.budgets.switches, 3);
    assert_eq!((limits.caps.first, limits.budgets.escalations), (4_000, 0));
    assert_eq!(limits.max_retry_wait, Duration::from_secs(90));
    assert_eq!(limits.overload_limit, Some(3));
}

#[test]
fn the_default_output_cap_has_room_for_a_thinking_budget_and_one_that_is_set_is_kept() {
    let (haiku, budget) = ("--model=claude-haiku-4-5", "--max-thinking-tokens=31999");
    for (flags, cap, lowered) in [
        (&["hi", haiku][..], 8_192, None),
        (&["hi", haiku, budget], 8_192 + 31_999, None),
        (&["hi", haiku, "--thinking=enabled"], 8_192 + 10_000, None),
        (&["hi", "--model=claude-sonnet-5-5", budget], 8_192, None),
        (
            &["hi", "--model=claude-sonnet-5-5", "--fallback-model=claude-haiku-4-5", budget],
            40_191,
            None,
        ),
        (&["hi", haiku, budget, "--max-output-tokens=16000"], 16_000, Some("lowered to 12000")),
        (&["hi", haiku, "--max-thinking-tokens=60000"], 68_192, Some("lowered to 55808")),
        (&["hi", "--model=m", budget, "--max-output-tokens=1000"], 1_000, Some("lowered to 0")),
    ] {
        let settings = resolve(flags, &[], "{}").unwrap();
        assert_eq!(settings.config.limits.caps.first, cap, "{flags:?}");
        assert!(settings.config.limits.caps.escalated >= cap);
        let warned = settings.warnings.iter().find(|it| it.contains("thinking budget"));
        assert_eq!(warned.is_some(), lowered.is_some(), "{flags:?}: {warned:?}");
        assert!(warned.is_none_or(|it| it.contains(lowered.unwrap())), "{warned:?}");
    }
}

#[test]
fn numbers_too_large_are_the_largest_and_empty_values_of_optional_flags_are_not_given() {
    let large = "99999999999999999999999";
    let variables = [("BASH_MAX_TIMEOUT_MS", large), ("CLAUDE_CODE_MAX_TURNS", "99999999999")];
    let empty = ["hi", "--effort=", "--fallback-model", "", "--agents", "", "--mcp-config", ""];
    let settings = resolve(&empty, &variables, "{}").unwrap();
    assert_eq!(settings.config.limits.budgets.turns, Some(u32::MAX));
    assert!(settings.config.commands.max_timeout > Duration::from_hours(24 * 365));
    assert_eq!(labels(&settings).len(), 1);
    for flag in ["--settings", "--agent", "--permission-mode", "--max-turns"] {
        assert!(resolve(&["hi", flag, ""], &[], "{}").is_err(), "{flag}");
    }
    assert!(resolve(&["hi"], &[("BASH_MAX_TIMEOUT_MS", "9x")], "{}").is_err());
}

#[test]
fn every_timer_is_a_flag_and_a_setting() {
    let all = |settings: &Settings| {
        let endpoint = &settings.endpoint;
        [
            endpoint.timers.connect,
            endpoint.timers.first_byte,
            endpoint.timers.idle,
            endpoint.timers.progress,
            endpoint.timers.reply,
            endpoint.timers.whole,
            endpoint.timers.dead_path,
        ]
        .map(|duration| duration.as_secs())
    };
    assert_eq!(all(&resolve(&["hi"], &[], "{}").unwrap()), [15, 180, 120, 300, 3_600, 600, 55]);
    let flags = [
        "hi",
        "--connect-timeout=1",
        "--first-byte-timeout=2",
        "--stream-idle-timeout=3",
        "--stream-progress-timeout=4",
        "--reply-timeout=5",
        "--request-timeout=6",
        "--dead-path-timeout=12",
    ];
    let file = r#"{"connectTimeout": 11, "firstByteTimeout": 12, "streamIdleTimeout": 13,
        "streamProgressTimeout": 14, "replyTimeout": 15, "requestTimeout": 16, "deadPathTimeout": 17}"#;
    assert_eq!(all(&resolve(&flags, &[], file).unwrap()), [1, 2, 3, 4, 5, 6, 12]);
    assert_eq!(all(&resolve(&["hi"], &[], file).unwrap()), [11, 12, 13, 14, 15, 16, 17]);
}

#[test]
fn credentials_are_found_in_order_and_never_shown() {
    let both = [("ANTHROPIC_AUTH_TOKEN", "a-token"), ("ANTHROPIC_API_KEY", "a-key")];
    let settings = resolve(&["hi"], &both, "{}").unwrap();
    assert_eq!(settings.endpoint.credential, Credential::Bearer(Secret::new("a-token")));
    assert!(!format!("{:?}", settings.endpoint.credential).contains("a-token"));
    let with_key = |key| [("CLAUDE_CODE_OAUTH_TOKEN", "o-token"), ("ANTHROPIC_API_KEY", key)];
    let settings = resolve(&["hi"], &with_key("a-key"), "{}").unwrap();
    assert_eq!(settings.endpoint.credential, Credential::ApiKey(Secret::new("a-key")));
    let settings = resolve(&["hi"], &with_key(""), "{}").unwrap();
    assert_eq!(settings.endpoint.credential, Credential::OAuthToken(Secret::new("o-token")));
    assert!(!format!("{:?}", settings.endpoint.credential).contains("o-token"));
    let helper = resolve(&["hi"], &both, r#"{"apiKeyHelper": "pass show key"}"#).unwrap();
    assert_eq!(helper.endpoint.credential, Credential::Helper(HelperCommand::new("pass show key")));
    let from_file = resolve(&["hi"], &[], r#"{"env": {"ANTHROPIC_API_KEY": "other"}}"#).unwrap();
    assert_eq!(from_file.endpoint.credential, Credential::ApiKey(Secret::new("other")));
}

#[test]
fn every_setting_is_checked_described_and_has_a_default_of_its_own_kind() {
    for setting in registry::settings() {
        let path = setting.path();
        let wrong = serde_json::json!({ "x": [[]] });
        let wrong = path.iter().rev().fold(wrong, |inner, key| serde_json::json!({ key: inner }));
        let said = match resolve(&["hi"], &[], &wrong.to_string()) {
            // An unknown hook event may be one that another program supports.
            Ok(settings) => settings.all_warnings().map(String::as_str).collect(),
            Err(error) => error,
        };
        let subject = if setting.key == "mcpServers" { "MCP server" } else { setting.key };
        assert!(said.contains(subject), "{setting:?}: {said}");
        assert!(!said.contains("unknown setting"), "{said}");
        assert!(setting.meaning.ends_with('.'), "{setting:?}");
        if !setting.default.is_null() {
            let default = setting.from_json(&setting.default.to_string());
            assert_eq!(default.ok().as_ref(), Some(&setting.default), "{setting:?}");
        }
    }
}
