//! Thinking and effort in requests.

use outlast::model::{Reasoning, RequestContent, ThinkingMode};
use outlast::recovery::ModelCall;
use outlast::transcript::{Block, Message};
use outlast::types::{Effort, ThinkingDisplay};
use serde_json::{Value, json};

use super::{WHOLE, sent_body};

fn body(model: &str, reasoning: Reasoning, cap: u32) -> Value {
    let messages = [Message::user(vec![Block::text("hi")])];
    let content =
        RequestContent { model, messages: &messages, reasoning, ..RequestContent::default() };
    let body = sent_body(&content, &ModelCall { cap, ..WHOLE });
    serde_json::from_str(&body).expect("JSON")
}

/// Models that decide for themselves, that always think, that take a budget, and an unknown one.
const MODELS: [&str; 4] =
    ["claude-sonnet-5-5", "claude-fable-5-1", "claude-sonnet-4-5", "gateway-model"];

#[test]
fn each_kind_of_model_is_asked_to_think_in_its_own_way() {
    use ThinkingMode::{Adaptive, Budget, Off};

    let adaptive = || json!({ "type": "adaptive" });
    let enabled = |tokens: u32| json!({ "type": "enabled", "budget_tokens": tokens });
    let table = [
        (Adaptive, [adaptive(), adaptive(), Value::Null, Value::Null]),
        (Off, [json!({ "type": "disabled" }), Value::Null, Value::Null, Value::Null]),
        (Budget(4_000), [adaptive(), adaptive(), enabled(4_000), enabled(4_000)]),
        (Budget(10_000), [adaptive(), adaptive(), enabled(6_144), enabled(6_144)]),
    ];
    for (thinking, fields) in table {
        for (model, field) in MODELS.into_iter().zip(fields) {
            let reasoning = Reasoning { thinking, ..Reasoning::default() };
            let body = body(model, reasoning, 8_192);
            assert_eq!(body["thinking"], field, "{model} {thinking:?}");
            let has_field = reasoning.asks_for_thinking(model);
            assert_eq!(has_field, !field.is_null(), "{model} {thinking:?}");
        }
    }
}

#[test]
fn a_budget_leaves_room_for_the_answer_below_every_cap() {
    let reasoning = Reasoning { thinking: ThinkingMode::Budget(32_000), ..Reasoning::default() };
    for cap in (1..3_000).chain([8_192, 32_000, 42_000, 64_000, u32::MAX]) {
        let budget = body("claude-opus-4-1", reasoning, cap)["thinking"]["budget_tokens"].as_u64();
        let room = u64::from(cap) - budget.unwrap_or_default();
        assert!(room >= u64::from((cap / 4).min(8_192)), "{cap}: {budget:?}");
        assert!(cap < 42_000 || budget == Some(32_000), "{cap}: {budget:?}");
        assert_eq!(budget.is_some(), cap >= 1_365, "{cap}: 1024 is the least");
    }
}

#[test]
fn an_effort_that_a_model_lacks_becomes_the_next_lower_one() {
    use Effort::{High, Low, Max, Medium, Xhigh};

    let asked = [Low, Medium, High, Xhigh, Max];
    let all = [Some(Low), Some(Medium), Some(High), Some(Xhigh), Some(Max)];
    let table = [
        ("claude-opus-5-5", all),
        ("claude-haiku-5-5-20260901", all),
        ("gateway-model", all),
        ("claude-opus-4-6", [Some(Low), Some(Medium), Some(High), Some(High), Some(Max)]),
        ("claude-opus-4-5", [Some(Low), Some(Medium), Some(High), Some(High), Some(High)]),
        ("claude-sonnet-4-5", [None; 5]),
        ("claude-haiku-4-5", [None; 5]),
    ];
    for (model, sent) in table {
        for (effort, sent) in asked.into_iter().zip(sent) {
            let reasoning = Reasoning { effort: Some(effort), ..Reasoning::default() };
            let field = body(model, reasoning, 100)["output_config"]["effort"].clone();
            assert_eq!(field, json!(sent.map(Effort::name)), "{model} {effort:?}");
            assert_eq!(reasoning.asks_for_effort(model), sent.is_some());
        }
    }
    for model in MODELS {
        assert_eq!(body(model, Reasoning::default(), 100)["output_config"], Value::Null, "{model}");
    }
}

#[test]
fn requests_beside_the_conversation_ask_for_as_little_thinking_as_the_model_allows() {
    let efforts = MODELS.map(|model| body(model, Reasoning::LEAST, 8_192)["output_config"].clone());
    assert_eq!(efforts, [Value::Null, json!({ "effort": "low" }), Value::Null, Value::Null]);
    let asked = Reasoning { effort: Some(Effort::High), ..Reasoning::LEAST };
    assert_eq!(body(MODELS[1], asked, 8_192)["output_config"]["effort"], "high", "a wish counts");
}

#[test]
fn the_display_is_sent_where_the_model_thinks() {
    let display = Some(ThinkingDisplay::Omitted);
    let reasoning = Reasoning { display, ..Reasoning::default() };
    assert_eq!(
        body(MODELS[0], reasoning, 100)["thinking"],
        json!({ "type": "adaptive", "display": "omitted" })
    );
    let off = Reasoning { display, ..Reasoning::LEAST };
    assert_eq!(body(MODELS[0], off, 100)["thinking"], json!({ "type": "disabled" }));
}
