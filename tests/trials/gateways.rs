//! Failures of gateways, as the result and the exit code report them. Classification in any wording
//! is tested in [`agent::gateways`](crate::agent).

use std::fs;
use std::path::Path;

use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario};
use serde_json::json;

use super::outcomes::agrees;
use super::requirements::fails_as;
use super::timeouts::with;
use crate::support::{RunBuilder, serve};

/// Answers with a body that a gateway sent.
fn plays(name: &str, status: u16) -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bodies").join(name);
    let body = fs::read_to_string(path).expect("it was recorded");
    Scenario::new().status(status).body("application/json", &body)
}

/// A run that tries again at once.
fn hasty(server: &RehearsalServer) -> RunBuilder {
    with(
        RunBuilder::against(server),
        &json!({ "retryFirstDelay": "1ms", "retryLongestDelay": "1ms" }),
    )
}

#[tokio::test]
async fn a_retried_and_a_permanent_gateway_error_are_reported_with_their_class() {
    let server = serve(plays("litellm-429-bedrock.json", 429).reply("Done."));
    let ended = hasty(&server).args(["Do it."]).run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(result["recovery"]["retries_by_class"], json!({ "rate_limit": 1 }));
    for (name, status, code, class) in [
        ("litellm-401.json", 401, 77, "invalid_api_key"),
        ("vllm-404.json", 404, 1, "invalid_model"),
    ] {
        let server = serve(plays(name, status).after(AfterLast::RepeatLast));
        let ended = hasty(&server).args(["Do it."]).run().await;
        let result = fails_as(&ended, code, "model_error");
        assert_eq!(result["api_error_class"], class, "{name}");
        assert_eq!(result["api_error_status"], status, "{name}");
    }
}

#[tokio::test]
async fn an_overload_quoted_by_a_gateway_switches_the_model() {
    let overloaded = || plays("litellm-500-was-529.json", 500);
    let server = serve(overloaded().times(3).reply("Done."));
    let chain = ["--model", "sonnet", "--fallback-model", "haiku", "Do it."];
    let ended = hasty(&server).args(chain).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let models: Vec<String> = server.requests().iter().map(|it| it.model().to_owned()).collect();
    assert_eq!(models[2], "claude-sonnet-5-5", "{models:?}");
    assert_eq!(models[3], "claude-haiku-5-5", "{models:?}");

    let server = serve(overloaded().after(AfterLast::RepeatLast));
    let ended = hasty(&server).args(["--max-retries", "2", "Do it."]).run().await;
    let result = fails_as(&ended, 75, "model_error");
    assert_eq!(
        (&result["api_error_class"], &result["api_error_status"]),
        (&json!("repeated_529"), &json!(500))
    );
    assert_eq!(result["retryable"], true);
}

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
