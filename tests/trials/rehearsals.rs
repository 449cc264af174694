//! Trials of the scenarios that come with the program: each run ends as its file says.

use std::fs;

use outlast::rehearsal::list;

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
async fn every_builtin_scenario_ends_as_its_file_expects_and_its_debug_log_has_no_secret() {
    all(list().into_iter().map(|listing| async move {
        // It brings a server of its own.
        let trial = RunBuilder::bare("http://127.0.0.1:9").args(["rehearse", &listing.name]);
        let log = trial.work().join("debug.log").display().to_string();
        let debug = ["--", "--debug=outlast=trace,hyper_util=trace,reqwest=trace,rustls=trace"];
        let ended = trial.args(debug).args(["--debug-file", &log]).run().await;
        assert_eq!(ended.code, listing.exit, "{}: {ended:?}", listing.name);
        let exit = ended.code.unwrap_or_default();
        let line = format!("outlast: rehearsed {}: exit {exit}, as expected\n", listing.name);
        assert!(ended.stderr.ends_with(&line), "{}: {ended:?}", listing.name);

        let text = fs::read_to_string(&log).expect("the file");
        assert!(text.contains(" hyper_util::client::legacy::"), "{}: {text}", listing.name);
        for secret in SECRETS {
            assert!(!text.contains(secret), "{}: {secret} in {text}", listing.name);
            assert!(!ended.stderr.contains(secret), "{}: {secret} in {ended:?}", listing.name);
        }
    }))
    .await;
}
