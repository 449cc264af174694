//! The flags that are not settings, in groups. The syntax of each value is checked here; files are
//! read later.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::result_fields;
use crate::config::values;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// The model's last words, and nothing at all when the run failed.
    Text,
    /// One result object on one line.
    #[default]
    Json,
    /// One message a line, the result last.
    StreamJson,
}

impl OutputFormat {
    /// Returns the default format: text with `--print` and on a terminal, JSON elsewhere.
    pub fn default_for(print: bool) -> Self {
        if print || io::stdout().is_terminal() { Self::Text } else { Self::Json }
    }
}

/// Level of detail of the messages on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Nothing, unless the run fails: then what went wrong, and what was reported before.
    Failures,
    /// Waits, and what needs attention: nothing for a run without either.
    #[default]
    Waits,
    /// Begin and end of the run, and each tool call, too.
    Calls,
    /// Inputs and outputs of tools, replies and recoveries, too.
    Detail,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    #[default]
    Text,
    /// A host writes prompts and control requests, one JSON object on each line.
    StreamJson,
}

#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct OutputArgs {
    /// Print the answer as text unless another format is asked for
    #[arg(short = 'p', long)]
    pub print: bool,
    /// Format of standard output; text with -p and on a terminal, json elsewhere
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub output_format: Option<OutputFormat>,
    /// Format of the prompt
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub input_format: Option<InputFormat>,
    /// With text: as --log-detail. With json: an array of all messages, the result last
    #[arg(long)]
    pub verbose: bool,
    /// Report on standard error what tools get and print, replies and recoveries
    #[arg(long, conflicts_with = "quiet")]
    pub log_detail: bool,
    /// Report only waits and problems on standard error, even on a terminal or in CI
    #[arg(short = 'q', long)]
    pub quiet: bool,
    /// With stream-json: raw stream events too
    #[arg(long)]
    pub include_partial_messages: bool,
    /// With stream-json: when each hook begins, and how it ends
    #[arg(long)]
    pub include_hook_events: bool,
    /// With stream-json: what sub-agents say and think too
    #[arg(long)]
    pub forward_subagent_text: bool,
    /// For cron: print nothing unless the run fails, read no standard input, and wait out overloads
    /// and rate limits
    #[arg(long, conflicts_with_all = ["stdin", "log_detail", "input_format"])]
    pub unattended: bool,
    /// With json: only these fields of the result, in this order
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = result_fields::parse)]
    pub output_fields: Vec<String>,
    /// Write the result object to this file too, atomically
    #[arg(long, value_name = "PATH")]
    pub result_file: Option<PathBuf>,
    /// Write the answer to this file too, as text
    #[arg(long, value_name = "PATH")]
    pub last_message_file: Option<PathBuf>,
    /// Touch this file with every sign of life
    #[arg(long, value_name = "PATH")]
    pub heartbeat_file: Option<PathBuf>,
    /// Read standard input to its end, whatever it is
    #[arg(long)]
    pub stdin: bool,
    /// Leave standard input alone
    #[arg(long, conflicts_with = "stdin")]
    pub no_stdin: bool,
}

impl OutputArgs {
    /// Returns true if standard input is not read: with `--no-stdin`, or with `--unattended` unless
    /// the prompt names standard input.
    pub fn leaves_stdin(&self, names_stdin: bool) -> bool {
        self.no_stdin || self.unattended && !names_stdin
    }

    /// Returns true if a host writes prompts to standard input.
    pub fn is_driven_by_host(&self) -> bool {
        self.input_format == Some(InputFormat::StreamJson)
    }
}

#[derive(Clone, Debug, Default, Args)]
pub struct AcceptanceArgs {
    /// The shape of the answer: a JSON Schema, or a file of it
    #[arg(long, value_name = "JSON|PATH")]
    pub json_schema: Option<String>,
}

#[derive(Clone, Debug, Default, Args)]
pub struct ModelArgs {
    /// Replace the system prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "system_prompt_file")]
    pub system_prompt: Option<String>,
    /// Replace the system prompt by a file's content
    #[arg(long, value_name = "PATH")]
    pub system_prompt_file: Option<PathBuf>,
    /// Add to the system prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "append_system_prompt_file")]
    pub append_system_prompt: Option<String>,
    /// Add a file's content to the system prompt
    #[arg(long, value_name = "PATH")]
    pub append_system_prompt_file: Option<PathBuf>,
    /// Add to the system prompt of every sub-agent
    #[arg(long, value_name = "TEXT")]
    pub append_subagent_system_prompt: Option<String>,
}

