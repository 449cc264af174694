//! The parsed command line. [`settings`](super::settings) resolves its meaning.

mod argv;
mod batch;
mod compatibility;
mod config;
mod contradictions;
mod entries;
mod given;
mod groups;
pub mod help;
mod inspect;
mod log_filter;
mod parse_errors;
mod report;
mod sessions;
mod synonyms;

use std::path::{Path, PathBuf};
use std::slice;
use std::time::Duration;

use clap::builder::StyledStr;
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub use argv::CommandWords;
pub use argv::ProgramName;
pub(super) use argv::{RequestedOutput, split_directory, wanted_colors};
pub use batch::{
    BatchAction, BatchArgs, BatchEngine, BatchStatusArgs, BatchWorkerArgs, CollectBatchArgs,
    CollectFormat, StartBatchArgs,
};
pub use compatibility::CompatibilityArgs;
pub use config::{ConfigAction, ConfigArgs, GetSettingArgs, InitConfigArgs};
pub use given::GivenFlags;
pub use groups::{
    AcceptanceArgs, InputFormat, McpArgs, ModelArgs, NetworkArgs, OutputArgs, OutputFileArgs,
    OutputFormat, Profile, PromptArgs, SessionArgs, StreamArgs, TimerArgs, ToolArgs, Verbosity,
};
pub use inspect::{InspectArgs, InspectSubject, ServerLoginArgs, ServersAction, ServersArgs};
pub use log_filter::LogFilter;
pub use report::{ReportArgs, ReportFormat};
pub use sessions::{
    ExportFormat, ExportSessionArgs, ListSessionsArgs, PruneSessionsArgs, SessionsAction,
    SessionsArgs, ShowSessionArgs,
};

use inspect::InspectWords;

use super::manual;
use super::usage::UsageError;
use crate::config::environment::ColorChoice;
use crate::config::flags::SettingFlags;
use crate::config::{registry, values};

/// Runs a task to its end with a tool-using model, unattended.
#[derive(Debug, Parser)]
#[command(
    name = "outlast",
    about = "Runs a task to its end with a tool-using model, and reports how it ended.",
    override_usage = "outlast [run] [OPTIONS] [PROMPT]\n       outlast COMMAND [OPTIONS]",
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
    main: MainArgs,
}

/// The command line without a command: the flags of a run.
#[derive(Debug, Parser)]
#[command(disable_version_flag = true, disable_help_flag = true, args_override_self = true)]
struct MainArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Print help; -h prints a summary
    #[arg(short = 'h', long, global = true, action = ArgAction::HelpShort, help_heading = "Help")]
    help: Option<bool>,
    /// Colours of messages; the variable `OUTLAST_COLOR` also sets them
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        help_heading = "Help",
        ignore_case = true
    )]
    color: Option<ColorChoice>,
    /// Print the version; -v alone prints that of the interface first
    #[arg(short = 'v', visible_short_alias = 'V', long, help_heading = "Help")]
    version: bool,
}

