//! Replies that a content filter of the service stopped.

use outlast::rehearsal::{AfterLast, Scenario};
use serde_json::json;

use super::outcomes::agrees;
use super::requirements::fails_as;
use super::timeouts::hasty;
use crate::support::serve;

/// The same request may be answered: what the filter stopped was sampled.
#[tokio::test]
async fn output_that_a_content_filter_stopped_is_asked_for_again() {
    let filtered = || {
        let error = json!({ "type": "invalid_request_error",
            "message": "Output blocked by content filtering policy" });
        let body = json!({ "type": "error", "error": error }).to_string();
        Scenario::new().status(400).body("application/json", &body)
    };
    let server = serve(filtered().times(2).reply("Done."));
    let ended = hasty(&server).args(["Do it."]).run().await;
    let result = agrees(&ended);
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Done.")), "{ended:?}");
    let requests = server.requests();
    assert_eq!(requests[0].raw, requests[1].raw, "the same is asked again");
    let last = requests[2].body["messages"].to_string();
    assert!(last.contains("A content filter of the service stopped your reply"), "{last}");

    let server = serve(filtered().after(AfterLast::RepeatLast));
    let ended = hasty(&server).args(["Do it."]).run().await;
    let result = fails_as(&ended, 1, "model_error");
    assert_eq!(result["api_error_class"], "content_filtered");
    assert_eq!(server.requests().len(), 4);
    assert!(ended.stderr.contains("content filtering policy"), "{ended:?}");
    assert!(!ended.stderr.contains("ANTHROPIC_BASE_URL"), "{ended:?}");
}

/// What the filter refuses may be in the result of a tool.
#[tokio::test]
async fn a_request_that_a_content_filter_refuses_is_sent_without_what_was_added() {
    let error = json!({ "message": "The response was filtered due to the prompt", "type": null,
        "code": "content_filter", "innererror": { "code": "ResponsibleAIPolicyViolation" } });
    let body = json!({ "error": error }).to_string();
    let filtered = |before: Scenario| before.status(400).body("application/json", &body);
    let call = Scenario::new().tool("Bash", json!({ "command": "seq 3000" }));
    let server = serve(filtered(call).times(2).reply("Done."));
    let ended = hasty(&server).args(["Do it."]).run().await;
    let result = agrees(&ended);
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Done.")), "{ended:?}");
    let requests = server.requests();
    assert_eq!(requests[1].raw, requests[2].raw, "a filter may be wrong once");
    assert!(requests[3].raw.len() < requests[2].raw.len() - 4_000, "{}", requests[3].raw.len());

    let server = serve(filtered(Scenario::new()).after(AfterLast::RepeatLast));
    let ended = hasty(&server).args(["Do it."]).run().await;
    let result = fails_as(&ended, 1, "model_error");
    assert_eq!(result["api_error_class"], "content_filtered");
    assert_eq!(server.requests().len(), 1);
    assert!(!ended.stderr.contains("ANTHROPIC_BASE_URL"), "{ended:?}");
}
