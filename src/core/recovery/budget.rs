//! Budgets: every action that can repeat is counted and bounded here.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

/// An event with which some budgets are renewed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    /// A new process repeats its calls and requests, and refused content may not have been removed
    /// before the old process ended. Turns, summaries and the retry bucket stay spent.
    Beginning,
    /// A call was answered.
    Answer,
    /// The reply of a turn ended normally.
    Turn,
    /// The Stop hooks accepted an answer, so later objections concern another answer.
    Consent,
    /// A nudge had enough effect.
    Effort,
    /// Another model is asked. The bucket belongs to the run, not to the model.
    Switch,
    /// The preferred model is tried again or has answered. A trial is paid for with a probe, which
    /// is never renewed, and an answer with a call.
    Return,
    /// A summary is about to be requested.
    Compacting,
    /// A compaction succeeded: only consecutive failures count.
    Summary,
}

/// Writes the fields that differ from the default.
macro_rules! write_changed {
    ($map:ident, $budgets:ident, $($field:ident),*) => {
        $(if $budgets.$field != Budgets::DEFAULT.$field {
            $map.serialize_entry(stringify!($field), &$budgets.$field)?;
        })*
    };
}

/// Defines the budgets from one row each: the price of one recovery, the field that counts it, the
/// default amount, and the events with which the full amount is restored.
macro_rules! budgets {
    ($($(#[$doc:meta])* $price:ident $({ $tokens:ident: $unit:ty })? =>
        $field:ident: $amount:ty = $default:expr, renewed by [$($renewal:ident),*];)*) => {
        /// The price of one recovery.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Budget {
            $($(#[$doc])* $price $({ $tokens: $unit })?,)*
        }

        /// The remaining budgets, by the field of each row; `None` is unlimited. Every recovery
        /// spends one of these; the renewals of its row, and nothing else, restore it. Budgets per
        /// session are never renewed. A record has those that differ from the default.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
        #[serde(default)]
        pub struct Budgets {
            $(pub $field: $amount,)*
            /// The retry quota of the run: keeps a fleet of runs from prolonging an outage.
            pub bucket: u16,
            /// The tokens that retries took from the bucket since a call was last answered.
            pub bucket_taken: u16,
        }

        impl Serialize for Budgets {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                write_changed!(map, self, $($field,)* bucket, bucket_taken);
                map.end()
            }
        }

        impl Budgets {
            /// The default budgets.
            pub const DEFAULT: Self = Self { $($field: $default,)* bucket: 500, bucket_taken: 0 };

            /// Takes one from the field of a price. `None` if nothing is left.
            fn count(mut self, price: Budget) -> Option<Self> {
                match price {
                    $(Budget::$price $({ $tokens: _ })? => self.$field = self.$field.less_one()?,)*
                }
                Some(self)
            }

            /// Restores the amounts of `full` that are renewed by this event.
            #[must_use]
            pub(super) fn renewed_by(mut self, event: Renewal, full: &Self) -> Self {
                $(if [$(Renewal::$renewal),*].contains(&event) {
                    self.$field = full.$field;
                })*
                self
            }
        }
    };
}

budgets! {
    /// One model reply that enters the history (`--max-turns`).
    Turn => turns: Option<u32> = None, renewed by [];
    /// One more attempt at the same call, and `tokens` tokens from the run's retry bucket.
    Retry { tokens: u16 } => retries: u8 = 10, renewed by [Beginning, Answer, Switch];
    /// One change of model. Per session: each model of the chain is tried at most once.
    Switch => switches: u8 = 0, renewed by [Return];
    /// One fresh credential for a rejected one.
    Refresh => refreshes: u8 = 1, renewed by [Beginning, Answer, Switch];
    /// One repetition of a request with the larger output cap.
    Escalation => escalations: u8 = 1, renewed by [Turn];
    /// One message that asks the model to continue a reply that the output limit cut off.
    Continuation => continuations: u8 = 3, renewed by [Turn];
    /// One more try after a reply without content.
    EmptyReply => empty_replies: u8 = 3, renewed by [Turn];
    /// One more try after an incomplete reply.
    IncompleteRetry => incomplete_retries: u8 = 1, renewed by [Turn];
    /// One message that tells the model that its reply was incomplete.
    Completion => completions: u8 = 2, renewed by [Turn];
    /// One resumption after `pause_turn`.
    Resumption => resumptions: u8 = 8, renewed by [Turn];
    /// One nudge towards the token budget that had almost no effect.
    Nudge => nudges: u8 = 3, renewed by [Effort];
    /// One commit of all staged folds.
    FoldCommit => fold_commits: u8 = 1, renewed by [Beginning, Turn];
    /// One summary of the older part of the conversation (`--max-compactions`). Per session.
    Compaction => compactions: Option<u8> = None, renewed by [];
    /// One summary after an overflow: once a turn. It counts as a compaction, too.
    ReactiveCompaction => reactive_compactions: u8 = 1, renewed by [Beginning, Turn];
    /// One repetition of a summarising request that overflowed, without the oldest rounds.
    Trim => trims: u8 = 3, renewed by [Compacting];
    /// One removal of the older part without the summary that an overflow required: once a
    /// turn. Failures of summaries that were not required do not use it up.
    UnsummarisedCompaction => unsummarised_compactions: u8 = 1, renewed by [Beginning, Turn];
    /// One automatic compaction that failed. At zero, automatic compaction is off.
    FailedCompaction => failed_compactions: u8 = 3, renewed by [Summary];
    /// One retry with a smaller output cap, when input and output together did not fit. Without the
    /// size of the input, each cap is half of the last one.
    SmallerCap => smaller_caps: u8 = 7, renewed by [Turn];
    /// One retry without some or all of the media that were too large.
    Strip => strips: u8 = 5, renewed by [Beginning, Turn];
    /// One retry with the refused block repaired.
    BlockRepair => block_repairs: u8 = 8, renewed by [Beginning, Turn];
    /// One retry without some of the content that was added since the last answer.
    AddedContent => added_content: u8 = 2, renewed by [Beginning, Turn, Switch];
    /// One of the fields for thinking and effort, each of which is dropped at most once, as is the
    /// default of a service that thinks without being asked.
    Thinking => thinking: u8 = 3, renewed by [Beginning, Switch];
    /// The cache breakpoints (`cache_control`), which are dropped at most once for each endpoint.
    CacheMarks => cache_marks: u8 = 1, renewed by [Beginning, Switch];
    /// Streaming, which is dropped at most once for each model.
    Streaming => streaming: u8 = 1, renewed by [Beginning, Switch];
    /// One repetition of a request that was refused as too long although it is small.
    OverflowRetry => overflow_retries: u8 = 1, renewed by [Beginning, Turn];
    /// One attempt to go back to the preferred model. Per session.
    Probe => probes: u8 = 24, renewed by [];
    /// One request to the preferred model before a fallback model ends the run.
    PreferredRetry => preferred_retries: u8 = 1, renewed by [Beginning, Answer];
    /// One period at normal speed. Per session.
    CoolDown => cool_downs: u8 = 8, renewed by [];
    /// Fast mode itself, which is disabled at most once.
    FastMode => fast_mode: u8 = 1, renewed by [];
    /// One reminder of something that the model left open. Per run.
    Reminder => reminders: u8 = 1, renewed by [];
    /// One more try at an answer that fits the schema.
    SchemaTry => schema_tries: u8 = 4, renewed by [];
    /// One more try after the requirement was not met.
    RequirementTry => requirement_tries: u8 = 3, renewed by [];
    /// One turn in which the model learns the status of background work after it was done. Per
    /// session.
    Report => reports: u8 = 24, renewed by [];
    /// One objection of a Stop hook that is passed on to the model.
    Objection => objections: u8 = 2, renewed by [Consent];
    /// One wait for a rate limit that is known on this host.
    SharedLimitWait => shared_limit_waits: u8 = 60, renewed by [Beginning, Answer, Switch];
    /// One probe of a service that has no capacity. The default is enough for three days.
    CapacityProbe => capacity_probes: u16 = 10_000, renewed by [Beginning, Answer, Switch];
    /// One call before the end of the back-off because a probe was answered.
    EarlyReturn => early_returns: u8 = 3, renewed by [Beginning, Answer, Switch];
    /// One more attempt after an odd refusal by an endpoint that has answered before.
    OddRefusal => odd_refusals: u8 = 4, renewed by [Beginning, Answer, Switch];
}

impl Default for Budgets {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Budgets {
    /// Pays for one recovery. `None` if the budget is exhausted.
    #[must_use]
    pub fn spend(self, price: Budget) -> Option<Self> {
        let left = self.count(price)?;
        if let Budget::Retry { tokens } = price {
            return left.take_tokens(tokens);
        }
        if price == Budget::ReactiveCompaction {
            left.count(Budget::Compaction)
        } else {
            Some(left)
        }
    }

    /// Takes tokens from the retry bucket. `None` if it has fewer.
    #[must_use]
    pub(super) fn take_tokens(self, tokens: u16) -> Option<Self> {
        let bucket = self.bucket.checked_sub(tokens)?;
        Some(Self { bucket, bucket_taken: self.bucket_taken.saturating_add(tokens), ..self })
    }

    /// Renews the budgets of a single call, which was answered. The bucket gets back the tokens
    /// that the retries took, so it never ends a run whose recoveries succeed; an answer at the
    /// first attempt returns one token more.
    #[must_use]
    pub(super) fn renewed_by_success(self, full: &Self, first_try: bool) -> Self {
        let given_back = self.bucket_taken.saturating_add(u16::from(first_try));
        let bucket = self.bucket.saturating_add(given_back).min(full.bucket);
        Self { bucket, bucket_taken: 0, ..self.renewed_by(Renewal::Answer, full) }
    }
}

/// The remaining amount of a budget.
trait Amount: Sized {
    fn less_one(self) -> Option<Self>;
}

macro_rules! amounts {
    ($($amount:ty)*) => {
        $(impl Amount for $amount {
            fn less_one(self) -> Option<Self> {
                self.checked_sub(1)
            }
        })*
    };
}

amounts!(u8 u16 u32);

/// `None` is unlimited.
impl<T: Amount> Amount for Option<T> {
    fn less_one(self) -> Option<Self> {
        self.map_or(Some(None), |left| left.less_one().map(Some))
    }
}
