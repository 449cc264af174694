//! Builds the limits of a run from the settings.

use std::time::Duration;

use crate::config::Config;
use crate::config::environment::ProcessEnv;
use crate::config::kinds::{Span, Tokens, UnattendedRetry};
use crate::process::usable_memory;
use crate::recovery::{
    AccountKind, Backoff, Budgets, Limits, LoopLimits, Moment, OutputCaps, Persistence, WorkWait,
};
use crate::types::AgentLimits;

/// Returns the limits of the recovery state machine. `fallbacks` is the number of models after the
/// first one; `account` is the kind of account that the credential shows.
pub(super) fn limits(
    config: &Config,
    env: &ProcessEnv,
    fallbacks: usize,
    account: AccountKind,
) -> Limits {
    let usual = Limits::default();
    let persistence = match config.unattended_retry {
        UnattendedRetry::Off => Persistence::Off,
        UnattendedRetry::On => Persistence::Capacity,
        UnattendedRetry::All => Persistence::All,
    };
    let Span(probe_interval) = config.capacity_probe_interval;
    let limits = Limits {
        budgets: budgets(config, env, fallbacks),
        backoff: Backoff {
            first: config.retry_first_delay.0,
            longest: config.retry_longest_delay.0,
        },
        persistence,
        max_retry_wait: config.max_retry_wait.map_or(persistence.max_retry_wait(), |it| it.0),
        longest_capacity_wait: config.unattended_longest_delay.0,
        probe_interval: config.capacity_probes.then_some(probe_interval),
        heartbeat: config.heartbeat_interval.0,
        background: WorkWait::of(config.background_wait.0),
        overloads_per_switch: config.overloads_per_fallback,
        torn_streams_per_whole: config.torn_streams_per_whole,
        loops: LoopLimits {
            soft: config.loop_note_at.or_never(),
            hard: config.loop_stop_at.or_never(),
        },
        overload_limit: config.overload_limit,
        strict_stop_reasons: config.strict_stop_reasons,
        headroom: config.compact_headroom.get(),
        effort: config.token_budget.map(Tokens::get),
        account: config.account_kind.unwrap_or(account),
        caps: OutputCaps {
            first: config.max_output_tokens.map_or(usual.caps.first, Tokens::get),
            escalated: config.escalated_output_tokens.get(),
            whole: config.whole_output_tokens.get(),
            floor: config.min_output_tokens.get(),
            ..usual.caps
        },
        ..usual
    };
    let Some(Span(duration)) = config.max_duration else { return limits };
    let begin = Moment::default();
    let part = duration.mul_f64(config.wrap_up_at.get());
    Limits { deadline: Some(begin.after(duration)), wrap_up: Some(begin.after(part)), ..limits }
}

fn budgets(config: &Config, env: &ProcessEnv, fallbacks: usize) -> Budgets {
    let usual = Limits::default().budgets;
    let retries = config.max_retries.0;
    Budgets {
        turns: config.max_turns.map(u32::from),
        retries,
        odd_refusals: usual.odd_refusals.min(retries),
        switches: u8::try_from(fallbacks).unwrap_or(u8::MAX),
        bucket: config.retry_quota,
        continuations: config.output_continuations,
        // An explicit cap is final: only the default one is raised when it proves too small.
        escalations: if config.max_output_tokens.is_some() { 0 } else { usual.escalations },
        empty_replies: config.empty_reply_retries,
        resumptions: config.paused_turn_resumptions,
        compactions: config.max_compactions,
        nudges: config.token_budget_nudges,
        // The last block ends the run; the earlier ones send the model back to work.
        objections: env.stop_block_cap.map_or(usual.objections, |cap| cap.get() - 1),
        ..usual
    }
}

/// Returns the maximum number and depth of sub-agents.
pub(super) fn agents(config: &Config) -> AgentLimits {
    AgentLimits {
        depth: config.max_agent_depth,
        live: config.max_live_agents.get().into(),
        total: config.max_agents,
    }
}

/// Returns the time for which sessions are kept; `None`: for ever.
pub(super) fn keep_sessions(config: &Config) -> Option<Duration> {
    let days = config.cleanup_period_days;
    (days > 0).then(|| Duration::from_hours(24 * u64::from(days)))
}

/// Returns the maximum memory of all commands together, in bytes: by default, they leave a quarter
/// to the rest. `None`: the system does not report the usable memory.
pub(super) fn command_memory(config: &Config) -> Option<u64> {
    // A multiple of a mebibyte, which is shown as a short number.
    let usual = || usable_memory().map(|bytes| (bytes / 4 * 3) >> 20 << 20);
    config.command_memory.map(|size| size.0).or_else(usual)
}
