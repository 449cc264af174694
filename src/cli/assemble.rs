//! From what was decided to what runs.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::agent::{Clock, Delegation, FolderNote, FolderNotes, ModelEndpoint, Setup};
use crate::hooks::{CrashLog, HookEnvironment, Hooks};
use crate::journal::Damage;
use crate::mcp::{ServerEnvironment, Servers};
use crate::model::limits::SharedLimits;
use crate::model::{self, ModelClient, ModelFacts, RequestTimers, Secret};
use crate::process::Supervisor;
use crate::recovery::{FastMode, Ledger, Limits, Money};
use crate::secrets::{KnownSecrets, Redactor};
use crate::tools::{Toolbox, hook_environment};
use crate::transcript::Block;

use super::args::BudgetMode;
use super::delegation::delegation;
use super::environment;
use super::memory::{Memory, MemoryFile, MemorySearch};
use super::output::Resumption;
use super::session::{FoundSession, SessionHistory, Task};
use super::settings::{
    ChainEntry, CredentialSource, EndpointSettings, FilePrice, ModelChain, Settings,
};
use super::system::{EnvironmentFacts, brief, compose, demand, remember};
use super::toolset::{bad_tools, prepare_scratch, scratch, tool_settings};
use super::usage::UsageError;
use super::values::price_of_one;
use super::wall::WallTime;

/// Puts a run together. The session's journal is opened last: whatever is wrong with the rest,
/// nothing has changed by then.
///
/// # Errors
/// A budget without a price, a bad rule, an address or certificate that cannot be used, or a
/// session that is not there.
pub(super) fn assemble(
    settings: &Settings,
    task: &Task,
    clock: Clock,
    now: &WallTime,
    secrets: &KnownSecrets,
) -> Result<(Setup, Resumption), UsageError> {
    let models = models(settings)?;
    let session = FoundSession::find(settings, task)?;
    let settings = &Settings { limits: session.left_of(&settings.limits), ..settings.clone() };
    let (dirs, bounds) = (&settings.tools.directories, &settings.limits);
    let here = EnvironmentFacts::new(&settings.cwd, dirs, now, bounds, settings.budget);
    let memory = memory(settings);
    let system = brief(compose(&settings.system, &here), settings.briefing());
    let system = demand(remember(system, &memory), &settings.demands);
    let notes = folder_notes(settings);
    let delegation = Delegation { folder_notes: notes, ..delegation(settings, &here, &memory) };
    let supervisor = Supervisor::with_own_binary();
    let rungs = rungs(settings, models, clock, secrets, &supervisor)?;
    let prompt = session.unsaid(&task.prompt);
    let doubts = session.doubts();
    let kept = (scratch(settings, &session), session.id());
    let tools = tool_settings(settings, kept, secrets, &supervisor);
    let toolbox = Toolbox::new(&tools).map_err(bad_tools)?;
    let required = session.required_servers(settings);
    let servers = Arc::new(servers(settings, &toolbox, &supervisor).with_required(required));
    let (limits, session_id) = (limits(settings, &rungs), session.id());
    let (journal, mut legacy) = session.open(settings, &limits, &rungs[0].label)?;
    legacy.fit_to(&rungs);
    let damaged = legacy.damage.as_ref().map(words_of_damage);
    let resumption =
        Resumption { changes: settings.contract_changes(), damage: legacy.damage.take() };
    let hooks = hooks(settings, &session_id, journal.path(), secrets, &supervisor);
    let stop_after = settings.budget.filter(|_| settings.budget_mode == BudgetMode::After);
    let seed = Uuid::new_v4().as_u64_pair().0;
    // Last, so that no mistake in the settings leaves it behind.
    prepare_scratch(settings, &tools.scratch)?;
    let setup = Setup {
        session_id,
        prompt: if prompt.is_empty() { Vec::new() } else { vec![Block::text(prompt)] },
        system,
        cwd: settings.cwd.clone(),
        endpoints: rungs,
        toolbox,
        servers,
        limits,
        ledger: ledger(settings, &legacy),
        clock,
        seed,
        permission_mode: settings.tools.mode.name().to_owned(),
        api_key_source: settings.endpoint.credential.source().to_owned(),
        thinking: settings.thinking,
        stream_events: settings.output.partial_messages,
        stop_after,
        journal,
        shared: shared_limits(settings, clock, seed),
        secrets: secrets.clone(),
        hooks: Some(hooks),
        memory_files: memory.files.into_iter().map(|file| file.path).collect(),
        warnings: memory.warnings.into_iter().chain(doubts).chain(damaged).collect(),
        resumed: legacy.carried,
        agents: settings.agents.clone(),
        delegation,
    };
    Ok((setup, resumption))
}

