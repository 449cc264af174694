//! Parsing of error texts: the context window, the block index and its error.

use outlast_core::recovery::{
    BlockPath, ClassifiedFault, EndpointStatus, FailureStage, Fault, FaultKind, OptionalField,
    RefusedCap, RejectedContent,
};
use proptest::prelude::*;

fn said(status: u16, message: &str) -> ClassifiedFault {
    let label = "invalid_request_error".to_owned();
    let (code, message) = (String::new(), message.to_owned());
    let kind = FaultKind::Refused { status, label, code, message };
    ClassifiedFault::new(Fault::new(kind, FailureStage::Status), EndpointStatus::Untried)
}

fn place(message: &str) -> Option<(usize, Option<usize>, Option<usize>)> {
    let place = said(400, message).rejected_block();
    place.map(|BlockPath { message, block, inner }| (message, block, inner))
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
        ("Value at 'messages.4.member.content.2.member.text' failed", (3, Some(1), None)),
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
        (400, "This model does not support reasoning", true),
        (400, "Unsupported parameter: 'reasoning_effort' is not supported with this model.", true),
        (404, "No endpoints found that support the requested parameters: reasoning", true),
        (403, "thinking is not enabled for your organization", true),
        (500, "thinking is not supported by this model", true),
        (400, "temperature: must be 1", false),
        (500, "thinking failed", false),
        (401, "thinking", false),
    ];
    for (status, message, expected) in cases {
        assert_eq!(said(status, message).refuses(OptionalField::Thinking), expected, "{message}");
    }
}

/// Kimi, `DeepSeek` and what is behind their models.
#[test]
fn a_refusal_that_demands_thinking_is_recognised_by_its_text() {
    let cases = [
        ("The `content[].thinking` in the thinking mode must be passed back to the API.", true),
        (
            "thinking is enabled but reasoning_content is missing in assistant tool call message \
             at index 1",
            true,
        ),
        ("Missing thinking block in the assistant message at message index 1.", true),
        ("Missing `reasoning_content` field in the assistant message at message index 1", true),
        ("messages.1.content.0.type: Expected `thinking` or `redacted_thinking`", false),
        ("thinking: Extra inputs are not permitted", false),
    ];
    for (message, expected) in cases {
        let refused = said(400, message);
        assert_eq!(refused.refuses(OptionalField::ThinkingByDefault), expected, "{message}");
        assert_eq!(refused.rejected_content(), None, "{message}");
    }
}

/// The words of other services, and those of the API in the wrapper of a gateway.
#[test]
fn a_refusal_of_thinking_in_other_words_removes_it() {
    let rows = [
        (400, "The encrypted content gAAA... could not be verified. Reason: it cannot be parsed."),
        (400, "Unable to submit request because Thought signature is not valid.."),
        (400, "Corrupted thought signature."),
        (
            429,
            "All attempts failed: HTTP 400: 1.content.0: Invalid `signature` in `thinking` block",
        ),
        (500, "AnthropicException - messages.1.content.0: Invalid `signature` in `thinking` block"),
        (400, "messages[1]: unknown variant `thinking`, expected one of `text`, `tool_use`"),
    ];
    for (status, message) in rows {
        let found = said(status, message).rejected_content();
        assert_eq!(found, Some(RejectedContent::Thinking), "{message}");
    }
}

