//! The scripts of outlast-recipes(7), each run as it stands. What they start beside outlast and git is
//! replaced by programs that record how they were called.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use outlast::process::{LandlockSupport, filters_system_calls};
use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::commands::blocks;
use super::pages::read;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// The script below a heading of the page.
fn script(heading: &str) -> String {
    let page = read("man/outlast-recipes.7.md");
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("a section");
    let section = section.split("\n## ").next().expect("a text");
    blocks(section, "sh").into_iter().next().expect("a script")
}

fn write_program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is ours");
    fs::write(path, text).expect("the folder is ours");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// A recipe in a folder to work in.
struct Recipe {
    run: RunBuilder,
}

impl Recipe {
    fn new(heading: &str, server: &RehearsalServer) -> Self {
        Self::prepared(heading, RunBuilder::bare(&server.base_url()))
    }

    fn prepared(heading: &str, run: RunBuilder) -> Self {
        let recipe = Self { run };
        write_program(&recipe.run.work().join("recipe.sh"), &script(heading));
        let home = recipe.home();
        let bin = home.join(".local/bin");
        fs::create_dir_all(&bin).expect("the folder is ours");
        if !bin.join("outlast").exists() {
            symlink(env!("CARGO_BIN_EXE_outlast"), bin.join("outlast")).expect("a link");
        }
        let path = std::env::var("PATH").expect("there is one");
        let run = recipe.run.env("PATH", &format!("{}:{path}", bin.display()));
        Self { run: run.env("HOME", &home.display().to_string()) }
    }

    fn home(&self) -> PathBuf {
        self.run.work().parent().expect("a folder").to_owned()
    }

    fn program(self, name: &str, text: &str) -> Self {
        write_program(&self.home().join(".local/bin").join(name), text);
        self
    }

    fn file(self, name: &str, text: &str) -> Self {
        let path = self.run.work().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is ours");
        fs::write(path, text).expect("the folder is ours");
        self
    }

    fn env(self, name: &str, value: &str) -> Self {
        Self { run: self.run.env(name, value) }
    }

    /// Runs it with an argument. Its own output is that of the whole script.
    async fn run(self, argument: &str) -> FinishedProcess {
        self.run.in_shell(&format!("exec ./recipe.sh {argument}")).run().await
    }
}

fn read_work(of: &FinishedProcess, name: &str) -> String {
    let path = of.work().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}: {of:?}", path.display()))
}

