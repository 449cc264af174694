//! Reads the library from its folders. Of prompts with the same name, one has precedence.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

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
        for entry in select_entries(finder.files("agents"), &mut library, agents::name) {
            agents::add_agent(&entry, &mut library);
        }
        if self.commands {
            // A skill has precedence over a command of the same name.
            for entry in select_entries(finder.skills(), &mut library, commands::skill_name) {
                let is_listed = self.lists_skills || entry.prompt_file.namespace.is_some();
                commands::add_command(&entry, CommandKind::Skill, is_listed, &mut library);
            }
            let files = finder.files("commands");
            for entry in select_entries(files, &mut library, commands::command_name) {
                commands::add_command(&entry, CommandKind::Command, false, &mut library);
            }
        }
        let styles = finder.files("output-styles");
        for entry in select_entries(styles, &mut library, commands::command_name) {
            let LibraryEntry { prompt_file: file, fields, name } = entry;
            let text = front_matter::body(&file.text).trim().to_owned();
            let title = fields.text("name").map(|it| qualified(file.namespace.as_deref(), it));
            library.styles.push(OutputStyle { name, title, text });
        }
        library.warnings.extend(finder.warnings);
        let more = library.warnings.len().saturating_sub(WARNINGS_MAX);
        if more > 0 {
            library.warnings.truncate(WARNINGS_MAX);
            library.warnings.push(format!("{more} more files like these are left out"));
        }
        library
    }
}

/// Reads the front matter of all files, and selects one file for each name.
fn select_entries(
    files: Vec<PromptFile>,
    library: &mut PromptLibrary,
    name: impl Fn(&PromptFile, &FrontMatter) -> Result<String, Option<String>>,
) -> Vec<LibraryEntry> {
    let mut selected: BTreeMap<String, LibraryEntry> = BTreeMap::new();
    for prompt_file in files {
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
                let warning = why.map(|why| format!("{} is left out: {why}", prompt_file.shown));
                library.warnings.extend(warning);
                continue;
            }
        };
        let shown = &prompt_file.shown;
        library.warnings.extend(fields.warnings.iter().map(|why| format!("{shown}:{why}")));
        let mut entry = LibraryEntry { prompt_file, fields, name: name.clone() };
        match selected.entry(name) {
            Entry::Vacant(vacant) => {
                vacant.insert(entry);
            }
            Entry::Occupied(mut known) => {
                if entry.prompt_file.rank < known.get().prompt_file.rank {
                    entry = known.insert(entry);
                }
                warn_shadowed(library, &entry, known.get());
            }
        }
    }
    selected.into_values().collect()
}

/// Prefixes a name with the name of its plugin.
fn qualified(namespace: Option<&str>, name: String) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}:{name}"),
        None => name,
    }
}

/// Warns that a file is shadowed by another file with the same name, unless that is expected.
fn warn_shadowed(library: &mut PromptLibrary, shadowed: &LibraryEntry, by: &LibraryEntry) {
    let (file, other) = (&shadowed.prompt_file, &by.prompt_file);
    if file.rank == other.rank {
        let (file, other, name) = (&file.shown, &other.shown, &by.name);
        library.warnings.push(format!("{file} is left out: {other} is called {name:?} as well"));
    } else if other.is_trusted() && !file.is_trusted() {
        library.withhold(file, None, "something of yours is called the same");
    }
}
