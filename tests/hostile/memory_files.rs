//! Instructions of strangers: files of other users, in folders where anyone may leave some.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use nix::unistd::Uid;
use outlast::rehearsal::Scenario;
use serde_json::json;

use crate::support::scratch::write_file;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// A user who is neither root nor the one who runs the tests.
const STRANGER: u32 = 54_321;

fn plant(folder: &Path, name: &str, text: &str) {
    write_file(&folder.join(name), text);
}

fn give(folder: &Path, name: &str) {
    chown(folder.join(name), Some(STRANGER), None).expect("root may");
}

/// Files of a stranger, each with a word of its own, and one way of each kind by which they could
/// be found.
const THEIRS: &[(&str, &str)] = &[
    ("CLAUDE.md", "OBEY-above"),
    ("AGENTS.md", "OBEY-above-too"),
    (".claude/CLAUDE.md", "OBEY-above-within"),
    (".claude/rules/a.md", "OBEY-rule-above"),
    ("work/AGENTS.md", "OBEY-beside"),
    ("work/CLAUDE.local.md", "OBEY-local"),
    ("work/.claude/rules/b.md", "OBEY-rule"),
    ("work/.claude/rules/c.md", "---\npaths: OBEY-pattern\n---\nx"),
    ("work/imported.md", "OBEY-import"),
    ("linked.md", "OBEY-link"),
    ("work/sub/CLAUDE.md", "OBEY-below"),
    ("work/.claude/agents/a.md", "---\nname: a\ndescription: OBEY-agent\n---\nx"),
    ("work/.claude/skills/s/SKILL.md", "---\nname: s\ndescription: OBEY-skill\n---\nx"),
    ("work/.claude/commands/c.md", "---\ndescription: OBEY-command\n---\nOBEY-called"),
];

/// Everything that a run said and sent.
async fn run_in(arrange: impl FnOnce(&Path), trusts: bool) -> (FinishedProcess, String) {
    let scenario = Scenario::new().tool("Read", json!({ "file_path": "sub/file" })).reply("Done.");
    let server = serve(scenario);
    let trial = RunBuilder::against(&server);
    let top = trial.work().parent().expect("it has one").to_owned();
    let trial = trial.env("HOME", &top.join("home").display().to_string());
    plant(&top, "work/.git/HEAD", "ref: refs/heads/main\n");
    plant(&top, "work/CLAUDE.md", "MINE-here @imported.md @own.md");
    plant(&top, "work/own.md", "MINE-import");
    plant(&top, "work/sub/file", "text");
    arrange(&top);
    let flags = ["--output-format", "stream-json", "--verbose", "--trust-project"];
    let ended = trial.args(&flags[..3 + usize::from(trusts)]).args(["do it"]).run().await;
    let sent: Vec<String> =
        server.requests().iter().map(|request| request.body.to_string()).collect();
    (ended, sent.join("\n"))
}

#[tokio::test]
async fn files_of_strangers_instruct_no_run() {
    if !Uid::effective().is_root() {
        return;
    }
    let (ended, sent) = run_in(
        |top| {
            // As in /tmp: every user may add files.
            fs::set_permissions(top, fs::Permissions::from_mode(0o1777)).expect("it is ours");
            for (name, text) in THEIRS {
                plant(top, name, text);
                give(top, name);
            }
            symlink(top.join("linked.md"), top.join("work/.claude/CLAUDE.md")).expect("a link");
        },
        true,
    )
    .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let found: Vec<&str> = sent.split("OBEY-").skip(1).map(|rest| &rest[..20]).collect();
    assert!(found.is_empty(), "{found:?}");
    for frame in ended.frames().iter().filter(|frame| frame["subtype"] == "init") {
        assert!(!frame.to_string().contains("OBEY-"), "{frame}");
    }
    for own in ["MINE-here", "MINE-import"] {
        assert!(sent.contains(own), "{own}: {sent}");
    }
    let told = format!("belongs to another user (uid {STRANGER})");
    for name in ["AGENTS.md", "CLAUDE.local.md", "imported.md", "agents/a.md", "s/SKILL.md"] {
        let line = |line: &&str| line.contains(name) && line.contains(&told);
        assert!(ended.stderr.lines().any(|text| line(&text)), "{name}: {}", ended.stderr);
    }
}

/// The owner of a folder can put any file of the user there, by its old name or another.
#[tokio::test]
async fn folders_of_strangers_instruct_no_run() {
    if !Uid::effective().is_root() {
        return;
    }
    let (ended, sent) = run_in(
        |top| {
            plant(top, "work/sub/AGENTS.md", "OBEY-below");
            plant(top, "work/.claude/CLAUDE.md", "OBEY-within");
            plant(top, "work/.claude/rules/a.md", "OBEY-rule");
            plant(top, "CLAUDE.md", "OBEY-above");
            for name in ["work/sub", "work/.claude", "work/.claude/rules", "."] {
                give(top, name);
            }
        },
        true,
    )
    .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!sent.contains("OBEY-"), "{sent}");
    assert!(sent.contains("MINE-here"), "{sent}");
}

/// A container often runs as root in a checkout of another user.
#[tokio::test]
async fn root_follows_the_instructions_of_the_checkout_it_was_started_in() {
    if !Uid::effective().is_root() {
        return;
    }
    let (ended, sent) = run_in(
        |top| {
            plant(top, "work/sub/AGENTS.md", "MINE-below");
            plant(top, "CLAUDE.md", "MINE-above");
            for name in ["work/CLAUDE.md", "work/own.md", "work/sub", "work/sub/AGENTS.md", "work"]
            {
                give(top, name);
            }
        },
        false,
    )
    .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for own in ["MINE-here", "MINE-import", "MINE-below", "MINE-above"] {
        assert!(sent.contains(own), "{own}: {sent}");
    }
}

/// A run that trusts the settings of the repository ends before it begins; others leave them out.
#[tokio::test]
async fn settings_of_strangers_are_not_used() {
    if !Uid::effective().is_root() {
        return;
    }
    for (name, text, code) in [
        ("work/.claude/settings.json", r#"{"permissions": {"defaultMode": "plan"}}"#, 2),
        ("work/.claude/settings.local.json", r#"{"permissions": {"defaultMode": "plan"}}"#, 2),
        ("work/.mcp.json", r#"{"mcpServers": {"theirs": {"command": "true"}}}"#, 0),
    ] {
        let arrange = |top: &Path| {
            plant(top, name, text);
            give(top, name);
        };
        let (ended, _) = run_in(arrange, false).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let frames = ended.frames();
        assert_ne!(frames[0]["permissionMode"], "plan", "{name}: {}", frames[0]);
        assert!(
            frames[0]["ignored_settings"].to_string().contains("another user"),
            "{}",
            frames[0]
        );
        let (ended, sent) = run_in(arrange, true).await;
        assert_eq!((ended.code, sent.is_empty()), (Some(code), code == 2), "{name}: {ended:?}");
        assert!(ended.stderr.contains("belongs to another user"), "{ended:?}");
    }
}
