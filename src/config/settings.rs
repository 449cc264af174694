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
    BudgetMode, BypassProhibition, DeadPathSpan, Dollars, Fraction, NameList, PluginEntries,
    Retries, ServerMap, Span, ThinkingTokens, Times, Tokens, UnattendedRetry, VariableMap,
};
use super::memory_size::MemorySize;
use super::model_entry::ModelEntryList;
use super::models::{PriceMap, WindowSizes};
use super::setting::{KeptAs, Setting, Untrusted};
use super::strictness::{is_at_most, is_stricter_mode};
use super::switches::{NetworkSwitch, RootSwitch, TerminalSwitch};
use super::tool_search::ToolSearch;
use super::trust::TrustedProjects;
use super::variable_readers::{
    count, effort, length, longest_wait, memory, millis, names, no, per_cent, retries, text,
    thinking, tokens, tool_search, tries, unattended,
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

    /// A command that prints AWS credentials as JSON; outranks all other sources.
    aws_credential_export: Option<String> = None, "awsCredentialExport"
        .secret();

    /// The token endpoint at which a login is renewed; outranks the login file.
    oauth_endpoint: Option<String> = None, "oauthEndpoint"
        .takes("an https:// address").variable("OUTLAST_OAUTH_ENDPOINT", "", text);

    /// The client id of outlast at the token endpoint; outranks the login file.
    oauth_client_id: Option<String> = None, "oauthClientId"
        .variable("OUTLAST_OAUTH_CLIENT_ID", "", text);

    /// The name of the model, or an alias.
    model: String = "sonnet".to_owned(), "model"
        .flag("model", "MODEL", MODEL).variable("ANTHROPIC_MODEL", "", text)
        .ignores_blank().kept();

    /// Work as an agent of this kind: with its prompt, its tools and its model.
    agent: Option<String> = None, "agent"
        .takes("the name of an agent").flag("agent", "NAME", PROMPTS).kept();

    /// The output style: a file output-styles/NAME.md, whose text is added to the system prompt.
    output_style: String = "default".to_owned(), "outputStyle"
        .takes("the name of an output style").ignores_blank();

    /// Fallback models, best first; at another address: MODEL@URL#VARIABLE. See
    /// outlast-recovery(7).
    fallback_model: ModelEntryList = ModelEntryList::default(), "fallbackModel"
        .flag("fallback-model", "A,B", MODEL).critical().kept_as(KeptAs::Fallbacks);

    /// Try the first model again after ten minutes.
    fallback_return: bool = false, "fallbackReturn"
        .flag("fallback-return", "", MODEL).kept();

    /// Use the service's fast mode where it is available.
    fast: bool = false, "fast"
        .flag("fast", "", MODEL);

    /// Beta features of the service to request, by name.
    betas: Vec<String> = Vec::new(), "betas"
        .takes("a list of names").flag("betas", "NAMES", MODEL).joined()
        .variable("ANTHROPIC_BETAS", "separated by commas", names);

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

    /// Tools and calls that need the user's approval. outlast denies them, because it has no user.
    permissions.ask: Vec<String>, "permissions.ask"
        .takes("a list of permission rules").critical().untrusted(Untrusted::Rules)
        .kept_as(KeptAs::Prohibition);

    /// Tools and calls that are refused.
    permissions.deny: Vec<String>, "permissions.deny"
        .takes("a list of permission rules").flag("disallowed-tools", "RULES", TOOLS)
        .joined().critical().untrusted(Untrusted::Rules).kept_as(KeptAs::Prohibition);

    /// Further folders to work in; the flag may be repeated. In files, ~/ is the home folder, and a
    /// folder that does not exist is left out.
    permissions.additional_directories: Vec<PathBuf>, "permissions.additionalDirectories"
        .flag("add-dir", "DIR", TOOLS).joined().kept_as(KeptAs::Permission(None));

    /// The calls that are allowed without a rule.
    permissions.mode: PermissionMode, "permissions.defaultMode"
        .flag("permission-mode", "MODE", TOOLS).critical().untrusted(Untrusted::Only("plan"))
        .kept_as(KeptAs::Permission(Some("plan")));

    /// Forbids the permission mode bypassPermissions.
    disable_bypass: Option<BypassProhibition> = None, "permissions.disableBypassPermissionsMode"
        .critical().untrusted(Untrusted::Only("disable"));

    /// The effect of a denied tool call on the run.
    permissions.on_denied: OnDenied, "onDenied"
        .flag("on-denied", "WHAT", TOOLS).untrusted(Untrusted::Only("fail")).kept();

    /// Hooks: programs that run at events and may block or change them. Hooks from all files are
    /// combined.
    hooks: Option<Value> = None, "hooks"
        .takes("an object of events, as in outlast-hooks(7)").secret().critical();

    /// Run no hooks.
    disable_all_hooks: Option<bool> = None, "disableAllHooks"
        .critical();

    /// Run only hooks of managed settings. Has an effect only in managed settings.
    managed_hooks_only: Option<bool> = None, "allowManagedHooksOnly";

    /// Ignore allow rules outside of managed settings, also in flags. Has an effect only in managed
    /// settings.
    managed_rules_only: Option<bool> = None, "allowManagedPermissionRulesOnly";

    /// Repositories whose own settings are used; see outlast-security(7). Ignored in files of a
    /// repository.
    trusted_projects: TrustedProjects = TrustedProjects::default(), "trustedProjects";

    /// MCP servers whose tools are offered to the model; see outlast-mcp(7).
    mcp_servers: ServerMap = ServerMap::default(), "mcpServers"
        .secret();

    /// Servers of a repository that are not used.
    disabled_servers: Vec<String> = Vec::new(), "disabledMcpjsonServers"
        .takes("a list of names").critical();

    /// Servers of a repository that are used if enableAllProjectMcpServers is false.
    enabled_servers: Vec<String> = Vec::new(), "enabledMcpjsonServers"
        .takes("a list of names");

    /// Use all servers of a trusted repository.
    all_project_servers: bool = true, "enableAllProjectMcpServers"
        .critical();

    /// Plugins to use: NAME@MARKETPLACE, each true or false. Only plugins on this disk are found.
    enabled_plugins: PluginEntries = PluginEntries::default(), "enabledPlugins";

    /// Folders with plugins: {"NAME": {"source": {"source": "directory", "path": "/a/folder"}}}.
    extra_marketplaces: PluginEntries = PluginEntries::default(), "extraKnownMarketplaces"
        .takes("an object of sources, by the names of marketplaces");

    /// The maximum number of model replies.
    limits.budgets.turns: Option<NonZeroU32>, "maxTurns"
        .flag("max-turns", "N", LIMITS).variable("CLAUDE_CODE_MAX_TURNS", "", count).critical()
        .untrusted(Untrusted::Stricter(is_at_most::<NonZeroU32>)).kept();

    /// The maximum cost of the run in US dollars.
    max_budget_usd: Option<Dollars> = None, "maxBudgetUsd"
        .flag("max-budget-usd", "USD", LIMITS).critical()
        .untrusted(Untrusted::Stricter(is_at_most::<Dollars>)).kept();

    /// Check the budget as a ceiling before each call, or only after each reply.
    budget_mode: BudgetMode = BudgetMode::Ceiling, "budgetMode"
        .flag("budget-mode", "MODE", LIMITS).critical().untrusted(Untrusted::Only("ceiling"))
        .kept();

    /// The time limit of the run: 45m, 1h30m.
    max_duration: Option<Span> = None, "maxDuration"
        .flag("max-duration", "TIME", LIMITS).alias("deadline").critical()
        .untrusted(Untrusted::Stricter(is_at_most::<Span>)).kept();

    /// The fraction of the time after which the model is asked to finish.
    wrap_up_at: Fraction = Fraction::NINE_TENTHS, "wrapUpAt";

    /// Continue until about this many output tokens are used: 500k.
    limits.effort: Option<Tokens>, "tokenBudget"
        .flag("token-budget", "TOKENS", LIMITS).kept();

    /// After this many requests for more work in a row to which the model added almost nothing, the
    /// answer stands.
    limits.budgets.nudges: u8, "tokenBudgetNudges";

    /// A command that must pass when the model is done; otherwise the run fails. `none`: none.
    require: Option<String> = None, "require"
        .flag("require", "COMMAND", ACCEPTANCE).all_commands().critical()
        .kept_as(KeptAs::Demand);

    /// The time limit of the --require command.
    require_timeout: Span = Duration::from_mins(10), "requireTimeout"
        .flag("require-timeout", "TIME", ACCEPTANCE).kept();

    /// The maximum number of failures of the --require command that are reported to the model.
    limits.budgets.requirement_tries: u8, "requireRetries"
        .kept();

    /// The number of answers that do not match --json-schema after which the run ends.
    schema_tries: NonZeroU8 = 5, "schemaTries"
        .variable("MAX_STRUCTURED_OUTPUT_RETRIES", "less 1: the number of further answers", tries)
        .kept();

    /// The number of repetitions of the same tool calls with the same results, and nothing new in
    /// between, after which the model is asked to try another approach.
    limits.loops.soft: Times, "loopNoteAt";

    /// The number of these repetitions after which the run ends as stalled. The model is always
    /// informed first, unless loopNoteAt is 0.
    limits.loops.hard: Times, "loopStopAt";

    /// The maximum number of retries of a request.
    limits.budgets.retries: Retries, "maxRetries"
        .flag("max-retries", "N", LIMITS)
        .variable("CLAUDE_CODE_MAX_RETRIES", "at most 100", retries);

    /// The longest pause before a retry; if the service names a longer one, the run ends. 6h in
    /// unattended mode.
    max_retry_wait: Option<Span> = None, "maxRetryWait"
        .flag("max-retry-wait", "TIME", LIMITS).shown_as(Span(limits().max_retry_wait))
        .variable("CLAUDE_CODE_RETRY_WATCHDOG_MAX_WAIT_MS", "in milliseconds", millis);

    /// The first pause between attempts; each further pause is twice as long.
    limits.backoff.first: Span, "retryFirstDelay";

    /// The longest pause between attempts.
    limits.backoff.longest: Span, "retryLongestDelay";

    /// Tokens in the run's retry bucket: a retry takes 5, a retry after a timeout 10. An answered
    /// request returns the tokens of its retries, or adds 1 if it had none.
    limits.budgets.bucket: u16, "retryQuota";

    /// Wait out overloads and rate limits without counting retries; with "all", also lost
    /// connections, timeouts and server errors.
    limits.persistence: UnattendedRetry, "unattendedRetry"
        .variable("OUTLAST_UNATTENDED_RETRY", "also as 1, true or yes", unattended)
        .variable("CLAUDE_CODE_UNATTENDED_RETRY", "", unattended)
        .variable("CLAUDE_CODE_RETRY_WATCHDOG", "", unattended);

    /// The longest pause between attempts in unattended mode.
    limits.longest_capacity_wait: Span, "unattendedLongestDelay";

    /// Check during long pauses, by requests for one token, whether the service is available again.
    capacity_probes: bool = true, "capacityProbes";

    /// The time between these requests.
    limits.probe_interval: Option<Span>, "capacityProbeInterval";

    /// The number of overloads in a row that ends the run.
    limits.overload_limit: Option<u8>, "overloadLimit";

    /// The number of overloads in a row after which the next model is tried.
    limits.overloads_per_switch: u8, "overloadsPerFallback";

    /// The number of broken streams in a row after which replies are not streamed.
    limits.torn_streams_per_whole: u8, "tornStreamsPerWhole";

    /// The maximum number of retries after an empty reply.
    limits.budgets.empty_replies: u8, "emptyReplyRetries";

    /// Count a reply as complete only with a stop reason of the Messages API, and not with `stop`
    /// or another stop reason of other APIs that gateways pass on.
    limits.strict_stop_reasons: bool, "strictStopReasons";

    /// The maximum number of times that a reply paused by the service is resumed.
    limits.budgets.resumptions: u8, "pausedTurnResumptions";

    /// Share rate-limit state with other runs on this host.
    shared_limits: bool = true, "sharedLimits"
        .variable("OUTLAST_NO_SHARED_LIMITS", "false if it is 1, true, yes or on", no);

    /// The kind of account. A rate limit of a subscription is not retried, because it lasts for
    /// hours.
    account_kind: Option<AccountKind> = None, "accountKind"
        .default_words("the kind in a login, else apiKey");

    /// The longest silence on standard error while waiting.
    limits.heartbeat: Span, "heartbeatInterval";

    /// The time limit for connecting.
    timers.connect: Span, "connectTimeout"
        .flag("connect-timeout", "TIME", TIMERS);

    /// The time limit for the first byte of an answer.
    timers.first_byte: Span, "firstByteTimeout"
        .flag("first-byte-timeout", "TIME", TIMERS);

    /// The time limit for the next byte of a stream.
    timers.idle: Span, "streamIdleTimeout"
        .flag("stream-idle-timeout", "TIME", TIMERS)
        .variable("CLAUDE_STREAM_IDLE_TIMEOUT_MS", "in milliseconds", millis);

    /// The time limit for the next content of a stream: pings, unknown events and empty pieces do
    /// not count.
    timers.progress: Span, "streamProgressTimeout"
        .flag("stream-progress-timeout", "TIME", TIMERS);

    /// The time limit of a streamed answer, for each 16,000 tokens of its maximum length.
    timers.reply: Span, "replyTimeout"
        .flag("reply-timeout", "TIME", TIMERS);

    /// The time limit of an answer that is not streamed.
    timers.whole: Span, "requestTimeout"
        .flag("request-timeout", "TIME", TIMERS)
        .variable("API_TIMEOUT_MS", "in milliseconds", millis);

    /// The time without data on a connection, including probes, after which it counts as lost; at
    /// least 11s.
    timers.dead_path: DeadPathSpan, "deadPathTimeout"
        .flag("dead-path-timeout", "TIME", TIMERS);

    /// The longest wait for data on standard input.
    stdin_timeout: Span = Duration::from_mins(10), "stdinTimeout"
        .flag("stdin-timeout", "TIME", TIMERS);

    /// The maximum number of tokens in a reply.
    max_output_tokens: Option<Tokens> = None, "maxOutputTokens"
        .flag("max-output-tokens", "N", MODEL)
        .variable("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "", tokens).shown_as(limits().caps.first);

    /// The output cap of the second attempt after a reply was cut off.
    limits.caps.escalated: Tokens, "escalatedOutputTokens";

    /// The output cap of a reply that is not streamed.
    limits.caps.whole: Tokens, "wholeOutputTokens";

    /// The smallest output cap: no request is made if the budget allows fewer tokens.
    limits.caps.floor: Tokens, "minOutputTokens";

    /// The maximum number of times that the model is asked to continue a reply that was cut off.
    limits.budgets.continuations: u8, "outputContinuations";

    /// The thoroughness of replies; a model without the level uses the next lower one.
    reasoning.effort: Option<Effort>, "effortLevel"
        .flag("effort", "LEVEL", MODEL)
        .variable("CLAUDE_CODE_EFFORT_LEVEL", "except auto and unset", effort);

    /// The sizes of the models' context windows.
    context_window: Option<WindowSizes> = None, "contextWindow"
        .flag("context-window", "[MODEL=]TOKENS", MODEL).joined().kept();

    /// Summarise the older part of a conversation before it gets too long.
    limits.auto_compact: bool, "autoCompactEnabled"
        .variable("DISABLE_AUTO_COMPACT", "false if it is 1, true, yes or on", no);

    /// Summarise the conversation when it fills this fraction of the context window, if that is
    /// earlier than by compactHeadroom.
    compact_at: Option<Fraction> = None, "compactAt"
        .variable("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "in per cent", per_cent);

    /// Summarise the conversation when less than this is free in the context window, besides the
    /// room for a reply. Small windows use a smaller value.
    limits.headroom: Tokens, "compactHeadroom";

    /// The maximum number of summaries of a session's conversation; by default unlimited as long as
    /// summaries free space.
    limits.budgets.compactions: Option<u8>, "maxCompactions"
        .flag("max-compactions", "N", MODEL);

    /// Mark the parts of requests that the service may keep in its prompt cache.
    prompt_caching: bool = true, "promptCaching"
        .variable("DISABLE_PROMPT_CACHING", "false if it is 1, true, yes or on", no);

    /// Let models think before they answer; true also sets a thinking budget for models that need
    /// one.
    always_thinking: Option<bool> = None, "alwaysThinkingEnabled"
        .variable("CLAUDE_CODE_DISABLE_THINKING", "false if it is 1, true, yes or on", no)
        .default_words("true for models that choose their amount of thinking");

    /// The form in which the service shows thinking.
    reasoning.display: Option<ThinkingDisplay>, "thinkingDisplay"
        .flag("thinking-display", "HOW", MODEL);

    /// The maximum number of thinking tokens in a reply, if the model takes a budget; 0 for none.
    max_thinking_tokens: Option<ThinkingTokens> = None, "maxThinkingTokens"
        .flag("max-thinking-tokens", "N", MODEL)
        .variable("MAX_THINKING_TOKENS", "raised to 1024 if it is not 0", thinking);

    /// Leave the definitions of MCP tools out of requests until the model searches for them, if
    /// they would fill much of the context window; see outlast-mcp(7).
    tool_search: ToolSearch = ToolSearchMode::default(), "toolSearch"
        .variable("ENABLE_TOOL_SEARCH", "", tool_search);

    /// The time limit of a command if the model sets none.
    commands.timeout: Span, "bashTimeout"
        .variable("BASH_DEFAULT_TIMEOUT_MS", "in milliseconds", millis);

    /// The longest time limit that the model may set for a command.
    commands.max_timeout: Span, "bashMaxTimeout"
        .variable("BASH_MAX_TIMEOUT_MS", "in milliseconds", millis);

    /// The memory limit of all commands together. Above it, the command that uses most is ended.
    commands.memory: Option<MemorySize>, "commandMemory"
        .variable("OUTLAST_COMMAND_MEMORY", "", memory).critical()
        .default_words("three quarters of the memory of the machine or its control group");

    /// The time limit of a background command.
    commands.background_lifetime: Span, "backgroundLifetime";

    /// The longest wait for background commands once the model is done.
    limits.background.most: Span, "backgroundWait"
        .variable("CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS", "in milliseconds; 0 means no limit",
            longest_wait);

    /// The time limit for fetching a page, with all redirects.
    fetch.timeout: Span, "webFetchTimeout";

    /// Hosts that the tool WebFetch may reach at private addresses: localhost, *.corp.example,
    /// 10.0.0.7, or * for all.
    fetch.private_hosts: NameList, "webFetchPrivateHosts"
        .kept_as(KeptAs::Permission(None));

    /// The maximum nesting depth of sub-agents, 0 for none; see outlast-agents(7).
    agents.depth: u8, "maxAgentDepth"
        .untrusted(Untrusted::Stricter(is_at_most::<u8>)).kept();

    /// The maximum number of sub-agents at work at a time. Others wait in a queue.
    agents.live: NonZeroU16, "maxLiveAgents"
        .kept();

    /// The maximum number of sub-agents that a session may start.
    agents.total: u32, "maxAgents"
        .takes("a whole number, or 0 for none").kept();

    /// The maximum length of a tool result. A longer result is cut in the middle and saved to a
    /// file. Read shows up to 100,000 characters, unless this is below 30,000.
    results.chars: NonZeroU32, "maxToolResultChars"
        .variable("BASH_MAX_OUTPUT_LENGTH", "", length);

    /// The sandbox mode; off by default with bypassPermissions. See outlast-security(7).
    sandbox_mode: Option<SandboxMode> = None, "sandbox.mode"
        .flag("sandbox", "MODE", TOOLS).critical().untrusted(Untrusted::Stricter(is_stricter_mode))
        .default_words("workspace; off with bypassPermissions")
        .kept_as(KeptAs::Permission(Some("read-only")));

    /// Another form of sandbox.mode: true turns the sandbox on, false turns it off.
    sandbox_enabled: Option<bool> = None, "sandbox.enabled"
        .form_of("sandbox.mode").untrusted(Untrusted::Stricter(|value, _| value == true));

    /// Another form of sandbox.mode: true means required.
    sandbox_required: Option<bool> = None, "sandbox.failIfUnavailable"
        .critical().form_of("sandbox.mode")
        .untrusted(Untrusted::Stricter(|value, _| value == true));

    /// Paths that commands may write to, in addition to those of the mode.
    sandbox.allow_write: Vec<String>, "sandbox.filesystem.allowWrite"
        .takes("a list of paths").kept_as(KeptAs::Permission(None));

    /// Paths that commands may not write to.
    sandbox.deny_write: Vec<String>, "sandbox.filesystem.denyWrite"
        .takes("a list of paths").critical().untrusted(Untrusted::Paths)
        .kept_as(KeptAs::Prohibition);

    /// Paths that commands may read although outlast closes them by default.
    sandbox.allow_read: Vec<String>, "sandbox.filesystem.allowRead"
        .takes("a list of paths").kept_as(KeptAs::Permission(None));

    /// Paths that commands may not read.
    sandbox.deny_read: Vec<String>, "sandbox.filesystem.denyRead"
        .takes("a list of paths").critical().untrusted(Untrusted::Paths)
        .kept_as(KeptAs::Prohibition);

    /// Let commands use terminals: those that they create (script, tmux, expect) and those of the
    /// user.
    sandbox.terminals: TerminalSwitch, "sandbox.terminals"
        .kept_as(KeptAs::Permission(Some("false")));

    /// Let commands of root keep all capabilities that do not bypass the sandbox: to change users
    /// (su, apt-get), the clock, the network.
    sandbox.capabilities: RootSwitch, "sandbox.capabilities"
        .kept_as(KeptAs::Permission(Some("false")));

    /// The network of sandboxed commands: on or off. If it is off, they cannot create sockets.
    sandbox.no_network: NetworkSwitch, "sandbox.network.enabled"
        .flag("sandbox-network", "ON|OFF", TOOLS)
        .untrusted(Untrusted::Stricter(|value, _| value == false))
        .kept_as(KeptAs::Permission(Some("false")));

    /// The only hosts that commands and WebFetch reach: HOST, *.HOST or an address, perhaps with
    /// :PORT. An empty list turns the network off. See outlast-network(7).
    allowed_domains: Vec<String> = Vec::new(), "sandbox.network.allowedDomains"
        .takes("a list of hosts").critical().kept_as(KeptAs::IfSet);

    /// Hosts that commands and WebFetch do not reach, even if they are allowed. Without a list of
    /// allowed domains, all other hosts are allowed.
    denied_domains: Vec<String> = Vec::new(), "sandbox.network.deniedDomains"
        .takes("a list of hosts").critical().kept_as(KeptAs::Prohibition);

    /// Let commands open loopback ports. False is a mistake without a list of domains.
    allow_local_binding: bool = true, "sandbox.network.allowLocalBinding";

    /// Unix sockets of other programs that commands may use if there is a list of domains.
    allow_unix_sockets: Vec<String> = Vec::new(), "sandbox.network.allowUnixSockets"
        .takes("a list of paths");

    /// Let commands use all Unix sockets that have a path; with a list of domains only if it is
    /// set. False is a mistake without a list of domains.
    allow_all_unix_sockets: bool = true, "sandbox.network.allowAllUnixSockets";

    /// Ignore lists of allowed domains outside of managed files. A mistake in other files.
    managed_domains_only: bool = false, "sandbox.network.allowManagedDomainsOnly";

    /// A mistake while the network is on, because it cannot be enforced.
    http_proxy_port: Option<u16> = None, "sandbox.network.httpProxyPort";

    /// A mistake while the network is on, because it cannot be enforced.
    socks_proxy_port: Option<u16> = None, "sandbox.network.socksProxyPort";

    /// Hooks, helpers and local servers that run outside of the sandbox although commands can write
    /// to their files: names of servers, words or paths of commands. Ignored in files of a
    /// repository.
    unconfined_programs: Vec<String> = Vec::new(), "unconfinedPrograms"
        .takes("a list of names and paths");

    /// The variables that commands see.
    commands.child_environment: ChildEnvironment, "childEnv"
        .flag("child-env", "MODE", TOOLS).critical().untrusted(Untrusted::Only("allowlist"))
        .default_words("scrub; inherit with bypassPermissions")
        .kept_as(KeptAs::Permission(Some("allowlist")));

    /// Variables that commands see in any case; the flag may be repeated.
    commands.pass_env: NameList, "passEnv"
        .flag("pass-env", "NAME", TOOLS).joined().kept_as(KeptAs::Permission(None));

    /// In a step of GitHub Actions, append a report on the run to the step's summary, and annotate
    /// a failure; see outlast-report(7).
    step_summary: bool = true, "stepSummary"
        .variable("OUTLAST_NO_STEP_SUMMARY", "false if it is 1, true, yes or on", no);

    /// The number of days for which a session is kept after its last use, 0 for ever; each run
    /// removes a few older sessions.
    cleanup_period_days: u32 = 30, "cleanupPeriodDays"
        .takes("a whole number of days, or 0 for ever");
}
