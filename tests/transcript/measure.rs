//! How large a conversation is: never underestimated.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outlast::transcript::{Block, History, Message, ToolDefinition, Usage, fixed_bytes};
use proptest::prelude::*;
use serde_json::json;

use super::arbitrary::valid_messages;

fn user(text: &str) -> Message {
    Message::user(vec![Block::text(text)])
}

fn usage(input: u64, output: u64) -> Usage {
    Usage {
        input_tokens: input / 2,
        cache_read_input_tokens: input - input / 2,
        output_tokens: output,
        ..Usage::default()
    }
}

#[test]
fn before_the_first_reply_every_byte_counts() {
    let tool = ToolDefinition {
        name: "Bash".to_owned(),
        description: "d".repeat(700),
        input_schema: json!({ "type": "object" }),
    };
    let fixed = fixed_bytes(&"s".repeat(1_000), &[tool]);
    assert!(fixed >= 1_700);
    let bound = History::new(vec![user(&"x".repeat(5_000))], fixed).upper_bound();
    assert!(bound >= fixed + 5_000, "{bound}");
    assert!(bound < fixed + 5_200, "{bound} is far from tight");
}

#[test]
fn after_a_reply_only_what_came_since_is_counted_in_bytes() {
    let mut history = History::new(vec![user(&"x".repeat(40_000))], 4_000);
    history
        .push_reply(Message::assistant(vec![Block::text("y".repeat(3_000))]), &usage(10_000, 800));
    let after_reply = history.upper_bound();
    assert!((10_800..11_000).contains(&after_reply), "{after_reply}");
    history.push(user(&"é".repeat(500)));
    let grown = history.upper_bound() - after_reply;
    assert!((1_000..1_200).contains(&grown), "{grown}");
}

#[test]
fn an_edit_brings_the_bytes_of_everything_back() {
    let mut history = History::new(vec![user(&"x".repeat(40_000))], 4_000);
    history.push_reply(Message::assistant(vec![Block::text("fine")]), &usage(10_000, 3));
    history.edit(|messages| messages[0] = user(&"z".repeat(60_000)));
    assert!(history.upper_bound() >= 64_004);
    let before = history.upper_bound();
    history.heard(&usage(14_000, 0));
    assert_eq!(history.upper_bound(), 14_000);
    history.model_changed();
    assert_eq!(history.upper_bound(), before);
}

#[test]
fn a_service_that_does_not_count_is_not_believed() {
    let mut history = History::new(vec![user(&"x".repeat(40_000))], 0);
    let before = history.upper_bound();
    for nonsense in [usage(0, 5), usage(40, 5)] {
        history.heard(&nonsense);
        assert_eq!(history.upper_bound(), before);
    }
    history.push_reply(Message::assistant(vec![Block::text("y".repeat(90))]), &usage(40, 5));
    assert!(history.upper_bound() >= before + 90);
}

#[test]
fn json_counts_as_long_as_any_service_writes_it() {
    let longest = r#"{"a": "\u00e9\ud83d\ude00", "b": [1, 2.5, null], "\u0001": {"c": false}}"#;
    let input = json!({ "a": "é😀", "b": [1, 2.5, null], "\u{1}": { "c": false } });
    let history = |input| {
        let call = Block::ToolUse { id: String::new(), name: String::new(), input };
        History::new(vec![Message::assistant(vec![call])], 0).upper_bound()
    };
    let grown = history(input) - history(json!({}));
    assert!(grown + 2 >= longest.len() as u64, "{grown} < {}", longest.len());
}

#[test]
fn an_image_costs_what_it_may_cost_whatever_its_bytes() {
    let image = |bytes: usize| {
        let source = json!({ "type": "base64", "data": "A".repeat(bytes) });
        History::new(vec![Message::user(vec![Block::Image { source }])], 0).upper_bound()
    };
    assert_eq!(image(10), image(1_000_000));
    assert!(image(10) >= 4_784);
}

#[test]
fn the_estimate_learns_that_text_is_dense() {
    let mut history = History::new(vec![user(&"x".repeat(30_000))], 0);
    let naive = history.estimate();
    assert!((10_000..11_000).contains(&naive), "{naive}");
    history.heard(&usage(15_000, 0));
    history.push(Message::assistant(vec![Block::text("y".repeat(30_000))]));
    let learned = history.estimate() - 15_000;
    assert!((15_000..18_000).contains(&learned), "{learned}");
}

proptest! {
    #[test]
    fn growing_a_history_measures_the_same_as_starting_with_it(messages in valid_messages()) {
        let mut grown = History::new(vec![], 77);
        for message in messages.clone() {
            grown.push(message);
        }
        let whole = History::new(messages.clone(), 77);
        prop_assert_eq!(grown.messages(), &messages[..]);
        prop_assert_eq!(grown.upper_bound(), whole.upper_bound());
        prop_assert!(grown.estimate() <= grown.upper_bound());
    }

    #[test]
    fn no_tokenizer_finds_more_tokens_than_the_bound(
        messages in valid_messages(),
        bytes_per_token in 1u64..5,
        cut in 0usize..9,
    ) {
        let tokens = |messages: &[Message]| -> u64 {
            let bytes = |block: &Block| match block {
                Block::Text { text } => text.len(),
                Block::Thinking { thinking, signature } => thinking.len() + signature.len(),
                Block::ToolUse { id, name, input } => {
                    id.len() + name.len() + input.to_string().len()
                }
                Block::ToolResult { .. }
                | Block::RedactedThinking { .. }
                | Block::Image { .. }
                | Block::Document { .. }
                | Block::Other(_) => 64,
            };
            let sum: usize = messages.iter().flat_map(|message| &message.content).map(bytes).sum();
            (sum as u64).div_ceil(bytes_per_token)
        };
        let cut = cut.min(messages.len());
        let mut history = History::new(messages[..cut].to_vec(), 0);
        history.heard(&usage(tokens(&messages[..cut]), 0));
        for message in &messages[cut..] {
            history.push(message.clone());
        }
        prop_assert!(history.upper_bound() >= tokens(&messages));
    }
}

#[test]
fn a_pdf_costs_what_its_pages_may_cost_whatever_its_bytes() {
    let history = |pages: usize, bytes: usize| {
        let mut pdf = "<< /Type /Page >>".repeat(pages).into_bytes();
        pdf.resize(pdf.len() + bytes, b' ');
        let source = json!({ "type": "base64", "data": STANDARD.encode(pdf) });
        History::new(vec![Message::user(vec![Block::Document { source }])], 0)
    };
    assert_eq!(history(3, 9).upper_bound(), history(3, 3_000_000).upper_bound());
    let (bound, estimate) = (history(10, 0).upper_bound(), history(10, 0).estimate());
    assert!((100_000..160_000).contains(&bound), "{bound}");
    assert!((40_000..60_000).contains(&estimate), "{estimate}");
    assert!(history(0, 10_000_000).upper_bound() >= 1_000_000, "100 pages may be out of sight");
    assert!(history(0, 40_000).upper_bound() < 250_000, "but not in so few bytes");
}

#[test]
fn a_service_is_believed_that_counts_few_tokens_in_a_large_pdf() {
    let source = json!({ "type": "base64", "data": "A".repeat(8_000_000) });
    let mut history = History::new(vec![Message::user(vec![Block::Document { source }])], 0);
    history.heard(&usage(24_000, 0));
    assert_eq!(history.upper_bound(), 24_000);
}
