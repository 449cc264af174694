//! Judges one call by the rules and the mode.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::catalog::BuiltinTool;
use super::super::outcome::GrantSource;
use super::super::places::{ResolvedPath, PathScope};
use super::super::sandbox::DeniedPlaces;
use super::mode::PermissionMode;
use super::paths::is_protected;
use super::rule::{RuleList, PermissionRule};

/// What a call would do.
pub(in super::super) enum Access<'a> {
    /// Nothing outside outlast's memory.
    Nothing,
    Read(ResolvedPath),
    Change(ResolvedPath),
    /// A visit to this host, as [`super::host_of`] writes it.
    Host(String),
    Command {
        command: &'a str,
        cwd: &'a Path,
        /// Tells where a path leads, seen from a folder.
        find: &'a dyn Fn(&str, &Path) -> ResolvedPath,
    },
}

/// The rules and the mode of a run.
#[derive(Clone, Debug)]
pub(in super::super) struct Permissions {
    pub(super) mode: PermissionMode,
    pub(super) allow: Vec<PermissionRule>,
    pub(super) ask: Vec<PermissionRule>,
    pub(super) deny: Vec<PermissionRule>,
    pub(super) cwd: PathBuf,
    pub(super) home: Option<PathBuf>,
    /// What no rule opens that does not name it.
    secrets: DeniedPlaces,
    pub(super) critical: CriticalPaths,
}

/// Whether the folders that a machine or a run stands on may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CriticalPaths {
    Denied,
    /// Whoever was asked said so.
    Confirmed,
}

/// A rule that is none.
pub(in super::super) struct BadRule {
    pub(in super::super) rule: String,
    pub(in super::super) why: String,
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
            critical: CriticalPaths::Denied,
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

    /// Keeps these from the file tools too.
    pub(in super::super) fn with_protected_paths(self, secrets: DeniedPlaces) -> Self {
        Self { secrets, ..self }
    }

    /// Whether a rule takes the tool away altogether: the model is not even told of it.
    pub(in super::super) fn removes(&self, tool: BuiltinTool) -> bool {
        self.deny.iter().any(|rule| rule.covers_whole_tool(tool))
    }

    /// The same for a tool that is not built in.
    pub(in super::super) fn removes_external(&self, name: &str) -> bool {
        self.external_denial(name).is_some()
    }

    /// Why a tool that is not built in is taken away altogether, if it is.
    pub(in super::super) fn external_denial(&self, name: &str) -> Option<String> {
        let rule = self.deny.iter().find(|rule| rule.covers_external(name))?;
        Some(denied_by_rule(name, "", rule))
    }

    /// Judges a call of a tool that is not built in. Nobody knows what it does, so it takes a rule
    /// that names it, or its server, or a hook's word. What only reads, so says somebody who is
    /// trusted, may be used while planning.
    ///
    /// # Errors
    /// Why it is not allowed, and how to allow it.
    pub(in super::super) fn check_external(
        &self,
        name: &str,
        reads_only: bool,
        warrant: GrantSource,
    ) -> Result<(), String> {
        if let Some(why) = self.external_denial(name) {
            return Err(why);
        }
        let asking = self.ask.iter().find(|rule| rule.covers_external(name));
        if let Some(rule) = asking.filter(|_| warrant != GrantSource::Prompt) {
            return Err(ask_rule_applies(name, rule));
        }
        match self.mode {
            PermissionMode::BypassPermissions => Ok(()),
            PermissionMode::Plan if !reads_only => Err(format!(
                "{name} may change something, and the run only plans (--permission-mode plan)"
            )),
            PermissionMode::Plan
            | PermissionMode::Default
            | PermissionMode::AcceptEdits
            | PermissionMode::DontAsk => {
                let allowed = self.allow.iter().any(|rule| rule.covers_external(name));
                if allowed || warrant != GrantSource::Rules {
                    return Ok(());
                }
                Err(format!("{name} needs permission: allow it with --allowedTools '{name}'"))
            }
        }
    }

    /// Whether one rule is about a tool that is not built in. One that is no rule is about all.
    pub(in super::super) fn rule_covers_external(&self, rule: &str, name: &str) -> bool {
        PermissionRule::parse(rule, RuleList::Deny, &self.cwd, self.home.as_deref())
            .map_or(true, |rule| rule.covers_external(name))
    }

    /// The rule that keeps sub-agents of a kind from being started, or those of every kind.
    pub(in super::super) fn forbids_agents(&self, kind: Option<&str>) -> Option<&str> {
        let mut rules = self.deny.iter().chain(&self.ask);
        rules.find(|rule| rule.covers_agents(kind)).map(|rule| rule.text.as_str())
    }

