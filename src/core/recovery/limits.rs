//! The limits of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AccountKind, Backoff, Budgets, LoopLimits, Moment};

/// The rules of a run: fixed at the start, written to the journal, and not read from the
/// environment again. Each can be set by the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "independent rules")]
pub struct Limits {
    /// The initial budgets, and the amounts that renewals restore.
    pub budgets: Budgets,
    pub backoff: Backoff,
    /// The longest back-off in an uncounted wait for capacity.
    pub longest_capacity_wait: Duration,
    /// The interval of probes in such a wait; `None`: no probes.
    pub probe_interval: Option<Duration>,
    /// The longest wait before a retry; in persistent mode, before all retries of a call together.
    pub max_retry_wait: Duration,
    /// The longest silence allowed while waiting.
    pub heartbeat: Duration,
    pub deadline: Option<Moment>,
    /// Time at which the model gets a notice to wrap up.
    pub wrap_up: Option<Moment>,
    pub persistence: Persistence,
    pub account: AccountKind,
    pub source: QuerySource,
    /// Consecutive overloads before the next model is tried.
    pub overloads_per_switch: u8,
    /// `overloadLimit`: consecutive overloads before the run gives up, when set.
    pub overload_limit: Option<u8>,
    /// Consecutive broken streams before a request without streaming.
    pub torn_streams_per_whole: u8,
    /// The number of further turns without streaming after that request.
    pub whole_turns: u8,
    pub caps: OutputCaps,
    /// `--token-budget`: output tokens the run is asked to spend.
    pub effort: Option<u32>,
    /// True if a conversation is compacted before it fills the window.
    pub auto_compact: bool,
    /// Free room in the window, in tokens, besides the reserved output.
    pub headroom: u32,
    /// Compaction threshold in thousandths of the window, which replaces the headroom if it is set.
    pub compact_at: Option<u16>,
    /// The settings of fast mode. `None` if it was not requested.
    pub fast: Option<FastMode>,
    /// `--fallback-return`: the delay after a switch before the preferred model is tried again.
    pub fallback_return: Option<Duration>,
    /// Bit `n`: model `n + 1` of the chain has another endpoint than model `n`, so that a problem
    /// with the address or credential of one model need not affect the other.
    pub endpoint_changes: u32,
    /// `--require`: true if a command decides that the work is done.
    pub requirement: bool,
    /// True if only the stop reasons of the Messages API end a reply.
    pub strict_stop_reasons: bool,
    /// True if there are Stop hooks.
    pub stop_hooks: bool,
    /// True if the user set the number of objections: then a repeated objection counts like others.
    pub repeats_objections: bool,
    /// `--json-schema`: true if the answer must be structured.
    pub structured: bool,
    /// The thresholds of the loop detector.
    pub loops: LoopLimits,
    /// The bounds of the wait for background work once the model is done.
    pub background: WorkWait,
}

/// Default interval of capacity probes. Together with the jitter of a return, which is a tenth of
/// it, it is below 30 s.
const PROBE_INTERVAL: Duration = Duration::from_secs(25);

/// The bounds of one wait for background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkWait {
    pub most: Duration,
    /// The time without any change after which the model gets, once, the list of commands that the
    /// run waits for: a server that was left running never ends.
    pub quiet: Duration,
}

impl WorkWait {
    /// A wait of at most `most`. A quarter of it may pass without a change, but no more than half a
    /// minute.
    pub fn of(most: Duration) -> Self {
        Self { most, quiet: (most / 4).min(Duration::from_secs(30)) }
    }
}

impl Default for WorkWait {
    fn default() -> Self {
        Self::of(Duration::from_mins(10))
    }
}

/// The settings of fast mode for a shortage of capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastMode {
    /// The longest retry-after that is waited out in fast mode: the prompt cache outlives it.
    pub patience: Duration,
    /// The shortest period at normal speed.
    pub cool_down: Duration,
    /// The period at normal speed if the server does not name one.
    pub unknown: Duration,
}

