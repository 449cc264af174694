//! Reads the settings files in order of precedence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::contract::ResumedContract;
use super::repository_files::{
    RepositorySettings, names_repository, repository_files, source_names,
};
use super::servers::{self, NamedServer, ServerAuthor};
use super::{MemorySources, library};
use crate::cli::args::{RunArgs, SessionArgs};
use crate::cli::installed_plugins::{EnabledPlugins, Marketplaces};
use crate::cli::plugins::Plugin;
use crate::cli::prompts::PromptLibrary;
use crate::cli::usage::UsageError;
use crate::config::Setting;
use crate::config::environment::{self, CONFIG_FOLDER, Variables};
use crate::config::file::{self, ForeignMistakes, ParsedSettings};
use crate::config::first_reading::{FirstReading, NamedTexts, ReadSettings, TextSource};
use crate::config::fold::Fold;
use crate::config::is_inline;
use crate::config::kinds::PluginEntries;
use crate::config::managed::{ManagedSettings, with_drop_ins};
use crate::config::registry;
use crate::config::repository::{
    IgnoredSetting, IgnoredSettings, MCP_FILE, RepositoryFile, RulePaths, UNTRUSTED, read_file,
};
use crate::config::rule_names;
use crate::config::trust::{Trust, TrustedProjects};
use crate::process::file_reads;
use crate::text::in_home;

/// The user's settings of the reference, below the home folder.
const SHARED_FILE: &str = ".claude/settings.json";

/// The folder of the data of plugins, below the folder of the user's settings.
const PLUGIN_DATA: &str = "plugins/data";

/// State of a settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    Absent,
    Used,
    /// Only restrictions are used: the repository is not trusted.
    Untrusted,
    /// It contains a mistake that prevents a run.
    Broken,
    /// A file of the reference CLI or an installed plugin with a mistake: it is not used.
    Skipped,
    /// A file of the reference CLI, not read because a variable names another folder of settings.
    Foreign,
}

impl FileState {
    /// Returns the state for messages.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Used => "used",
            Self::Untrusted => "not trusted: only what forbids is used",
            Self::Broken => "broken",
            Self::Skipped => "broken, and not used",
            Self::Foreign => "not read, because a variable names another folder of settings",
        }
    }
}

/// A possible settings file.
#[derive(Clone, Debug)]
pub struct SettingsFile {
    pub path: String,
    pub state: FileState,
    /// The hooks of the file as written; `Null` if there are none.
    pub hooks: Value,
    /// The folder that is the project of its hooks, if that is not the working folder.
    pub project: Option<PathBuf>,
}

/// All sources read. Invalid files contribute only their mistakes.
pub struct SettingsSources {
    /// The lowest first.
    pub files: Vec<SettingsFile>,
    /// The settings of all files together, the managed ones among them.
    pub(super) fold: Fold,
    /// Mistakes that prevent a run.
    pub(super) mistakes: Vec<String>,
    pub ignored: Vec<IgnoredSetting>,
    /// The warning about the ignored settings, if there are any.
    pub ignored_warning: Option<String>,
    pub(super) memory: MemorySources,
    /// The managed settings, already part of `fold`.
    pub(super) managed: ManagedSettings,
    /// The keys that `--settings` sets, already part of `fold`: variables do not outrank them.
    pub(super) of_flag: BTreeSet<&'static str>,
    pub(super) servers: Vec<NamedServer>,
    /// Agents, commands and skills.
    pub library: PromptLibrary,
    pub plugins: Vec<Plugin>,
}

