//! Sums of recoveries by the class of the failure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::recovery::{Money, RecoveryRecord, Spending};
use crate::text::millis;

/// The sum of all recoveries of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecoverySummary {
    /// The first failure: an error class, or the name of another kind of failure.
    pub class: String,
    /// Number of recoveries.
    pub fired: u32,
    /// Number of recoveries that reached their goal.
    pub saved: u32,
    /// Number of recoveries that had not reached their goal when the run ended.
    pub lost: u32,
    /// Number of attempts, the first ones included: requests, or checks of an answer or a command.
    pub attempts: u32,
    /// Total duration of the pauses.
    #[serde(rename = "waited_ms", serialize_with = "as_millis")]
    pub waited: Duration,
    /// Input and output tokens that were paid for, without those of the expected replies.
    pub tokens: u64,
    /// Cost of these tokens.
    #[serde(rename = "cost_usd", serialize_with = "as_dollars")]
    pub cost: Spending,
    /// Number of uses of each recovery strategy, by its name.
    pub strategies: BTreeMap<String, u32>,
}

fn as_millis<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(millis(*time))
}

/// Serializes `null` if a price is unknown.
fn as_dollars<S: Serializer>(cost: &Spending, to: S) -> Result<S::Ok, S::Error> {
    cost.total().map(Money::as_dollars).serialize(to)
}

impl RecoverySummary {
    pub(super) fn add(&mut self, other: &Self) {
        self.fired = self.fired.saturating_add(other.fired);
        self.saved = self.saved.saturating_add(other.saved);
        self.lost = self.lost.saturating_add(other.lost);
        self.attempts = self.attempts.saturating_add(other.attempts);
        self.waited = self.waited.saturating_add(other.waited);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.cost += other.cost;
        for (name, times) in &other.strategies {
            let sum = self.strategies.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*times);
        }
    }
}

impl From<&RecoveryRecord> for RecoverySummary {
    fn from(record: &RecoveryRecord) -> Self {
        let strategies = record.strategies.iter();
        let strategies = strategies.map(|(name, times)| (name.to_owned(), times)).collect();
        Self {
            class: record.class.clone(),
            fired: 1,
            saved: u32::from(record.saved),
            lost: u32::from(!record.saved),
            attempts: record.attempts,
            waited: record.waited,
            tokens: record.tokens,
            cost: record.spending(),
            strategies,
        }
    }
}

/// Recoveries by class, in the order of the first occurrence of each class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryTable {
    classes: Vec<RecoverySummary>,
}

impl RecoveryTable {
    pub fn add(&mut self, summary: &RecoverySummary) {
        match self.classes.iter_mut().find(|known| known.class == summary.class) {
            Some(known) => known.add(summary),
            None => self.classes.push(summary.clone()),
        }
    }

    pub fn classes(&self) -> &[RecoverySummary] {
        &self.classes
    }

    /// Returns the sum over all classes.
    pub fn sum(&self) -> RecoverySummary {
        let mut sum = RecoverySummary::default();
        for class in &self.classes {
            sum.add(class);
        }
        sum
    }
}

impl<'a> FromIterator<&'a RecoveryRecord> for RecoveryTable {
    fn from_iter<I: IntoIterator<Item = &'a RecoveryRecord>>(records: I) -> Self {
        let mut table = Self::default();
        for record in records {
            table.add(&record.into());
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recoveries_of_a_class_are_added_up() {
        let record = |class: &str, saved: bool| RecoveryRecord {
            class: class.to_owned(),
            attempts: 3,
            waited: Duration::from_secs(2),
            tokens: 10,
            cost: Money::from_pico_dollars(7),
            saved,
            ..RecoveryRecord::default()
        };
        let records =
            [record("rate_limit", true), record("other", true), record("rate_limit", false)];
        let table: RecoveryTable = records.iter().collect();
        let [first, second] = table.classes() else { panic!("{table:?}") };
        assert_eq!((first.class.as_str(), second.class.as_str()), ("rate_limit", "other"));
        assert_eq!((first.fired, first.saved, first.lost, first.attempts), (2, 1, 1, 6));
        assert_eq!((first.waited, first.tokens), (Duration::from_secs(4), 20));
        assert_eq!(table.sum().cost, Money::from_pico_dollars(21).into());
        let unpriced = RecoveryRecord { cost_is_partial: true, ..record("other", true) };
        let table: RecoveryTable = records.iter().chain([&unpriced]).collect();
        assert_eq!(table.sum().cost.total(), None, "a price is missing");
        assert_eq!((table.sum().fired, table.sum().saved), (4, 3));
    }
}
