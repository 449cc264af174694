//! `outlast rehearse`: the real loop over real HTTP, against a server that plays a script.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::json;

use crate::rehearsal::{
    ObservedOutcome, RehearsalServer, Scenario, ScenarioListing, ScratchFolder, ServerOptions,
    builtin, list as builtin_scenarios, verify,
};

use super::args::{self, CliRequest, RehearseArgs, RunArgs};
use super::host;
use super::run::ProcessContext;
use super::stdout::print;
use super::usage::{UsageError, UsageErrorKind};

/// The API key that rehearsals send. It is not valid anywhere.
const KEY: &str = "rehearsal-key";

/// The scenario when none is named.
const DEFAULT: &str = "fix-a-bug";

/// A scenario under way: its server, and the scratch copy to work in.
struct RehearsalRun {
    server: RehearsalServer,
    scratch: ScratchFolder,
}

/// The action that the arguments of a rehearsal ask for.
enum RehearsalAction {
    /// Print this and end well.
    Print(String),
    /// Serve until we are interrupted.
    Serve(RehearsalRun),
    Run(Box<RunArgs>, RehearsalRun),
}

/// Parses the arguments and starts the scenario's server.
///
/// # Errors
/// There is no such scenario, or the flags after `--` are wrong.
fn prepare(args: &RehearseArgs) -> Result<RehearsalAction, UsageError> {
    if args.list {
        return Ok(RehearsalAction::Print(list()));
    }
    // Errors in the flags are reported before the setup.
    args::parse(&args.flags)?;
    let stage = RehearsalRun::start(args)?;
    if args.serve {
        return Ok(RehearsalAction::Serve(stage));
    }
    let scenario = stage.server.scenario();
    let scale = format!("--time-scale={}", scenario.time_scale);
    // A rehearsal leaves nothing behind. The user's settings are ignored unless asked for after
    // `--`: they may lead to real services, or fetch a real key.
    let alone = ["--no-session-persistence", "--setting-sources=", "--no-shared-limits"];
    let alone = alone.map(str::to_owned);
    let begin = [vec!["run".to_owned(), scale], alone.to_vec()].concat();
    let own = scenario.args.iter().map(|arg| stage.server.fill_in(arg)).collect();
    match args::parse(&[begin, own, args.flags.clone()].concat())? {
        CliRequest::Print(text) => Ok(RehearsalAction::Print(text)),
        CliRequest::Run(mut run) => {
            let is_asked = run.output.stdin || run.output.is_driven_by_host();
            if run.prompt.is_none() && !is_asked {
                run.prompt = Some(scenario.prompt.clone());
            }
            // An empty flag outranks the setting.
            run.flags.give_default("api-key-helper", "");
            if !run.flags.has("fallback-model") {
                run.flags.give_default("no-fallback", "true");
            }
            Ok(RehearsalAction::Run(run, stage))
        }
        CliRequest::Rehearse(_)
        | CliRequest::Doctor(_)
        | CliRequest::Config(_)
        | CliRequest::Sessions(_) => {
            Err(UsageError::new("only runs can be rehearsed; leave out the second word"))
        }
    }
}

/// Rehearses, or serves a rehearsal for another program.
///
/// # Errors
/// It could not be begun.
pub(super) async fn rehearse(
    args: &RehearseArgs,
    mut world: ProcessContext,
) -> Result<u8, UsageError> {
    match prepare(args)? {
        RehearsalAction::Print(text) => print(&text),
        RehearsalAction::Serve(stage) => {
            print(&format!("{}\n", stage.server.base_url()));
            for (name, server) in stage.server.others() {
                print(&format!("{name} {}\n", server.base_url()));
            }
            // A signal is the normal end of serving.
            world.signals.first().await;
            return stage.finish_serving(args.record.as_deref());
        }
        RehearsalAction::Run(run, stage) => {
            stage.redirect(&mut world);
            let own_flags = !args.flags.is_empty();
            let judge = |code: u8, reason: &str| stage.check(code, reason, own_flags);
            if run.output.is_driven_by_host() {
                return Box::pin(host::drive(&run, world, &judge)).await;
            }
            return Box::pin(super::run::run(&run, world, &judge)).await;
        }
    }
    Ok(0)
}

