//! The library of agents, commands and skills.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use wildmatch::WildMatchPattern;

use crate::hooks::HookHandler;
use crate::tools::AgentDefinition;

use super::folders::PromptFile;
use crate::cli::front_matter::FrontMatter;
use crate::config::repository::IgnoredSetting;
use crate::types::Effort;

/// The agents, commands, skills and output styles that were found.
#[derive(Clone, Debug, Default)]
pub struct PromptLibrary {
    /// True if a prompt may call commands at all.
    pub accepts_calls: bool,
    pub agents: Vec<NamedAgent>,
    /// Commands and skills.
    pub commands: Vec<PromptCommand>,
    /// The names of the skills that deny rules forbid. They are not among the commands.
    pub denied: Vec<String>,
    pub styles: Vec<OutputStyle>,
    /// Messages about files that were left out, with the reasons.
    pub warnings: Vec<String>,
    /// Fields of untrusted project files that were withheld.
    pub withheld: Vec<IgnoredSetting>,
}

/// A kind of sub-agent, with the file that defines it.
#[derive(Clone, Debug)]
pub struct NamedAgent {
    pub definition: AgentDefinition,
    /// The file, for messages.
    pub file: String,
    /// The skills that are preloaded into its prompt, by name.
    pub skills: Vec<String>,
    /// The hooks of this agent.
    pub hooks: Vec<HookHandler>,
}

/// An output style, which is chosen by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputStyle {
    /// The name of its file.
    pub name: String,
    /// The name in its front matter, by which it can be chosen, too.
    pub title: Option<String>,
    /// Text that is added to the system prompt.
    pub text: String,
}

/// A prompt that is called by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptCommand {
    /// The name, preceded by its folders: `git:commit`.
    pub name: String,
    pub kind: CommandKind,
    /// One line, never empty.
    pub description: String,
    /// The argument hint, as its author wrote it.
    pub hint: Option<String>,
    pub path: PathBuf,
    /// The file, for messages.
    pub file: String,
    pub body: String,
    /// The names of its arguments: `$issue` is the first word if the first of them is `issue`.
    pub arguments: Vec<String>,
    /// The variables of its plugin that the file names.
    pub variables: Vec<(String, String)>,
    /// Fields of its front matter that have no effect here.
    pub without_effect: Vec<&'static str>,
    pub requested: RequestedSettings,
    pub trusted: bool,
    /// True if a prompt may call it.
    pub user_callable: bool,
    /// True if the model may use it without the user.
    pub model_callable: bool,
    /// Precedence: the lowest rank wins if several commands have the same name.
    pub(super) rank: usize,
}

/// The settings that a command requests for the run that calls it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedSettings {
    /// Permission rules that allow calls.
    pub grants: Vec<String>,
    /// Permission rules that deny calls.
    pub denials: Vec<String>,
    pub model: Option<String>,
    pub effort: Option<Effort>,
    /// The settings among them that are ignored because the command is not trusted.
    pub withheld: Vec<IgnoredSetting>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum CommandKind {
    Skill,
    Command,
}

/// A file whose front matter was read.
pub(super) struct LibraryEntry {
    pub(super) prompt_file: PromptFile,
    pub(super) fields: FrontMatter,
    pub(super) name: String,
}

/// A folder with instructions for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFolder {
    /// The path with all symbolic links resolved.
    pub path: PathBuf,
    pub trusted: bool,
}

impl SkillFolder {
    /// Returns the trusted folders, as the sandbox takes them.
    pub fn trusted_paths(folders: &[Self]) -> Vec<String> {
        let trusted = folders.iter().filter(|folder| folder.trusted);
        let paths = trusted.filter_map(|folder| Some(folder.path.to_str()?.to_owned()));
        // The sandbox rejects wildcard patterns.
        paths.filter(|path| !path.contains(['*', '?', '['])).collect()
    }
}

/// Maximum length of the list of skills for the model, in bytes.
const LIST_MAX: usize = 8_000;

