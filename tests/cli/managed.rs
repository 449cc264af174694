//! Managed settings: the administrator's files outrank every other source.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use outlast::cli::args::{self, CliRequest, GivenFlags};
use outlast::cli::settings::{self, Settings, SettingsSurvey};
use outlast::model::{Credential, ThinkingMode};
use serde_json::json;

use super::binary_fixture::BinaryFixture;

const PATHS: [&str; 2] = ["etc/claude-code/managed.json", "etc/outlast/managed.json"];

pub(super) fn load_settings(
    world: &BinaryFixture,
    flags: &[&str],
    variables: &[(&str, &str)],
) -> Result<Settings, String> {
    let words: Vec<String> = ["hi"].iter().chain(flags).map(ToString::to_string).collect();
    let CliRequest::Run(args) = args::parse(&words).map_err(|error| error.to_string())? else {
        panic!("a run");
    };
    let variables = environment(world, variables);
    settings::resolve_with_managed(&managed_files(world), &args, &variables, world.work())
        .map_err(|error| error.to_string())
}

fn managed_files(world: &BinaryFixture) -> Vec<PathBuf> {
    PATHS.map(|path| world.work().join("..").join(path)).to_vec()
}

fn environment(world: &BinaryFixture, more: &[(&str, &str)]) -> outlast::secrets::Variables {
    let home = world.home().display().to_string();
    let own = [("HOME", home.as_str()), ("ANTHROPIC_API_KEY", "a-key")];
    own.iter().chain(more).map(|(name, value)| (name.into(), value.into())).collect()
}

fn survey(world: &BinaryFixture, flags: &[&str], variables: &[(&str, &str)]) -> SettingsSurvey {
    let words: Vec<String> = flags.iter().map(ToString::to_string).collect();
    let args = args::run_flags(&words).expect("flags");
    let variables = environment(world, variables);
    settings::survey_with_managed(&managed_files(world), &args, &variables, &world.work())
}

/// A machine with these managed settings, and user settings that contradict them.
fn world(managed: &str) -> BinaryFixture {
    let user = r#"{"model": "users", "maxTurns": 1, "permissions": {"allow": ["Bash"],
        "deny": ["WebFetch"]}, "hooks": {"Stop": [{"hooks": [{"type": "command",
        "command": "user"}]}]}}"#;
    BinaryFixture::new().file("home/.outlast/settings.json", user).file(PATHS[0], managed)
}

#[test]
fn managed_settings_outrank_flags_variables_and_files() {
    let managed = r#"{"model": "theirs", "maxTurns": 9, "autoCompactEnabled": true,
        "requestTimeout": "7s", "permissions": {"defaultMode": "plan", "deny": ["Write"]},
        "sandbox": {"mode": "workspace"}, "env": {"MAX_THINKING_TOKENS": "4096"}}"#;
    let world = world(managed);
    let flags = [
        "--model=mine",
        "--max-turns=3",
        "--no-auto-compact",
        "--request-timeout=3s",
        "--dangerously-skip-permissions",
        "--sandbox=off",
        "--max-retries=4",
        "--settings",
        r#"{"model": "inline"}"#,
    ];
    let variables =
        [("ANTHROPIC_MODEL", "env"), ("API_TIMEOUT_MS", "99"), ("MAX_THINKING_TOKENS", "1024")];
    let settings = load_settings(&world, &flags, &variables).expect("they agree");
    assert_eq!(settings.chain.links[0].name, "theirs");
    assert_eq!(settings.config.limits.budgets.turns, Some(9));
    assert!(settings.config.limits.auto_compact);
    assert_eq!(settings.endpoint.timers.whole.as_secs(), 7);
    assert_eq!(settings.config.permissions.mode.name(), "plan");
    assert_eq!(settings.config.sandbox.mode, outlast::tools::SandboxMode::Workspace);
    assert_eq!(settings.config.reasoning.thinking, ThinkingMode::Budget(4096));
    assert_eq!(settings.config.limits.budgets.retries, 4, "they say nothing of this");
    assert_eq!(settings.config.permissions.deny, ["WebFetch", "Write"], "lists are joined");

    let survey = survey(&world, &flags[..5], &variables);
    let origin = |name: &str| {
        let one = survey.effective.iter().find(|one| one.name == name).expect("it is there");
        (one.value.clone(), one.origin.clone())
    };
    for (name, value) in [("model", "theirs"), ("requestTimeout", "7s")] {
        let (said, place) = origin(name);
        assert_eq!(said, value, "{name}");
        assert!(place.contains("claude-code/managed.json:"), "{name}: {place}");
    }
    assert!(
        survey.inputs.sources.files.iter().any(|file| file.path.ends_with(PATHS[0])),
        "{:?}",
        survey.inputs.sources.files
    );
}

