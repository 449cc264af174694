//! Trials of the scenarios that come with the program: each run ends as its file says.

use outlast::rehearsal::list;

use super::timeouts::all;
use crate::support::RunBuilder;

#[tokio::test]
async fn every_builtin_scenario_ends_as_its_file_expects() {
    all(list().into_iter().map(|listing| async move {
        // It brings a server of its own.
        let trial = RunBuilder::bare("http://127.0.0.1:9").args(["rehearse", &listing.name]);
        let ended = trial.run().await;
        assert_eq!(ended.code, listing.exit, "{}: {ended:?}", listing.name);
        let exit = ended.code.unwrap_or_default();
        let line = format!("outlast: rehearsed {}: exit {exit}, as expected\n", listing.name);
        assert!(ended.stderr.ends_with(&line), "{}: {ended:?}", listing.name);
    }))
    .await;
}