/// Maximum total length of the preloaded skills of an agent, in bytes.
const PRELOADED_MAX: usize = 100_000;

/// Maximum number of warnings that an error repeats.
const NAMED_MAX: usize = 3;

/// Maximum length of a skill's description in the list, in characters.
const DESCRIPTION_MAX: usize = 400;

impl PromptLibrary {
    /// Returns the kinds of sub-agents.
    pub fn definitions(&self) -> Vec<AgentDefinition> {
        self.agents.iter().map(|agent| agent.definition.clone()).collect()
    }

    /// Returns the hooks of all agents, including the one that the run itself is.
    pub fn hooks(&self, role: Option<&AgentDefinition>) -> Vec<HookHandler> {
        let is_role = |agent: &&NamedAgent| Some(&agent.definition.name) == role.map(|it| &it.name);
        let all = self.agents.iter().flat_map(|agent| agent.hooks.clone());
        let of_run = self.agents.iter().filter(is_role).flat_map(|agent| agent.hooks.clone());
        all.chain(of_run.map(HookHandler::for_main_agent)).collect()
    }

    /// Hides the skills that are not in `only`, if it is given, from the model, and removes those
    /// that a deny rule names: `Skill`, `Skill(name)`, `Skill(name *)`.
    pub fn limit_skills(&mut self, only: Option<&[String]>, denied: &[String]) {
        let is_listed =
            |name: &str| only.is_none_or(|only| only.iter().any(|one| names_skill(one, name)));
        let is_denied = |name: &str| denied.iter().any(|rule| covers_skill(rule, name));
        self.commands.retain_mut(|command| {
            command.model_callable &= is_listed(&command.name);
            let is_denied = command.kind == CommandKind::Skill && is_denied(&command.name);
            self.denied.extend(is_denied.then(|| command.name.clone()));
            !is_denied
        });
    }

    /// Inserts preloaded skills into the prompts of agents.
    pub fn preload(&mut self) {
        for agent in &mut self.agents {
            let mut room = PRELOADED_MAX;
            for name in std::mem::take(&mut agent.skills) {
                let skill = skill_of(&self.commands, &agent.definition.name, &name);
                let text = skill.map(preloaded);
                let Some(text) = text.filter(|text| text.len() <= room) else {
                    self.warnings.push(format!(
                        "{}: {:?}: the skill {name:?} is left out: it does not exist, or is too \
                         long to be preloaded",
                        agent.file, agent.definition.name
                    ));
                    continue;
                };
                room -= text.len();
                agent.definition.prompt.push_str(&text);
            }
        }
    }

    /// Returns the warnings about files that were left out, to be added to errors about something
    /// missing.
    pub(in crate::cli) fn left_out(&self) -> String {
        let named = self.warnings.iter().take(NAMED_MAX).flat_map(|warning| ["; ", warning]);
        named.collect()
    }

    pub(super) fn withhold(&mut self, prompt_file: &PromptFile, key: Option<&str>, why: &str) {
        self.withheld.push(IgnoredSetting {
            file: prompt_file.shown.clone(),
            key: key.map(ToOwned::to_owned),
            why: why.to_owned(),
        });
    }

    /// Returns the commands and skills that a prompt may call.
    pub fn callable(&self) -> impl Iterator<Item = &PromptCommand> {
        self.commands.iter().filter(|command| command.user_callable)
    }

    /// Returns the skills that are listed for the model.
    pub fn skills(&self) -> impl Iterator<Item = &PromptCommand> {
        self.commands
            .iter()
            .filter(|command| command.kind == CommandKind::Skill && command.model_callable)
    }

    /// Returns the folders of skills, which the model may read completely. Folders that contain the
    /// working or the home folder are left out, as are untrusted ones behind symbolic links.
    pub fn skill_folders(&self, cwd: &Path, home: Option<&Path>) -> Vec<SkillFolder> {
        let skills = self.commands.iter().filter(|command| command.kind == CommandKind::Skill);
        let folder = |skill: &PromptCommand| {
            let folder = skill.path.parent()?;
            let path = folder.canonicalize().ok()?;
            let contains = |other: &Path| other.starts_with(&path);
            let is_too_large = contains(cwd) || home.is_some_and(contains);
            let trusted = skill.trusted;
            (!is_too_large && (trusted || is_without_links(folder, cwd)))
                .then_some(SkillFolder { path, trusted })
        };
        skills.filter_map(folder).collect()
    }