/// Reads the files of the user, of flags and of the repository as far as it is trusted, by a flag
/// or variable of this run or by the user's own settings. Collects all mistakes.
pub(super) fn read_all(
    args: &RunArgs,
    variables: &Variables,
    config_dir: &Path,
    cwd: &Path,
    managed: &[PathBuf],
    resumed: ResumedContract<'_>,
) -> SettingsSources {
    let mut reading = SourceReader {
        strict: args.mcp.strict_mcp_config,
        bare: args.compatibility.bare,
        first: args.session.first_reading.clone(),
        ..SourceReader::default()
    };
    let session = &args.session;
    let is_trusted = reading.is_trusted_by_call(session, variables);
    let home = environment::home(variables);
    let paths = RulePaths { cwd, home: home.as_deref() };
    let wanted = reading.take(source_names(session.setting_sources.as_deref())).unwrap_or_default();
    let wants = |source: &str| wanted.contains(&source);
    let given = session.managed_settings.as_deref();
    let by_host = given.and_then(|given| reading.flag("--managed-settings", given));
    let of_machine = managed.iter().flat_map(|file| with_drop_ins(file));
    let of_machine = of_machine.filter_map(|path| reading.read_user_file(&path));
    let managed: Vec<ParsedSettings> = by_host.into_iter().chain(of_machine).collect();
    let managed_files = std::mem::take(&mut reading.files);
    let shared = reading.shared_file(home.as_deref(), config_dir, wants("user"));
    let own_file = wants("user").then(|| config_dir.join("settings.json"));
    let user = own_file.and_then(|path| reading.own_file(&path, home.as_deref()));
    let below = std::mem::take(&mut reading.files);
    let given = session.settings.iter();
    let flags: Vec<ParsedSettings> =
        given.filter_map(|given| reading.flag("--settings", given)).collect();
    let above = std::mem::replace(&mut reading.files, below);

    let user_files = [&shared, &user].into_iter().flatten().chain(&flags).chain(&managed);
    let trusted = user_files.filter_map(|parsed| parsed.get::<TrustedProjects>("trustedProjects"));
    let trusted: Vec<_> = trusted.flat_map(|TrustedProjects(projects)| projects).collect();
    let trust_in = |folder: &Path| {
        if is_trusted { Trust::Full } else { Trust::of(&trusted, folder, paths.home) }
    };
    let trust = trust_in(cwd);

    if let Some(parsed) = shared {
        reading.merge(&parsed, ServerAuthor::User);
    }
    if let Some(parsed) = user {
        reading.merge(&parsed.anchored(config_dir), ServerAuthor::User);
    }
    for file in repository_files(cwd, paths.home).iter().filter(|file| wants(file.source)) {
        reading.repository(file, &paths, &trust.clone().within(trust_in(&file.folder)));
    }
    if wants("project") && reading.reads_servers_of(ServerAuthor::Project) {
        reading.project_servers(cwd, &trust);
    }
    reading.files.extend(above);
    resumed.merge_into_files(&mut reading.fold);
    for parsed in flags {
        reading.of_flag.extend(parsed.keys());
        reading.merge(&parsed, ServerAuthor::Settings);
    }
    let plugins = reading.plugins(args, cwd, &environment::own_folders(variables), &managed);
    for given in &args.mcp.mcp_config {
        reading.flag_servers(given);
    }
    reading.files.extend(managed_files);
    let memory = MemorySources {
        user: wants("user"),
        project: wants("project"),
        local: wants("local"),
        trusted: trust == Trust::Full,
    };
    let added = reading.added_folders(args, &paths);
    let library = library::read(args, variables, cwd, (&memory, &trust), (&plugins, &added));
    reading.ignored.definitions(&library.withheld);
    if let Some(first) = reading.first.take().filter(|_| !args.prompts.more_follows) {
        first.complete();
    }
    reading.into_sources(ManagedSettings { files: managed }, memory, (library, plugins))
}

/// Reads the files, and collects their settings and mistakes.
#[derive(Default)]
struct SourceReader {
    files: Vec<SettingsFile>,
    fold: Fold,
    mistakes: Vec<String>,
    ignored: IgnoredSettings,
    servers: Vec<NamedServer>,
    first: Option<FirstReading>,
    /// True if only the servers of `--mcp-config` count.
    strict: bool,
    /// True if only servers that flags name count.
    bare: bool,
    /// The keys that `--settings` sets.
    of_flag: BTreeSet<&'static str>,
}

