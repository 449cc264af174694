//! Every setting, one row each. To add one, add its row here and use its field of [`Config`].
//!
//! A row is the meaning, the field, its kind, its default and its key in a settings file; then, as
//! far as it has them, its flag, its variables and its marks. See [`Setting`] for their meanings.

use std::collections::BTreeMap;
use std::fmt;
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::declare::{field_type, settings};
use super::fields::FieldKind;
use super::kinds::{
    BudgetMode, DeadPathSpan, Dollars, Fraction, NameList, PluginEntries, Retries, ServerMap, Span,
    ThinkingTokens, Times, Tokens, UnattendedRetry, VariableMap,
};
use super::memory_size::MemorySize;
use super::model_entry::ModelEntryList;
use super::models::{PriceMap, WindowSizes};
use super::setting::{KeptAs, Setting, Untrusted};
use super::strictness::{is_at_most, is_stricter_mode, is_stricter_to_require};
use super::switches::{NetworkSwitch, RootSwitch, TerminalSwitch};
use super::tool_search::ToolSearch;
use super::trust::TrustedProjects;
use super::variable_readers::{
    count, effort, memory, millis, no, per_cent, retries, text, thinking, tool_search, tries,
    unattended,
};
use crate::model::{Reasoning, RequestTimers};
use crate::recovery::Limits;
use crate::tools::{
    CommandSettings, FetchSettings, PermissionSettings, ResultLimits, SandboxSettings,
};
use crate::types::{
    AccountKind, AgentLimits, ChildEnvironment, Effort, OnDenied, PermissionMode, SandboxMode,
    ThinkingDisplay, ToolSearchMode,
};

/// The headings of flags in the help.
pub const LIMITS: &str = "Limits";
pub const ACCEPTANCE: &str = "Acceptance";
pub const MODEL: &str = "Model";
pub const TOOLS: &str = "Tools and permissions";
pub const PROMPTS: &str = "Agents, commands and skills";
pub const TIMERS: &str = "Timers";

/// The address of the service, unless a variable sets another.
pub const BASE_URL: &str = "https://api.anthropic.com";

/// The one value of `permissions.disableBypassPermissionsMode` that has an effect.
pub const FORBIDS_BYPASS: &str = "disable";

/// The budget of `--thinking enabled`, in tokens.
pub const THINKING_TOKENS: u32 = 10_000;

fn limits() -> Limits {
    Limits::default()
}

