//! The library of agents, commands and skills, with precedence between equal names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::hooks::HookHandler;
use crate::tools::AgentDefinition;

use super::agents;
use super::commands::{self, CommandKind, PromptCommand};
use super::folders::{PromptFile, PromptFinder};
use crate::cli::front_matter::{self, FrontMatter};
use crate::config::repository::IgnoredSetting;

/// Where to search, and which files are trusted.
pub struct LibrarySearch<'a> {
    pub cwd: &'a Path,
    /// The user's own folders, highest precedence first; empty if they are not read.
    pub own: Vec<PathBuf>,
    /// Whether the project's files are read.
    pub project: bool,
    /// Whether a file of the project with this content is trusted.
    pub trusts: &'a dyn Fn(&[u8]) -> bool,
    /// Whether links of the project may lead out of it.
    pub anywhere: bool,
    /// Whether commands and skills are read.
    pub commands: bool,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct PromptLibrary {
    /// Whether a prompt may call commands at all.
    pub accepts_calls: bool,
    pub agents: Vec<NamedAgent>,
    /// Commands and skills.
    pub commands: Vec<PromptCommand>,
    /// What was left out, and why. For people.
    pub warnings: Vec<String>,
    /// Fields of untrusted project files that were withheld.
    pub withheld: Vec<IgnoredSetting>,
}

/// A kind of sub-agent, and where it is defined.
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

/// A folder with instructions for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFolder {
    /// Where it really is.
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

/// The maximum length of the list of skills for the model, in bytes.
const LIST_MAX: usize = 8_000;

/// The maximum number of warnings. A checkout may hold many invalid files.
const WARNINGS_MAX: usize = 20;

/// The maximum total length of the preloaded skills of an agent, in bytes.
const PRELOADED_MAX: usize = 100_000;

/// The maximum length of a skill's description in the list, in characters.
const DESCRIPTION_MAX: usize = 400;

impl LibrarySearch<'_> {
    /// Reads everything there is. What cannot be read is left out, with a warning.
    pub fn read(&self) -> PromptLibrary {
        let mut library =
            PromptLibrary { accepts_calls: self.commands, ..PromptLibrary::default() };
        let mut finder = PromptFinder::new(self);
        for sheet in select_entries(finder.files("agents"), &mut library, agents::name) {
            agents::add_agent(&sheet, &mut library);
        }
        if self.commands {
            // A skill has precedence over a command of the same name.
            let skills = finder.skills("skills");
            for sheet in
                select_entries(skills, &mut library, |sheet, _| commands::skill_name(sheet))
            {
                commands::add_command(&sheet, CommandKind::Skill, &mut library);
            }
            let files = finder.files("commands");
            for sheet in
                select_entries(files, &mut library, |sheet, _| commands::command_name(sheet))
            {
                commands::add_command(&sheet, CommandKind::Command, &mut library);
            }
        }
        library.warnings.extend(finder.warnings);
        let untold = library.warnings.len().saturating_sub(WARNINGS_MAX);
        if untold > 0 {
            library.warnings.truncate(WARNINGS_MAX);
            library.warnings.push(format!("{untold} more files like these are left out"));
        }
        library
    }
}

/// A file whose front matter was read.
pub(super) struct LibraryEntry {
    pub(super) sheet: PromptFile,
    pub(super) fields: FrontMatter,
    pub(super) name: String,
}

/// Reads the front matter of all files, and keeps one for each name.
fn select_entries(
    sheets: Vec<PromptFile>,
    library: &mut PromptLibrary,
    name: impl Fn(&PromptFile, &FrontMatter) -> Result<String, Option<String>>,
) -> Vec<LibraryEntry> {
    let mut kept: BTreeMap<String, LibraryEntry> = BTreeMap::new();
    for sheet in sheets {
        let fields = match front_matter::fields(&sheet.text) {
            Ok(fields) => fields.unwrap_or_default(),
            Err(mistake) => {
                library.warnings.push(format!("{}:{mistake}; it is left out", sheet.shown));
                continue;
            }
        };
        let name = match name(&sheet, &fields) {
            Ok(name) => name,
            Err(why) => {
                library
                    .warnings
                    .extend(why.map(|why| format!("{} is left out: {why}", sheet.shown)));
                continue;
            }
        };
        let entry = LibraryEntry { sheet, fields, name: name.clone() };
        let lost = match kept.remove(&name) {
            None => {
                kept.insert(name, entry);
                continue;
            }
            Some(known) if known.sheet.rank <= entry.sheet.rank => {
                let lost = entry;
                kept.insert(name.clone(), known);
                lost
            }
            Some(known) => {
                kept.insert(name.clone(), entry);
                known
            }
        };
        library.warn_shadowed(&lost, kept.get(&name));
    }
    kept.into_values().collect()
}