impl MainArgs {
    fn into_request(self) -> CliRequest {
        if self.version {
            return CliRequest::Version(ProgramName::Outlast);
        }
        CliRequest::Run(Box::new(self.run.with_presets()))
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a task (the default; the word is optional)
    #[command(args_override_self = true)]
    Run(Box<RunArgs>),
    /// Run against a scripted model server with faults: no key, no cost
    Rehearse(RehearseArgs),
    /// Check this machine for problems that would prevent a run
    Doctor(DoctorArgs),
    /// Print the settings in force, each with its source
    Config(ConfigArgs),
    /// List, show, export and delete recorded sessions
    Sessions(SessionsArgs),
    /// Report on sessions: outcomes, recoveries, costs, a timeline
    Report(ReportArgs),
    /// Run many tasks, here or on an engine such as Slurm
    Batch(Box<BatchArgs>),
    /// List the MCP servers of a run, log in, log out
    #[command(hide = true)]
    Mcp(ServersArgs),
    /// List the plugins of a run
    #[command(hide = true, alias = "plugins", mut_arg("words", |words| words.help("Action: list (the default)")))]
    Plugin(InspectWords),
    /// List the agents of a run
    #[command(hide = true, mut_arg("words", |words| words.help("Action: list (the default)")))]
    Agents(InspectWords),
    /// Print which credential a run would use (status)
    #[command(hide = true, mut_arg("words", |words| words.help("Action: status (the default)")))]
    Auth(InspectWords),
    /// Print how outlast is installed: it does not install itself
    #[command(hide = true)]
    Install(InspectWords),
    /// Print how outlast is updated: it does not update itself
    #[command(hide = true, alias = "upgrade")]
    Update(InspectWords),
    /// Print how outlast gets a credential: it has no login of its own
    #[command(hide = true)]
    SetupToken(InspectWords),
    /// Print a script that makes a shell complete commands and options
    Completions {
        #[arg(value_name = "SHELL", value_enum)]
        shell: CompletionShell,
    },
    /// Print the JSON Schema of the result, stream-json or settings
    Schema {
        #[arg(value_name = "SUBJECT", value_enum)]
        subject: SchemaSubject,
    },
    /// Print the version
    Version,
    /// Print a page of the manual, or list the topics
    Help {
        /// A page (hooks), a section (exit-codes), a command, a flag or a setting (max-turns)
        #[arg(value_name = "TOPIC")]
        topic: Vec<String>,
    },
}

/// A shell whose completions can be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

/// A format whose JSON Schema can be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaSubject {
    /// The result object
    Result,
    /// One line of --output-format stream-json
    Stream,
    /// A settings file
    Settings,
}

/// Arguments of `outlast run`.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    // Stands before the others, since each field removes its values from the parsed arguments.
    #[command(flatten)]
    pub given: GivenFlags,
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
    /// The warning about a text that is not valid UTF-8.
    #[arg(skip)]
    pub encoding_warning: Option<String>,
}

/// Tools that run commands or reach the web: `--restricted` removes them.
const EXECUTING_TOOLS: [&str; 3] = ["Bash", "WebFetch", "WebSearch"];

impl RunArgs {
    /// Returns the time limit that `--max-duration` gives, before settings are read.
    pub fn time_limit(&self) -> Option<Duration> {
        let limit = self.flags.texts("max-duration").last();
        limit.and_then(|limit| values::duration(limit).ok())
    }

    /// Makes the paths of output files and of the files and plugins that flags name absolute, before
    /// the run changes to a worktree: a relative path is meant for the folder in which it was
    /// written. An input that is not there may be in the worktree.
    pub fn make_paths_absolute(&mut self, folder: &Path) {
        let input = |path: &Path| Some(folder.join(path)).filter(|path| path.exists());
        let (model, prompts, session) = (&mut self.model, &mut self.prompts, &mut self.session);
        let files = [&mut model.system_prompt_file, &mut model.append_system_prompt_file];
        let plugins = prompts.plugin_dir.iter_mut().chain(&mut prompts.plugin_dir_no_mcp);
        for path in files.into_iter().flatten().chain(plugins) {
            *path = input(path).unwrap_or_else(|| path.clone());
        }
        let texts = session.settings.iter_mut().chain(&mut session.managed_settings);
        let texts = texts.chain(&mut self.mcp.mcp_config).chain(&mut self.acceptance.json_schema);
        for text in texts.filter(|text| !text.is_empty()) {
            // A path that is not UTF-8 stays as it is.
            let path =
                input(Path::new(text)).and_then(|path| path.into_os_string().into_string().ok());
            *text = path.unwrap_or_else(|| text.clone());
        }
        let OutputFileArgs { result, last_message, heartbeat } = &mut self.output.files;
        let debug_file = &mut self.compatibility.debug_file;
        for file in [result, last_message, heartbeat, debug_file] {
            *file = file.take().map(|path| folder.join(path));
        }
    }

