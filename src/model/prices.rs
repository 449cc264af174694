//! What models are called, hold and cost.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::recovery::Money;
use crate::transcript::Usage;

/// A model of the chain: what it is called, holds and costs.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFacts {
    /// The name sent to the service.
    pub name: String,
    /// Tokens.
    pub context_window: u64,
    /// Tokens.
    pub max_output: u32,
    /// `None` when no price is known: then no budget can be kept.
    pub prices: Option<Prices>,
    /// How many times as much fast mode costs. `None` when the model is not known to have one.
    pub fast: Option<u64>,
}

impl ModelFacts {
    /// The same where `window` tokens fit into it.
    #[must_use]
    pub fn with_context_window(self, window: u32) -> Self {
        let max_output = self.max_output.min(window);
        Self { context_window: window.into(), max_output, ..self }
    }

    /// Whether it wants to see the thinking behind the calls that it is in the middle of.
    pub fn requires_prior_thinking(&self) -> bool {
        thinking(&self.name) == Thinking::Budget
    }

    /// What tokens cost at the speed that is asked for.
    pub fn prices_at(&self, fast: bool) -> Option<Prices> {
        let times = self.fast.filter(|_| fast).unwrap_or(1);
        self.prices.map(|prices| prices.scaled(times))
    }
}

/// What tokens of one model cost, per token. The four prices are the dearest that can apply, so
/// that a worst case built from them is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    pub input: Money,
    pub output: Money,
    pub cache_read: Money,
    pub cache_write: Money,
    /// Some models cost less while the prompt is short.
    pub short_prompt: Option<ShortPrompt>,
}

/// What tokens cost, per token, when the whole prompt, cached parts included, is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortPrompt {
    /// The longest prompt that counts as short, in tokens.
    pub up_to: u64,
    pub input: Money,
    pub output: Money,
    pub cache_read: Money,
    pub cache_write: Money,
}

impl Prices {
    fn scaled(self, times: u64) -> Self {
        let short_prompt = self.short_prompt.map(|short| ShortPrompt {
            up_to: short.up_to,
            input: short.input * times,
            output: short.output * times,
            cache_read: short.cache_read * times,
            cache_write: short.cache_write * times,
        });
        Self {
            input: self.input * times,
            output: self.output * times,
            cache_read: self.cache_read * times,
            cache_write: self.cache_write * times,
            short_prompt,
        }
    }

    /// The dearest that a token of input can cost, cached or not.
    pub fn max_input_price(&self) -> Money {
        self.input.max(self.cache_read).max(self.cache_write)
    }
}

/// What `usage` cost. Exact for one reply; for a sum of replies it is an upper bound, since short
/// and long prompts can no longer be told apart.
pub fn cost(prices: &Prices, usage: &Usage) -> Money {
    let (input, output, cache_read, cache_write) = match prices.short_prompt {
        Some(short) if usage.input() <= short.up_to => {
            (short.input, short.output, short.cache_read, short.cache_write)
        }
        Some(_) | None => (prices.input, prices.output, prices.cache_read, prices.cache_write),
    };
    input * usage.input_tokens
        + output * usage.output_tokens
        + cache_read * usage.cache_read_input_tokens
        + cache_write * usage.cache_creation_input_tokens
}

/// How a model wants to be asked to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// With a budget in tokens.
    Budget,
    /// As much as it sees fit. A budget would be refused.
    Adaptive,
}

/// The day the price list was drawn up, as `YYYY-MM-DD`.
pub fn price_list_date() -> &'static str {
    &LIST.date
}

/// The full name behind `sonnet`, `opus` and the like: the newest known. Any other name is
/// returned as it is, without a `[1m]` at its end: the wide window needs no asking.
pub fn resolve_alias(name: &str) -> &str {
    let name = name.trim();
    let name = name.strip_suffix("[1m]").unwrap_or(name);
    LIST.aliases.get(name).and_then(|full| full.as_str()).unwrap_or(name)
}

/// What is known of a model, by its alias, its name, or its name with a date. Of any other only
/// what most models can do is assumed, and no price.
pub fn model_facts(name: &str) -> ModelFacts {
    let name = resolve_alias(name);
    match find_row(name) {
        Some(row) => ModelFacts {
            name: name.to_owned(),
            context_window: row.context_window,
            max_output: row.max_output,
            prices: Some(row.prices()),
            fast: row.fast,
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

/// How to ask `name` to think. An unknown model is asked the old way.
pub fn thinking(name: &str) -> Thinking {
    find_row(name).map_or(Thinking::Budget, |row| row.thinking)
}

#[derive(Deserialize)]
struct PriceList {
    date: String,
    aliases: serde_json::Map<String, serde_json::Value>,
    models: Vec<PriceRow>,
}

#[derive(Deserialize)]
struct PriceRow {
    name: String,
    context_window: u64,
    max_output: u32,
    thinking: Thinking,
    #[serde(flatten)]
    rates: PriceRates,
    short_prompt: Option<ShortRow>,
    fast: Option<u64>,
}

#[derive(Deserialize)]
struct ShortRow {
    up_to: u64,
    #[serde(flatten)]
    rates: PriceRates,
}

/// Dollars per million tokens.
#[derive(Deserialize)]
struct PriceRates {
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
}

impl PriceRow {
    fn prices(&self) -> Prices {
        let [input, output, cache_read, cache_write] = self.rates.per_token();
        let short_prompt = self.short_prompt.as_ref().map(|short| {
            let [input, output, cache_read, cache_write] = short.rates.per_token();
            ShortPrompt { up_to: short.up_to, input, output, cache_read, cache_write }
        });
        Prices { input, output, cache_read, cache_write, short_prompt }
    }
}

impl PriceRates {
    fn per_token(&self) -> [Money; 4] {
        [self.input, self.output, self.cache_read, self.cache_write]
            .map(|dollars| per_million(dollars).expect("a test reads every price of the list"))
    }
}

static LIST: LazyLock<PriceList> = LazyLock::new(|| {
    serde_json::from_str(include_str!("prices.json")).expect("a test reads the whole list")
});

/// `claude-x` is also found by `claude-x-20260131` and `claude-x-latest`.
fn find_row(name: &str) -> Option<&'static PriceRow> {
    LIST.models.iter().find(|row| match name.strip_prefix(row.name.as_str()) {
        Some("" | "-latest") => true,
        Some(rest) => {
            let date = rest.strip_prefix('-').unwrap_or_default();
            date.len() == 8 && date.bytes().all(|digit| digit.is_ascii_digit())
        }
        None => false,
    })
}

fn per_million(dollars: f64) -> Option<Money> {
    Money::from_dollars(dollars / 1e6)
}
