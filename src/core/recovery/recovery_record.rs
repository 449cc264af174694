//! Recovery records: one recovery from its first failure to its end, for results and journals.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use super::{Money, RecoveryCause, Spending, Transition};

/// A finished recovery. All failures of a call belong to one recovery, until a whole reply arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryRecord {
    /// The first failure: an error class, or the name of another cause of a recovery.
    pub class: String,
    /// The number of failures by name, including the one that ended the run.
    pub failures: RecoveryCounts,
    /// The last recovery plan that was tried.
    pub strategy: String,
    /// The number of recovery plans that were tried, by name.
    pub strategies: RecoveryCounts,
    /// The name of the last reason why the loop continued, if any plan has one
    /// ([`RecoveryPlan::transition`](super::RecoveryPlan::transition)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transition: Option<String>,
    /// The turn in which the recovery began.
    pub turn: u32,
    /// Requests made for the call, including the first one; for an answer or a command that must be
    /// accepted, the number of times that it was judged.
    pub attempts: u32,
    /// Time spent in pauses.
    #[serde(rename = "waited_ms", with = "millis")]
    pub waited: Duration,
    /// Time from the first failure to the end.
    #[serde(rename = "took_ms", with = "millis")]
    pub took: Duration,
    /// Input and output tokens that were paid for in addition to the expected reply.
    pub tokens: u64,
    /// The cost of these tokens, in pico-dollars. No call is charged to two recoveries.
    pub cost: Money,
    /// True if some tokens have no known price, so that the cost is incomplete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cost_is_partial: bool,
    /// True if the goal was reached.
    pub saved: bool,
    /// The stop reason of the run, if the goal was not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_to: Option<String>,
}

impl RecoveryRecord {
    /// The cost, as far as prices are known.
    pub fn spending(&self) -> Spending {
        Spending { amount: self.cost, is_partial: self.cost_is_partial }
    }
}

/// Numbers of occurrences by name, in the order of the first occurrences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<String, u32>")]
pub struct RecoveryCounts(Vec<(String, u32)>);

impl RecoveryCounts {
    pub(super) fn add(&mut self, name: &str) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, times)) => *times = times.saturating_add(1),
            None => self.0.push((name.to_owned(), 1)),
        }
    }

    /// The number of occurrences of `name`.
    pub fn of(&self, name: &str) -> u32 {
        self.iter().find(|(known, _)| *known == name).map_or(0, |(_, times)| times)
    }

    pub fn sum(&self) -> u32 {
        self.iter().map(|(_, times)| times).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().map(|(name, times)| (name.as_str(), *times))
    }
}

impl From<BTreeMap<String, u32>> for RecoveryCounts {
    fn from(map: BTreeMap<String, u32>) -> Self {
        Self(map.into_iter().collect())
    }
}

impl Serialize for RecoveryCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(crate::text::millis(*time))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_millis(u64::deserialize(from)?))
    }
}

/// The goal of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecoveryGoal {
    /// Room in the window, ahead of need.
    Summary,
    /// A whole reply.
    Reply,
    /// An answer that fits its schema.
    Shape,
    /// An answer with enough effort behind it.
    Effort,
    /// An answer that no Stop hook objects to.
    Consent,
    /// A command that passes.
    Acceptance,
}

impl RecoveryGoal {
    /// True if a single call can reach the goal, rather than one or several turns.
    pub(super) fn is_of_a_call(self) -> bool {
        match self {
            Self::Summary | Self::Reply => true,
            Self::Shape | Self::Effort | Self::Consent | Self::Acceptance => false,
        }
    }
}

impl RecoveryCause {
    /// The name of the cause as a failure, and the goal of the recovery from it. `None` for a cause
    /// that is not a failure of its own: the call that waits for capacity has failed before.
    pub(super) fn as_failure(self) -> Option<(&'static str, RecoveryGoal)> {
        use RecoveryGoal as G;

        Some(match self {
            Self::Failed(failure) => (failure.class.name(), G::Reply),
            Self::CutShort(_) => ("max_output_tokens", G::Reply),
            Self::Empty => ("empty_response", G::Reply),
            Self::Incomplete(_) => ("incomplete_response", G::Reply),
            Self::Paused => ("pause_turn", G::Reply),
            Self::LeftOpen => ("left_open", G::Effort),
            Self::Idle => ("token_budget", G::Effort),
            Self::Crowded => ("context_window", G::Summary),
            Self::Full(_) => ("context_window", G::Reply),
            Self::NoSummary(_) | Self::UnusableSummary => ("no_summary", G::Reply),
            Self::Unstructured => ("structured_output", G::Shape),
            Self::Unmet => ("requirement", G::Acceptance),
            Self::Objected => ("stop_hook", G::Consent),
            Self::PreferredModelDue => ("on_fallback_model", G::Reply),
            Self::Unreported | Self::ProbeDue | Self::CapacityBack => return None,
        })
    }
}

impl Transition {
    /// The name of the failure that the step has a plan for: an error class, or the name of another
    /// cause of a recovery.
    pub fn failure_class(&self) -> Option<&'static str> {
        self.cause?.as_failure().map(|(class, _)| class)
    }
}
