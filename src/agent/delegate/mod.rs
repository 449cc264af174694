//! Sub-agents: a run inside a run.
//!
//! ```text
//! work ─► Forge::perform ─► a place in the line ─► open ─► drive ─► Report ─► the call's result
//!                             (Tree: who there is, how many, how deep; Purse: one for all)
//! ```
//! A child has its own conversation, machine, tools and journal. It shares the ledger, the clock,
//! the deadline, the clients, the servers, the hooks and whatever stops the run.

mod advice;
mod child;
mod forge;
mod places;
mod relay;
mod report;
mod session;
mod task;
mod tree;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::model::ModelFacts;

pub(super) use child::AgentContext;
pub(super) use relay::SubagentEvent;
pub use task::{AgentIdentity, AgentStatus, AgentTask};
pub(super) use tree::AgentRegistry;

/// What sub-agents are given that no call says.
#[derive(Clone)]
pub struct Delegation {
    pub limits: AgentLimits,
    /// What stands below every definition's own prompt: the facts of the run, and what people have
    /// written down for agents.
    pub facts: String,
    /// The model of all of them, whatever calls and definitions say.
    pub model: Option<String>,
    /// Finds out about a model by its name or alias.
    pub models: ModelLookup,
    /// Finds the instructions that are kept beside a file.
    pub folder_notes: FolderNotes,
}

/// Says what is kept for those who work on a file, in its folder and those between it and the one
/// of the run. May look at the disk.
pub type FolderNotes = Arc<dyn Fn(&Path) -> Vec<FolderNote> + Send + Sync>;

/// Instructions that are kept in a file of a folder, or why they are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FolderNote {
    Text { path: PathBuf, text: String },
    Warning(String),
}

/// Says what is known of a model, or why it cannot be asked.
pub type ModelLookup = Arc<dyn Fn(&str) -> Result<ModelFacts, String> + Send + Sync>;

impl fmt::Debug for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegation")
            .field("limits", &self.limits)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

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

/// How many sub-agents there may be (SPEC 16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentLimits {
    /// How far below the run itself.
    pub depth: u8,
    /// At work at a time. Others wait in line.
    pub live: u32,
    /// In a session, all in all.
    pub total: u32,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self { depth: 3, live: 8, total: 64 }
    }
}
