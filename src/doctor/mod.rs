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

pub use bounds::CHECK_MAX;
pub use finding::{Finding, Level, Report};
pub use render::{json, text};

use crate::hooks::HookCommand;
use crate::mcp::Servers;
use crate::model;
use crate::secrets::Variables;
use bounds::bounded;
use checks::{credentials, hooks, machine, servers, settings, store};
use facts::{install, service};

/// What the process was started with.
#[derive(Clone, Debug)]
pub struct Scene {
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
pub struct Known {
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
    /// When the login in use ends, if one is and it has.
    pub login_expired: bool,
    /// Whether the service is one that surely wants a credential.
    pub needs_credential: bool,
    /// Where the model is, and who asks it.
    pub endpoint: Option<model::Endpoint>,
    pub model: String,
    /// Events with the number of their hooks, and what is wrong with any of them.
    pub hooks: Vec<(String, usize)>,
    pub bad_hooks: Vec<String>,
    /// Each hook, and what it runs.
    pub hook_commands: Vec<HookLine>,
    /// Whether somebody switched all hooks off.
    pub hooks_off: bool,
    pub servers: Vec<Server>,
    /// What is wrong with servers that are left out.
    pub bad_servers: Vec<String>,
    /// The same servers, ready to be started.
    pub start: Arc<Servers>,
    /// Variables that begin like ours and are none.
    pub strange_variables: Vec<String>,
    /// Certificate files beside the system's.
    pub ca_files: Vec<PathBuf>,
    /// The variables, with what the settings add.
    pub variables: Variables,
}

/// One hook, as the settings name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookLine {
    pub event: &'static str,
    pub command: HookCommand,
    pub timeout: Duration,
    /// The file that names it.
    pub source: String,
}

/// An MCP server that is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub name: String,
    /// Who names it.
    pub source: String,
    pub how: How,
    pub disabled: bool,
}

/// How an MCP server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// By starting this.
    Program(String),
    /// At this address, as far as it may be shown.
    Address(String),
}

/// Looks at everything. `know` reads the settings.
pub async fn examine(scene: &Scene, know: impl FnOnce() -> Known + Send + 'static) -> Report {
    let began = tokio::time::Instant::now();
    let one = scene.clone();
    let shell = bounded("shell", {
        let (home, variables) = (scene.home.clone(), scene.variables.clone());
        move || facts::shell::look(home.as_deref(), &variables)
    });
    let (of_settings, install, search, shell, kept, machine, log, keeper) = tokio::join!(
        judge_settings(scene, know),
        bounded("installation", move || install::look(&one)),
        bounds::within("search", facts::search::look(scene)),
        shell,
        bounded("sessions", {
            let config = scene.config_dir.clone();
            move || facts::store::look(&config)
        }),
        bounded("machine", facts::machine::look),
        bounded("hook log", {
            let config = scene.config_dir.clone();
            move || facts::store::hook_log(&config)
        }),
        bounds::within("keeper", facts::machine::start_one(scene)),
    );
    let findings = [
        settled(install.map(|facts| checks::installation(scene, &facts))),
        settled(search.map(|found| checks::search(found.as_deref()))),
        settled(shell.map(|facts| checks::shell(&facts))),
        of_settings,
        settled(log.map(|log| hooks::log(&log))),
        settled(kept.map(|facts| store::judge(&facts))),
        settled(keeper.map(|failed| machine::keeper(failed.as_deref()))),
        settled(machine.map(|facts| machine::judge(&facts, scene))),
    ];
    Report { findings: findings.concat(), took: began.elapsed().min(Duration::from_hours(1)) }
}

/// What a check found, or that it never ended.
fn settled(found: Result<Vec<Finding>, Finding>) -> Vec<Finding> {
    found.unwrap_or_else(|late| vec![late])
}

/// Whatever depends on the settings. Once these are known, the service and the servers are asked
/// side by side.
async fn judge_settings(
    scene: &Scene,
    know: impl FnOnce() -> Known + Send + 'static,
) -> Vec<Finding> {
    let known = match bounded("settings", know).await {
        Ok(known) => known,
        Err(late) => return vec![late, settings::unknown()],
    };
    let (knock, tried, missing) = tokio::join!(
        bounds::within("service", service::look(&known, scene.offline)),
        bounds::within("mcp", facts::servers::look(&known.start, scene.offline)),
        bounded("hooks", {
            let (lines, cwd) = (known.hook_commands.clone(), scene.cwd.clone());
            let (home, variables) = (scene.home.clone(), known.variables.clone());
            move || facts::hooks::missing(&lines, &cwd, home.as_deref(), &variables)
        }),
    );
    let findings = [
        settings::judge(&known),
        credentials::judge(&known),
        checks::service::trusted(&known),
        settled(knock.map(|facts| checks::service::judge(&facts, &known))),
        checks::environment(&known),
        settled(tried.map(|tried| servers::judge(&known, scene, &tried))),
        settled(missing.map(|missing| hooks::judge(&known, &missing))),
    ];
    findings.concat()
}
