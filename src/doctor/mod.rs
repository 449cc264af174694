//! Looks for whatever would keep a run from working, and says how to mend it.
//!
//! ```text
//! the machine ─facts─► Facts ─checks─► Findings ─render─► text, or one JSON object
//! ```
//!
//! Facts are only looked at, side by side, each within [`CHECK_MAX`]; the checks judge them and
//! touch nothing. Nothing is changed but for a file that is written to the folder of sessions and
//! removed again.

mod bounds;
pub mod checks;
pub mod facts;
mod finding;
mod render;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub use bounds::CHECK_MAX;
pub use finding::{Finding, Level, Report};
pub use render::{json, text};

use crate::model;
use bounds::bounded;
use checks::{credentials, machine, settings, store};
use facts::{install, service};

/// What the process was started with.
#[derive(Clone, Debug)]
pub struct Scene {
    pub version: &'static str,
    pub commit: &'static str,
    pub variables: BTreeMap<OsString, OsString>,
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
    pub servers: Vec<Server>,
    /// The variables, with what the settings add.
    pub variables: BTreeMap<OsString, OsString>,
}

/// An MCP server that is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub name: String,
    /// The file that names it.
    pub source: String,
    pub how: How,
}

/// How an MCP server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// By starting this.
    Program(String),
    /// At this address, as far as it may be shown.
    Address(String),
    /// Not at all: what is wrong.
    Wrong(String),
}

/// Looks at everything. `know` reads the settings.
pub async fn examine(scene: &Scene, know: impl FnOnce() -> Known + Send + 'static) -> Report {
    let began = tokio::time::Instant::now();
    let one = scene.clone();
    let shell = bounded("shell", {
        let (home, variables) = (scene.home.clone(), scene.variables.clone());
        move || facts::shell::look(home.as_deref(), &variables)
    });
    let (known, install, search, shell, kept, machine, hooks, keeper) = tokio::join!(
        bounded("settings", know),
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
    let mut findings = Vec::new();
    let mut add = |more: Result<Vec<Finding>, Finding>| match more {
        Ok(more) => findings.extend(more),
        Err(late) => findings.push(late),
    };
    add(install.map(|facts| checks::installation(scene, &facts)));
    add(search.map(|found| checks::search(found.as_deref())));
    add(shell.map(|facts| checks::shell(&facts)));
    add(known.as_ref().map(settings::judge).map_err(Clone::clone));
    let known = known.unwrap_or_default();
    let knock = bounds::within("service", service::look(&known, scene.offline)).await;
    add(Ok(credentials::judge(&known)));
    add(knock.map(|facts| checks::service::judge(&facts, &known)));
    add(Ok(checks::environment(&known)));
    add(Ok(settings::servers(&known, scene)));
    add(hooks.map(|log| settings::hooks(&known, &log)));
    add(kept.map(|facts| store::judge(&facts)));
    add(keeper.map(|failed| machine::keeper(failed.as_deref())));
    add(machine.map(|facts| machine::judge(&facts, scene)));
    Report { findings, took: began.elapsed().min(Duration::from_hours(1)) }
}