impl RehearsalRun {
    /// Creates the scenario's files and starts its server.
    fn start(args: &RehearseArgs) -> Result<Self, UsageError> {
        let scenario = find(args.scenario.as_deref().unwrap_or(DEFAULT))?;
        let broken = |what: &str, error: io::Error| {
            UsageError::new(format!("{what} could not be had for the rehearsal: {error}"))
        };
        let scratch =
            ScratchFolder::create(&scenario).map_err(|error| broken("a scratch folder", error))?;
        let options = ServerOptions {
            port: args.port.unwrap_or(0),
            time_scale: None,
            cwd: Some(scratch.path().to_path_buf()),
        };
        let server = RehearsalServer::start(scenario, options)
            .map_err(|error| broken("a port on loopback", error))?;
        scratch.fill_in(&server).map_err(|error| broken("the scratch folder", error))?;
        Ok(Self { server, scratch })
    }

    /// Points a run at the scripted server, and removes the variables of the real service.
    fn redirect(&self, world: &mut ProcessContext) {
        for name in [
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_CUSTOM_HEADERS",
            "ANTHROPIC_MODEL",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
            "CLAUDE_CODE_USE_FOUNDRY",
            "AWS_BEARER_TOKEN_BEDROCK",
            "AWS_PROFILE",
            "ANTHROPIC_BEDROCK_BASE_URL",
            "ANTHROPIC_VERTEX_BASE_URL",
            "ANTHROPIC_FOUNDRY_BASE_URL",
            "ANTHROPIC_FOUNDRY_RESOURCE",
            "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
            "CLAUDE_CODE_SKIP_VERTEX_AUTH",
            "CLAUDE_CODE_SKIP_FOUNDRY_AUTH",
        ] {
            world.variables.remove(&OsString::from(name));
        }
        let mut set = |name: &str, value: &str| {
            world.variables.insert(OsString::from(name), OsString::from(value));
        };
        set("ANTHROPIC_BASE_URL", &self.server.base_url());
        set("ANTHROPIC_API_KEY", KEY);
        for (name, value) in &self.server.scenario().env {
            set(name, &self.server.fill_in(value));
        }
        world.cwd = self.scratch.path().to_path_buf();
    }

    /// Writes the requests to `record`, and returns the exit code: an error if the real service
    /// would have rejected one.
    fn finish_serving(&self, record: Option<&Path>) -> Result<u8, UsageError> {
        if let Some(path) = record {
            let servers = [&self.server].into_iter().chain(self.server.others().map(|it| it.1));
            let requests = servers.flat_map(RehearsalServer::requests);
            let lines =
                requests.map(|it| format!("{}\n", json!({ "path": it.path, "body": it.body })));
            fs::write(path, lines.collect::<Vec<_>>().concat()).map_err(|error| {
                UsageError::new(format!("--record {}: {error}; name another", path.display()))
            })?;
        }
        match self.server.violations().as_slice() {
            [] => Ok(0),
            violations => Err(UsageError::of(UsageErrorKind::Internal, violations.join("; "))),
        }
    }

    /// Returns the deviations from what the scenario expects. Flags of the user may change how a
    /// run ends, so then only the requests are checked.
    fn check(&self, code: u8, reason: &str, own_flags: bool) -> Vec<String> {
        if own_flags {
            return self.server.violations();
        }
        let outcome = ObservedOutcome {
            exit: i32::from(code),
            terminal_reason: Some(reason),
            folder: self.scratch.path(),
            stderr: None,
        };
        verify(self.server.scenario(), &outcome, &self.server)
    }
}

/// A built-in scenario by its name, or one in a file.
fn find(name: &str) -> Result<Scenario, UsageError> {
    let scenario = match builtin(name) {
        Some(scenario) => scenario,
        None if Path::new(name).is_file() => Scenario::load(Path::new(name)),
        None => {
            return Err(UsageError::new(format!(
                "there is no scenario {name:?}, and no file of that name; see outlast rehearse \
                 --list"
            )));
        }
    };
    scenario.map_err(|error| UsageError::new(error.to_string()))
}

fn list() -> String {
    let mut text = String::new();
    let listings = builtin_scenarios();
    let width = listings.iter().map(|listing| listing.name.len()).max().unwrap_or_default();
    for ScenarioListing { name, summary, exit } in listings {
        let exit = exit.map_or(String::from("-"), |code| code.to_string());
        let _ = writeln!(text, "{name:<width$}  exit {exit:<4}{summary}");
    }
    text
}