    /// Whether a search must not show this file.
    pub(in super::super) fn hides(&self, tool: BuiltinTool, path: &Path) -> bool {
        let mut rules = self.deny.iter().chain(&self.ask);
        rules.any(|rule| rule.covers_path(tool, path)) || self.is_secret(tool, path)
    }

    /// The rules that may keep a search from showing something below a folder.
    pub(super) fn hiding_below(&self, folder: &ResolvedPath) -> Vec<&PermissionRule> {
        let reaches = |rule: &&PermissionRule| {
            let mut seen = [&folder.written, &folder.real].into_iter();
            seen.any(|folder| rule.reaches_below(BuiltinTool::Grep, folder))
        };
        self.deny.iter().chain(&self.ask).filter(reaches).collect()
    }

    /// Whether credentials or the like are kept here. A rule must name them to open them.
    fn is_secret(&self, tool: BuiltinTool, path: &Path) -> bool {
        self.secrets.hides(path) && !self.allow.iter().any(|rule| rule.covers_path(tool, path))
    }

    /// Judges a call. What a hook allows needs no other leave, and keeps to every rule.
    ///
    /// # Errors
    /// Why it is not allowed, and how to allow it.
    pub(in super::super) fn check_call(
        &self,
        tool: BuiltinTool,
        input: &Value,
        deed: &Access<'_>,
        warrant: GrantSource,
    ) -> Result<(), String> {
        match warrant {
            GrantSource::Rules => self.check_by_rules(tool, input, deed),
            GrantSource::Hook => self.with_allow_rule(tool).check_by_rules(tool, input, deed),
            GrantSource::Prompt => self.limits_only().check_by_rules(tool, input, deed),
        }
    }

    /// What nobody can allow: the rules that deny, what is kept to the user, and every change where
    /// the run only plans.
    fn limits_only(&self) -> Self {
        let mode = match self.mode {
            PermissionMode::Plan => PermissionMode::Plan,
            PermissionMode::Default
            | PermissionMode::AcceptEdits
            | PermissionMode::DontAsk
            | PermissionMode::BypassPermissions => PermissionMode::BypassPermissions,
        };
        Self { mode, ask: Vec::new(), critical: CriticalPaths::Confirmed, ..self.clone() }
    }

    /// The same with a rule for all of a tool.
    fn with_allow_rule(&self, tool: BuiltinTool) -> Self {
        let mut allow = self.allow.clone();
        let rule = PermissionRule::parse(tool.name(), RuleList::Allow, &self.cwd, self.home.as_deref());
        allow.extend(rule);
        Self { allow, ..self.clone() }
    }

    /// Checks a call against one rule and nothing else.
    ///
    /// # Errors
    /// The rule speaks of it, or nobody can tell.
    pub(in super::super) fn check_against_rule(
        &self,
        rule: &str,
        tool: BuiltinTool,
        input: &Value,
        deed: &Access<'_>,
    ) -> Result<(), String> {
        let rule = PermissionRule::parse(rule, RuleList::Deny, &self.cwd, self.home.as_deref())?;
        let alone = Self {
            mode: PermissionMode::BypassPermissions,
            allow: Vec::new(),
            ask: Vec::new(),
            deny: vec![rule],
            secrets: DeniedPlaces::default(),
            ..self.clone()
        };
        alone.check_by_rules(tool, input, deed)
    }

    fn check_by_rules(&self, tool: BuiltinTool, input: &Value, deed: &Access<'_>) -> Result<(), String> {
        if let Some(rule) = self.deny.iter().find(|rule| rule.covers_whole_tool(tool)) {
            return Err(denied_by_rule(tool.name(), "", rule));
        }
        if let Some(rule) = self.ask.iter().find(|rule| rule.covers_whole_tool(tool)) {
            return Err(ask_rule_applies(tool.name(), rule));
        }
        if let Some(rule) = self.deny.iter().find(|rule| rule.covers_input(tool, input)) {
            return Err(denied_by_rule("this call", "", rule));
        }
        if let Some(rule) = self.ask.iter().find(|rule| rule.covers_input(tool, input)) {
            return Err(ask_rule_applies(tool.name(), rule));
        }
        match deed {
            Access::Nothing => Ok(()),
            Access::Read(place) => self.check_read(tool, place),
            Access::Change(place) => self.check_change(tool, place),
            Access::Host(host) => self.check_host(host),
            Access::Command { command, cwd, find } => self.check_command(command, cwd, find),
        }
    }

