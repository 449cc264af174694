//! The command line, parsed. [`settings`](super::settings) resolves what it means.

mod argv;
mod batch;
mod compatibility;
mod groups;
mod parse_errors;
mod sessions;

use std::path::PathBuf;

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};

pub(super) use argv::{RequestedOutput, from_os};
pub use batch::{
    BatchAction, BatchArgs, BatchEngine, BatchStatusArgs, BatchWorkerArgs, CollectBatchArgs,
    CollectFormat, StartBatchArgs,
};
pub use compatibility::CompatibilityArgs;
pub use groups::{
    AcceptanceArgs, InputFormat, McpArgs, ModelArgs, NetworkArgs, OutputArgs, OutputFormat,
    PromptArgs, SessionArgs, TimerArgs, ToolArgs, Verbosity,
};

pub use sessions::{
    ExportFormat, ExportSessionArgs, ListSessionsArgs, PruneSessionsArgs, SessionsAction,
    SessionsArgs, ShowSessionArgs,
};

use super::manual;
use super::usage::UsageError;
use super::version;
use crate::config::flags::SettingFlags;

/// Runs a task to its end with a tool-using model, unattended.
#[derive(Debug, Parser)]
#[command(
    name = "outlast",
    about = "Runs a task to its end with a tool-using model, and says truthfully how it ended.",
    override_usage = "outlast [run] [OPTIONS] [PROMPT]\n       outlast COMMAND [OPTIONS], as outlast COMMAND --help lists them",
    after_help = "Manual: outlast help. Exit codes, environment: outlast help outlast.",
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
    #[arg(short = 'v', visible_short_alias = 'V', long, help_heading = "Help")]
    version: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a task (the default; the word may be left out)
    #[command(args_override_self = true)]
    Run(Box<RunArgs>),
    /// Run against a scripted model server with faults: no key, no cost
    Rehearse(RehearseArgs),
    /// Check this machine for what would prevent a run, and report remedies
    Doctor(DoctorArgs),
    /// Print the settings in force, each with where it comes from
    Config(ConfigArgs),
    /// List, show, export and delete recorded sessions
    Sessions(SessionsArgs),
    /// Run many tasks, here or on an engine such as Slurm
    Batch(Box<BatchArgs>),
    /// Print the version
    Version,
    /// Print a page of the manual, such as hooks or settings, or list the pages
    Help {
        #[arg(value_name = "TOPIC")]
        topic: Option<String>,
    },
}

/// Everything that `outlast run` takes.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// The task; `-` reads it from standard input
    #[arg(value_name = "PROMPT")]
    pub prompt: Option<String>,
    #[command(flatten, next_help_heading = "Output")]
    pub output: OutputArgs,
    #[command(flatten)]
    pub flags: SettingFlags,
    #[command(flatten, next_help_heading = "Acceptance")]
    pub acceptance: AcceptanceArgs,
    #[command(flatten, next_help_heading = "Model")]
    pub model: ModelArgs,
    #[command(flatten, next_help_heading = "Tools and permissions")]
    pub tools: ToolArgs,
    #[command(flatten, next_help_heading = "Agents, commands and skills")]
    pub prompts: PromptArgs,
    #[command(flatten, next_help_heading = "MCP servers")]
    pub mcp: McpArgs,
    #[command(flatten, next_help_heading = "Session and settings")]
    pub session: SessionArgs,
    #[command(flatten, next_help_heading = "Network")]
    pub network: NetworkArgs,
    #[command(flatten, next_help_heading = "Timers")]
    pub timers: TimerArgs,
    #[command(flatten)]
    pub compatibility: CompatibilityArgs,
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
    /// Write the received requests to this file at the end, a JSON object on each line
    #[arg(long, value_name = "PATH", requires = "serve")]
    pub record: Option<PathBuf>,
    /// Flags of `outlast run`, after `--`
    #[arg(last = true, value_name = "OPTIONS")]
    pub flags: Vec<String>,
}

