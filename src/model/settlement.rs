//! Computes the cost of an attempt, complete or interrupted, by one rule. Pure.

use serde_json::{Number, Value};

use crate::recovery::Money;
use crate::transcript::{Block, Usage, min_tokens};

use super::prices::{Prices, cost, web_search_price};

/// The cost-relevant data of an attempt. It exists from the service's first message event on: an
/// attempt without one costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Token counts as reported so far.
    pub usage: Usage,
    /// The plausibility of the reported numbers as token counts.
    pub counts: Counts,
    /// Bytes of content. Every token has at least one.
    pub bytes: u64,
    /// The minimum number of tokens of the content.
    pub min_tokens: u64,
    pub output: OutputCount,
    /// True if the model has thought. The service shows less of its thinking than it bills.
    pub has_thinking: bool,
}

/// The plausibility of reported numbers as token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counts {
    #[default]
    Possible,
    /// A number was negative, far too large, or more than the request allowed.
    Impossible,
}

/// The kind of count of the output tokens that was reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputCount {
    /// The count at the start of the message, which excludes the later tokens.
    #[default]
    Opening,
    /// The count at the end of the message.
    Final,
}

/// Upper bounds for the usage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The maximum number of input tokens, derived from the request's bytes.
    pub input: u64,
    /// The model's context window, in tokens.
    pub window: u64,
    /// The requested output cap, in tokens.
    pub cap: u32,
    /// Maximum number of web searches by the service.
    pub searches: u32,
}

/// The cost charged for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The reported counts, limited to plausible values.
    pub usage: Usage,
    pub counts: Counts,
    /// The price of `usage`. `None` if no price is known.
    pub counted: Option<Money>,
    /// The maximum price of tokens that the service did not count.
    pub uncounted: Money,
}

impl Settlement {
    /// The total charge to a budget. `None` if no price is known.
    pub fn total(&self) -> Option<Money> {
        self.counted.map(|counted| counted + self.uncounted)
    }
}

impl Received {
    /// Creates the data of a complete reply.
    pub fn whole(usage: Usage, counts: Counts, content: &[Block]) -> Self {
        let bytes = if content.is_empty() {
            0
        } else {
            serde_json::to_vec(content).map_or(u64::MAX, |json| json.len() as u64)
        };
        let min_tokens = min_tokens(content).max(1);
        let has_thinking = content.iter().any(Block::is_thinking);
        Self { usage, counts, bytes, min_tokens, output: OutputCount::Final, has_thinking }
    }

    /// Merges reported counts. Counts only grow within a reply, so a later zero means a missing
    /// value.
    pub(super) fn report(&mut self, reported: &Value) {
        let Self { usage, counts, .. } = self;
        let mut merge = |count: &mut u64, reported: &Value| {
            let (tokens, possible) = parse_token_count(reported);
            *count = tokens.max(*count);
            *counts = (*counts).max(possible);
        };
        merge(&mut usage.input_tokens, first_stated(reported, INPUT_COUNTS));
        merge(&mut usage.output_tokens, output_count(reported));
        merge(&mut usage.cache_creation_input_tokens, &reported["cache_creation_input_tokens"]);
        merge(&mut usage.cache_read_input_tokens, &reported["cache_read_input_tokens"]);
        let (searches, possible) =
            parse_token_count(&reported["server_tool_use"]["web_search_requests"]);
        usage.web_search_requests = searches.max(usage.web_search_requests);
        *counts = (*counts).max(possible);
    }

    /// Merges the counts reported at the end of the message.
    pub(super) fn report_final(&mut self, reported: &Value) {
        self.report(reported);
        if stated_number(output_count(reported)).is_some() {
            self.output = OutputCount::Final;
        }
    }

    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.min_tokens = self.min_tokens.max(1);
    }

    /// The maximum number of uncounted output tokens, with an output cap of `cap`.
    fn uncounted_output(&self, cap: u32) -> u64 {
        let counted = match self.output {
            OutputCount::Final => self.usage.output_tokens >= self.min_tokens,
            OutputCount::Opening => false,
        };
        let most = match (counted, self.has_thinking) {
            (true, _) => 0,
            (false, true) => cap.into(),
            (false, false) => self.bytes.min(cap.into()),
        };
        most.saturating_sub(self.usage.output_tokens)
    }
}

