//! What an attempt cost: one rule for replies that came whole and for those that broke off. Pure.

use serde_json::Value;

use crate::recovery::Money;
use crate::transcript::{Block, Usage, min_tokens};

use super::prices::{Prices, cost};

/// What an attempt received, as far as it costs money. It exists from the moment that the service
/// says that a message begins: an attempt without one costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Tokens, as the service counted them so far.
    pub usage: Usage,
    /// Whether every number that the service reported can be a count of tokens.
    pub counts: Counts,
    /// Bytes of content. No token has less than one.
    pub bytes: u64,
    /// The fewest tokens that the content can have.
    pub min_tokens: u64,
    pub output: OutputCount,
}

/// Whether the numbers that a service reports can be counts of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counts {
    #[default]
    Possible,
    /// One was negative, far too large, or more than the request allowed.
    Impossible,
}

/// Which count of the output tokens a service has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputCount {
    /// The one that a message begins with, which says nothing of what follows.
    #[default]
    Opening,
    /// The one at the end of the message.
    Final,
}

/// What bounds the usage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most input tokens that it can have: by its bytes.
    pub input: u64,
    /// The model's context window, in tokens.
    pub window: u64,
    /// The output tokens that were asked for at most.
    pub cap: u32,
}

/// What an attempt is charged at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// What the service counted, cut to what is possible.
    pub usage: Usage,
    pub counts: Counts,
    /// The price of that. `None` when no price is known.
    pub counted: Option<Money>,
    /// The most that the rest can have cost, which the service did not count.
    pub uncounted: Money,
}

impl Settlement {
    /// All that counts against a budget. `None` when no price is known.
    pub fn total(&self) -> Option<Money> {
        self.counted.map(|counted| counted + self.uncounted)
    }
}

impl Received {
    /// A reply that came whole.
    pub fn whole(usage: Usage, counts: Counts, content: &[Block]) -> Self {
        let bytes = if content.is_empty() {
            0
        } else {
            serde_json::to_vec(content).map_or(u64::MAX, |json| json.len() as u64)
        };
        let min_tokens = min_tokens(content).max(1);
        Self { usage, counts, bytes, min_tokens, output: OutputCount::Final }
    }

    /// Takes in what the service reports. Counts only grow within a reply, so a later zero is a
    /// gap, not a correction.
    pub(super) fn report(&mut self, reported: &Value) {
        let Self { usage, counts, .. } = self;
        let mut merge = |count: &mut u64, name: &str| {
            let (tokens, possible) = parse_token_count(&reported[name]);
            *count = tokens.max(*count);
            *counts = (*counts).max(possible);
        };
        merge(&mut usage.input_tokens, "input_tokens");
        merge(&mut usage.output_tokens, "output_tokens");
        merge(&mut usage.cache_creation_input_tokens, "cache_creation_input_tokens");
        merge(&mut usage.cache_read_input_tokens, "cache_read_input_tokens");
    }

    /// The same at the end of the message.
    pub(super) fn report_final(&mut self, reported: &Value) {
        self.report(reported);
        if reported["output_tokens"].is_number() {
            self.output = OutputCount::Final;
        }
    }

    /// Adds bytes of content.
    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.min_tokens = self.min_tokens.max(1);
    }

    /// The most output tokens that came uncounted, where `cap` were asked for.
    fn uncounted_output(&self, cap: u32) -> u64 {
        let counted = match self.output {
            OutputCount::Final => self.usage.output_tokens >= self.min_tokens,
            OutputCount::Opening => false,
        };
        let most = if counted { 0 } else { self.bytes.min(cap.into()) };
        most.saturating_sub(self.usage.output_tokens)
    }
}

impl Bounds {
    /// The most that the request can cost: the input by its bytes at the dearest price, and all of
    /// the output that it asks for.
    pub fn worst_case(&self, prices: Option<&Prices>) -> Money {
        prices.map_or(Money::ZERO, |prices| {
            prices.max_input_price() * self.input + prices.output * u64::from(self.cap)
        })
    }

    /// What was received, with counts that the request allows. Services add instructions of their
    /// own to a prompt, so an input beyond its bytes is believed as long as it fits the window.
    pub fn clamp(&self, received: &Received) -> Received {
        let mut clamped = *received;
        let usage = &mut clamped.usage;
        if usage.input() > self.input.max(self.window) {
            *usage = Usage {
                input_tokens: self.input,
                output_tokens: usage.output_tokens,
                ..Usage::default()
            };
            clamped.counts = Counts::Impossible;
        }
        if usage.output_tokens > self.cap.into() {
            usage.output_tokens = self.cap.into();
            clamped.counts = Counts::Impossible;
        }
        clamped
    }
}

/// Charges an attempt that received something: what the service counted, and the most that the
/// rest can have cost. Some gateways count nothing; were that taken for nothing spent, no budget
/// would ever end a run.
pub fn settle(prices: Option<&Prices>, bounds: &Bounds, received: &Received) -> Settlement {
    let received = bounds.clamp(received);
    let usage = received.usage;
    let uncounted = prices.map_or(Money::ZERO, |prices| {
        let input = if usage.input() == 0 { bounds.input } else { 0 };
        prices.max_input_price() * input + prices.output * received.uncounted_output(bounds.cap)
    });
    let counted = prices.map(|prices| cost(prices, &usage));
    Settlement { usage, counts: received.counts, counted, uncounted }
}

/// Far more tokens than any reply has. What counts more is not believed, and never overflows.
const COUNT_MAX: u64 = 1 << 40;

/// A count of tokens, as far as a number can be one. What is no number says nothing.
fn parse_token_count(reported: &Value) -> (u64, Counts) {
    let Value::Number(number) = reported else { return (0, Counts::Possible) };
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
