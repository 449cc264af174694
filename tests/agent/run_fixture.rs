//! Whole runs at library level: a rehearsal server, real tools and a recording observer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast::agent::{
    self, Clock, ContextGauge, Delegation, Housekeeping, InterruptSender, ModelEndpoint, Observer,
    Prompt, RunEvent, RunOutcome, Setup, WaitingFor,
};
use outlast::hooks::{CrashLog, HookEnvironment, HookEvent, HookSettings, Hooks};
use outlast::journal::{Journal, ProcessOpening, RestoredSession};
use outlast::model::{self, Credential, ModelClient, ModelService, Reasoning, Secret, Transport};
use outlast::recovery::{Backoff, Ledger, Limits, StopReason, Transition};
use outlast::rehearsal::{RehearsalServer, Scenario};
use outlast::secrets::KnownSecrets;
use outlast::tools::{AnswerSchema, PermissionMode, Requirement, ToolSettings, Toolbox};
use outlast::transcript::Block;
use outlast::types::Callback;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::requests::{self, messages, texts};
use crate::support::scratch::scratch_folder;
use crate::support::{serve, supervisor};

/// No run may take longer.
const BOUND: Duration = Duration::from_mins(4);

/// An event that a run reported, as an owned value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ObservedEvent {
    Init,
    Step(Box<Transition>),
    /// The class, the retry, and of how many.
    WaitBegins(String),
    WaitEnds(String),
    Heartbeat(String),
    Assistant(Vec<Block>),
    User(Vec<Block>),
    Switched(String),
    Compacted,
    Denied(String),
    Warning(String),
    HookSays(String),
}

impl ObservedEvent {
    fn of(event: &RunEvent) -> Option<Self> {
        Some(match event {
            RunEvent::Init(_) => Self::Init,
            RunEvent::Step { transition, .. } => Self::Step(transition.clone()),
            RunEvent::WaitBegins { pause, .. } => {
                Self::WaitBegins(format!("{} {} of {:?}", pause.class, pause.retry, pause.of))
            }
            RunEvent::WaitEnds { pause, .. } => {
                Self::WaitEnds(format!("{} {} of {:?}", pause.class, pause.retry, pause.of))
            }
            RunEvent::Heartbeat(heartbeat) => Self::Heartbeat(match &heartbeat.waiting_for {
                WaitingFor::Retry(pause) => format!("retry after {}", pause.class),
                WaitingFor::Credentials => "credentials".to_owned(),
                WaitingFor::Model(name) => format!("model {name}"),
                WaitingFor::Tool { name, .. } => format!("tool {name}"),
                WaitingFor::Elicitation { server } => format!("answer for {server}"),
                WaitingFor::Hook { event } => format!("hook {}", event.name()),
                WaitingFor::Work { running } => format!("work {}", running.join("; ")),
                WaitingFor::Agents { running } => format!("agents {}", running.join("; ")),
                WaitingFor::Journal { .. } => "journal".to_owned(),
                WaitingFor::Money => "money".to_owned(),
                WaitingFor::Servers { names } => format!("servers {}", names.join(", ")),
                WaitingFor::Permission { tool, .. } => format!("permission for {tool}"),
            }),
            RunEvent::RequestSent
            | RunEvent::AwaitsAgents(_)
            | RunEvent::ToolEnds(_)
            | RunEvent::RequirementEnds { .. }
            | RunEvent::StreamEvent(_)
            | RunEvent::Block { .. }
            | RunEvent::BlocksDropped { .. }
            | RunEvent::RecoveryEnds(_)
            | RunEvent::Task(_)
            | RunEvent::Agent(_)
            | RunEvent::OfAgent { .. }
            | RunEvent::Hook(_) => return None,
            RunEvent::Assistant { message, .. } => Self::Assistant(message.content.clone()),
            RunEvent::User { message, .. } => Self::User(message.content.clone()),
            RunEvent::Compacted { .. } => Self::Compacted,
            RunEvent::ModelSwitched { from, to } => Self::Switched(format!("{from} to {to}")),
            RunEvent::Denied(denial) => Self::Denied(denial.tool_name.clone()),
            RunEvent::HookSays { text, .. } => Self::HookSays(text.clone()),
            RunEvent::Note(_) => return None,
            RunEvent::Warning(text) => Self::Warning(text.clone()),
        })
    }
}

/// The record of a run. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct EventRecord {
    said: Arc<Mutex<Vec<ObservedEvent>>>,
    news: watch::Sender<()>,
}

