//! The doctor: checks this machine and reports what would prevent a run, with remedies.
//!
//! ```text
//! the machine ─facts─► Facts ─checks─► Findings ─render─► text, or one JSON object
//! ```
//!
//! Facts are read in parallel, each within [`CHECK_MAX`]; the checks are pure functions of the
//! facts. The only change is a test file in the session folder, which is removed again. MCP servers
//! that the user configured are started and shut down.

pub mod checks;
pub mod facts;
mod finding;
mod render;
mod time_limits;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use finding::{DoctorReport, Finding, FindingCause, Severity, merge_causes};
pub use render::json;
pub use time_limits::CHECK_MAX;

use crate::hooks::HookHandler;
use crate::mcp::Servers;
use crate::model::{self, CaFile};
use crate::secrets::Variables;
use crate::tools::ShellProgram;
use checks::{credentials, hooks, installation, machine, sandbox, servers, settings, store};
pub use facts::profile::ProfileFacts;
use facts::{install, service};
use time_limits::blocking_within_limit;

/// The environment of the process.
#[derive(Clone, Debug)]
pub struct DoctorContext {
    pub version: &'static str,
    pub commit: &'static str,
    pub variables: Variables,
    pub cwd: PathBuf,
    /// The home folder, if known.
    pub home: Option<PathBuf>,
    /// The folder of settings and sessions.
    pub config_dir: PathBuf,
    /// The name by which the program was called.
    pub program_name: String,
    /// True if no network requests are made.
    pub offline: bool,
}

