//! `outlast rehearse`: the real loop over real HTTP, against a server that plays a script.

use std::ffi::OsString;
use std::path::PathBuf;

use super::app::print;
use super::args::{self, RehearseArgs, Request, RunArgs};
use super::run::World;
use super::signals::Signals;
use super::usage::{Cause, UsageError};

/// The key that rehearsals send. It opens nothing.
const KEY: &str = "rehearsal-key";

/// The scenario when none is named.
const DEFAULT: &str = "fix-a-bug";

/// What a scenario changes about the run: where the model is, and what the task is.
#[derive(Clone, Debug, Default)]
struct Stage {
    /// Where the scripted server listens, on loopback.
    pub base_url: String,
    /// The scenario's task, for a run that brings none of its own.
    pub prompt: String,
    /// A scratch copy to work in.
    pub cwd: Option<PathBuf>,
    /// Flags of `outlast run` that the scenario begins with; the user's come after.
    pub flags: Vec<String>,
    /// Variables that the scenario sets, such as the one for unattended retries.
    pub env: Vec<(String, String)>,
}

/// What to do about a rehearsal.
enum Plan {
    /// Print this and end well.
    Print(String),
    /// Serve until we are interrupted.
    Serve(Stage),
    Run(Box<RunArgs>, Stage),
}

/// Reads what was asked for and sets the stage.
///
/// # Errors
/// There is no such scenario, or the flags after `--` are wrong.
async fn prepare(args: &RehearseArgs) -> Result<Plan, UsageError> {
    if args.list {
        return Ok(Plan::Print(list()));
    }
    let stage = open(args).await?;
    if args.serve {
        return Ok(Plan::Serve(stage));
    }
    let words = [stage.flags.clone(), args.flags.clone()].concat();
    match args::parse(&[vec!["run".to_owned()], words].concat())? {
        Request::Print(text) => Ok(Plan::Print(text)),
        Request::Run(mut run) => {
            if run.prompt.is_none() && !run.output.stdin {
                run.prompt = Some(stage.prompt.clone());
            }
            Ok(Plan::Run(run, stage))
        }
        Request::Rehearse(_) => {
            Err(UsageError::new("a rehearsal cannot be rehearsed; leave out the second word"))
        }
    }
}

/// Rehearses, or serves a rehearsal for another program.
///
/// # Errors
/// It could not be begun.
pub(super) async fn rehearse(args: &RehearseArgs, mut world: World) -> Result<u8, UsageError> {
    match prepare(args).await? {
        Plan::Print(text) => print(&text),
        Plan::Serve(stage) => {
            print(&format!("{}\n", stage.base_url));
            return serve().await;
        }
        Plan::Run(run, stage) => {
            stage.dress(&mut world);
            return super::run::run(&run, world, &|code, reason| stage.judge(code, reason)).await;
        }
    }
    Ok(0)
}

/// Serves until a signal comes, which is how serving ends well.
async fn serve() -> Result<u8, UsageError> {
    let signals = Signals::listen().map_err(|error| {
        UsageError::of(Cause::Internal, format!("signals cannot be received: {error}"))
    })?;
    signals.first().await;
    Ok(0)
}

impl Stage {
    /// Leads a run onto the stage: it finds the scripted server, and nothing of the real one.
    fn dress(&self, world: &mut World) {
        for name in ["ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS"] {
            world.variables.remove(&OsString::from(name));
        }
        let mut set = |name: &str, value: &str| {
            world.variables.insert(OsString::from(name), OsString::from(value));
        };
        set("ANTHROPIC_BASE_URL", &self.base_url);
        set("ANTHROPIC_API_KEY", KEY);
        for (name, value) in &self.env {
            set(name, value);
        }
        if let Some(cwd) = &self.cwd {
            world.cwd.clone_from(cwd);
        }
    }

    /// What was wrong with the run, as the scenario has it.
    fn judge(&self, _code: u8, _reason: &str) -> Vec<String> {
        Vec::new()
    }
}

fn list() -> String {
    String::new()
}

async fn open(args: &RehearseArgs) -> Result<Stage, UsageError> {
    let name = args.scenario.as_deref().unwrap_or(DEFAULT);
    std::future::ready(Err(UsageError::new(format!(
        "there is no scenario {name:?}; see outlast rehearse --list"
    ))))
    .await
}
