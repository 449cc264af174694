//! Permission rules: `Bash`, `Bash(cargo test *)`, `Edit(src/**)`.

use std::path::Path;

use serde_json::Value;
use wildmatch::WildMatchPattern;

use super::super::catalog::{BuiltinTool, is_agent_tool};
use super::super::credentials::program_name;
use super::super::domain::Domain;
use super::super::offered_name::{
    ExternalInput, ExternalName, MCP, offered_name, own_name_of_rule,
};
use super::super::outcome::Effect;
use super::super::sandbox::RuleDenial;
use super::super::tool_name::is_comment_rule;
use super::paths::{PathPattern, escaped};
use super::rule_error::{RuleError, RuleList};

#[derive(Clone, Debug)]
pub(super) struct PermissionRule {
    /// The rule as the user wrote it, for messages.
    pub(super) text: String,
    tool: String,
    /// The name by which an MCP server calls the tool, if that has special characters.
    own: Option<String>,
    pub(super) list: RuleList,
    scope: RuleScope,
    meaning: Meaning,
}

/// The certainty that a rule means its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Certain,
    /// It may mean a path below the working directory, where there is none now.
    Likely,
    /// It may mean a path below the working directory, where there is one.
    Possible,
}

#[derive(Clone, Debug)]
enum RuleScope {
    Everything,
    /// The patterns for a command: `X:*` has two readings, and a program in the home folder two
    /// spellings.
    Command(Vec<String>),
    Path(PathPattern),
    Host(Domain),
    /// An input field, and its required value.
    Field(String, String),
    /// The pattern for a tool that is not built in; for the Agent tool, it matches kinds of agents.
    External(String),
}

/// Validates a rule of a list.
pub fn check_rule(
    text: &str,
    list: RuleList,
    cwd: &Path,
    home: Option<&Path>,
) -> Result<(), RuleError> {
    PermissionRule::parse(text, list, cwd, home).map(drop)
}

/// Rewrites a rule from a settings file in another folder: there, `/x` is a path below the file's
/// own folder.
pub fn anchor_rule(text: &str, root: &Path) -> String {
    match rooted(text) {
        Some((tool, rest)) => format!("{tool}(/{}/{rest}", escaped(&root.to_string_lossy())),
        None => text.to_owned(),
    }
}

/// Returns the rule for the absolute path `/x`, for a deny or ask rule from a settings file: in
/// `anchor_rule`, `/x` is another path.
pub fn absolute_rule(text: &str) -> Option<String> {
    let (tool, rest) = rooted(text)?;
    let first = rest.split(['/', ')']).next()?;
    let is_name = !first.is_empty() && !first.contains(['*', '?', '[', '{', '\\']);
    is_name.then(|| format!("{tool}(//{rest}"))
}

/// Returns the rule for `./x` below the folder of a settings file above the working folder.
pub fn rule_below(text: &str, root: &Path) -> Option<String> {
    let (tool, spec) = text.split_once('(')?;
    let rest = spec.trim_start().strip_prefix("./")?;
    BuiltinTool::named(tool.trim()).and_then(BuiltinTool::path_field)?;
    Some(format!("{tool}(/{}/{rest}", escaped(&root.to_string_lossy())))
}

/// Splits a rule for a path `/x` into its tool and what follows the slash.
fn rooted(text: &str) -> Option<(&str, &str)> {
    let (tool, spec) = text.split_once('(')?;
    BuiltinTool::named(tool.trim()).and_then(BuiltinTool::path_field)?;
    let rest = spec.trim_start().strip_prefix('/')?;
    (!rest.starts_with('/')).then_some((tool, rest))
}