impl Bounds {
    /// The maximum cost of the request: its input by bytes at the highest price, and its whole
    /// output cap.
    pub fn worst_case(&self, prices: Option<&Prices>) -> Money {
        prices.map_or(Money::ZERO, |prices| {
            prices.max_input_price() * self.input
                + prices.rates.output * u64::from(self.cap)
                + web_search_price() * u64::from(self.searches)
        })
    }

    /// Limits the received counts to those that the request allows. Services add instructions to a
    /// prompt, so an input above its byte bound is accepted as long as it fits the context window.
    pub fn clamp(&self, received: &Received) -> Received {
        let mut clamped = *received;
        let usage = &mut clamped.usage;
        if usage.input() > self.input.max(self.window) {
            *usage = Usage {
                input_tokens: self.input,
                output_tokens: usage.output_tokens,
                web_search_requests: usage.web_search_requests,
                ..Usage::default()
            };
            clamped.counts = Counts::Impossible;
        }
        if usage.web_search_requests > self.searches.into() {
            usage.web_search_requests = self.searches.into();
            clamped.counts = Counts::Impossible;
        }
        if usage.output_tokens > self.cap.into() {
            usage.output_tokens = self.cap.into();
            clamped.counts = Counts::Impossible;
        }
        clamped
    }
}

/// Charges an attempt: the reported tokens, plus the maximum cost of uncounted ones. Some gateways
/// report no counts; charging nothing for them would disable cost budgets.
pub fn settle(prices: Option<&Prices>, bounds: &Bounds, received: &Received) -> Settlement {
    let received = bounds.clamp(received);
    let usage = received.usage;
    let uncounted = prices.map_or(Money::ZERO, |prices| {
        let input = if usage.input() == 0 { bounds.input } else { 0 };
        prices.max_input_price() * input
            + prices.rates.output * received.uncounted_output(bounds.cap)
    });
    let counted = prices.map(|prices| cost(prices, &usage));
    Settlement { usage, counts: received.counts, counted, uncounted }
}

/// Upper bound of a token count: far more than any reply has. Larger counts are implausible and are
/// reduced to it, which also avoids overflow.
const COUNT_MAX: u64 = 1 << 40;

/// The names of the counts, in the Messages API and of gateways that pass on those of other APIs.
const INPUT_COUNTS: [&str; 3] = ["input_tokens", "prompt_tokens", "inputTokens"];
const OUTPUT_COUNTS: [&str; 3] = ["output_tokens", "completion_tokens", "outputTokens"];

/// The count of output tokens in a report of usage.
pub(super) fn output_count(reported: &Value) -> &Value {
    first_stated(reported, OUTPUT_COUNTS)
}

fn first_stated<'a>(reported: &'a Value, names: [&str; 3]) -> &'a Value {
    let mut values = names.iter().map(|name| &reported[*name]);
    values.find(|value| !value.is_null()).unwrap_or(&Value::Null)
}

/// The number that a value states. Some gateways write numbers as texts.
fn stated_number(reported: &Value) -> Option<Number> {
    let as_text = || reported.as_str()?.trim().parse().ok();
    reported.as_number().cloned().or_else(as_text)
}

/// Parses a token count. A value that is not a number counts as 0.
pub(super) fn parse_token_count(reported: &Value) -> (u64, Counts) {
    let Some(number) = stated_number(reported) else { return (0, Counts::Possible) };
    match (number.as_u64(), number.as_f64()) {
        (Some(count), _) if count <= COUNT_MAX => (count, Counts::Possible),
        (Some(_), _) => (COUNT_MAX, Counts::Impossible),
        (None, Some(count)) if count > 0.0 => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "positive, and a cast of what is too large ends at the largest integer"
            )]
            let whole = count.ceil() as u64;
            let counts = if whole > COUNT_MAX { Counts::Impossible } else { Counts::Possible };
            (whole.min(COUNT_MAX), counts)
        }
        (None, Some(0.0)) => (0, Counts::Possible),
        (None, Some(_) | None) => (0, Counts::Impossible),
    }
}
