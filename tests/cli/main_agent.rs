//! `--agents`, `--agent`, and what becomes of a run that is an agent.

use std::collections::BTreeMap;
use std::ffi::OsString;

use outlast::cli::args::{self, CliRequest};
use outlast::cli::settings::{self, Settings};
use outlast::journal::Terms;

use super::binary_fixture::BinaryFixture;

const REVIEWER: &str = r#"{"reviewer": {"description": "Looks", "prompt": "You look.",
    "tools": ["Read", "Grep", "LSP", "mcp__known"], "model": "opus",
    "disallowedTools": "Bash(rm *)", /* and */ },}"#;

fn resolve(world: &BinaryFixture, flags: &[&str]) -> Result<Settings, String> {
    let words: Vec<String> = ["hi"].iter().chain(flags).map(ToString::to_string).collect();
    let CliRequest::Run(args) = args::parse(&words).map_err(|error| error.to_string())? else {
        panic!("a run");
    };
    let variables: BTreeMap<OsString, OsString> = BTreeMap::from([
        ("HOME".into(), world.home().into()),
        ("ANTHROPIC_API_KEY".into(), "a-key".into()),
        ("ANTHROPIC_MODEL".into(), "haiku".into()),
    ]);
    settings::resolve(&args, variables, world.work(), &Terms::default())
        .map_err(|error| error.to_string())
}

#[test]
fn flags_outrank_the_agent_definition_of_a_run() {
    let servers = "\u{feff}// two\n{\"mcpServers\": {\"known\": {\"command\": \"x\"}, \"other\": {\"command\": \"x\"},}}";
    let world = BinaryFixture::new();
    let settings = "\u{feff} // ci\n{\"maxTurns\": 7,}";
    let flags = [
        "--settings",
        settings,
        "--agents",
        REVIEWER,
        "--agent",
        "reviewer",
        "--mcp-config",
        servers,
    ];
    let settings = resolve(&world, &flags).expect("it is one");
    assert_eq!(settings.system.role.as_deref(), Some("You look."));
    assert_eq!(settings.config.limits.budgets.turns, Some(7));
    assert_eq!(settings.tools.only, Some(vec!["Read".to_owned(), "Grep".to_owned()]));
    assert_eq!(settings.config.permissions.deny, ["Bash(rm *)", "mcp__other__*"]);
    assert_eq!(
        settings.chain.links[0].name,
        resolve(&world, &["--model=opus"]).unwrap().chain.links[0].name
    );
    assert_eq!(settings.agents.len(), 1);

    let flags = [&flags[..6], &["--model=sonnet", "--tools=Bash"]].concat();
    let settings = resolve(&world, &flags).expect("flags say otherwise");
    assert_eq!(settings.tools.only, Some(vec!["Bash".to_owned()]));
    assert_eq!(
        settings.chain.links[0].name,
        resolve(&world, &["--model=sonnet"]).unwrap().chain.links[0].name
    );
}

#[test]
fn patterns_in_the_tools_of_the_run_s_agent_limit_it_unless_flags_choose_tools() {
    let world = BinaryFixture::new();
    let agents = r#"{"lead": {"description": "x", "prompt": "y", "tools": "Read, Bash(git *)"}}"#;
    let flags = ["--agents", agents, "--agent", "lead", "--tools=Bash"];
    let settings = resolve(&world, &flags[..4]).expect("it is one");
    assert_eq!(settings.tools.only, Some(vec!["Read".to_owned(), "Bash".to_owned()]));
    assert_eq!(settings.tools.limits, [["Read", "Bash(git *)"]]);
    assert!(settings.config.permissions.allow.is_empty(), "they grant nothing");
    let settings = resolve(&world, &flags).expect("flags say otherwise");
    assert!(settings.tools.limits.is_empty());
}

