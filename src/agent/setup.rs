//! The input and the outcome of a run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use uuid::Uuid;

use crate::hooks::Hooks;
use crate::journal::{
    ContentForm, Denial, Journal, JournalHealth, ModelSpan, RecordedPrompt, RestoredSession,
    ToolStats,
};
use crate::mcp::{self, Servers};
use crate::model::limits::SharedLimits;
use crate::model::{ModelFacts, RateLimits, Reasoning, Transport};
use crate::recovery::{
    ErrorClass, Fault, Ledger, Limits, Money, RecoveryLog, Shortfall, Spending, StopReason,
};
use crate::secrets::KnownSecrets;
use crate::text::millis;
use crate::tools::{Acceptance, AgentDefinition, BackgroundTask, Toolbox};
use crate::transcript::{Block, Contributor, ToolCall, Usage};
use crate::types::HostChannel;

use super::clock::Clock;
use super::context_gauge::ContextGauge;
use super::delegate::{AgentTask, Delegation};
use super::housekeeping::Housekeeping;
use super::session_lifecycle::SessionLifecycle;
use super::waiting_for::WaitingFor;

/// The prompt of the user.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    pub content: Vec<Block>,
    /// The contents of the files that it names, which follow it.
    pub attached: Vec<Block>,
    /// The id of the message in the journal, if the user has given it one.
    pub id: Option<Uuid>,
    /// The files that it names and that `attached` holds: their paths, and their text.
    pub files: Vec<(String, String)>,
    /// The form in which it was given.
    pub form: ContentForm,
}

impl Prompt {
    /// Creates a prompt from a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Block::text(text)], form: ContentForm::Text, ..Self::default() }
    }
}

/// The input of a run, decided before it starts.
pub struct Setup {
    pub session_id: String,
    /// Empty only when an unfinished session is resumed.
    pub prompt: Prompt,
    pub system: String,
    pub cwd: PathBuf,
    /// The chain, the preferred model first. Never empty.
    pub endpoints: Vec<ModelEndpoint>,
    pub toolbox: Toolbox,
    /// The MCP servers. Started with the run, if not before.
    pub servers: Arc<Servers>,
    /// True if the servers stay open at the end of the run, for another run of this process. Their
    /// programs need a supervisor of their own: that of the toolbox ends all its processes with the
    /// run.
    pub keep_servers: bool,
    /// Makes the hooks of the session's start and end run once for several runs of this process.
    /// `None`: this run is the only one.
    pub lifecycle: Option<SessionLifecycle>,
    /// The host that drives the run, if there is one: it answers questions about permissions.
    pub host: Option<Arc<dyn HostChannel>>,
    pub limits: Limits,
    pub ledger: Ledger,
    pub clock: Clock,
    /// The seed of the jitter.
    pub seed: u64,
    pub permission_mode: String,
    pub api_key_source: String,
    /// The thinking and the effort that the model is asked for.
    pub reasoning: Reasoning,
    /// True if the observer receives the raw events of the stream.
    pub stream_events: bool,
    /// `--budget-mode after`: stop once this much is spent, instead of reserving.
    pub stop_after: Option<Money>,
    pub journal: Journal,
    /// Rate limits that are known on this host. `None`: not shared.
    pub shared: Option<SharedLimits>,
    /// Secrets that must not be stored. The clients add to it.
    pub secrets: KnownSecrets,
    /// The user's hooks. `None`: there are none.
    pub hooks: Option<Hooks>,
    /// The memory files that the system prompt holds.
    pub memory_files: Vec<PathBuf>,
    /// Warnings to show before the run begins.
    pub warnings: Vec<String>,
    /// The state of the session so far. Its position is that of the prompt that continues, and
    /// `None` if there is a new one.
    pub resumed: RestoredSession,
    pub moved_folder: Option<MovedFolder>,
    /// Publishes the size of the conversation to the host.
    pub gauge: ContextGauge,
    /// The kinds of sub-agents beside the built-in one.
    pub agents: Vec<AgentDefinition>,
    /// The configuration of sub-agents.
    pub delegation: Delegation,
    /// Work that begins once the first request was accepted.
    pub housekeeping: Housekeeping,
}

/// One model of the chain, with the client of its endpoint.
#[derive(Clone)]
pub struct ModelEndpoint {
    /// The name in results, journal and progress lines. Unique in the chain, though several
    /// endpoints may offer the same model.
    pub label: String,
    pub facts: ModelFacts,
    /// Shared by the models of one endpoint.
    pub client: Arc<dyn Transport>,
}

/// A change of a session's working directory since the earlier process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedFolder {
    pub before: PathBuf,
    pub now: PathBuf,
}

/// A call that a hook has deferred, and the reason.
#[derive(Clone, Debug)]
pub struct DeferredCall {
    pub call: ToolCall,
    pub reason: String,
}

/// The outcome of a run, with everything that the result object shows.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    pub reason: StopReason,
    /// The largest contents of the context window, in order of size, if it overflowed.
    pub contributors: Vec<Contributor>,
    pub met: LimitsMet,
    /// The last failure, when the run ended because of one.
    pub failure: Option<LastFailure>,
    /// The final text of the model.
    pub text: String,
    /// The API's own stop reason of the last reply.
    pub stop_reason: Option<String>,
    /// True if there is a conversation that could go on: a hook may have stopped the first prompt.
    pub has_messages: bool,
    /// The call that a hook has deferred, if the run ended because of it.
    pub deferred: Option<DeferredCall>,
    pub stats: RunStats,
    pub costs: RunCosts,
    pub journal: JournalHealth,
    /// The service's rate limits, as far as it reported them.
    pub rate_limits: Option<RateLimits>,
    /// The wait that the deadline ended, if that is the reason.
    pub late_wait: Option<WaitingFor>,
    /// The message of the internal error, if that is the reason.
    pub broken: Option<String>,
    /// The outcome of the structured answer and of the command of `--require`.
    pub acceptance: Acceptance,
    /// The background commands that were started.
    pub tasks: Vec<BackgroundTask>,
    pub hooks: HookStats,
    /// The statistics of the MCP servers.
    pub servers: mcp::McpStats,
    /// The sub-agents that were started.
    pub agents: Vec<AgentTask>,
}