#[test]
fn managed_settings_of_a_flag_outrank_all_but_those_of_the_machine() {
    let world = world(r#"{"permissions": {"defaultMode": "plan"}}"#);
    let given = r#"{"model": "of-the-flag", "permissions": {"defaultMode": "dontAsk"}}"#;
    let flags = ["--model=flag", "--managed-settings", given];
    let settings =
        load_settings(&world, &flags, &[("ANTHROPIC_MODEL", "env")]).expect("it is right");
    assert_eq!(settings.chain.links[0].name, "of-the-flag");
    assert_eq!(settings.config.permissions.mode.name(), "plan");
    let broken = ["--managed-settings", r#"{"model": 7}"#];
    let Err(error) = load_settings(&world, &broken, &[]) else { panic!("it is wrong") };
    assert!(error.contains("--managed-settings:1:"), "{error}");
}

#[test]
fn managed_settings_may_say_that_only_they_allow_hosts() {
    let rule = |hosts: &str| {
        format!(r#"{{"sandbox": {{"network": {{"allowManagedDomainsOnly": true{hosts}}}}}}}"#)
    };
    let ours = r#"{"sandbox": {"network": {"allowedDomains": ["b.example"]}}}"#;
    let (listed, alone) = (rule(r#", "allowedDomains": ["a.example"]"#), rule(""));
    let plain = BinaryFixture::new().file("home/.outlast/settings.json", ours);
    let managed = |text: &str| {
        let world = BinaryFixture::new().file("home/.outlast/settings.json", ours);
        world.file(PATHS[1], text)
    };
    for (world, flags, wanted) in [
        (&plain, &["--managed-settings", listed.as_str()][..], &["a.example"][..]),
        (&plain, &["--managed-settings", alone.as_str()], &[]),
        (&managed(&listed), &[], &["a.example"]),
        (&managed(&alone), &[], &[]),
        (&plain, &[], &["b.example"]),
    ] {
        let sandbox = load_settings(world, flags, &[]).expect("it is right").config.sandbox;
        let allowed = sandbox.egress.as_ref().map_or(&[][..], |egress| egress.lists().allowed());
        assert_eq!(allowed, wanted, "{flags:?}");
        assert_eq!(sandbox.no_network, wanted.is_empty(), "{flags:?}");
    }
    // Its name begins like that of a managed file.
    let world = managed("{}").file("etc/outlast/managed.json.bak", listed);
    let copy = managed_files(&world)[1].with_extension("json.bak").display().to_string();
    let Err(error) = load_settings(&world, &["--settings", &copy], &[]) else {
        panic!("only managed files may say so")
    };
    assert!(error.contains("\"sandbox.network.allowManagedDomainsOnly\" cannot be"), "{error}");
}

#[test]
fn no_user_setting_disables_a_managed_sandbox() {
    use outlast::tools::SandboxMode::{Off, ReadOnly, Required, RequiredReadOnly, Workspace};
    for (theirs, ours, flags, wanted) in [
        (
            r#"{"enabled": true, "failIfUnavailable": true}"#,
            r#"{"mode": "off"}"#,
            &[][..],
            Required,
        ),
        (r#"{"failIfUnavailable": true}"#, r#"{"enabled": false}"#, &[], Required),
        (r#"{"enabled": true}"#, r#"{"mode": "off", "enabled": false}"#, &[], Workspace),
        (r#"{"failIfUnavailable": true}"#, "{}", &["--sandbox=off"], Required),
        (r#"{"enabled": true}"#, "{}", &["--sandbox=off"], Workspace),
        (r#"{"enabled": true}"#, r#"{"failIfUnavailable": true}"#, &[], Required),
        (r#"{"enabled": true}"#, r#"{"mode": "read-only"}"#, &[], ReadOnly),
        (
            r#"{"enabled": true, "failIfUnavailable": false}"#,
            r#"{"mode": "required"}"#,
            &[],
            Workspace,
        ),
        (r#"{"failIfUnavailable": false}"#, r#"{"failIfUnavailable": true}"#, &[], Workspace),
        (r#"{"failIfUnavailable": true}"#, r#"{"mode": "read-only"}"#, &[], RequiredReadOnly),
        (r#"{"enabled": true}"#, r#"{"mode": "read-only,required"}"#, &[], RequiredReadOnly),
        (r#"{"failIfUnavailable": false}"#, r#"{"mode": "read-only,required"}"#, &[], ReadOnly),
        (r#"{"enabled": false}"#, r#"{"mode": "required"}"#, &["--sandbox=required"], Off),
    ] {
        let world = BinaryFixture::new()
            .file("home/.outlast/settings.json", format!("{{\"sandbox\": {ours}}}"))
            .file(PATHS[0], format!("{{\n  \"sandbox\": {theirs}}}"));
        let case = format!("{theirs} over {ours} {flags:?}");
        let settings = load_settings(&world, flags, &[]).expect(&case);
        assert_eq!(settings.config.sandbox.mode, wanted, "{case}");
        let flag = ["--settings", &format!("{{\"sandbox\": {ours}}}")];
        let settings = load_settings(&world, &[flags, &flag].concat(), &[]).expect(&case);
        assert_eq!(settings.config.sandbox.mode, wanted, "{case} as --settings");

        let shown = survey(&world, flags, &[]).effective;
        let spellings = ["sandbox.mode", "sandbox.enabled", "sandbox.failIfUnavailable"];
        let shown: Vec<_> =
            shown.into_iter().filter(|one| spellings.contains(&one.name.as_str())).collect();
        let [one] = &shown[..] else { panic!("{case}: {shown:?}") };
        let name = match wanted {
            Off => "off",
            Workspace => "workspace",
            ReadOnly => "read-only",
            Required => "required",
            RequiredReadOnly => "read-only,required",
        };
        assert_eq!(one.value, name, "{case}");
        assert!(one.origin.ends_with("managed.json:2"), "{case}: {}", one.origin);
    }
}

/// Flags about settings, and what a managed file says instead.
const MANAGED_FLAGS: [(&str, &str); 42] = [
    ("--agent=ours", r#""agent": "theirs""#),
    ("--api-key-helper=ours", r#""apiKeyHelper": "theirs""#),
    ("--budget-mode=ceiling", r#""budgetMode": "after""#),
    ("--child-env=inherit", r#""childEnv": "allowlist""#),
    ("--connect-timeout=3s", r#""connectTimeout": "4s""#),
    ("--context-window=9000", r#""contextWindow": 8000"#),
    ("--dangerously-skip-permissions", r#""permissions": {"defaultMode": "plan"}"#),
    ("--dead-path-timeout=12s", r#""deadPathTimeout": "13s""#),
    ("--fallback-model=ours", r#""fallbackModel": "theirs""#),
    ("--fallback-return", r#""fallbackReturn": false"#),
    ("--fast", r#""fast": false"#),
    ("--first-byte-timeout=3s", r#""firstByteTimeout": "4s""#),
    ("--max-budget-usd=3", r#""maxBudgetUsd": 4"#),
    ("--max-compactions=3", r#""maxCompactions": 4"#),
    ("--max-duration=3m", r#""maxDuration": "4m""#),
    ("--max-output-tokens=3000", r#""maxOutputTokens": 4000"#),
    ("--max-retries=3", r#""maxRetries": 4"#),
    ("--max-retry-wait=3s", r#""maxRetryWait": "4s""#),
    ("--max-thinking-tokens=3000", r#""maxThinkingTokens": 4000"#),
    ("--max-turns=3", r#""maxTurns": 4"#),
    ("--model=ours", r#""model": "theirs""#),
    ("--no-auto-compact", r#""autoCompactEnabled": true"#),
    ("--no-fallback", r#""fallbackModel": "theirs""#),
    ("--no-shared-limits", r#""sharedLimits": true"#),
    ("--on-denied=continue", r#""onDenied": "fail""#),
    ("--permission-mode=acceptEdits", r#""permissions": {"defaultMode": "plan"}"#),
    ("--price=ours=1/2", r#""prices": {"theirs": {"input": 3, "output": 4}}"#),
    ("--reply-timeout=3s", r#""replyTimeout": "4s""#),
    ("--request-timeout=3s", r#""requestTimeout": "4s""#),
    ("--require=ours", r#""require": "theirs""#),
    ("--require-timeout=3s", r#""require": "it", "requireTimeout": "4s""#),
    ("--sandbox=off", r#""sandbox": {"mode": "read-only"}"#),
    ("--sandbox=off", r#""sandbox": {"enabled": true}"#),
    ("--sandbox=off", r#""sandbox": {"failIfUnavailable": true}"#),
    ("--sandbox-network=on", r#""sandbox": {"network": {"enabled": false}}"#),
    ("--stdin-timeout=3s", r#""stdinTimeout": "4s""#),
    ("--stream-idle-timeout=3s", r#""streamIdleTimeout": "4s""#),
    ("--stream-progress-timeout=3s", r#""streamProgressTimeout": "4s""#),
    ("--thinking=disabled", r#""maxThinkingTokens": 4000"#),
    ("--thinking=enabled", r#""maxThinkingTokens": 0"#),
    ("--token-budget=3000", r#""tokenBudget": 4000"#),
    ("--allowed-tools=Bash", r#""allowManagedPermissionRulesOnly": true"#),
];

/// Flags that are about the run at hand, or that add to what settings say and take nothing away.
#[rustfmt::skip]
const UNMANAGED_FLAGS: [&str; 104] = [
    "advisor", "channels", "dangerously-load-development-channels", "enable-auto-mode", "mcp-debug",
    "rc", "remote", "teammate-mode",
    "color", "image", "last-message-file", "output-fields", "unattended",
    "autocompact", "ax-screen-reader", "background", "bg", "brief", "chrome", "cloud", "desktop",
    "environment", "exclude-dynamic-system-prompt-sections", "file", "from-pr", "ide", "init",
    "maintenance", "no-chrome", "plugin-url", "profile", "prompt-suggestions", "remote-control",
    "remote-control-session-name-prefix", "restricted", "safe-mode", "system-prompt-snapshot",
    "teleport", "tmux", "worktree",
    "add-dir", "agents", "append-subagent-system-prompt", "append-system-prompt",
    "allow-dangerously-skip-permissions", "append-system-prompt-file", "await-initialize", "bare",
    "betas", "ca-file", "debug", "debug-file", "debug-to-stderr", "effort", "name",
    "permission-prompts", "plugin-dir", "plugin-dir-no-mcp", "replay-user-messages",
    "session-mirror", "task-budget",
    "thinking-display", "resume-drops-turn", "resume-session-at", "rewind-files", "managed-settings",
    "continue", "disable-slash-commands", "disallowed-tools", "fork-session",
    "forward-subagent-text", "heartbeat-file",
    "help", "include-hook-events", "include-partial-messages", "input-format", "json-schema",
    "log-detail", "mcp-config", "mcp-required", "no-memory", "no-session-persistence", "no-stdin",
    "output-format",
    "pass-env", "permission-prompt-tool", "print", "quiet", "result-file", "resume", "resume-or-start",
    "session-id", "setting-sources", "settings", "stdin", "strict-mcp-config", "system-prompt",
    "system-prompt-file", "time-scale", "to-last-intact", "tools", "trust-project", "verbose", "version",
];

/// Everything about a run that one could tell apart.
fn fingerprint(settings: &Settings) -> String {
    let at = &settings.endpoint;
    let timers = [
        at.timers.connect,
        at.timers.first_byte,
        at.timers.idle,
        at.timers.progress,
        at.timers.whole,
        at.timers.dead_path,
    ];
    let helper = match &at.credential {
        Credential::Helper(helper) => &helper.command,
        Credential::ApiKey(_)
        | Credential::Bearer(_)
        | Credential::OAuthToken(_)
        | Credential::OAuth { .. }
        | Credential::FoundryKey(_)
        | Credential::Cloud(_)
        | Credential::None => "",
    };
    format!("{settings:?} {timers:?} {helper}")
}

#[test]
fn managed_settings_outrank_every_flag() {
    let agent = |name: &str| format!("---\nname: {name}\ndescription: {name}\n---\nBe {name}.");
    let world = |managed: &str| {
        BinaryFixture::new()
            .file("home/.outlast/agents/ours.md", agent("ours"))
            .file("home/.outlast/agents/theirs.md", agent("theirs"))
            .file(PATHS[0], format!("{{{managed}}}"))
    };
    let of = |world: &BinaryFixture, flags: &[&str]| {
        let same = ["--session-id=00000000-0000-4000-8000-000000000000"];
        let settings = load_settings(world, &[&same, flags].concat(), &[]);
        let shown = survey(world, flags, &[]).effective;
        // The command to go on repeats the flags, whatever outranks them.
        let settings =
            settings.map(|settings| Settings { given: GivenFlags::default(), ..settings });
        (settings.map(|settings| fingerprint(&settings)), format!("{shown:?}"))
    };
    let free = world("");
    let usual = of(&free, &[]);
    for (flag, managed) in MANAGED_FLAGS {
        let ruled = world(managed);
        assert_eq!(of(&ruled, &[flag]), of(&ruled, &[]), "{flag} against {managed}");
        assert!(of(&ruled, &[]).0.is_ok(), "{managed}");
        assert_ne!(of(&free, &[flag]), usual, "{flag} changes nothing, which would prove nothing");
    }
    let command = args::command();
    let flags = command.get_arguments().filter_map(|flag| flag.get_long());
    for flag in flags {
        let name = |row: &(&'static str, _)| row.0.trim_start_matches('-').split('=').next();
        let ruled = MANAGED_FLAGS.iter().any(|row| name(row) == Some(flag));
        assert!(
            ruled != UNMANAGED_FLAGS.contains(&flag),
            "--{flag}: does it say something about a setting?"
        );
    }
}

#[test]
fn a_profile_does_not_promise_what_managed_settings_undo() {
    let flags = ["--profile=untrusted", "--max-budget-usd=1", "--max-duration=5m"];
    for (mode, holds) in [("workspace", false), ("required", false), ("read-only,required", true)] {
        let sandbox = format!(r#"{{"sandbox": {{"mode": "{mode}"}}}}"#);
        let world = BinaryFixture::new().file(PATHS[0], sandbox);
        let settings = load_settings(&world, &flags, &[]);
        assert_eq!(settings.is_ok(), holds, "{mode}");
        let why = settings.err().unwrap_or_default();
        assert_eq!(why.contains("the managed settings set"), !holds, "{mode}: {why}");
    }
}

#[test]
fn a_managed_mcp_server_cannot_be_replaced() {
    let ours = r#"{"mcpServers": {"d_b": {"command": "ours"}, "d.b": {"command": "ours"}}}"#;
    for (theirs, command, disabled) in [
        (r#"{"command": "theirs"}"#, Some("theirs"), false),
        (r#"{"command": "theirs", "disabled": true}"#, Some("theirs"), true),
        (r#"{"disabled": true}"#, None, true),
        (r#"{"command": ""}"#, None, true),
    ] {
        let managed = format!("{{\"mcpServers\": {{\"d_b\": {theirs}}}}}");
        let world = BinaryFixture::new()
            .file("home/.outlast/settings.json", ours)
            .file("work/.mcp.json", ours)
            .file(PATHS[0], &managed);
        let flags = ["--trust-project", "--mcp-config", ours, "--settings", ours];
        let settings = load_settings(&world, &flags, &[]).expect("good");
        let found = settings.mcp.servers.iter().find(|server| server.name == "d_b");
        let program = found.map(|server| format!("{:?}", server.place));
        assert_eq!(program.is_some(), command.is_some(), "{theirs}: {program:?}");
        if let (Some(program), Some(command), Some(server)) = (program, command, found) {
            assert!(program.contains(command), "{theirs}: {program}");
            assert_eq!(server.disabled, disabled, "{theirs}");
            assert_eq!(settings.mcp.servers[0].name, "d_b", "nor is it the twin of another");
        }
        let shown = survey(&world, &flags, &[]).effective;
        let shown = shown.iter().find(|one| one.name == "mcpServers.d_b");
        assert!(shown.is_none_or(|one| one.origin.contains("managed.json:1")), "{shown:?}");
    }
}

#[test]
fn later_managed_files_outrank_earlier_ones_and_lists_are_merged() {
    let world = world(r#"{"model": "one", "permissions": {"deny": ["Edit"]}}"#)
        .file(PATHS[1], r#"{"model": "two", "permissions": {"deny": ["Write"]}}"#);
    let settings = load_settings(&world, &[], &[]).expect("good");
    assert_eq!(settings.chain.links[0].name, "two");
    assert_eq!(settings.config.permissions.deny, ["WebFetch", "Edit", "Write"]);
}

#[test]
fn drop_ins_are_merged_after_their_managed_file_in_the_order_of_their_names() {
    let deny = |tool: &str| json!({ "model": tool, "permissions": { "deny": [tool] } }).to_string();
    let world = world(r#"{"permissions": {"deny": ["Edit"]}}"#)
        .file("etc/claude-code/managed.d/20-b.json", deny("Write"))
        .file("etc/claude-code/managed.d/10-a.json", deny("Bash"))
        .file("etc/claude-code/managed.d/.hidden.json", "{")
        .file("etc/claude-code/managed.d/README", "{")
        .file(PATHS[1], deny("Read"));
    let settings = load_settings(&world, &[], &[]).expect("good");
    assert_eq!(settings.config.permissions.deny, ["WebFetch", "Edit", "Bash", "Write", "Read"]);
    assert_eq!(settings.chain.links[0].name, "Read");
    let world = world.file("etc/claude-code/managed.d/30-c.json", "{");
    let error = load_settings(&world, &[], &[]).unwrap_err();
    assert!(error.contains("managed.d/30-c.json"), "{error}");
    let world = BinaryFixture::new().file("etc/claude-code/managed.d", "not a folder");
    let error = load_settings(&world, &[], &[]).unwrap_err();
    assert!(error.contains("managed.d"), "{error}");
}

#[test]
fn managed_settings_can_disable_bypass_mode() {
    let world = world(r#"{"permissions": {"disableBypassPermissionsMode": "disable"}}"#);
    let error = load_settings(&world, &["--dangerously-skip-permissions"], &[]).unwrap_err();
    assert!(error.contains("forbid bypassPermissions"), "{error}");
    load_settings(&world, &[], &[]).expect("it is not requested");
    let error =
        load_settings(&world_that_disables("Disable"), &["--dangerously-skip-permissions"], &[]);
    assert!(error.is_err_and(|error| error.contains("forbid bypassPermissions")));
    for word in ["disabled", "enable", "true", ""] {
        let world = world_that_disables(word);
        let error = load_settings(&world, &[], &[]).expect_err(word);
        assert!(error.contains("disableBypassPermissionsMode"), "{error}");
        assert!(error.contains("takes \"disable\";"), "{error}");
    }
}

fn world_that_disables(word: &str) -> BinaryFixture {
    world(&json!({ "permissions": { "disableBypassPermissionsMode": word } }).to_string())
}

#[test]
fn managed_settings_can_allow_only_managed_hooks_and_permissions() {
    let hook = r#""hooks": {"Stop": [{"hooks": [{"type": "command", "command": "theirs"}]}]}"#;
    let hooks = |managed: String, flags: &[&str]| {
        let hooks = load_settings(&world(&managed), flags, &[]).expect("good").hooks;
        hooks.iter().map(|hook| hook.command.line()).collect::<Vec<_>>()
    };
    let off = ["--settings", r#"{"disableAllHooks": true}"#];
    assert_eq!(hooks(format!("{{{hook}}}"), &[]), ["user", "theirs"]);
    assert_eq!(hooks(format!("{{{hook}}}"), &off), ["theirs"], "managed hooks stay enabled");
    let like = format!("{{{hook}, \"disableAllHooks\": true}}");
    let kept = hooks(format!("{{{hook}}}"), &["--settings", &like]);
    assert_eq!(kept, ["theirs"], "not even by repeating it");
    assert_eq!(hooks(format!("{{{hook}, \"allowManagedHooksOnly\": true}}"), &[]), ["theirs"]);
    assert_eq!(hooks(format!("{{{hook}, \"disableAllHooks\": true}}"), &[]), [""; 0]);

    let rules = r#"{"allowManagedPermissionRulesOnly": true, "permissions": {"allow": ["Read"]}}"#;
    let settings = load_settings(&world(rules), &["--allowedTools=Write"], &[]).expect("good");
    assert_eq!(settings.config.permissions.allow, ["Read"]);
    assert_eq!(settings.config.permissions.deny, ["WebFetch"], "every source may add denials");
    let own = BinaryFixture::new().file(
        "home/.outlast/settings.json",
        r#"{"allowManagedPermissionRulesOnly": true, "permissions": {"allow": ["Read"]}}"#,
    );
    assert_eq!(load_settings(&own, &[], &[]).expect("good").config.permissions.allow, ["Read"]);
}

#[test]
fn a_broken_managed_file_stops_every_run_and_a_missing_one_does_not() {
    let error =
        load_settings(&world("{\n  \"model\": }"), &["--setting-sources="], &[]).unwrap_err();
    assert!(error.contains("managed.json:2:12: not valid JSON"), "{error}");
    load_settings(&BinaryFixture::new(), &[], &[]).expect("there is none");
    // A disk that is not mounted may hold rules that deny.
    let places = [PATHS[0], "etc/claude-code/managed.d/a.json", "etc/claude-code/managed.d", "etc"];
    for place in places {
        let world = BinaryFixture::new();
        let link = world.work().join("..").join(place);
        fs::create_dir_all(link.parent().expect("a folder")).expect("a new folder");
        symlink("not-mounted/file", &link).expect("a link");
        let error = load_settings(&world, &[], &[]).expect_err(place);
        assert!(error.contains(place), "{error}");
        assert!(error.contains("is a symbolic link to what does not exist"), "{error}");
    }
}

#[test]
fn what_managed_settings_outrank_is_not_even_checked() {
    let world = world(r#"{"maxRetries": 2, "prices": {"m": {"input": 1, "output": 2}}}"#);
    let variables = [("CLAUDE_CODE_MAX_RETRIES", "many")];
    let settings = load_settings(&world, &["--price", "junk"], &variables).expect("settings");
    assert_eq!(settings.config.limits.budgets.retries, 2);
    assert!(!settings.variables.contains_key(std::ffi::OsStr::new(variables[0].0)));
}
