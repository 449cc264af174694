//! Everything that was found, and which of several of the same name counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::hooks::HookHandler;
use crate::tools::AgentDefinition;

use super::agents;
use super::commands::{self, CommandKind, PromptCommand};
use super::folders::{PromptFile, PromptFinder};
use crate::cli::front_matter::{self, FrontMatter};
use crate::cli::settings::IgnoredSetting;

/// Where to look, and how far to believe what is found.
pub struct LibrarySearch<'a> {
    pub cwd: &'a Path,
    /// The user's own folders, the one that counts more first. None where they do not count.
    pub own: Vec<PathBuf>,
    /// Whether the files of the project count.
    pub project: bool,
    /// Whether a file of the project with this content is trusted.
    pub trusts: &'a dyn Fn(&[u8]) -> bool,
    /// Whether the project may lead out of itself.
    pub anywhere: bool,
    /// Whether commands and skills count.
    pub commands: bool,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct PromptLibrary {
    /// Whether a prompt may call commands at all.
    pub takes_calls: bool,
    pub agents: Vec<NamedAgent>,
    /// Commands and skills.
    pub commands: Vec<PromptCommand>,
    /// What was left out, and why. For people.
    pub warnings: Vec<String>,
    /// What files of a project that is not trusted say, and do not get.
    pub withheld: Vec<IgnoredSetting>,
}

/// A kind of sub-agent, and where it is defined.
#[derive(Clone, Debug)]
pub struct NamedAgent {
    pub definition: AgentDefinition,
    /// As people are told of it.
    pub file: String,
    /// What it is to have read from the start, by name.
    pub skills: Vec<String>,
    /// The hooks of this kind alone.
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
    /// Those of whoever is trusted, as a sandbox takes them.
    pub fn opened(folders: &[Self]) -> Vec<String> {
        let trusted = folders.iter().filter(|folder| folder.trusted);
        let paths = trusted.filter_map(|folder| Some(folder.path.to_str()?.to_owned()));
        // It would refuse a pattern.
        paths.filter(|path| !path.contains(['*', '?', '['])).collect()
    }
}

/// How long the list of skills may be that the model is told of, in bytes.
const LIST_MAX: usize = 8_000;

/// How many files are complained of. A checkout may be full of broken ones.
const WARNINGS_MAX: usize = 20;

/// How long the skills may be together that an agent has read from the start, in bytes.
const PRELOADED_MAX: usize = 100_000;

/// How much of a skill's description is told, in characters.
const DESCRIPTION_MAX: usize = 400;

impl LibrarySearch<'_> {
    /// Reads everything there is. What cannot be read is left out, with a warning.
    pub fn read(&self) -> PromptLibrary {
        let mut library = PromptLibrary { takes_calls: self.commands, ..PromptLibrary::default() };
        let mut finder = PromptFinder::new(self);
        for sheet in counting(finder.files("agents"), &mut library, agents::name) {
            agents::read(&sheet, &mut library);
        }
        if self.commands {
            // A skill counts more than a command of its name.
            let skills = finder.skills("skills");
            for sheet in counting(skills, &mut library, |sheet, _| commands::skill_name(sheet)) {
                commands::read(&sheet, CommandKind::Skill, &mut library);
            }
            let files = finder.files("commands");
            for sheet in counting(files, &mut library, |sheet, _| commands::command_name(sheet)) {
                commands::read(&sheet, CommandKind::Command, &mut library);
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
fn counting(
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
        library.shadowed(&lost, kept.get(&name));
    }
    kept.into_values().collect()
}

impl PromptLibrary {
    /// The kinds of sub-agents.
    pub fn definitions(&self) -> Vec<AgentDefinition> {
        self.agents.iter().map(|agent| agent.definition.clone()).collect()
    }

    /// The hooks of all kinds, and of the one that the run itself is.
    pub fn hooks(&self, role: Option<&AgentDefinition>) -> Vec<HookHandler> {
        let is_role = |agent: &&NamedAgent| Some(&agent.definition.name) == role.map(|it| &it.name);
        let all = self.agents.iter().flat_map(|agent| agent.hooks.clone());
        let own = self.agents.iter().filter(is_role).flat_map(|agent| agent.hooks.clone());
        all.chain(own.map(HookHandler::for_main_agent)).collect()
    }

    /// Puts the skills that agents are to have read into their prompts.
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

    /// Says that a file does not count, where nobody would expect that.
    fn shadowed(&mut self, lost: &LibraryEntry, by: Option<&LibraryEntry>) {
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

    /// The names of everything that a prompt may begin with.
    pub fn callable(&self) -> impl Iterator<Item = &PromptCommand> {
        self.commands.iter().filter(|command| command.for_people)
    }

    /// The skills that the model is told of.
    pub fn skills(&self) -> impl Iterator<Item = &PromptCommand> {
        self.commands
            .iter()
            .filter(|command| command.kind == CommandKind::Skill && command.for_model)
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

    /// What the model is told of skills, if there are any.
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

/// Whether no link leads from the folders around the working one to this folder below them.
fn is_plain(folder: &Path, cwd: &Path) -> bool {
    cwd.ancestors().any(|around| {
        let (Ok(below), Ok(real)) = (folder.strip_prefix(around), around.canonicalize()) else {
            return false;
        };
        folder.canonicalize().is_ok_and(|folder| folder == real.join(below))
    })
}
