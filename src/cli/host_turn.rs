//! The parts of a turn that come from the host that drives the program.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::agent::{ContextGauge, ModelStats, RunOutcome, SessionLifecycle};
use crate::hooks::HookHandler;
use crate::host::UserPrompt;
use crate::journal::JournalMirror;
use crate::mcp::Servers;
use crate::model::ProvenEndpoints;
use crate::process::SessionEgress;
use crate::recovery::{Money, Spending};
use crate::tools::{FileHistory, FilesRead, KeptCommands, LivePermissions, TaskStops};
use crate::types::HostChannel;

use super::output::PipeSender;

/// The parts of a turn that come from the host: its prompt, and the state that all turns share.
#[derive(Clone)]
pub(super) struct HostTurn {
    pub prompt: UserPrompt,
    pub channel: Arc<dyn HostChannel>,
    pub resources: SessionResources,
    /// True if former contents of files are kept, so that the host can restore them.
    pub keeps_files: bool,
    /// True if the host follows the state of the session, and so does not only wait for a result.
    pub reads_state: bool,
    /// Standard output, which stays open for the next turn.
    pub out: PipeSender,
    /// True if the session outlives the process.
    pub is_kept: bool,
    /// Copies of the session's journals for the host, if the host requested them.
    pub mirror: Option<JournalMirror>,
}

/// The resources that all turns of a host's session share.
#[derive(Clone)]
pub(super) struct SessionResources {
    /// Hooks that run in the host.
    pub hooks: Vec<HookHandler>,
    /// The host's changes to the permissions.
    pub live: LivePermissions,
    /// The running tasks that the host can stop.
    pub stops: TaskStops,
    /// The background commands, which continue between turns.
    pub commands: KeptCommands,
    /// The network of the commands.
    pub egress: SessionEgress,
    /// Shows the size of the conversation to the host.
    pub gauge: ContextGauge,
    /// The MCP servers, once they are started.
    pub servers: Option<Arc<Servers>>,
    /// Usage of the conversation's turns so far.
    pub usage: HostUsage,
    /// The files whose contents are in the conversation.
    pub files_read: FilesRead,
    /// The start and the end of the session for its hooks.
    pub lifecycle: SessionLifecycle,
    /// The endpoints that have answered.
    pub proven: ProvenEndpoints,
    /// The session that the turns have opened.
    pub opened: OpenedSession,
}

impl SessionResources {
    pub(super) fn new(live: LivePermissions) -> Self {
        let stops = TaskStops::default();
        Self {
            hooks: Vec::new(),
            live,
            commands: KeptCommands::new(stops.clone()),
            stops,
            egress: SessionEgress::default(),
            gauge: ContextGauge::default(),
            servers: None,
            usage: HostUsage::default(),
            files_read: FilesRead::default(),
            lifecycle: SessionLifecycle::default(),
            proven: ProvenEndpoints::default(),
            opened: OpenedSession::default(),
        }
    }

    /// Drops the state of the conversation so far, since a new one begins.
    pub(super) fn begin_conversation(&mut self) {
        self.gauge = ContextGauge::default();
        self.usage = HostUsage::default();
        self.files_read = FilesRead::default();
    }
}

/// The id of the last session whose journal a turn has opened. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenedSession(Arc<Mutex<Option<String>>>);

impl OpenedSession {
    pub(super) fn record(&self, id: &str) {
        *self.0.lock() = Some(id.to_owned());
    }

    /// Returns true if the session exists, so that the next turn resumes it.
    pub(super) fn is(&self, id: &str) -> bool {
        self.0.lock().as_deref() == Some(id)
    }
}

/// Usage of the turns of a host's conversation so far. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct HostUsage(Arc<Mutex<UsageTotals>>);

/// Usage of several turns.
#[derive(Clone, Debug, Default)]
pub(super) struct UsageTotals {
    pub by_model: Vec<ModelStats>,
    /// The amount that counts against the budget.
    pub spent: Spending,
    /// The part of it that is an upper bound.
    pub unsettled: Money,
}

impl HostUsage {
    /// Adds a finished turn.
    pub(super) fn add(&self, turn: &RunOutcome) {
        self.0.lock().add(turn);
    }

    /// Returns the sum of the earlier turns and this one.
    pub(super) fn with(&self, turn: &RunOutcome) -> UsageTotals {
        let mut sum = self.0.lock().clone();
        sum.add(turn);
        sum
    }

    /// Returns the money that the turns have spent.
    pub(super) fn spent(&self) -> Money {
        self.0.lock().spent.amount
    }
}

impl UsageTotals {
    fn add(&mut self, turn: &RunOutcome) {
        ModelStats::merge(&mut self.by_model, turn.stats.by_model.iter().cloned());
        self.spent += turn.costs.spent;
        self.unsettled += turn.costs.unsettled;
    }

    /// Returns the amounts for a result: all, and the part that is an upper bound. `None` if a
    /// price is not known.
    pub(super) fn known_amounts(&self) -> Option<(Money, Money)> {
        self.spent.total().map(|spent| (spent, self.unsettled))
    }
}

/// The folder for former contents of files, in the folder of the session.
pub(super) const FILE_HISTORY: &str = "file-history";

impl HostTurn {
    /// Returns the recorder of the former contents of files that this prompt changes, if they are
    /// kept. `scratch` is the folder for long output of the session.
    pub(super) fn file_history(&self, scratch: &Path) -> Option<FileHistory> {
        let prompt = self.prompt.uuid.clone().filter(|_| self.keeps_files)?;
        Some(FileHistory::new(scratch.with_file_name(FILE_HISTORY), prompt))
    }
}
