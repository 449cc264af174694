//! The price list, and sums made from it.

use outlast::model::{ModelFacts, cost, gateway_list_price, model_facts, resolve_alias};
use outlast::recovery::Money;
use outlast::transcript::Usage;
use serde_json::Value;

fn list() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/model/prices.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("readable")).expect("JSON")
}

fn dollars_per_million(dollars: f64) -> Money {
    Money::from_dollars(dollars / 1e6).expect("small")
}

#[test]
fn every_model_of_the_list_has_sensible_facts() {
    let list = list();
    for row in list["models"].as_array().unwrap() {
        let name = row["name"].as_str().unwrap();
        let facts = model_facts(name);
        let prices = facts.prices.unwrap_or_else(|| panic!("{name} has prices"));
        let rates = prices.rates;
        assert_eq!(rates.input, dollars_per_million(row["input"].as_f64().unwrap()), "{name}");
        assert_eq!(rates.output, rates.input * 5, "{name}");
        assert_eq!(prices.max_input_price(), rates.cache_write);
        let quarter_more = rates.input.as_pico_dollars() * 5 / 4;
        assert_eq!(rates.cache_write.as_pico_dollars(), quarter_more, "{name}");
        assert!(rates.cache_read.as_pico_dollars() * 10 <= rates.input.as_pico_dollars());
        assert!(u64::from(facts.max_output) < facts.context_window);
        if let Some(short) = prices.short_prompt {
            assert!(short.rates.input < rates.input && short.rates.output < rates.output, "{name}");
        }
    }
}

#[test]
fn aliases_name_models_of_the_list() {
    for alias in ["default", "inherit", "best", "sonnet", "opus", "haiku", "fable"] {
        let name = resolve_alias(alias);
        assert_ne!(name, alias);
        assert_eq!(model_facts(alias).name, name);
        assert!(model_facts(alias).prices.is_some(), "{alias}");
    }
    for other in ["sonnet[1m]", "Sonnet", " SONNET[1m] "] {
        assert_eq!(resolve_alias(other), resolve_alias("sonnet"), "{other}");
    }
    assert_eq!(resolve_alias("qwen2.5-coder"), "qwen2.5-coder");
}

#[test]
fn a_dated_name_is_its_model_and_a_longer_one_is_not() {
    let dated = model_facts("claude-haiku-4-5-20251001");
    assert_eq!(dated.name, "claude-haiku-4-5-20251001");
    assert_eq!(dated.prices, model_facts("claude-haiku-4-5").prices);
    assert_eq!(
        model_facts("claude-sonnet-4-5-latest").prices,
        model_facts("claude-sonnet-4-5").prices
    );
    // claude-opus-5 is the beginning of claude-opus-5-5's name, and costs something else.
    assert_ne!(model_facts("claude-opus-5-5").prices, model_facts("claude-opus-5").prices);
    for unknown in ["claude-opus-5-9", "claude-opus-5x", "claude-opus-5-2026010", "gpt"] {
        let facts = model_facts(unknown);
        assert_eq!((facts.context_window, facts.max_output), (200_000, 64_000));
        assert_eq!(facts.prices, None, "{unknown}");
    }
}

#[test]
fn the_name_of_a_gateway_has_the_size_of_its_model_and_no_price() {
    for (name, model, listed) in [
        ("anthropic/claude-opus-4-1", "claude-opus-4-1", "15/75"),
        ("openrouter/anthropic/claude-opus-4.1", "claude-opus-4-1", "15/75"),
        ("bedrock/us.anthropic.claude-opus-4-1-20250805-v1:0", "claude-opus-4-1", "15/75"),
        ("vertex_ai/claude-haiku-4-5@20251001", "claude-haiku-4-5", "1/5"),
    ] {
        let (facts, own) = (model_facts(name), model_facts(model));
        assert_eq!((facts.name.as_str(), facts.prices), (name, None));
        let sizes = |facts: &ModelFacts| (facts.context_window, facts.max_output);
        assert_eq!(sizes(&facts), sizes(&own), "{name}");
        assert_eq!(gateway_list_price(name).as_deref(), Some(listed));
    }
    let opus = model_facts("claude-opus-4-1");
    assert_ne!(opus.max_output, model_facts("anthropic/other").max_output);
    assert_eq!(gateway_list_price("anthropic/other"), None);
    assert_eq!(gateway_list_price("claude-opus-4-1"), None);
}

#[test]
fn usage_costs_what_it_says_to_the_last_digit() {
    let prices = model_facts("claude-sonnet-4-5").prices.unwrap();
    let usage = Usage {
        input_tokens: 1_000_000,
        output_tokens: 100_000,
        cache_creation_input_tokens: 200_000,
        cache_read_input_tokens: 3_000_000,
        web_search_requests: 0,
    };
    assert_eq!(cost(&prices, &usage), Money::from_dollars(3.0 + 1.5 + 0.75 + 0.9).unwrap());
}

#[test]
fn a_short_prompt_costs_less_where_it_does() {
    let prices = model_facts("claude-haiku-5-5").prices.unwrap();
    let usage = |cached| Usage {
        input_tokens: 1,
        output_tokens: 1_000,
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: cached,
        web_search_requests: 0,
    };
    let short = dollars_per_million(0.1)
        + dollars_per_million(0.5) * 1_000
        + dollars_per_million(0.01) * 99_999;
    assert_eq!(cost(&prices, &usage(99_999)), short);
    let long = dollars_per_million(0.5)
        + dollars_per_million(2.5) * 1_000
        + dollars_per_million(0.05) * 100_000;
    assert_eq!(cost(&prices, &usage(100_000)), long);
}
