//! Replies that hit the output limit, as the result and the report tell of them. What the run does
//! about them is tested in [`agent::output_limits`](crate::agent).

use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::Value;

use crate::support::requests::{caps, messages};
use crate::support::{FinishedProcess, RunBuilder, serve};

async fn run(scenario: Scenario) -> (RehearsalServer, FinishedProcess) {
    let server = serve(scenario);
    let ended = RunBuilder::against(&server).args(["Write it all down."]).run().await;
    assert_eq!(server.violations(), [""; 0]);
    (server, ended)
}

#[tokio::test]
async fn a_continued_text_is_one_result() {
    let scenario = Scenario::new()
        .reply("One two th")
        .stop_reason("max_tokens")
        .reply("One two thr")
        .stop_reason("max_tokens")
        .reply("ee four ")
        .stop_reason("max_tokens")
        .reply("five.");
    let (server, ended) = run(scenario).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.result()["result"], "One two three four five.");
    assert_eq!(caps(&server.requests()), [8_192, 64_000, 64_000, 64_000]);
    let second = server.requests().remove(1);
    assert_eq!(messages(&second).len(), 1, "the larger try is the same request again");
    let args = ["report", "latest", "--format", "json"];
    let report = ended.again_bare(&server.base_url()).args(args).run().await;
    let report: Value = serde_json::from_str(&report.stdout).expect("a report");
    assert_eq!(report["sessions"][0]["answer"], "One two three four five.", "{report}");
}
