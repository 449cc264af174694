//! Managed settings: whoever keeps the machine has the last word.

use std::path::PathBuf;

use outlast::cli::args::{self, Request};
use outlast::cli::settings::{self, Settings, Survey};

use super::binary::World;

const PATHS: [&str; 2] = ["etc/claude-code/managed.json", "etc/outlast/managed.json"];

fn with(world: &World, flags: &[&str], variables: &[(&str, &str)]) -> Result<Settings, String> {
    let words: Vec<String> = ["hi"].iter().chain(flags).map(ToString::to_string).collect();
    let Request::Run(args) = args::parse(&words).map_err(|error| error.to_string())? else {
        panic!("a run");
    };
    let variables = environment(world, variables);
    settings::resolve_under(&managed(world), &args, variables, world.work())
        .map_err(|error| error.to_string())
}

fn managed(world: &World) -> Vec<PathBuf> {
    PATHS.map(|path| world.work().join("..").join(path)).to_vec()
}

fn environment(world: &World, more: &[(&str, &str)]) -> outlast::secrets::Variables {
    let home = world.home().display().to_string();
    let own = [("HOME", home.as_str()), ("ANTHROPIC_API_KEY", "a-key")];
    own.iter().chain(more).map(|(name, value)| (name.into(), value.into())).collect()
}

fn survey(world: &World, flags: &[&str], variables: &[(&str, &str)]) -> Survey {
    let words: Vec<String> = flags.iter().map(ToString::to_string).collect();
    let (args, given) = args::run_flags(&words).expect("flags");
    let variables = environment(world, variables);
    settings::survey_under(&managed(world), &args, &given, &variables, &world.work())
}

/// A machine whose keeper says this, and whose user says something else.
fn world(managed: &str) -> World {
    let user = r#"{"model": "users", "maxTurns": 1, "permissions": {"allow": ["Bash"],
        "deny": ["WebFetch"]}, "hooks": {"Stop": [{"hooks": [{"type": "command",
        "command": "user"}]}]}}"#;
    World::new().file("home/.outlast/settings.json", user).file(PATHS[0], managed)
}

#[test]
fn flags_variables_and_files_yield_to_them() {
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
    let settings = with(&world, &flags, &variables).expect("they agree");
    assert_eq!(settings.chain.links[0].name, "theirs");
    assert_eq!(settings.limits.budgets.turns, Some(9));
    assert!(settings.auto_compact);
    assert_eq!(settings.endpoint.whole.as_secs(), 7);
    assert_eq!(settings.tools.mode.name(), "plan");
    assert_eq!(settings.tools.sandbox.mode, outlast::tools::SandboxMode::Workspace);
    assert_eq!(settings.thinking, Some(4096));
    assert_eq!(settings.limits.budgets.retries, 4, "they say nothing of this");
    assert_eq!(settings.tools.deny, ["WebFetch", "Write"], "lists are joined");

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
    assert!(survey.files.iter().any(|file| file.path.ends_with(PATHS[0])), "{:?}", survey.files);
}

#[test]
fn the_later_file_outranks_the_earlier_and_lists_are_joined() {
    let world = world(r#"{"model": "one", "permissions": {"deny": ["Edit"]}}"#)
        .file(PATHS[1], r#"{"model": "two", "permissions": {"deny": ["Write"]}}"#);
    let settings = with(&world, &[], &[]).expect("good");
    assert_eq!(settings.chain.links[0].name, "two");
    assert_eq!(settings.tools.deny, ["WebFetch", "Edit", "Write"]);
}

#[test]
fn bypass_can_be_forbidden_for_the_whole_machine() {
    let world = world(r#"{"permissions": {"disableBypassPermissionsMode": "disable"}}"#);
    let error = with(&world, &["--dangerously-skip-permissions"], &[]).unwrap_err();
    assert!(error.contains("forbid bypassPermissions"), "{error}");
    with(&world, &[], &[]).expect("nobody asks for it");
}

#[test]
fn hooks_and_leave_may_be_theirs_alone() {
    let hook = r#""hooks": {"Stop": [{"hooks": [{"type": "command", "command": "theirs"}]}]}"#;
    let hooks = |managed: String, flags: &[&str]| {
        let hooks = with(&world(&managed), flags, &[]).expect("good").hooks;
        hooks.iter().map(|hook| hook.command.line()).collect::<Vec<_>>()
    };
    let off = ["--settings", r#"{"disableAllHooks": true}"#];
    assert_eq!(hooks(format!("{{{hook}}}"), &[]), ["user", "theirs"]);
    assert_eq!(hooks(format!("{{{hook}}}"), &off), ["theirs"], "nobody switches these off");
    let like = format!("{{{hook}, \"disableAllHooks\": true}}");
    let kept = hooks(format!("{{{hook}}}"), &["--settings", &like]);
    assert_eq!(kept, ["theirs"], "not even by repeating it");
    assert_eq!(hooks(format!("{{{hook}, \"allowManagedHooksOnly\": true}}"), &[]), ["theirs"]);
    assert_eq!(hooks(format!("{{{hook}, \"disableAllHooks\": true}}"), &[]), [""; 0]);

    let rules = r#"{"allowManagedPermissionRulesOnly": true, "permissions": {"allow": ["Read"]}}"#;
    let settings = with(&world(rules), &["--allowedTools=Write"], &[]).expect("good");
    assert_eq!(settings.tools.allow, ["Read"]);
    assert_eq!(settings.tools.deny, ["WebFetch"], "to forbid more is nobody's privilege");
    let own = World::new().file(
        "home/.outlast/settings.json",
        r#"{"allowManagedPermissionRulesOnly": true, "permissions": {"allow": ["Read"]}}"#,
    );
    assert_eq!(with(&own, &[], &[]).expect("good").tools.allow, ["Read"]);
}

#[test]
fn a_broken_one_stops_every_run_and_a_missing_one_none() {
    let error = with(&world("{\n  \"model\": }"), &["--setting-sources="], &[]).unwrap_err();
    assert!(error.contains("managed.json:2:12: not valid JSON"), "{error}");
    with(&World::new(), &[], &[]).expect("there is none");
}
