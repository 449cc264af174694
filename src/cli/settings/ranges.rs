//! Range checks: values of settings with the right type that are invalid.

use super::context_windows::WindowSizes;
use super::entry::SMALLEST_WINDOW;
use super::file_settings::{FilePrice, FileSettings};
use super::run_limits::time;
use crate::cli::values;
use crate::model::SHORTEST_PROBING;

/// An invalid value: its path, and the reason.
type RangeError = (Vec<String>, String);

/// Returns all values that are out of range.
pub(super) fn out_of_range(layer: &FileSettings) -> Vec<RangeError> {
    let alone = single(layer).into_iter().map(|(key, why)| (vec![key.to_owned()], why.to_owned()));
    let mut found: Vec<RangeError> = alone.collect();
    if let Some(entry) = layer.fallback_model.repeated() {
        let why = format!("has {:?} twice; name it once", entry.model);
        found.push((vec!["fallbackModel".to_owned()], why));
    }
    for model in layer.context_window.iter().flat_map(WindowSizes::too_small) {
        let path = ["contextWindow"].into_iter().chain(model).map(str::to_owned).collect();
        found.push((path, format!("must be at least {SMALLEST_WINDOW} tokens")));
    }
    for (model, _) in layer.prices.iter().filter(|(_, price)| !is_payable(price)) {
        let why = format!("has no price in US dollars per million tokens for {model:?}");
        found.push((vec!["prices".to_owned(), model.clone()], why));
    }
    found
}

/// Returns those that are a single number.
fn single(layer: &FileSettings) -> Vec<(&'static str, &'static str)> {
    let is_part = |part: f64| part > 0.0 && part <= 1.0;
    let part = "must be above 0 and at most 1";
    let usd = layer.max_budget_usd.map(|usd| values::dollars(&usd.to_string()).is_ok());
    let dead_path = time(layer.dead_path_timeout).map(|time| time >= SHORTEST_PROBING);
    let thinking = layer.max_thinking_tokens.map(|tokens| !(1..1024).contains(&tokens));
    [
        ("maxBudgetUsd", usd, "must be above 0 dollars and below 18 million"),
        ("wrapUpAt", layer.wrap_up_at.map(is_part), part),
        ("compactAt", layer.compact_at.map(is_part), part),
        (
            "maxRetries",
            layer.max_retries.map(|retries| retries <= 100),
            "must be a whole number from 0 to 100",
        ),
        ("maxThinkingTokens", thinking, "must be 0, or at least 1024"),
        ("deadPathTimeout", dead_path, "must be at least 11s"),
    ]
    .into_iter()
    .filter(|(_, fits, _)| *fits == Some(false))
    .map(|(key, _, why)| (key, why))
    .collect()
}

fn is_payable(price: &FilePrice) -> bool {
    let parts = [Some(price.input), Some(price.output), price.cache_read, price.cache_write];
    parts.into_iter().flatten().all(|part| values::price_of_one(part).is_ok())
}