/// Where a session's file was damaged, and what became of the rest, in one line.
fn words_of_damage(damage: &Damage) -> String {
    let Damage { line, what, dropped_records, kept_in } = damage;
    let kept = match kept_in {
        Some(path) => format!("they are kept in {}", path.display()),
        None => "they stay in that file".to_owned(),
    };
    format!(
        "the session's file is damaged at line {line} ({what}): {dropped_records} records from \
         there on are not used; {kept}"
    )
}

fn ledger(settings: &Settings, legacy: &SessionHistory) -> Ledger {
    let ceiling = settings.budget.filter(|_| settings.budget_mode == BudgetMode::Ceiling);
    Ledger::new(ceiling)
        .with_spent(legacy.spent.minus(legacy.unsettled))
        .with_unsettled(legacy.unsettled)
}

fn models(settings: &Settings) -> Result<Vec<ModelFacts>, UsageError> {
    settings.chain.links.iter().map(|link| facts(link, settings)).collect()
}

/// What people have written down for agents, read anew for each process.
fn memory(settings: &Settings) -> Memory {
    search_memory(settings, None)
}

/// The same of what is kept in folders below the working one, for a file that is worked on.
fn folder_notes(settings: &Settings) -> FolderNotes {
    let settings = settings.clone();
    Arc::new(move |file: &Path| {
        let found = search_memory(&settings, Some(file));
        let text = |file: MemoryFile| FolderNote::Text { path: file.path, text: file.text };
        let warnings = found.warnings.into_iter().map(FolderNote::Warning);
        found.files.into_iter().map(text).chain(warnings).collect()
    })
}

/// What is kept for the run, or beside a file.
fn search_memory(settings: &Settings, file: Option<&Path>) -> Memory {
    let Some(sources) = settings.memory else { return Memory::default() };
    let home = environment::home(&settings.variables);
    let own = if sources.user { environment::own_folders(&settings.variables) } else { Vec::new() };
    let search = MemorySearch {
        machine: sources.user.then_some(Path::new(MACHINE_MEMORY)),
        own: &own,
        home: home.as_deref(),
        cwd: &settings.cwd,
        project: sources.project,
        local: sources.local,
        trusted: sources.trusted,
    };
    match file {
        None => search.read(),
        Some(file) => search.beside(file),
    }
}

/// Where whoever keeps a machine writes down what holds for all runs on it.
const MACHINE_MEMORY: &str = "/etc/claude-code/CLAUDE.md";

/// The user's hooks, and what they are run with.
fn hooks(
    settings: &Settings,
    session_id: &str,
    journal: &Path,
    secrets: &KnownSecrets,
    supervisor: &Supervisor,
) -> Hooks {
    let own: Vec<(OsString, OsString)> = settings.variables.clone().into_iter().collect();
    let credentials = &settings.chain.key_variables;
    let mut environment = hook_environment(&own, credentials, session_id);
    let depth = settings.hook_depth.saturating_add(1).to_string();
    for (name, value) in [
        (environment::HOOK_DEPTH, OsString::from(depth)),
        ("CLAUDE_PROJECT_DIR", settings.cwd.clone().into_os_string()),
    ] {
        environment.retain(|(known, _)| known != name);
        environment.push((name.into(), value));
    }
    let scene = HookEnvironment {
        session_id: session_id.to_owned(),
        transcript: journal.to_owned(),
        cwd: settings.cwd.clone(),
        permission_mode: settings.tools.mode.name().to_owned(),
        environment,
        log: CrashLog::in_folder(&settings.config_dir),
        secrets: secrets.clone(),
        shell: "/bin/sh".into(),
        supervisor: supervisor.clone(),
    };
    Hooks::new(settings.hooks.clone(), scene)
}

