//! A request that was refused for its size or its media is another one when it is made again.

use std::num::NonZeroU64;

use outlast::recovery::StopReason;
use outlast::rehearsal::{Scenario, ServerRules};
use outlast::transcript::Block;
use serde_json::{Value, json};

use super::run_fixture::RunFixture;
use crate::support::requests::messages;

/// Most local servers are started with a context window below the output cap that is requested by
/// default.
#[tokio::test]
async fn a_shared_context_window_is_learned_from_the_first_overflow_error() {
    let rules = ServerRules { token_limit: NonZeroU64::new(8_192), ..ServerRules::default() };
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "echo one" }))
        .tool("Bash", json!({ "command": "echo two" }))
        .reply("Done.")
        .rules(rules);
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed, "{:?}", played.trace());
    let caps = played.caps();
    assert_eq!((caps.len(), caps[0]), (4, 8_192), "refused once, and not again: {caps:?}");
    assert!(caps[1..].iter().all(|cap| (1_024..8_000).contains(cap)), "{caps:?}");
    played.assert_no_warnings_or_repairs();
}

/// As vLLM words it, who counts what it was asked for as a part of the window.
#[tokio::test]
async fn a_short_conversation_that_cannot_be_compacted_lowers_the_output_cap() {
    let words = "This model's maximum context length is 8192 tokens. However, your request has \
                 1807 input tokens plus 8192 'max_tokens'. Please reduce one or the other.";
    let scenario = Scenario::new().status(400).error("BadRequestError", words, None).reply("Done.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed, "{:?}", played.trace());
    assert!(played.caps()[1] < 8_192 - 1_000, "{:?}", played.caps());
}

/// The server counts more input than outlast estimates, and the next cap leaves room for all of it.
#[tokio::test]
async fn the_output_cap_is_lowered_by_the_input_that_an_overflow_names() {
    let words = "input length and `max_tokens` exceed context limit: 9000 + 8192 > 16384, decrease \
                 input length or `max_tokens` and try again";
    let scenario =
        Scenario::new().status(400).error("invalid_request_error", words, None).reply("Done.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed, "{:?}", played.trace());
    assert_eq!(played.caps(), [8_192, 16_384 - 9_000]);
}

/// The first one names the window, and the second one nothing.
#[tokio::test]
async fn the_output_cap_is_halved_if_an_overflow_does_not_name_the_input() {
    let halves = [8_192, 4_096, 2_048, 1_024];
    for words in [
        "max_tokens is more than the context window of 16000 tokens leaves",
        "the context window is exceeded; lower max_tokens",
    ] {
        for answered_at in 2..=halves.len() + 1 {
            let mut scenario = Scenario::new();
            for _ in 1..answered_at {
                scenario = scenario.status(400).error("invalid_request_error", words, None);
            }
            let played = RunFixture::of(scenario.reply("Done.")).run().await;
            let is_answered = answered_at <= halves.len();
            let reason =
                if is_answered { StopReason::Completed } else { StopReason::PromptTooLong };
            assert_eq!(played.ending.reason, reason, "{words}: {:?}", played.trace());
            assert_eq!(played.caps(), halves[..answered_at.min(halves.len())], "{words}");
        }
    }
}

/// A server that counts the input only up to the end of the window names less than it has.
#[tokio::test]
async fn the_output_cap_is_halved_if_the_input_that_an_overflow_names_does_not_fit() {
    let words = |cap: u64| {
        let least = 16_385 - cap;
        format!(
            "This model's maximum context length is 16384 tokens. However, you requested {cap} \
             output tokens and your prompt contains at least {least} input tokens, for a total of \
             at least 16385 tokens."
        )
    };
    let mut scenario = Scenario::new();
    for cap in [8_192, 8_191] {
        scenario = scenario.status(400).error("BadRequestError", &words(cap), None);
    }
    let played = RunFixture::of(scenario.reply("Done.")).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed, "{:?}", played.trace());
    assert_eq!(played.caps(), [8_192, 8_191, 4_095]);
}

/// Ten results that are large together, and none of which is old enough to be folded.
#[tokio::test]
async fn an_overflow_caused_by_the_last_tool_results_truncates_them() {
    let command = json!({ "command": "head -c 29000 /dev/zero | tr '\\0' x" });
    let mut scenario = Scenario::new().tool("Bash", command.clone());
    for _ in 1..12 {
        scenario = scenario.and_tool("Bash", command.clone());
    }
    let words = "prompt is too long: 250000 tokens > 200000 maximum";
    let scenario = scenario.status(400).error("invalid_request_error", words, None).reply("Done.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed, "{:?}", played.trace());
    let size = |number| Value::from(played.messages(number)).to_string().len();
    assert!(size(3) < size(2), "{} and then {} bytes", size(2), size(3));
}

/// The service counts blocks in its own way, and points where there is no image.
#[tokio::test]
async fn media_is_removed_even_if_the_error_names_a_wrong_block() {
    let words = "messages.0.content.5.image.source.base64: image exceeds 5 MB maximum";
    let scenario = Scenario::new()
        .status(400)
        .error("invalid_request_error", words, None)
        .reply("I could not see it.");
    let mut play = RunFixture::of(scenario);
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" });
    play.setup.prompt.content.push(Block::Image { source });
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::Completed, "{:?}", played.trace());
    let requests = played.server.requests();
    let images = |request| Value::from(messages(request)).to_string().matches("iVBOR").count();
    assert_eq!([images(&requests[0]), images(&requests[1])], [1, 0]);
}
