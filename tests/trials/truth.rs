//! Trials of truth: what is said at the end is what happened, and it is said once.

use outlast::rehearsal::Scenario;

use crate::support::{Trial, serve};

#[tokio::test]
async fn a_run_that_succeeds_says_so_once_and_nothing_else() {
    let server = serve(Scenario::new().reply("All done."));
    let ended = Trial::against(&server).args(["do it"]).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0));
    assert_eq!(result["subtype"], "success");
    assert_eq!(result["result"], "All done.");
    assert_eq!(ended.stderr, "");
}
