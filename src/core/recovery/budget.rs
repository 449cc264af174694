//! Budgets: every action that can repeat is counted and bounded here.

use serde::{Deserialize, Serialize};

/// The price of one recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// One model reply that enters the history (`--max-turns`).
    Turn,
    /// One more attempt at the same call, and `tokens` tokens from the run's retry bucket.
    Retry { tokens: u16 },
    /// One more attempt after an odd refusal by an endpoint that has answered before.
    OddRefusal,
    /// One change of model. Per session: each model of the chain is tried at most once.
    Switch,
    /// One fresh credential for a rejected one.
    Refresh,
    /// One repetition of a request with the larger output cap.
    Escalation,
    /// One message that asks the model to continue a reply that the output limit cut off.
    Continuation,
    /// One more try after a reply without content.
    EmptyReply,
    /// One more try after an incomplete reply.
    IncompleteRetry,
    /// One message that tells the model that its reply was incomplete.
    Completion,
    /// One resumption after `pause_turn`.
    Resumption,
    /// One nudge towards the token budget that had almost no effect.
    Nudge,
    /// One commit of all staged folds.
    FoldCommit,
    /// One summary of the older part of the conversation (`--max-compactions`). Per session.
    Compaction,
    /// One summary after an overflow: once a turn. It counts as a compaction, too.
    ReactiveCompaction,
    /// One repetition of a summarising request that overflowed, without the oldest rounds.
    Trim,
    /// One automatic compaction that failed. At zero, automatic compaction is off.
    FailedCompaction,
    /// One retry with a smaller output cap, when input and output together did not fit.
    SmallerCap,
    /// One retry without the media that were too large.
    Strip,
    /// One retry with the refused block repaired.
    BlockRepair,
    /// One of the fields for thinking and effort, each of which is dropped at most once.
    Thinking,
    /// The cache breakpoints (`cache_control`), which are dropped at most once for each endpoint.
    CacheMarks,
    /// One repetition of a request that was refused as too long although it is small.
    OverflowRetry,
    /// One attempt to go back to the preferred model. Per session.
    Probe,
    /// One request to the preferred model before a fallback model ends the run.
    PreferredRetry,
    /// One period at normal speed. Per session.
    CoolDown,
    /// Fast mode itself, which is disabled at most once.
    FastMode,
    /// One reminder of something that the model left open. Per run.
    Reminder,
    /// One more try at an answer that fits the schema.
    SchemaTry,
    /// One more try after the requirement was not met.
    RequirementTry,
    /// One objection of a Stop hook that is passed on to the model.
    Objection,
    /// One turn in which the model learns the status of background work after it was done. Per
    /// session.
    Report,
    /// One wait for a rate limit that is known on this host.
    SharedLimitWait,
    /// One probe of a service that has no capacity.
    CapacityProbe,
    /// One call before the end of the back-off because a probe was answered.
    EarlyReturn,
}

/// The remaining budgets. Every recovery spends one of these; the `renewed_by` functions below, and
/// nothing else, renew them. Budgets per session are never renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Budgets {
    /// `None`: unlimited.
    pub turns: Option<u32>,
    pub retries: u8,
    /// The retry quota of the run: keeps a fleet of runs from prolonging an outage.
    pub bucket: u16,
    /// The tokens that retries took from the bucket since a call was last answered.
    #[serde(default)]
    pub bucket_taken: u16,
    pub switches: u8,
    pub refreshes: u8,
    pub escalations: u8,
    pub continuations: u8,
    pub empty_replies: u8,
    #[serde(default = "all_incomplete_retries")]
    pub incomplete_retries: u8,
    #[serde(default = "all_completions")]
    pub completions: u8,
    pub resumptions: u8,
    pub nudges: u8,
    pub fold_commits: u8,
    /// `None`: unlimited as long as they make progress.
    pub compactions: Option<u8>,
    pub reactive_compactions: u8,
    pub trims: u8,
    pub failed_compactions: u8,
    pub smaller_caps: u8,
    pub strips: u8,
    pub block_repairs: u8,
    #[serde(default = "all_thinking")]
    pub thinking: u8,
    #[serde(default = "all_cache_marks")]
    pub cache_marks: u8,
    #[serde(default = "all_overflow_retries")]
    pub overflow_retries: u8,
    pub probes: u8,
    #[serde(default = "all_preferred_retries")]
    pub preferred_retries: u8,
    pub cool_downs: u8,
    pub fast_mode: u8,
    #[serde(default = "all_reminders")]
    pub reminders: u8,
    pub schema_tries: u8,
    pub requirement_tries: u8,
    #[serde(default = "all_reports")]
    pub reports: u8,
    #[serde(default = "all_objections")]
    pub objections: u8,
    #[serde(default = "all_holds")]
    pub shared_limit_waits: u8,
    #[serde(default = "all_capacity_probes")]
    pub capacity_probes: u16,
    #[serde(default = "all_early_returns")]
    pub early_returns: u8,
    #[serde(default = "all_odd_refusals")]
    pub odd_refusals: u8,
}