/// A refusal of thinking may name effort as its replacement.
#[test]
fn a_refusal_that_dropping_effort_may_fix_is_recognised_by_its_text() {
    let cases = [
        (400, "This model does not support the effort parameter.", true),
        (400, "output_config: Extra inputs are not permitted", true),
        (422, "output_config.effort: Input should be 'low', 'medium' or 'high'", true),
        (400, "Effort must be lower, or thinking off", true),
        (
            400,
            "thinking.type.enabled is not supported. Use thinking.type.adaptive and \
             output_config.effort",
            false,
        ),
        (400, "thinking: Extra inputs are not permitted", false),
        (500, "effort failed", false),
        (401, "effort", false),
    ];
    for (status, message, expected) in cases {
        assert_eq!(said(status, message).refuses(OptionalField::Effort), expected, "{message}");
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
        assert_eq!(said(400, message).fault.most_images(), expected, "{message}");
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
        ("Your request exceeded model token limit: 131072 (requested: 140210)", Some(131_072)),
        ("Too many input tokens. Max input tokens: 128000, request: 140000", Some(128_000)),
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
fn the_size_of_the_input_is_read_from_every_wording_of_an_overflow_with_the_output() {
    let rows = [
        (
            8_192,
            Some(9_000),
            "input length and `max_tokens` exceed context limit: 9000 + 8192 > 16384, decrease input length or `max_tokens` and try again",
        ),
        (
            8_192,
            Some(9_000),
            "input length and `max_tokens` exceed context limit: 9000+8192 \\u003e 16384",
        ),
        (
            8_192,
            Some(9_000),
            "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 16384 tokens and your request has 9000 input tokens (8192 > 16384 - 9000).",
        ),
        (
            64_000,
            Some(9_000),
            "'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context length is 32768 tokens and your request has 9000 input tokens (64000 > 32768 - 9000).",
        ),
        (
            8_192,
            Some(9_000),
            "This model's maximum context length is 16,384 tokens. However, you requested 17,192 tokens (8,500 in the messages, 500 in the functions, and 8,192 in the completion). Please reduce the length of the messages or completion.",
        ),
        (
            8_192,
            Some(9_001),
            "You passed 9001 input tokens and requested 8192 output tokens. However, the model's context length is only 16384 tokens, resulting in a maximum input length of 8192 tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=9001)",
        ),
        (
            24_000,
            Some(9_000),
            "This endpoint's maximum context length is 32768 tokens. However, you requested about 33000 tokens (9000 of text input, 24000 in the output).",
        ),
        (
            2_000,
            Some(3_000),
            "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3000 `inputs` tokens and 2000 `max_new_tokens`",
        ),
        (
            32_000,
            Some(9_000),
            "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of 41000 tokens: 9000 tokens from the input messages and 32000 tokens for the completion.",
        ),
        (
            8_192,
            Some(9_000),
            "max_tokens 8192 exceeds the context limit of 16384 with 9000 tokens of input; use at most 7384",
        ),
        // What fits, and what does not name the input or the window in known words.
        (4_096, None, "input length and `max_tokens` exceed context limit: 9000 + 4096 > 16384"),
        (8_192, None, "max_tokens 8192 is more than the context limit of 16384 leaves"),
        (8_192, None, "input length and `max_tokens` exceed context limit: 9000 + 8192"),
        (8_192, None, "prompt is too long: 213462 tokens > 200000 maximum"),
    ];
    for (cap, input, message) in rows {
        assert_eq!(said(400, message).named_input(cap), input, "{message}");
    }
}

#[test]
fn a_refusal_of_cache_marks_is_recognised_by_its_text() {
    for (status, message, expected) in [
        (400, "messages.0.content.0.text.cache_control: Extra inputs are not permitted", true),
        (400, "tools.3.cache_control: Extra inputs are not permitted", true),
        (422, "[{'loc': ('body', 'system', 0, 'cache_control'), 'msg': 'extra fields'}]", true),
        (400, "Prompt caching is not supported for this model", true),
        (403, "You do not have access to explicit prompt caching", true),
        (400, "tools.0.name: too long", false),
        (500, "cache_control", false),
    ] {
        assert_eq!(
            said(status, message).refuses(OptionalField::CacheControl),
            expected,
            "{message}"
        );
        assert_eq!(said(status, message).rejected_content(), None, "{message}");
    }
}

#[test]
fn a_demand_for_a_system_prompt_without_blocks_is_recognised_by_its_text() {
    for (status, message, expected) in [
        (400, "system: Input should be a valid string", true),
        (422, "[{'loc': ('body', 'system'), 'msg': 'str type expected'}]", true),
        (400, "cannot unmarshal array into Go struct field Request.system of type string", true),
        (400, "Invalid type for 'system': expected a string, but got an array instead.", true),
        (400, "messages.0.role: 'system' is not one of these strings", false),
        (400, "messages: system prompt must be a string", false),
        (400, "system: strict structure of instructions expected", false),
        (400, "tools.0.name: Input should be a valid string", false),
        (500, "system: Input should be a valid string", false),
    ] {
        let refused = said(status, message);
        assert_eq!(refused.refuses(OptionalField::SystemBlocks), expected, "{message}");
        assert!(!refused.refuses(OptionalField::CacheControl), "{message}");
    }
}

#[test]
fn a_refusal_of_streaming_is_recognised_by_its_text() {
    for (status, message, expected) in [
        (400, "This model doesn't support tool use in streaming mode.", true),
        (400, "The model is unsupported for streaming", true),
        (400, "The model `x` is not supported for streaming", true),
        (400, "streaming is not supported for this model", true),
        (422, "This model does not support streaming", true),
        (400, "Your organization must be verified to stream this model.", true),
        (400, "Requests with max_tokens > 4096 must have stream=true", false),
        (400, "stream_options: Extra inputs are not permitted", false),
        (400, "Streaming is required for operations that may take longer than 10 minutes", false),
        (400, "Unsupported value: 'stream' does not support true with this model.", true),
        (400, "Streaming is disabled for this deployment", true),
        (422, r#"[{"loc":["body","stream"],"msg":"Input should be False"}]"#, true),
        (501, "Streaming responses are not implemented", true),
        (500, "the upstream is not supported", false),
        (401, "streaming is not supported", false),
    ] {
        assert_eq!(said(status, message).refuses(OptionalField::Streaming), expected, "{message}");
        assert_eq!(said(status, message).rejected_content(), None, "{message}");
    }
}

#[test]
fn the_output_limit_is_read_from_every_wording_of_its_refusal() {
    let named = [
        (
            64_000,
            8_192,
            "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet-20241022",
        ),
        (
            64_000,
            16_384,
            "max_tokens is too large: 64000. This model supports at most 16384 completion tokens, whereas you provided 64000.",
        ),
        (
            64_000,
            8_192,
            "The maximum tokens you requested exceeds the model limit of 8192. Try again with a maximum tokens value that is lower than 8192.",
        ),
        (
            64_000,
            8_192,
            "Malformed input request: #/max_tokens: 64000 is not less or equal to 8192, please reformat your input and try again.",
        ),
        (
            64_000,
            8_192,
            "Unable to submit request because it has a maxOutputTokens value of 64000 but the supported range is from 1 (inclusive) to 8193 (exclusive).",
        ),
        (
            64_000,
            8_192,
            "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model",
        ),
        (64_000, 8_192, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"),
        (
            64_000,
            8_192,
            "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1,8192]",
        ),
        (
            64_000,
            4_096,
            "too many tokens: max tokens must be less than or equal to 4096, the max output for this model",
        ),
        (64_000, 8_192, "max_tokens: Input should be less than or equal to 8192"),
        (
            64_000,
            8_192,
            r#"[{"loc":["body","max_tokens"],"msg":"Input should be less than or equal to 8192","input":64000}]"#,
        ),
        (64_000, 8_192, "max_tokens \u{53c2}\u{6570}\u{6700}\u{5927}\u{503c}\u{4e3a} 8192"),
        (64_000, 8_192, "max_completion_tokens must be between 1-8192"),
        (64_000, 8_192, "The model supports up to 8,192 output tokens; max_tokens was 64,000"),
        (64_000, 8_192, "max_tokens of 64000 is not supported by the model 'x-16k'; limit: 8192."),
        (64_000, 8_192, "max_tokens: 64000 \\u003e 8192"),
        (64_000, 8_192, "max_tokens 64000 exceeds the maximum number of tokens allowed (8192)"),
        (8_192, 3_096, "max_tokens=8192 cannot be greater than max_model_len=3096"),
    ];
    for (cap, limit, message) in named {
        assert_eq!(
            said(400, message).refused_output_cap(cap),
            Some(RefusedCap::Named(limit)),
            "{message}"
        );
        assert_eq!(said(400, message).named_window(), None, "{message}");
    }
    let unnamed = ["max_tokens is too large", "max_tokens exceeds the limit of claude-3-5-haiku"];
    for message in unnamed {
        assert_eq!(
            said(400, message).refused_output_cap(64_000),
            Some(RefusedCap::Unnamed),
            "{message}"
        );
    }
    let others = [
        (400, "max_tokens: Field required"),
        (400, "max_tokens must be greater than thinking.budget_tokens (1024)"),
        (400, "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000"),
        (400, "max_tokens must be at least 1, got -5"),
        (
            400,
            "This model's maximum context length is 32768 tokens, but you requested 64000 output tokens",
        ),
        (400, "prompt is too long: 210000 tokens > 200000 maximum"),
        (400, "messages.1.content.0: 5 > 3"),
        (429, "max_tokens exceeds the limit of 8192 output tokens per minute"),
    ];
    for (status, message) in others {
        assert_eq!(said(status, message).refused_output_cap(64_000), None, "{message}");
    }
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

#[test]
fn a_refused_tool_is_found_by_its_index_or_name() {
    const NAME: &str = "mcp__Files__read-all";
    for (message, expected) in [
        ("tools.14.custom.input_schema: JSON schema is invalid.", Some(14)),
        ("tools[3].function.parameters: bad pattern", Some(3)),
        ("Invalid schema for \"tools\",2,\"input_schema\"", Some(2)),
        ("* GenerateContentRequest.tools[0].function_declarations[5].parameters: missing", Some(5)),
        ("tools.0.cache_control: Extra inputs are not permitted", None),
        ("my_tools.3: no", None),
        ("tools: names must be unique", None),
        ("Invalid schema for function 'mcp__Files__read': array schema missing items.", None),
        ("Invalid schema for function 'mcp__Files__read-all-of-it': no items.", None),
    ] {
        let fault = said(400, message);
        let blamed = (0..20).find(|index| fault.rejects_tool(*index, NAME));
        assert_eq!(blamed, expected, "{message}");
    }
    let named = "Invalid schema for function 'mcp__Files__read-all': array schema missing items.";
    assert!(said(400, named).rejects_tool(7, NAME));
    for many in [
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got one of 140.",
        "'tools' : maximum number of items is 128",
    ] {
        let blamed = (0..300).find(|index| said(400, many).rejects_tool(*index, NAME));
        assert_eq!(blamed, Some(128), "{many}");
    }
    let other = "Invalid 'messages': array too long. Expected an array with maximum length 2048.";
    assert!(!said(400, other).rejects_tool(4_000, NAME));
    assert!(!said(529, "tools.1.custom: overloaded").rejects_tool(1, NAME));
    assert!(!said(400, "mcp__Files__read-all was called with a bad input").rejects_tool(1, NAME));
}