    /// Returns these flags with a profile, without those that contradict it.
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        self.tools.profile = Some(profile);
        self.session.trust_project = false;
        self.flags.replace("dangerously-skip-permissions", None);
        self.flags.replace("permission-mode", None);
        self.with_presets()
    }

    /// Sets the flags that are implied by `--bare`, `--safe-mode`, `--restricted` and `--profile`.
    fn with_presets(mut self) -> Self {
        let CompatibilityArgs { bare, safe_mode, restricted, .. } = self.compatibility;
        self.session.no_memory |= bare || safe_mode;
        self.prompts.disable_slash_commands |= safe_mode;
        self.mcp.strict_mcp_config |= safe_mode;
        match self.tools.profile {
            Some(Profile::Untrusted) => {
                self.session.setting_sources = Some("user".to_owned());
                self.flags.replace("sandbox", Some("read-only,required".to_owned()));
            }
            None => {}
        }
        if restricted {
            self.session.setting_sources = Some(String::new());
            let named = values::list(self.tools.tools.as_deref().unwrap_or_default());
            let removed = EXECUTING_TOOLS.iter().filter(|tool| !named.iter().any(|it| it == *tool));
            self.flags.extend("disallowed-tools", removed.map(|tool| (*tool).to_owned()));
        }
        self
    }
}

/// Arguments of `outlast rehearse`.
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
pub struct RehearseArgs {
    /// A built-in scenario by name, or a scenario file
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<String>,
    /// Rehearse a recorded session: its id, the beginning of its id, its name, or latest
    #[arg(long, value_name = "SESSION", conflicts_with = "scenario")]
    pub from: Option<String>,
    /// List the built-in scenarios
    #[arg(long, conflicts_with_all = ["scenario", "from", "serve", "flags"])]
    pub list: bool,
    /// With --list: one JSON object instead of text
    #[arg(long, requires = "list")]
    pub json: bool,
    /// Print the file of the scenario instead of rehearsing it
    #[arg(long, conflicts_with_all = ["list", "serve", "flags"])]
    pub print: bool,
    /// Write the file of the scenario to this new file instead of rehearsing it
    #[arg(long, value_name = "PATH", conflicts_with_all = ["list", "serve", "print", "flags"])]
    pub save: Option<PathBuf>,
    /// Only serve the scenario, for another program to be rehearsed
    #[arg(long)]
    pub serve: bool,
    /// The port of --serve. Default: a free port
    #[arg(long, value_name = "N", requires = "serve")]
    pub port: Option<u16>,
    /// Write the received requests to this file at the end, a JSON object on each line
    #[arg(long, value_name = "PATH", requires = "serve")]
    pub record: Option<PathBuf>,
    /// Flags of `outlast run`, after `--`
    #[arg(last = true, value_name = "OPTIONS")]
    pub flags: Vec<String>,
}

/// Arguments of `outlast doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Make no network requests
    #[arg(long)]
    pub offline: bool,
    /// Print all checks, with timers, limits and other details
    #[arg(long)]
    pub verbose: bool,
    /// Flags of `outlast run` to check, after `--`
    #[arg(last = true, value_name = "OPTIONS")]
    pub flags: Vec<String>,
}

/// The parsed command.
#[derive(Debug)]
pub enum CliRequest {
    /// Print this text and exit successfully.
    Print(String),
    /// Print the version of the program with this name.
    Version(ProgramName),
    /// Print help, in bold type on a terminal.
    Help(StyledStr),
    /// Print the completion script of this shell.
    Completions(CompletionShell),
    /// Print the JSON Schema of a format.
    Schema(SchemaSubject),
    /// Show a page of the manual, or a part of one: Markdown.
    Manual(String),
    Run(Box<RunArgs>),
    Rehearse(RehearseArgs),
    Doctor(DoctorArgs),
    Config(ConfigArgs),
    Sessions(SessionsArgs),
    Report(ReportArgs),
    Batch(Box<BatchArgs>),
    Mcp(ServersArgs),
    Inspect(InspectArgs),
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
    if args.session.directory.is_some() {
        return Err(UsageError::new("-C stands before the command: outlast -C DIR COMMAND"));
    }
    Ok(args)
}

