//! Permits: what changes between the check of a call and its start adds nothing to it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use outlast::process::LandlockSupport;
use outlast::tools::{
    GrantSource, PermissionMode, PermissionUpdate, Permit, ToolOutcome, ToolSettings,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, assert_fails_with, call, text};

/// Two files, and a link to the first.
fn bench(arrange: impl FnOnce(&mut ToolSettings)) -> Bench {
    let bench = Bench::with(arrange);
    bench.file("first", "the first");
    bench.file("second", "the second");
    symlink("first", bench.cwd.join("link")).expect("a new link");
    bench
}

/// Makes the link lead to the second file.
fn swap(cwd: &Path) {
    fs::remove_file(cwd.join("link")).expect("it exists");
    symlink("second", cwd.join("link")).expect("a new link");
}

fn permit(bench: &Bench, name: &str, input: Value) -> Permit {
    let prepared = bench.toolbox.prepare(call(name, input));
    bench.toolbox.authorize(&prepared, GrantSource::Rules).expect("it is allowed")
}

async fn run(bench: &Bench, permit: Permit) -> ToolOutcome {
    bench.toolbox.run(permit, CancellationToken::new()).await
}

#[tokio::test]
async fn a_path_that_leads_elsewhere_since_the_check_is_not_followed() {
    let bench = bench(|settings| settings.permissions.mode = PermissionMode::BypassPermissions);
    bench.read("link").await;
    for (name, input) in [
        ("Read", json!({ "file_path": "link" })),
        ("Write", json!({ "file_path": "link", "content": "new" })),
        ("Edit", json!({ "file_path": "link", "old_string": "the", "new_string": "a" })),
        ("Grep", json!({ "pattern": "the", "path": "link" })),
    ] {
        let permit = permit(&bench, name, input);
        swap(&bench.cwd);
        assert_fails_with(&run(&bench, permit).await, "has led elsewhere");
        fs::remove_file(bench.cwd.join("link")).expect("it exists");
        symlink("first", bench.cwd.join("link")).expect("a new link");
    }
    let contents = ["first", "second"].map(|name| bench.content(name));
    assert_eq!(contents, ["the first", "the second"]);
}

#[tokio::test]
async fn a_command_without_a_rule_gets_no_file_that_was_not_checked() {
    if !LandlockSupport::probe().restricts_files() {
        return;
    }
    let bench = bench(|settings| settings.permissions.mode = PermissionMode::Default);
    let kept = permit(&bench, "Bash", json!({ "command": "cat link" }));
    assert_eq!(text(&run(&bench, kept).await), "the first");
    let swapped = permit(&bench, "Bash", json!({ "command": "cat link" }));
    swap(&bench.cwd);
    assert_fails_with(&run(&bench, swapped).await, "has led elsewhere");
}

#[tokio::test]
async fn a_command_with_a_rule_runs_unless_a_deny_rule_covers_the_new_target() {
    for (deny, runs) in [(Vec::new(), true), (vec!["Read(./second)".to_owned()], false)] {
        let bench = bench(|settings| {
            settings.permissions.allow = vec!["Bash(cat *)".to_owned()];
            settings.permissions.deny = deny;
        });
        let permit = permit(&bench, "Bash", json!({ "command": "cat link" }));
        swap(&bench.cwd);
        let outcome = run(&bench, permit).await;
        assert_eq!(outcome.is_error, !runs, "{outcome:?}");
        assert_eq!(text(&outcome).contains("the second"), runs, "{outcome:?}");
        assert_eq!(outcome.denied.is_some(), !runs, "{outcome:?}");
    }
}

/// Adds a deny rule, as a host does.
fn deny(bench: &Bench, tool: &str, content: &str) {
    let rule = json!({ "toolName": tool, "ruleContent": content });
    let update = json!({ "type": "addRules", "rules": [rule], "behavior": "deny" });
    let update: PermissionUpdate = serde_json::from_value(update).expect("an update");
    bench.toolbox.update_permissions(&update).expect("a valid rule");
}