    /// Returns the list of skills for the system prompt, if there are any.
    pub fn instructions(&self) -> Option<String> {
        let mut text = String::from(
            "Skills: instructions for certain tasks, each in a file. When a task is what one is \
             for, Read its file first and follow it. Other files that it names are beside it.\n",
        );
        let mut omitted = 0_usize;
        let start = text.len();
        for skill in self.skills() {
            let description: String = skill.description.chars().take(DESCRIPTION_MAX).collect();
            let meaning = |(name, value): &(String, String)| format!("; {name} in it is {value}");
            let variables: String = skill.variables.iter().map(meaning).collect();
            let file = skill.path.display();
            let line = format!("- {}: {description} ({file}{variables})", skill.name);
            if text.len() + line.len() > start + LIST_MAX {
                omitted += 1;
            } else {
                text.extend([&line, "\n"]);
            }
        }
        if omitted > 0 {
            let _ = writeln!(text, "- and {omitted} more, in the folders of these");
        }
        (text.len() > start).then_some(text)
    }
}

/// Returns the skill that an agent names: the skill with exactly this name, or else the one in the
/// agent's plugin, or else in another plugin.
fn skill_of<'c>(
    commands: &'c [PromptCommand],
    agent: &str,
    name: &str,
) -> Option<&'c PromptCommand> {
    let own = agent.split_once(':').map(|(plugin, _)| format!("{plugin}:{name}"));
    let skills = || commands.iter().filter(|command| command.kind == CommandKind::Skill);
    let exact = skills().find(|skill| skill.name == name);
    exact
        .or_else(|| skills().find(|skill| Some(&skill.name) == own.as_ref()))
        .or_else(|| skills().find(|skill| names_skill(name, &skill.name)))
}

/// Returns true if a name means this skill: it is the name of the skill, or that without the
/// plugin.
pub(super) fn names_skill(name: &str, skill: &str) -> bool {
    let name = name.trim().trim_start_matches('/');
    skill == name || skill.rsplit(':').next() == Some(name)
}

/// Returns true if a permission rule is about this skill.
fn covers_skill(rule: &str, skill: &str) -> bool {
    let Some(rest) = rule.trim().strip_prefix("Skill") else { return false };
    let Some(named) = rest.trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) else {
        return rest.trim().is_empty();
    };
    // The arguments of the skill are not known, so a pattern for them covers the whole skill.
    let named = named.trim().trim_start_matches('/');
    let name = named.split(char::is_whitespace).next().unwrap_or_default();
    let name = name.strip_suffix(":*").unwrap_or(name);
    let fits = |skill: &str| WildMatchPattern::<'*', '\0'>::new(name).matches(skill);
    name.is_empty() || fits(skill) || skill.rsplit(':').next().is_some_and(fits)
}

/// Renders a skill as a part of a prompt.
fn preloaded(skill: &PromptCommand) -> String {
    let folder = skill.path.parent().unwrap_or(Path::new("")).display().to_string();
    let body = skill.body.replace("${CLAUDE_SKILL_DIR}", &folder);
    format!("\n\nThe skill {}, whose files are in {folder}:\n\n{body}", skill.name)
}

/// Returns true if the path from an ancestor of the working folder to this folder has no symbolic
/// link.
fn is_without_links(folder: &Path, cwd: &Path) -> bool {
    cwd.ancestors().any(|ancestor| {
        let (Ok(below), Ok(real)) = (folder.strip_prefix(ancestor), ancestor.canonicalize()) else {
            return false;
        };
        folder.canonicalize().is_ok_and(|folder| folder == real.join(below))
    })
}