impl SourceReader {
    /// Returns true if the command line or a variable trusts the repository.
    fn is_trusted_by_call(&mut self, session: &SessionArgs, variables: &Variables) -> bool {
        let by_variable = environment::trusts_project(variables).map_err(UsageError::from);
        self.take(by_variable).unwrap_or_default()
            || session.trust_project
            || names_repository(session.setting_sources.as_deref())
    }

    fn reads_servers_of(&self, author: ServerAuthor) -> bool {
        !self.strict && (!self.bare || author == ServerAuthor::Settings)
    }

    fn take<T>(&mut self, read: Result<T, UsageError>) -> Option<T> {
        read.map_err(|error| self.mistakes.push(error.to_string())).ok()
    }

    /// Decodes a file that was written for another program, and warns of invalid UTF-8 in it.
    fn decode(&mut self, name: &str, bytes: &[u8]) -> String {
        let (text, warning) = file::decode_lossy(name, bytes);
        self.fold.warnings.extend(warning);
        text.into_owned()
    }

    fn read_user_file(&mut self, path: &Path) -> Option<ParsedSettings> {
        self.add_file(path.display().to_string(), file::read_file(path))
    }

    /// Reads the user's own settings. A host shares the folder of the reference.
    fn own_file(&mut self, path: &Path, home: Option<&Path>) -> Option<ParsedSettings> {
        if home.is_some_and(|home| path == home.join(SHARED_FILE)) {
            self.file_of_reference(path)
        } else {
            self.read_user_file(path)
        }
    }

    fn flag(&mut self, flag: &str, given: &str) -> Option<ParsedSettings> {
        let shown = if is_inline(given) { flag } else { given };
        let mut read = file::parse_flag(flag, given).map(Some);
        if !is_inline(given) {
            read = self.as_first_read(given, read);
        }
        self.add_file(shown.to_owned(), read)
    }

    /// Returns the settings of a file as of the first reading: commands may have changed it since.
    fn as_first_read(&mut self, name: &str, read: ReadSettings) -> ReadSettings {
        let Some(first) = &self.first else { return read };
        let (read, warning) = first.settings(name, read);
        self.fold.warnings.extend(warning);
        read
    }

    fn add_file(
        &mut self,
        path: String,
        read: Result<Option<ParsedSettings>, Vec<String>>,
    ) -> Option<ParsedSettings> {
        let (state, parsed) = match read {
            Ok(None) => (FileState::Absent, None),
            Ok(Some(parsed)) => (FileState::Used, Some(parsed)),
            Err(mistakes) => {
                self.mistakes.extend(mistakes);
                (FileState::Broken, None)
            }
        };
        let hooks = parsed.as_ref().and_then(|parsed| parsed.value.get("hooks")).cloned();
        let project = parsed.as_ref().and_then(|parsed| parsed.project.clone());
        self.files.push(SettingsFile { path, state, hooks: hooks.unwrap_or_default(), project });
        parsed
    }

    /// Lists a file whose hooks are not used.
    fn add_unused(&mut self, path: String, state: FileState) {
        self.files.push(SettingsFile { path, state, hooks: Value::Null, project: None });
    }

    /// Reads the user's settings of the reference, unless a variable names a folder of settings.
    /// They rank below those of outlast.
    fn shared_file(
        &mut self,
        home: Option<&Path>,
        config_dir: &Path,
        is_wanted: bool,
    ) -> Option<ParsedSettings> {
        let path = home?.join(SHARED_FILE);
        // An unreachable file may contain deny rules: reading it gives a warning.
        let real = match file_reads::canonicalize(&path) {
            Ok(real) => Some(real),
            Err(error) if file::is_absent(&path, &error) => return None,
            Err(_) => None,
        };
        let own = config_dir.join("settings.json").canonicalize().ok();
        if real.is_some() && real == own {
            return None;
        }
        let is_default = home.is_some_and(|home| config_dir == home.join(CONFIG_FOLDER));
        if is_default && !is_wanted {
            return None;
        }
        if !is_default {
            self.add_unused(path.display().to_string(), FileState::Foreign);
            return None;
        }
        let parsed = self.file_of_reference(&path);
        parsed.map(|parsed| parsed.anchored(path.parent().unwrap_or(config_dir)))
    }

