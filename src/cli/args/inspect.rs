//! Commands of the reference about the set-up of a run.

use std::time::Duration;

use clap::{Args, Subcommand};

/// The places where servers are added and removed.
pub(super) const SERVERS_ELSEWHERE: &str = "Servers are described in .mcp.json, in \"mcpServers\" of a \
    settings file or with --mcp-config; see outlast-mcp(7)";

/// Arguments of `outlast mcp`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = SERVERS_ELSEWHERE)]
pub struct ServersArgs {
    #[command(subcommand)]
    pub action: Option<ServersAction>,
    #[command(flatten)]
    pub flags: ForwardedFlags,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ServersAction {
    /// List the servers of a run, with their transports and logins (the default)
    List(ForwardedFlags),
    /// Print the entry of a server, without secrets
    Get(NamedServerArgs),
    /// Log in at a server that requires OAuth, in a browser
    Login(ServerLoginArgs),
    /// Remove the login at a server
    Logout(NamedServerArgs),
}

/// Flags of a run, which select the descriptions of servers.
#[derive(Clone, Debug, Default, Args)]
pub struct ForwardedFlags {
    /// Flags of `outlast run`, after `--`, such as --mcp-config
    #[arg(last = true, value_name = "OPTIONS")]
    pub words: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub struct NamedServerArgs {
    /// The name of the server
    #[arg(value_name = "NAME")]
    pub server: String,
    #[command(flatten)]
    pub flags: ForwardedFlags,
}

#[derive(Clone, Debug, Args)]
pub struct ServerLoginArgs {
    /// The name of the server
    #[arg(value_name = "NAME")]
    pub server: String,
    /// Log in with a code in a browser on any machine, if the authorization server supports that
    #[arg(long)]
    pub device: bool,
    /// The time to wait for the browser, as in 15m. Default: 5m
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub wait: Option<Duration>,
    #[command(flatten)]
    pub flags: ForwardedFlags,
}

impl ServersArgs {
    /// Returns the flags of a run that follow the command.
    pub fn run_flags(&self) -> &[String] {
        match &self.action {
            None => &self.flags.words,
            Some(ServersAction::List(flags)) => &flags.words,
            Some(ServersAction::Get(args) | ServersAction::Logout(args)) => &args.flags.words,
            Some(ServersAction::Login(args)) => &args.flags.words,
        }
    }
}

/// The subject of a command about the set-up of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum InspectSubject {
    Plugin,
    Agents,
    Auth,
    Install,
    Update,
    SetupToken,
}

/// A command about the set-up of a run, with its words.
#[derive(Clone, Debug)]
pub struct InspectArgs {
    pub subject: InspectSubject,
    pub words: Vec<String>,
}

/// The words of a command about the set-up of a run.
#[derive(Clone, Debug, Args)]
pub(super) struct InspectWords {
    /// The action
    #[arg(value_name = "WORDS", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl InspectWords {
    /// Returns true if one of the words asks for the help of the command. The parser does not see
    /// flags after the first word.
    pub(super) fn ask_for_help(&self) -> bool {
        let mut flags = self.words.iter().take_while(|word| *word != "--");
        flags.any(|word| word == "-h" || word == "--help")
    }

    pub(super) fn about(self, subject: InspectSubject) -> InspectArgs {
        InspectArgs { subject, words: self.words }
    }
}