/// Reads the command line of the process, without the program's name. A program called `claude` has
/// the defaults of `--print`.
///
/// # Errors
/// One line for the first mistake in it. A single word that is not a command is a mistake, and so
/// is a word among flags that is, or resembles, a command.
pub fn parse_process(given: &CommandWords, name: ProgramName) -> Result<CliRequest, UsageError> {
    let words = &given.words[..];
    if let [word] = words {
        parse_errors::check_single_word(word)?;
    }
    let mut request = parse(words)?;
    if let CliRequest::Run(args) = &mut request {
        let is_certain = words.first().is_some_and(|word| word == "run")
            || words.iter().any(|word| word == "--");
        if !is_certain && !args.output.print && name == ProgramName::Outlast {
            let resumes = args.session.go_on || args.session.resume.is_some();
            parse_errors::check_command_like(args.prompt.as_deref().unwrap_or_default(), resumes)?;
        }
        let model = &args.model;
        let texts = [&args.prompt, &model.system_prompt, &model.append_system_prompt];
        args.encoding_warning = given.check(&texts.map(Option::as_deref))?;
    } else {
        given.check(&[])?;
    }
    match (&mut request, name) {
        (CliRequest::Run(args), ProgramName::Claude) => args.output.print = true,
        // The SDKs run this to compare the version of the interface, whatever the program's name.
        (CliRequest::Version(shown), _) if words == ["-v"] => *shown = ProgramName::Claude,
        (CliRequest::Version(shown), _) => *shown = name,
        _ => {}
    }
    Ok(request)
}

/// Reads flags and a prompt, or a command with its flags.
///
/// # Errors
/// One line for the first mistake in it.
pub fn parse(words: &[String]) -> Result<CliRequest, UsageError> {
    if let [command, flag] = words
        && command == "help"
        && flag.starts_with('-')
        && !["--", "-h", "--help"].contains(&flag.as_str())
    {
        return help_on(slice::from_ref(flag));
    }
    let words = argv::normalise(words)?;
    let named = std::iter::once("outlast".to_owned()).chain(words.iter().cloned());
    // Without a command the small parser is enough: building that of all commands takes longer than
    // parsing.
    if !words.iter().any(|word| argv::is_command(word))
        && let Ok(main) = MainArgs::try_parse_from(named.clone())
    {
        return Ok(main.into_request());
    }
    let asks_summary = words.iter().take_while(|word| *word != "--").any(|word| word == "-h");
    let cli = if asks_summary { help::summary(command()) } else { command() };
    let parsed = cli.try_get_matches_from(named);
    let Cli { command, main } = match parsed.and_then(|it| Cli::from_arg_matches(&it)) {
        Ok(cli) => cli,
        Err(error) => return parse_errors::explain(&error, &words),
    };
    match command.filter(|_| !main.version) {
        None => Ok(main.into_request()),
        Some(command) => command.into_request(),
    }
}

