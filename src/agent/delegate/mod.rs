//! Sub-agents: a run inside a run.
//!
//! ```text
//! call ─► ParentRun::perform ─► a slot ─► run_subagent ─► SubagentReport ─► its result
//! ```
//! A sub-agent has its own conversation, machine, tools and journal. It shares the
//! dependencies of the run (`RunDeps`), its clients, its deadline and its interrupts.

mod concurrency;
mod registry;
mod report;
mod session;
mod spawn_error;
mod spawner;
mod subagent_observer;
mod subagent_run;
mod task;
mod web_search;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::model::ModelFacts;
use crate::types::AgentLimits;

pub(super) use registry::AgentRegistry;
pub use registry::agent_kinds;
pub use spawn_error::UnusableModel;
pub(super) use spawner::PendingSubagent;
pub(super) use subagent_run::AgentContext;
pub use task::{AgentIdentity, AgentStatus, AgentTask, SubagentUsage};
pub(super) use web_search::SearchCosts;

/// The configuration of sub-agents that does not depend on the call.
#[derive(Clone)]
pub struct Delegation {
    pub limits: AgentLimits,
    /// Text below every definition's own prompt: the facts of the run, and the instructions that
    /// users have written for agents.
    pub facts: String,
    /// A model that overrides those of calls and definitions.
    pub model: Option<String>,
    /// Looks up a model by its name or alias.
    pub models: ModelLookup,
    /// Finds the instructions for a file.
    pub folder_notes: FolderNotes,
}

/// Returns the instructions for a file, from its folder and those between it and the run's own. May
/// read the disk.
pub type FolderNotes = Arc<dyn Fn(&Path) -> Vec<FolderNote> + Send + Sync>;

/// Instructions in a file of a folder, or a warning that they are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FolderNote {
    Text { path: PathBuf, text: String },
    Warning(String),
}

/// Returns the facts of a model, or the reason that it cannot be used.
pub type ModelLookup = Arc<dyn Fn(&str) -> Result<ModelFacts, UnusableModel> + Send + Sync>;

impl Default for Delegation {
    fn default() -> Self {
        Self {
            limits: AgentLimits::default(),
            facts: String::new(),
            model: None,
            models: Arc::new(|name| Ok(crate::model::model_facts(name))),
            folder_notes: Arc::new(|_| Vec::new()),
        }
    }
}
