//! The metrics of a run: histograms of the `GenAI` semantic conventions, and sums of costs, runs
//! and recoveries.

use std::time::Duration;

use super::span::{Attribute, text};

/// The quantity that a histogram measures, as defined by the semantic conventions.
#[derive(Debug, PartialEq)]
pub(super) struct Quantity {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// The upper bounds of all buckets but the last.
    pub(super) bounds: [f64; 14],
}

const TOKENS: &Quantity = &Quantity {
    name: "gen_ai.client.token.usage",
    unit: "{token}",
    bounds: [
        1.0,
        4.0,
        16.0,
        64.0,
        256.0,
        1024.0,
        4096.0,
        16384.0,
        65536.0,
        262_144.0,
        1_048_576.0,
        4_194_304.0,
        16_777_216.0,
        67_108_864.0,
    ],
};

const SECONDS: &Quantity = &Quantity {
    name: "gen_ai.client.operation.duration",
    unit: "s",
    bounds: [
        0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
    ],
};

pub(super) const QUANTITIES: [&Quantity; 2] = [TOKENS, SECONDS];

/// The distribution of the values with the same attributes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Distribution {
    pub(super) quantity: &'static Quantity,
    pub(super) attributes: Vec<Attribute>,
    pub(super) count: u64,
    pub(super) sum: f64,
    /// Number of values in each bucket. The last bucket is for values above all bounds.
    pub(super) buckets: [u64; 15],
}

/// A monotonic sum.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Counter {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) attributes: Vec<Attribute>,
    pub(super) sum: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RunMetrics {
    pub(super) distributions: Vec<Distribution>,
    pub(super) counters: Vec<Counter>,
}

impl RunMetrics {
    /// Counts the tokens of a reply. `kind` is `input` or `output`.
    pub(super) fn tokens(&mut self, model: &str, kind: &'static str, tokens: u64) {
        let mut attributes = chat_attributes(model);
        attributes.push(text("gen_ai.token.type", kind));
        // Exact up to 2^53 tokens.
        #[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
        self.record(TOKENS, attributes, tokens as f64);
    }

    /// Records the duration of a request, and the class of the failure that ended it.
    pub(super) fn request(&mut self, model: &str, took: Duration, error: Option<&str>) {
        let mut attributes = chat_attributes(model);
        attributes.extend(error.map(|error| text("error.type", error)));
        self.record(SECONDS, attributes, took.as_secs_f64());
    }

    /// Adds to the counter with this name and these attributes.
    pub(super) fn add(
        &mut self,
        name: &'static str,
        unit: &'static str,
        attributes: Vec<Attribute>,
        value: f64,
    ) {
        let same =
            |counter: &&mut Counter| counter.name == name && counter.attributes == attributes;
        match self.counters.iter_mut().find(same) {
            Some(counter) => counter.sum += value,
            None => self.counters.push(Counter { name, unit, attributes, sum: value }),
        }
    }

    fn record(&mut self, quantity: &'static Quantity, attributes: Vec<Attribute>, value: f64) {
        let same =
            |known: &Distribution| known.quantity == quantity && known.attributes == attributes;
        let at = self.distributions.iter().position(same).unwrap_or_else(|| {
            let (count, sum, buckets) = (0, 0.0, [0; 15]);
            self.distributions.push(Distribution { quantity, attributes, count, sum, buckets });
            self.distributions.len() - 1
        });
        let distribution = &mut self.distributions[at];
        // A bucket includes its upper bound.
        let bucket = quantity.bounds.partition_point(|bound| *bound < value);
        distribution.buckets[bucket] += 1;
        distribution.count += 1;
        distribution.sum += value;
    }
}

/// Returns the attributes that the spans and metrics of all requests have.
pub(super) fn chat_attributes(model: &str) -> Vec<Attribute> {
    vec![
        text("gen_ai.operation.name", "chat"),
        text("gen_ai.provider.name", "anthropic"),
        text("gen_ai.request.model", model),
    ]
}
