//! The table of settings: type, default and meaning. The man page prints it, and error messages
//! quote it.

use crate::agent::AgentLimits;
use crate::recovery::Limits;

use super::{DEFAULTS, Defaults};
use crate::cli::timestamps::format_duration;

/// One key of a settings file.
#[derive(Clone, Debug)]
pub struct SettingRow {
    pub name: &'static str,
    /// The allowed values, as the end of the sentence "it takes".
    pub takes: &'static str,
    pub default: String,
    pub meaning: &'static str,
}

const DURATION: &str = "a duration such as \"90s\" or \"1h30m\", or a number of seconds";
const COUNT: &str = "a whole number, at least 1";
const UP_TO_100: &str = "a whole number from 0 to 100";
const UP_TO_255: &str = "a whole number from 0 to 255";
const TIMES: &str = "a whole number, or 0 for never";
const TOKENS: &str = "a whole number of tokens, at least 1";
const BOOL: &str = "true or false";
const NAMES: &str = "a name, or a list of names";

/// Name, what it takes, meaning. In the order in which the manual lists them.
#[rustfmt::skip]
const SHAPES: &[(&str, &str, &str)] = &[
    ("apiKeyHelper", "a text", "A command that prints the key; outranks the environment."),
    ("oauthEndpoint", "an https:// address", "The token endpoint at which a login is renewed; \
        outranks the login file."),
    ("oauthClientId", "a text", "What the token endpoint knows outlast by; outranks the login \
        file."),
    ("model", "a text", "The model, or an alias of one."),
    ("agent", "the name of an agent", "Work as an agent of this kind, as with --agent."),
    ("fallbackModel", "a list of models, MODEL@URL#KEY_VARIABLE or objects with \"model\" and \
        perhaps \"baseUrl\", \"apiKeyEnv\" or \"authTokenEnv\", \"headers\", \"contextWindow\"; or \
        one text with commas", "Models to fall back to, best first; see outlast-recovery(7)."),
    ("fallbackReturn", BOOL, "After a while, try the first model again."),
    ("fast", BOOL, "Ask for fast answers where the service has them."),
    ("prices", "an object of models, each with \"input\" and \"output\" and perhaps \"cacheRead\" \
        and \"cacheWrite\", in US dollars per million tokens", "What models cost."),
    ("env", "an object of texts or numbers", "Variables for outlast itself and for the commands it runs."),
    ("permissions", "an object with \"allow\", \"ask\", \"deny\", \"additionalDirectories\", \
        \"defaultMode\" and \"disableBypassPermissionsMode\"", "What tools may do without asking. \
        What would be asked is denied."),
    ("onDenied", "\"continue\" or \"fail\"", "Whether a tool call that is denied ends the run."),
    ("hooks", "an object of events, as in outlast-hooks(7)", "Programs that are told what happens and have a \
        say in it. Those of all files run."),
    ("disableAllHooks", BOOL, "Run no hooks."),
    ("allowManagedHooksOnly", BOOL, "Run no hooks but those of managed settings. Only there."),
    ("allowManagedPermissionRulesOnly", BOOL, "Rules that allow something count in managed \
        settings only, and not even as flags. Only there."),
    ("trustedProjects", "a list of folders, or of objects with \"path\", \"sha256\" or both", "Repositories \
        whose own settings are used; see outlast-security(7). Never read from a repository."),
    ("mcpServers", "an object of servers, each with \"command\", \"args\" and \"env\", or with \
        \"type\": \"http\", \"url\" and \"headers\", and perhaps \"timeout\"", "Servers whose \
        tools the model is offered; see outlast-mcp(7)."),
    ("maxTurns", COUNT, "Stop after so many model replies."),
    ("maxBudgetUsd", "a number of US dollars above 0", "Never spend more than this."),
    ("budgetMode", "\"ceiling\" or \"after\"", "Whether the budget is a ceiling, or looked at \
        after each reply."),
    ("maxDuration", DURATION, "End in time, whatever goes wrong."),
    ("wrapUpAt", "a number above 0 and at most 1", "The part of the time after which the model is \
        told to wrap up."),
    ("tokenBudget", TOKENS, "Ask for effort: output tokens the run should spend."),
    ("tokenBudgetNudges", UP_TO_255, "Nudges in a row that may bring almost nothing."),
    ("require", "a text", "A command that must pass when the model is done; without it, the run \
        is no success."),
    ("requireTimeout", DURATION, "How long that command may take."),
    ("requireRetries", UP_TO_255, "How often a failure of that command goes back to the model."),
    ("schemaTries", "a whole number from 1 to 255", "Answers that may fail to fit --json-schema \
        before the run ends."),
    ("loopNoteAt", TIMES, "How often the same may come to the same, with nothing new in between, \
        before the model is told to take another way."),
    ("loopStopAt", TIMES, "The same for the end of the run as stalled, which never comes before \
        the model was told."),
    ("maxRetries", UP_TO_100, "Tries after the first one, for each request."),
    ("maxRetryWait", DURATION, "End instead of waiting longer than this; 6h in unattended mode."),
    ("retryFirstDelay", DURATION, "The first pause; each further one is twice as long."),
    ("retryLongestDelay", DURATION, "The longest pause of that ladder."),
    ("retryQuota", "a whole number from 0 to 65535", "Tokens of the run's retry bucket: a retry \
        takes 5, one after a time-out 10, an untroubled request gives 1 back."),
    ("unattendedRetry", "\"off\", \"on\" or \"all\"", "Wait out overloads and rate limits without \
        counting; with \"all\", lost connections and server errors too."),
    ("unattendedLongestDelay", DURATION, "The longest pause between tries in unattended mode."),
    ("capacityProbes", BOOL, "Interrupt such a pause by requests for one token, which show whether \
        the service is back."),
    ("capacityProbeInterval", DURATION, "How often."),
    ("overloadLimit", UP_TO_255, "Give up at so many overloads in a row."),
    ("overloadsPerFallback", UP_TO_255, "Overloads in a row before the next model is tried."),
    ("tornStreamsPerWhole", UP_TO_255, "Broken streams in a row before asking without streaming."),
    ("emptyReplyRetries", UP_TO_255, "Further tries after a reply that said nothing."),
    ("pausedTurnResumptions", UP_TO_255, "How often a reply that the service paused is resumed."),
    ("sharedLimits", BOOL, "Share rate-limit state with other runs on this host."),
    ("accountKind", "\"apiKey\", \"enterprise\" or \"subscription\"", "Who pays. A rate limit of a \
        subscription is not retried: it lasts for hours."),
    ("heartbeatInterval", DURATION, "The longest silence on standard error while waiting."),
    ("connectTimeout", DURATION, "How long connecting may take."),
    ("firstByteTimeout", DURATION, "How long the first byte of an answer may take."),
    ("streamIdleTimeout", DURATION, "Cut a stream that brings no byte for so long."),
    ("streamProgressTimeout", DURATION, "Cut a stream that brings no content for so long: pings, \
        unknown events and empty pieces are none."),
    ("replyTimeout", DURATION, "How long an answer that is streamed may take in all, for every 16,000 \
        tokens that it may hold."),
    ("requestTimeout", DURATION, "How long an answer that is not streamed may take."),
    ("deadPathTimeout", DURATION, "How long a connection may show no sign of life, probes included, \
        before it counts as lost; at least 11s."),
    ("stdinTimeout", DURATION, "How long standard input may stay silent once it is waited for."),
    ("maxOutputTokens", TOKENS, "How many tokens a reply may hold."),
    ("escalatedOutputTokens", TOKENS, "The cap of the second try after a reply was cut off."),
    ("wholeOutputTokens", TOKENS, "The cap of a reply that is not streamed."),
    ("minOutputTokens", TOKENS, "A request that money allows fewer than this is not made."),
    ("outputContinuations", UP_TO_255, "How often the model is asked to go on where it was cut off."),
    ("contextWindow", "a number of tokens, at least 1024, or an object of such by model", "How \
        much fits into the models' context windows."),
    ("autoCompactEnabled", BOOL, "Summarise the older part of a conversation before it gets too \
        long."),
    ("compactAt", "a number above 0 and at most 1", "The part of the context window after which \
        that is done, if it is sooner than it would be by itself."),
    ("maxCompactions", UP_TO_255, "How often that may be done in a session."),
    ("maxThinkingTokens", "0, or a whole number of tokens, at least 1024", "How many tokens of \
        thinking a reply may hold."),
    ("bashTimeout", DURATION, "How long a command may run when the model names no time."),
    ("bashMaxTimeout", DURATION, "The longest time that the model may name."),
    ("backgroundLifetime", DURATION, "How long a background command may run."),
    ("backgroundWait", DURATION, "How long background commands are waited for once the model is \
        done."),
    ("webFetchTimeout", DURATION, "How long fetching a page may take, with all redirects."),
    ("webFetchPrivateHosts", NAMES, "Hosts that WebFetch may reach at addresses that are not of the \
        open internet: localhost, *.corp.example, 10.0.0.7, or * for all."),
    ("maxAgentDepth", "a whole number from 0 to 255, 0 for none", "How deep sub-agents may be \
        nested; see outlast-agents(7)."),
    ("maxLiveAgents", "a whole number from 1 to 65535", "How many sub-agents may be at work at a \
        time. Others wait in line."),
    ("maxAgents", TIMES, "How many sub-agents a session may start."),
    ("maxToolResultChars", COUNT, "Longer results are cut in the middle, and kept in a file."),
    ("sandbox", "an object with \"mode\" (\"off\", \"workspace\", \"read-only\" or \"required\"; or \
        \"enabled\" and \"failIfUnavailable\"), \"filesystem\" (lists of paths: \"allowWrite\", \
        \"denyWrite\", \"allowRead\", \"denyRead\") and \"network\" (with \"enabled\")", "What \
        commands may touch; see outlast-security(7)."),
    ("childEnv", "\"scrub\", \"inherit\" or \"allowlist\"", "Which variables commands see."),
    ("passEnv", NAMES, "Variables that commands see in any case."),
    ("cleanupPeriodDays", "a whole number of days, or 0 for ever", "How long a session is kept after \
        it was last written to; each run removes a few older ones."),
];

