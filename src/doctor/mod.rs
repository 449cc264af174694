//! Looks for whatever would keep a run from working, and says how to mend it.
//!
//! ```text
//! the machine ─facts─► Facts ─checks─► Findings ─render─► text, or one JSON object
//! ```
//!
//! Facts are only looked at, side by side, each within [`CHECK_MAX`]; the checks judge them and
//! touch nothing. Nothing is changed but for a file that is written to the folder of sessions and
//! removed again. MCP servers that the user configured are started, and ended again.

mod bounds;
pub mod checks;
pub mod facts;
mod finding;
mod render;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use bounds::CHECK_MAX;
pub use finding::{Finding, Severity, DoctorReport};
pub use render::{json, text};

use crate::hooks::HookCommand;
use crate::mcp::Servers;
use crate::model;
use crate::secrets::Variables;
use bounds::blocking_within_limit;
use checks::{credentials, hooks, installation, machine, servers, settings, store};
use facts::{install, service};

/// What the process was started with.
#[derive(Clone, Debug)]
pub struct DoctorContext {
    pub version: &'static str,
    pub commit: &'static str,
    pub variables: Variables,
    pub cwd: PathBuf,
    /// As far as anybody knows it.
    pub home: Option<PathBuf>,
    /// Where settings and sessions are kept.
    pub config_dir: PathBuf,
    /// The name that the program was called by.
    pub program_name: String,
    /// Whether nobody on the network is to be asked.
    pub offline: bool,
}

/// What the settings come to.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is so or not, whatever the others")]
pub struct ResolvedConfig {
    /// Path, and what became of it.
    pub files: Vec<(String, &'static str)>,
    /// Each keeps a run from beginning.
    pub mistakes: Vec<String>,
    pub warnings: Vec<String>,
    /// What an untrusted repository wanted, and did not get.
    pub ignored: Vec<String>,
    /// Timers and limits in force: name, value, origin.
    pub limits: Vec<(String, String, String)>,
    /// Every credential, the one in use first: kind, source.
    pub credentials: Vec<(String, String)>,
    /// Whether the service is one that surely wants a credential.
    pub needs_credential: bool,
    /// Where the models are, the preferred one's first.
    pub endpoints: Vec<ServicePlace>,
    /// Files with a mistake: nothing that they say is known.
    pub broken: Vec<String>,
    /// Whether no run can be put together, so that nobody knows its servers and fallbacks.
    pub run_unavailable: bool,
    /// Whether the run would ask nobody for permission, and be root.
    pub bypasses_as_root: bool,
    /// The longest silence while waiting.
    pub heartbeat: Duration,
    /// Events with the number of their hooks, and what is wrong with any of them.
    pub hooks: Vec<(String, usize)>,
    pub bad_hooks: Vec<String>,
    /// Each hook, and what it runs.
    pub hook_commands: Vec<HookLine>,
    /// Whether somebody switched all hooks off.
    pub hooks_off: bool,
    pub servers: Vec<ConfiguredServer>,
    /// What is wrong with servers that are left out.
    pub bad_servers: Vec<String>,
    /// The same servers, ready to be started.
    pub mcp_servers: Arc<Servers>,
    /// Variables that nobody reads though they look like ours, and which one may be meant.
    pub unknown_variables: Vec<(String, Option<&'static str>)>,
    /// Certificate files beside the system's.
    pub ca_files: Vec<PathBuf>,
    /// The variables, with what the settings add.
    pub variables: Variables,
}

/// Where some models of the chain are, and how they are asked.
#[derive(Clone, Debug)]
pub struct ServicePlace {
    pub endpoint: model::ModelService,
    /// As they are sent.
    pub models: Vec<String>,
    /// Kind and source of what they are asked with.
    pub credential: Option<(String, String)>,
    /// Whether that is a login that has ended.
    pub login_expired: bool,
    /// Whether it is asked only when another fails.
    pub is_fallback: bool,
}

/// One hook, as the settings name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookLine {
    pub event: &'static str,
    pub command: HookCommand,
    pub timeout: Duration,
    /// Whether its failure forbids what it guards.
    pub guard: bool,
    /// The file that names it.
    pub source: String,
}

/// An MCP server that is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredServer {
    pub name: String,
    /// Who names it.
    pub source: String,
    pub how: ServerTransport,
    pub disabled: bool,
}

