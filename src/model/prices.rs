//! Names, limits and prices of the known models.

use std::sync::LazyLock;

use serde::Deserialize;

use super::service::canonical_name;
use crate::recovery::Money;
use crate::transcript::Usage;
use crate::types::Effort;

/// The name, limits and prices of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFacts {
    /// The name sent to the service.
    pub name: String,
    /// The context window, in tokens.
    pub context_window: u64,
    /// The maximum output, in tokens.
    pub max_output: u32,
    /// `None` if the price is unknown: then no cost budget can be enforced.
    pub prices: Option<Prices>,
    /// The price factor of fast mode. `None` if the model is not known to support it.
    pub fast: Option<u64>,
}

impl ModelFacts {
    /// Returns the facts with a context window of `window` tokens.
    #[must_use]
    pub fn with_context_window(self, window: u32) -> Self {
        let max_output = self.max_output.min(window);
        Self { context_window: window.into(), max_output, ..self }
    }

    /// True if the model requires the thinking that precedes its unfinished tool calls.
    pub fn requires_prior_thinking(&self) -> bool {
        thinking(&self.name) == Thinking::Budget
    }

    /// The token prices at the requested speed.
    pub fn prices_at(&self, fast: bool) -> Option<Prices> {
        let times = self.fast.filter(|_| fast).unwrap_or(1);
        self.prices.map(|prices| prices.map(|price| price * times))
    }
}

/// The prices of one model, per token. Its rates are the highest that can apply, so that worst
/// cases computed from them are upper bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Prices<T = Money> {
    #[serde(flatten)]
    pub rates: TokenRates<T>,
    /// Lower prices for short prompts, where the model has them.
    pub short_prompt: Option<ShortPrompt<T>>,
}

/// Prices by kind of token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct TokenRates<T = Money> {
    pub input: T,
    pub output: T,
    pub cache_read: T,
    pub cache_write: T,
}

/// Prices for a prompt that is short, cached parts included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct ShortPrompt<T = Money> {
    /// The longest prompt that counts as short, in tokens.
    pub up_to: u64,
    #[serde(flatten)]
    pub rates: TokenRates<T>,
}

impl Prices {
    /// The prices at a service that charges `percent` per cent of the list price, rounded up.
    #[must_use]
    pub fn at_percent(self, percent: u64) -> Self {
        let share = |price: Money| {
            let hundredfold = price.as_pico_dollars().saturating_mul(percent);
            Money::from_pico_dollars(hundredfold.div_ceil(100))
        };
        self.map(share)
    }

    /// The highest price of an input token, cached or not.
    pub fn max_input_price(&self) -> Money {
        self.rates.input.max(self.rates.cache_read).max(self.rates.cache_write)
    }
}

impl<T: Copy> Prices<T> {
    fn map<U>(self, change: impl Fn(T) -> U) -> Prices<U> {
        let change = |TokenRates { input, output, cache_read, cache_write }| TokenRates {
            input: change(input),
            output: change(output),
            cache_read: change(cache_read),
            cache_write: change(cache_write),
        };
        let short = self.short_prompt;
        let short_prompt =
            short.map(|short| ShortPrompt { up_to: short.up_to, rates: change(short.rates) });
        Prices { rates: change(self.rates), short_prompt }
    }
}

/// Computes the price of `usage`. Exact for one reply; for a sum of replies an upper bound, since
/// short and long prompts can no longer be distinguished.
pub fn cost(prices: &Prices, usage: &Usage) -> Money {
    let short = prices.short_prompt.filter(|short| usage.input() <= short.up_to);
    let rates = short.map_or(prices.rates, |short| short.rates);
    rates.input * usage.input_tokens
        + rates.output * usage.output_tokens
        + rates.cache_read * usage.cache_read_input_tokens
        + rates.cache_write * usage.cache_creation_input_tokens
        + web_search_price() * usage.web_search_requests
}

/// The price of one web search by the service.
pub fn web_search_price() -> Money {
    per_token(LIST.web_search * 1e3)
}

/// The form of thinking in a request to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// With a token budget.
    Budget,
    /// Adaptive: the model decides. A budget would be rejected.
    Adaptive,
    /// Adaptive, and never off.
    Always,
}

/// Resolves `sonnet`, `Opus` and other aliases to the newest known model. Any other name is
/// returned unchanged, except for a `[1m]` suffix, which is removed: the wide window is the
/// default.
pub fn resolve_alias(name: &str) -> &str {
    let name = name.trim();
    let name = name.strip_suffix("[1m]").unwrap_or(name);
    let full = LIST.aliases.get(&name.to_ascii_lowercase()).and_then(|full| full.as_str());
    full.unwrap_or(name)
}

/// The aliases and names of models that are known.
pub fn known_names() -> impl Iterator<Item = &'static str> {
    let names = LIST.models.iter().map(|row| row.name.as_str());
    LIST.aliases.keys().map(String::as_str).chain(names)
}