    /// Deny and ask rules, which no mode overrules.
    pub(super) fn check_denied(&self, tool: BuiltinTool, place: &ResolvedPath) -> Result<(), String> {
        let is_link = place.written != place.real;
        let about = |rule: &&PermissionRule| {
            rule.covers_path(tool, &place.written) || is_link && rule.covers_path(tool, &place.real)
        };
        if let Some(rule) = self.deny.iter().find(about) {
            let path = place.written.display();
            return Err(denied_by_rule(&path.to_string(), &format!(" to {}", tool.name()), rule));
        }
        if let Some(rule) = self.ask.iter().find(about) {
            return Err(ask_rule_applies(tool.name(), rule));
        }
        if self.is_secret(tool, &place.real) {
            let path = place.real.display();
            return Err(format!(
                "{path} holds credentials, or what else the sandbox keeps to the user: allow it \
                 with --allowedTools '{}(/{path})', or in sandbox.filesystem.allowRead",
                tool.name()
            ));
        }
        Ok(())
    }

    /// The same of a folder with all that is in it.
    pub(super) fn check_folder_denied(&self, tool: BuiltinTool, place: &ResolvedPath) -> Result<(), String> {
        self.check_denied(tool, place)?;
        let within = |path: &Path| path.join("everything");
        let (written, real) = (within(&place.written), within(&place.real));
        self.check_denied(tool, &ResolvedPath { written, real, ..place.clone() })
    }

    /// Whether there is any path that [`Self::forbidden`] forbids.
    pub(super) fn forbids_paths(&self) -> bool {
        !self.secrets.hides_nothing() || self.deny.iter().chain(&self.ask).any(PermissionRule::depends_on_paths)
    }

    fn allows(&self, tool: BuiltinTool, place: &ResolvedPath) -> bool {
        // A link has to be allowed, and so has what it leads to.
        let about = |path: &Path| self.allow.iter().any(|rule| rule.covers_path(tool, path));
        self.allow.iter().any(|rule| rule.covers_whole_tool(tool))
            || about(&place.real) && about(&place.written)
    }

    pub(super) fn check_read(&self, tool: BuiltinTool, place: &ResolvedPath) -> Result<(), String> {
        self.check_denied(tool, place)?;
        let free = place.scope != PathScope::Outside
            || self.mode == PermissionMode::BypassPermissions
            || self.allows(tool, place);
        if free { Ok(()) } else { Err(outside_working_folders(tool, place)) }
    }

    pub(super) fn check_change(&self, tool: BuiltinTool, place: &ResolvedPath) -> Result<(), String> {
        self.check_denied(tool, place)?;
        let path = place.written.display();
        if let Some(why) = self.secrets.write_denial(&place.real) {
            return Err(format!("{path} cannot be changed: {why}"));
        }
        match self.mode {
            PermissionMode::BypassPermissions => return Ok(()),
            PermissionMode::Plan => {
                return Err(format!(
                    "{path} cannot be changed: the run only plans (--permission-mode plan)"
                ));
            }
            PermissionMode::Default | PermissionMode::AcceptEdits | PermissionMode::DontAsk => {}
        }
        if is_protected(&place.written) || is_protected(&place.real) {
            return Err(format!(
                "{path} is protected, because it decides what other programs run: only \
                 --permission-mode bypassPermissions may change it"
            ));
        }
        let accepted =
            self.mode == PermissionMode::AcceptEdits && place.scope == PathScope::Inside;
        if accepted || self.allows(tool, place) {
            Ok(())
        } else if place.scope == PathScope::Inside {
            Err(format!(
                "{} needs permission for {path}: allow it with --permission-mode acceptEdits, or \
                 --allowedTools '{}'",
                tool.name(),
                tool.name()
            ))
        } else {
            Err(outside_working_folders(tool, place))
        }
    }
}

/// That a deny rule speaks of something, perhaps `to` a tool.
pub(super) fn denied_by_rule(what: &str, to: &str, rule: &PermissionRule) -> String {
    format!(
        "{what} is denied{to} by the rule `{}`: it is allowed only where that is no deny rule",
        rule.text
    )
}

/// That an ask rule speaks of something.
pub(super) fn ask_rule_applies(what: &str, rule: &PermissionRule) -> String {
    format!(
        "{what} must be asked about by the rule `{}`: take that out of the ask rules, or say who \
         answers with --permission-prompt-tool",
        rule.text
    )
}

fn outside_working_folders(tool: BuiltinTool, place: &ResolvedPath) -> String {
    let path = place.written.display();
    let leads = if place.real == place.written {
        String::new()
    } else {
        format!(" leads to {} and", place.real.display())
    };
    let folder = place.real.parent().unwrap_or(&place.real).display();
    format!(
        "{} needs permission: {path}{leads} is outside the working directories. Add them with \
         --add-dir '{folder}'",
        tool.name()
    )
}