/// Default for sessions from versions that did not retry incomplete replies.
fn all_incomplete_retries() -> u8 {
    Budgets::DEFAULT.incomplete_retries
}

/// Default for sessions from versions without completion requests.
fn all_completions() -> u8 {
    Budgets::DEFAULT.completions
}

/// Default for sessions from versions that could not drop the thinking parameter.
fn all_thinking() -> u8 {
    Budgets::DEFAULT.thinking
}

/// Default for sessions from versions that could not drop cache breakpoints.
fn all_cache_marks() -> u8 {
    Budgets::DEFAULT.cache_marks
}

/// Default for sessions from versions without reminders.
fn all_reminders() -> u8 {
    Budgets::DEFAULT.reminders
}

/// Default for sessions from versions that did not retry a doubtful overflow.
fn all_overflow_retries() -> u8 {
    Budgets::DEFAULT.overflow_retries
}

/// Default for sessions from versions without background reports.
fn all_reports() -> u8 {
    Budgets::DEFAULT.reports
}

/// Default for sessions from versions without hooks.
fn all_objections() -> u8 {
    Budgets::DEFAULT.objections
}

/// Default for sessions from versions without shared rate limits.
fn all_holds() -> u8 {
    Budgets::DEFAULT.shared_limit_waits
}

/// Default for sessions from versions without capacity probes.
fn all_capacity_probes() -> u16 {
    Budgets::DEFAULT.capacity_probes
}

/// Default for sessions from versions without early returns.
fn all_early_returns() -> u8 {
    Budgets::DEFAULT.early_returns
}

/// Default for sessions from versions that did not ask the preferred model again.
fn all_preferred_retries() -> u8 {
    Budgets::DEFAULT.preferred_retries
}

/// Default for sessions from versions that did not retry odd refusals.
fn all_odd_refusals() -> u8 {
    Budgets::DEFAULT.odd_refusals
}

impl Budgets {
    /// The default budgets.
    pub const DEFAULT: Self = Self {
        turns: None,
        retries: 10,
        bucket: 500,
        bucket_taken: 0,
        switches: 0,
        refreshes: 1,
        escalations: 1,
        continuations: 3,
        empty_replies: 3,
        incomplete_retries: 1,
        completions: 2,
        resumptions: 8,
        nudges: 3,
        fold_commits: 1,
        compactions: None,
        reactive_compactions: 1,
        trims: 3,
        failed_compactions: 3,
        smaller_caps: 1,
        strips: 1,
        block_repairs: 8,
        thinking: 2,
        cache_marks: 1,
        overflow_retries: 1,
        probes: 24,
        preferred_retries: 1,
        cool_downs: 8,
        fast_mode: 1,
        reminders: 1,
        schema_tries: 4,
        requirement_tries: 3,
        reports: 24,
        objections: 2,
        shared_limit_waits: 60,
        // Enough for three days.
        capacity_probes: 10_000,
        early_returns: 3,
        odd_refusals: 4,
    };

