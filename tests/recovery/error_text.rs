//! Parsing of error texts: the context window, the block index and its error.

use outlast::recovery::{BlockIndex, FailureStage, Fault, FaultKind, RejectedContent};
use proptest::prelude::*;

fn said(status: u16, message: &str) -> Fault {
    let label = "invalid_request_error".to_owned();
    let (code, message) = (String::new(), message.to_owned());
    Fault::new(FaultKind::Refused { status, label, code, message }, FailureStage::Status)
}

fn place(message: &str) -> Option<(usize, Option<usize>, Option<usize>)> {
    let place = said(400, message).rejected_block();
    place.map(|BlockIndex { message, block, inner }| (message, block, inner))
}

#[test]
fn a_block_index_is_parsed_in_every_notation() {
    let cases = [
        ("messages.3.content.1.image.source: no", (3, Some(1), None)),
        ("messages.3.content.1: no", (3, Some(1), None)),
        ("messages[3].content[1]: no", (3, Some(1), None)),
        ("messages[3]['content'][1] is wrong", (3, Some(1), None)),
        ("body.messages.3.content.1", (3, Some(1), None)),
        (r#"[{"loc":["body","messages",3,"content",1,"text"],"msg":"no"}]"#, (3, Some(1), None)),
        (r#"{\"loc\": [\"messages\", 3, \"content\", 1]}"#, (3, Some(1), None)),
        ("{'loc': ('body', 'messages', 3, 'content', 1)}", (3, Some(1), None)),
        ("messages.3.content: no", (3, None, None)),
        ("messages.3: no", (3, None, None)),
        ("messages[3] is wrong", (3, None, None)),
        ("Messages.3.Content.1 is wrong", (3, Some(1), None)),
        ("messages.3.content.1.tool_result.content.0.image: no", (3, Some(1), Some(0))),
        ("messages.3.content.1.toolResult.content.0.image: no", (3, Some(1), Some(0))),
        ("messages[3].content[1].content[0]: no", (3, Some(1), Some(0))),
        ("messages: too few; messages.3.content.1: no", (3, Some(1), None)),
        ("error b'messages.129.content.17: no'", (129, Some(17), None)),
    ];
    for (message, expected) in cases {
        assert_eq!(place(message), Some(expected), "{message}");
    }
}

#[test]
fn a_refusal_that_dropping_thinking_may_fix_is_recognised_by_its_text() {
    let cases = [
        (
            400,
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, found `text`",
            true,
        ),
        (400, "thinking: Extra inputs are not permitted", true),
        (422, "Thinking is not supported by this model", true),
        (400, "max_tokens: must be greater than `thinking.budget_tokens`", true),
        (400, "messages.1.content.0: Invalid `signature` in `thinking` block", true),
        (400, "temperature: must be 1", false),
        (500, "thinking failed", false),
        (401, "thinking", false),
    ];
    for (status, message, expected) in cases {
        assert_eq!(said(status, message).is_about_asking_for_thinking(), expected, "{message}");
    }
}

#[test]
fn the_image_limit_is_parsed_from_the_error_text() {
    let cases = [
        ("messages: too many images and documents: 101 > 100", Some(100)),
        ("too many images and documents: 26 + 0 \\u003e 5", Some(5)),
        ("Too many images: at most 1,000 are taken", Some(1_000)),
        ("At most 1 image(s) may be provided in one prompt.", Some(1)),
        ("too many images", None),
        ("image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes", None),
        ("image dimensions exceed max allowed size for many-image requests: 2000 pixels", None),
    ];
    for (message, expected) in cases {
        assert_eq!(said(400, message).most_images(), expected, "{message}");
    }
}

#[test]
fn text_that_names_no_block_yields_no_block_index() {
    let nowhere = [
        "max_tokens: Field required",
        "messages: at least one message is required",
        "reduce the length of the messages. 5 of them are too much",
        "of your messages, 3 are wrong",
        "messages.3.role: unexpected role",
        "messages.3rd",
        "messages.99999999999999999999.content.1",
        "toolmessages.3.content.1",
        "messages.4.content.0.tool_result.cache_control: ttl must be 5m or 1h",
        "tools.3.custom.input_schema: JSON schema is invalid",
        // Of a list that a gateway made of ours.
        "Invalid 'messages[3].content[1].image_url'",
        "messages[3].tool_calls[0].function.arguments: no",
    ];
    for message in nowhere {
        assert_eq!(place(message), None, "{message}");
    }
    let named = "messages.3.content.1: no";
    for status in [401, 403, 404, 429, 500, 529] {
        assert_eq!(said(status, named).rejected_block(), None, "{status}");
        assert_eq!(said(status, named).rejected_content(), None, "{status}");
    }
}

#[test]
fn a_context_window_is_parsed_wherever_the_error_names_it() {
    let cases = [
        ("prompt is too long: 213462 tokens > 200000 maximum", Some(200_000)),
        ("prompt is too long: 213462 tokens \\u003e 200000 maximum", Some(200_000)),
        ("exceed context limit: 190000 + 20000 > 200000, decrease", Some(200_000)),
        ("the context length is 3 tokens over the maximum context length of 8,192", Some(8_192)),
        ("Prompt exceeds 200,000 token limit of the context window", Some(200_000)),
        (r#"context size: {\"n_prompt_tokens\":14429,\"n_ctx\":8192}"#, Some(8_192)),
        ("This model's maximum context length is 3 tokens.", None),
        ("Input is too long for requested model.", None),
        ("prompt is too long: 1 > 99999999999999999999", None),
        ("image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes", None),
    ];
    for (message, window) in cases {
        assert_eq!(said(400, message).named_window(), window, "{message}");
    }
    assert_eq!(said(429, cases[0].0).named_window(), None, "no overflow");
}

#[test]
fn an_error_about_missing_thinking_does_not_remove_thinking() {
    let missing = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but \
                   found `tool_use`";
    assert_eq!(said(400, missing).rejected_content(), None);
    let wrong = "messages.1.content.0.thinking: each block must contain thinking";
    assert_eq!(said(400, wrong).rejected_content(), Some(RejectedContent::Thinking));
    assert_eq!(said(400, "thinking.budget_tokens: at least 1024").rejected_content(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_error_text_makes_the_parser_panic(
        before in ".{0,9}", path in r#"messages[\[\].,"' 0-9a-zé\\]{0,30}"#, after in ".{0,9}",
        status in prop::sample::select(vec![200_u16, 400, 413, 422]),
    ) {
        let fault = said(status, &format!("{before}{path}{after}"));
        if let Some(place) = fault.rejected_block() {
            prop_assert!(place.inner.is_none() || place.block.is_some());
            prop_assert!(fault.rejected_content().is_some() || path.contains("thinking"));
        }
        fault.named_window();
    }

    #[test]
    fn every_api_block_index_is_parsed(message in 0..1_000_usize, block in 0..1_000_usize) {
        let expected = Some((message, Some(block), None));
        prop_assert_eq!(place(&format!("messages.{message}.content.{block}: no")), expected);
        prop_assert_eq!(place(&format!("messages[{message}].content[{block}]")), expected);
    }
}
