//! Flags of the reference CLI, which agent SDKs, CI actions and scripts send. Some have an effect.
//! The others are accepted, and a warning names them.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

use super::log_filter::LogFilter;

/// The heading of these flags in the help.
const HEADING: &str = "Compatibility";

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = HEADING)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct CompatibilityArgs {
    /// Echo each prompt of a host
    #[arg(long, hide = true)]
    pub replay_user_messages: bool,
    /// Let a host choose the mode bypassPermissions later
    #[arg(long, hide = true)]
    pub allow_dangerously_skip_permissions: bool,
    /// Run only managed hooks, read no memory files, list no skills, start only servers of
    /// --mcp-config
    #[arg(long)]
    pub bare: bool,
    /// Like --bare; no skills and commands, agents only from flags, and no output style
    #[arg(long)]
    pub safe_mode: bool,
    /// Use only managed settings; no Bash and no web tools without --tools
    #[arg(long)]
    pub restricted: bool,
    /// Like --log-detail, with the logs of libraries
    #[arg(short = 'd', long, value_name = "FILTER", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    debug: Option<LogFilter>,
    /// Write the output of --debug to this file
    #[arg(long, value_name = "PATH")]
    pub debug_file: Option<PathBuf>,
    /// Work in the git worktree .claude/worktrees/NAME. Files in flags stay relative to the
    /// folder of the call
    #[arg(short = 'w', long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub worktree: Option<String>,
    #[arg(long, hide = true)]
    debug_to_stderr: bool,
    /// With none, deny calls that need the user's approval
    #[arg(long, value_name = "TARGET")]
    pub permission_prompts: Option<String>,
    /// Send a host copies of the session's journals
    #[arg(long, hide = true)]
    pub session_mirror: bool,
    #[command(flatten)]
    ignored: IgnoredFlags,
}

impl CompatibilityArgs {
    /// Returns true if standard error shows details, as with `--log-detail`: with
    /// `--debug-to-stderr`, or with `--debug` unless `--debug-file` takes its place.
    pub fn logs_detail(&self) -> bool {
        self.debug_to_stderr || self.debug.is_some() && self.debug_file.is_none()
    }

    /// Returns the filter for log messages of libraries. `None`: none are shown.
    pub fn library_log(&self) -> Option<LogFilter> {
        let is_wanted = self.debug_file.is_some() || self.debug_to_stderr;
        self.debug.clone().or_else(|| is_wanted.then(LogFilter::default))
    }

    /// Returns true if only managed hooks run.
    pub fn disables_hooks(&self) -> bool {
        self.bare || self.safe_mode
    }

    /// Returns the flags that were given and have no effect.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let asks_host = self.permission_prompts.as_deref().is_some_and(|target| target != "none");
        let prompts = asks_host.then_some("--permission-prompts");
        self.ignored.0.iter().copied().chain(prompts).collect()
    }
}

/// The number of values that a flag without an effect takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    None,
    /// One, or none.
    Optional,
    One,
}

/// A flag that is accepted and has no effect.
struct Ignored {
    flag: &'static str,
    values: Values,
    /// True if a warning names the flag. False if an unattended run already does what the flag
    /// requests.
    is_named: bool,
}

const fn ignored(flag: &'static str, values: Values) -> Ignored {
    Ignored { flag, values, is_named: true }
}

const fn met(flag: &'static str, values: Values) -> Ignored {
    Ignored { flag, values, is_named: false }
}

/// The flags without an effect, of the reference's version 2.1.332 and of its SDKs.
const IGNORED: [Ignored; 33] = [
    met("--await-initialize", Values::None),
    met("--ax-screen-reader", Values::None),
    met("--brief", Values::None),
    met("--enable-auto-mode", Values::None),
    met("--exclude-dynamic-system-prompt-sections", Values::None),
    met("--ide", Values::None),
    met("--mcp-debug", Values::None),
    met("--no-chrome", Values::None),
    met("--prompt-suggestions", Values::Optional),
    met("--system-prompt-snapshot", Values::One),
    met("--teammate-mode", Values::One),
    ignored("--advisor", Values::One),
    ignored("--autocompact", Values::One),
    ignored("--background", Values::None),
    ignored("--bg", Values::None),
    ignored("--channels", Values::One),
    ignored("--chrome", Values::None),
    ignored("--cloud", Values::Optional),
    ignored("--dangerously-load-development-channels", Values::One),
    ignored("--desktop", Values::None),
    ignored("--environment", Values::One),
    ignored("--file", Values::One),
    ignored("--from-pr", Values::Optional),
    ignored("--init", Values::None),
    ignored("--maintenance", Values::None),
    ignored("--plugin-url", Values::One),
    ignored("--rc", Values::Optional),
    ignored("--remote", Values::Optional),
    ignored("--remote-control", Values::Optional),
    ignored("--remote-control-session-name-prefix", Values::One),
    ignored("--task-budget", Values::One),
    ignored("--teleport", Values::Optional),
    ignored("--tmux", Values::Optional),
];

/// The flags of [`IGNORED`] that were given and that a warning names.
#[derive(Clone, Debug, Default)]
struct IgnoredFlags(Vec<&'static str>);

/// Returns true if the value of a flag may be left out. If the value is a separate word, it
/// contains no blanks: a word with blanks is the prompt.
pub(super) fn has_optional_value(flag: &str) -> bool {
    let of_table = IGNORED.iter().find(|ignored| ignored.flag == flag);
    ["--debug", "--worktree"].contains(&flag)
        || of_table.is_some_and(|ignored| ignored.values == Values::Optional)
}

/// The lines of the help that name commands of the reference CLI, and the flags without an effect,
/// for callers that look up which flags are accepted.
pub(super) fn help_line() -> String {
    let flags = IGNORED.map(|ignored| ignored.flag).join(", ");
    format!(
        "Commands of the reference: mcp list, mcp get NAME, mcp login NAME, mcp logout NAME,\n\
         plugin list, agents, auth status\n\n\
         Accepted without an effect: {flags}"
    )
}

/// The name of a flag for the parser: without the dashes.
fn id(flag: &'static str) -> &'static str {
    flag.trim_start_matches('-')
}

fn argument(ignored: &Ignored) -> Arg {
    let id = id(ignored.flag);
    let arg = Arg::new(id).long(id).hide(true);
    match ignored.values {
        Values::None => arg.action(ArgAction::SetTrue),
        Values::Optional => arg.num_args(0..=1).require_equals(true).default_missing_value(""),
        Values::One => arg.action(ArgAction::Append),
    }
}

impl Args for IgnoredFlags {
    fn augment_args(command: Command) -> Command {
        command.args(IGNORED.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for IgnoredFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let is_given = |ignored: &&Ignored| {
            ignored.is_named
                && matches.value_source(id(ignored.flag)) == Some(ValueSource::CommandLine)
        };
        Ok(Self(IGNORED.iter().filter(is_given).map(|ignored| ignored.flag).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}