    /// Pays for one recovery. `None` if the budget is exhausted.
    #[must_use]
    pub fn spend(mut self, budget: Budget) -> Option<Self> {
        match budget {
            Budget::Turn => {
                if let Some(turns) = self.turns {
                    self.turns = Some(turns.checked_sub(1)?);
                }
            }
            Budget::Retry { tokens } => {
                self.retries = self.retries.checked_sub(1)?;
                return self.take_tokens(tokens);
            }
            Budget::Switch => self.switches = self.switches.checked_sub(1)?,
            Budget::Refresh => self.refreshes = self.refreshes.checked_sub(1)?,
            Budget::Escalation => self.escalations = self.escalations.checked_sub(1)?,
            Budget::Continuation => self.continuations = self.continuations.checked_sub(1)?,
            Budget::EmptyReply => self.empty_replies = self.empty_replies.checked_sub(1)?,
            Budget::IncompleteRetry => {
                self.incomplete_retries = self.incomplete_retries.checked_sub(1)?;
            }
            Budget::Completion => self.completions = self.completions.checked_sub(1)?,
            Budget::Resumption => self.resumptions = self.resumptions.checked_sub(1)?,
            Budget::Nudge => self.nudges = self.nudges.checked_sub(1)?,
            Budget::FoldCommit => self.fold_commits = self.fold_commits.checked_sub(1)?,
            Budget::Compaction => return self.count_compaction(),
            Budget::ReactiveCompaction => {
                self.reactive_compactions = self.reactive_compactions.checked_sub(1)?;
                return self.count_compaction();
            }
            Budget::Trim => self.trims = self.trims.checked_sub(1)?,
            Budget::FailedCompaction => {
                self.failed_compactions = self.failed_compactions.checked_sub(1)?;
            }
            Budget::SmallerCap => self.smaller_caps = self.smaller_caps.checked_sub(1)?,
            Budget::Strip => self.strips = self.strips.checked_sub(1)?,
            Budget::BlockRepair => self.block_repairs = self.block_repairs.checked_sub(1)?,
            Budget::Thinking => self.thinking = self.thinking.checked_sub(1)?,
            Budget::CacheMarks => self.cache_marks = self.cache_marks.checked_sub(1)?,
            Budget::OverflowRetry => {
                self.overflow_retries = self.overflow_retries.checked_sub(1)?;
            }
            Budget::Probe => self.probes = self.probes.checked_sub(1)?,
            Budget::PreferredRetry => {
                self.preferred_retries = self.preferred_retries.checked_sub(1)?;
            }
            Budget::CoolDown => self.cool_downs = self.cool_downs.checked_sub(1)?,
            Budget::FastMode => self.fast_mode = self.fast_mode.checked_sub(1)?,
            Budget::Reminder => self.reminders = self.reminders.checked_sub(1)?,
            Budget::SchemaTry => self.schema_tries = self.schema_tries.checked_sub(1)?,
            Budget::RequirementTry => {
                self.requirement_tries = self.requirement_tries.checked_sub(1)?;
            }
            Budget::Report => self.reports = self.reports.checked_sub(1)?,
            Budget::Objection => self.objections = self.objections.checked_sub(1)?,
            Budget::SharedLimitWait => {
                self.shared_limit_waits = self.shared_limit_waits.checked_sub(1)?;
            }
            Budget::CapacityProbe => {
                self.capacity_probes = self.capacity_probes.checked_sub(1)?;
            }
            Budget::EarlyReturn => self.early_returns = self.early_returns.checked_sub(1)?,
            Budget::OddRefusal => self.odd_refusals = self.odd_refusals.checked_sub(1)?,
        }
        Some(self)
    }

    fn count_compaction(self) -> Option<Self> {
        let compactions = match self.compactions {
            None => None,
            Some(left) => Some(left.checked_sub(1)?),
        };
        Some(Self { compactions, ..self })
    }

    /// Takes tokens from the retry bucket. `None` if it has fewer.
    #[must_use]
    pub(super) fn take_tokens(self, tokens: u16) -> Option<Self> {
        let bucket = self.bucket.checked_sub(tokens)?;
        Some(Self { bucket, bucket_taken: self.bucket_taken.saturating_add(tokens), ..self })
    }