/// Returns the facts of a model by its alias, its name, or its name with a date. For unknown models
/// it assumes common limits and no price.
pub fn model_facts(name: &str) -> ModelFacts {
    let name = resolve_alias(name);
    let exact = find_row(name);
    match exact.or_else(|| find_row_of_gateway(name)) {
        Some(row) => ModelFacts {
            name: name.to_owned(),
            context_window: row.context_window,
            max_output: row.max_output,
            prices: exact.map(|row| row.prices.map(per_token)),
            fast: exact.and_then(|row| row.fast),
        },
        None => ModelFacts {
            name: name.to_owned(),
            context_window: 200_000,
            max_output: 64_000,
            prices: None,
            fast: None,
        },
    }
}

/// The list prices of the model that a gateway offers as `name`, in the format of `--price`. The
/// gateway may charge other prices.
pub fn gateway_list_price(name: &str) -> Option<String> {
    let rates = find_row_of_gateway(name)?.prices.rates;
    Some(format!("{}/{}", rates.input, rates.output))
}

/// The name of a model at Bedrock without prefix, if it differs from `name`.
pub(super) fn bedrock_name(name: &str) -> Option<&'static str> {
    find_row(name)?.bedrock.as_deref()
}

/// The name of a model at Vertex AI, if it differs from `name`.
pub(super) fn vertex_name(name: &str) -> Option<&'static str> {
    find_row(name)?.vertex.as_deref()
}

/// The price of a model in per cent of its list price if requests stay within a geography.
pub(super) fn regional_percent(name: &str) -> u64 {
    find_row(name).map_or(100, |row| row.regional_percent)
}

/// True if the model is in the list.
pub fn is_known(name: &str) -> bool {
    find_row(resolve_alias(name)).is_some()
}

/// The form of a request for thinking to `name`. Unknown models get a token budget.
pub fn thinking(name: &str) -> Thinking {
    let row = find_row(name).or_else(|| find_row_of_gateway(name));
    row.map_or(Thinking::Budget, |row| row.thinking)
}

/// The highest effort up to `wanted` that `name` supports. An unknown model may support `wanted`.
pub(super) fn supported_effort(name: &str, wanted: Effort) -> Option<Effort> {
    let row = find_row(name).or_else(|| find_row_of_gateway(name));
    row.map_or(Some(wanted), |row| {
        row.effort.iter().copied().filter(|level| *level <= wanted).max()
    })
}

#[derive(Deserialize)]
struct PriceList {
    aliases: serde_json::Map<String, serde_json::Value>,
    models: Vec<PriceRow>,
    /// Dollars per thousand searches.
    web_search: f64,
}

#[derive(Deserialize)]
struct PriceRow {
    name: String,
    context_window: u64,
    max_output: u32,
    thinking: Thinking,
    /// The effort levels that the model supports.
    #[serde(default)]
    effort: Vec<Effort>,
    /// Dollars per million tokens.
    #[serde(flatten)]
    prices: Prices<f64>,
    fast: Option<u64>,
    /// The name at Bedrock without prefix, if it differs.
    bedrock: Option<String>,
    /// The name at Vertex AI, if it differs.
    vertex: Option<String>,
    /// The price in per cent of the list price if requests stay within a geography.
    #[serde(default = "usual_regional_percent")]
    regional_percent: u64,
}

/// The default percentage: models with a global endpoint cost a tenth more at their regional ones.
fn usual_regional_percent() -> u64 {
    110
}

static LIST: LazyLock<PriceList> = LazyLock::new(|| {
    serde_json::from_str(include_str!("prices.json")).expect("a test reads the whole list")
});

/// Finds the row of a model. The row of `claude-x` also applies to `claude-x-20260131` and
/// `claude-x-latest`.
fn find_row(name: &str) -> Option<&'static PriceRow> {
    let name = &*canonical_name(name);
    LIST.models.iter().find(|row| match name.strip_prefix(row.name.as_str()) {
        Some("" | "-latest") => true,
        Some(rest) => {
            let date = rest.strip_prefix('-').unwrap_or_default();
            date.len() == 8 && date.bytes().all(|digit| digit.is_ascii_digit())
        }
        None => false,
    })
}

/// Finds the row of a model by a gateway's name for it, whose last part may have a version with
/// dots: `openrouter/anthropic/claude-sonnet-4.5`.
fn find_row_of_gateway(name: &str) -> Option<&'static PriceRow> {
    let (_, last) = name.rsplit_once('/')?;
    find_row(last).or_else(|| find_row(&last.replace('.', "-")))
}

/// Converts dollars per million tokens.
fn per_token(dollars: f64) -> Money {
    Money::from_dollars(dollars / 1e6).expect("a test reads every price of the list")
}
