//! Managed settings, written by the administrator of the machine. They outrank everything else: a
//! flag or a variable that contradicts them has no effect.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::file::{self, MANAGED_FILES, ParsedSettings};
use super::flags::SettingFlags;
use super::fold::Fold;
use super::registry;
use super::setting::Setting;
use crate::hooks::{HookHandler, HookSettings};
use crate::secrets::Variables;

/// Returns the paths of the managed files of this machine.
pub fn files() -> Vec<PathBuf> {
    MANAGED_FILES.iter().map(PathBuf::from).collect()
}

/// Returns a managed file and the `*.json` files in the folder of the same name that ends in `.d`,
/// in the order of their names. Hidden ones are left out.
///
/// A folder that cannot be listed is returned itself: reading it as a file reports the error.
pub fn with_drop_ins(managed: &Path) -> Vec<PathBuf> {
    let folder = managed.with_extension("d");
    let mut files = match fs::read_dir(&folder).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(entries) => entries.into_iter().map(|entry| entry.path()).collect(),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound && file::is_absent(&folder, &error) =>
        {
            Vec::new()
        }
        Err(_) => vec![folder.clone()],
    };
    files.retain(|path| *path == folder || is_drop_in(path));
    files.sort();
    files.insert(0, managed.to_path_buf());
    files
}

fn is_drop_in(path: &Path) -> bool {
    let is_hidden = path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."));
    !is_hidden && path.extension().is_some_and(|end| end == "json")
}

/// The content of the managed files.
#[derive(Clone, Debug, Default)]
pub struct ManagedSettings {
    pub files: Vec<ParsedSettings>,
}

impl ManagedSettings {
    /// Merges the managed files over all other files.
    pub fn add_to(&self, fold: &mut Fold) {
        if self.is_true("allowManagedHooksOnly") {
            fold.hooks = HookSettings::default();
        }
        if self.is_true(RULES_ONLY) {
            fold.forget("permissions.allow");
        }
        if self.limits_domains_to_managed() {
            fold.forget("sandbox.network.allowedDomains");
        }
        for file in &self.files {
            fold.add_file(file);
        }
    }

    /// Removes the flags and variables that these settings outrank, except variables that they set.
    pub fn remove_outranked(&self, flags: &mut SettingFlags, variables: &mut Variables) {
        for setting in registry::settings().iter().filter(|it| self.determines(it)) {
            for variable in setting.variables.iter().filter(|it| !self.sets(it.name)) {
                variables.remove(OsStr::new(variable.name));
            }
        }
        let is_barred = |key: &str| key == "permissions.allow" && self.is_true(RULES_ONLY);
        flags.remove(|setting| self.determines(setting) || is_barred(setting.key));
    }

    /// Returns true if managed files alone determine the setting of this key.
    pub fn determines_key(&self, key: &str) -> bool {
        registry::find(key).is_some_and(|setting| self.determines(setting))
    }

    /// Returns true if managed files alone determine a setting, which they do not for lists that
    /// all sources add to.
    fn determines(&self, setting: &Setting) -> bool {
        let is_joined = setting.is_joined && setting.default.is_array();
        let assigns =
            |key: &str, form_of: Option<&str>| key == setting.key || form_of == Some(setting.key);
        let values = self.files.iter().flat_map(|file| &file.values);
        !is_joined && values.into_iter().any(|it| assigns(it.setting.key, it.setting.form_of))
    }

    /// Selects the hooks that run. Hooks of managed files run even if the user disables hooks.
    pub fn select_hooks(&self, hooks: Vec<HookHandler>, off: Option<bool>) -> Vec<HookHandler> {
        if off != Some(true) && !self.is_true("allowManagedHooksOnly") {
            return hooks;
        }
        if self.is_true("disableAllHooks") {
            return Vec::new();
        }
        let is_managed =
            |hook: &HookHandler| self.files.iter().any(|file| file.name == hook.source);
        hooks.into_iter().filter(is_managed).collect()
    }

    /// Returns true if lists of allowed hosts count in managed files only.
    pub fn limits_domains_to_managed(&self) -> bool {
        self.is_true(DOMAINS_ONLY)
    }

    fn is_true(&self, key: &str) -> bool {
        self.files.iter().rev().find_map(|file| file.get::<bool>(key)) == Some(true)
    }

    /// Returns true if a managed file sets a variable.
    pub fn sets(&self, variable: &str) -> bool {
        self.files.iter().any(|file| file.value["env"].get(variable).is_some())
    }
}

/// The setting that lets only managed files allow hosts.
const DOMAINS_ONLY: &str = "sandbox.network.allowManagedDomainsOnly";
/// The setting with which allow rules count in managed files only.
const RULES_ONLY: &str = "allowManagedPermissionRulesOnly";
