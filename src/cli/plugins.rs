//! Plugins: folders with commands, agents, skills, output styles, hooks and MCP servers, named by
//! `--plugin-dir` or enabled by settings. Both make a plugin as trusted as the user's own folders.
//!
//! ```text
//! .claude-plugin/plugin.json   its name and version; the default is the name in its
//!                              identifier, or that of its folder
//! commands, agents, skills     as in `.claude`; their names begin with the plugin's: /kit:hello
//! hooks/hooks.json             hooks, as in a settings file
//! .mcp.json                    MCP servers
//! ```
//!
//! Further hooks and servers may be in `plugin.json`, or in files that it names, as may further
//! files and folders of commands, agents, skills and output styles. The entry of the plugin in the
//! list of its marketplace may have the same fields. Without `plugin.json`, these fields alone name
//! the parts of the plugin: several plugins may share a folder.
//!
//! `${CLAUDE_PLUGIN_ROOT}` stands for the folder, and `${CLAUDE_PLUGIN_DATA}` for a folder of data
//! that outlives updates. Hooks and servers of the plugin get both as variables.

use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::args::PromptArgs;
use crate::cli::installed_plugins::{EnabledPlugin, MarketplaceEntry};
use crate::cli::usage::UsageError;
use crate::config::written_json;
use crate::hooks::HookEvent;
use crate::messages::PluginEntry;
use crate::process::file_reads;

/// The largest file of a plugin's description, hooks or servers, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

const MANIFEST: &str = ".claude-plugin/plugin.json";
const HOOKS: &str = "hooks/hooks.json";
const SERVERS: &str = ".mcp.json";

/// The placeholder and variable of a plugin's folder.
const ROOT: &str = "CLAUDE_PLUGIN_ROOT";

/// The placeholder and variable of the folder for a plugin's data.
const DATA: &str = "CLAUDE_PLUGIN_DATA";

/// Stands for the marketplace in the identifier of a plugin of `--plugin-dir`.
const NO_MARKETPLACE: &str = "inline";

/// The fields of a description that name the parts of a plugin.
const LISTS: [&str; 6] = ["commands", "agents", "skills", "outputStyles", "hooks", "mcpServers"];

/// Entries of a plugin's folder. Every plugin has at least one of them.
const PARTS: [&str; 6] = [MANIFEST, "commands", "agents", "skills", HOOKS, SERVERS];

/// The fields of a command in a description, and of the file of a command.
const COMMAND_FIELDS: [(&str, &str); 4] = [
    ("description", "description"),
    ("argumentHint", "argument-hint"),
    ("allowedTools", "allowed-tools"),
    ("model", "model"),
];

/// A command that the description of a plugin defines by name.
pub(super) enum NamedCommand {
    File(PathBuf),
    /// The file of the description, and the text that a file of the command would have.
    Text(PathBuf, String),
}

/// A plugin of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    pub name: String,
    pub version: Option<String>,
    /// Absolute path of the plugin's folder.
    pub folder: PathBuf,
    /// The folder for its data.
    data: PathBuf,
    manifest: Value,
    /// The file of the description, for messages.
    manifest_file: PathBuf,
    /// True if only the entry of the marketplace describes it.
    is_of_list: bool,
    /// False if the host connects to its MCP servers by itself.
    has_servers: bool,
}

impl Plugin {
    /// Finds the plugins that flags and a host name: each folder is a plugin, or contains plugins.
    /// Their data is below `data_root`.
    ///
    /// # Errors
    /// A folder does not exist or contains no plugin, or a description is not JSON.
    pub(super) fn find(
        args: &PromptArgs,
        cwd: &Path,
        data_root: &Path,
    ) -> Result<Vec<Self>, UsageError> {
        let mut plugins = Vec::new();
        let whole = args.plugin_dir.iter().map(|folder| ("--plugin-dir", folder, true));
        let others =
            args.plugin_dir_no_mcp.iter().map(|folder| ("--plugin-dir-no-mcp", folder, false));
        let of_host = args.host_plugins.iter();
        let of_host =
            of_host.map(|(folder, has_servers)| ("initialize: plugins:", folder, *has_servers));
        for (place, given, has_servers) in whole.chain(others).chain(of_host) {
            let folder = cwd.join(given);
            let wrong = |why: &str| UsageError::new(format!("{place} {}: {why}", given.display()));
            if !folder.is_dir() {
                return Err(wrong("is not a folder; name the unpacked folder of a plugin"));
            }
            let found = plugin_folders(&folder);
            if found.is_empty() {
                return Err(wrong("holds no plugin: there is no .claude-plugin/plugin.json"));
            }
            for folder in found {
                plugins.push(Self { has_servers, ..Self::read(folder, None, data_root)? });
            }
        }
        Ok(plugins)
    }

