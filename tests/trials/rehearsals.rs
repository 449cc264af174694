//! Trials of the scenarios that come with the program: each run ends as its file says.

use std::fs;

use outlast::rehearsal::{builtin, list};

use super::outcomes::agrees;
use super::timeouts::all;
use crate::support::RunBuilder;

/// Keys, tokens and secrets of the scenarios and their services.
const SECRETS: [&str; 5] = [
    "rehearsal-key",
    "old-key-of-the-rehearsal",
    "rehearsal-access",
    "rehearsal-refresh",
    "rehearsal-client-secret",
];

#[tokio::test]
async fn every_builtin_scenario_ends_as_its_file_expects() {
    all(list().into_iter().map(|listing| async move {
        // It brings a server of its own.
        let trial = RunBuilder::bare("http://127.0.0.1:9").args(["rehearse", &listing.name]);
        let ended = trial.run().await;
        assert_eq!(ended.code, listing.exit, "{}: {ended:?}", listing.name);
        agrees(&ended);
        let scenario = builtin(&listing.name).expect("it is listed").expect("it can be read");
        for words in &scenario.expect.stderr {
            assert!(ended.stderr.contains(words), "{}: no {words:?}: {ended:?}", listing.name);
        }
        let exit = ended.code.unwrap_or_default();
        let line = format!("outlast: rehearsed {}: exit {exit}, as expected\n", listing.name);
        assert!(ended.stderr.ends_with(&line), "{}: {ended:?}", listing.name);
    }))
    .await;
}

/// The debug log of each scenario, and so of all kinds of services and logins.
#[tokio::test]
async fn what_libraries_log_has_no_secret_of_any_scenario() {
    all(list().into_iter().map(|listing| async move {
        let name = &listing.name;
        let debug = ["--", "--debug=outlast=trace,hyper_util=trace,reqwest=trace,rustls=trace"];
        let trial = RunBuilder::bare("http://127.0.0.1:9").args(["rehearse", name]).args(debug);
        let log = trial.work().join("debug.log").display().to_string();
        let ended = trial.args(["--debug-file", &log]).run().await;
        let text = fs::read_to_string(&log).expect("the file");
        assert!(text.contains(" hyper_util::client::legacy::"), "{name}: {text}");
        for secret in SECRETS {
            assert!(!text.contains(secret), "{name}: {secret} in {text}");
            assert!(!ended.stderr.contains(secret), "{name}: {secret} in {ended:?}");
        }
    }))
    .await;
}