    /// Reads a settings file of the user that any version of the reference may have written:
    /// unknown settings and invalid values are left out, with a warning; an invalid value that
    /// restricts is an error. A file that is not a JSON object is left out, as the reference does.
    fn file_of_reference(&mut self, path: &Path) -> Option<ParsedSettings> {
        let shown = path.display().to_string();
        let read = match file::read_content(path) {
            Ok(None) => Ok(None),
            Ok(Some(content)) => {
                let text = self.decode(&shown, &content);
                file::parse_foreign(&shown, &text).map(Some)
            }
            Err(why) => Err(ForeignMistakes::Unreadable(why.join("; "))),
        };
        match read {
            Err(ForeignMistakes::Unreadable(why)) => {
                self.fold.warnings.push(format!("{why} (this file is not used)"));
                self.add_unused(shown, FileState::Skipped);
                None
            }
            Err(ForeignMistakes::Restricting(mistakes)) => self.add_file(shown, Err(mistakes)),
            Ok(parsed) => self.add_file(shown, Ok(parsed)),
        }
    }

    /// Reads the plugins that flags name and settings enable, and adds their hooks and servers.
    fn plugins(
        &mut self,
        args: &RunArgs,
        cwd: &Path,
        config_folders: &[PathBuf],
        managed: &[ParsedSettings],
    ) -> Vec<Plugin> {
        // The last folder is the one of the reference.
        let data_root =
            config_folders.last().map_or_else(PathBuf::new, |folder| folder.join(PLUGIN_DATA));
        let found = Plugin::find(&args.prompts, cwd, &data_root);
        let mut plugins = self.take(found).unwrap_or_default();
        let of_flags = plugins.len();
        if !args.compatibility.disables_hooks() {
            let mut marketplaces = Marketplaces::default();
            let named = self.plugin_entries("extraKnownMarketplaces", managed);
            for name in marketplaces.add(&named, cwd) {
                self.fold.warnings.push(format!(
                    "extraKnownMarketplaces: {name:?} has no source, such as {{\"source\": \"directory\", \
                     \"path\": \"/a/folder\"}}, and is not used"
                ));
            }
            let enabled = self.plugin_entries("enabledPlugins", managed);
            let enabled = EnabledPlugins::find(&enabled, config_folders, &marketplaces);
            for id in enabled.missing {
                self.fold.warnings.push(format!(
                    "the plugin {id} of enabledPlugins is not on this disk, and not used; unpack it, and name \
                     its folder with --plugin-dir"
                ));
            }
            for enabled in enabled.found {
                let before = (self.mistakes.len(), self.files.len());
                let plugin = self.take(Plugin::of_settings(enabled, &data_root));
                self.forgive(before);
                // A folder may contain several plugins of a list; a folder that a flag
                // added counts as a whole.
                let is_same = |index: usize, known: &Plugin, one: &Plugin| {
                    known.folder == one.folder && (index < of_flags || known.name == one.name)
                };
                let is_known = |one: &Plugin| {
                    plugins.iter().enumerate().any(|(index, known)| is_same(index, known, one))
                };
                plugins.extend(plugin.filter(|one| !is_known(one)));
            }
        }
        for (index, plugin) in plugins.iter().enumerate() {
            let before = (self.mistakes.len(), self.files.len());
            self.plugin(plugin, !args.compatibility.disables_hooks());
            if index >= of_flags {
                self.forgive(before);
            }
        }
        plugins
    }

    /// Turns the mistakes and broken files from these indices on into warnings and unused files: a
    /// plugin that was installed for other work must not prevent this run.
    fn forgive(&mut self, (mistakes, files): (usize, usize)) {
        let mistakes = self.mistakes.split_off(mistakes).into_iter();
        self.fold.warnings.extend(mistakes.map(|why| format!("{why} (it is not used)")));
        for file in self.files[files..].iter_mut().filter(|file| file.state == FileState::Broken) {
            file.state = FileState::Skipped;
        }
    }