#[tokio::test]
async fn rules_that_the_host_adds_apply_to_searches_and_to_the_home_folder() {
    let bench = bench(|settings| settings.permissions.mode = PermissionMode::Default);
    deny(&bench, "Read", "./first");
    let searches = [
        ("Grep", json!({ "pattern": "the" })),
        ("Glob", json!({ "pattern": "*" })),
        ("Bash", json!({ "command": "grep -r the . 2> /dev/null" })),
    ];
    let confined = LandlockSupport::probe().restricts_files();
    for (name, input) in searches.into_iter().filter(|(name, _)| confined || *name != "Bash") {
        let found = text(&run(&bench, permit(&bench, name, input)).await);
        assert!(found.contains("second") && !found.contains("first"), "{name}: {found}");
    }
}

#[test]
fn a_rule_that_the_host_adds_may_name_the_home_folder() {
    let bench = bench(|settings| settings.permissions.mode = PermissionMode::BypassPermissions);
    let read = call("Read", json!({ "file_path": "~/kept/a" }));
    assert!(bench.toolbox.admit(&read).is_ok());
    deny(&bench, "Read", "~/kept/**");
    assert!(bench.toolbox.admit(&read).is_err());
}

#[tokio::test]
async fn a_rule_that_the_host_adds_after_the_check_applies() {
    let bench = bench(|settings| settings.permissions.mode = PermissionMode::BypassPermissions);
    let permits =
        ["first", "second"].map(|name| permit(&bench, "Read", json!({ "file_path": name })));
    deny(&bench, "Read", "./first");
    let [first, second] = permits;
    let first = run(&bench, first).await;
    assert!(first.denied.is_some_and(|why| why.contains("denied")), "{:?}", first.content);
    assert_eq!(text(&run(&bench, second).await), "     1\tthe second");
}

#[tokio::test]
async fn a_folder_that_the_host_adds_is_a_working_folder_until_it_is_removed() {
    let bench = bench(|settings| settings.permissions.mode = PermissionMode::Default);
    let outside = tempfile::tempdir().expect("a temporary folder");
    fs::write(outside.path().join("file"), "text").expect("a file");
    let read = |name: &str| call("Read", json!({ "file_path": outside.path().join(name) }));
    let search = call("Glob", json!({ "pattern": outside.path().join("*") }));
    let cat = call("Bash", json!({ "command": format!("cat {}/file", outside.path().display()) }));
    let before = permit(&bench, "Read", json!({ "file_path": "first" }));
    let change = |kind: &str, folder: &Path| {
        let update = json!({ "type": kind, "directories": [folder], "destination": "session" });
        bench.toolbox.update_permissions(&serde_json::from_value(update).expect("an update"))
    };
    let calls = [&read("file"), &search, &cat];
    let admitted = || calls.map(|call| bench.toolbox.admit(call).is_ok());
    assert_eq!(admitted(), [false; 3]);
    let missing = outside.path().join("missing");
    assert!(change("addDirectories", &missing).is_err(), "it does not exist");
    change("addDirectories", outside.path()).expect("a folder");
    assert_eq!(admitted(), [true; 3]);
    assert!(!run(&bench, before).await.is_error, "its path is the same");
    assert!(change("removeDirectories", &bench.cwd).is_err(), "the host did not add it");
    change("removeDirectories", outside.path()).expect("it was added");
    assert_eq!(admitted(), [false; 3]);
}

/// No permission is missing: the command would fail.
#[test]
fn a_command_in_a_missing_folder_is_a_failure_and_not_a_denial() {
    for (mode, command) in [
        (PermissionMode::Default, "cd nowhere && make x && cd .."),
        (PermissionMode::AcceptEdits, "cd nowhere && touch x"),
    ] {
        let bench = bench(|settings| {
            settings.permissions.mode = mode;
            settings.permissions.allow = vec!["Bash(make *)".to_owned()];
        });
        let refusal = bench.toolbox.admit(&call("Bash", json!({ "command": command })));
        let outcome = refusal.expect_err("it is not run").into_outcome();
        assert!(text(&outcome).contains("there is no folder "), "{outcome:?}");
        assert!(outcome.denied.is_none(), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_call_that_the_run_performs_does_not_run_in_a_toolbox() {
    let bench = bench(|settings| settings.permissions.mode = PermissionMode::BypassPermissions);
    let permit = permit(&bench, "ToolSearch", json!({ "query": "mail" }));
    assert!(permit.delegated().is_some());
    assert_fails_with(&run(&bench, permit).await, "nothing can be searched here");
}
