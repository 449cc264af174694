//! The variables that are read, for the manual and for hints, and those of the reference that are
//! not obeyed.

use std::borrow::Cow;
use std::ffi::OsStr;

use super::environment::{Variables, is_enabled};
use super::registry::settings;
use super::values;

/// Variables that do not set a setting, each with its description in the manual.
#[rustfmt::skip]
const OTHERS: &[(&str, &str)] = &[
    ("ANTHROPIC_API_KEY", "The API key."),
    ("ANTHROPIC_AUTH_TOKEN", "A bearer token; outranks the API key."),
    ("CLAUDE_CODE_OAUTH_TOKEN", "A bearer token, as printed by `claude setup-token`; used if no API \
        key is set."),
    ("CLAUDE_CODE_API_KEY_HELPER_TTL_MS", "The time for which a key from a helper command is \
        used, in milliseconds; 0: it is read for each request. Default: 300000."),
    ("ANTHROPIC_BASE_URL", "The address of the Messages API. A user and password in it are sent \
        as basic authentication, unless a bearer token is set."),
    ("CLAUDE_CODE_USE_BEDROCK, CLAUDE_CODE_USE_VERTEX, CLAUDE_CODE_USE_FOUNDRY", "1, true, yes or \
        on: use the models at Amazon Bedrock, Google Vertex AI or Microsoft Foundry, without \
        ANTHROPIC_BASE_URL and keys of the Messages API; see outlast-clouds(7)."),
    ("AWS_REGION, AWS_DEFAULT_REGION", "The region of Bedrock. Default: that of the profile."),
    ("AWS_PROFILE", "The profile whose credentials sign requests to Bedrock. The other variables \
        of the AWS credential chain are also read."),
    ("AWS_BEARER_TOKEN_BEDROCK", "An API key of Bedrock; outranks AWS credentials."),
    ("ANTHROPIC_BEDROCK_BASE_URL", "The address of Bedrock, instead of its public address."),
    ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME, AWS_ENDPOINT_URL", "The address for all programs that use \
        AWS; ANTHROPIC_BEDROCK_BASE_URL outranks it."),
    ("AWS_USE_FIPS_ENDPOINT, AWS_USE_DUALSTACK_ENDPOINT", "true: use the hosts of AWS with \
        validated cryptography, or those with IPv6."),
    ("CLOUD_ML_REGION", "The region of Vertex AI: global, us, eu, or one like europe-west1."),
    ("ANTHROPIC_VERTEX_PROJECT_ID, GOOGLE_CLOUD_PROJECT, GCLOUD_PROJECT", "The project of Vertex \
        AI. Default: that of the credentials."),
    ("ANTHROPIC_VERTEX_BASE_URL", "The address of Vertex AI, with /v1, instead of its public \
        address."),
    ("GOOGLE_APPLICATION_CREDENTIALS", "The file of Google credentials. Default: that of gcloud, \
        or the metadata server."),
    ("GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES", "1: a file of Google credentials may name a \
        program to run."),
    ("ANTHROPIC_FOUNDRY_RESOURCE", "The resource of Foundry."),
    ("ANTHROPIC_FOUNDRY_BASE_URL", "The address of Foundry, instead of that of a resource."),
    ("ANTHROPIC_FOUNDRY_API_KEY", "The key of the Foundry resource. Default: a Microsoft Entra \
        identity."),
    ("AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET, AZURE_FEDERATED_TOKEN_FILE", "The \
        Microsoft Entra application, with a secret or a federated token."),
    ("CLAUDE_CODE_SKIP_BEDROCK_AUTH, CLAUDE_CODE_SKIP_VERTEX_AUTH, CLAUDE_CODE_SKIP_FOUNDRY_AUTH", "1, true, \
        yes or on: a gateway authenticates the requests to that cloud; only apiKeyHelper, \
        ANTHROPIC_AUTH_TOKEN and ANTHROPIC_CUSTOM_HEADERS are sent."),
    ("ANTHROPIC_CUSTOM_HEADERS", "Further headers for each request, one \"Name: value\" per line."),
    ("CLAUDE_AGENT_SDK_CLIENT_APP", "The program that uses an SDK, for the User-Agent of requests."),
    ("ANTHROPIC_DEFAULT_OPUS_MODEL", "The model of the alias opus."),
    ("ANTHROPIC_DEFAULT_SONNET_MODEL", "The model of the alias sonnet."),
    ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "The model of the alias haiku."),
    ("CLAUDE_CODE_SUBAGENT_MODEL", "The model of all sub-agents."),
    ("MCP_TIMEOUT", "In milliseconds: how long the first request waits for servers that are starting \
        (default 5000), and how long a run waits for those of --mcp-required before it fails \
        (default 30000). The variable sets both. A server that is late is added to the running run."),
    ("OUTLAST_MCP_START_TIMEOUT", "The time limit for the start of a local MCP server, in \
        milliseconds, at least MCP_TIMEOUT. Default: 300000."),
    ("MCP_TOOL_TIMEOUT", "The time limit for a call of an MCP tool without progress, in \
        milliseconds. Default: 600000. The timeout of a server's entry outranks it."),
    ("MCP_CLIENT_SECRET", "For `outlast mcp login`: the secret of a client whose entry has only a \
        clientId."),
    ("MAX_MCP_OUTPUT_TOKENS", "The part of an MCP tool's result that the model sees, in tokens of \
        four characters. Default: as for other tools."),
    ("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", "The number of objections of Stop hooks in a row at which \
        the run ends as stop_hook_blocked; 0 and larger numbers count as 255. Default: 3, or 2 if they give the same reason without a \
        tool call in between."),
    ("CLAUDE_CODE_SESSIONEND_HOOKS_TIMEOUT_MS", "The time limit of SessionEnd hooks without a \
        timeout, in milliseconds, at most 60000. Default: 1500."),
    ("OUTLAST_TRUST_PROJECT", "1, true, yes or on: like --trust-project."),
    ("OUTLAST_CONFIG_DIR", "The folder of settings and sessions, instead of ~/.outlast."),
    ("OUTLAST_HOST_ID", "The name of this machine in the leases of sessions, instead of the \
        kernel's boot id, for machines on a shared file system that have the same boot id; see \
        outlast-ci(7). Not read from env in settings, because the session is locked before they \
        are read."),
    ("CLAUDE_CONFIG_DIR", "Read if OUTLAST_CONFIG_DIR is not set."),
    ("CLAUDE_CODE_DISABLE_CLAUDE_MDS", "1, true, yes or on: like --no-memory."),
    ("CLAUDE_CODE_SUBPROCESS_ENV_SCRUB", "1, true, yes or on: commands get no secrets, also with \
        bypassPermissions; see outlast-security(7)."),
    ("OUTLAST_HOOK_DEPTH", "Set for hooks, to prevent endless chains of hooks that start outlast."),
    ("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "true: keep former contents of files, so that a \
        host can restore them; see outlast-host(7)."),
    ("CLAUDE_CODE_SDK_READS_SESSION_STATE", "1: the host follows the state of its session, and \
        gets a result when a turn waits for sub-agents; see outlast-host(7)."),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "Exports traces and metrics of each run to this OpenTelemetry \
        collector, as OTLP in JSON; the other standard variables of the exporter (for one signal, \
        headers, timeout, certificate, service name, resource, sampler) and TRACEPARENT are also \
        read."),
    ("HTTPS_PROXY, HTTP_PROXY, ALL_PROXY", "The proxy to use: http://user:password@host:port, or \
        socks5://host:port. Lower-case names are also read. Loopback addresses are reached \
        without a proxy."),
    ("NO_PROXY", "Hosts, domains, addresses and networks that are reached without a proxy."),
    ("SSL_CERT_FILE", "A file of certificate authorities to trust. In the environment of outlast \
        it replaces the system's; in env of a settings file it is added to them."),
    ("NODE_EXTRA_CA_CERTS", "A file of further certificate authorities to trust, like --ca-file. \
      Ignored with a warning if it cannot be read."),
    ("CLAUDE_CODE_CLIENT_CERT, CLAUDE_CODE_CLIENT_KEY", "PEM files of a certificate and its key, not \
        encrypted, for services of models, MCP servers and collectors that demand one. Without the \
        second, the first has both."),
    ("HOME", "The home folder (~)."),
    ("XDG_RUNTIME_DIR", "The folder of the shared rate limits; see FILES."),
    ("CI, GITHUB_ACTIONS", "The run is part of a CI job: it ends, with a result, when the process \
        that started it ends."),
    ("GITHUB_STEP_SUMMARY", "The file to which a report on the run is appended, if GITHUB_ACTIONS \
        is true; see outlast-report(7)."),
    ("NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID", "Set by systemd: outlast notifies it of the \
        start, the activity and the end of the run; see outlast-ci(7)."),
    ("OUTLAST_COLOR", "auto, always or never: like --color. Outranks the variables below."),
    ("NO_COLOR, CLICOLOR=0", "No colours, even on a terminal."),
    ("CLICOLOR_FORCE", "Colours, even if standard error is not a terminal."),
    ("TERM=dumb", "No colours and no updated line, even on a terminal."),
    ("MANPAGER, PAGER", "The program that shows long pages of outlast help on a terminal; empty \
        or cat for none. Default: less."),
    ("TZ", "The time zone of displayed times."),
];

