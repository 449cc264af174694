//! Plugins: folders with commands, agents, skills, output styles, hooks and MCP servers, named by
//! `--plugin-dir` or enabled by settings. Both make a plugin as trusted as the user's own folders.
//!
//! ```text
//! .claude-plugin/plugin.json   its name and version; without it the folder's name counts
//! commands, agents, skills     as in `.claude`; their names begin with the plugin's: /kit:hello
//! hooks/hooks.json             hooks, as in a settings file
//! .mcp.json                    MCP servers
//! ```
//!
//! Hooks and servers may be in `plugin.json` instead, or in a file that it names.
//!
//! `${CLAUDE_PLUGIN_ROOT}` in hooks and servers stands for the folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::usage::UsageError;
use crate::messages::PluginEntry;
use crate::process::file_reads;

/// The largest file of a plugin's description, hooks or servers, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

const MANIFEST: &str = ".claude-plugin/plugin.json";
const HOOKS: &str = "hooks/hooks.json";
const SERVERS: &str = ".mcp.json";

/// Entries of a plugin's folder. Every plugin has at least one of them.
const PARTS: [&str; 6] = [MANIFEST, "commands", "agents", "skills", HOOKS, SERVERS];

/// A plugin of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    pub name: String,
    pub version: Option<String>,
    /// Absolute path of the plugin's folder.
    pub folder: PathBuf,
    manifest: Value,
}

impl Plugin {
    /// Finds the plugins that `--plugin-dir` names: each folder is a plugin, or holds plugins.
    ///
    /// # Errors
    /// A folder does not exist or contains no plugin, or a description is not JSON.
    pub(super) fn find(folders: &[PathBuf], cwd: &Path) -> Result<Vec<Self>, UsageError> {
        let mut plugins = Vec::new();
        for given in folders {
            let folder = cwd.join(given);
            let wrong =
                |why: &str| UsageError::new(format!("--plugin-dir {}: {why}", given.display()));
            if !folder.is_dir() {
                return Err(wrong("is not a folder; name the unpacked folder of a plugin"));
            }
            let found = plugin_folders(&folder);
            if found.is_empty() {
                return Err(wrong("holds no plugin: there is no .claude-plugin/plugin.json"));
            }
            for folder in found {
                plugins.push(Self::read(folder)?);
            }
        }
        Ok(plugins)
    }

    /// Reads the plugin in a folder.
    ///
    /// # Errors
    /// Its description is not JSON.
    pub(super) fn read(folder: PathBuf) -> Result<Self, UsageError> {
        let manifest: Value = match read(&folder.join(MANIFEST))? {
            None => Value::Null,
            Some(text) => serde_json::from_str(&text).map_err(|error| {
                let path = folder.join(MANIFEST);
                UsageError::new(format!("{}: {error}; correct it", path.display()))
            })?,
        };
        let text = |key: &str| manifest[key].as_str().map(ToOwned::to_owned);
        let of_folder = || folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = text("name").or_else(of_folder).unwrap_or_default();
        Ok(Self { name, version: text("version"), folder, manifest })
    }

    /// The file of its hooks with the text of it, if it has one.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn hooks(&self) -> Result<Option<(String, String)>, UsageError> {
        self.part(HOOKS, "hooks")
    }

    /// The file of its MCP servers with the text of it, if it has one.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn servers(&self) -> Result<Option<(String, String)>, UsageError> {
        self.part(SERVERS, "mcpServers")
    }

    /// Returns a file of the plugin, or its substitute in the description, with its text.
    fn part(&self, file: &str, key: &str) -> Result<Option<(String, String)>, UsageError> {
        let (path, text) = match &self.manifest[key] {
            Value::Object(part) => {
                // The members of `hooks` are events, or the file's own object.
                let whole = if part.contains_key(key) { json!(part) } else { json!({ key: part }) };
                (self.folder.join(MANIFEST), Some(whole.to_string()))
            }
            Value::String(named) => {
                let path = self.folder.join(named);
                let text = read(&path)?;
                (path, text)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                let path = self.folder.join(file);
                let text = read(&path)?;
                (path, text)
            }
        };
        // The text is JSON, so the folder is written as in a JSON string, without its quotes.
        let quoted = json!(self.folder.to_string_lossy()).to_string();
        let root = &quoted[1..quoted.len() - 1];
        let text = text.map(|text| text.replace("${CLAUDE_PLUGIN_ROOT}", root));
        Ok(text.map(|text| (path.display().to_string(), text)))
    }

    /// Its entry in the init message.
    pub fn entry(&self) -> PluginEntry {
        PluginEntry {
            name: self.name.clone(),
            path: self.folder.to_string_lossy().into_owned(),
            version: self.version.clone(),
        }
    }
}

fn is_plugin(folder: &Path) -> bool {
    PARTS.iter().any(|part| folder.join(part).exists())
}

/// The folder itself if it is a plugin, else those in it that are, by name.
fn plugin_folders(folder: &Path) -> Vec<PathBuf> {
    if is_plugin(folder) {
        return vec![folder.to_owned()];
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| is_plugin(path)).collect();
    found.sort_unstable();
    found
}

/// Reads a file of a plugin. `None`: there is none.
fn read(path: &Path) -> Result<Option<String>, UsageError> {
    let wrong = |why: &str| UsageError::new(format!("{}: {why}; correct it", path.display()));
    match file_reads::read_regular(path, FILE_BYTES_MAX) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| wrong("it is not UTF-8")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrong(&error.to_string())),
    }
}
