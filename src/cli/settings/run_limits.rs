//! Builds the limits of a run from flags, environment and files.

use std::time::Duration;

use crate::agent::AgentLimits;
use crate::cli::args::{LimitArgs, RunArgs};
use crate::cli::environment::ProcessEnv;
use crate::recovery::{AccountKind, Backoff, Limits, Moment, Persistence, WorkWait};

use super::file_settings::{ConfiguredAccount, DurationValue, FileSettings, UnattendedRetry};
use super::{DEFAULTS, EndpointSettings};
use crate::cli::args::ModelArgs;
use crate::cli::settings::CredentialSource;

/// Returns the limits of the recovery state machine.
pub(super) fn limits(
    args: &LimitArgs,
    model: &ModelArgs,
    env: &ProcessEnv,
    file: &FileSettings,
    fallbacks: usize,
) -> Limits {
    let mut limits = Limits::default();
    waits(&mut limits, args, env, file);
    let budgets = &mut limits.budgets;
    budgets.turns = args.max_turns.or(env.max_turns).or(file.max_turns).map(u32::from);
    budgets.switches = u8::try_from(fallbacks).unwrap_or(u8::MAX);
    set(&mut budgets.bucket, file.retry_quota);
    set(&mut budgets.continuations, file.output_continuations);
    set(&mut budgets.empty_replies, file.empty_reply_retries);
    set(&mut budgets.resumptions, file.paused_turn_resumptions);
    set(&mut budgets.compactions, model.max_compactions.or(file.max_compactions));
    set(&mut budgets.nudges, file.token_budget_nudges);
    // The last block ends the run; the earlier ones send the model back to work.
    set(&mut budgets.objections, env.stop_block_cap.map(|cap| cap.get() - 1));
    set(&mut limits.overloads_per_switch, file.overloads_per_fallback);
    set(&mut limits.torn_streams_per_whole, file.torn_streams_per_whole);
    let times = |times: u32| if times == 0 { u32::MAX } else { times };
    set(&mut limits.loops.soft, file.loop_note_at.map(times));
    set(&mut limits.loops.hard, file.loop_stop_at.map(times));
    limits.overload_limit = file.overload_limit;
    limits.effort = args.token_budget.or(file.token_budget).map(u32::from);
    limits.account = match file.account_kind {
        None | Some(ConfiguredAccount::ApiKey) => AccountKind::ApiKey,
        Some(ConfiguredAccount::Enterprise) => AccountKind::Enterprise,
        Some(ConfiguredAccount::Subscription) => AccountKind::Subscription,
    };

    let caps = &mut limits.caps;
    if let Some(first) =
        model.max_output_tokens.or(env.max_output_tokens).or(file.max_output_tokens)
    {
        // An explicit cap is final: only the default one is raised when it proves too small.
        caps.first = first.into();
        limits.budgets.escalations = 0;
    }
    set(&mut caps.escalated, file.escalated_output_tokens.map(u32::from));
    set(&mut caps.whole, file.whole_output_tokens.map(u32::from));
    set(&mut caps.floor, file.min_output_tokens.map(u32::from));
    limits
}

/// Sets the timers and waits.
fn waits(limits: &mut Limits, args: &LimitArgs, env: &ProcessEnv, file: &FileSettings) {
    let unattended = env.unattended.or(file.unattended_retry);
    limits.persistence = match unattended {
        None | Some(UnattendedRetry::Off) => Persistence::Off,
        Some(UnattendedRetry::On) => Persistence::Capacity,
        Some(UnattendedRetry::All) => Persistence::All,
    };
    if limits.persistence != Persistence::Off {
        limits.max_retry_wait = DEFAULTS.max_retry_wait_unattended;
    }
    set(&mut limits.max_retry_wait, args.max_retry_wait.or(time(file.max_retry_wait)));
    set(&mut limits.budgets.retries, args.max_retries.or(env.max_retries).or(file.max_retries));
    limits.budgets.odd_refusals = limits.budgets.odd_refusals.min(limits.budgets.retries);
    let Backoff { first, longest } = &mut limits.backoff;
    set(first, time(file.retry_first_delay));
    set(longest, time(file.retry_longest_delay));
    set(&mut limits.longest_capacity_wait, time(file.unattended_longest_delay));
    let probes = |_: &Duration| file.capacity_probes != Some(false);
    let interval = time(file.capacity_probe_interval).or(limits.probe_interval);
    limits.probe_interval = interval.filter(probes);
    set(&mut limits.heartbeat, time(file.heartbeat_interval));
    let background = env.background_wait.or(time(file.background_wait));
    set(&mut limits.background, background.map(WorkWait::of));
    if let Some(duration) = args.max_duration.or(time(file.max_duration)) {
        let begin = Moment::default();
        limits.deadline = Some(begin.after(duration));
        let part = file.wrap_up_at.unwrap_or(DEFAULTS.wrap_up_at);
        limits.wrap_up = Some(begin.after(duration.mul_f64(part)));
    }
}

/// How many sub-agents there may be.
pub(super) fn agents(file: &FileSettings) -> AgentLimits {
    let mut limits = AgentLimits::default();
    set(&mut limits.depth, file.max_agent_depth);
    set(&mut limits.live, file.max_live_agents.map(|most| most.get().into()));
    set(&mut limits.total, file.max_agents);
    limits
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

pub(super) fn time(span: Option<DurationValue>) -> Option<std::time::Duration> {
    span.map(|DurationValue(duration)| duration)
}

/// Where the model is, and how long it may take.
pub(super) fn endpoint(
    args: &RunArgs,
    env: &ProcessEnv,
    file: &FileSettings,
    credential: CredentialSource,
) -> EndpointSettings {
    let (args, network) = (&args.timers, &args.network);
    let idle = args.stream_idle_timeout.or(env.stream_idle_timeout);
    EndpointSettings {
        base_url: env.base_url.clone().unwrap_or_else(|| DEFAULTS.base_url.to_owned()),
        credential,
        headers: env.custom_headers.clone(),
        ca_files: [&network.ca_file[..], &env.ca_files].concat(),
        proxies: env.proxies.clone(),
        connect: args.connect_timeout.or(time(file.connect_timeout)).unwrap_or(DEFAULTS.connect),
        first_byte: args
            .first_byte_timeout
            .or(time(file.first_byte_timeout))
            .unwrap_or(DEFAULTS.first_byte),
        stream_idle: idle.or(time(file.stream_idle_timeout)).unwrap_or(DEFAULTS.stream_idle),
        stream_progress: args
            .stream_progress_timeout
            .or(time(file.stream_progress_timeout))
            .unwrap_or(DEFAULTS.stream_progress),
        reply: args.reply_timeout.or(time(file.reply_timeout)).unwrap_or(DEFAULTS.reply),
        whole: args
            .request_timeout
            .or(env.request_timeout)
            .or(time(file.request_timeout))
            .unwrap_or(DEFAULTS.whole),
        dead_path: args
            .dead_path_timeout
            .or(time(file.dead_path_timeout))
            .unwrap_or(DEFAULTS.dead_path),
    }
}

/// How long sessions are kept; `None`: for ever.
pub(super) fn keep_sessions(file: &FileSettings) -> Option<Duration> {
    let days = file.cleanup_period_days.unwrap_or(DEFAULTS.cleanup_period_days);
    (days > 0).then(|| Duration::from_hours(24 * u64::from(days)))
}
