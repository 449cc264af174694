//! The limits of a run that depend on more than their own settings.

use crate::config::Config;
use crate::config::environment::ProcessEnv;
use crate::config::kinds::Fraction;
use crate::process::usable_memory;
use crate::recovery::{AccountKind, Budgets, Limits, Moment, WorkWait};

/// Returns the limits of the recovery state machine. `fallbacks` is the number of models after the
/// first one; `account` is the kind of account that the credential shows. `thinking` is the
/// thinking budget: the default output cap leaves room for it.
pub(super) fn limits(
    config: &Config,
    env: &ProcessEnv,
    fallbacks: usize,
    account: AccountKind,
    thinking: Option<u32>,
) -> Limits {
    let mut limits = Limits {
        budgets: budgets(config, env, fallbacks),
        max_retry_wait: config
            .max_retry_wait
            .unwrap_or_else(|| config.limits.persistence.max_retry_wait()),
        probe_interval: config.limits.probe_interval.filter(|_| config.capacity_probes),
        background: WorkWait::of(config.limits.background.most),
        compact_at: config.compact_at.map(per_mille),
        repeats_objections: env.stop_block_cap.is_some(),
        account: config.account_kind.unwrap_or(account),
        ..config.limits
    };
    let own = limits.caps.first.saturating_add(thinking.unwrap_or_default());
    limits.caps.first = config.max_output_tokens.unwrap_or(own);
    limits.caps.escalated = limits.caps.escalated.max(limits.caps.first);
    let Some(duration) = config.max_duration else { return limits };
    let begin = Moment::default();
    let part = duration.mul_f64(config.wrap_up_at.get());
    Limits { deadline: Some(begin.after(duration)), wrap_up: Some(begin.after(part)), ..limits }
}

fn budgets(config: &Config, env: &ProcessEnv, fallbacks: usize) -> Budgets {
    let own = config.limits.budgets;
    Budgets {
        odd_refusals: own.odd_refusals.min(own.retries),
        switches: u8::try_from(fallbacks).unwrap_or(u8::MAX),
        // An explicit cap is final: only the default one is raised when it proves too small.
        escalations: if config.max_output_tokens.is_some() { 0 } else { own.escalations },
        schema_tries: config.schema_tries - 1,
        // The last block ends the run; the earlier ones send the model back to work.
        objections: env.stop_block_cap.map_or(own.objections, |cap| cap.get() - 1),
        ..own
    }
}

/// Converts a fraction above 0 and at most 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and 1000, as the settings were checked"
)]
fn per_mille(part: Fraction) -> u16 {
    (part.get().clamp(0.001, 1.0) * 1_000.0).round() as u16
}

/// Returns the maximum memory of all commands together, in bytes: by default, three quarters of the
/// usable memory. `None`: the system does not report the usable memory.
pub(super) fn command_memory(config: &Config) -> Option<u64> {
    // Rounded to mebibytes, which are shown as a short number.
    let usual = || usable_memory().map(|bytes| (bytes / 4 * 3) >> 20 << 20);
    config.commands.memory.or_else(usual)
}