#[test]
fn the_setting_agent_is_the_user_s_to_say_and_flags_outrank_files() {
    let file = |prompt: &str| format!("---\nname: reviewer\ndescription: d\n---\n{prompt}");
    let role = |world: &BinaryFixture, flags: &[&str]| {
        resolve(world, flags).expect("it is right").system.role
    };
    let world = BinaryFixture::new()
        .file("home/.claude/agents/r.md", file("user"))
        .file("home/.outlast/settings.json", r#"{"agent": "reviewer"}"#);
    assert_eq!(role(&world, &[]).as_deref(), Some("user"));
    assert_eq!(role(&world, &["--agents", REVIEWER]).as_deref(), Some("You look."));
    assert!(resolve(&world, &["--setting-sources="]).expect("nothing").agents.is_empty());
    let world = BinaryFixture::new()
        .file("work/.claude/agents/r.md", file("project"))
        .file("work/.claude/settings.json", r#"{"agent": "reviewer"}"#);
    assert_eq!(role(&world, &[]), None);
    assert_eq!(role(&world, &["--agent=reviewer"]).as_deref(), Some("project"));
    assert_eq!(role(&world, &["--trust-project"]).as_deref(), Some("project"));
    assert_eq!(role(&world, &["--agent=general-purpose"]), None, "it is built in");
}

#[test]
fn mistakes_in_agents_are_reported_before_the_run_starts() {
    let world =
        BinaryFixture::new().file("work/agents.json", b"{\n \"a\": }\n").file("work/bad", b"\xff");
    let rows: [(&[&str], &str); 11] = [
        (&["--agents", "{\"a\": "], "--agents:1:6: not an object of agents"),
        (&["--agents", "[]"], "not an object of agents: invalid type: sequence"),
        (&["--agents", "{\"a\": 1}"], "--agents: \"a\" is not an object"),
        (&["--agents", "{\"a\": {\"prompt\": \"p\"}}"], "\"a\" needs a text \"description\""),
        (&["--agents", "{\"a\": {\"description\": \"d\"}}"], "\"a\" needs a text \"prompt\""),
        (&["--agents", "{\" \": {\"description\": \"d\", \"prompt\": \"p\"}}"], "is not a name"),
        (
            &["--agents", "{\"a\": {\"description\": \"d\", \"prompt\": \"p\", \"maxTurns\": 0}}"],
            "maxTurns makes no sense",
        ),
        (&["--agents", "/no/such/file"], "--agents /no/such/file: cannot be read"),
        (&["--agents", REVIEWER, "--agent", "reviewr"], "the nearest is \"reviewer\""),
        (&["--agent", "reviewer"], "--agent: there is no agent \"reviewer\""),
        (
            &[
                "--agent=x",
                "--agents",
                "{\"x\": {\"description\": \"d\", \"prompt\": \"p\", \"tools\": \"Telepathy\"}}",
            ],
            "has no tool that there is (Telepathy)",
        ),
    ];
    for (flags, expected) in rows {
        let error = resolve(&world, flags).expect_err(expected);
        assert!(error.contains(expected), "{expected:?} in {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let file = world.work().join("agents.json").display().to_string();
    let error = resolve(&world, &["--agents", &file]).expect_err("a mistake");
    assert!(error.contains(&format!("{file}:2:7: ")), "{error}");
    let file = world.work().join("bad").display().to_string();
    assert!(
        resolve(&world, &["--agents", &file]).expect_err("no text").contains("not valid UTF-8")
    );
}

#[test]
fn an_effort_that_is_a_number_has_no_effect() {
    let world = BinaryFixture::new();
    let agents = r#"{"a": {"description": "d", "prompt": "p", "effort": 3}}"#;
    let settings = resolve(&world, &["--agents", agents]).expect("a warning");
    assert_eq!(settings.agents[0].effort, None);
    let warnings = settings.warnings.join("\n");
    assert!(warnings.contains("\"a\": effort: only names of levels"), "{warnings}");
    assert!(resolve(&world, &["--agents", &agents.replace('3', "\"x\"")]).is_err());
}

#[test]
fn skills_that_rules_deny_are_neither_listed_nor_preloaded() {
    let skill = |name: &str| format!("---\ndescription: for {name}\n---\nBODY-{name}");
    let agent = "---\nname: a\ndescription: d\nskills: pdf, art\n---\np";
    let world = || {
        BinaryFixture::new()
            .file("home/.claude/skills/pdf/SKILL.md", skill("pdf"))
            .file("home/.claude/skills/art/SKILL.md", skill("art"))
            .file("home/.claude/agents/a.md", agent)
    };
    let listed = |world: &BinaryFixture, flags: &[&str]| {
        let settings = resolve(world, flags).expect("it is right");
        let names: Vec<String> = settings.library.skills().map(|it| it.name.clone()).collect();
        (names.join(" "), settings.agents[0].prompt.contains("BODY-pdf"))
    };
    let world_of = |file: &str| {
        world().file("work/.claude/settings.json", file).file("home/.outlast/settings.json", file)
    };
    assert_eq!(listed(&world(), &[]), ("art pdf".to_owned(), true));
    assert_eq!(listed(&world(), &["--disallowedTools", "Skill(pdf)"]), ("art".to_owned(), false));
    assert_eq!(listed(&world(), &["--disallowedTools", "Skill"]), (String::new(), false));
    let rule = r#"{"permissions": {"deny": ["Skill(pdf *)"]}}"#;
    assert_eq!(listed(&world_of(rule), &[]), ("art".to_owned(), false));
    let agents = r#"{"a": {"description": "d", "prompt": "p", "disallowedTools": "Skill(art)"}}"#;
    let (names, _) = listed(&world(), &["--agents", agents, "--agent", "a"]);
    assert_eq!(names, "pdf");
}

#[test]
fn an_agent_s_turn_limit_and_mode_apply_unless_overridden() {
    let agents = |mode: &str| {
        format!(r#"{{"a": {{"description": "d", "prompt": "p", "maxTurns": 4{mode}}}}}"#)
    };
    let plan = agents(r#", "permissionMode": "plan""#);
    let found = |world: &BinaryFixture, more: &[&str]| {
        let settings = resolve(world, &[&["--agent=a"], more].concat()).expect("it is right");
        (settings.config.limits.budgets.turns, settings.config.permissions.mode.name())
    };
    let world = BinaryFixture::new();
    assert_eq!(found(&world, &["--agents", &plan]), (Some(4), "plan"));
    let flags = ["--agents", &plan, "--max-turns=9", "--permission-mode=acceptEdits"];
    assert_eq!(found(&world, &flags), (Some(9), "acceptEdits"));
    let flags = ["--agents", &plan, "--dangerously-skip-permissions"];
    assert_eq!(found(&world, &flags), (Some(4), "bypassPermissions"));
    let settings = r#"{"maxTurns": 2, "permissions": {"defaultMode": "acceptEdits"}}"#;
    let world = BinaryFixture::new().file("home/.outlast/settings.json", settings);
    assert_eq!(found(&world, &["--agents", &plan]), (Some(2), "plan"));
    assert_eq!(found(&world, &["--agents", &agents("")]), (Some(2), "acceptEdits"));
    let file =
        "---\nname: a\ndescription: d\nmaxTurns: 4\npermissionMode: bypassPermissions\n---\np";
    let world = BinaryFixture::new().file("work/.claude/agents/a.md", file);
    assert_eq!(found(&world, &[]), (Some(4), "default"), "the project is not trusted");
    assert_eq!(found(&world, &["--trust-project"]), (Some(4), "bypassPermissions"));
}