impl Command {
    fn into_request(self) -> Result<CliRequest, UsageError> {
        let inspect = |words: InspectWords, subject: InspectSubject| {
            if words.ask_for_help() {
                return help_on_command(&mut command(), &[subject.into_str()])
                    .unwrap_or_else(|| CliRequest::Help(summary()));
            }
            CliRequest::Inspect(words.about(subject))
        };
        Ok(match self {
            Self::Run(run) => CliRequest::Run(Box::new(run.with_presets())),
            Self::Rehearse(args) => CliRequest::Rehearse(args),
            Self::Doctor(args) => CliRequest::Doctor(args),
            Self::Config(args) => CliRequest::Config(args),
            Self::Sessions(args) => CliRequest::Sessions(args),
            Self::Report(args) => CliRequest::Report(args),
            Self::Batch(args) => CliRequest::Batch(args),
            Self::Mcp(args) => CliRequest::Mcp(args),
            Self::Plugin(words) => inspect(words, InspectSubject::Plugin),
            Self::Agents(words) => inspect(words, InspectSubject::Agents),
            Self::Auth(words) => inspect(words, InspectSubject::Auth),
            Self::Install(words) => inspect(words, InspectSubject::Install),
            Self::Update(words) => inspect(words, InspectSubject::Update),
            Self::SetupToken(words) => inspect(words, InspectSubject::SetupToken),
            Self::Completions { shell } => CliRequest::Completions(shell),
            Self::Schema { subject } => CliRequest::Schema(subject),
            Self::Version => CliRequest::Version(ProgramName::Outlast),
            Self::Help { topic } => return help_on(&topic),
        })
    }
}

/// Returns a page or a section of the manual, or else the help of the command, flag or setting of
/// this name. Several words name a subcommand, or a section by its heading. Without words, returns
/// the list of topics.
fn help_on(words: &[String]) -> Result<CliRequest, UsageError> {
    let mut cli = command();
    if words.is_empty() {
        return Ok(CliRequest::Print(manual::contents(&visible_commands(&cli))));
    }
    if words.len() > 1
        && let Some(help) = help_on_command(&mut cli, words)
    {
        return Ok(help);
    }
    let topic = &words.join("-");
    let is_flag = topic.starts_with('-');
    if let Some(page) = manual::find(topic).filter(|_| !is_flag) {
        return Ok(CliRequest::Manual(page));
    }
    if let Some(help) = help_on_command(&mut cli, words).filter(|_| !is_flag) {
        return Ok(help);
    }
    if let Some(entry) = entries::find(topic, &cli) {
        return Ok(CliRequest::Print(entry));
    }
    let commands = visible_commands(&cli);
    let flags = cli.get_arguments().filter(|arg| !arg.is_hide_set());
    let flags = flags.filter_map(clap::Arg::get_long);
    let settings = registry::settings().iter().map(|setting| setting.key);
    let names: Vec<&str> = commands.iter().copied().chain(flags).chain(settings).collect();
    Err(manual::unknown_topic(topic, &names))
}

/// Returns the help of the command that these words name, if there is one.
fn help_on_command(cli: &mut clap::Command, words: &[impl AsRef<str>]) -> Option<CliRequest> {
    cli.build();
    let named = words.iter().try_fold(cli, |command, word| {
        // The parser does not know the actions of a command that reads its words itself.
        if command.get_positionals().any(clap::Arg::is_trailing_var_arg_set) {
            return Some(command);
        }
        command.find_subcommand_mut(word.as_ref())
    })?;
    Some(CliRequest::Help(named.render_help()))
}

/// Returns true if the command that these words name takes flags of a run after `--`.
pub(super) fn takes_run_flags(words: &[String]) -> bool {
    let mut words = words;
    while let [flag, _, rest @ ..] = words
        && ["-C", "--color"].contains(&flag.as_str())
    {
        words = rest;
    }
    let cli = command();
    synonyms::named_command(&cli, words).get_positionals().any(clap::Arg::is_last_set)
}

/// Returns the commands that the help lists.
fn visible_commands(cli: &clap::Command) -> Vec<&str> {
    let shown = cli.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(clap::Command::get_name).collect()
}

/// Returns the help of a run as a summary of one screen.
pub(super) fn summary() -> StyledStr {
    help::summary(command()).render_help()
}

/// Returns the clap command, for the man page.
pub fn command() -> clap::Command {
    help::complete(Cli::command())
}