/// The chain, with one client for each endpoint.
fn rungs(
    settings: &Settings,
    models: Vec<ModelFacts>,
    clock: Clock,
    secrets: &KnownSecrets,
    supervisor: &Supervisor,
) -> Result<Vec<ModelEndpoint>, UsageError> {
    let ModelChain { links, endpoints, .. } = &settings.chain;
    let mut clients = Vec::with_capacity(endpoints.len());
    for place in endpoints {
        let (secrets, supervisor) = (secrets.clone(), supervisor.clone());
        let endpoint = model::ModelService { secrets, supervisor, ..endpoint(place, clock) };
        let client =
            ModelClient::new(endpoint).map_err(|error| UsageError::new(error.to_string()))?;
        clients.push(Arc::new(client));
    }
    let rung = |(link, facts): (&ChainEntry, ModelFacts)| ModelEndpoint {
        label: link.label.clone(),
        facts,
        client: Arc::clone(&clients[link.endpoint]),
    };
    Ok(links.iter().zip(models).map(rung).collect())
}

/// What there is to say of fast mode before it is asked for: whoever pays for speed wants to know
/// where there is none.
pub(super) fn doubts_of_speed(settings: &Settings, rungs: &[ModelEndpoint]) -> Option<String> {
    let slow = rungs.iter().filter(|rung| rung.facts.fast.is_none());
    let slow: Vec<&str> = slow.map(|rung| rung.label.as_str()).collect();
    (settings.fast && !slow.is_empty()).then(|| {
        let (whole, slow) = (slow.len() == rungs.len(), slow.join(", "));
        let effect = if whole { "has no effect" } else { "has no effect on a part of the chain" };
        format!("fast mode {effect}: none is known of {slow}, so normal speed is asked for")
    })
}

/// What is known about a model: its name, what it holds and what it costs, the user's word first.
pub(super) fn facts(link: &ChainEntry, settings: &Settings) -> Result<ModelFacts, UsageError> {
    let mut known = model::model_facts(&link.model);
    if let Some(window) = link.context_window {
        known = known.with_context_window(window);
    }
    let own = link.keys().iter().find_map(|key| settings.prices.get(*key));
    let prices = match own {
        Some(price) => Some(prices(price)?),
        None => known.prices,
    };
    if settings.budget.is_some() && prices.is_none() {
        return Err(UsageError::new(format!(
            "no price is known for the model {name:?}, so no budget can be kept; give one with \
             --price {name}=IN/OUT (US dollars per million tokens; 0/0 where it costs nothing), or \
             in the setting \"prices\"",
            name = link.label
        )));
    }
    Ok(ModelFacts { prices, ..known })
}

pub(super) fn prices(price: &FilePrice) -> Result<model::Prices, UsageError> {
    let one = |per_million: f64| {
        price_of_one(per_million).map_err(|why| UsageError::new(format!("a price {why}")))
    };
    let input = one(price.input)?;
    let quarter = Money::from_pico_dollars(input.as_pico_dollars().div_ceil(4));
    Ok(model::Prices {
        input,
        output: one(price.output)?,
        // Not known to cost more anywhere.
        cache_read: price.cache_read.map_or(Ok(input), one)?,
        cache_write: price.cache_write.map_or(Ok(input + quarter), one)?,
        short_prompt: None,
    })
}

