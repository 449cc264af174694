//! The recipe for CI, and the action for GitHub.

use outlast::rehearsal::{AfterLast, Scenario};

use super::super::pages::read;
use super::Recipe;
use crate::support::serve;

const CANCELLED: &str = "After a cancelled CI job";

#[tokio::test]
async fn a_job_that_was_cut_off_goes_on_in_the_same_session() {
    let quota = Scenario::new().status(429).header("retry-after", "18000");
    let server = serve(quota.after(AfterLast::RepeatLast));
    let job = |recipe: Recipe| recipe.env("CI_PIPELINE_ID", "7").env("CI_JOB_NAME", "docs");
    let first = job(Recipe::new(CANCELLED, &server)).run("").await;
    assert_eq!(first.code, Some(75), "{first:?}");
    let session = first.result()["session_id"].clone();
    let server = serve(Scenario::new().reply("The docs are up to date."));
    let second = job(Recipe::again(CANCELLED, first, &server)).run("").await;
    assert_eq!(second.code, Some(0), "{second:?}");
    let result = second.result();
    assert_eq!(result["session_id"], session);
    assert_eq!(result["result"], "The docs are up to date.");
    // Another job has another session.
    let server = serve(Scenario::new().reply("It is another one."));
    let other = Recipe::again(CANCELLED, second, &server);
    let other = other.env("CI_PIPELINE_ID", "7").env("CI_JOB_NAME", "lint").run("").await;
    assert_eq!(other.result()["result"], "It is another one.");
}

#[tokio::test]
async fn a_job_without_a_name_is_not_started() {
    for (name, other) in [("CI_PIPELINE_ID", "CI_JOB_NAME"), ("CI_JOB_NAME", "CI_PIPELINE_ID")] {
        let server = serve(Scenario::new().reply("It was started."));
        let unset = Recipe::new(CANCELLED, &server).env(other, "7").run("").await;
        let empty = Recipe::new(CANCELLED, &server).env(other, "7").env(name, "").run("").await;
        for ended in [unset, empty] {
            assert_ne!(ended.code, Some(0), "{ended:?}");
            assert_eq!(ended.stdout, "", "{ended:?}");
            assert!(ended.stderr.contains(name), "{ended:?}");
        }
        assert!(server.requests().is_empty(), "{name}");
    }
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
