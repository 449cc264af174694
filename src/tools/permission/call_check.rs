//! Checks one tool call against the rules and the permission mode.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::catalog::BuiltinTool;
use super::super::outcome::GrantSource;
use super::super::paths::{PathScope, ResolvedPath};
use super::super::protected_paths::is_protected;
use super::super::sandbox::{DeniedPlaces, RuleDenial};
use super::super::shell_lexer::{NotPlain, SimpleCommand};
use super::command_check::{Confinement, Resolve};
use super::denial::Denial;
use super::live::LivePermissions;
use super::rule::PermissionRule;
use super::rule_error::{RuleError, RuleList};
use crate::types::PermissionMode;

/// The access that a tool call requests.
pub(in super::super) enum Access<'a> {
    /// Changes nothing outside the memory of outlast.
    Nothing,
    Read(ResolvedPath),
    Change(ResolvedPath),
    /// Access to this host, in the form that [`super::super::domain::host_of`] returns.
    Host(String),
    /// A search of the web by the model's service.
    Search,
    Command {
        command: &'a str,
        /// Its simple commands, if it consists of nothing else.
        parts: Result<&'a [SimpleCommand], &'a NotPlain>,
        cwd: &'a Path,
        resolve: Resolve<'a>,
    },
}

/// The permission rules and the permission mode of a run.
#[derive(Clone, Debug)]
pub(in super::super) struct Permissions {
    pub(super) mode: PermissionMode,
    pub(super) allow: Vec<PermissionRule>,
    pub(super) ask: Vec<PermissionRule>,
    pub(super) deny: Vec<PermissionRule>,
    pub(super) cwd: PathBuf,
    pub(super) home: Option<PathBuf>,
    /// Paths that only a rule which names them can open.
    secrets: DeniedPlaces,
    /// True if the kernel confines the commands that need no rule.
    pub(super) holds_plain_commands: bool,
    pub(super) critical: CriticalPaths,
    /// The changes that the host has made during the run.
    live: LivePermissions,
}

/// Permission of a command to remove critical folders (system, home, working directories).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CriticalPaths {
    Denied,
    /// The user confirmed the removal when asked.
    Confirmed,
}

/// A permission rule that could not be parsed.
pub(in super::super) struct BadRule {
    pub(in super::super) rule: String,
    pub(in super::super) why: RuleError,
}

impl Permissions {
    pub(in super::super) fn new(
        mode: PermissionMode,
        lists: [(RuleList, &[String]); 3],
        cwd: &Path,
        home: Option<&Path>,
    ) -> Result<Self, BadRule> {
        let mut permissions = Self {
            mode,
            allow: Vec::new(),
            ask: Vec::new(),
            deny: Vec::new(),
            cwd: cwd.to_path_buf(),
            home: home.map(Path::to_path_buf),
            secrets: DeniedPlaces::default(),
            holds_plain_commands: false,
            critical: CriticalPaths::Denied,
            live: LivePermissions::default(),
        };
        for (list, texts) in lists {
            for text in texts {
                let rule = PermissionRule::parse(text, list, cwd, home)
                    .map_err(|why| BadRule { rule: text.clone(), why })?;
                match list {
                    RuleList::Allow => permissions.allow.push(rule),
                    RuleList::Ask => permissions.ask.push(rule),
                    RuleList::Deny => permissions.deny.push(rule),
                }
            }
        }
        Ok(permissions)
    }

    /// Denies these paths to the file tools, too. `holds_plain_commands` is true if the kernel
    /// confines the commands that need no rule.
    pub(in super::super) fn with_sandbox(
        self,
        secrets: DeniedPlaces,
        holds_plain_commands: bool,
    ) -> Self {
        Self { secrets, holds_plain_commands, ..self }
    }

    /// Adds the changes that a host makes during the run.
    pub(in super::super) fn with_live(self, live: LivePermissions) -> Self {
        Self { live, ..self }
    }

    /// The number of changes that the host has made.
    pub(in super::super) fn live_changes(&self) -> u64 {
        self.live.count()
    }