#[tokio::test]
async fn a_fix_is_accepted_by_its_tests_committed_and_offered() {
    let edit = json!({ "file_path": "value", "old_string": "bad", "new_string": "good" });
    let server = serve(
        Scenario::new()
            .tool("Read", json!({ "file_path": "value" }))
            .status(529)
            .header("retry-after-ms", "1")
            .tool("Edit", edit)
            .reply("The value was bad; it is good now."),
    );
    let gh = "#!/bin/sh\nprintf '%s\\n' \"$*\" >>gh.log\ncat \"$6\" >>gh.log\n";
    let recipe = Recipe::new("A fix as a pull request", &server)
        .program("gh", gh)
        .file("value", "bad\n")
        .file("new", "The model may have made it.\n")
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    write_program(&recipe.run.work().join("test.sh"), "#!/bin/sh\ngrep -q good value\n");
    let identity = "[user]\nname = a\nemail = a@example.org\n";
    for words in [
        vec!["init", "--quiet", "--bare", "../origin"],
        vec!["init", "--quiet", "."],
        vec!["remote", "add", "origin", "../origin"],
        vec!["add", "value", "test.sh"],
        vec!["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "Begin"],
    ] {
        let mut git = Command::new("git");
        git.args(&words).current_dir(recipe.run.work()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert!(git.status().expect("git starts").success(), "{words:?}");
    }
    let config = recipe.run.work().join(".git/config");
    let with_identity = fs::read_to_string(&config).expect("it is there") + identity;
    fs::write(config, with_identity).expect("the folder is ours");
    let ended = recipe.run("").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let offered = read_work(&ended, "gh.log");
    assert!(offered.starts_with("pr create --title Fix the failing test"), "{offered}");
    assert!(offered.ends_with("The value was bad; it is good now.\n"), "{offered}");
    for (file, content) in [("value", "good\n"), ("new", "The model may have made it.\n")] {
        let shown = Command::new("git")
            .args(["--git-dir", "../origin", "show", &format!("fix-tests:{file}")])
            .current_dir(ended.work())
            .output();
        assert_eq!(shown.expect("git starts").stdout, content.as_bytes(), "{file}");
    }
}

#[tokio::test]
async fn a_change_of_a_stranger_is_reviewed_and_commented_on() {
    let server = serve(Scenario::new().reply("value:1: it is bad."));
    let gh = "#!/bin/sh\ncase $2 in\ndiff) echo '+bad' ;;\n*) echo \"$1 $2 $3 $4\" >>gh.log; cat \"$5\" \
              >>gh.log ;;\nesac\n";
    let recipe = Recipe::new("A review of a stranger's pull request", &server)
        .program("gh", gh)
        .file("value", "bad\n");
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
    let recipe = Recipe::new("A review of a stranger's pull request", &server).program("gh", gh);
    let ended = recipe.run("7").await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(read_work(&ended, "gh.log"), "diff\n");
    assert!(server.requests().is_empty(), "{ended:?}");
}

#[tokio::test]
async fn a_nightly_job_prints_nothing_but_a_failure() {
    let bare = |server: &RehearsalServer| {
        let recipe = Recipe::new("A nightly job", server).file("task.md", "Tidy up.");
        recipe.env("PATH", "/usr/bin:/bin").env("SHELL", "/bin/sh")
    };
    let overloaded = Scenario::new().status(529).header("retry-after-ms", "1");
    let server = serve(overloaded.reply("All is tidy."));
    let ended = bare(&server).run("").await;
    let printed = (ended.code, ended.stdout.as_str(), ended.stderr.as_str());
    assert_eq!(printed, (Some(0), "", ""));
    assert_eq!(read_work(&ended, "last-night.md"), "All is tidy.\n");

    let server = serve(Scenario::new().status(401).after(AfterLast::RepeatLast));
    let ended = bare(&server).run("").await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(77), ""), "{ended:?}");
    let work = ended.work().canonicalize().expect("it is there");
    let folder = format!(" in {}\n", work.display());
    for part in ["401", "outlast: session ", &folder, "(exit 77)"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
}

#[tokio::test]
async fn a_loop_over_files_makes_a_table() {
    if Command::new("jq").arg("--version").output().is_err() {
        eprintln!("jq is missing, and the recipe needs it");
        return;
    }
    let answer = Scenario::new().tool("StructuredOutput", json!({ "missing": ["f"] }));
    let server = serve(answer.after(AfterLast::RepeatLast));
    let recipe = Recipe::new("A loop over files", &server)
        .file("src/a.py", "def f(): pass\n")
        .file("src/b c.py", "def f(): pass\n");
    let ended = recipe.run("").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines = read_work(&ended, "report.jsonl");
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let expected = ["src/a.py", "src/b c.py"].map(|file| json!({ "file": file, "missing": ["f"] }));
    assert_eq!(lines, expected);
    let sent = server.requests();
    let prompt = sent.last().expect("a request").body["messages"][0].to_string();
    assert!(prompt.contains("def f()"), "{prompt}");
    let server = serve(Scenario::new().status(401).after(AfterLast::RepeatLast));
    let again = Recipe::prepared("A loop over files", ended.again_bare(&server.base_url()));
    let ended = again.run("").await;
    assert_eq!((ended.code, read_work(&ended, "report.jsonl").as_str()), (Some(77), ""));
}

#[tokio::test]
async fn a_batch_is_submitted_to_slurm_and_its_state_is_shown_by_its_tasks() {
    let server = serve(Scenario::new().reply("Done."));
    let sbatch = "#!/bin/sh\necho \"$*\" >>sbatch.log\ncat >/dev/null\necho 42\n";
    let recipe = Recipe::new("A batch on Slurm", &server).program("sbatch", sbatch);
    let ended = recipe.run("").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(read_work(&ended, "sbatch.log").contains("--time=60"), "{ended:?}");
    for part in ["parser", "printer", "submitted", "job 42"] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    // With other flags, the same file is another batch, and a message says why.
    let again = ended.again_bare(&server.base_url());
    let again = again.args(["batch", "tasks.jsonl", "--engine", "matrix", "--", "--max-turns=3"]);
    let ended = again.run().await;
    let change = "the flags after -- were --permission-mode acceptEdits, and are --max-turns=3";
    assert!(ended.stderr.contains("this is a new batch"), "{ended:?}");
    assert!(ended.stderr.contains(change), "{ended:?}");
}

#[tokio::test]
async fn a_job_that_was_cut_off_goes_on_in_the_same_session() {
    let heading = "After a cancelled CI job";
    let quota = Scenario::new().status(429).header("retry-after", "18000");
    let server = serve(quota.after(AfterLast::RepeatLast));
    let job = |recipe: Recipe| recipe.env("CI_PIPELINE_ID", "7").env("CI_JOB_NAME", "docs");
    let first = job(Recipe::new(heading, &server)).run("").await;
    assert_eq!(first.code, Some(75), "{first:?}");
    let session = first.result()["session_id"].clone();
    let server = serve(Scenario::new().reply("The docs are up to date."));
    let again = first.again_bare(&server.base_url());
    let second = job(Recipe::prepared(heading, again)).run("").await;
    assert_eq!(second.code, Some(0), "{second:?}");
    let result = second.result();
    assert_eq!(result["session_id"], session);
    assert_eq!(result["result"], "The docs are up to date.");
}

#[test]
fn the_action_is_the_template_after_a_step_that_installs_outlast() {
    let body = |text: &str| {
        let lines = text.lines().skip_while(|line| line.starts_with('#'));
        lines.collect::<Vec<_>>().join("\n")
    };
    let action = body(&read(".github/actions/run/action.yml"));
    let (before, rest) = action.split_once("    # Built from the commit").expect("a step");
    let (install, after) = rest.split_once("\n\n").expect("further steps");
    assert!(install.contains("cargo install --locked --path"), "{install}");
    assert_eq!(format!("{before}{after}"), body(&read("ci/templates/github/action.yml")));
}
