//! Recipes for cron.

use std::fs;
use std::os::unix::fs::symlink;

use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario};
use serde_json::json;

use super::{Recipe, read_work, script, section, write_program};
use crate::support::{FinishedProcess, RunBuilder, serve};

const NIGHTLY: &str = "A nightly job";

/// The environment that cron sets.
fn by_cron(recipe: Recipe) -> Recipe {
    recipe.file("task.md", "Tidy up.").env("PATH", "/usr/bin:/bin").env("SHELL", "/bin/sh")
}

/// As many errors as end a run that is not told to wait for them.
fn errors() -> Scenario {
    let error = |scenario: Scenario, _| scenario.status(500).header("retry-after-ms", "1");
    (0..20).fold(Scenario::new(), error)
}

#[tokio::test]
async fn a_nightly_job_prints_nothing_but_a_failure_and_keeps_the_last_success() {
    let overloaded = errors().status(529).header("retry-after-ms", "1");
    let server = serve(overloaded.reply("All is tidy."));
    let ended = by_cron(Recipe::new(NIGHTLY, &server)).run("").await;
    let printed = (ended.code, ended.stdout.as_str(), ended.stderr.as_str());
    assert_eq!(printed, (Some(0), "", ""));
    assert_eq!(read_work(&ended, "last-night.md"), "All is tidy.\n");

    let server = serve(Scenario::new().status(401).after(AfterLast::RepeatLast));
    let recipe = by_cron(Recipe::again(NIGHTLY, ended, &server));
    // The other place where outlast may be installed for one user.
    fs::create_dir_all(recipe.home().join(".cargo/bin")).expect("the folder is ours");
    let places =
        [".local/bin/outlast", ".cargo/bin/outlast"].map(|place| recipe.home().join(place));
    fs::rename(&places[0], &places[1]).expect("the folder is ours");
    let ended = recipe.run("").await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(77), ""), "{ended:?}");
    let work = ended.work().canonicalize().expect("it is there");
    let folder = format!(" in {}\n", work.display());
    for part in ["401", "outlast: session ", &folder, "(exit 77)"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    assert_eq!(read_work(&ended, "last-night.md"), "All is tidy.\n");
}

/// Runs the line of crontab(5) in outlast(1), with the script that it starts.
async fn run_line_of_crontab(server: &RehearsalServer) -> FinishedProcess {
    let examples = section("man/outlast.1.md", "Examples");
    let line = examples.split('`').find(|quoted| quoted.starts_with("0 2 * * * "));
    let command = line.and_then(|line| line.splitn(6, ' ').nth(5)).expect("a command");
    let run = RunBuilder::bare(&server.base_url());
    let home = run.work().parent().expect("a folder").to_owned();
    let work = run.work().display().to_string();
    write_program(&home.join("nightly.sh"), script(&examples).replace("/srv/app", &work));
    fs::write(home.join("task.md"), "Tidy up.").expect("the folder is ours");
    fs::create_dir_all(home.join(".cargo/bin")).expect("the folder is ours");
    let program = home.join(".cargo/bin/outlast");
    symlink(env!("CARGO_BIN_EXE_outlast"), program).expect("the folder is ours");
    let run = run.env("HOME", &home.display().to_string()).env("PATH", "/usr/bin:/bin");
    run.in_shell(&format!("cd /\n{command}")).run().await
}

#[tokio::test]
async fn a_line_of_crontab_may_edit_and_reports_what_is_denied() {
    let write = json!({ "file_path": "tidy", "content": "It is.\n" });
    let server = serve(Scenario::new().tool("Write", write).reply("Done."));
    let ended = run_line_of_crontab(&server).await;
    let printed = (ended.code, ended.stdout.as_str(), ended.stderr.as_str());
    assert_eq!(printed, (Some(0), "", ""));
    assert_eq!(read_work(&ended, "tidy"), "It is.\n");

    let command = json!({ "command": "touch /tidy" });
    let server = serve(Scenario::new().tool("Bash", command).reply("I could not."));
    let ended = run_line_of_crontab(&server).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(9), ""), "{ended:?}");
    assert!(ended.stderr.contains("(exit 9)"), "{ended:?}");
}
