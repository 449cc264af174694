//! Facts about a model: its context window and prices.

use crate::config::models::FilePrice;
use crate::config::values::price_of_one;
use crate::model::{self, ModelFacts, TokenRates};
use crate::recovery::Money;

use super::settings::{ChainEntry, Settings};
use super::usage::UsageError;

/// Returns a model's name, context window and prices; the user's settings outrank the built-in
/// ones.
pub(super) fn model_facts(
    link: &ChainEntry,
    settings: &Settings,
) -> Result<ModelFacts, UsageError> {
    let mut known = model::model_facts(&link.model);
    if let Some(window) = link.context_window {
        known = known.with_context_window(window);
    }
    let service = &settings.chain.endpoints[link.endpoint].kind;
    if service.is_cloud() {
        known.fast = None;
        let percent = model::region_surcharge(service, &link.model);
        known.prices = known.prices.map(|prices| prices.at_percent(percent));
    }
    let configured = link.keys().iter().find_map(|key| settings.config.prices.get(*key));
    let prices = match configured {
        Some(price) => Some(prices(price)?),
        None => known.prices,
    };
    if settings.config.max_budget_usd.is_some() && prices.is_none() {
        let listed = model::gateway_list_price(&link.model).map(|listed| {
            format!("; what Anthropic charges for this model is --price {}={listed}", link.label)
        });
        return Err(UsageError::new(format!(
            "no price is known for the model {name:?}, so no budget can be kept; give one with \
             --price {name}=IN/OUT (US dollars per million tokens; 0/0 where it costs nothing), or \
             in the setting \"prices\"{listed}",
            name = link.label,
            listed = listed.unwrap_or_default()
        )));
    }
    Ok(ModelFacts { prices, ..known })
}

/// Converts the prices of a million tokens to those of one.
pub(super) fn prices(price: &FilePrice) -> Result<model::Prices, UsageError> {
    let one = |per_million: f64| {
        price_of_one(per_million).map_err(|why| UsageError::new(format!("a price {why}")))
    };
    let input = one(price.input)?;
    let quarter = Money::from_pico_dollars(input.as_pico_dollars().div_ceil(4));
    let rates = TokenRates {
        input,
        output: one(price.output)?,
        // No known server charges more for cached input.
        cache_read: price.cache_read.map_or(Ok(input), one)?,
        cache_write: price.cache_write.map_or(Ok(input + quarter), one)?,
    };
    Ok(model::Prices { rates, short_prompt: None })
}