/// Variables of the reference that would change a run and are not obeyed, each with whether it is a
/// switch.
const WITHOUT_EFFECT: [(&str, bool); 5] = [
    ("CLAUDE_CODE_SHELL_PREFIX", false),
    ("CLAUDE_ENV_FILE", false),
    ("CLAUDE_CODE_EXTRA_BODY", false),
    ("CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR", true),
    ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", true),
];

/// Returns the variables of the reference that are set and not obeyed.
pub fn without_effect(variables: &Variables) -> impl Iterator<Item = &'static str> {
    let is_set = |(name, is_switch): &(&str, bool)| {
        let value = variables.get(OsStr::new(name));
        value.is_some_and(|value| !value.is_empty()) && !*is_switch || is_enabled(variables, name)
    };
    WITHOUT_EFFECT.into_iter().filter(is_set).map(|(name, _)| name)
}

/// Variables of the reference whose 0 cannot be obeyed, and counts as not set.
const DEFAULT_AT_ZERO: [&str; 12] = [
    "API_TIMEOUT_MS",
    "BASH_DEFAULT_TIMEOUT_MS",
    "BASH_MAX_OUTPUT_LENGTH",
    "BASH_MAX_TIMEOUT_MS",
    "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "CLAUDE_CODE_RETRY_WATCHDOG_MAX_WAIT_MS",
    "CLAUDE_CODE_SESSIONEND_HOOKS_TIMEOUT_MS",
    "CLAUDE_STREAM_IDLE_TIMEOUT_MS",
    "MAX_MCP_OUTPUT_TOKENS",
    "MCP_TIMEOUT",
    "MCP_TOOL_TIMEOUT",
];