/// Where the model is. Rehearsed time passes for its timers as well, but not for connecting: no
/// scenario plays that, and on a busy machine it would be cut for no reason but the pace.
pub(super) fn endpoint(endpoint: &EndpointSettings, clock: Clock) -> model::ModelService {
    let credential = match &endpoint.credential {
        CredentialSource::ApiKey(key) => model::Credential::ApiKey(Secret::new(key)),
        CredentialSource::Bearer(token) => model::Credential::Bearer(Secret::new(token)),
        CredentialSource::Helper(command) => model::Credential::Helper(command.clone()),
        CredentialSource::OAuth { file, .. } => model::Credential::OAuth(file.clone()),
        CredentialSource::Absent => model::Credential::None,
    };
    model::ModelService {
        extra_headers: endpoint.headers.clone(),
        timers: RequestTimers {
            connect: endpoint.connect,
            first_byte: clock.real(endpoint.first_byte),
            idle: clock.real(endpoint.stream_idle),
            progress: clock.real(endpoint.stream_progress),
            reply: clock.real(endpoint.reply),
            whole: clock.real(endpoint.whole),
            dead_path: endpoint.dead_path,
        },
        ca_files: endpoint.ca_files.clone(),
        proxies: endpoint.proxies.clone(),
        ..model::ModelService::new(endpoint.base_url.as_str(), credential)
    }
}

/// What the machine decides by, with what only the whole of the settings can say.
fn limits(settings: &Settings, rungs: &[ModelEndpoint]) -> Limits {
    let mut limits = settings.limits;
    if !settings.chain.can_change_credentials() {
        // What cannot change is not fetched anew.
        limits.budgets.refreshes = 0;
    }
    let demands = &settings.demands;
    limits.structured = demands.schema.is_some();
    limits.requirement = demands.requirement.is_some();
    limits.stop_hooks = settings.asks_hooks_to_stop();
    limits.budgets.schema_tries = demands.schema_tries.saturating_sub(1);
    limits.budgets.requirement_tries = demands.require_retries;
    limits.auto_compact = settings.auto_compact;
    limits.compact_at = settings.compact_at.map(per_mille);
    limits.endpoint_changes = settings.chain.elsewhere();
    limits.fallback_return = settings.fallback_return.then_some(FALLBACK_RETURN);
    let has_fast = rungs.iter().any(|rung| rung.facts.fast.is_some());
    limits.fast = (settings.fast && has_fast).then(FastMode::default);
    limits
}

/// How long after a switch the first model is tried again (SPEC 7).
const FALLBACK_RETURN: Duration = Duration::from_mins(10);

/// A part of the whole, above 0 and at most 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and 1000, as the settings were checked"
)]
fn per_mille(part: f64) -> u16 {
    (part.clamp(0.001, 1.0) * 1_000.0).round() as u16
}

/// The servers, which see what commands see and talk over the same kind of connection as the
/// model's client.
pub(super) fn servers(settings: &Settings, toolbox: &Toolbox, supervisor: &Supervisor) -> Servers {
    let first = &settings.endpoint;
    let (ca_files, proxies) = (first.ca_files.clone(), first.proxies.clone());
    let (connect, dead_path) = (first.connect, first.dead_path);
    let http = move |url: &str| {
        let timers = RequestTimers { connect, dead_path, ..RequestTimers::default() };
        model::http_client(url, timers, &ca_files, &proxies)
    };
    let around = ServerEnvironment {
        cwd: settings.cwd.clone(),
        folders: settings.tools.directories.clone(),
        environment: toolbox.environment().to_vec(),
        supervisor: supervisor.clone(),
        mask: Redactor::new(toolbox.secrets().clone()),
        http: Box::new(http),
    };
    Servers::new(settings.mcp.servers.clone(), around, settings.mcp.timers)
}

/// What other runs know of rate limits. Those know nothing of rehearsed time.
fn shared_limits(settings: &Settings, clock: Clock, seed: u64) -> Option<SharedLimits> {
    (settings.shared_limits && clock.is_real_time())
        .then(|| SharedLimits::new(&environment::limit_folders(&settings.variables), seed))
}
