//! Trials of the scenarios that come with the program: each run ends as its file says.

use std::fs;
use std::path::Path;

use outlast::rehearsal::{
    ObservedOutcome, Scenario, ScenarioComments, ScenarioListing, builtin, list,
};

use super::outcomes::agrees;
use super::timeouts::all;
use crate::cli::rehearse_recorded::{EXCEPTIONS, outline, record, rehearse};
use crate::support::rotation::rotating_part;
use crate::support::{FinishedProcess, RunBuilder};

/// Keys, tokens and secrets of the scenarios and their services.
const SECRETS: [&str; 6] = [
    "test-key-0123456789",
    "rehearsal-key",
    "old-key-of-the-rehearsal",
    "rehearsal-access",
    "rehearsal-refresh",
    "rehearsal-client-secret",
];

/// Logs of all kinds of services and logins, for every run.
const DEBUG: &str = "--debug=outlast=trace,hyper_util=trace,reqwest=trace,rustls=trace";

/// Each run is looked at for its end and for its log. A third of them is recorded and rehearsed
/// again, the others are rehearsed: another third at each commit.
#[tokio::test]
async fn every_builtin_scenario_ends_as_its_file_expects_logs_no_secret_and_is_reproduced() {
    let names = list().into_iter().map(|listing| listing.name);
    let names = names.filter(|name| !EXCEPTIONS.iter().any(|(exception, _)| exception == name));
    let recorded = rotating_part(names, 3);
    all(list().into_iter().map(|listing| {
        let is_recorded = recorded.contains(&listing.name);
        async move {
            let scenario = builtin(&listing.name).expect("it is listed").expect("it can be read");
            if is_recorded {
                is_reproduced(&listing, &scenario).await;
            } else {
                is_rehearsed(&listing, &scenario).await;
            }
        }
    }))
    .await;
}

async fn is_rehearsed(listing: &ScenarioListing, scenario: &Scenario) {
    // It brings a server of its own.
    let trial = RunBuilder::bare("http://127.0.0.1:9");
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("debug.log");
    // The flag is one of the scenario's: with further flags of a user, a rehearsal checks less.
    let flags = [DEBUG, "--debug-file", &log.display().to_string()];
    let logged = scenario.clone().args(&flags).to_toml(&ScenarioComments::default());
    let file = format!("{}.toml", listing.name);
    fs::write(trial.work().join(&file), logged).expect("ours");
    let ended = trial.args(["rehearse", &file]).run().await;
    check_end(listing, scenario, &ended);
    check_verdict(&listing.name, &ended);
    check_log(&listing.name, &log, &ended);
}

async fn is_reproduced(listing: &ScenarioListing, scenario: &Scenario) {
    let name = &listing.name;
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("debug.log");
    let flags = [DEBUG, "--debug-file", &log.display().to_string()];
    let (ended, server) = record(scenario, &flags).await;
    check_end(listing, scenario, &ended);
    check_log(name, &log, &ended);
    let before = ended.result();
    let outcome = ObservedOutcome {
        exit: ended.code.unwrap_or_default(),
        terminal_reason: before["terminal_reason"].as_str(),
        folder: &ended.work(),
        stderr: Some(&ended.stderr),
    };
    assert_eq!(server.verify(&outcome), [""; 0], "{name}: {ended:?}");
    let again = rehearse(ended, &[]).await;
    assert_eq!(outline(&again.result()), outline(&before), "{name}, reproduced: {again:?}");
    assert!(again.stderr.ends_with(", as expected\n"), "{name}, reproduced: {again:?}");
}

/// A built-in scenario is found by its name, and ends as the same one in a file.
#[tokio::test]
async fn a_builtin_scenario_ends_as_its_file_expects() {
    let listing = list().into_iter().find(|listing| listing.name == "rate-limit").expect("listed");
    let scenario = builtin(&listing.name).expect("it is listed").expect("it can be read");
    let trial = RunBuilder::bare("http://127.0.0.1:9").args(["rehearse", &listing.name]);
    let ended = trial.run().await;
    check_end(&listing, &scenario, &ended);
    check_verdict(&listing.name, &ended);
}

fn check_end(listing: &ScenarioListing, scenario: &Scenario, ended: &FinishedProcess) {
    let name = &listing.name;
    assert_eq!(ended.code, listing.exit, "{name}: {ended:?}");
    agrees(ended);
    for words in &scenario.expect.stderr {
        assert!(ended.stderr.contains(words), "{name}: no {words:?}: {ended:?}");
    }
}

/// A rehearsal found all that the scenario expects.
fn check_verdict(name: &str, ended: &FinishedProcess) {
    let exit = ended.code.unwrap_or_default();
    let line = format!("outlast: rehearsed {name}: exit {exit}, as expected\n");
    assert!(ended.stderr.ends_with(&line), "{name}: {ended:?}");
}

fn check_log(name: &str, log: &Path, ended: &FinishedProcess) {
    let text = fs::read_to_string(log).expect("the file");
    assert!(text.contains(" hyper_util::client::legacy::"), "{name}: no log of the client: {text}");
    for secret in SECRETS {
        assert!(!text.contains(secret), "{name}: {secret} in {text}");
        assert!(!ended.stderr.contains(secret), "{name}: {secret} in {ended:?}");
    }
}
