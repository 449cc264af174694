//! Commands about the set-up of a run.

use std::io;

use super::binary_fixture::BinaryFixture;

/// A repository with an agent whose description is meant for a terminal.
fn repository() -> BinaryFixture {
    let agent = "---\nname: judge\ndescription: \"\\e[8mjudges\\nother: forged\"\n---\nYou judge.";
    BinaryFixture::new().file("work/.claude/agents/judge.md", agent)
}

#[test]
fn descriptions_of_agents_are_one_line_without_control_characters() {
    let ended = repository().run(&["agents"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "judge:  [8mjudges other: forged\n"));
}

#[test]
fn a_closed_pipe_is_no_error_of_a_list() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let world = repository();
    for args in [&["agents"][..], &["config", "--changed"]] {
        let writer = writer.try_clone().expect("the pipe is ours");
        let ended = world.command(args).stdout(writer).output().expect("outlast starts");
        assert!(ended.status.success() && ended.stderr.is_empty(), "{args:?}: {ended:?}");
    }
}

#[test]
fn unknown_options_of_lists_are_refused() {
    let world = BinaryFixture::new();
    for (args, unknown) in [
        (&["agents", "--jsn"][..], "unknown option --jsn; this command takes --json"),
        (&["plugin", "list", "--text"], "unknown option --text; this command takes --json"),
        (
            &["auth", "status", "--all"],
            "unknown option --all; this command takes --json and --text",
        ),
    ] {
        let ended = world.run(args);
        assert_eq!(ended.code, 2, "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(unknown), "{args:?}: {}", ended.stderr);
    }
    let status = world.run(&["auth", "status", "--json"]);
    assert!(status.code == 0 && status.stdout.contains("\"loggedIn\":true"), "{status:?}");
}

#[test]
fn a_server_that_does_not_count_is_named_with_the_reason() {
    let servers = r#"{"mcpServers": {"files": {"command": "files"}}}"#;
    let world = BinaryFixture::new().file("work/.mcp.json", servers);
    for (args, code) in [(&["mcp", "list"][..], 0), (&["mcp", "login", "files"], 2)] {
        let ended = world.run(args);
        assert_eq!(ended.code, code, "{args:?}: {ended:?}");
        let reason = "warning: ignored settings of this repository: .mcp.json (mcpServers.files); \
                      --trust-project lets them count";
        assert!(ended.stderr.contains(reason), "{args:?}: {}", ended.stderr);
    }
    let trusted = world.run(&["mcp", "list", "--", "--trust-project"]);
    assert!(trusted.stdout.starts_with("files:") && trusted.stderr.is_empty(), "{trusted:?}");
}

#[test]
fn the_help_of_a_list_names_its_only_action() {
    let world = BinaryFixture::new();
    for (subject, action) in [("plugin", "list"), ("agents", "list"), ("auth", "status")] {
        let help = world.run(&[subject, "--help"]);
        let wanted = format!("Action: {action} (the default)");
        assert!(help.code == 0 && help.stdout.contains(&wanted), "{wanted}: {help:?}");
        assert_ne!(world.run(&[subject, action]).code, 2, "{subject} {action}");
    }
}

#[test]
fn commands_about_servers_explain_themselves_and_name_what_is_meant() {
    let world = BinaryFixture::new();
    let help = world.run(&["mcp", "login", "--help"]);
    for wanted in
        ["in a browser", "<NAME>", "--device", "--wait <TIME>", "as in 15m", "--mcp-config"]
    {
        assert!(help.code == 0 && help.stdout.contains(wanted), "{wanted}: {help:?}");
    }
    for (args, wanted) in [
        (&["mcp", "lgoin", "x"][..], "did you mean outlast mcp login?"),
        (&["mcp", "add", "--transport", "http", "x"], "in .mcp.json"),
        (&["mcp", "list", "--json"], "--json"),
        (&["mcp", "login"], "NAME"),
        (&["mcp", "login", "x", "--wait", "soon"], "--wait"),
    ] {
        let ended = world.run(args);
        assert_eq!(ended.code, 2, "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(wanted), "{args:?}: {}", ended.stderr);
    }
}