impl PermissionRule {
    /// Parses a rule. Relative paths are resolved against `cwd`.
    pub(super) fn parse(
        text: &str,
        list: RuleList,
        cwd: &Path,
        home: Option<&Path>,
    ) -> Result<Self, RuleError> {
        let text = text.trim();
        let (tool, spec) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => {
                let spec = rest.strip_suffix(')').ok_or(RuleError::Unclosed)?;
                (tool.trim(), Some(spec.trim()).filter(|spec| !matches!(*spec, "" | "*")))
            }
        };
        if tool.is_empty() {
            return Err(RuleError::NoTool);
        }
        // A prefix without letters is one of all commands, in a rule that restricts.
        let is_any = tool == BuiltinTool::Bash.name() && list != RuleList::Allow;
        let spec = spec.filter(|spec| !(is_any && *spec == ":*"));
        let own = own_name_of_rule(tool);
        let tool = &*offered_name(tool);
        let odd = |letter: char| !(letter.is_alphanumeric() || "_-*:.".contains(letter));
        if tool.contains(odd) {
            return Err(RuleError::ToolName(tool.to_string()));
        }
        let scope = match spec {
            None => RuleScope::Everything,
            Some(spec) => Self::scope(tool, spec, list, cwd, home)?,
        };
        let (text, tool) = (text.to_string(), tool.to_string());
        Ok(Self { text, tool, own, list, scope, meaning: Meaning::Certain })
    }

    /// Parses a rule, with its second meaning: `/x` in a deny or ask rule is a path below `cwd`,
    /// and the absolute path as well. A comment is not a rule.
    pub(super) fn parse_all(
        text: &str,
        list: RuleList,
        cwd: &Path,
        home: Option<&Path>,
    ) -> Result<Vec<Self>, RuleError> {
        if is_comment_rule(text) {
            return Ok(Vec::new());
        }
        let rule = Self::parse(text, list, cwd, home)?;
        let absolute = absolute_rule(text).filter(|_| list != RuleList::Allow);
        let second = absolute.and_then(|text| Self::parse(&text, list, cwd, home).ok());
        let meaning = if rule.names_file(cwd) { Meaning::Possible } else { Meaning::Likely };
        let second = second.and_then(|second| match meaning {
            Meaning::Certain | Meaning::Likely => Some(second),
            // A project in /src may have a folder src.
            Meaning::Possible => second.not_around(cwd),
        });
        let second = second.map(|second| Self { text: rule.text.clone(), meaning, ..second });
        Ok(std::iter::once(rule).chain(second).collect())
    }

    /// True if there is a file at the first part below `cwd` of the paths that the rule matches.
    fn names_file(&self, cwd: &Path) -> bool {
        let RuleScope::Path(pattern) = &self.scope else { return false };
        let below = pattern.written_prefix().strip_prefix(cwd).ok();
        let first = below.and_then(|below| below.components().next());
        first.is_some_and(|first| cwd.join(first).symlink_metadata().is_ok())
    }

    /// The rule without the readings of its path that begin with this folder or one above it, if
    /// it has others.
    fn not_around(self, folder: &Path) -> Option<Self> {
        let RuleScope::Path(pattern) = self.scope else { return None };
        Some(Self { scope: RuleScope::Path(pattern.not_around(folder)?), ..self })
    }

    fn scope(
        tool: &str,
        spec: &str,
        list: RuleList,
        cwd: &Path,
        home: Option<&Path>,
    ) -> Result<RuleScope, RuleError> {
        let field = field(tool, spec).or_else(|| external_field(tool, spec));
        if let Some((field, value)) = field.filter(|_| list != RuleList::Allow) {
            return Ok(RuleScope::Field(field.to_string(), value.to_string()));
        }
        match BuiltinTool::named(tool) {
            Some(BuiltinTool::Bash) => {
                let prefix = spec.strip_suffix(":*").map(|prefix| format!("{prefix} *"));
                // A colon is also a part of names: scripts are called `deploy:prod`.
                let mut patterns: Vec<String> =
                    prefix.into_iter().chain([spec.to_string()]).collect();
                let others = patterns.iter().filter_map(|it| other_spelling(it, list, home));
                patterns.extend(others.collect::<Vec<_>>());
                Ok(RuleScope::Command(patterns))
            }
            Some(
                BuiltinTool::Read
                | BuiltinTool::Write
                | BuiltinTool::Edit
                | BuiltinTool::NotebookEdit
                | BuiltinTool::Glob
                | BuiltinTool::Grep,
            ) => PathPattern::compile(spec, list, cwd, home).map(RuleScope::Path),
            Some(BuiltinTool::WebFetch) => match spec.strip_prefix("domain:") {
                Some(host) => Ok(RuleScope::Host(Domain::parse(host.trim())?)),
                None => Err(RuleError::NoDomain),
            },
            Some(
                BuiltinTool::TodoWrite
                | BuiltinTool::BashOutput
                | BuiltinTool::KillShell
                | BuiltinTool::WebSearch
                | BuiltinTool::ToolSearch,
            ) => Err(RuleError::TakesNoPattern { tool: tool.to_string() }),
            None => Ok(RuleScope::External(spec.trim_end_matches(')').trim().to_string())),
        }
    }

    /// True if this rule covers every call of a tool. Denying `Edit` removes `Edit` and
    /// `NotebookEdit`, but not `Write`; allowing it allows every editing tool.
    pub(super) fn covers_whole_tool(&self, tool: BuiltinTool) -> bool {
        if !matches!(self.scope, RuleScope::Everything) {
            return false;
        }
        match self.list {
            RuleList::Allow => self.names(tool),
            RuleList::Ask | RuleList::Deny => {
                let is_edit = self.tool == BuiltinTool::Edit.name();
                wildcard(&self.tool, tool.name()) || is_edit && tool == BuiltinTool::NotebookEdit
            }
        }
    }

    /// True if this ask or deny rule covers an external tool, or a call with this input: it names
    /// the tool, or its server as `mcp__server`. A rule for one value of a parameter of exactly
    /// this tool covers the calls with that value, and no whole tool; another rule for some calls
    /// covers all.
    pub(super) fn covers_external(
        &self,
        name: ExternalName<'_>,
        input: Option<ExternalInput<'_>>,
    ) -> bool {
        if !self.names_external_tool(name) {
            return false;
        }
        let RuleScope::Field(field, value) = &self.scope else { return true };
        // The parameters of the tools of a server or a pattern are not known.
        self.tool != name.offered
            || input.is_some_and(|given| {
                let has_field = |schema: &Value| schema["properties"].get(field).is_some();
                match given.input.get(field) {
                    Some(given) => covers_value(value, given),
                    // The tool does not have the parameter: a typo, or text that is not meant as one.
                    None => !given.schema.is_none_or(has_field),
                }
            })
    }

    fn names_external_tool(&self, name: ExternalName<'_>) -> bool {
        let rest = name.offered.strip_prefix(&self.tool);
        let of_server =
            rest.is_some_and(|rest| rest.starts_with("__")) && self.tool.starts_with("mcp__");
        // Of tools whose names differ in special characters only, it covers all: which of them has
        // this name is the server's choice.
        let is_plain_name = wildcard(&self.tool, &name.plain());
        wildcard(&self.tool, name.offered) || is_plain_name || of_server
    }

    /// True if this rule has the name of exactly this external tool. A name that was made up for
    /// one of two tools does not count: the server's list decides which of them has it.
    fn names_external(&self, name: ExternalName<'_>) -> bool {
        match &self.own {
            Some(rule) => name.own.is_some_and(|own| wildcard(rule, own)),
            None => !name.is_made_up() && wildcard(&self.tool, name.offered),
        }
    }

    /// True if this allow rule covers an external tool: it names the tool, or its server, with a
    /// wildcard at most after the server. `server` is the prefix of the names of the server's
    /// tools: `mcp__a` is not a rule for a server `a__b`. A rule for some calls of a tool allows
    /// none.
    pub(super) fn allows_external(&self, name: ExternalName<'_>, server: &str) -> bool {
        let is_server = server.strip_suffix("__") == Some(self.tool.as_str());
        let is_tool = self.tool.starts_with(server) && self.names_external(name);
        matches!(self.scope, RuleScope::Everything) && (is_server || is_tool)
    }

    /// True if this rule covers sub-agents: of every kind, or of one, as in `Agent(Explore)`.
    pub(super) fn covers_agents(&self, kind: Option<&str>) -> bool {
        if !is_agent_tool(&self.tool) && self.tool != "*" {
            return false;
        }
        match (&self.scope, kind) {
            (RuleScope::Everything, None) => true,
            (RuleScope::External(pattern), Some(kind)) => wildcard(pattern, kind),
            (_, _) => false,
        }
    }

    /// The path pattern, if the rule has one and is for this tool.
    fn pattern_for(&self, tool: BuiltinTool) -> Option<&PathPattern> {
        let RuleScope::Path(pattern) = &self.scope else { return None };
        Some(pattern).filter(|_| self.names(tool))
    }

    /// True if this rule covers a path that `tool` accesses.
    pub(super) fn covers_path(&self, tool: BuiltinTool, path: &Path) -> bool {
        let RuleScope::Path(pattern) = &self.scope else { return false };
        let named = self.names(tool);
        // A file that must not be read must not be overwritten either.
        let unseen = self.list != RuleList::Allow
            && self.tool == BuiltinTool::Read.name()
            && matches!(tool, BuiltinTool::Write | BuiltinTool::Edit | BuiltinTool::NotebookEdit);
        (named || unseen) && pattern.matches(path)
    }

    /// True if this rule covers all that is in a folder, at any depth.
    pub(super) fn covers_all_in(&self, tool: BuiltinTool, folder: &Path) -> bool {
        self.pattern_for(tool).is_some_and(|pattern| pattern.matches_all_in(folder))
    }

    /// True if this rule may cover a path below a folder that `tool` accesses.
    pub(super) fn reaches_below(&self, tool: BuiltinTool, folder: &Path) -> bool {
        self.pattern_for(tool).is_some_and(|pattern| pattern.reaches_below(folder))
    }

    /// True if this rule covers a path by a pattern whose literal prefix fits.
    pub(super) fn covers_path_below(
        &self,
        tool: BuiltinTool,
        path: &Path,
        fits: impl Fn(&Path) -> bool,
    ) -> bool {
        self.pattern_for(tool).is_some_and(|pattern| pattern.matches_below(path, fits))
    }

    /// Returns the paths that this rule denies to commands, if it does.
    pub(super) fn denies_paths(&self) -> Option<RuleDenial> {
        let RuleScope::Path(pattern) = &self.scope else { return None };
        let (place, is_whole) = pattern.place();
        let changes_only = self.names(BuiltinTool::Write);
        let is_meant = match self.meaning {
            Meaning::Certain => true,
            Meaning::Likely => !changes_only,
            Meaning::Possible => false,
        };
        (is_meant && (changes_only || self.names(BuiltinTool::Read))).then(|| RuleDenial {
            rule: self.text.clone(),
            place: place.to_path_buf(),
            is_whole,
            changes_only,
            is_second_meaning: self.meaning == Meaning::Likely,
        })
    }

    /// True if this rule is for a tool: `Read` covers every tool that reads files, and `Edit` every
    /// one that changes them.
    pub(super) fn names(&self, tool: BuiltinTool) -> bool {
        let is_covered = match self.tool.as_str() {
            "Read" => tool.effect() == Effect::ReadOnly,
            "Edit" => tool.effect() == Effect::Changes && tool.path_field().is_some(),
            _ => false,
        };
        is_covered || self.tool == tool.name()
    }

    pub(super) fn covers_command(&self, command: &str) -> bool {
        self.command_patterns().any(|pattern| matches_command(pattern, command))
    }

    /// True if this rule covers a command and begins with this program, written out.
    pub(super) fn covers_program(&self, program: &str, command: &str) -> bool {
        let begins = |pattern: &str| {
            let rest = pattern.strip_prefix(program);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        self.command_patterns().any(|it| begins(it) && matches_command(it, command))
    }

    /// True if this rule covers a suffix of the text that begins at one of these ascending offsets.
    pub(super) fn covers_suffix(&self, text: &str, starts: &[usize]) -> bool {
        let with_bare = |pattern: &str| {
            let bare = pattern.strip_suffix(" *");
            bare.into_iter().chain([pattern]).any(|one| matches_suffix(one, text, starts))
        };
        self.command_patterns().any(with_bare)
    }

    fn command_patterns(&self) -> impl Iterator<Item = &str> {
        let patterns =
            if let RuleScope::Command(patterns) = &self.scope { &patterns[..] } else { &[] };
        patterns.iter().map(String::as_str)
    }

    /// True if this rule covers a host, in the form that [`super::super::domain::host_of`] returns.
    pub(super) fn covers_host(&self, host: &str) -> bool {
        matches!(&self.scope, RuleScope::Host(domain) if domain.covers(host))
    }

    /// True if this rule matches exactly one command line.
    pub(super) fn is_exact(&self) -> bool {
        matches!(&self.scope, RuleScope::Command(all) if !all.iter().any(|it| it.contains('*')))
    }

    /// True if this is a rule for commands that begin with this word, written out.
    pub(super) fn begins_with(&self, program: &str) -> bool {
        let first = self.command_patterns().next().and_then(|pattern| pattern.split(' ').next());
        first.and_then(program_name) == Some(program)
    }

    /// True if this rule covers a field of this input.
    pub(super) fn covers_input(&self, tool: BuiltinTool, input: &Value) -> bool {
        let RuleScope::Field(field, value) = &self.scope else { return false };
        let given = input.get(field);
        self.tool == tool.name() && given.is_some_and(|given| covers_value(value, given))
    }
}