    /// Reads the plugin that settings enable.
    ///
    /// # Errors
    /// Its description is not JSON.
    pub(super) fn of_settings(
        enabled: EnabledPlugin,
        data_root: &Path,
    ) -> Result<Self, UsageError> {
        let EnabledPlugin { id, folder, entry } = enabled;
        let mut plugin = Self::read(folder, Some(&id), data_root)?;
        if let Some(entry) = entry {
            plugin.add_entry(entry);
        }
        Ok(plugin)
    }

    /// Adds the fields of its entry in the list of its marketplace.
    fn add_entry(&mut self, entry: MarketplaceEntry) {
        let MarketplaceEntry { file, value } = entry;
        if self.manifest.is_null() {
            (self.manifest_file, self.is_of_list) = (file, true);
            self.manifest = json!({});
        }
        let Some(manifest) = self.manifest.as_object_mut() else { return };
        for key in LISTS {
            let all = [manifest.get(key), value.get(key)].into_iter().flatten();
            let all: Vec<Value> = all.flat_map(|parts| items(parts).cloned()).collect();
            manifest.insert(key.to_owned(), json!(all));
        }
        let version = value["version"].as_str().map(ToOwned::to_owned);
        self.version = self.version.take().or(version);
    }

    /// Reads the plugin in a folder. `id` is `NAME@MARKETPLACE`, if settings enable it.
    fn read(folder: PathBuf, id: Option<&str>, data_root: &Path) -> Result<Self, UsageError> {
        let manifest_file = folder.join(MANIFEST);
        let manifest: Value = match read(&manifest_file)? {
            None => Value::Null,
            Some(text) => serde_json::from_str(&written_json(&text)).map_err(|error| {
                UsageError::new(format!("{}: {error}; correct it", manifest_file.display()))
            })?,
        };
        let text = |key: &str| manifest[key].as_str().map(ToOwned::to_owned);
        let of_id = id.and_then(|id| id.rsplit_once('@')).map(|(name, _)| name.to_owned());
        let of_folder = || folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = text("name").or(of_id).or_else(of_folder).unwrap_or_default();
        let id = id.map_or_else(|| format!("{name}-{NO_MARKETPLACE}"), ToOwned::to_owned);
        let is_kept = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        let data = data_root.join(id.replace(|letter| !is_kept(letter), "-"));
        let version = text("version");
        let (is_of_list, has_servers) = (false, true);
        Ok(Self { name, version, folder, data, manifest, manifest_file, is_of_list, has_servers })
    }