    /// Returns the entries of settings for plugins or marketplaces. Managed settings win.
    fn plugin_entries(&self, key: &str, managed: &[ParsedSettings]) -> BTreeMap<String, Value> {
        let value = registry::find(key).and_then(|setting| self.fold.value_below(setting));
        let of_files = value.and_then(|value| serde_json::from_value::<PluginEntries>(value).ok());
        let PluginEntries(mut entries) = of_files.unwrap_or_default();
        // The first managed file outranks the others.
        for parsed in managed.iter().rev() {
            entries.extend(parsed.get::<PluginEntries>(key).unwrap_or_default().0);
        }
        entries
    }

    /// Adds the hooks and servers of a plugin.
    fn plugin(&mut self, plugin: &Plugin, with_hooks: bool) {
        let folder = &plugin.folder;
        let hooks = with_hooks
            .then(|| self.first_texts(TextSource::PluginHooks(folder.clone()), plugin.hooks()));
        for (name, text) in hooks.unwrap_or_default() {
            let read = file::parse_text(&name, &text);
            if let Some(parsed) = self.add_file(name, read.map(Some)) {
                self.fold.add_plugin_hooks(&parsed, &plugin.variables());
            }
        }
        let servers = (!self.strict)
            .then(|| self.first_texts(TextSource::PluginServers(folder.clone()), plugin.servers()));
        for (name, text) in servers.unwrap_or_default() {
            let servers = servers::parse(&name, &text, ServerAuthor::User);
            let mut servers = self.take(servers).flatten().unwrap_or_default();
            for NamedServer { name, entry, .. } in &mut servers {
                plugin.adopt_server(name, entry);
            }
            self.servers.extend(servers);
        }
    }

    /// Returns the texts of a source as of the first reading: commands may have changed it since.
    fn first_texts(
        &mut self,
        source: TextSource,
        read: Result<NamedTexts, UsageError>,
    ) -> NamedTexts {
        let (read, warning) = match &self.first {
            Some(first) => first.texts(source, read),
            None => (read, None),
        };
        self.fold.warnings.extend(warning);
        self.take(read).unwrap_or_default()
    }

    /// Returns the further folders of flags and settings. Missing ones are reported elsewhere.
    fn added_folders(&self, args: &RunArgs, paths: &RulePaths<'_>) -> Vec<PathBuf> {
        let setting = registry::find("permissions.additionalDirectories");
        let of_files = setting.and_then(|setting| self.fold.value_below(setting));
        let of_files: Vec<String> =
            of_files.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default();
        let all = of_files.iter().chain(args.flags.texts("add-dir"));
        let place = |text: &String| in_home(text, paths.home).unwrap_or(paths.cwd.join(text));
        all.map(place).collect()
    }

    /// Adds the servers of `--mcp-config`.
    fn flag_servers(&mut self, given: &str) {
        let read = servers::read_flag(given).map(|text| vec![text]);
        let texts = if is_inline(given) {
            self.take(read).unwrap_or_default()
        } else {
            self.first_texts(TextSource::FlagServers(given.into()), read)
        };
        for (name, text) in texts {
            match self.take(servers::parse(&name, &text, ServerAuthor::Flag)) {
                Some(Some(servers)) => self.servers.extend(servers),
                Some(None) => self.fold.warnings.push(servers::no_servers_warning(given)),
                None => {}
            }
        }
    }

    /// Returns true if a file of the repository is trusted. Records an untrusted script that it
    /// names.
    fn is_trusted(&mut self, file: &str, content: &[u8], cwd: &Path, trust: &Trust) -> bool {
        trust.covers_settings(content, cwd).unwrap_or_else(|script| {
            self.ignored.script(file, &script, cwd);
            false
        })
    }

