//! The flags that are not settings, in groups. The syntax of each value is checked here; files are
//! read later.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::result_fields;
use crate::config::first_reading::FirstReading;
use crate::config::values;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// The answer of the model; nothing if the run failed.
    Text,
    /// One result object on one line.
    #[default]
    Json,
    /// One message per line, the result last.
    #[value(aliases = ["stream_json", "jsonl", "ndjson"])]
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
    /// Nothing, unless the run fails: then the errors, and the messages that were held back.
    Failures,
    /// Waits and problems: nothing for a run without either.
    #[default]
    Waits,
    /// Also the start and end of the run, and each tool call.
    Calls,
    /// Also inputs and outputs of tools, replies and recoveries.
    Detail,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    #[default]
    Text,
    /// A host writes prompts and control requests, one JSON object on each line.
    #[value(alias = "stream_json")]
    StreamJson,
}

#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct OutputArgs {
    /// Print the answer as text, unless another format is given
    #[arg(short = 'p', long)]
    pub print: bool,
    /// Format of standard output; text with -p and on a terminal, json elsewhere
    #[arg(long, value_enum, value_name = "FORMAT", ignore_case = true)]
    pub output_format: Option<OutputFormat>,
    /// Format of the prompt
    #[arg(long, value_enum, value_name = "FORMAT", ignore_case = true)]
    pub input_format: Option<InputFormat>,
    /// With text: like --log-detail. With json: an array of all messages, the result last
    #[arg(long)]
    pub verbose: bool,
    /// Report inputs and outputs of tools, replies and recoveries on standard error
    #[arg(long, conflicts_with = "quiet")]
    pub log_detail: bool,
    /// Report only waits and problems on standard error, even on a terminal or in CI
    #[arg(short = 'q', long)]
    pub quiet: bool,
    #[command(flatten)]
    pub stream: StreamArgs,
    /// For cron: print nothing unless the run fails, read no standard input, and wait out overloads
    /// and rate limits
    #[arg(long, conflicts_with_all = ["stdin", "log_detail", "input_format"])]
    pub unattended: bool,
    /// With json: print only these fields of the result, in this order
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = result_fields::parse)]
    pub output_fields: Vec<String>,
    #[command(flatten)]
    pub files: OutputFileArgs,
    /// Read standard input to its end in any case
    #[arg(long)]
    pub stdin: bool,
    /// Do not read standard input
    #[arg(long, conflicts_with = "stdin")]
    pub no_stdin: bool,
}

/// Messages that only the format stream-json has.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct StreamArgs {
    /// With stream-json: also raw stream events
    #[arg(long = "include-partial-messages")]
    pub partial_messages: bool,
    /// With stream-json: also the start and end of each hook
    #[arg(long = "include-hook-events")]
    pub hook_events: bool,
    /// With stream-json: also the text and thinking of sub-agents
    #[arg(long = "forward-subagent-text")]
    pub subagent_text: bool,
}

/// Files that a run writes besides its standard output.
#[derive(Clone, Debug, Default, Args)]
pub struct OutputFileArgs {
    /// Also write the result object to this file, atomically
    #[arg(long = "result-file", value_name = "PATH")]
    pub result: Option<PathBuf>,
    /// Also write the answer to this file, as text
    #[arg(long = "last-message-file", value_name = "PATH")]
    pub last_message: Option<PathBuf>,
    /// Touch this file at each sign of activity
    #[arg(long = "heartbeat-file", value_name = "PATH")]
    pub heartbeat: Option<PathBuf>,
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
    /// The JSON Schema of the answer: JSON, or a file; none: plain text
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
    /// The only tools of the run; "" for none, default for all
    #[arg(long, value_name = "NAMES")]
    pub tools: Option<Vec<String>>,
    /// Ask this MCP tool, or the host (stdio), about calls that no rule decides
    #[arg(long, value_name = "TOOL")]
    pub permission_prompt_tool: Option<String>,
    /// The tools that the model means by other names. Not a flag: set by the program.
    #[arg(skip)]
    pub aliases: BTreeMap<String, String>,
    /// Restrict the run: untrusted, for work on a checkout whose authors are not trusted
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
    /// Add this image to the prompt; may be repeated
    #[arg(long, value_name = "PATH")]
    pub image: Vec<PathBuf>,
    /// Kinds of sub-agents, by name: JSON, or a file
    #[arg(long, value_name = "JSON|PATH")]
    pub agents: Option<String>,
    /// True if agents and MCP servers that are not known yet may follow. Not a flag: set by the
    /// program.
    #[arg(skip)]
    pub more_follows: bool,
    /// The skills that the model may know, if not all. Not a flag: set by the program.
    #[arg(skip)]
    pub skills: Option<Vec<String>>,
    /// Turn off commands (/NAME at the beginning of the prompt) and skills
    #[arg(long)]
    pub disable_slash_commands: bool,
    /// Use the plugin, or all plugins, in this folder; may be repeated
    #[arg(long, value_name = "DIR")]
    pub plugin_dir: Vec<PathBuf>,
    /// Like --plugin-dir, without the plugin's MCP servers
    #[arg(long, value_name = "DIR", hide = true)]
    pub plugin_dir_no_mcp: Vec<PathBuf>,
    /// Further plugins of a host, each with true if its MCP servers are used. Not a flag: set by
    /// the program.
    #[arg(skip)]
    pub host_plugins: Vec<(PathBuf, bool)>,
}

