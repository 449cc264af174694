//! Reads the library from its folders, with precedence between equal names.

use std::collections::BTreeMap;

use super::agents;
use super::commands;
use super::folders::{LibrarySearch, PromptFile, PromptFinder};
use super::library::{CommandKind, LibraryEntry, OutputStyle, PromptLibrary};
use crate::cli::front_matter::{self, FrontMatter};

/// The maximum number of warnings. A checkout may hold many invalid files.
const WARNINGS_MAX: usize = 20;

impl LibrarySearch<'_> {
    /// Reads the whole library. Unreadable files are left out, with a warning.
    pub fn read(&self) -> PromptLibrary {
        let mut library =
            PromptLibrary { accepts_calls: self.commands, ..PromptLibrary::default() };
        let mut finder = PromptFinder::new(self);
        for prompt_file in select_entries(finder.files("agents"), &mut library, agents::name) {
            agents::add_agent(&prompt_file, &mut library);
        }
        if self.commands {
            // A skill has precedence over a command of the same name.
            let skills = finder.skills("skills");
            for prompt_file in select_entries(skills, &mut library, |prompt_file, _| {
                commands::skill_name(prompt_file)
            }) {
                let is_listed = self.lists_skills || prompt_file.prompt_file.namespace.is_some();
                commands::add_command(&prompt_file, CommandKind::Skill, is_listed, &mut library);
            }
            let files = finder.files("commands");
            for prompt_file in select_entries(files, &mut library, |prompt_file, _| {
                commands::command_name(prompt_file)
            }) {
                commands::add_command(&prompt_file, CommandKind::Command, false, &mut library);
            }
        }
        let styles = finder.files("output-styles");
        for prompt_file in select_entries(styles, &mut library, |prompt_file, _| {
            commands::command_name(prompt_file)
        }) {
            let LibraryEntry { prompt_file: file, fields, name } = prompt_file;
            let text = front_matter::body(&file.text).trim().to_owned();
            let title = fields.text("name").map(|it| qualified(file.namespace.as_deref(), it));
            library.styles.push(OutputStyle { name, title, text });
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

/// Reads the front matter of all files, and keeps one for each name.
fn select_entries(
    sheets: Vec<PromptFile>,
    library: &mut PromptLibrary,
    name: impl Fn(&PromptFile, &FrontMatter) -> Result<String, Option<String>>,
) -> Vec<LibraryEntry> {
    let mut kept: BTreeMap<String, LibraryEntry> = BTreeMap::new();
    for prompt_file in sheets {
        let fields = match front_matter::fields(&prompt_file.text) {
            Ok(fields) => fields.unwrap_or_default(),
            Err(mistake) => {
                library.warnings.push(format!("{}:{mistake}; it is left out", prompt_file.shown));
                continue;
            }
        };
        let name = match name(&prompt_file, &fields) {
            Ok(name) => qualified(prompt_file.namespace.as_deref(), name),
            Err(why) => {
                library
                    .warnings
                    .extend(why.map(|why| format!("{} is left out: {why}", prompt_file.shown)));
                continue;
            }
        };
        let shown = &prompt_file.shown;
        library.warnings.extend(fields.warnings.iter().map(|why| format!("{shown}:{why}")));
        let entry = LibraryEntry { prompt_file, fields, name: name.clone() };
        let lost = match kept.remove(&name) {
            None => {
                kept.insert(name, entry);
                continue;
            }
            Some(known) if known.prompt_file.rank <= entry.prompt_file.rank => {
                let lost = entry;
                kept.insert(name.clone(), known);
                lost
            }
            Some(known) => {
                kept.insert(name.clone(), entry);
                known
            }
        };
        warn_shadowed(library, &lost, kept.get(&name));
    }
    kept.into_values().collect()
}

/// Puts the name of its plugin before a name.
fn qualified(namespace: Option<&str>, name: String) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}:{name}"),
        None => name,
    }
}

/// Warns that a file is shadowed by another of the same name, unless that is expected.
fn warn_shadowed(library: &mut PromptLibrary, lost: &LibraryEntry, by: Option<&LibraryEntry>) {
    let Some(by) = by else { return };
    let (file, other, name) = (&lost.prompt_file.shown, &by.prompt_file.shown, &lost.name);
    if lost.prompt_file.rank == by.prompt_file.rank {
        library.warnings.push(format!("{file} is left out: {other} is called {name:?} as well"));
    } else if by.prompt_file.is_trusted() && !lost.prompt_file.is_trusted() {
        library.withhold(&lost.prompt_file, None, "something of yours is called the same");
    }
}