    /// Returns its hooks: files with their texts.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn hooks(&self) -> Result<Vec<(String, String)>, UsageError> {
        let mut texts = self.part(HOOKS, "hooks")?;
        for (_, text) in &mut texts {
            *text = with_hooks_key(mem::take(text));
        }
        Ok(texts)
    }

    /// Returns the variables of its hooks and servers.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let variable =
            |name: &str, path: &Path| (name.to_owned(), path.to_string_lossy().into_owned());
        vec![variable(ROOT, &self.folder), variable(DATA, &self.data)]
    }

    /// Gives a server the name that the reference uses, which differs from that of a server of the
    /// user, and the plugin's variables.
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

    /// Fills the plugin's variables in a text. Also returns the variables that the text names.
    pub(super) fn fill(&self, mut text: String) -> (String, Vec<(String, String)>) {
        let mut named = self.variables();
        named.retain(|(name, value)| {
            let filled = text.replace(&format!("${{{name}}}"), value);
            let is_named = filled != text;
            text = filled;
            is_named
        });
        (text, named)
    }

    /// Fills the plugin's variables in a text that is JSON.
    fn fill_json(&self, mut text: String) -> String {
        // Scripts expect that the folder exists. If it cannot be created, they fail with a message.
        if text.contains(DATA) {
            let _ = fs::create_dir_all(&self.data);
        }
        for (name, value) in self.variables() {
            // The text of a JSON string without its quotes.
            let quoted = json!(value).to_string();
            text = text.replace(&format!("${{{name}}}"), &quoted[1..quoted.len() - 1]);
        }
        text
    }

    /// Returns the files and folders with prompts of a kind, such as `commands`: the folder of this
    /// name, and those that the description names. If several plugins of a list share the folder,
    /// only those that the description names.
    pub(super) fn prompt_places(&self, kind: &str) -> Vec<PathBuf> {
        let key = if kind == "output-styles" { "outputStyles" } else { kind };
        let named: Vec<&str> = items(&self.manifest[key]).filter_map(Value::as_str).collect();
        let is_named = !named.is_empty() || items(&self.manifest[key]).any(Value::is_object);
        let is_listed = self.is_of_list && is_named;
        let own = (!is_listed).then_some(kind);
        own.into_iter().chain(named).map(|path| self.place(path)).collect()
    }

    /// Returns the commands that the description defines by name.
    pub(super) fn named_commands(&self) -> impl Iterator<Item = (&str, NamedCommand)> {
        let objects = items(&self.manifest["commands"]).filter_map(Value::as_object);
        objects.flatten().filter_map(|(name, command)| {
            if let Some(source) = command["source"].as_str() {
                return Some((name.as_str(), NamedCommand::File(self.place(source))));
            }
            let content = command["content"].as_str()?;
            let field = |(key, field): &(&str, &str)| {
                // A value of JSON is one of YAML.
                Some(format!("{field}: {}\n", command.get(*key)?))
            };
            let fields: String = COMMAND_FIELDS.iter().filter_map(field).collect();
            let text = format!("---\n{fields}---\n{content}");
            Some((name.as_str(), NamedCommand::Text(self.manifest_file.clone(), text)))
        })
    }

    /// Returns its MCP servers: files with their texts.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn servers(&self) -> Result<Vec<(String, String)>, UsageError> {
        if self.has_servers { self.part(SERVERS, "mcpServers") } else { Ok(Vec::new()) }
    }

    /// Returns the parts of a kind, each with its file: the plugin's own file, the files that the
    /// description names, and the parts in the description.
    fn part(&self, file: &str, key: &str) -> Result<Vec<(String, String)>, UsageError> {
        let manifest = &self.manifest_file;
        let mut files = vec![self.folder.join(file)];
        let mut texts: Vec<_> =
            read(&files[0])?.map(|text| (files[0].clone(), text)).into_iter().collect();
        for value in items(&self.manifest[key]) {
            match value {
                Value::Object(part) => {
                    // The members of `hooks` are events, or the file's own object.
                    let is_whole = part.contains_key(key);
                    let whole = if is_whole { json!(part) } else { json!({ key: part }) };
                    texts.push((manifest.clone(), whole.to_string()));
                }
                Value::String(named) => {
                    let path = self.place(named);
                    // Many descriptions name the plugin's own file.
                    if files.contains(&path) {
                        continue;
                    }
                    let text = read(&path)?.ok_or_else(|| {
                        let manifest = manifest.display();
                        UsageError::new(format!(
                            "{manifest}: {key} names {named}, which is missing"
                        ))
                    })?;
                    texts.push((path.clone(), text));
                    files.push(path);
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {}
            }
        }
        let filled =
            |(path, text): (PathBuf, String)| (path.display().to_string(), self.fill_json(text));
        Ok(texts.into_iter().map(filled).collect())
    }

    /// Returns a path in the plugin's folder, without the `.` of `./commands`.
    fn place(&self, path: &str) -> PathBuf {
        self.folder.join(path).components().collect()
    }

    /// Returns its entry in the init message.
    pub fn entry(&self) -> PluginEntry {
        PluginEntry {
            name: self.name.clone(),
            path: self.folder.to_string_lossy().into_owned(),
            version: self.version.clone(),
        }
    }
}

/// Puts the events of a file of hooks into the object that settings have around them: a file of this
/// name holds nothing else. A file with null or an empty list has none.
fn with_hooks_key(text: String) -> String {
    match serde_json::from_str(&written_json(&text)) {
        Ok(Value::Object(members))
            if !members.contains_key("hooks")
                && members.keys().any(|name| HookEvent::from_name(name).is_some()) =>
        {
            format!("{{\"hooks\": {text}}}")
        }
        Ok(Value::Null) => "{}".to_owned(),
        Ok(Value::Array(list)) if list.is_empty() => "{}".to_owned(),
        Ok(_) | Err(_) => text,
    }
}

/// Returns the values of a field, which is a value or a list.
fn items(value: &Value) -> impl Iterator<Item = &Value> {
    let one = std::slice::from_ref(value);
    value.as_array().map_or(one, Vec::as_slice).iter()
}

fn is_plugin(folder: &Path) -> bool {
    PARTS.iter().any(|part| folder.join(part).exists())
}

/// Returns the folder itself if it is a plugin, or else the plugins in it, by name.
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