/// Returns warnings of the variables whose value is a 0 that counts as not set.
pub fn zero_warnings(variables: &Variables) -> impl Iterator<Item = String> {
    let text = |name: &str| variables.get(OsStr::new(name)).and_then(|value| value.to_str());
    let zeros =
        DEFAULT_AT_ZERO.into_iter().filter(move |name| text(name).is_some_and(values::is_zero));
    zeros.map(|name| format!("{name} is 0, so its default applies"))
}

/// Returns every variable that is read, with its description in the manual. Several names may share
/// one description.
pub fn variables() -> impl Iterator<Item = (Cow<'static, str>, Cow<'static, str>)> {
    let others = OTHERS.iter().map(|(names, text)| ((*names).into(), (*text).into()));
    let of_settings = super::variables::documentation().into_iter();
    others.chain(of_settings.map(|(name, text)| (name.into(), text.into())))
}

/// Returns the names of all variables that are read.
pub fn variable_names() -> impl Iterator<Item = &'static str> {
    let others = OTHERS.iter().flat_map(|(names, _)| names.split(", "));
    let others = others.map(|name| name.split('=').next().unwrap_or(name));
    let of_settings = settings().iter().flat_map(|setting| &setting.variables);
    others.chain(of_settings.map(|variable| variable.name))
}