    /// Renews the budgets of a new process: it repeats its calls and requests, and refused content
    /// may not have been removed before the old process ended. Turns, summaries and the retry
    /// bucket stay spent.
    #[must_use]
    pub(super) fn renewed_by_beginning(self, full: &Self) -> Self {
        Self {
            retries: full.retries,
            refreshes: full.refreshes,
            fold_commits: full.fold_commits,
            reactive_compactions: full.reactive_compactions,
            strips: full.strips,
            block_repairs: full.block_repairs,
            thinking: full.thinking,
            cache_marks: full.cache_marks,
            overflow_retries: full.overflow_retries,
            shared_limit_waits: full.shared_limit_waits,
            odd_refusals: full.odd_refusals,
            preferred_retries: full.preferred_retries,
            ..self
        }
        .renewed_by_another_wait(full)
    }

    /// Renews the probes that one call may spend.
    #[must_use]
    fn renewed_by_another_wait(self, full: &Self) -> Self {
        let (capacity_probes, early_returns) = (full.capacity_probes, full.early_returns);
        Self { capacity_probes, early_returns, ..self }
    }

    /// Renews the budgets of a single call, which was answered. The bucket gets back the tokens
    /// that the retries took, so it never ends a run whose recoveries succeed; an answer at the
    /// first attempt returns one token more.
    #[must_use]
    pub(super) fn renewed_by_success(self, full: &Self, first_try: bool) -> Self {
        let given_back = self.bucket_taken.saturating_add(u16::from(first_try));
        let bucket = self.bucket.saturating_add(given_back).min(full.bucket);
        let (retries, refreshes, holds) = (full.retries, full.refreshes, full.shared_limit_waits);
        Self {
            retries,
            bucket,
            bucket_taken: 0,
            refreshes,
            shared_limit_waits: holds,
            odd_refusals: full.odd_refusals,
            preferred_retries: full.preferred_retries,
            ..self
        }
        .renewed_by_another_wait(full)
    }

    /// Renews the budgets of a single turn, whose reply ended normally.
    #[must_use]
    pub(super) fn renewed_by_turn(self, full: &Self) -> Self {
        Self {
            escalations: full.escalations,
            continuations: full.continuations,
            empty_replies: full.empty_replies,
            incomplete_retries: full.incomplete_retries,
            completions: full.completions,
            resumptions: full.resumptions,
            fold_commits: full.fold_commits,
            reactive_compactions: full.reactive_compactions,
            smaller_caps: full.smaller_caps,
            strips: full.strips,
            block_repairs: full.block_repairs,
            overflow_retries: full.overflow_retries,
            ..self
        }
    }

    /// Renews the objections after the Stop hooks accepted an answer: the next stop is another one.
    #[must_use]
    pub(super) fn renewed_by_consent(self, full: &Self) -> Self {
        Self { objections: full.objections, ..self }
    }

    /// Renews the nudges after one of them had enough effect.
    #[must_use]
    pub(super) fn renewed_by_effort(self, full: &Self) -> Self {
        Self { nudges: full.nudges, ..self }
    }

    /// Renews the attempts for a new model. The bucket belongs to the run, not to the model.
    #[must_use]
    pub(super) fn renewed_by_switch(self, full: &Self) -> Self {
        let (retries, refreshes, holds) = (full.retries, full.refreshes, full.shared_limit_waits);
        Self {
            retries,
            refreshes,
            shared_limit_waits: holds,
            odd_refusals: full.odd_refusals,
            cache_marks: full.cache_marks,
            thinking: full.thinking,
            ..self
        }
        .renewed_by_another_wait(full)
    }

    /// Renews the switches away from the preferred model when it is tried again or has answered. A
    /// trial is paid for with a probe, which is never renewed, and an answer with a call.
    #[must_use]
    pub(super) fn renewed_by_return(self, full: &Self) -> Self {
        Self { switches: full.switches, ..self }
    }

    /// Renews the trims at the start of a summary.
    #[must_use]
    pub(super) fn renewed_by_compacting(self, full: &Self) -> Self {
        Self { trims: full.trims, ..self }
    }

    /// Renews the failed compactions after one succeeded: only consecutive failures count.
    #[must_use]
    pub(super) fn renewed_by_summary(self, full: &Self) -> Self {
        Self { failed_compactions: full.failed_compactions, ..self }
    }
}