impl Default for FastMode {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(20),
            cool_down: Duration::from_mins(10),
            unknown: Duration::from_mins(30),
        }
    }
}

impl Limits {
    /// The number of tokens at which a conversation is compacted: the window minus the output
    /// reserved for a first reply, minus some headroom. For a small window, at least half of it; if
    /// it is no larger than the headroom, the `fixed` part, which no compaction reduces, plus half
    /// of the rest. All in tokens; `ceiling` is the model's own output limit.
    pub fn crowded_from(&self, window: u32, ceiling: u32, fixed: u32) -> u32 {
        if let Some(per_mille) = self.compact_at {
            let part = u64::from(window) * u64::from(per_mille) / 1_000;
            return u32::try_from(part).unwrap_or(window).max(1);
        }
        let reserved = self.caps.first.min(ceiling).saturating_add(self.headroom);
        let fixed = if window <= self.headroom { fixed.min(window) } else { 0 };
        let half = fixed + (window - fixed) / 2;
        window.saturating_sub(reserved).max(half)
    }

    /// True if models `a` and `b` of the chain share an endpoint.
    pub(super) fn share_endpoint(&self, a: u8, b: u8) -> bool {
        !(a.min(b)..a.max(b)).any(|model_index| self.next_has_other_endpoint(model_index))
    }

    /// True if the model after `model_index` has another endpoint.
    pub(super) fn next_has_other_endpoint(&self, model_index: u8) -> bool {
        self.endpoint_changes.checked_shr(model_index.into()).unwrap_or(0) & 1 == 1
    }
}

/// Output caps, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputCaps {
    pub first: u32,
    pub escalated: u32,
    /// The largest cap that fits the timeout of a call without streaming.
    pub whole: u32,
    /// The smallest affordable cap with which a call is still made.
    pub floor: u32,
    /// The cap of a summary of the conversation.
    pub summary: u32,
}

/// The failures that are waited out without counting attempts (persistent mode).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Persistence {
    Off,
    /// 429 and 529.
    Capacity,
    /// Connection failures and 5xx as well.
    All,
}

impl Persistence {
    /// The default of [`Limits::max_retry_wait`]: longer in persistent mode.
    pub fn max_retry_wait(self) -> Duration {
        match self {
            Self::Off => Duration::from_mins(10),
            Self::Capacity | Self::All => Duration::from_hours(6),
        }
    }
}

/// The source of the query, which decides whether to retry after an overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuerySource {
    Foreground,
    /// No user waits for the result: in a capacity cascade each retry multiplies load.
    Background,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            budgets: Budgets::DEFAULT,
            backoff: Backoff {
                first: Duration::from_millis(500),
                longest: Duration::from_secs(32),
            },
            longest_capacity_wait: Duration::from_mins(5),
            probe_interval: Some(PROBE_INTERVAL),
            max_retry_wait: Persistence::Off.max_retry_wait(),
            heartbeat: Duration::from_secs(30),
            deadline: None,
            wrap_up: None,
            persistence: Persistence::Off,
            account: AccountKind::ApiKey,
            source: QuerySource::Foreground,
            overloads_per_switch: 3,
            overload_limit: None,
            torn_streams_per_whole: 2,
            whole_turns: 10,
            caps: OutputCaps {
                first: 8_192,
                escalated: 64_000,
                whole: 16_000,
                floor: 1_024,
                summary: 8_192,
            },
            effort: None,
            auto_compact: true,
            headroom: 13_000,
            compact_at: None,
            fast: None,
            fallback_return: None,
            endpoint_changes: 0,
            requirement: false,
            strict_stop_reasons: false,
            stop_hooks: false,
            repeats_objections: false,
            structured: false,
            loops: LoopLimits::default(),
            background: WorkWait::default(),
        }
    }
}