#[derive(Clone, Debug, Default, Args)]
pub struct McpArgs {
    /// Servers to start: JSON, or a file like .mcp.json; may be repeated
    #[arg(long, value_name = "JSON|PATH")]
    pub mcp_config: Vec<String>,
    /// Use only the servers of --mcp-config
    #[arg(long)]
    pub strict_mcp_config: bool,
    /// Fail at the start if one of these MCP servers is not available (names, all or none)
    #[arg(long, value_name = "NAMES")]
    pub mcp_required: Vec<String>,
}

#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct SessionArgs {
    /// Work in this folder; other paths are relative to it. Also valid before any command
    #[arg(short = 'C', value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// True if a folder was named, before the command or after it.
    #[arg(skip)]
    pub names_folder: bool,
    /// True if a host resumes a session of another process, and so gives its options again.
    #[arg(skip)]
    pub gives_options_anew: bool,
    /// The files of the repository as this process first read them, if it runs several turns.
    #[arg(skip)]
    pub first_reading: Option<FirstReading>,
    /// Continue the newest session of this folder
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    pub go_on: bool,
    /// Continue this session: its id, the beginning of its id, its name, or latest
    #[arg(short = 'r', long, value_name = "ID")]
    pub resume: Option<String>,
    /// Continue this session, or start it: the command may be repeated
    #[arg(
        long,
        value_name = "UUID",
        conflicts_with_all = [
            "resume", "go_on", "session_id", "fork_session", "no_session_persistence"
        ]
    )]
    pub resume_or_start: Option<String>,
    /// Continue from the last intact record before damage in the session's file
    #[arg(long)]
    pub to_last_intact: bool,
    /// Continue under a new id, and leave the old session unchanged
    #[arg(long)]
    pub fork_session: bool,
    /// Continue after this message of the session, and drop the later ones
    #[arg(long, value_name = "UUID", hide = true)]
    pub resume_session_at: Option<String>,
    /// Refuse to drop more than the turn of this prompt
    #[arg(long, value_name = "UUID", hide = true)]
    pub resume_drops_turn: Option<String>,
    /// Restore the files that were changed since this prompt of the session, and do nothing else
    #[arg(long, value_name = "UUID", hide = true)]
    pub rewind_files: Option<String>,
    /// The id of the new session: a UUID
    #[arg(long, value_name = "UUID")]
    pub session_id: Option<String>,
    /// A name for the session, for --resume
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,
    /// Write no journal
    #[arg(long)]
    pub no_session_persistence: bool,
    /// Folder of the sessions, if not that of the settings. Not a flag: set by the program.
    #[arg(skip)]
    pub own_folder: Option<PathBuf>,
    /// Folder for the log of failed hooks, if not that of the settings. Not a flag: set by the
    /// program.
    #[arg(skip)]
    pub state_folder: Option<PathBuf>,
    /// Further settings: JSON, or a file; may be repeated
    #[arg(long, value_name = "JSON|PATH")]
    pub settings: Vec<String>,
    /// Settings that outrank all others except the machine's managed ones: JSON, or a file
    #[arg(long, value_name = "JSON|PATH", hide = true)]
    pub managed_settings: Option<String>,
    /// The settings files to read: user, project, local
    #[arg(long, value_name = "A,B")]
    pub setting_sources: Option<String>,
    /// Do not read CLAUDE.md and AGENTS.md
    #[arg(long)]
    pub no_memory: bool,
    /// Trust the repository: use its settings like the user's
    #[arg(long)]
    pub trust_project: bool,
}

impl SessionArgs {
    /// Returns true if the run is sure to begin a session, which may be a copy of another.
    pub fn begins_session(&self) -> bool {
        let resumes = self.go_on || self.resume.is_some() || self.resume_or_start.is_some();
        !resumes || self.fork_session
    }
}

#[derive(Clone, Debug, Default, Args)]
pub struct NetworkArgs {
    /// A PEM file of further trusted certificate authorities; may be repeated
    #[arg(long, value_name = "PATH")]
    pub ca_file: Vec<PathBuf>,
}

#[derive(Clone, Debug, Default, Args)]
pub struct TimerArgs {
    /// For rehearsals: accelerate the run's clock by this factor
    #[arg(long, value_name = "X", value_parser = values::time_scale, allow_negative_numbers = true)]
    pub time_scale: Option<f64>,
}