/// The names of the settings.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().map(|(name, _, _)| *name)
}

/// What a setting's value may be.
pub(super) fn takes(name: &str) -> Option<&'static str> {
    SHAPES.iter().find(|shape| shape.0 == name).map(|shape| shape.1)
}

/// Converts a setting's name to that of its flag in the parser.
pub(super) fn snake(camel: &str) -> String {
    let mut snake = String::new();
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// The whole table.
pub fn settings() -> Vec<SettingRow> {
    SHAPES
        .iter()
        .map(|&(name, takes, meaning)| SettingRow { name, takes, default: default(name), meaning })
        .collect()
}

/// Returns the default of a setting, read from where it is defined.
fn default(name: &str) -> String {
    let limits = Limits::default();
    limit_default(name, &limits)
        .or_else(|| other_default(name, &DEFAULTS))
        .unwrap_or_else(|| "none".to_owned())
}

fn limit_default(name: &str, limits: &Limits) -> Option<String> {
    let budgets = limits.budgets;
    Some(match name {
        "tokenBudgetNudges" => budgets.nudges.to_string(),
        "loopNoteAt" => limits.loops.soft.to_string(),
        "loopStopAt" => limits.loops.hard.to_string(),
        "maxRetries" => budgets.retries.to_string(),
        "maxRetryWait" => format_duration(limits.max_retry_wait),
        "backgroundWait" => format_duration(limits.background.most),
        "retryFirstDelay" => format!("{}ms", limits.backoff.first.as_millis()),
        "retryLongestDelay" => format_duration(limits.backoff.longest),
        "retryQuota" => budgets.bucket.to_string(),
        "unattendedLongestDelay" => format_duration(limits.longest_capacity_wait),
        "capacityProbeInterval" => format_duration(limits.probe_interval?),
        "overloadsPerFallback" => limits.overloads_per_switch.to_string(),
        "tornStreamsPerWhole" => limits.torn_streams_per_whole.to_string(),
        "emptyReplyRetries" => budgets.empty_replies.to_string(),
        "pausedTurnResumptions" => budgets.resumptions.to_string(),
        "heartbeatInterval" => format_duration(limits.heartbeat),
        "maxOutputTokens" => limits.caps.first.to_string(),
        "escalatedOutputTokens" => limits.caps.escalated.to_string(),
        "wholeOutputTokens" => limits.caps.whole.to_string(),
        "minOutputTokens" => limits.caps.floor.to_string(),
        "maxCompactions" => budgets.compactions.to_string(),
        "outputContinuations" => budgets.continuations.to_string(),
        _ => return None,
    })
}

fn other_default(name: &str, defaults: &Defaults) -> Option<String> {
    Some(match name {
        "model" => defaults.model.to_owned(),
        "requireTimeout" => format_duration(defaults.require_timeout),
        "requireRetries" => defaults.require_retries.to_string(),
        "schemaTries" => defaults.schema_tries.to_string(),
        "budgetMode" => "ceiling".to_owned(),
        "fallbackReturn" | "fast" => "false".to_owned(),
        "autoCompactEnabled" | "capacityProbes" | "sharedLimits" => "true".to_owned(),
        "wrapUpAt" => defaults.wrap_up_at.to_string(),
        "unattendedRetry" => "off".to_owned(),
        "accountKind" => "what a login says, else apiKey".to_owned(),
        "connectTimeout" => format_duration(defaults.connect),
        "firstByteTimeout" => format_duration(defaults.first_byte),
        "streamIdleTimeout" => format_duration(defaults.stream_idle),
        "streamProgressTimeout" => format_duration(defaults.stream_progress),
        "replyTimeout" => format_duration(defaults.reply),
        "requestTimeout" => format_duration(defaults.whole),
        "deadPathTimeout" => format_duration(defaults.dead_path),
        "stdinTimeout" => format_duration(defaults.stdin),
        "bashTimeout" => format_duration(defaults.bash),
        "bashMaxTimeout" => format_duration(defaults.bash_max),
        "backgroundLifetime" => format_duration(defaults.background_lifetime),
        "webFetchTimeout" => format_duration(defaults.web_fetch),
        "maxToolResultChars" => defaults.tool_result_chars.to_string(),
        "sandbox" => "workspace; off with bypassPermissions".to_owned(),
        "childEnv" => "scrub".to_owned(),
        "onDenied" => "continue".to_owned(),
        "maxAgentDepth" => AgentLimits::default().depth.to_string(),
        "maxLiveAgents" => AgentLimits::default().live.to_string(),
        "maxAgents" => AgentLimits::default().total.to_string(),
        "cleanupPeriodDays" => defaults.cleanup_period_days.to_string(),
        _ => return None,
    })
}
