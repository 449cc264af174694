//! The files of a repository as a session of a host, or a task of a batch, first read them.
//! Commands of a turn or an attempt can write such files, and programs that hooks in them start are
//! not confined as these commands are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::text::hex;

use super::file::ParsedSettings;

/// The settings of a file, or its mistakes. `None`: there is no file.
pub type ReadSettings = Result<Option<ParsedSettings>, Vec<String>>;

/// Texts with hooks or servers, and their names.
pub type NamedTexts = Vec<(String, String)>;

/// The owner of a file that defines an agent, a command or a skill: plugins are trusted with more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefinitionOwner {
    Project,
    Plugin,
}

/// The contents of files at the first reading. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct FirstReading(Arc<Mutex<FirstFiles>>);

#[derive(Debug, Default, Serialize, Deserialize)]
struct FirstFiles {
    /// Settings files, by name.
    settings: BTreeMap<String, Option<ParsedSettings>>,
    /// Hooks of plugins by their folders, and servers by their files.
    texts: BTreeMap<PathBuf, NamedTexts>,
    /// The owners of files that define agents, commands and skills, with SHA-256 of the files.
    definitions: BTreeSet<(DefinitionOwner, String)>,
    /// True after the first reading of all files.
    #[serde(skip)]
    is_complete: bool,
    /// The file that keeps this for further processes.
    #[serde(skip)]
    kept_in: Option<PathBuf>,
}

impl FirstReading {
    /// Returns the first reading that an earlier process has kept in `path`, or a new one that will
    /// be kept there.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn kept_in(path: PathBuf) -> io::Result<Self> {
        let mut files = match fs::read(&path) {
            Ok(bytes) => FirstFiles { is_complete: true, ..serde_json::from_slice(&bytes)? },
            Err(error) if error.kind() == io::ErrorKind::NotFound => FirstFiles::default(),
            Err(error) => return Err(error),
        };
        files.kept_in = Some(path);
        Ok(Self(Arc::new(Mutex::new(files))))
    }

    /// Returns the settings of a file as of the first reading, and a warning if they differ now.
    pub fn settings(&self, name: &str, read: ReadSettings) -> (ReadSettings, Option<String>) {
        let FirstFiles { settings, is_complete, kept_in, .. } = &mut *self.0.lock();
        let changed = || Some(change_warning(name, kept_in.as_deref()));
        let Some(known) = settings.get(name) else {
            if *is_complete && !matches!(read, Ok(None)) {
                return (Ok(None), changed());
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
        (Ok(known.clone()), changed())
    }

    /// Returns the texts of a plugin or a file of servers as of the first reading, and a warning if
    /// they differ now.
    pub fn texts<E>(
        &self,
        path: &Path,
        read: Result<NamedTexts, E>,
    ) -> (Result<NamedTexts, E>, Option<String>) {
        let FirstFiles { texts, is_complete, kept_in, .. } = &mut *self.0.lock();
        let changed = || Some(change_warning(&path.display().to_string(), kept_in.as_deref()));
        let Some(known) = texts.get(path) else {
            if *is_complete && read.as_ref().is_ok_and(|texts| !texts.is_empty()) {
                return (Ok(NamedTexts::new()), changed());
            }
            if let Ok(read) = &read {
                texts.insert(path.to_owned(), read.clone());
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

    /// Ends the first reading: files that are read later may have been written by commands. Returns
    /// a warning if it cannot be kept for further processes.
    pub fn complete(&self) -> Option<String> {
        let mut first = self.0.lock();
        let was_complete = std::mem::replace(&mut first.is_complete, true);
        let path = first.kept_in.as_ref().filter(|_| !was_complete)?;
        let error = keep(&first, path).err()?;
        Some(format!(
            "settings that commands write count for the next attempt, since those of this one \
             cannot be kept: {error}"
        ))
    }
}

/// Writes a file that only the user can read: settings may be confidential.
fn keep(first: &FirstFiles, path: &Path) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(&serde_json::to_vec(first)?)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    // Not every file system can sync a folder; the content is whole in any case.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

fn change_warning(name: &str, kept_in: Option<&Path>) -> String {
    let counts = match kept_in {
        Some(path) => format!("once {} is removed", path.display()),
        None => "in the next process".to_owned(),
    };
    format!(
        "{name} was changed after the session began, and is used as it was then; it counts {counts}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::parse_text;

    #[test]
    fn a_further_process_uses_the_files_as_the_first_one_read_them() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("first-reading.json");
        let open = || FirstReading::kept_in(path.clone()).expect("it can be read");
        let text = r#"{"permissions": {"deny": ["Bash(rm:*)"]}, "maxTurns": 3}"#;
        let read = |text: &str| Ok(Some(parse_text("a.json", text).expect("good settings")));
        let hooks = vec![("hooks.json".to_owned(), "{}".to_owned())];
        let first = open();
        for (file, text) in [("a.json", Some(text)), ("absent.json", None)] {
            let (_, warning) = first.settings(file, text.map_or(Ok(None), read));
            assert_eq!(warning, None);
        }
        let plugin = Path::new("/plugin");
        let (_, warning) = first.texts::<()>(plugin, Ok(hooks.clone()));
        assert_eq!(warning, None);
        assert!(!first.is_new_definition(DefinitionOwner::Project, "agent"));
        assert_eq!(first.complete(), None);
        drop(first);

        let later = open();
        let evil = r#"{"hooks": {}}"#;
        let warning = |name: &str| {
            Some(format!(
                "{name} was changed after the session began, and is used as it was then; it counts \
                 once {} is removed",
                path.display()
            ))
        };
        let (same, none) = later.settings("a.json", read(text));
        let same = same.expect("it is valid").expect("it is there");
        assert_eq!((same.text.as_str(), none), (text, None));
        let (kept, changed) = later.settings("a.json", read(evil));
        let kept = kept.expect("it is valid").expect("it is there");
        assert_eq!((kept.text.as_str(), changed), (text, warning("a.json")));
        assert!(kept.keys().eq(same.keys()) && kept.keys().count() == 2);
        for name in ["absent.json", "new.json"] {
            let (read, changed) = later.settings(name, read(evil));
            assert!(read.expect("it is not used").is_none());
            assert_eq!(changed, warning(name));
        }
        let (kept, changed) = later.texts::<()>(plugin, Ok(Vec::new()));
        assert_eq!((kept, changed), (Ok(hooks.clone()), warning("/plugin")));
        let (kept, changed) = later.texts::<()>(Path::new("/.mcp.json"), Ok(hooks));
        assert_eq!((kept, changed), (Ok(Vec::new()), warning("/.mcp.json")));
        assert!(!later.is_new_definition(DefinitionOwner::Project, "agent"));
        assert!(later.is_new_definition(DefinitionOwner::Project, "another"));
    }
}