/// How an MCP server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTransport {
    /// By starting this.
    Program(String),
    /// At this address, as far as it may be shown.
    Address(String),
}

/// Looks at everything. `know` reads the settings.
pub async fn run_checks(scene: &DoctorContext, know: impl FnOnce() -> ResolvedConfig + Send + 'static) -> DoctorReport {
    let began = Instant::now();
    let one = scene.clone();
    let shell = blocking_within_limit("shell", {
        let (home, variables) = (scene.home.clone(), scene.variables.clone());
        move || facts::shell::find_shadowing_aliases(home.as_deref(), &variables)
    });
    let until = began + bounds::TOTAL_MAX;
    let around = (scene.home.clone(), scene.variables.clone());
    let (of_settings, install, search, shell, kept, machine, log, keeper) = tokio::join!(
        check_configuration(scene, until, know),
        blocking_within_limit("installation", move || install::find_installations(&one)),
        bounds::within_limit("search", facts::search::find_ripgrep(scene)),
        shell,
        blocking_within_limit("sessions", {
            let config = scene.config_dir.clone();
            move || facts::store::inspect_store(&config)
        }),
        blocking_within_limit("machine", move || facts::machine::read_machine(around.0.as_deref(), &around.1)),
        blocking_within_limit("hook log", {
            let config = scene.config_dir.clone();
            move || facts::store::hook_log(&config)
        }),
        bounds::within_limit("keeper", facts::machine::start_test_command(scene)),
    );
    let findings = [
        unwrap_findings(install.map(|facts| installation::check_installation(scene, &facts))),
        unwrap_findings(search.map(|found| installation::check_search(found.as_deref()))),
        unwrap_findings(shell.map(|facts| installation::check_shell(&facts))),
        of_settings,
        unwrap_findings(log.map(|log| hooks::check_hook_log(&log))),
        unwrap_findings(kept.map(|facts| store::check_store(&facts))),
        unwrap_findings(keeper.map(|failed| machine::check_supervisor(failed.as_deref()))),
        unwrap_findings(machine.map(|facts| machine::check_machine(&facts))),
    ];
    DoctorReport { findings: findings.concat(), took: began.elapsed().min(Duration::from_hours(1)) }
}

/// What a check found, or that it never ended.
fn unwrap_findings(found: Result<Vec<Finding>, Finding>) -> Vec<Finding> {
    found.unwrap_or_else(|late| vec![late])
}

/// Whatever depends on the settings. Once these are known, the service and the servers are asked
/// side by side.
async fn check_configuration(
    scene: &DoctorContext,
    until: Instant,
    know: impl FnOnce() -> ResolvedConfig + Send + 'static,
) -> Vec<Finding> {
    let known = match blocking_within_limit("settings", know).await {
        Ok(known) => known,
        Err(late) => {
            let usual = machine::check_ci(&scene.variables, ResolvedConfig::default().heartbeat);
            return vec![late, settings::settings_unreadable(), usual];
        }
    };
    let (services, tried, broken) = tokio::join!(
        service::probe_services(&known, scene.offline, until),
        bounds::within_limit("mcp", facts::servers::try_servers(&known.mcp_servers, scene.offline)),
        blocking_within_limit("hooks", {
            let (lines, cwd) = (known.hook_commands.clone(), scene.cwd.clone());
            let (home, variables) = (scene.home.clone(), known.variables.clone());
            move || facts::hooks::find_broken_hooks(&lines, &cwd, home.as_deref(), &variables)
        }),
    );
    let findings = [
        settings::check_settings(&known),
        credentials::check_credentials(&known),
        checks::service::trusted_certificates(&known),
        check_services(services),
        checks::environment::check_environment(&known),
        unwrap_findings(tried.map(|tried| servers::check_servers(&known, scene, &tried))),
        unwrap_findings(broken.map(|broken| hooks::check_hooks(&known, &broken))),
        vec![machine::check_ci(&scene.variables, known.heartbeat)],
    ];
    findings.concat()
}

/// What several services have in common is said once, like a helper that hangs.
fn check_services(seen: Vec<Result<service::ServiceFacts, Finding>>) -> Vec<Finding> {
    let judge = |service: service::ServiceFacts| checks::service::check_service(&service);
    let mut findings = Vec::new();
    for finding in seen.into_iter().flat_map(|seen| unwrap_findings(seen.map(judge))) {
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings
}