#[derive(Clone, Debug, Default, Args)]
pub struct ToolArgs {
    /// The only tools there are; "" for none, default for all
    #[arg(long, value_name = "NAMES")]
    pub tools: Option<Vec<String>>,
    /// Decides on calls that the rules leave open: an MCP tool, or stdio for the host
    #[arg(long, value_name = "TOOL")]
    pub permission_prompt_tool: Option<String>,
    /// With untrusted: only what is safe in a checkout of strangers
    #[arg(long, value_name = "NAME", hide_possible_values = true, conflicts_with_all = [
        "sandbox", "setting_sources", "trust_project", "restricted", "dangerously-skip-permissions",
    ])]
    pub profile: Option<Profile>,
}

/// A set of restrictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// For a checkout whose authors are not trusted.
    Untrusted,
}

impl Profile {
    /// Returns the name of the profile on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted",
        }
    }
}

#[derive(Clone, Debug, Default, Args)]
pub struct PromptArgs {
    /// Show the model this image with the prompt; may be repeated
    #[arg(long, value_name = "PATH")]
    pub image: Vec<PathBuf>,
    /// Kinds of sub-agents, by name: JSON, or a file of it
    #[arg(long, value_name = "JSON|PATH")]
    pub agents: Option<String>,
    /// Take /NAME at the beginning of the prompt as it is, and tell the model of no skills
    #[arg(long)]
    pub disable_slash_commands: bool,
    /// Use the plugin in this folder, or each plugin in it; may be repeated
    #[arg(long, value_name = "DIR")]
    pub plugin_dir: Vec<PathBuf>,
}

#[derive(Clone, Debug, Default, Args)]
pub struct McpArgs {
    /// Servers to start: JSON, or a file like .mcp.json; may be repeated
    #[arg(long, value_name = "JSON|PATH")]
    pub mcp_config: Vec<String>,
    /// No servers but those of --mcp-config
    #[arg(long)]
    pub strict_mcp_config: bool,
    /// Do not begin without these servers; all for every one, none for none
    #[arg(long, value_name = "NAMES")]
    pub mcp_required: Vec<String>,
}

#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct SessionArgs {
    /// Work in this folder, to which other paths are then relative; before a command, for any
    #[arg(short = 'C', value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// True if a folder was named, before the command or after it.
    #[arg(skip)]
    pub names_folder: bool,
    /// Go on with the newest session of this folder
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    pub go_on: bool,
    /// Go on with this session: its id, the beginning of one, its name, or latest
    #[arg(short = 'r', long, value_name = "ID")]
    pub resume: Option<String>,
    /// Go on with this session, or start it: the same command may be run again and again
    #[arg(
        long,
        value_name = "UUID",
        conflicts_with_all = [
            "resume", "go_on", "session_id", "fork_session", "no_session_persistence"
        ]
    )]
    pub resume_or_start: Option<String>,
    /// Go on from the last intact record before damage in the session's file
    #[arg(long)]
    pub to_last_intact: bool,
    /// Go on under a new id, and leave the old session as it is
    #[arg(long)]
    pub fork_session: bool,
    /// Go on after this message of the session, and drop what follows it
    #[arg(long, value_name = "UUID", hide = true)]
    pub resume_session_at: Option<String>,
    /// Refuse to drop more than the turn of this prompt
    #[arg(long, value_name = "UUID", hide = true)]
    pub resume_drops_turn: Option<String>,
    /// The id of the new session: a UUID
    #[arg(long, value_name = "UUID")]
    pub session_id: Option<String>,
    /// A name for the session, which --resume takes
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,
    /// Keep no journal
    #[arg(long)]
    pub no_session_persistence: bool,
    /// Folder of the sessions, if not that of the settings. Not a flag: set by the program.
    #[arg(skip)]
    pub own_folder: Option<PathBuf>,
    /// Folder for the log of failed hooks, if not that of the settings. Not a flag: set by the
    /// program.
    #[arg(skip)]
    pub state_folder: Option<PathBuf>,
    /// More settings: JSON, or a file of it
    #[arg(long, value_name = "JSON|PATH")]
    pub settings: Option<String>,
    /// Settings that outrank all others but the machine's managed ones: JSON, or a file of it
    #[arg(long, value_name = "JSON|PATH", hide = true)]
    pub managed_settings: Option<String>,
    /// Settings files to read: user, project, local
    #[arg(long, value_name = "A,B")]
    pub setting_sources: Option<String>,
    /// Read no CLAUDE.md and AGENTS.md
    #[arg(long)]
    pub no_memory: bool,
    /// Let the repository's own settings do what yours may
    #[arg(long)]
    pub trust_project: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub struct NetworkArgs {
    /// Further certificate authorities to trust, a PEM file; may be repeated
    #[arg(long, value_name = "PATH")]
    pub ca_file: Vec<PathBuf>,
}

#[derive(Clone, Debug, Default, Args)]
pub struct TimerArgs {
    /// For rehearsals: let the run's time pass so many times faster
    #[arg(long, value_name = "X", value_parser = values::time_scale, allow_negative_numbers = true)]
    pub time_scale: Option<f64>,
}