/// The resolved configuration.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub struct ResolvedConfig {
    /// Path and state of each settings file.
    pub files: Vec<(String, &'static str)>,
    /// Mistakes that prevent a run.
    pub mistakes: Vec<String>,
    pub warnings: Vec<String>,
    /// Settings of an untrusted repository that are ignored.
    pub ignored: Vec<String>,
    /// Timers and limits in force: name, value, origin.
    pub limits: Vec<(String, String, String)>,
    /// Kind and source of each credential. The first one is in use.
    pub credentials: Vec<(&'static str, String)>,
    /// True if the service certainly requires a credential, because it is the Anthropic API itself.
    pub needs_credential: bool,
    /// The endpoints of the models. The first one is that of the preferred model.
    pub endpoints: Vec<ServicePlace>,
    /// Settings files that were not read because of a mistake.
    pub broken: Vec<String>,
    /// True if no run can be set up, so that its servers and fallback models are unknown.
    pub run_unavailable: bool,
    /// True if the run would skip permission checks as root.
    pub bypasses_as_root: bool,
    /// Paths that a run denies to commands, but that they can reach, with the remedy.
    pub exposed: Option<String>,
    /// True if a run starts the key helper inside the sandbox of commands. The doctor starts it
    /// outside.
    pub helper_is_confined: bool,
    /// The facts about `--profile untrusted`, or the reason why no run with it can be set up.
    /// `None`: no run at all can be set up.
    pub profile: Option<Result<ProfileFacts, String>>,
    /// Time that a run waits for the start of MCP servers.
    pub mcp_wait: Duration,
    /// Maximum time without output while a run waits.
    pub heartbeat: Duration,
    /// Problems of the configured hooks.
    pub bad_hooks: Vec<String>,
    pub hooks: Vec<ConfiguredHook>,
    /// True if all hooks are switched off.
    pub hooks_off: bool,
    pub servers: Vec<ConfiguredServer>,
    /// Problems of MCP servers that a run leaves out.
    pub bad_servers: Vec<String>,
    /// The servers in `servers`, ready to be started.
    pub mcp_servers: Arc<Servers>,
    /// Unknown variables whose names resemble those of outlast, with the probably intended name.
    pub unknown_variables: Vec<(String, Option<&'static str>)>,
    /// Certificate files that are trusted in addition to the system's.
    pub ca_files: Vec<CaFile>,
    /// The environment variables, including those from settings.
    pub variables: Variables,
}

/// An endpoint with its credential and the models of the chain that use it.
#[derive(Clone, Debug)]
pub struct ServicePlace {
    pub endpoint: model::ModelService,
    /// The names as sent to the API.
    pub models: Vec<String>,
    /// Kind and source of the credential.
    pub credential: Option<(&'static str, String)>,
    /// True if the credential is an expired login.
    pub login_expired: bool,
    /// True if it is used only as a fallback.
    pub is_fallback: bool,
}

/// A configured hook.
#[derive(Clone, Debug)]
pub struct ConfiguredHook {
    pub handler: HookHandler,
    /// The folder of its project, if that is not the working folder.
    pub project: Option<PathBuf>,
}

/// A configured MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredServer {
    pub name: String,
    /// The file or flag that configures it.
    pub source: String,
    pub how: ServerTransport,
    pub disabled: bool,
    /// The advice for a server that requires a login.
    pub login_advice: String,
}

/// The transport of an MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTransport {
    /// Standard input and output of this program.
    Program(String),
    /// HTTP to this URL, in a form without secrets.
    Address(String),
    /// Messages to the host that controls the run.
    Host,
}

/// Runs all checks. `read_config` reads the settings.
pub async fn run_checks(
    context: &DoctorContext,
    read_config: impl FnOnce() -> ResolvedConfig + Send + 'static,
) -> DoctorReport {
    let began = Instant::now();
    let DoctorContext { home, variables, cwd, config_dir, .. } = context.clone();
    let (machine_home, machine_variables) = (home.clone(), variables.clone());
    let (store_dir, for_install) = (config_dir.clone(), context.clone());
    let find_shell = move || {
        let path = variables.get(OsStr::new("PATH")).map_or(OsStr::new(""), OsString::as_os_str);
        let program = ShellProgram::find(path, &cwd);
        (facts::shell::find_shadowing_aliases(home.as_deref(), &variables), program)
    };
    let read_machine =
        move || facts::machine::read_machine(machine_home.as_deref(), &machine_variables);
    let (installation, shell, configuration, log, store, supervisor, machine) = tokio::join!(
        blocking_within_limit("installation", move || install::find_installations(&for_install)),
        blocking_within_limit("shell", find_shell),
        check_configuration(context, began + time_limits::TOTAL_MAX, read_config),
        blocking_within_limit("hook log", move || facts::store::hook_log(&config_dir)),
        blocking_within_limit("sessions", move || facts::store::inspect_store(&store_dir)),
        time_limits::within_limit("commands", facts::machine::start_test_command(context)),
        blocking_within_limit("machine", read_machine),
    );
    let findings = [
        check(installation, |facts| installation::check_installation(context, &facts)),
        check(shell, |(aliases, program)| {
            let shell = machine::check_command_shell(program.warning());
            [installation::check_shell(&aliases), shell].concat()
        }),
        configuration,
        check(log, |log| hooks::check_hook_log(&log)),
        check(store, |facts| store::check_store(&facts)),
        check(supervisor, |failure| machine::check_supervisor(failure.as_deref())),
        check(machine, |facts| machine::check_machine(&facts)),
    ];
    let findings = merge_causes(findings.concat());
    DoctorReport { findings, took: began.elapsed().min(Duration::from_hours(1)) }
}

/// Checks facts, or else returns the finding that they could not be read in time.
fn check<T>(facts: Result<T, Finding>, check: impl FnOnce(T) -> Vec<Finding>) -> Vec<Finding> {
    facts.map_or_else(|late| vec![late], check)
}

/// Runs the checks that depend on settings. After the settings are read, services, servers and
/// hooks are probed in parallel.
async fn check_configuration(
    context: &DoctorContext,
    until: Instant,
    read_config: impl FnOnce() -> ResolvedConfig + Send + 'static,
) -> Vec<Finding> {
    let config = match blocking_within_limit("settings", read_config).await {
        Ok(config) => config,
        Err(late) => {
            let ci = machine::check_ci(&context.variables, ResolvedConfig::default().heartbeat);
            return vec![late, settings::settings_unreadable(), ci];
        }
    };
    let (services, tried, broken) = tokio::join!(
        service::probe_services(&config, context.offline, until),
        time_limits::within_limit(
            "mcp",
            facts::servers::try_servers(&config.mcp_servers, context.offline, config.mcp_wait)
        ),
        blocking_within_limit("hooks", {
            let (lines, cwd) = (config.hooks.clone(), context.cwd.clone());
            let (home, variables) = (context.home.clone(), config.variables.clone());
            move || facts::hooks::find_broken_hooks(&lines, &cwd, home.as_deref(), &variables)
        }),
    );
    // Only if every service is unreachable, its cause may be that of other connections, too.
    let causes = services.iter().flatten().map(checks::service::network_cause);
    let network = causes.collect::<Option<Vec<_>>>().and_then(|causes| causes.first().copied());
    let findings = [
        settings::check_settings(&config),
        sandbox::check_run_sandbox(&config),
        Vec::from_iter(sandbox::check_profile(&config)),
        credentials::check_credentials(&config),
        checks::service::trusted_certificates(&config),
        // Before the services: they refuse a malformed credential, and this finding explains it.
        checks::environment::check_environment(&config),
        check_services(services),
        check(tried, |tried| servers::check_servers(&config, context, &tried, network)),
        check(broken, |broken| hooks::check_hooks(&config, &broken)),
        vec![machine::check_ci(&context.variables, config.heartbeat)],
    ];
    findings.concat()
}

/// Checks all services. A finding that several of them share, such as a helper that hangs, is
/// reported once.
fn check_services(services: Vec<Result<service::ServiceFacts, Finding>>) -> Vec<Finding> {
    let first = services.first().and_then(|first| first.as_ref().ok());
    let used = first.and_then(|first| first.credential.clone());
    let check_one = |service: service::ServiceFacts| {
        let mut findings = checks::service::check_service(&service);
        // The refusal of another credential has its own cause.
        if service.credential != used {
            let shared = |finding: &&mut Finding| finding.cause == Some(FindingCause::Credential);
            findings.iter_mut().filter(shared).for_each(|finding| finding.cause = None);
        }
        findings
    };
    let mut findings = Vec::new();
    for finding in services.into_iter().flat_map(|service| check(service, check_one)) {
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings
}