impl PromptLibrary {
    /// The kinds of sub-agents.
    pub fn definitions(&self) -> Vec<AgentDefinition> {
        self.agents.iter().map(|agent| agent.definition.clone()).collect()
    }

    /// Returns the hooks of all agents, including the one that the run itself is.
    pub fn hooks(&self, role: Option<&AgentDefinition>) -> Vec<HookHandler> {
        let is_role = |agent: &&NamedAgent| Some(&agent.definition.name) == role.map(|it| &it.name);
        let all = self.agents.iter().flat_map(|agent| agent.hooks.clone());
        let own = self.agents.iter().filter(is_role).flat_map(|agent| agent.hooks.clone());
        all.chain(own.map(HookHandler::for_main_agent)).collect()
    }

    /// Inserts preloaded skills into the prompts of agents.
    pub fn preload(&mut self) {
        for agent in &mut self.agents {
            let mut room = PRELOADED_MAX;
            for name in std::mem::take(&mut agent.skills) {
                let is_it =
                    |skill: &&PromptCommand| skill.kind == CommandKind::Skill && skill.name == name;
                let text = self.commands.iter().find(is_it).map(preloaded);
                let Some(text) = text.filter(|text| text.len() <= room) else {
                    let why = "there is none, or it is too long to be read in advance";
                    let (file, of) = (&agent.file, &agent.definition.name);
                    let warning = format!("{file}: {of:?}: the skill {name:?} is left out: {why}");
                    self.warnings.push(warning);
                    continue;
                };
                room -= text.len();
                agent.definition.prompt.push_str(&text);
            }
        }
    }

    /// Warns that a file is shadowed by another of the same name, unless that is expected.
    fn warn_shadowed(&mut self, lost: &LibraryEntry, by: Option<&LibraryEntry>) {
        let Some(by) = by else { return };
        let (file, other, name) = (&lost.sheet.shown, &by.sheet.shown, &lost.name);
        if lost.sheet.rank == by.sheet.rank {
            self.warnings.push(format!("{file} is left out: {other} is called {name:?} as well"));
        } else if by.sheet.trusted && !lost.sheet.trusted {
            self.withhold(&lost.sheet, None, "something of yours is called the same");
        }
    }

    pub(super) fn withhold(&mut self, sheet: &PromptFile, key: Option<&str>, why: &str) {
        self.withheld.push(IgnoredSetting {
            file: sheet.shown.clone(),
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

    /// The folders of skills, which the model may read whole. Not those that hold more than a
    /// skill, nor, of a project that is not trusted, those that links lead to.
    pub fn skill_folders(&self, cwd: &Path, home: Option<&Path>) -> Vec<SkillFolder> {
        let skills = self.commands.iter().filter(|command| command.kind == CommandKind::Skill);
        let folder = |skill: &PromptCommand| {
            let written = skill.path.parent()?;
            let path = written.canonicalize().ok()?;
            let holds = |place: &Path| place.starts_with(&path);
            let too_much = holds(cwd) || home.is_some_and(holds);
            let trusted = skill.trusted;
            (!too_much && (trusted || is_plain(written, cwd)))
                .then_some(SkillFolder { path, trusted })
        };
        skills.filter_map(folder).collect()
    }

    /// Returns the list of skills for the system prompt, if there are any.
    pub fn briefing(&self) -> Option<String> {
        let mut text = String::from(
            "Skills: instructions for certain tasks, each in a file. When a task is what one is \
             for, Read its file first and follow it. Other files that it names are beside it.\n",
        );
        let mut untold = 0_usize;
        let start = text.len();
        for skill in self.skills() {
            let description: String = skill.description.chars().take(DESCRIPTION_MAX).collect();
            let line = format!("- {}: {description} ({})", skill.name, skill.path.display());
            if text.len() + line.len() > start + LIST_MAX {
                untold += 1;
            } else {
                let _ = writeln!(text, "{line}");
            }
        }
        if untold > 0 {
            let _ = writeln!(text, "- and {untold} more, in the folders of these");
        }
        (text.len() > start).then_some(text)
    }
}

/// A skill as a part of a prompt.
fn preloaded(skill: &PromptCommand) -> String {
    let folder = skill.path.parent().unwrap_or(Path::new("")).display().to_string();
    let body = skill.body.replace("${CLAUDE_SKILL_DIR}", &folder);
    format!("\n\nThe skill {}, whose files are in {folder}:\n\n{body}", skill.name)
}

/// Returns whether no symbolic link is on the way to this folder.
fn is_plain(folder: &Path, cwd: &Path) -> bool {
    cwd.ancestors().any(|around| {
        let (Ok(below), Ok(real)) = (folder.strip_prefix(around), around.canonicalize()) else {
            return false;
        };
        folder.canonicalize().is_ok_and(|folder| folder == real.join(below))
    })
}
