//! Judges one call by the rules and the mode.

use std::path::{Path, PathBuf};

use super::super::catalog::Tool;
use super::super::outcome::Warrant;
use super::super::places::{Place, Standing};
use super::super::sandbox::Secrets;
use super::chores;
use super::errand::Errand;
use super::mode::PermissionMode;
use super::paths::is_protected;
use super::rule::{List, Rule};
use super::script::{self, Simple, Unsure};
use super::shred;
use super::wrapper::{self, Overlook};

/// What a call would do.
pub(in super::super) enum Deed<'a> {
    /// Nothing outside outlast's memory.
    Note,
    Look(Place),
    Change(Place),
    Command {
        command: &'a str,
        cwd: &'a Path,
        /// Tells where a path leads, seen from a folder.
        find: &'a dyn Fn(&str, &Path) -> Place,
    },
}

/// The rules and the mode of a run.
#[derive(Clone, Debug)]
pub(in super::super) struct Permissions {
    pub(super) mode: PermissionMode,
    pub(super) allow: Vec<Rule>,
    ask: Vec<Rule>,
    deny: Vec<Rule>,
    pub(super) cwd: PathBuf,
    home: Option<PathBuf>,
    /// What no rule opens that does not name it.
    secrets: Secrets,
}

/// A rule that is none.
pub(in super::super) struct BadRule {
    pub(in super::super) rule: String,
    pub(in super::super) why: String,
}

