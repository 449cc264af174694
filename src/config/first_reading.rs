//! The files of a repository as a session of a host first read them. Commands of a turn can write
//! such files, and the hooks and servers in them are not confined as these commands are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::text::hex;

use super::file::ParsedSettings;

/// The settings of a file, or its mistakes. `None`: there is no file.
pub type ReadSettings = Result<Option<ParsedSettings>, Vec<String>>;

/// Texts with hooks or servers, and their names.
pub type NamedTexts = Vec<(String, String)>;

/// The source of texts with hooks or servers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TextSource {
    /// The hooks of the plugin in this folder.
    PluginHooks(PathBuf),
    /// The servers of the plugin in this folder.
    PluginServers(PathBuf),
    /// The servers of the repository.
    ProjectServers(PathBuf),
    /// The servers of a file that a flag names.
    FlagServers(PathBuf),
}

impl fmt::Display for TextSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PluginHooks(folder) => write!(f, "the plugin in {}", folder.display()),
            Self::PluginServers(folder) => {
                write!(f, "the list of servers of the plugin in {}", folder.display())
            }
            Self::ProjectServers(file) | Self::FlagServers(file) => file.display().fmt(f),
        }
    }
}

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
    /// Hooks and servers that are not in settings files.
    texts: BTreeMap<TextSource, NamedTexts>,
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

    /// Returns the texts of a source as of the first reading, and a warning if they differ now.
    pub fn texts<E>(
        &self,
        source: TextSource,
        read: Result<NamedTexts, E>,
    ) -> (Result<NamedTexts, E>, Option<String>) {
        let FirstFiles { texts, is_complete, .. } = &mut *self.0.lock();
        let changed = Some(change_warning(&source.to_string()));
        let Some(known) = texts.get(&source) else {
            if *is_complete && read.as_ref().is_ok_and(|texts| !texts.is_empty()) {
                return (Ok(NamedTexts::new()), changed);
            }
            if let Ok(read) = &read {
                texts.insert(source, read.clone());
            }
            return (read, None);
        };
        if read.as_ref().is_ok_and(|read| read == known) {
            return (read, None);
        }
        (Ok(known.clone()), changed)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_written_later_are_not_used() {
        let first = FirstReading::default();
        let text = |text: &str| vec![("a.json".to_owned(), text.to_owned())];
        let path = || PathBuf::from("/work/part");
        let sources = [
            TextSource::PluginHooks(path()),
            TextSource::PluginServers(path()),
            TextSource::ProjectServers(path()),
            TextSource::FlagServers(path()),
        ];
        for (index, source) in sources.iter().enumerate() {
            let read: NamedTexts = text(&index.to_string());
            assert_eq!(first.texts::<()>(source.clone(), Ok(read.clone())), (Ok(read), None));
        }
        first.complete();
        for (index, source) in sources.iter().enumerate() {
            let known = text(&index.to_string());
            let same = first.texts::<()>(source.clone(), Ok(known.clone()));
            assert_eq!(same, (Ok(known.clone()), None), "{source}");
            for changed in [Ok(text("evil")), Ok(NamedTexts::new()), Err(())] {
                let (read, warning) = first.texts(source.clone(), changed);
                assert_eq!(read, Ok(known.clone()), "{source}");
                assert!(warning.is_some_and(|warning| warning.contains("/work/part")), "{source}");
            }
        }
        let added = TextSource::FlagServers("/work/new".into());
        let (read, warning) = first.texts::<()>(added, Ok(text("evil")));
        assert_eq!(read, Ok(NamedTexts::new()));
        assert!(warning.is_some_and(|warning| warning.contains("/work/new")));
    }
}