/// True if the pattern of a rule matches the value of a parameter.
fn covers_value(pattern: &str, given: &Value) -> bool {
    let text = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
    wildcard(pattern, &text)
}

/// Parses `action:delete`, for a tool of an MCP server, as a parameter and its value.
fn external_field<'a>(tool: &str, spec: &'a str) -> Option<(&'a str, &'a str)> {
    let (name, value) = spec.split_once(':').filter(|_| tool.starts_with(MCP))?;
    let letter = |letter: char| letter.is_alphanumeric() || "_-.$".contains(letter);
    let name = name.trim();
    (!name.is_empty() && name.chars().all(letter)).then_some((name, value.trim()))
}

/// Parses `run_in_background:true` as an input field and its value. Commands and paths have their
/// own patterns, and `timeout:*` is a command.
fn field<'a>(tool: &str, spec: &'a str) -> Option<(&'a str, &'a str)> {
    let (name, value) = spec.split_once(':')?;
    let has_pattern = matches!(
        name,
        "command" | "timeout" | "description" | "file_path" | "notebook_path" | "path" | "pattern"
    );
    let schema = BuiltinTool::named(tool)?.schema();
    (!has_pattern && schema["properties"].get(name).is_some()).then_some((name, value))
}

/// The pattern with the home folder spelt otherwise, if it begins with a program in there.
fn other_spelling(pattern: &str, list: RuleList, home: Option<&Path>) -> Option<String> {
    let home = home.and_then(Path::to_str).filter(|home| !home.contains('*'))?;
    let program = pattern.split(' ').next()?;
    // In a path, a wildcard reaches other folders by `..`.
    if list == RuleList::Allow && program.contains('*') {
        return None;
    }
    let (tilde, absolute) = ("~/", format!("{}/", home.trim_end_matches('/')));
    let spelt = |from: &str, to: &str| Some(format!("{to}{}", pattern.strip_prefix(from)?));
    spelt(tilde, &absolute).or_else(|| spelt(&absolute, tilde))
}

