//! The command line, typed. What it means is decided in [`settings`](super::settings).

mod argv;
mod groups;
mod mistakes;

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};

pub(super) use argv::{Wanted, from_os};
pub use groups::{
    AcceptanceArgs, BudgetMode, ChildEnv, InputFormat, LimitArgs, ModelArgs, NetworkArgs,
    OutputArgs, OutputFormat, PermissionMode, SandboxMode, SandboxNetwork, SessionArgs, TimerArgs,
    ToolArgs,
};

use super::usage::UsageError;
use super::version;

/// Runs a task to its end with a tool-using model, nobody watching.
#[derive(Debug, Parser)]
#[command(
    name = "outlast",
    about = "Runs a task to its end with a tool-using model, and says truthfully how it ended.",
    override_usage = "outlast [run] [OPTIONS] [PROMPT]\n       outlast rehearse [SCENARIO] [-- OPTIONS]",
    after_help = "Settings, environment, exit codes: outlast(1).",
    disable_version_flag = true,
    disable_help_flag = true,
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true,
    args_override_self = true,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
    /// Print this help
    #[arg(short = 'h', long, global = true, action = ArgAction::HelpShort, help_heading = "Help")]
    help: Option<bool>,
    /// Print the version
    #[arg(short = 'v', long, help_heading = "Help")]
    version: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a task (the default; the word may be left out)
    #[command(args_override_self = true)]
    Run(Box<RunArgs>),
    /// Run against a scripted model server with faults: no key, no cost
    Rehearse(RehearseArgs),
}

/// Everything that `outlast run` takes.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// The task; `-` reads it from standard input
    #[arg(value_name = "PROMPT")]
    pub prompt: Option<String>,
    #[command(flatten, next_help_heading = "Output")]
    pub output: OutputArgs,
    #[command(flatten, next_help_heading = "Limits")]
    pub limits: LimitArgs,
    #[command(flatten, next_help_heading = "Acceptance")]
    pub acceptance: AcceptanceArgs,
    #[command(flatten, next_help_heading = "Model")]
    pub model: ModelArgs,
    #[command(flatten, next_help_heading = "Tools and permissions")]
    pub tools: ToolArgs,
    #[command(flatten, next_help_heading = "Session and settings")]
    pub session: SessionArgs,
    #[command(flatten, next_help_heading = "Network")]
    pub network: NetworkArgs,
    #[command(flatten, next_help_heading = "Timers")]
    pub timers: TimerArgs,
}

/// What `outlast rehearse` takes.
#[derive(Clone, Debug, Args)]
pub struct RehearseArgs {
    /// A built-in scenario by name, or a scenario file
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<String>,
    /// List the built-in scenarios
    #[arg(long)]
    pub list: bool,
    /// Only serve the scenario, for another program to be rehearsed
    #[arg(long)]
    pub serve: bool,
    /// The port to serve on; without it, a free one
    #[arg(long, value_name = "N", requires = "serve")]
    pub port: Option<u16>,
    /// Flags of `outlast run`, after `--`
    #[arg(last = true, value_name = "OPTIONS")]
    pub flags: Vec<String>,
}

/// What was asked for.
#[derive(Debug)]
pub enum Request {
    /// Print this and end well.
    Print(String),
    Run(Box<RunArgs>),
    Rehearse(RehearseArgs),
}

/// Reads a command line, without the program's name.
///
/// # Errors
/// One line for the first mistake in it.
pub fn parse(words: &[String]) -> Result<Request, UsageError> {
    let words = argv::normalise(words)?;
    let named = std::iter::once("outlast".to_owned()).chain(words);
    match Cli::try_parse_from(named) {
        Ok(Cli { version: true, .. }) => Ok(Request::Print(version::line())),
        Ok(Cli { command: Some(Command::Run(run)), .. }) => Ok(Request::Run(run)),
        Ok(Cli { command: Some(Command::Rehearse(rehearse)), .. }) => {
            Ok(Request::Rehearse(rehearse))
        }
        Ok(Cli { command: None, run, .. }) => Ok(Request::Run(Box::new(run))),
        Err(error) => mistakes::explain(&error),
    }
}

/// The command line as a value, for the man page.
pub fn command() -> clap::Command {
    Cli::command()
}
