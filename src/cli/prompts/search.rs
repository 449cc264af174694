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
        let styles = finder.files("output-styles");
        for sheet in select_entries(styles, &mut library, |sheet, _| commands::command_name(sheet))
        {
            let text = front_matter::body(&sheet.sheet.text).trim().to_owned();
            library.styles.push(OutputStyle { name: sheet.name, text });
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
    for sheet in sheets {
        let fields = match front_matter::fields(&sheet.text) {
            Ok(fields) => fields.unwrap_or_default(),
            Err(mistake) => {
                library.warnings.push(format!("{}:{mistake}; it is left out", sheet.shown));
                continue;
            }
        };
        let name = match name(&sheet, &fields) {
            Ok(name) => qualified(sheet.namespace.as_deref(), name),
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
        warn_shadowed(library, &lost, kept.get(&name));
    }
    kept.into_values().collect()
}

/// The name with that of its plugin before it.
fn qualified(namespace: Option<&str>, name: String) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}:{name}"),
        None => name,
    }
}

/// Warns that a file is shadowed by another of the same name, unless that is expected.
fn warn_shadowed(library: &mut PromptLibrary, lost: &LibraryEntry, by: Option<&LibraryEntry>) {
    let Some(by) = by else { return };
    let (file, other, name) = (&lost.sheet.shown, &by.sheet.shown, &lost.name);
    if lost.sheet.rank == by.sheet.rank {
        library.warnings.push(format!("{file} is left out: {other} is called {name:?} as well"));
    } else if by.sheet.is_trusted() && !lost.sheet.is_trusted() {
        library.withhold(&lost.sheet, None, "something of yours is called the same");
    }
}
