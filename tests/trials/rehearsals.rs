//! Trials of the scenarios that come with the program: each run ends as its file says.

use std::fs;

use outlast::rehearsal::{Scenario, ScenarioComments, ScenarioListing, builtin, list};

use super::outcomes::agrees;
use super::timeouts::all;
use crate::support::{FinishedProcess, RunBuilder};

/// Keys, tokens and secrets of the scenarios and their services.
const SECRETS: [&str; 5] = [
    "rehearsal-key",
    "old-key-of-the-rehearsal",
    "rehearsal-access",
    "rehearsal-refresh",
    "rehearsal-client-secret",
];

/// What else the run of a scenario is asked for: the log of all kinds of services and logins.
const DEBUG: &str = "--debug=outlast=trace,hyper_util=trace,reqwest=trace,rustls=trace";

/// One run of each scenario is looked at for both: another one would do the same again.
#[tokio::test]
async fn every_builtin_scenario_ends_as_its_file_expects_and_libraries_log_no_secret_of_it() {
    all(list().into_iter().map(|listing| async move {
        let scenario = builtin(&listing.name).expect("it is listed").expect("it can be read");
        // It brings a server of its own.
        let trial = RunBuilder::bare("http://127.0.0.1:9");
        let log = trial.work().join("debug.log");
        // The flag is one of the scenario's: with further flags of a user, a rehearsal checks less.
        let flags = [DEBUG, "--debug-file", &log.display().to_string()];
        let logged = scenario.clone().args(&flags).to_toml(&ScenarioComments::default());
        let file = format!("{}.toml", listing.name);
        fs::write(trial.work().join(&file), logged).expect("ours");
        let ended = trial.args(["rehearse", &file]).run().await;
        check_end(&listing, &scenario, &ended);
        check_log(&listing.name, &fs::read_to_string(&log).expect("the file"), &ended);
    }))
    .await;
}

/// A built-in scenario is found by its name, and ends as the same one in a file.
#[tokio::test]
async fn a_builtin_scenario_ends_as_its_file_expects() {
    let listing = list().into_iter().find(|listing| listing.name == "rate-limit").expect("listed");
    let scenario = builtin(&listing.name).expect("it is listed").expect("it can be read");
    let trial = RunBuilder::bare("http://127.0.0.1:9").args(["rehearse", &listing.name]);
    check_end(&listing, &scenario, &trial.run().await);
}

fn check_end(listing: &ScenarioListing, scenario: &Scenario, ended: &FinishedProcess) {
    let name = &listing.name;
    assert_eq!(ended.code, listing.exit, "{name}: {ended:?}");
    agrees(ended);
    for words in &scenario.expect.stderr {
        assert!(ended.stderr.contains(words), "{name}: no {words:?}: {ended:?}");
    }
    let exit = ended.code.unwrap_or_default();
    let line = format!("outlast: rehearsed {name}: exit {exit}, as expected\n");
    assert!(ended.stderr.ends_with(&line), "{name}: {ended:?}");
}

fn check_log(name: &str, text: &str, ended: &FinishedProcess) {
    assert!(text.contains(" hyper_util::client::legacy::"), "{name}: no log of the client: {text}");
    for secret in SECRETS {
        assert!(!text.contains(secret), "{name}: {secret} in {text}");
        assert!(!ended.stderr.contains(secret), "{name}: {secret} in {ended:?}");
    }
}