/// What `outlast doctor` takes.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Make no network requests
    #[arg(long)]
    pub offline: bool,
    /// Flags of `outlast run` that are to be looked at as well, after `--`
    #[arg(last = true, value_name = "OPTIONS")]
    pub flags: Vec<String>,
}

/// What `outlast config` takes.
#[derive(Clone, Debug, Args)]
pub struct ConfigArgs {
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Print the JSON Schema of a settings file, for editors
    #[arg(long, conflicts_with_all = ["json", "flags"])]
    pub schema: bool,
    /// Flags of `outlast run` that outrank the rest, after `--`
    #[arg(last = true, value_name = "OPTIONS")]
    pub flags: Vec<String>,
}

/// The parsed command.
#[derive(Debug)]
pub enum CliRequest {
    /// Print this and end well.
    Print(String),
    Run(Box<RunArgs>),
    Rehearse(RehearseArgs),
    Doctor(DoctorArgs),
    Config(ConfigArgs),
    Sessions(SessionsArgs),
    Batch(Box<BatchArgs>),
}

/// Parses the flags of a run for `doctor` and `config`.
///
/// # Errors
/// One line for the first mistake in them.
pub fn run_flags(words: &[String]) -> Result<Box<RunArgs>, UsageError> {
    let CliRequest::Run(args) = parse(words)? else {
        return Err(UsageError::new(
            "after -- there may be flags of outlast run, and nothing else",
        ));
    };
    Ok(args)
}

/// Reads the command line of the process, without the program's name.
///
/// # Errors
/// One line for the first mistake in it. A single word that is not a command is a mistake.
pub fn parse_process(words: &[String]) -> Result<CliRequest, UsageError> {
    if let [word] = words {
        parse_errors::check_single_word(word, &command())?;
    }
    parse(words)
}

/// Reads flags and a prompt, or a command with its flags.
///
/// # Errors
/// One line for the first mistake in it.
pub fn parse(words: &[String]) -> Result<CliRequest, UsageError> {
    let words = argv::normalise(words)?;
    let named = std::iter::once("outlast".to_owned()).chain(words);
    match Cli::try_parse_from(named) {
        Ok(Cli { version: true, .. } | Cli { command: Some(Command::Version), .. }) => {
            Ok(CliRequest::Print(version::line()))
        }
        Ok(Cli { command: Some(Command::Help { topic }), .. }) => {
            help(topic.as_deref()).map(CliRequest::Print)
        }
        Ok(Cli { command: Some(Command::Run(run)), .. }) => Ok(CliRequest::Run(run)),
        Ok(Cli { command: Some(Command::Rehearse(rehearse)), .. }) => {
            Ok(CliRequest::Rehearse(rehearse))
        }
        Ok(Cli { command: Some(Command::Doctor(doctor)), .. }) => Ok(CliRequest::Doctor(doctor)),
        Ok(Cli { command: Some(Command::Config(config)), .. }) => Ok(CliRequest::Config(config)),
        Ok(Cli { command: Some(Command::Sessions(sessions)), .. }) => {
            Ok(CliRequest::Sessions(sessions))
        }
        Ok(Cli { command: Some(Command::Batch(batch)), .. }) => Ok(CliRequest::Batch(batch)),
        Ok(Cli { command: None, run, .. }) => Ok(CliRequest::Run(Box::new(run))),
        Err(error) => parse_errors::explain(&error),
    }
}

/// Returns a page of the manual, or else the flags of the command of this name. Without a topic,
/// all flags and a list of the pages.
fn help(topic: Option<&str>) -> Result<String, UsageError> {
    let Some(topic) = topic else {
        return Ok(format!("{}\n{}", command().render_long_help(), manual::contents()));
    };
    let of_command = || {
        let mut cli = command();
        cli.build();
        Some(cli.find_subcommand_mut(topic)?.render_long_help().to_string())
    };
    manual::page(topic).or_else(of_command).ok_or_else(|| manual::unknown_topic(topic))
}

/// Returns the clap command, for the man page.
pub fn command() -> clap::Command {
    Cli::command()
}