impl Permissions {
    pub(in super::super) fn new(
        mode: PermissionMode,
        lists: [(List, &[String]); 3],
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
            secrets: Secrets::default(),
        };
        for (list, texts) in lists {
            for text in texts {
                let rule = Rule::parse(text, list, cwd, home)
                    .map_err(|why| BadRule { rule: text.clone(), why })?;
                match list {
                    List::Allow => permissions.allow.push(rule),
                    List::Ask => permissions.ask.push(rule),
                    List::Deny => permissions.deny.push(rule),
                }
            }
        }
        Ok(permissions)
    }

    /// Keeps these from the file tools too.
    pub(in super::super) fn guarding(self, secrets: Secrets) -> Self {
        Self { secrets, ..self }
    }

    /// Whether a rule takes the tool away altogether: the model is not even told of it.
    pub(in super::super) fn removes(&self, tool: Tool) -> bool {
        self.deny.iter().any(|rule| rule.is_all_of(tool))
    }

    /// The same for a tool that is not built in.
    pub(in super::super) fn removes_foreign(&self, name: &str) -> bool {
        self.deny.iter().any(|rule| rule.is_about_foreign(name))
    }

    /// Judges a call of a tool that is not built in. Nobody knows what it does, so it takes a rule
    /// that names it, or its server.
    ///
    /// # Errors
    /// Why it is not allowed, and how to allow it.
    pub(in super::super) fn judge_foreign(&self, name: &str) -> Result<(), String> {
        if let Some(rule) = self.deny.iter().find(|rule| rule.is_about_foreign(name)) {
            return Err(format!("{name} is denied by the rule `{}`", rule.text));
        }
        if let Some(rule) = self.ask.iter().find(|rule| rule.is_about_foreign(name)) {
            return Err(format!(
                "{name} must be asked about by the rule `{}`, and nobody is there",
                rule.text
            ));
        }
        match self.mode {
            PermissionMode::BypassPermissions => Ok(()),
            PermissionMode::Plan => Err(format!(
                "{name} may change something, and the run only plans (--permission-mode plan)"
            )),
            PermissionMode::Default | PermissionMode::AcceptEdits | PermissionMode::DontAsk => {
                if self.allow.iter().any(|rule| rule.is_about_foreign(name)) {
                    return Ok(());
                }
                Err(format!("{name} needs permission: allow it with --allowedTools '{name}'"))
            }
        }
    }

    /// Whether a search must not show this file.
    pub(in super::super) fn hides(&self, tool: Tool, path: &Path) -> bool {
        let mut rules = self.deny.iter().chain(&self.ask);
        rules.any(|rule| rule.is_about(tool, path)) || self.is_secret(tool, path)
    }

    /// Whether credentials or the like are kept here. A rule must name them to open them.
    fn is_secret(&self, tool: Tool, path: &Path) -> bool {
        self.secrets.hides(path) && !self.allow.iter().any(|rule| rule.is_about(tool, path))
    }

    /// Judges a call. What a hook allows needs no other leave, and keeps to every rule.
    ///
    /// # Errors
    /// Why it is not allowed, and how to allow it.
    pub(in super::super) fn judge(
        &self,
        tool: Tool,
        deed: &Deed<'_>,
        warrant: Warrant,
    ) -> Result<(), String> {
        match warrant {
            Warrant::Rules => self.judge_by_rules(tool, deed),
            Warrant::Hook => self.allowing(tool).judge_by_rules(tool, deed),
        }
    }

    /// The same with a rule for all of a tool.
    fn allowing(&self, tool: Tool) -> Self {
        let mut allow = self.allow.clone();
        let rule = Rule::parse(tool.name(), List::Allow, &self.cwd, self.home.as_deref());
        allow.extend(rule);
        Self { allow, ..self.clone() }
    }

    /// Checks a call against one rule and nothing else.
    ///
    /// # Errors
    /// The rule speaks of it, or nobody can tell.
    pub(in super::super) fn checks(
        &self,
        rule: &str,
        tool: Tool,
        deed: &Deed<'_>,
    ) -> Result<(), String> {
        let rule = Rule::parse(rule, List::Deny, &self.cwd, self.home.as_deref())?;
        let alone = Self {
            mode: PermissionMode::BypassPermissions,
            allow: Vec::new(),
            ask: Vec::new(),
            deny: vec![rule],
            secrets: Secrets::default(),
            ..self.clone()
        };
        alone.judge_by_rules(tool, deed)
    }

    fn judge_by_rules(&self, tool: Tool, deed: &Deed<'_>) -> Result<(), String> {
        if let Some(rule) = self.deny.iter().find(|rule| rule.is_all_of(tool)) {
            return Err(format!("{} is denied by the rule `{}`", tool.name(), rule.text));
        }
        if let Some(rule) = self.ask.iter().find(|rule| rule.is_all_of(tool)) {
            return Err(by_asking(tool, rule));
        }
        match deed {
            Deed::Note => Ok(()),
            Deed::Look(place) => self.look(tool, place),
            Deed::Change(place) => self.change(tool, place),
            Deed::Command { command, cwd, find } => self.command(command, cwd, find),
        }
    }

    /// Deny and ask rules, which no mode overrules.
    pub(super) fn forbidden(&self, tool: Tool, place: &Place) -> Result<(), String> {
        let about =
            |rule: &&Rule| rule.is_about(tool, &place.written) || rule.is_about(tool, &place.real);
        if let Some(rule) = self.deny.iter().find(about) {
            let path = place.written.display();
            return Err(format!("{path} is denied to {} by the rule `{}`", tool.name(), rule.text));
        }
        if let Some(rule) = self.ask.iter().find(about) {
            return Err(by_asking(tool, rule));
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

    fn allows(&self, tool: Tool, place: &Place) -> bool {
        // Where it really leads decides, whatever it is called.
        self.allow.iter().any(|rule| rule.is_all_of(tool) || rule.is_about(tool, &place.real))
    }

    pub(super) fn look(&self, tool: Tool, place: &Place) -> Result<(), String> {
        self.forbidden(tool, place)?;
        let free = place.standing != Standing::Outside
            || self.mode == PermissionMode::BypassPermissions
            || self.allows(tool, place);
        if free { Ok(()) } else { Err(outside(tool, place)) }
    }

    pub(super) fn change(&self, tool: Tool, place: &Place) -> Result<(), String> {
        self.forbidden(tool, place)?;
        let path = place.written.display();
        if let Some(why) = self.secrets.keeps(&place.real) {
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
            self.mode == PermissionMode::AcceptEdits && place.standing == Standing::Inside;
        if accepted || self.allows(tool, place) {
            Ok(())
        } else if place.standing == Standing::Inside {
            Err(format!(
                "{} needs permission for {path}: allow it with --permission-mode acceptEdits, or \
                 --allowedTools '{}'",
                tool.name(),
                tool.name()
            ))
        } else {
            Err(outside(tool, place))
        }
    }

    fn command(
        &self,
        command: &str,
        cwd: &Path,
        find: &dyn Fn(&str, &Path) -> Place,
    ) -> Result<(), String> {
        let parts = script::split(command);
        self.forbidden_command(command, &parts)?;
        let errand = Errand::new(self, find, cwd);
        errand.forbidden_paths(&parts)?;
        if self.is_ruinous(command, &parts, cwd) {
            return Err("Bash may not remove a system folder, the home folder or the working \
                        directory: no rule allows that"
                .to_string());
        }
        if self.mode == PermissionMode::BypassPermissions {
            return Ok(());
        }
        let all = self.allow.iter().any(|rule| {
            rule.is_all_of(Tool::Bash) || rule.is_about_command(command) && !has_wildcard(rule)
        });
        if all && self.mode != PermissionMode::Plan {
            return Ok(());
        }
        let parts = parts.map_err(|Unsure(why)| {
            format!(
                "Bash needs permission: {why}, so rules for single commands cannot be applied. Use \
                 plain commands, or start with --allowedTools Bash"
            )
        })?;
        errand.allowed(&parts)
    }

    fn forbidden_command(
        &self,
        command: &str,
        parts: &Result<Vec<Simple>, Unsure>,
    ) -> Result<(), String> {
        let forms = forms(command, parts);
        let about = |rule: &&Rule| forms.iter().any(|form| rule.is_about_command(form));
        if let Some(rule) = self.deny.iter().find(about) {
            return Err(format!("this command is denied by the rule `{}`", rule.text));
        }
        if let Some(rule) = self.ask.iter().find(about) {
            return Err(by_asking(Tool::Bash, rule));
        }
        let mut rules = self.deny.iter().chain(&self.ask);
        match rules.find(|rule| rule.is_about_commands()) {
            Some(rule) if hides_a_name(command, parts) => Err(format!(
                "nobody can tell which command this runs before it runs, and the rule `{}` is to \
                 hold: write the command's name out",
                rule.text
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn is_ruinous(&self, command: &str, parts: &Result<Vec<Simple>, Unsure>, cwd: &Path) -> bool {
        let home = self.home.as_deref();
        let ruins = |words: &[&str]| {
            chores::is_ruinous(words, cwd, home) || chores::is_ruinous(words, &self.cwd, home)
        };
        match parts {
            Ok(parts) => parts.iter().any(|part| {
                wrapper::suspects(&part.words).into_iter().any(|words| {
                    let inner = wrapper::script_within(words);
                    inner.is_some_and(|inner| self.is_ruinous(&inner, &script::split(&inner), cwd))
                        || ruins(&words.iter().map(|word| word.plain.as_str()).collect::<Vec<_>>())
                })
            }),
            Err(Unsure(_)) => shred::shred(command).iter().any(|piece| {
                let words: Vec<&str> = piece.iter().map(String::as_str).collect();
                wrapper::suspects(&words).into_iter().any(ruins)
            }),
        }
    }
}

/// Whether some part runs what only the shell knows the name of: `$X`, `/bin/r?`.
fn hides_a_name(command: &str, parts: &Result<Vec<Simple>, Unsure>) -> bool {
    match parts {
        Ok(parts) => parts.iter().any(|part| {
            let words = wrapper::unwrap(&part.words, Overlook::All);
            let within = wrapper::script_within(words);
            wrapper::hides_a_name(&part.words, |word| word.expands || word.globs)
                || within.is_some_and(|inner| hides_a_name(&inner, &script::split(&inner)))
        }),
        Err(Unsure(_)) => {
            shred::commands(command).iter().any(|words| wrapper::may_hide_a_name(words))
        }
    }
}

/// All the ways to say the same command, for rules that must not be dodged.
fn forms(command: &str, parts: &Result<Vec<Simple>, Unsure>) -> Vec<String> {
    let mut forms = vec![command.trim().to_string()];
    if let Ok(parts) = parts {
        for part in parts {
            forms.extend([part.text(), script::plain(&part.words)]);
            for suspect in wrapper::suspects(&part.words) {
                forms.push(script::plain(suspect));
                if let Some(within) = wrapper::script_within(suspect) {
                    forms.extend(self::forms(&within, &script::split(&within)));
                }
            }
        }
    } else {
        let pieces = shred::shred(command);
        let suspects = pieces.iter().flat_map(|piece| wrapper::suspects(piece));
        forms.extend(suspects.map(|words| words.join(" ")));
    }
    let by_name: Vec<String> = forms
        .iter()
        .filter_map(|form| {
            let (name, rest) = form.split_once(' ').unwrap_or((form, ""));
            name.contains('/').then(|| format!("{} {rest}", chores::base_name(name)))
        })
        .collect();
    forms.extend(by_name);
    forms
}

fn has_wildcard(rule: &Rule) -> bool {
    rule.text.contains('*')
}

fn by_asking(tool: Tool, rule: &Rule) -> String {
    format!("{} must be asked about by the rule `{}`, and nobody is there", tool.name(), rule.text)
}

fn outside(tool: Tool, place: &Place) -> String {
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