/// True if a command matches a pattern. `*` matches anything; a trailing ` *` matches nothing, or a
/// blank followed by anything.
fn matches_command(pattern: &str, command: &str) -> bool {
    let prefix = pattern.strip_suffix(" *");
    prefix.is_some_and(|prefix| wildcard(prefix, command)) || wildcard(pattern, command)
}

/// True if a suffix that begins at one of these offsets matches a pattern.
fn matches_suffix(pattern: &str, text: &str, starts: &[usize]) -> bool {
    let mut rests = starts.iter().filter_map(|at| text.get(*at..));
    match pattern.split_once('*') {
        None => rests.any(|rest| rest == pattern),
        // The wildcard can cover the text between this offset and any later one that matches.
        Some((begin, _)) => {
            rests.find(|rest| rest.starts_with(begin)).is_some_and(|rest| wildcard(pattern, rest))
        }
    }
}

/// True if `text` matches `pattern`, in which `*` matches anything and nothing else is special.
pub(in super::super) fn wildcard(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        // Most rules are for other programs. This comparison is far faster than compiling them.
        Some((begin, _)) => {
            text.starts_with(begin) && WildMatchPattern::<'*', '\0'>::new(pattern).matches(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wildcard_matches_any_text_and_nothing_else_is_special() {
        for (pattern, text, matches) in [
            ("git log", "git log", true),
            ("git log", "git log -1", false),
            ("git *", "git log", true),
            ("git *", "gi log", false),
            ("*log*", "git log -1", true),
            ("git *g", "git log -1", false),
            ("\u{e9}*b", "\u{e9}ab", true),
            ("a\0c", "abc", false),
            ("a?c", "abc", false),
            ("*", "", true),
            ("", "", true),
        ] {
            assert_eq!(wildcard(pattern, text), matches, "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn rules_for_tools_whose_names_differ_in_special_characters_do_not_cover_another_one() {
        let rule = |text: &str, list| {
            PermissionRule::parse(text, list, Path::new("/w"), None).expect("a rule")
        };
        let alone = ExternalName { offered: "mcp__s__get_sum", own: Some("mcp__s__get_sum") };
        let dotted = ExternalName { offered: "mcp__s__get_sum", own: Some("mcp__s__get.sum") };
        let renamed = ExternalName { offered: "mcp__s__get_sum_2", own: Some("mcp__s__get.sum") };
        // rule, allows: alone, dotted, renamed; denies: the same
        for (text, allows, denies) in [
            ("mcp__s__get_sum", [true, true, false], [true, true, true]),
            ("mcp__s__get.sum", [false, true, true], [true, true, true]),
            ("mcp__s__get_sum_2", [false, false, false], [false, false, true]),
            ("mcp__s", [true, true, true], [true, true, true]),
            ("mcp__s__other", [false, false, false], [false, false, false]),
        ] {
            let (allow, deny) = (rule(text, RuleList::Allow), rule(text, RuleList::Deny));
            let names = [alone, dotted, renamed];
            assert_eq!(names.map(|name| allow.allows_external(name, "mcp__s__")), allows, "{text}");
            assert_eq!(names.map(|name| deny.covers_external(name, None)), denies, "{text}");
        }
    }

    #[test]
    fn a_rule_for_a_value_of_a_parameter_covers_the_calls_with_that_value() {
        let schema = json!({ "properties": { "action": {}, "count": {} } });
        let name = ExternalName::only("mcp__db__query");
        let (delete, read) = (json!({ "action": "delete" }), json!({ "action": "read" }));
        // rule, covers: delete, read, an empty input, the whole tool
        for (text, covers) in [
            ("mcp__db__query(action:delete)", [true, false, false, false]),
            ("mcp__db__query( action : del* )", [true, false, false, false]),
            // No rule for exactly this tool.
            ("mcp__db(action:delete)", [true, true, true, true]),
            ("mcp__db__*(action:*)", [true, true, true, true]),
            ("mcp__db__*(other:*)", [true, true, true, true]),
            ("mcp__db__get(action:delete)", [false, false, false, false]),
            // No parameter of the tool.
            ("mcp__db__query(DROP:*)", [true, true, true, false]),
            ("mcp__db__query(drop table:*)", [true, true, true, true]),
            ("mcp__db__query(delete)", [true, true, true, true]),
        ] {
            let rule = PermissionRule::parse(text, RuleList::Deny, Path::new("/w"), None);
            let rule = rule.expect("a rule");
            let of = |input| Some(ExternalInput { input, schema: Some(&schema) });
            let inputs = [of(&delete), of(&read), of(&Value::Null), None];
            assert_eq!(inputs.map(|input| rule.covers_external(name, input)), covers, "{text}");
        }
        let rule =
            PermissionRule::parse("mcp__s__t(count:7)", RuleList::Ask, Path::new("/w"), None);
        let input = json!({ "count": 7 });
        let input = Some(ExternalInput { input: &input, schema: None });
        assert!(rule.expect("a rule").covers_external(ExternalName::only("mcp__s__t"), input));
        let rule = PermissionRule::parse("mcp__s__t(a:b)", RuleList::Allow, Path::new("/w"), None);
        assert!(
            !rule.expect("a rule").allows_external(ExternalName::only("mcp__s__t"), "mcp__s__")
        );
    }
}
