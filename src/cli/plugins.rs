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
//! Hooks and servers may be in `plugin.json` instead, or in a file that it names. It may name further
//! files and folders of commands, agents, skills and output styles.
//!
//! `${CLAUDE_PLUGIN_ROOT}` stands for the folder. Its hooks and servers have the variable as well.

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

/// The placeholder and variable of a plugin's folder.
const ROOT: &str = "CLAUDE_PLUGIN_ROOT";

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

    /// The variables of its hooks and servers.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        vec![(ROOT.to_owned(), self.folder.to_string_lossy().into_owned())]
    }

    /// Names a server as the reference does, so that it is another one than the user's server of the
    /// same name, and gives it the plugin's variables.
    pub(super) fn adopt_server(&self, name: &mut String, entry: &mut Value) {
        *name = format!("plugin:{}:{name}", self.name);
        let Some(members) = entry.as_object_mut().filter(|entry| entry.contains_key("command"))
        else {
            return;
        };
        let own = members.entry("env").or_insert_with(|| json!({}));
        if let Value::Object(own) = own {
            for (variable, value) in self.variables() {
                own.entry(variable).or_insert_with(|| json!(value));
            }
        }
    }

    /// Fills the plugin's folder in a text. `None`: the text does not name it.
    pub(super) fn fill(&self, text: &str) -> Option<String> {
        let placeholder = format!("${{{ROOT}}}");
        text.contains(&placeholder)
            .then(|| text.replace(&placeholder, &self.folder.to_string_lossy()))
    }

    /// The files and folders with prompts of a kind, such as `commands`: the folder of this name, and
    /// those that the description names.
    pub(super) fn prompt_places(&self, kind: &str) -> Vec<PathBuf> {
        let key = if kind == "output-styles" { "outputStyles" } else { kind };
        let named = match &self.manifest[key] {
            Value::String(one) => vec![one.as_str()],
            Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
        };
        // Without the `.` of `./commands`.
        let place = |path: &str| self.folder.join(path).components().collect();
        [kind].into_iter().chain(named).map(place).collect()
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
        let text = text.map(|text| text.replace(&format!("${{{ROOT}}}"), root));
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
