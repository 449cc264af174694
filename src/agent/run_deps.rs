//! The dependencies that all agents of a run share, and the setup of one of them.

use std::sync::Arc;

use crate::hooks::Hooks;
use crate::journal::{Journal, RestoredSession};
use crate::mcp::Servers;
use crate::model::limits::SharedLimits;
use crate::model::{Reasoning, WebSearch};
use crate::recovery::{Limits, Money};
use crate::secrets::KnownSecrets;
use crate::tools::Toolbox;
use crate::types::HostChannel;

use super::clock::Clock;
use super::context_gauge::ContextGauge;
use super::delegate::{AgentContext, AgentRegistry};
use super::housekeeping::Housekeeping;
use super::servers::with_mcp_tools;
use super::setup::{ModelEndpoint, Setup};
use super::shared_ledger::SharedLedger;
use super::signals::InterruptReceiver;

/// The dependencies that a run shares with its sub-agents at every depth. Built once, from the
/// setup of the run.
pub(super) struct RunDeps {
    pub(super) registry: AgentRegistry,
    pub(super) ledger: SharedLedger,
    pub(super) servers: Arc<Servers>,
    /// True if the servers stay open at the end of the run.
    pub(super) keep_servers: bool,
    /// Answers questions about permissions.
    pub(super) host: Option<Arc<dyn HostChannel>>,
    /// The hooks of the run. Those of a sub-agent are derived from them.
    pub(super) hooks: Option<Hooks>,
    pub(super) secrets: KnownSecrets,
    pub(super) clock: Clock,
    pub(super) stop_after: Option<Money>,
    /// The rate limits that are known on this host. Each agent has its own state.
    pub(super) shared_limits: Option<SharedLimits>,
    pub(super) housekeeping: Housekeeping,
}

/// The setup of one agent: the run itself, or a sub-agent.
pub(super) struct AgentSetup {
    pub(super) context: AgentContext,
    pub(super) system: String,
    pub(super) endpoints: Vec<ModelEndpoint>,
    pub(super) toolbox: Toolbox,
    pub(super) limits: Limits,
    pub(super) reasoning: Reasoning,
    /// The search tool of the service, for a request that searches the web.
    pub(super) search: Option<WebSearch>,
    pub(super) stream_events: bool,
    pub(super) shared_limits: Option<SharedLimits>,
    pub(super) journal: Journal,
    pub(super) hooks: Option<Hooks>,
    pub(super) gauge: ContextGauge,
    pub(super) resumed: RestoredSession,
}

impl AgentSetup {
    /// Returns the setup of the run itself, with the dependencies that its sub-agents will share.
    pub(super) fn of_run(setup: Setup, interrupts: InterruptReceiver) -> Self {
        let mut resumed = setup.resumed;
        let past = std::mem::take(&mut resumed.work.agents);
        let journals = setup.journal.subagent_journals();
        let registry = AgentRegistry::new(
            setup.agents,
            setup.delegation,
            interrupts,
            journals,
            &setup.session_id,
            past,
        )
        .stoppable_by(setup.toolbox.task_stops().clone());
        let may_start = registry.has_depth();
        let toolbox = with_mcp_tools(setup.toolbox, &setup.servers);
        let toolbox = if may_start { toolbox.with_agents(&registry.definitions) } else { toolbox };
        let deps = RunDeps {
            registry,
            ledger: SharedLedger::new(setup.ledger),
            servers: setup.servers,
            keep_servers: setup.keep_servers,
            host: setup.host,
            hooks: setup.hooks.clone(),
            secrets: setup.secrets,
            clock: setup.clock,
            stop_after: setup.stop_after,
            shared_limits: setup.shared.as_ref().map(|shared| shared.for_another_run(0)),
            housekeeping: setup.housekeeping,
        };
        Self {
            context: AgentContext::of_run(Arc::new(deps)),
            system: setup.system,
            endpoints: setup.endpoints,
            toolbox,
            limits: setup.limits,
            reasoning: setup.reasoning,
            search: None,
            stream_events: setup.stream_events,
            shared_limits: setup.shared,
            journal: setup.journal,
            hooks: setup.hooks,
            gauge: setup.gauge,
            resumed,
        }
    }
}
