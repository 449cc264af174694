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
use bounds::bounded;
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
    pub called: String,
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
    pub places: Vec<ServicePlace>,
    /// Files with a mistake: nothing that they say is known.
    pub broken: Vec<String>,
    /// Whether no run can be put together, so that nobody knows its servers and fallbacks.
    pub unprepared: bool,
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
    pub start: Arc<Servers>,
    /// Variables that nobody reads though they look like ours, and which one may be meant.
    pub strange_variables: Vec<(String, Option<&'static str>)>,
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
    pub standby: bool,
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
pub async fn examine(scene: &DoctorContext, know: impl FnOnce() -> ResolvedConfig + Send + 'static) -> DoctorReport {
    let began = Instant::now();
    let one = scene.clone();
    let shell = bounded("shell", {
        let (home, variables) = (scene.home.clone(), scene.variables.clone());
        move || facts::shell::look(home.as_deref(), &variables)
    });
    let until = began + bounds::TOTAL_MAX;
    let around = (scene.home.clone(), scene.variables.clone());
    let (of_settings, install, search, shell, kept, machine, log, keeper) = tokio::join!(
        judge_settings(scene, until, know),
        bounded("installation", move || install::look(&one)),
        bounds::within("search", facts::search::look(scene)),
        shell,
        bounded("sessions", {
            let config = scene.config_dir.clone();
            move || facts::store::look(&config)
        }),
        bounded("machine", move || facts::machine::look(around.0.as_deref(), &around.1)),
        bounded("hook log", {
            let config = scene.config_dir.clone();
            move || facts::store::hook_log(&config)
        }),
        bounds::within("keeper", facts::machine::start_one(scene)),
    );
    let findings = [
        settled(install.map(|facts| installation::judge(scene, &facts))),
        settled(search.map(|found| installation::search(found.as_deref()))),
        settled(shell.map(|facts| installation::shell(&facts))),
        of_settings,
        settled(log.map(|log| hooks::log(&log))),
        settled(kept.map(|facts| store::judge(&facts))),
        settled(keeper.map(|failed| machine::keeper(failed.as_deref()))),
        settled(machine.map(|facts| machine::judge(&facts))),
    ];
    DoctorReport { findings: findings.concat(), took: began.elapsed().min(Duration::from_hours(1)) }
}

/// What a check found, or that it never ended.
fn settled(found: Result<Vec<Finding>, Finding>) -> Vec<Finding> {
    found.unwrap_or_else(|late| vec![late])
}

/// Whatever depends on the settings. Once these are known, the service and the servers are asked
/// side by side.
async fn judge_settings(
    scene: &DoctorContext,
    until: Instant,
    know: impl FnOnce() -> ResolvedConfig + Send + 'static,
) -> Vec<Finding> {
    let known = match bounded("settings", know).await {
        Ok(known) => known,
        Err(late) => {
            let usual = machine::ci(&scene.variables, ResolvedConfig::default().heartbeat);
            return vec![late, settings::unknown(), usual];
        }
    };
    let (services, tried, broken) = tokio::join!(
        service::look(&known, scene.offline, until),
        bounds::within("mcp", facts::servers::look(&known.start, scene.offline)),
        bounded("hooks", {
            let (lines, cwd) = (known.hook_commands.clone(), scene.cwd.clone());
            let (home, variables) = (scene.home.clone(), known.variables.clone());
            move || facts::hooks::broken(&lines, &cwd, home.as_deref(), &variables)
        }),
    );
    let findings = [
        settings::judge(&known),
        credentials::judge(&known),
        checks::service::trusted(&known),
        judge_services(services),
        checks::environment::judge(&known),
        settled(tried.map(|tried| servers::judge(&known, scene, &tried))),
        settled(broken.map(|broken| hooks::judge(&known, &broken))),
        vec![machine::ci(&scene.variables, known.heartbeat)],
    ];
    findings.concat()
}

/// What several services have in common is said once, like a helper that hangs.
fn judge_services(seen: Vec<Result<service::ServiceFacts, Finding>>) -> Vec<Finding> {
    let judge = |service: service::ServiceFacts| checks::service::judge(&service);
    let mut findings = Vec::new();
    for finding in seen.into_iter().flat_map(|seen| settled(seen.map(judge))) {
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings
}