impl EventRecord {
    pub(super) fn new() -> Self {
        Self { said: Arc::default(), news: watch::Sender::new(()) }
    }

    pub(super) fn all(&self) -> Vec<ObservedEvent> {
        self.said.lock().expect("no panic while writing").clone()
    }

    /// Waits until something was said.
    pub(super) async fn wait_for(&self, wanted: impl Fn(&ObservedEvent) -> bool) {
        self.wait_for_one_after(0, wanted).await;
    }

    /// Waits until something is said from now on.
    pub(super) async fn wait_for_next(&self, wanted: impl Fn(&ObservedEvent) -> bool) {
        self.wait_for_one_after(self.all().len(), wanted).await;
    }

    async fn wait_for_one_after(&self, count: usize, wanted: impl Fn(&ObservedEvent) -> bool) {
        let mut news = self.news.subscribe();
        let heard = async {
            while !self.all()[count..].iter().any(&wanted) {
                let _ = news.changed().await;
            }
        };
        tokio::time::timeout(BOUND, heard).await.expect("it is said in time");
    }
}

impl Observer for EventRecord {
    fn observe(&mut self, event: &RunEvent) {
        self.said.lock().expect("no panic while writing").extend(ObservedEvent::of(event));
        self.news.send_replace(());
    }
}

/// A run that is being put together.
pub(super) struct RunFixture {
    pub(super) setup: Setup,
    pub(super) server: RehearsalServer,
    pub(super) folder: TempDir,
    /// The settings that the tools were built from.
    tools: ToolSettings,
}

impl RunFixture {
    /// Every tool is allowed, and retries come fast.
    pub(super) fn of(scenario: Scenario) -> Self {
        let server = serve(scenario);
        let folder = scratch_folder();
        let credential = Credential::ApiKey(Secret::new("test-key-0123456789"));
        let client = ModelClient::new(ModelService::new(server.base_url(), credential));
        let setup = setup(&folder, Arc::new(client.expect("the address is right")));
        let tools = tool_settings(&folder);
        Self { setup, server, folder, tools }
    }

    pub(super) fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.setup.limits);
        self
    }

    /// The chain of models.
    pub(super) fn models(mut self, names: &[&str]) -> Self {
        let client = Arc::clone(&self.setup.endpoints[0].client);
        self.setup.endpoints =
            names.iter().map(|name| model_endpoint(name, Arc::clone(&client))).collect();
        let switches = u8::try_from(names.len() - 1).expect("a short chain");
        self.limits(|limits| limits.budgets.switches = switches)
    }

    /// The context window of the model, in tokens.
    pub(super) fn window(mut self, tokens: u32) -> Self {
        let endpoint = &mut self.setup.endpoints[0];
        endpoint.facts = endpoint.facts.clone().with_context_window(tokens);
        self
    }

    /// Tools with other settings.
    pub(super) fn tools(mut self, change: impl FnOnce(&mut ToolSettings)) -> Self {
        change(&mut self.tools);
        self.setup.toolbox = Toolbox::new(&self.tools).expect("the settings are right");
        self
    }

    /// A command that must pass, as with `--require`.
    pub(super) fn requiring(self, command: &str) -> Self {
        let requirement = Requirement { command: command.to_owned(), timeout: BOUND };
        self.tools(|settings| settings.acceptance.requirement = Some(requirement))
            .limits(|limits| limits.requirement = true)
    }

    /// The schema of the answer, as with `--json-schema`.
    pub(super) fn answering(self, schema: &Value) -> Self {
        let schema = AnswerSchema::new(schema.clone()).expect("the schema is right");
        self.tools(|settings| settings.acceptance.schema = Some(schema))
            .limits(|limits| limits.structured = true)
    }

    /// The `hooks` of settings. Their crash log is in the folder `config`.
    pub(super) fn hooks(mut self, hooks: &Value) -> Self {
        let folder = self.folder.path();
        let settings = HookSettings::parse(hooks, "settings.json").expect("these are right");
        let environment = HookEnvironment {
            session_id: self.setup.session_id.clone(),
            transcript: folder.join("journal.jsonl"),
            cwd: folder.to_owned(),
            effort: None,
            permission_mode: Callback(Arc::new(|| PermissionMode::BypassPermissions)),
            environment: self.tools.environment.clone(),
            log: CrashLog::in_folder(&folder.join("config")),
            state_folder: folder.join("config"),
            secrets: KnownSecrets::default(),
            shell: "/bin/sh".into(),
            supervisor: supervisor(),
            host: None,
        };
        let hooks = Hooks::new(settings.handlers, environment);
        self.setup.limits.stop_hooks = hooks.has_hooks_for(HookEvent::Stop);
        self.setup.hooks = Some(hooks);
        self
    }

    pub(super) fn start(self) -> RunningFixture {
        let Self { setup, server, folder, tools: _ } = self;
        let record = EventRecord::new();
        let (interrupter, interrupts) = watch::channel(None);
        let mut observer = record.clone();
        let run =
            tokio::spawn(
                async move { Box::pin(agent::run(setup, &mut observer, interrupts)).await },
            );
        RunningFixture { run, record, interrupter, server, folder }
    }

    pub(super) async fn run(self) -> FinishedRun {
        self.start().end().await
    }
}

