//! Reasons that a tool call is not allowed.

use std::path::{Path, PathBuf};

use super::super::catalog::BuiltinTool;
use super::super::outcome::ToolRefusal;
use super::super::paths::ResolvedPath;
use super::super::shell_lexer::NotPlain;
use super::rule_error::RuleError;

/// The reason that a tool call is not allowed. The text also says how to allow it, if it can be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum Denial {
    /// A deny rule covers it.
    #[error(
        "{what} is denied{} by the rule `{rule}`: no mode or allow rule overrides it",
        tool.map_or(String::new(), |tool| format!(" to {}", tool.name()))
    )]
    DenyRule { what: String, tool: Option<BuiltinTool>, rule: String },
    /// An ask rule covers it.
    #[error(
        "{what} must be asked about by the rule `{rule}`: remove it from the ask rules, or name a \
         tool that answers with --permission-prompt-tool"
    )]
    AskRule { what: String, rule: String },
    #[error(
        "{name} is denied by the entry of its MCP server: see its \"tools\", \"disabledTools\" or \
         \"excludeTools\""
    )]
    DeniedByServer { name: String },
    #[error(
        "{name} must be asked about by the \"tools\" in the entry of its MCP server: change that, \
         or name a tool that answers with --permission-prompt-tool"
    )]
    AskedByServer { name: String },
    /// A deny or ask rule forbids sub-agents of this kind.
    #[error("the agent {kind:?} is denied by the rule `{rule}`")]
    Agent { kind: String, rule: String },
    /// The definition of a sub-agent limits its use of a tool.
    #[error("this agent may use {} only as its definition says: {rules}", tool.name())]
    NotOfAgent { tool: BuiltinTool, rules: String },
    /// The only rule that it is checked against is not valid.
    #[error(transparent)]
    InvalidRule(#[from] RuleError),

    /// No rule allows an external tool.
    #[error("{name} needs permission: allow it with --allowedTools '{name}'")]
    External { name: String },
    #[error(
        "WebFetch needs permission for {host}: allow it with --allowedTools \
         'WebFetch(domain:{host})'"
    )]
    Host { host: String },
    #[error(
        "{} needs permission for {}: allow it with --permission-mode acceptEdits, or \
         --allowedTools '{}'",
        tool.name(), path.display(), tool.name()
    )]
    Change { tool: BuiltinTool, path: PathBuf },
    #[error("Bash needs permission to change {}", path.display())]
    ChangeByCommand { path: PathBuf },
    #[error("Bash needs permission for `{command}`: allow it with --allowedTools '{rule}'")]
    Command { command: String, rule: String },

    #[error("{name} may change something, and the run only plans (--permission-mode plan)")]
    ExternalWhilePlanning { name: String },
    #[error("{} cannot be changed: the run only plans (--permission-mode plan)", path.display())]
    ChangeWhilePlanning { path: PathBuf },
    #[error(
        "`{command}` cannot be run: the run only plans (--permission-mode plan), so only commands \
         known to change nothing are allowed"
    )]
    CommandWhilePlanning { command: String },

    #[error("WebFetch is off: this run has no network (--sandbox-network off)")]
    NoNetwork,
    #[error("WebSearch is off: the service has no search, or this run has no network")]
    NoSearch,
    /// The sandbox forbids changes of this path.
    #[error("{} cannot be changed: {why}", path.display())]
    WriteProtected { path: PathBuf, why: &'static str },
    #[error(
        "{path} holds credentials or other data that the sandbox protects: allow it with \
         --allowedTools '{}(/{path})', or in sandbox.filesystem.allowRead",
        tool.name(), path = path.display()
    )]
    Secret { tool: BuiltinTool, path: PathBuf },
    #[error(
        "{path} is protected, because it decides what other programs run: allow it with a rule \
         that names it, --allowedTools 'Edit(/{path})', or --permission-mode bypassPermissions",
        path = path.display()
    )]
    DecidesWhatRuns { path: PathBuf },
    /// `folder` is what `--add-dir` would have to open, if that may be advised.
    #[error("{}", outside_working_folders(*tool, place, folder.as_deref()))]
    OutsideWorkingFolders { tool: BuiltinTool, place: ResolvedPath, folder: Option<PathBuf> },
    #[error(
        "Bash may not remove a system folder, the home folder or the working directory: no rule \
         allows that"
    )]
    RemovesCriticalFolder,

    /// The command is more than simple commands, so no rule for single commands covers it.
    #[error("Bash needs permission: {0}. All of it is allowed by --allowedTools Bash")]
    NotPlain(#[from] NotPlain),
    #[error(
        "Bash needs permission: after a cd in the middle of a line, or through a link, {path:?} \
         may be in another folder. Begin the line with cd and &&, or use absolute paths"
    )]
    UnknownFolder { path: String },
    #[error("there is no folder {} to change to. Commands start in {}", missing.display(), cwd.display())]
    MissingFolder { missing: PathBuf, cwd: PathBuf },
    #[error(
        "`{command}` needs no rule by itself, but in one line with `{ruled}` it does: run it in a \
         call of its own, or allow it with --allowedTools '{rule}'"
    )]
    Beside { command: String, ruled: String, rule: String },
    #[error(
        "`{command}` cannot be run without a rule, as this kernel has no Landlock to confine it: \
         allow it with --allowedTools '{rule}' (but for plan mode), or everything with \
         --permission-mode bypassPermissions"
    )]
    NotConfined { command: String, rule: String },
    #[error(
        "`{command}` shows former versions of files, and a rule hides some files from Read: name \
         those that are meant in Read or Grep, or allow it by a rule for Bash"
    )]
    HiddenVersions { command: String },
}

impl Denial {
    /// Names Bash as the tool of a denied read.
    pub(super) fn for_bash(mut self) -> Self {
        if let Self::OutsideWorkingFolders { tool, .. } = &mut self {
            *tool = BuiltinTool::Bash;
        }
        self
    }
}

impl From<Denial> for ToolRefusal {
    fn from(denial: Denial) -> Self {
        // No permission is missing: the command would fail.
        if matches!(denial, Denial::MissingFolder { .. }) {
            return Self::invalid(denial.to_string());
        }
        Self::denied(denial.to_string())
    }
}

fn outside_working_folders(
    tool: BuiltinTool,
    place: &ResolvedPath,
    folder: Option<&Path>,
) -> String {
    let (path, real) = (place.written.display(), place.real.display());
    // No remedy is offered for a link: its author, who chose the target, may not be trusted.
    if place.real != place.written {
        return format!(
            "{}: {path} is a link out of the working directories, to {real}, and is not followed",
            tool.name()
        );
    }
    let remedy = folder.map_or_else(String::new, |folder| {
        format!(". Add them with --add-dir '{}'", folder.display())
    });
    format!("{} needs permission: {path} is outside the working directories{remedy}", tool.name())
}
