//! The files of a repository as a session of a host first read them. Commands of a turn can write
//! such files, and programs that hooks in them start are not confined as these commands are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::text::hex;

use super::file::ParsedSettings;

/// The settings of a file, or its mistakes. `None`: there is no file.
pub type ReadSettings = Result<Option<ParsedSettings>, Vec<String>>;

/// The texts with hooks of a plugin, and their names.
pub type PluginHooks = Vec<(String, String)>;

/// The owner of a file that defines an agent, a command or a skill: plugins are trusted with more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DefinitionOwner {
    Project,
    Plugin,
}

/// The contents of files at the first reading. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct FirstReading(Arc<Mutex<FirstFiles>>);

#[derive(Debug, Default)]
struct FirstFiles {
    /// Settings files, by name.
    settings: BTreeMap<String, Option<ParsedSettings>>,
    /// The hooks of plugins, by folder.
    plugins: BTreeMap<PathBuf, PluginHooks>,
    /// The owners of files that define agents, commands and skills, with SHA-256 of the files.
    definitions: BTreeSet<(DefinitionOwner, String)>,
    /// True after the first reading of all files.
    is_complete: bool,
}

impl FirstReading {
    /// Returns the settings of a file as of the first reading, and a warning if they differ now.
    pub fn settings(&self, name: &str, read: ReadSettings) -> (ReadSettings, Option<String>) {
        let FirstFiles { settings, is_complete, .. } = &mut *self.0.lock();
        let Some(known) = settings.get(name) else {
            if *is_complete && !matches!(read, Ok(None)) {
                return (Ok(None), Some(change_warning(name)));
            }
            if let Ok(parsed) = &read {
                settings.insert(name.to_owned(), parsed.clone());
            }
            return (read, None);
        };
        let is_same = |read: Option<&ParsedSettings>| {
            read.map(|it| &it.text) == known.as_ref().map(|it| &it.text)
        };
        if read.as_ref().is_ok_and(|read| is_same(read.as_ref())) {
            return (read, None);
        }
        (Ok(known.clone()), Some(change_warning(name)))
    }

    /// Returns the hooks of the plugin in `folder` as of the first reading, and a warning if they
    /// differ now.
    pub fn plugin_hooks<E>(
        &self,
        folder: &Path,
        read: Result<PluginHooks, E>,
    ) -> (Result<PluginHooks, E>, Option<String>) {
        let FirstFiles { plugins, is_complete, .. } = &mut *self.0.lock();
        let changed = || Some(change_warning(&format!("the plugin in {}", folder.display())));
        let Some(known) = plugins.get(folder) else {
            if *is_complete && read.as_ref().is_ok_and(|hooks| !hooks.is_empty()) {
                return (Ok(PluginHooks::new()), changed());
            }
            if let Ok(hooks) = &read {
                plugins.insert(folder.to_owned(), hooks.clone());
            }
            return (read, None);
        };
        if read.as_ref().is_ok_and(|read| read == known) {
            return (read, None);
        }
        (Ok(known.clone()), changed())
    }

    /// Returns true if a file that defines an agent, a command or a skill has a content that no
    /// such file of the same owner had in the first reading.
    pub fn is_new_definition(&self, owner: DefinitionOwner, text: &str) -> bool {
        let definition = (owner, hex(&Sha256::digest(text.as_bytes())));
        let first = &mut *self.0.lock();
        if first.is_complete {
            return !first.definitions.contains(&definition);
        }
        first.definitions.insert(definition);
        false
    }

    /// Ends the first reading: files that are read later may have been written by commands.
    pub fn complete(&self) {
        self.0.lock().is_complete = true;
    }
}

fn change_warning(name: &str) -> String {
    format!(
        "{name} was changed after the session began, and is used as it was then; it counts in the \
         next process"
    )
}