    /// Returns the current permissions, with the changes of the host.
    pub(super) fn current(&self) -> Cow<'_, Self> {
        let (mode, rules) = (self.live.mode(), self.live.rules(&self.cwd, self.home.as_deref()));
        if mode.is_none() && rules.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut current = self.clone();
        current.mode = mode.unwrap_or(current.mode);
        for (list, rule) in rules {
            match list {
                RuleList::Allow => current.allow.push(rule),
                RuleList::Ask => current.ask.push(rule),
                RuleList::Deny => current.deny.push(rule),
            }
        }
        Cow::Owned(current)
    }

    /// The paths that deny rules take away from commands, where the kernel can enforce that.
    pub(in super::super) fn denied_paths(&self) -> Vec<RuleDenial> {
        self.deny.iter().filter_map(PermissionRule::denies_paths).collect()
    }

    /// True if a rule removes the tool entirely, so that it is not offered to the model.
    pub(in super::super) fn removes(&self, tool: BuiltinTool) -> bool {
        self.deny.iter().any(|rule| rule.covers_whole_tool(tool))
    }

    /// Returns the denial of a tool that is not built in, if a rule removes it entirely.
    pub(in super::super) fn external_denial(&self, name: &str) -> Option<Denial> {
        let rule = self.deny.iter().find(|rule| rule.covers_external(name))?;
        Some(Denial::by_deny_rule(name, None, rule))
    }

    /// Checks a call of an external tool. Its effects are unknown, so the call needs a rule that
    /// names the tool or its server, or the approval of a hook. A tool that a trusted source
    /// declares read-only may be used in plan mode.
    ///
    /// # Errors
    /// The call is not allowed; the denial says why, and how to allow it.
    pub(in super::super) fn check_external(
        &self,
        name: &str,
        reads_only: bool,
        source: GrantSource,
    ) -> Result<(), Denial> {
        let current = self.current();
        if let Some(why) = current.external_denial(name) {
            return Err(why);
        }
        let asking = current.ask.iter().find(|rule| rule.covers_external(name));
        if let Some(rule) = asking.filter(|_| source != GrantSource::Prompt) {
            return Err(Denial::by_ask_rule(name, rule));
        }
        match current.mode {
            PermissionMode::BypassPermissions => Ok(()),
            PermissionMode::Plan if !reads_only => {
                Err(Denial::ExternalWhilePlanning { name: name.to_owned() })
            }
            PermissionMode::Plan
            | PermissionMode::Default
            | PermissionMode::AcceptEdits
            | PermissionMode::DontAsk => {
                let allowed = current.allow.iter().any(|rule| rule.covers_external(name));
                if allowed || source != GrantSource::Rules {
                    return Ok(());
                }
                Err(Denial::External { name: name.to_owned() })
            }
        }
    }

    /// True if a rule covers an external tool. A rule that does not parse covers every tool.
    pub(in super::super) fn rule_covers_external(&self, rule: &str, name: &str) -> bool {
        PermissionRule::parse(rule, RuleList::Deny, &self.cwd, self.home.as_deref())
            .map_or(true, |rule| rule.covers_external(name))
    }

    /// The rule that forbids starting sub-agents of this kind, or of every kind.
    pub(in super::super) fn forbids_agents(&self, kind: Option<&str>) -> Option<&str> {
        let mut rules = self.deny.iter().chain(&self.ask);
        rules.find(|rule| rule.covers_agents(kind)).map(|rule| rule.text.as_str())
    }

    /// True if a search must hide this file.
    pub(in super::super) fn hides(&self, tool: BuiltinTool, path: &Path) -> bool {
        let mut rules = self.deny.iter().chain(&self.ask);
        rules.any(|rule| rule.covers_path(tool, path)) || self.is_secret(tool, path)
    }

    /// True if [`Self::hides`] may hide something below a folder.
    pub(in super::super) fn hides_below(&self, folder: &ResolvedPath) -> bool {
        let mut rules = self.deny.iter().chain(&self.ask);
        let seen = [&folder.written, &folder.real];
        rules.any(|rule| seen.iter().any(|it| rule.reaches_below(BuiltinTool::Grep, it)))
            || self.secrets.hides_below(&folder.real)
    }

    /// True if something below a folder may be denied.
    pub(super) fn denies_below(&self, folder: &ResolvedPath) -> bool {
        let mut rules = self.deny.iter().chain(&self.ask);
        self.hides_below(folder)
            || rules.any(|rule| rule.reaches_below(BuiltinTool::Write, &folder.real))
            || self.secrets.protects_below(&folder.real)
    }

    /// True if the path is a protected credential location. Only a rule that names it opens it.
    fn is_secret(&self, tool: BuiltinTool, path: &Path) -> bool {
        self.secrets.hides(path) && !self.allow.iter().any(|rule| rule.covers_path(tool, path))
    }

    /// Checks a call. A hook's approval replaces an allow rule, but does not override a deny rule.
    /// Returns the confinement of the call, if it is a command.
    ///
    /// # Errors
    /// The call is not allowed; the denial says why, and how to allow it.
    pub(in super::super) fn check_call(
        &self,
        tool: BuiltinTool,
        input: &Value,
        access: &Access<'_>,
        source: GrantSource,
    ) -> Result<Confinement, Denial> {
        let current = self.current();
        match source {
            GrantSource::Rules => current.check_by_rules(tool, input, access),
            GrantSource::Hook => current.with_allow_rule(tool).check_by_rules(tool, input, access),
            GrantSource::Prompt => current.limits_only().check_by_rules(tool, input, access),
        }
    }

    /// The limits that no approval lifts: deny rules, credential locations, and every change in
    /// plan mode.
    fn limits_only(&self) -> Self {
        let plans = self.mode == PermissionMode::Plan;
        let mode = if plans { self.mode } else { PermissionMode::BypassPermissions };
        Self { mode, ask: Vec::new(), critical: CriticalPaths::Confirmed, ..self.clone() }
    }

    /// A copy with an allow rule for every use of a tool.
    fn with_allow_rule(&self, tool: BuiltinTool) -> Self {
        let mut allow = self.allow.clone();
        let rule =
            PermissionRule::parse(tool.name(), RuleList::Allow, &self.cwd, self.home.as_deref());
        allow.extend(rule);
        Self { allow, ..self.clone() }
    }

    /// Checks a call against one rule only.
    ///
    /// # Errors
    /// The rule covers the call, or that cannot be determined.
    pub(in super::super) fn check_against_rule(
        &self,
        rule: &str,
        tool: BuiltinTool,
        input: &Value,
        access: &Access<'_>,
    ) -> Result<Confinement, Denial> {
        let rule = PermissionRule::parse(rule, RuleList::Deny, &self.cwd, self.home.as_deref())?;
        let alone = Self {
            mode: PermissionMode::BypassPermissions,
            allow: Vec::new(),
            ask: Vec::new(),
            deny: vec![rule],
            secrets: DeniedPlaces::default(),
            ..self.clone()
        };
        alone.check_by_rules(tool, input, access)
    }

    fn check_by_rules(
        &self,
        tool: BuiltinTool,
        input: &Value,
        access: &Access<'_>,
    ) -> Result<Confinement, Denial> {
        let covers =
            |rule: &&PermissionRule| rule.covers_whole_tool(tool) || rule.covers_input(tool, input);
        if let Some(rule) = self.deny.iter().find(covers) {
            let whole = rule.covers_whole_tool(tool);
            let what = if whole { tool.name() } else { "this call" };
            return Err(Denial::by_deny_rule(what, None, rule));
        }
        if let Some(rule) = self.ask.iter().find(covers) {
            return Err(Denial::by_ask_rule(tool.name(), rule));
        }
        match access {
            Access::Nothing => Ok(()),
            Access::Read(place) => self.check_read(tool, place),
            Access::Change(place) => self.check_change(tool, place),
            Access::Host(host) => self.check_host(host),
            Access::Search => self.check_search(tool),
            Access::Command { command, parts, cwd, resolve } => {
                return self.check_command(command, *parts, cwd, resolve);
            }
        }?;
        Ok(Confinement::Sandbox)
    }

    /// Applies the deny and ask rules, which no mode overrides.
    pub(super) fn check_denied(
        &self,
        tool: BuiltinTool,
        place: &ResolvedPath,
    ) -> Result<(), Denial> {
        let is_link = place.written != place.real;
        let about = |rule: &&PermissionRule| {
            rule.covers_path(tool, &place.written) || is_link && rule.covers_path(tool, &place.real)
        };
        if let Some(rule) = self.deny.iter().find(about) {
            let path = place.written.display().to_string();
            return Err(Denial::by_deny_rule(path, Some(tool), rule));
        }
        if let Some(rule) = self.ask.iter().find(about) {
            return Err(Denial::by_ask_rule(tool.name(), rule));
        }
        if self.is_secret(tool, &place.real) {
            return Err(Denial::Secret { tool, path: place.real.clone() });
        }
        Ok(())
    }

    /// Applies the deny and ask rules to a folder with all of its contents.
    pub(super) fn check_folder_denied(
        &self,
        tool: BuiltinTool,
        place: &ResolvedPath,
    ) -> Result<(), Denial> {
        self.check_denied(tool, place)?;
        let within = |path: &Path| path.join("everything");
        let (written, real) = (within(&place.written), within(&place.real));
        self.check_denied(tool, &ResolvedPath { written, real, ..place.clone() })
    }

    fn allows(&self, tool: BuiltinTool, place: &ResolvedPath) -> bool {
        // Both a link and its target have to be allowed.
        let about = |path: &Path| self.allow.iter().any(|rule| rule.covers_path(tool, path));
        self.allow.iter().any(|rule| rule.covers_whole_tool(tool))
            || about(&place.real) && about(&place.written)
    }

    pub(super) fn check_read(&self, tool: BuiltinTool, place: &ResolvedPath) -> Result<(), Denial> {
        self.check_denied(tool, place)?;
        let free = place.scope != PathScope::Outside
            || self.mode == PermissionMode::BypassPermissions
            || self.allows(tool, place);
        if free { Ok(()) } else { Err(outside(tool, place)) }
    }

    /// Checks access to a host. The content of a site is unknown, so access always needs an allow
    /// rule.
    fn check_host(&self, host: &str) -> Result<(), Denial> {
        let tool = BuiltinTool::WebFetch;
        if let Some(rule) = self.deny.iter().find(|rule| rule.covers_host(host)) {
            return Err(Denial::by_deny_rule(host, Some(tool), rule));
        }
        if let Some(rule) = self.ask.iter().find(|rule| rule.covers_host(host)) {
            return Err(Denial::by_ask_rule(tool.name(), rule));
        }
        let mut rules = self.allow.iter();
        if self.mode == PermissionMode::BypassPermissions
            || rules.any(|rule| rule.covers_whole_tool(tool) || rule.covers_host(host))
        {
            return Ok(());
        }
        Err(Denial::Host { host: host.to_owned() })
    }

    /// Checks a search of the web: the query leaves the machine and costs money.
    fn check_search(&self, tool: BuiltinTool) -> Result<(), Denial> {
        let allowed = self.mode == PermissionMode::BypassPermissions
            || self.allow.iter().any(|rule| rule.covers_whole_tool(tool));
        allowed.then_some(()).ok_or_else(|| Denial::External { name: tool.name().to_owned() })
    }

    pub(super) fn check_change(
        &self,
        tool: BuiltinTool,
        place: &ResolvedPath,
    ) -> Result<(), Denial> {
        self.check_denied(tool, place)?;
        let path = || place.written.clone();
        if let Some(why) = self.secrets.write_denial(&place.real) {
            return Err(Denial::WriteProtected { path: path(), why });
        }
        match self.mode {
            PermissionMode::BypassPermissions => return Ok(()),
            PermissionMode::Plan => return Err(Denial::ChangeWhilePlanning { path: path() }),
            PermissionMode::Default | PermissionMode::AcceptEdits | PermissionMode::DontAsk => {}
        }
        let decides = |path: &Path| is_protected(path, &self.cwd);
        let is_named = |path: &PathBuf| {
            let mut rules = self.allow.iter().filter(|rule| rule.covers_path(tool, path));
            rules.any(|rule| rule.literal_prefix().is_some_and(decides))
        };
        if let Some(path) =
            [&place.written, &place.real].into_iter().find(|it| decides(it) && !is_named(it))
        {
            return Err(Denial::DecidesWhatRuns { path: path.clone() });
        }
        let accepted = self.mode == PermissionMode::AcceptEdits && place.scope == PathScope::Inside;
        if accepted || self.allows(tool, place) {
            Ok(())
        } else if place.scope == PathScope::Inside {
            Err(Denial::Change { tool, path: path() })
        } else {
            Err(outside(tool, place))
        }
    }
}

fn outside(tool: BuiltinTool, place: &ResolvedPath) -> Denial {
    Denial::OutsideWorkingFolders { tool, place: place.clone() }
}