settings! {
    parts {
        /// The limits that the recovery state machine keeps.
        limits: Limits,
        agents: AgentLimits,
        /// The time limits of requests to the model.
        timers: RequestTimers,
        reasoning: Reasoning,
        permissions: PermissionSettings,
        commands: CommandSettings,
        results: ResultLimits,
        fetch: FetchSettings,
        sandbox: SandboxSettings,
    }

    /// A command that prints the API key; outranks the environment.
    api_key_helper: Option<String> = None, "apiKeyHelper"
        .flag("api-key-helper", "COMMAND", MODEL).secret();

    /// A command that renews an AWS login, such as aws sso login; see outlast-clouds(7).
    aws_auth_refresh: Option<String> = None, "awsAuthRefresh"
        .secret();

    /// A command that prints AWS credentials as JSON; outranks all others.
    aws_credential_export: Option<String> = None, "awsCredentialExport"
        .secret();

    /// The token endpoint at which a login is renewed; outranks the login file.
    oauth_endpoint: Option<String> = None, "oauthEndpoint"
        .takes("an https:// address").variable("OUTLAST_OAUTH_ENDPOINT", "", text);

    /// The client id of outlast at the token endpoint; outranks the login file.
    oauth_client_id: Option<String> = None, "oauthClientId"
        .variable("OUTLAST_OAUTH_CLIENT_ID", "", text);

    /// The model, or an alias of one.
    model: String = "sonnet".to_owned(), "model"
        .flag("model", "MODEL", MODEL).variable("ANTHROPIC_MODEL", "", text)
        .ignores_blank().kept();

    /// Work as an agent of this kind: with its prompt, its tools and its model.
    agent: Option<String> = None, "agent"
        .takes("the name of an agent").flag("agent", "NAME", PROMPTS).kept();

    /// The output style: a file output-styles/NAME.md, whose text is added to the system prompt.
    output_style: String = "default".to_owned(), "outputStyle"
        .takes("the name of an output style").ignores_blank();

    /// Models to fall back to, best first; elsewhere: MODEL@URL#VARIABLE. See outlast-recovery(7).
    fallback_model: ModelEntryList = ModelEntryList::default(), "fallbackModel"
        .flag("fallback-model", "A,B", MODEL).critical().kept_as(KeptAs::Fallbacks);

    /// After a while, try the first model again.
    fallback_return: bool = false, "fallbackReturn"
        .flag("fallback-return", "", MODEL).kept();

    /// Ask for fast answers where the service has them.
    fast: bool = false, "fast"
        .flag("fast", "", MODEL);

    /// Unreleased features of the service to ask for, by the names of their betas.
    betas: Vec<String> = Vec::new(), "betas"
        .takes("a list of names").flag("betas", "NAMES", MODEL).joined();

    /// The prices of models, in US dollars per million tokens; as a flag also
    /// [MODEL=]IN/OUT/CACHE-READ/CACHE-WRITE.
    prices: PriceMap = BTreeMap::new(), "prices"
        .flag("price", "[MODEL=]IN/OUT", MODEL).joined().kept();

    /// Variables for outlast itself and for the commands it runs.
    env: VariableMap = VariableMap::default(), "env"
        .secret();

    /// Tools and calls that are allowed without asking: Read,Bash(git log:*).
    permissions.allow: Vec<String>, "permissions.allow"
        .takes("a list of permission rules").flag("allowed-tools", "RULES", TOOLS).joined()
        .kept_as(KeptAs::Permission(None));

    /// Tools and calls that a user would be asked about. outlast asks no user: they are denied.
    permissions.ask: Vec<String>, "permissions.ask"
        .takes("a list of permission rules").critical().untrusted(Untrusted::Rules)
        .kept_as(KeptAs::Prohibition);

    /// Tools and calls that are refused.
    permissions.deny: Vec<String>, "permissions.deny"
        .takes("a list of permission rules").flag("disallowed-tools", "RULES", TOOLS)
        .joined().critical().untrusted(Untrusted::Rules).kept_as(KeptAs::Prohibition);

    /// A further folder to work in; may be repeated.
    permissions.additional_directories: Vec<PathBuf>, "permissions.additionalDirectories"
        .flag("add-dir", "DIR", TOOLS).joined().kept_as(KeptAs::Permission(None));

    /// The calls that are allowed without a rule.
    permissions.mode: PermissionMode, "permissions.defaultMode"
        .flag("permission-mode", "MODE", TOOLS).critical().untrusted(Untrusted::Only("plan"))
        .kept_as(KeptAs::Permission(Some("plan")));

    /// Forbids the permission mode bypassPermissions.
    disable_bypass: Option<String> = None, "permissions.disableBypassPermissionsMode"
        .takes("\"disable\"").critical().untrusted(Untrusted::Only(FORBIDS_BYPASS));

    /// The consequence of a denied tool call for the run.
    permissions.on_denied: OnDenied, "onDenied"
        .flag("on-denied", "WHAT", TOOLS).untrusted(Untrusted::Only("fail")).kept();

    /// Hooks: programs that are run at events and may block or change them. Those of all files run.
    hooks: Option<Value> = None, "hooks"
        .takes("an object of events, as in outlast-hooks(7)").secret().critical();

    /// Run no hooks.
    disable_all_hooks: Option<bool> = None, "disableAllHooks"
        .critical();

    /// Run no hooks but those of managed settings. Only there.
    managed_hooks_only: Option<bool> = None, "allowManagedHooksOnly";

    /// Rules that allow something count in managed settings only, and not even as flags. Only
    /// there.
    managed_rules_only: Option<bool> = None, "allowManagedPermissionRulesOnly";

    /// Repositories whose own settings are used; see outlast-security(7). Never read from a
    /// repository.
    trusted_projects: TrustedProjects = TrustedProjects::default(), "trustedProjects";

    /// Servers whose tools the model is offered; see outlast-mcp(7).
    mcp_servers: ServerMap = ServerMap::default(), "mcpServers"
        .secret();

    /// Servers of a repository that are not used.
    disabled_servers: Vec<String> = Vec::new(), "disabledMcpjsonServers"
        .takes("a list of names");

    /// Servers of a repository that are used where enableAllProjectMcpServers is false.
    enabled_servers: Vec<String> = Vec::new(), "enabledMcpjsonServers"
        .takes("a list of names");

    /// Use all servers of a trusted repository.
    all_project_servers: bool = true, "enableAllProjectMcpServers";

    /// Plugins to use: NAME@MARKETPLACE, each true or false. They are looked for on this disk only.
    enabled_plugins: PluginEntries = PluginEntries::default(), "enabledPlugins";

    /// Folders with plugins: {"NAME": {"source": {"source": "directory", "path": "/a/folder"}}}.
    extra_marketplaces: PluginEntries = PluginEntries::default(), "extraKnownMarketplaces"
        .takes("an object of sources, by the names of marketplaces");

    /// Stop after so many model replies.
    limits.budgets.turns: Option<NonZeroU32>, "maxTurns"
        .flag("max-turns", "N", LIMITS).variable("CLAUDE_CODE_MAX_TURNS", "", count).critical()
        .untrusted(Untrusted::Stricter(is_at_most::<NonZeroU32>)).kept();

    /// Never spend more than this.
    max_budget_usd: Option<Dollars> = None, "maxBudgetUsd"
        .flag("max-budget-usd", "USD", LIMITS).critical()
        .untrusted(Untrusted::Stricter(is_at_most::<Dollars>)).kept();

    /// Check the budget as a ceiling before each call, or only after each reply.
    budget_mode: BudgetMode = BudgetMode::Ceiling, "budgetMode"
        .flag("budget-mode", "MODE", LIMITS).critical().untrusted(Untrusted::Only("ceiling"))
        .kept();

    /// End in time, whatever goes wrong: 45m, 1h30m.
    max_duration: Option<Span> = None, "maxDuration"
        .flag("max-duration", "TIME", LIMITS).alias("deadline").critical()
        .untrusted(Untrusted::Stricter(is_at_most::<Span>)).kept();

    /// The part of the time after which the model is told to wrap up.
    wrap_up_at: Fraction = Fraction::NINE_TENTHS, "wrapUpAt";

    /// Go on until about so many output tokens are spent: 500k.
    limits.effort: Option<Tokens>, "tokenBudget"
        .flag("token-budget", "TOKENS", LIMITS).kept();

    /// Nudges in a row that may bring almost nothing.
    limits.budgets.nudges: u8, "tokenBudgetNudges";

    /// A command that must pass when the model is done; without it, the run is no success.
    require: Option<String> = None, "require"
        .flag("require", "COMMAND", ACCEPTANCE).critical().kept_as(KeptAs::Demand);

    /// The time limit of the command of --require.
    require_timeout: Span = Duration::from_mins(10), "requireTimeout"
        .flag("require-timeout", "TIME", ACCEPTANCE).kept();

    /// The maximum number of failures of the command of --require that go back to the model.
    limits.budgets.requirement_tries: u8, "requireRetries"
        .kept();

    /// Answers that may fail to fit --json-schema before the run ends.
    schema_tries: NonZeroU8 = 5, "schemaTries"
        .variable("MAX_STRUCTURED_OUTPUT_RETRIES", "", tries).kept();

    /// Repetitions of the same tool calls with the same results, and nothing new in between, before
    /// the model is told to take another way.
    limits.loops.soft: Times, "loopNoteAt";

    /// The number of such repetitions after which the run ends as stalled. The model is always
    /// warned first.
    limits.loops.hard: Times, "loopStopAt";

    /// Tries after the first one, for each request.
    limits.budgets.retries: Retries, "maxRetries"
        .flag("max-retries", "N", LIMITS).variable("CLAUDE_CODE_MAX_RETRIES", "", retries);

    /// End instead of waiting longer than this for the service; 6h in unattended mode.
    max_retry_wait: Option<Span> = None, "maxRetryWait"
        .flag("max-retry-wait", "TIME", LIMITS).shown_as(Span(limits().max_retry_wait));

    /// The first pause between tries; each further one is twice as long.
    limits.backoff.first: Span, "retryFirstDelay";

    /// The longest pause between tries.
    limits.backoff.longest: Span, "retryLongestDelay";

    /// Tokens of the run's retry bucket: a retry takes 5, one after a time-out 10. A request that is
    /// answered gives back what its retries took, an untroubled one gives 1.
    limits.budgets.bucket: u16, "retryQuota";

    /// Wait out overloads and rate limits without counting; with "all", lost connections and server
    /// errors too.
    limits.persistence: UnattendedRetry, "unattendedRetry"
        .variable("OUTLAST_UNATTENDED_RETRY", "also as 1, true or yes", unattended)
        .variable("CLAUDE_CODE_UNATTENDED_RETRY", "", unattended)
        .variable("CLAUDE_CODE_RETRY_WATCHDOG", "", unattended);

    /// The longest pause between tries in unattended mode.
    limits.longest_capacity_wait: Span, "unattendedLongestDelay";

    /// Interrupt long pauses by requests for one token, which show whether the service is back.
    capacity_probes: bool = true, "capacityProbes";

    /// The time between such requests.
    limits.probe_interval: Option<Span>, "capacityProbeInterval";

    /// Give up at so many overloads in a row.
    limits.overload_limit: Option<u8>, "overloadLimit";

    /// Overloads in a row before the next model is tried.
    limits.overloads_per_switch: u8, "overloadsPerFallback";

    /// Broken streams in a row before asking without streaming.
    limits.torn_streams_per_whole: u8, "tornStreamsPerWhole";

    /// Further tries after a reply that said nothing.
    limits.budgets.empty_replies: u8, "emptyReplyRetries";

    /// Count a reply as complete only with a stop reason of the Messages API, and not with `stop` or
    /// another end word of other APIs that gateways pass on.
    limits.strict_stop_reasons: bool, "strictStopReasons";

    /// The maximum number of times that a reply paused by the service is resumed.
    limits.budgets.resumptions: u8, "pausedTurnResumptions";

    /// Share rate-limit state with other runs on this host.
    shared_limits: bool = true, "sharedLimits"
        .variable("OUTLAST_NO_SHARED_LIMITS", "false where it is 1, true, yes or on", no);

    /// The kind of account. A rate limit of a subscription is not retried: it lasts for hours.
    account_kind: Option<AccountKind> = None, "accountKind"
        .default_words("what a login says, else apiKey");

    /// The longest silence on standard error while waiting.
    limits.heartbeat: Span, "heartbeatInterval";

    /// The time limit for connecting.
    timers.connect: Span, "connectTimeout"
        .flag("connect-timeout", "TIME", TIMERS);

    /// The time limit for the first byte of an answer.
    timers.first_byte: Span, "firstByteTimeout"
        .flag("first-byte-timeout", "TIME", TIMERS);

    /// Cut a stream that brings no byte for so long.
    timers.idle: Span, "streamIdleTimeout"
        .flag("stream-idle-timeout", "TIME", TIMERS)
        .variable("CLAUDE_STREAM_IDLE_TIMEOUT_MS", "in milliseconds", millis);

    /// Cut a stream that brings no content for so long: pings, unknown events and empty pieces are
    /// none.
    timers.progress: Span, "streamProgressTimeout"
        .flag("stream-progress-timeout", "TIME", TIMERS);

    /// The time limit of an answer that is streamed, in all, for every 16,000 tokens that it may
    /// hold.
    timers.reply: Span, "replyTimeout"
        .flag("reply-timeout", "TIME", TIMERS);

    /// The time limit of an answer that is not streamed.
    timers.whole: Span, "requestTimeout"
        .flag("request-timeout", "TIME", TIMERS)
        .variable("API_TIMEOUT_MS", "in milliseconds", millis);

    /// The longest silence of a connection, probes included, before it counts as lost; at least
    /// 11s.
    timers.dead_path: DeadPathSpan, "deadPathTimeout"
        .flag("dead-path-timeout", "TIME", TIMERS);

    /// The longest silence of standard input once it is waited for.
    stdin_timeout: Span = Duration::from_mins(10), "stdinTimeout"
        .flag("stdin-timeout", "TIME", TIMERS);

    /// The maximum number of tokens in a reply.
    max_output_tokens: Option<Tokens> = None, "maxOutputTokens"
        .flag("max-output-tokens", "N", MODEL)
        .variable("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "", count).shown_as(limits().caps.first);

    /// The cap of the second try after a reply was cut off.
    limits.caps.escalated: Tokens, "escalatedOutputTokens";

    /// The cap of a reply that is not streamed.
    limits.caps.whole: Tokens, "wholeOutputTokens";

    /// A request is not made if the budget allows it fewer output tokens than this.
    limits.caps.floor: Tokens, "minOutputTokens";

    /// The maximum number of times that the model is asked to continue where it was cut off.
    limits.budgets.continuations: u8, "outputContinuations";

    /// The thoroughness of replies; a model without the level uses the next lower one.
    reasoning.effort: Option<Effort>, "effortLevel"
        .flag("effort", "LEVEL", MODEL)
        .variable("CLAUDE_CODE_EFFORT_LEVEL", "not where it is auto or unset", effort);

    /// The sizes of the models' context windows.
    context_window: Option<WindowSizes> = None, "contextWindow"
        .flag("context-window", "[MODEL=]TOKENS", MODEL).joined().kept();

    /// Summarise the older part of a conversation before it gets too long.
    limits.auto_compact: bool, "autoCompactEnabled"
        .variable("DISABLE_AUTO_COMPACT", "false where it is 1, true, yes or on", no);

    /// Summarise the conversation when it fills this part of the context window, if that is sooner
    /// than compactHeadroom asks for it.
    compact_at: Option<Fraction> = None, "compactAt"
        .variable("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "in per cent", per_cent);

    /// Summarise the conversation when less than this is free in the context window, beside the
    /// room for a reply. Small windows have less.
    limits.headroom: Tokens, "compactHeadroom";

    /// The maximum number of summaries of a session's conversation; unlimited by default, while
    /// each summary makes room.
    limits.budgets.compactions: Option<u8>, "maxCompactions"
        .flag("max-compactions", "N", MODEL);

    /// Mark the parts of requests that the service may keep in its prompt cache.
    prompt_caching: bool = true, "promptCaching"
        .variable("DISABLE_PROMPT_CACHING", "false where it is 1, true, yes or on", no);

    /// Let models think before they answer; true also gives those a budget that do not decide for
    /// themselves how much.
    always_thinking: Option<bool> = None, "alwaysThinkingEnabled"
        .variable("CLAUDE_CODE_DISABLE_THINKING", "false where it is 1, true, yes or on", no)
        .default_words("models that decide for themselves how much do");

    /// The form in which the service shows thinking.
    reasoning.display: Option<ThinkingDisplay>, "thinkingDisplay"
        .flag("thinking-display", "HOW", MODEL);

    /// The maximum number of thinking tokens in a reply, if the model takes a budget; 0 for none.
    max_thinking_tokens: Option<ThinkingTokens> = None, "maxThinkingTokens"
        .flag("max-thinking-tokens", "N", MODEL).variable("MAX_THINKING_TOKENS", "", thinking);

    /// Leave the definitions of MCP tools out of requests until the model searches for them, where
    /// they would fill much of the context window; see outlast-mcp(7).
    tool_search: ToolSearch = ToolSearchMode::default(), "toolSearch"
        .variable("ENABLE_TOOL_SEARCH", "", tool_search);

    /// The time limit of a command when the model names none.
    commands.timeout: Span, "bashTimeout"
        .variable("BASH_DEFAULT_TIMEOUT_MS", "in milliseconds", millis);

    /// The longest time that the model may name for a command.
    commands.max_timeout: Span, "bashMaxTimeout"
        .variable("BASH_MAX_TIMEOUT_MS", "in milliseconds", millis);

    /// The memory limit of all commands together. Beyond it, the one that takes most is ended.
    commands.memory: Option<MemorySize>, "commandMemory"
        .variable("OUTLAST_COMMAND_MEMORY", "", memory).critical()
        .default_words("three quarters of what the machine has, or its control group");

    /// The time limit of a background command.
    commands.background_lifetime: Span, "backgroundLifetime";

    /// The longest wait for background commands once the model is done.
    limits.background.most: Span, "backgroundWait"
        .variable("CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS", "in milliseconds", millis);

    /// The time limit for fetching a page, with all redirects.
    fetch.timeout: Span, "webFetchTimeout";

    /// Hosts that the tool WebFetch may reach at addresses that are not of the open internet: localhost,
    /// *.corp.example, 10.0.0.7, or * for all.
    fetch.private_hosts: NameList, "webFetchPrivateHosts"
        .kept_as(KeptAs::Permission(None));

    /// The maximum nesting depth of sub-agents, 0 for none; see outlast-agents(7).
    agents.depth: u8, "maxAgentDepth"
        .untrusted(Untrusted::Stricter(is_at_most::<u8>)).kept();

    /// The maximum number of sub-agents at work at a time. Others wait in line.
    agents.live: NonZeroU16, "maxLiveAgents"
        .kept();

    /// The maximum number of sub-agents that a session may start.
    agents.total: u32, "maxAgents"
        .takes("a whole number, or 0 for never").kept();

    /// Tool results that are longer are cut in the middle, and kept whole in a file.
    results.chars: NonZeroU32, "maxToolResultChars"
        .variable("BASH_MAX_OUTPUT_LENGTH", "", count);

    /// The sandbox mode; off by default with bypassPermissions. See outlast-security(7).
    sandbox_mode: Option<SandboxMode> = None, "sandbox.mode"
        .flag("sandbox", "MODE", TOOLS).critical().untrusted(Untrusted::Stricter(is_stricter_mode))
        .default_words("workspace; off with bypassPermissions")
        .kept_as(KeptAs::Permission(Some("read-only")));

    /// Another form of sandbox.mode: true turns the sandbox on, false turns it off.
    sandbox_enabled: Option<bool> = None, "sandbox.enabled"
        .form_of("sandbox.mode").untrusted(Untrusted::Stricter(|value, _| value == true));

    /// Another form of sandbox.mode: true is required.
    sandbox_required: Option<bool> = None, "sandbox.failIfUnavailable"
        .critical().form_of("sandbox.mode").untrusted(Untrusted::Stricter(is_stricter_to_require));

    /// Paths that commands may write to, beside those of the mode.
    sandbox.allow_write: Vec<String>, "sandbox.filesystem.allowWrite"
        .takes("a list of paths").kept_as(KeptAs::Permission(None));

    /// Paths that commands may not write to.
    sandbox.deny_write: Vec<String>, "sandbox.filesystem.denyWrite"
        .takes("a list of paths").critical().untrusted(Untrusted::Paths)
        .kept_as(KeptAs::Prohibition);

    /// Paths that commands may read, though a rule of outlast says otherwise.
    sandbox.allow_read: Vec<String>, "sandbox.filesystem.allowRead"
        .takes("a list of paths").kept_as(KeptAs::Permission(None));

    /// Paths that commands may not read.
    sandbox.deny_read: Vec<String>, "sandbox.filesystem.denyRead"
        .takes("a list of paths").critical().untrusted(Untrusted::Paths)
        .kept_as(KeptAs::Prohibition);

    /// Let commands use terminals: those that they make (script, tmux, expect) and those in which
    /// the user works.
    sandbox.terminals: TerminalSwitch, "sandbox.terminals"
        .kept_as(KeptAs::Permission(Some("false")));

    /// Let commands of root keep all capabilities that do not bypass the sandbox: to change users
    /// (su, apt-get), the clock, the network.
    sandbox.capabilities: RootSwitch, "sandbox.capabilities"
        .kept_as(KeptAs::Permission(Some("false")));

    /// The network of sandboxed commands: on or off. Without it they cannot create sockets.
    sandbox.no_network: NetworkSwitch, "sandbox.network.enabled"
        .flag("sandbox-network", "ON|OFF", TOOLS)
        .untrusted(Untrusted::Stricter(|value, _| value == false))
        .kept_as(KeptAs::Permission(Some("false")));

    /// The only hosts that commands and WebFetch reach: HOST, *.HOST or an address, perhaps with :PORT.
    /// An empty list turns the network off. See outlast-network(7).
    allowed_domains: Vec<String> = Vec::new(), "sandbox.network.allowedDomains"
        .takes("a list of hosts").critical().kept_as(KeptAs::IfSet);

    /// Hosts that they do not reach, even if they are allowed. Alone, all others are.
    denied_domains: Vec<String> = Vec::new(), "sandbox.network.deniedDomains"
        .takes("a list of hosts").critical().kept_as(KeptAs::Prohibition);

    /// Let commands open loopback ports. False needs a list of domains, or ends outlast.
    allow_local_binding: bool = true, "sandbox.network.allowLocalBinding";

    /// Unix sockets of other programs that commands may use beside a list of domains.
    allow_unix_sockets: Vec<String> = Vec::new(), "sandbox.network.allowUnixSockets"
        .takes("a list of paths");

    /// Let commands use all Unix sockets that have a path; not beside a list of domains, unless it
    /// is set. False needs such a list, or ends outlast.
    allow_all_unix_sockets: bool = true, "sandbox.network.allowAllUnixSockets";

    /// Only lists of allowed domains in managed files count. Elsewhere it ends outlast.
    managed_domains_only: bool = false, "sandbox.network.allowManagedDomainsOnly";

    /// Cannot be enforced while the network is on: it ends outlast then.
    http_proxy_port: Option<u16> = None, "sandbox.network.httpProxyPort";

    /// Cannot be enforced while the network is on: it ends outlast then.
    socks_proxy_port: Option<u16> = None, "sandbox.network.socksProxyPort";

    /// Hooks, helpers and local servers that run outside of the sandbox though commands can write
    /// where they lie: names of servers, words or paths of commands. Never read from a repository.
    unconfined_programs: Vec<String> = Vec::new(), "unconfinedPrograms"
        .takes("a list of names and paths");

    /// The variables that commands see.
    commands.child_environment: ChildEnvironment, "childEnv"
        .flag("child-env", "MODE", TOOLS).critical().untrusted(Untrusted::Only("allowlist"))
        .default_words("scrub; inherit with bypassPermissions")
        .kept_as(KeptAs::Permission(Some("allowlist")));

    /// A variable that commands see in any case; may be repeated.
    commands.pass_env: NameList, "passEnv"
        .flag("pass-env", "NAME", TOOLS).joined().kept_as(KeptAs::Permission(None));

    /// In a step of GitHub Actions, append a report on the run to the step's summary, and annotate a
    /// failure; see outlast-report(7).
    step_summary: bool = true, "stepSummary"
        .variable("OUTLAST_NO_STEP_SUMMARY", "false where it is 1, true, yes or on", no);

    /// The time for which a session is kept after it was last written to, in days, 0 for ever; each
    /// run removes a few older ones.
    cleanup_period_days: u32 = 30, "cleanupPeriodDays"
        .takes("a whole number of days, or 0 for ever");
}
