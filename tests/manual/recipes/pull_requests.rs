//! Recipes that make a pull request, or comment on one.

use std::fs;
use std::path::Path;
use std::process::Command;

use outlast::process::{LandlockSupport, filters_system_calls};
use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario};
use serde_json::json;

use super::{Recipe, read_work, write_program};
use crate::support::{FinishedProcess, serve};

const FIX: &str = "A fix as a pull request";

const REVIEW: &str = "A review of a stranger's pull request";

/// Knows one pull request, once it was made.
const GH: &str = r#"#!/bin/sh
echo "$*" >>"$HOME/gh.log"
case $2 in
view) test -e "$HOME/offered" ;;
create) test ! -e "$HOME/gh-fails" && touch "$HOME/offered" ;;
esac
"#;

fn git(work: &Path, words: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(words).current_dir(work).env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = git.output().expect("git starts");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A repository in which a test fails, and what the recipe is started with.
fn failing_test(server: &RehearsalServer) -> Recipe {
    let recipe = Recipe::new(FIX, server).program("gh", GH).file("value", "bad\n");
    let work = recipe.run.work();
    write_program(&work.join("test.sh"), "#!/bin/sh\ngrep -q good value\n");
    git(&work, &["init", "--quiet", "--bare", "../origin"]);
    git(&work, &["init", "--quiet", "--initial-branch", "main", "."]);
    for pair in [["user.name", "a"], ["user.email", "a@example.org"]] {
        git(&work, &["config", pair[0], pair[1]]);
    }
    git(&work, &["remote", "add", "origin", "../origin"]);
    git(&work, &["add", "--all"]);
    git(&work, &["commit", "--quiet", "-m", "Begin"]);
    recipe.env("GIT_CONFIG_GLOBAL", "/dev/null")
}

fn start_again(ended: FinishedProcess, server: &RehearsalServer) -> Recipe {
    Recipe::again(FIX, ended, server).env("GIT_CONFIG_GLOBAL", "/dev/null")
}

/// A model that corrects the value, and makes a file.
fn correction() -> Scenario {
    let edit = json!({ "file_path": "value", "old_string": "bad", "new_string": "good" });
    Scenario::new()
        .tool("Read", json!({ "file_path": "value" }))
        .status(529)
        .header("retry-after-ms", "1")
        .tool("Edit", edit)
        .tool("Write", json!({ "file_path": "new", "content": "The model made it.\n" }))
        .reply("The value was bad; it is good now.")
}

/// A service whose answers cost nothing, as it has none.
fn no_service() -> RehearsalServer {
    serve(Scenario::new().status(401).after(AfterLast::RepeatLast))
}

fn gh_log(of: &FinishedProcess) -> String {
    read_work(of, "../gh.log")
}

/// The branch that the recipe makes for the commit that is checked out.
fn branch(of: &FinishedProcess) -> String {
    format!("fix-tests-{}", git(&of.work(), &["rev-parse", "--short", "HEAD"]).trim())
}

/// The checkout is at its commit, without a change.
fn assert_untouched(of: &FinishedProcess) {
    let work = of.work();
    assert_eq!(git(&work, &["branch", "--show-current"]), "main\n");
    assert_eq!(git(&work, &["log", "--format=%s"]), "Begin\n");
    assert_eq!(git(&work, &["status", "--porcelain"]), "");
}

fn assert_refused(of: &FinishedProcess, server: &RehearsalServer) {
    let line = "The checkout has changes: commit, stash or ignore them.\n";
    assert_eq!((of.code, of.stdout.as_str(), of.stderr.as_str()), (Some(1), "", line));
    assert!(server.requests().is_empty(), "{of:?}");
}

/// The fix is at the origin, and offered.
fn assert_offered(of: &FinishedProcess) {
    assert_eq!(of.code, Some(0), "{of:?}");
    let (work, branch) = (of.work(), branch(of));
    for (file, content) in [("value", "good\n"), ("new", "The model made it.\n")] {
        let object = format!("{branch}:{file}");
        assert_eq!(git(&work, &["--git-dir", "../origin", "show", &object]), content, "{file}");
    }
    let message = git(&work, &["--git-dir", "../origin", "log", "-1", "--format=%B", &branch]);
    let answer = "Fix the failing test\n\nThe value was bad; it is good now.";
    assert_eq!(message.trim_end(), answer);
    let created = format!("pr create --fill --head {branch}\n");
    assert!(gh_log(of).contains(&created), "{of:?}");
    assert_untouched(of);
}

#[tokio::test]
async fn a_fix_is_accepted_by_its_tests_committed_and_offered_once() {
    let server = serve(correction());
    let ended = failing_test(&server).run("").await;
    assert_offered(&ended);
    let branch = branch(&ended);
    let log = format!("pr view {branch}\npr create --fill --head {branch}\n");
    assert_eq!(gh_log(&ended), log);
    // Neither a second start nor one that finds the fix at the origin only pays again.
    let server = no_service();
    let ended = start_again(ended, &server).run("").await;
    assert_offered(&ended);
    git(&ended.work(), &["branch", "--quiet", "-D", &branch]);
    let ended = start_again(ended, &server).run("").await;
    assert_offered(&ended);
    assert_eq!(gh_log(&ended), format!("{log}pr view {branch}\npr view {branch}\n"));
    assert!(server.requests().is_empty(), "{ended:?}");
}

#[tokio::test]
async fn a_fix_that_could_not_be_pushed_or_offered_is_by_another_start() {
    let server = serve(correction());
    let recipe = failing_test(&server);
    let hook = recipe.home().join("origin/hooks/pre-receive");
    write_program(&hook, "#!/bin/sh\nexit 1\n");
    let ended = recipe.run("").await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("hook declined"), "{ended:?}");
    let home = ended.work().parent().expect("a folder").to_owned();
    assert!(!home.join("gh.log").exists(), "{ended:?}");
    assert_untouched(&ended);

    fs::remove_file(hook).expect("it is ours");
    fs::write(home.join("gh-fails"), "").expect("the folder is ours");
    let server = no_service();
    let ended = start_again(ended, &server).run("").await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    fs::remove_file(home.join("gh-fails")).expect("it is ours");
    assert_offered(&start_again(ended, &server).run("").await);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn tests_that_pass_are_left_alone() {
    let server = no_service();
    let recipe = failing_test(&server).file("value", "good\n");
    git(&recipe.run.work(), &["commit", "--quiet", "--all", "--amend", "-m", "Begin"]);
    let ended = recipe.run("").await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    assert_eq!(ended.stdout, "The tests pass: nothing to do.\n");
    assert!(server.requests().is_empty(), "{ended:?}");
    assert_eq!(git(&ended.work(), &["branch", "--format=%(refname:short)"]), "main\n");
}

#[tokio::test]
async fn a_file_that_git_does_not_ignore_is_never_published() {
    let server = serve(correction());
    let ended = failing_test(&server).file(".env", "KEY=secret\n").run("").await;
    assert_refused(&ended, &server);
    assert_eq!(git(&ended.work(), &["status", "--porcelain"]), "?? .env\n");
}

#[tokio::test]
async fn a_fix_that_failed_is_looked_at_before_the_next_start() {
    let edit = json!({ "file_path": "value", "old_string": "bad", "new_string": "worse" });
    let read = Scenario::new().tool("Read", json!({ "file_path": "value" }));
    let server = serve(read.tool("Edit", edit).status(401).after(AfterLast::RepeatLast));
    let ended = failing_test(&server).run("").await;
    assert_eq!(ended.code, Some(77), "{ended:?}");
    assert_eq!(read_work(&ended, "value"), "worse\n");
    assert_eq!(git(&ended.work(), &["branch", "--format=%(refname:short)"]), "main\n");

    let server = serve(correction());
    let ended = start_again(ended, &server).run("").await;
    assert_refused(&ended, &server);
    git(&ended.work(), &["stash", "--quiet", "--include-untracked"]);
    assert_offered(&start_again(ended, &server).run("").await);
}

#[tokio::test]
async fn a_commit_that_failed_is_not_taken_for_a_fix() {
    let server = serve(correction());
    let recipe = failing_test(&server);
    let hook = recipe.run.work().join(".git/hooks/pre-commit");
    write_program(&hook, "#!/bin/sh\nexit 1\n");
    let ended = recipe.run("").await;
    assert_eq!(ended.code, Some(1), "{ended:?}");

    let server = serve(correction());
    let ended = start_again(ended, &server).run("").await;
    assert_refused(&ended, &server);
    git(&ended.work(), &["stash", "--quiet", "--include-untracked"]);
    fs::remove_file(hook).expect("it is ours");
    let ended = start_again(ended, &server).run("").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(gh_log(&ended).contains("pr create"), "{ended:?}");
    let pushed = git(&ended.work(), &["log", "--remotes", "-1", "--format=%s"]);
    assert_eq!(pushed, "Fix the failing test\n");
}

#[tokio::test]
async fn a_change_of_a_stranger_is_reviewed_and_commented_on() {
    let server = serve(Scenario::new().reply("value:1: it is bad."));
    let gh = "#!/bin/sh\ncase $2 in\ndiff) echo '+bad' ;;\n*) echo \"$1 $2 $3 $4\" >>gh.log; cat \"$5\" \
              >>gh.log ;;\nesac\n";
    let recipe = Recipe::new(REVIEW, &server).program("gh", gh).file("value", "bad\n");
    let ended = recipe.run("7").await;
    if !LandlockSupport::probe().restricts_files() || !filters_system_calls() {
        assert_ne!(ended.code, Some(0), "{ended:?}");
        return;
    }
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let commented = read_work(&ended, "gh.log");
    assert_eq!(commented, "pr comment 7 --body-file\nvalue:1: it is bad.\n");
    let sent = server.requests();
    let prompt = sent.last().expect("a request").body["messages"][0].to_string();
    assert!(prompt.contains("+bad"), "{prompt}");
}

#[tokio::test]
async fn a_change_that_cannot_be_had_is_not_reviewed() {
    let server = serve(Scenario::new().reply("I see no bug."));
    let gh = "#!/bin/sh\necho \"$2\" >>gh.log\ntest \"$2\" != diff\n";
    let recipe = Recipe::new(REVIEW, &server).program("gh", gh);
    let ended = recipe.run("7").await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(read_work(&ended, "gh.log"), "diff\n");
    assert!(server.requests().is_empty(), "{ended:?}");
}

#[tokio::test]
async fn a_change_without_a_difference_is_not_reviewed() {
    let server = serve(Scenario::new().reply("I see no bug."));
    let recipe = Recipe::new(REVIEW, &server).program("gh", "#!/bin/sh\necho \"$2\" >>gh.log\n");
    let ended = recipe.run("7").await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    assert_eq!(ended.stderr, "Pull request 7 changes nothing: no review.\n");
    assert_eq!(read_work(&ended, "gh.log"), "diff\n");
    assert!(server.requests().is_empty(), "{ended:?}");
}