    fn repository(&mut self, file: &RepositorySettings, paths: &RulePaths<'_>, trust: &Trust) {
        let name = file.folder.join(&file.file).display().to_string();
        let path = &*file.shown();
        let (read, trusted) = match read_file(&file.folder, &file.file, trust) {
            RepositoryFile::Nothing => (Ok(None), true),
            // Its hooks may name scripts of both folders.
            RepositoryFile::Content(content)
                if self.is_trusted(path, &content, &file.folder, trust)
                    && self.is_trusted(path, &content, paths.cwd, trust) =>
            {
                let text = self.decode(&name, &content);
                let read = file::parse_text(&name, &text).map(|mut parsed| {
                    self.ignored.strip_never_trusted(path, &mut parsed);
                    Some(parsed)
                });
                (read, true)
            }
            RepositoryFile::Content(content) => {
                let fold = &self.fold;
                let below = |setting: &Setting| fold.value_below(setting);
                let value = self.ignored.strip_untrusted(path, &content, paths, &below);
                let text = self.decode(&name, &content);
                let text = text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned();
                let warnings = Vec::from_iter(rule_names::untrusted_rule_warning(&name, &text));
                let mut parsed = ParsedSettings::new(name.clone(), value, text);
                parsed.warnings = warnings;
                (Ok(Some(parsed)), false)
            }
            RepositoryFile::Unusable(why) if *trust == Trust::Full => {
                (Err(vec![format!("{name}: {why}; correct it, or take it away")]), true)
            }
            RepositoryFile::Unusable(why) => {
                self.ignored.file(path, &why);
                (Ok(None), false)
            }
        };
        let read = self.as_first_read(&name, read);
        let read = read.map(|parsed| parsed.map(|parsed| file.placed(parsed)));
        if let Some(parsed) = self.add_file(name, read) {
            self.merge(&parsed, ServerAuthor::ProjectSettings);
        }
        if let Some(last) = self.files.last_mut().filter(|_| !trusted) {
            last.state = FileState::Untrusted;
        }
    }

    /// Reads the servers of the repository, if it is trusted.
    fn project_servers(&mut self, cwd: &Path, trust: &Trust) {
        let path = cwd.join(MCP_FILE);
        let name = path.display().to_string();
        let text = match read_file(cwd, MCP_FILE, trust) {
            RepositoryFile::Nothing => None,
            RepositoryFile::Content(content) if self.is_trusted(MCP_FILE, &content, cwd, trust) => {
                Some((name.clone(), self.decode(&name, &content)))
            }
            RepositoryFile::Content(content) => {
                self.ignored.servers(&content, UNTRUSTED);
                return self.add_unused(name, FileState::Untrusted);
            }
            RepositoryFile::Unusable(why) => {
                self.ignored.file(MCP_FILE, &why);
                return self.add_unused(name, FileState::Untrusted);
            }
        };
        let (source, mut state) = (TextSource::ProjectServers(path), FileState::Absent);
        for (name, text) in self.first_texts(source, Ok(Vec::from_iter(text))) {
            let servers = self.take(servers::parse(&name, &text, ServerAuthor::Project));
            state = if servers.is_some() { FileState::Used } else { FileState::Broken };
            self.servers.extend(servers.flatten().unwrap_or_default());
        }
        self.add_unused(name, state);
    }

    fn merge(&mut self, parsed: &ParsedSettings, author: ServerAuthor) {
        if self.reads_servers_of(author) {
            self.servers.extend(servers::from_settings(parsed, author));
        }
        self.fold.add_file(parsed);
    }

    fn into_sources(
        mut self,
        managed: ManagedSettings,
        memory: MemorySources,
        (library, plugins): (PromptLibrary, Vec<Plugin>),
    ) -> SettingsSources {
        for parsed in &managed.files {
            self.servers.extend(servers::from_settings(parsed, ServerAuthor::Managed));
        }
        managed.add_to(&mut self.fold);
        let (ignored, ignored_warning) = self.ignored.into_report();
        SettingsSources {
            files: self.files,
            fold: self.fold,
            mistakes: self.mistakes,
            ignored,
            ignored_warning,
            memory,
            managed,
            of_flag: self.of_flag,
            servers: self.servers,
            library,
            plugins,
        }
    }
}