/// A run under way.
pub(super) struct RunningFixture {
    run: JoinHandle<RunOutcome>,
    pub(super) record: EventRecord,
    pub(super) interrupter: InterruptSender,
    pub(super) server: RehearsalServer,
    pub(super) folder: TempDir,
}

impl RunningFixture {
    pub(super) async fn end(self) -> FinishedRun {
        let Self { run, record, server, folder, interrupter: _stays } = self;
        let ending = tokio::time::timeout(BOUND, run).await.expect("the run ends in time");
        let ending = ending.expect("a run never panics");
        FinishedRun { ending, said: record.all(), server, folder }
    }
}

/// A run that ended.
pub(super) struct FinishedRun {
    pub(super) ending: RunOutcome,
    pub(super) said: Vec<ObservedEvent>,
    pub(super) server: RehearsalServer,
    pub(super) folder: TempDir,
}

impl FinishedRun {
    /// One word for each reported event except steps and heartbeats.
    pub(super) fn trace(&self) -> Vec<String> {
        let word = |said: &ObservedEvent| match said {
            ObservedEvent::Step(_) | ObservedEvent::Heartbeat(_) => None,
            ObservedEvent::Init => Some("init".to_owned()),
            ObservedEvent::WaitBegins(what) => Some(format!("wait {what}")),
            ObservedEvent::WaitEnds(what) => Some(format!("waited {what}")),
            ObservedEvent::Assistant(_) => Some("assistant".to_owned()),
            ObservedEvent::User(_) => Some("user".to_owned()),
            ObservedEvent::Switched(what) => Some(format!("switched {what}")),
            ObservedEvent::Compacted => Some("compacted".to_owned()),
            ObservedEvent::Denied(tool) => Some(format!("denied {tool}")),
            ObservedEvent::Warning(text) => Some(format!("warning {text}")),
            ObservedEvent::HookSays(text) => Some(format!("hook says {text}")),
        };
        self.said.iter().filter_map(word).collect()
    }

    /// Asserts that the server rejected nothing, nothing was repaired and no warning was emitted.
    #[track_caller]
    pub(super) fn assert_no_warnings_or_repairs(&self) {
        assert_eq!(self.server.violations(), [""; 0]);
        assert_eq!(self.ending.stats.repairs, 0, "{:?}", self.trace());
        assert_eq!(self.warnings(), [""; 0]);
    }

    /// The warnings of the run, in their order.
    pub(super) fn warnings(&self) -> Vec<&str> {
        let mut warnings = Vec::new();
        for said in &self.said {
            if let ObservedEvent::Warning(text) = said {
                warnings.push(text.as_str());
            }
        }
        warnings
    }

    /// The number of uses of each recovery plan of the run, by name.
    pub(super) fn strategies(&self) -> Value {
        json!(self.ending.stats.recovery.totals().strategies)
    }

    /// The number of uses of one recovery plan.
    pub(super) fn strategy(&self, name: &str) -> u64 {
        self.strategies()[name].as_u64().unwrap_or_default()
    }

    /// The retries of the run, by class.
    pub(super) fn retries(&self) -> Value {
        json!(self.ending.stats.recovery.totals().retries_by_class)
    }

    /// The output limit of each request.
    pub(super) fn caps(&self) -> Vec<u64> {
        requests::caps(&self.server.requests())
    }

    /// Asserts the number of requests, that none of them was refused as invalid, and that each was
    /// expected.
    #[track_caller]
    pub(super) fn assert_asked(&self, requests: usize) {
        assert_eq!(self.server.requests().len(), requests, "{:?}", self.trace());
        assert_eq!(self.server.violations(), [""; 0]);
        assert_eq!(self.server.unrequested_answers(), 0);
    }

