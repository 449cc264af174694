//! Checks one tool call against the rules and the permission mode.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::super::catalog::BuiltinTool;
use super::super::offered_name::{ExternalInput, ExternalName};
use super::super::outcome::GrantSource;
use super::super::paths::{PathScope, ResolvedPath};
use super::super::protected_paths::is_protected;
use super::super::sandbox::{DeniedPlaces, RuleDenial};
use super::super::shell_lexer::{NotPlain, SimpleCommand};
use super::confinement::{Confinement, Resolve};
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
    rules: Vec<PermissionRule>,
    pub(super) cwd: PathBuf,
    pub(super) home: Option<PathBuf>,
    /// Repositories around the working folders, and their data elsewhere.
    pub(super) repositories: Vec<PathBuf>,
    /// Paths that only a rule which names them can open.
    secrets: Arc<DeniedPlaces>,
    /// True if the kernel confines the commands that need no rule.
    pub(super) holds_plain_commands: bool,
    pub(super) critical: CriticalPaths,
    /// The changes that the host has made during the run.
    live: LivePermissions,
    /// The permissions of each enclosing sub-agent. A call must satisfy all of them.
    limits: Vec<Permissions>,
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
            rules: Vec::new(),
            cwd: cwd.to_path_buf(),
            home: home.map(Path::to_path_buf),
            repositories: Vec::new(),
            secrets: Arc::default(),
            holds_plain_commands: false,
            critical: CriticalPaths::Denied,
            live: LivePermissions::default(),
            limits: Vec::new(),
        };
        for (list, texts) in lists {
            for text in texts {
                let rules = PermissionRule::parse_all(text, list, cwd, home);
                let rules = rules.map_err(|why| BadRule { rule: text.clone(), why })?;
                permissions.rules.extend(rules);
            }
        }
        Ok(permissions)
    }

    /// Denies these paths to the file tools, too. `holds_plain_commands` is true if the kernel
    /// confines the commands that need no rule. Without a rule, git may read the `repositories`
    /// around the working folders.
    pub(in super::super) fn with_sandbox(
        self,
        secrets: Arc<DeniedPlaces>,
        holds_plain_commands: bool,
        repositories: Vec<PathBuf>,
    ) -> Self {
        Self { repositories, secrets, holds_plain_commands, ..self }
    }

    /// The repositories around the working folders, and their data elsewhere.
    pub(in super::super) fn repositories(&self) -> &[PathBuf] {
        &self.repositories
    }

    /// Adds the changes that a host makes during the run.
    pub(in super::super) fn with_live(self, live: LivePermissions) -> Self {
        Self { live, ..self }
    }

    /// Adds limits: each is the list of tools in the definition of a sub-agent. A tool that it
    /// names with patterns only can be used only in calls that one of them covers.
    pub(in super::super) fn with_limits(mut self, limits: &[Vec<String>]) -> Result<Self, BadRule> {
        for rules in limits {
            let lists: [(RuleList, &[String]); 3] =
                [(RuleList::Allow, rules), (RuleList::Ask, &[]), (RuleList::Deny, &[])];
            let limit = Self::new(PermissionMode::Default, lists, &self.cwd, self.home.as_deref())?;
            self.limits.push(limit);
        }
        Ok(self)
    }

    /// The number of changes that the host has made.
    pub(in super::super) fn live_changes(&self) -> u64 {
        self.live.count()
    }

    /// Returns the current permissions, with the changes that the host has made until now.
    pub(in super::super) fn current(&self) -> Cow<'_, Self> {
        let (mode, rules) = self.live.changes(&self.cwd, self.home.as_deref());
        if mode.is_none() && rules.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut current = Self { live: LivePermissions::default(), ..self.clone() };
        current.mode = mode.unwrap_or(current.mode);
        current.rules.extend(rules);
        Cow::Owned(current)
    }

    /// The first rule of a list that covers a call.
    fn find(
        &self,
        list: RuleList,
        covers: impl Fn(&PermissionRule) -> bool,
    ) -> Option<&PermissionRule> {
        self.rules.iter().find(|rule| rule.list == list && covers(rule))
    }

    /// True if an allow rule covers a call.
    pub(super) fn allowed_by(&self, covers: impl Fn(&PermissionRule) -> bool) -> bool {
        self.find(RuleList::Allow, covers).is_some()
    }

    /// The first deny rule, or else the first ask rule, that covers a call.
    fn restriction(&self, covers: impl Fn(&PermissionRule) -> bool) -> Option<&PermissionRule> {
        self.find(RuleList::Deny, &covers).or_else(|| self.find(RuleList::Ask, &covers))
    }

    /// Applies the deny rules, and then the ask rules. `what` describes what a deny rule covers,
    /// and `asked` names the tool of an ask rule.
    pub(super) fn check_restrictions(
        &self,
        covers: impl Fn(&PermissionRule) -> bool,
        asked: &str,
        tool: Option<BuiltinTool>,
        what: impl FnOnce(&PermissionRule) -> String,
    ) -> Result<(), Denial> {
        let Some(rule) = self.restriction(covers) else { return Ok(()) };
        let text = rule.text.clone();
        Err(match rule.list {
            RuleList::Deny => Denial::DenyRule { what: what(rule), tool, rule: text },
            RuleList::Ask | RuleList::Allow => {
                Denial::AskRule { what: asked.to_owned(), rule: text }
            }
        })
    }

    /// The paths that deny rules take away from commands, where the kernel can enforce that.
    pub(in super::super) fn denied_paths(&self) -> Vec<RuleDenial> {
        let denying = self.rules.iter().filter(|rule| rule.list == RuleList::Deny);
        denying.filter_map(PermissionRule::denies_paths).collect()
    }

    /// True if a rule removes the tool entirely, so that it is not offered to the model.
    pub(in super::super) fn removes(&self, tool: BuiltinTool) -> bool {
        self.find(RuleList::Deny, |rule| rule.covers_whole_tool(tool)).is_some()
    }

    /// Returns the denial of a tool that is not built in, if a rule removes it entirely, or of a
    /// call with this input.
    pub(in super::super) fn external_denial(
        &self,
        name: ExternalName<'_>,
        input: Option<ExternalInput<'_>>,
    ) -> Option<Denial> {
        let covers = |rule: &PermissionRule| {
            rule.list == RuleList::Deny && rule.covers_external(name, input)
        };
        let name = name.offered;
        self.current().check_restrictions(covers, name, None, |_| name.to_owned()).err()
    }

    /// Checks a call of an external tool. `server` is the prefix of the names of the server's
    /// tools. The effects are unknown, so the call needs a rule that names the tool or its server,
    /// or the approval of a hook. A tool that a trusted source declares read-only may be used in
    /// plan mode.
    pub(in super::super) fn check_external(
        &self,
        (tool, input): (ExternalName<'_>, ExternalInput<'_>),
        server: &str,
        reads_only: bool,
        source: GrantSource,
    ) -> Result<(), Denial> {
        let name = tool.offered;
        let current = self.current();
        // The answer to a prompt satisfies the ask rules.
        let applies = |list: RuleList| list == RuleList::Deny || source != GrantSource::Prompt;
        let covers =
            |rule: &PermissionRule| applies(rule.list) && rule.covers_external(tool, Some(input));
        current.check_restrictions(covers, name, None, |_| name.to_owned())?;
        if current.mode == PermissionMode::Plan && !reads_only {
            return Err(Denial::ExternalWhilePlanning { name: name.to_owned() });
        }
        let allowed = current.mode == PermissionMode::BypassPermissions
            || source != GrantSource::Rules
            || current.allowed_by(|rule| rule.allows_external(tool, server));
        allowed.then_some(()).ok_or_else(|| Denial::External { name: tool.for_rule().to_owned() })
    }

    /// True if a rule covers a call of an external tool. A rule that does not parse covers every
    /// call.
    pub(in super::super) fn rule_covers_external(
        &self,
        rule: &str,
        name: &str,
        input: ExternalInput<'_>,
    ) -> bool {
        PermissionRule::parse(rule, RuleList::Deny, &self.cwd, self.home.as_deref())
            .map_or(true, |rule| rule.covers_external(ExternalName::only(name), Some(input)))
    }

    /// The rule that forbids starting sub-agents of this kind, or of every kind.
    pub(in super::super) fn forbids_agents(&self, kind: Option<&str>) -> Option<String> {
        let current = self.current();
        current.restriction(|rule| rule.covers_agents(kind)).map(|rule| rule.text.clone())
    }

    /// Applies the rules that deny or ask about reading a file, which its author may have named or
    /// linked elsewhere.
    pub(in super::super) fn check_reading_rules(&self, path: &Path) -> Result<(), Denial> {
        let tool = BuiltinTool::Read;
        let covers = |rule: &PermissionRule| rule.covers_path(tool, path);
        let what = |_: &PermissionRule| path.display().to_string();
        self.current().check_restrictions(covers, tool.name(), Some(tool), what)
    }

    /// True if a search must hide this file, by the rules at the start: ask [`Self::current`] for
    /// the permissions before a search.
    pub(in super::super) fn hides(&self, tool: BuiltinTool, path: &Path) -> bool {
        self.restriction(|rule| rule.covers_path(tool, path)).is_some()
            || self.is_secret(tool, path)
    }

    /// True if [`Self::hides`] may hide something below a folder.
    pub(in super::super) fn hides_below(&self, folder: &ResolvedPath) -> bool {
        let seen = [&folder.written, &folder.real];
        let reaches =
            |rule: &PermissionRule| seen.iter().any(|it| rule.reaches_below(BuiltinTool::Grep, it));
        self.restriction(reaches).is_some() || self.secrets.hides_below(&folder.real)
    }

    /// True if something below a folder may be denied.
    pub(super) fn denies_below(&self, folder: &ResolvedPath) -> bool {
        let reaches = |rule: &PermissionRule| rule.reaches_below(BuiltinTool::Write, &folder.real);
        self.hides_below(folder)
            || self.restriction(reaches).is_some()
            || self.secrets.protects_below(&folder.real)
    }

    /// True if the path is a protected credential location. Only a rule that names it opens it.
    fn is_secret(&self, tool: BuiltinTool, path: &Path) -> bool {
        self.secrets.hides(path) && !self.allowed_by(|rule| rule.covers_path(tool, path))
    }

    /// Checks a call. A hook's approval replaces an allow rule, but does not override a deny rule.
    /// Returns the confinement of the call, if it is a command.
    pub(in super::super) fn check_call(
        &self,
        tool: BuiltinTool,
        input: &Value,
        access: &Access<'_>,
        source: GrantSource,
    ) -> Result<Confinement, Denial> {
        self.check_limits(tool, access)?;
        let current = match source {
            GrantSource::Rules => self.current(),
            GrantSource::Hook => Cow::Owned(self.current().into_owned().with_allow_rule(tool)),
            GrantSource::Prompt => Cow::Owned(self.current().into_owned().limits_only()),
        };
        current.check_by_rules(tool, input, access)
    }

    /// Checks a call against the definitions of the sub-agents around it.
    fn check_limits(&self, tool: BuiltinTool, access: &Access<'_>) -> Result<(), Denial> {
        for limit in &self.limits {
            let own: Vec<&PermissionRule> =
                limit.rules.iter().filter(|rule| rule.names(tool)).collect();
            let is_free = own.is_empty() || own.iter().any(|rule| rule.covers_whole_tool(tool));
            let is_covered = is_free
                || match access {
                    Access::Nothing | Access::Search => true,
                    Access::Read(place) => limit.allows_reading(tool, place),
                    Access::Change(place) => limit.allows(tool, place),
                    Access::Host(host) => limit.allowed_by(|rule| rule.covers_host(host)),
                    Access::Command { command, parts, cwd, resolve } => {
                        limit.check_command(command, *parts, cwd, resolve).is_ok()
                    }
                };
            if !is_covered {
                let rules: Vec<&str> = own.iter().map(|rule| rule.text.as_str()).collect();
                return Err(Denial::NotOfAgent { tool, rules: rules.join(", ") });
            }
        }
        Ok(())
    }

    /// The limits that no approval lifts: deny rules, credential locations, and every change in
    /// plan mode.
    fn limits_only(mut self) -> Self {
        if self.mode != PermissionMode::Plan {
            self.mode = PermissionMode::BypassPermissions;
        }
        self.rules.retain(|rule| rule.list != RuleList::Ask);
        self.critical = CriticalPaths::Confirmed;
        self
    }

    /// Adds an allow rule for every use of a tool.
    fn with_allow_rule(mut self, tool: BuiltinTool) -> Self {
        let (name, home) = (tool.name(), self.home.as_deref());
        self.rules.extend(PermissionRule::parse(name, RuleList::Allow, &self.cwd, home));
        self
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
            rules: vec![rule],
            secrets: Arc::default(),
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
        let is_whole = |rule: &PermissionRule| rule.covers_whole_tool(tool);
        let covers = |rule: &PermissionRule| is_whole(rule) || rule.covers_input(tool, input);
        let name = |rule: &PermissionRule| if is_whole(rule) { tool.name() } else { "this call" };
        self.check_restrictions(covers, tool.name(), None, |rule| name(rule).to_owned())?;
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
        let covers = |rule: &PermissionRule| {
            rule.covers_path(tool, &place.written) || is_link && rule.covers_path(tool, &place.real)
        };
        let path = |_: &PermissionRule| place.written.display().to_string();
        self.check_restrictions(covers, tool.name(), Some(tool), path)?;
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
        self.allowed_by(|rule| rule.covers_whole_tool(tool))
            || allowed_as_named(place, |path| self.allowed_by(|rule| rule.covers_path(tool, path)))
    }

    /// As [`Self::allows`], and for a folder, if rules allow all that is in it: `//x/**` does not
    /// match `x`, but nothing else is seen there.
    fn allows_reading(&self, tool: BuiltinTool, place: &ResolvedPath) -> bool {
        let about = |path: &Path| {
            self.allowed_by(|rule| rule.covers_path(tool, path) || rule.covers_all_in(tool, path))
        };
        self.allows(tool, place) || place.real.is_dir() && allowed_as_named(place, about)
    }

    pub(super) fn check_read(&self, tool: BuiltinTool, place: &ResolvedPath) -> Result<(), Denial> {
        self.check_denied(tool, place)?;
        let free = place.scope != PathScope::Outside
            || self.mode == PermissionMode::BypassPermissions
            || self.allows_reading(tool, place);
        if free { Ok(()) } else { Err(self.outside(tool, place)) }
    }

    /// Checks access to a host. The content of a site is unknown, so access always needs an allow
    /// rule.
    fn check_host(&self, host: &str) -> Result<(), Denial> {
        let tool = BuiltinTool::WebFetch;
        let covers = |rule: &PermissionRule| rule.covers_host(host);
        self.check_restrictions(covers, tool.name(), Some(tool), |_| host.to_owned())?;
        let allowed = self.mode == PermissionMode::BypassPermissions
            || self.allowed_by(|rule| rule.covers_whole_tool(tool) || rule.covers_host(host));
        allowed.then_some(()).ok_or_else(|| Denial::Host { host: host.to_owned() })
    }

    /// Checks a search of the web: the query leaves the machine and costs money.
    fn check_search(&self, tool: BuiltinTool) -> Result<(), Denial> {
        let allowed = self.mode == PermissionMode::BypassPermissions
            || self.allowed_by(|rule| rule.covers_whole_tool(tool));
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
        let is_named =
            |path: &PathBuf| self.allowed_by(|rule| rule.covers_path_below(tool, path, decides));
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
            Err(self.outside(tool, place))
        }
    }

    /// Applies the deny and ask rules for all editing to a change by a command.
    pub(super) fn check_editing_denied(&self, place: &ResolvedPath) -> Result<(), Denial> {
        let tools = [BuiltinTool::Write, BuiltinTool::Edit];
        let covers = |rule: &PermissionRule| tools.iter().any(|it| rule.covers_whole_tool(*it));
        let path = |_: &PermissionRule| place.written.display().to_string();
        self.check_restrictions(covers, BuiltinTool::Bash.name(), Some(BuiltinTool::Write), path)
    }

    fn outside(&self, tool: BuiltinTool, place: &ResolvedPath) -> Denial {
        let real = &place.real;
        let folder = if real.is_dir() { Some(&**real) } else { real.parent() };
        let home = self.home.as_deref().unwrap_or(Path::new("/"));
        // A folder that contains the home folder would open too much.
        let folder = folder.filter(|folder| !home.starts_with(folder)).map(Path::to_path_buf);
        Denial::OutsideWorkingFolders { tool, place: place.clone(), folder }
    }
}

/// True if both a link and its target are allowed. How the link's folder is written does not
/// matter.
fn allowed_as_named(place: &ResolvedPath, about: impl Fn(&Path) -> bool) -> bool {
    about(&place.real) && (about(&place.written) || about(&place.entry()))
}