/// The limits that a run has met with its last request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitsMet {
    /// True if the run ended because its retry quota did not allow one more retry.
    pub quota_ended: bool,
    /// The amount that the budget lacked, if the run ended because the request could not be paid.
    pub shortfall: Option<Shortfall>,
    /// True if compaction had stopped helping when the run ended.
    pub thrashed: bool,
}

/// A failure that explains the end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastFailure {
    pub fault: Fault,
    pub class: ErrorClass,
    /// The earliest time at which a retry makes sense, in seconds since the Unix epoch.
    pub retry_at: Option<u64>,
}

/// The costs of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCosts {
    /// The spending of the run. All of it counts against the budget.
    pub spent: Spending,
    /// Part of it that is an upper bound: of replies that broke off, and of tokens that a service
    /// did not count.
    pub unsettled: Money,
    /// The known cost of earlier prompts of the session, which do not count against the budget of
    /// this one.
    pub before: Money,
    /// The spending of earlier prompts of a host, from the same budget.
    pub earlier: Money,
    pub budget: Option<Money>,
}

impl RunOutcome {
    /// Assembles the outcome of a run from the records of its prompt and its totals. The other
    /// fields are those of a run that has nothing to report there.
    pub fn new(reason: StopReason, recorded: &RecordedPrompt, stats: RunStats) -> Self {
        Self {
            reason,
            contributors: Vec::new(),
            met: LimitsMet::default(),
            failure: None,
            text: recorded.answer(),
            stop_reason: recorded.stop_reason().map(str::to_owned),
            has_messages: false,
            deferred: None,
            stats,
            costs: RunCosts::default(),
            journal: JournalHealth::Off,
            rate_limits: None,
            late_wait: None,
            broken: None,
            acceptance: Acceptance::default(),
            tasks: Vec::new(),
            hooks: HookStats::default(),
            servers: mcp::McpStats::default(),
            agents: Vec::new(),
        }
    }

    /// Everything that counts against the budget. `None` when a model was used whose price is not
    /// known.
    pub fn cost(&self) -> Option<Money> {
        self.costs.spent.total()
    }

    /// Returns the cost since the session's first prompt. `None` when [`Self::cost`] is not known.
    pub fn session_cost(&self) -> Option<Money> {
        self.cost().map(|cost| self.costs.before + cost)
    }

    /// Returns the fault of the last failure, when the run ended because of one.
    pub fn fault(&self) -> Option<&Fault> {
        self.failure.as_ref().map(|failure| &failure.fault)
    }
}

/// Totals of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunStats {
    /// Model replies that entered the history.
    pub turns: u32,
    pub duration: Duration,
    pub api_duration: Duration,
    pub first_token: Option<Duration>,
    pub usage: Usage,
    /// Replies with impossible token counts, which were clamped.
    pub clamped: u32,
    pub by_model: Vec<ModelStats>,
    /// The models in the order of their turns, each with the first turn of its series.
    pub models: Vec<ModelSpan>,
    /// Requests, waits, and the plans carried out after failures.
    pub recovery: RecoveryLog,
    pub tools: ToolStats,
    pub denials: Vec<Denial>,
    /// Violations of the message rules that were repaired before a send.
    pub repairs: u32,
    /// Tool calls of an earlier process whose outcome is unknown.
    pub unknown_outcomes: u32,
    /// Tools that were running when the run ended, by name and input: their outcome is unknown.
    pub cut: Vec<String>,
    /// Journal records dropped as torn when the session was resumed.
    pub dropped_records: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelStats {
    pub model: String,
    pub usage: Usage,
    /// `None` when no price is known.
    pub cost: Option<Money>,
    pub context_window: u64,
    pub max_output: u32,
}

impl ModelStats {
    /// Adds the counts of `more` to those of the same models.
    pub fn merge(totals: &mut Vec<Self>, more: impl IntoIterator<Item = Self>) {
        for stats in more {
            match totals.iter_mut().find(|total| total.model == stats.model) {
                Some(total) => {
                    total.usage += stats.usage;
                    // The sum is known only if both are.
                    total.cost = total.cost.zip(stats.cost).map(|(one, other)| one + other);
                }
                None => totals.push(stats),
            }
        }
    }
}

impl RunStats {
    /// Records the model of the reply that was just counted.
    pub(super) fn answered_by(&mut self, model: &str) {
        if self.models.last().is_none_or(|last| last.model != model) {
            self.models.push(ModelSpan { model: model.to_owned(), from_turn: self.turns });
        }
    }
}

/// Statistics of hooks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HookStats {
    pub ran: u32,
    /// Failed hooks, which counted as absent.
    pub failed: u32,
    /// Number of times that a hook denied something, or objected to it.
    pub blocked: u32,
    /// Time that the run waited for them; serialized in milliseconds.
    #[serde(rename = "waited_ms", serialize_with = "as_millis")]
    #[schemars(with = "u64")]
    pub waited: Duration,
    /// The crash log, if it holds failures of this run or earlier ones.
    pub log: Option<String>,
    /// Hooks that were ended with the run, by their events and command lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
    /// The reason of the hook that stopped the run, or that objects to its end.
    #[serde(skip)]
    pub why: Option<String>,
}

fn as_millis<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(millis(*time))
}