    /// Asserts the reason of the end and the text that the run leaves.
    #[track_caller]
    pub(super) fn assert_end(&self, reason: StopReason, text: &str) {
        let end = (self.ending.reason, self.ending.text.as_str());
        assert_eq!(end, (reason, text), "{:?}", self.trace());
    }

    /// The words of the last message of the request of this number, which are the user's.
    #[track_caller]
    pub(super) fn told(&self, number: usize) -> String {
        let all = self.messages(number);
        let last = all.last().expect("a message");
        assert_eq!(last["role"], "user", "{last}");
        texts(last).concat()
    }

    /// The text of a file in the folder of the run; empty if there is none.
    pub(super) fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// True if there is such a file in the folder of the run.
    pub(super) fn has(&self, name: &str) -> bool {
        self.folder.path().join(name).exists()
    }

    /// The messages of the request of this number, counted from 1.
    pub(super) fn messages(&self, number: usize) -> Vec<Value> {
        messages(&self.server.requests()[number - 1])
    }

    /// Every tool result that went to the model, as `(is_error, text)`, in the order it was sent.
    pub(super) fn results(&self) -> Vec<(bool, String)> {
        let blocks = self.said.iter().flat_map(|said| {
            if let ObservedEvent::User(blocks) = said { blocks.as_slice() } else { &[] }
        });
        blocks.filter_map(result).collect()
    }
}

fn result(block: &Block) -> Option<(bool, String)> {
    let Block::ToolResult { content, is_error, .. } = block else { return None };
    let text = |block: &Block| {
        if let Block::Text { text } = block { text.clone() } else { format!("{block:?}") }
    };
    Some((*is_error, content.iter().map(text).collect()))
}

/// The record of a process start at the beginning of these runs' journals.
pub(super) fn opening() -> ProcessOpening {
    ProcessOpening {
        version: "0.0.0".to_owned(),
        model: "sonnet".to_owned(),
        permission_mode: "bypassPermissions".to_owned(),
        ..ProcessOpening::default()
    }
}

/// A run over `client` in which every tool is allowed, and retries come fast.
pub(super) fn setup(folder: &TempDir, client: Arc<dyn Transport>) -> Setup {
    Setup {
        session_id: "01234567-89ab-cdef-0123-456789abcdef".to_owned(),
        prompt: Prompt::text("Do it."),
        system: "Be brief.".to_owned(),
        cwd: folder.path().to_owned(),
        endpoints: vec![model_endpoint("sonnet", client)],
        toolbox: toolbox(folder),
        servers: Arc::default(),
        keep_servers: false,
        lifecycle: None,
        host: None,
        limits: Limits {
            backoff: Backoff { first: Duration::from_millis(2), longest: Duration::from_secs(1) },
            ..Limits::default()
        },
        ledger: Ledger::new(None),
        clock: Clock::start(1.0),
        seed: 1,
        permission_mode: "bypassPermissions".to_owned(),
        api_key_source: "ANTHROPIC_API_KEY".to_owned(),
        reasoning: Reasoning::default(),
        stream_events: false,
        stop_after: None,
        shared: None,
        journal: Journal::disabled(),
        secrets: KnownSecrets::default(),
        hooks: None,
        memory_files: Vec::new(),
        warnings: Vec::new(),
        resumed: RestoredSession::default(),
        moved_folder: None,
        gauge: ContextGauge::default(),
        agents: Vec::new(),
        delegation: Delegation::default(),
        housekeeping: Housekeeping::default(),
    }
}

/// A model at the server of the run.
fn model_endpoint(name: &str, client: Arc<dyn Transport>) -> ModelEndpoint {
    let facts = model::model_facts(name);
    ModelEndpoint { label: facts.name.clone(), facts, client }
}

fn toolbox(folder: &TempDir) -> Toolbox {
    Toolbox::new(&tool_settings(folder)).expect("the settings are right")
}

/// Every tool is allowed.
fn tool_settings(folder: &TempDir) -> ToolSettings {
    let scratch = folder.path().join(".scratch");
    let mut settings = ToolSettings::new(folder.path(), &scratch, "session");
    settings.supervisor = supervisor();
    settings.permissions.mode = PermissionMode::BypassPermissions;
    settings.environment = std::env::vars_os().filter(|(name, _)| name == "PATH").collect();
    settings
}
