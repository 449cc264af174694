//! Finds the plugins that settings enable, `"enabledPlugins": {"NAME@MARKETPLACE": true}`, in the
//! folders of the reference. Nothing is fetched.
//!
//! ```text
//! <config dir>/plugins/installed_plugins.json    the folder of each plugin
//! <config dir>/plugins/known_marketplaces.json   the folder of each marketplace
//! <config dir>/plugins/marketplaces/NAME/        a marketplace: .claude-plugin/marketplace.json
//! <config dir>/plugins/cache/MARKETPLACE/NAME/VERSION/
//! ```
//! Marketplaces of the setting `extraKnownMarketplaces` may be folders elsewhere. The entry of a
//! plugin in the list of its marketplace may name the parts of the plugin.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::json;
use crate::process::file_reads;

/// The largest list of plugins, in bytes.
const LIST_BYTES_MAX: u64 = 8 << 20;

/// The list of a marketplace's plugins, below its folder.
const MARKETPLACE: &str = ".claude-plugin/marketplace.json";

/// The enabled plugins, and the names of those that are not on this disk.
#[derive(Debug, Default)]
pub(super) struct EnabledPlugins {
    pub(super) found: Vec<EnabledPlugin>,
    pub(super) missing: Vec<String>,
}

/// A plugin that settings enable.
#[derive(Debug)]
pub(super) struct EnabledPlugin {
    /// `NAME@MARKETPLACE`.
    pub(super) id: String,
    pub(super) folder: PathBuf,
    /// Its entry in the list of its marketplace.
    pub(super) entry: Option<MarketplaceEntry>,
}

/// The entry of a plugin in the list of a marketplace.
#[derive(Debug)]
pub(super) struct MarketplaceEntry {
    /// The list.
    pub(super) file: PathBuf,
    pub(super) value: Value,
}

impl EnabledPlugins {
    /// Looks for each enabled plugin in the folders of the user's settings, in order, then in the
    /// marketplaces that settings name.
    pub(super) fn find(
        enabled: &BTreeMap<String, Value>,
        config_folders: &[PathBuf],
        marketplaces: &Marketplaces,
    ) -> Self {
        let roots: Vec<PathBuf> =
            config_folders.iter().map(|folder| folder.join("plugins")).collect();
        let mut found = Self::default();
        for (id, _) in enabled.iter().filter(|(_, value)| is_enabled(value)) {
            let of_settings = || marketplaces.folder_of(id);
            let folder = roots.iter().find_map(|root| folder_of(id, root)).or_else(of_settings);
            let Some(folder) = folder else {
                found.missing.push(id.clone());
                continue;
            };
            let lists = roots.iter().filter_map(|root| marketplace_of(id, root));
            let lists = lists.chain(marketplaces.of(id).map(Path::to_owned));
            // A plugin may have been unpacked with the list.
            let entry = lists.chain([folder.clone()]).find_map(|list| entry_of(id, &list));
            found.found.push(EnabledPlugin { id: id.clone(), folder, entry });
        }
        found
    }
}

/// The folders of the marketplaces that settings name.
#[derive(Debug, Default)]
pub(super) struct Marketplaces(BTreeMap<String, PathBuf>);

impl Marketplaces {
    /// Adds the marketplaces of `extraKnownMarketplaces` that are on this disk. Paths are relative
    /// to `cwd`. Returns the names of entries without a source.
    pub(super) fn add(&mut self, entries: &BTreeMap<String, Value>, cwd: &Path) -> Vec<String> {
        let mut unclear = Vec::new();
        for (name, entry) in entries {
            let source = &entry["source"];
            let Some(kind) = source["source"].as_str() else {
                unclear.push(name.clone());
                continue;
            };
            let path = source["path"].as_str().map(|path| cwd.join(path));
            let folder = match kind {
                "directory" => path,
                // The path is that of the marketplace's list.
                "file" => path.and_then(|path| {
                    let folder = path.parent()?;
                    let is_inner = folder.ends_with(".claude-plugin");
                    Some(if is_inner { folder.parent()? } else { folder }.to_owned())
                }),
                _ => None,
            };
            self.0.extend(folder.map(|folder| (name.clone(), folder)));
        }
        unclear
    }

    fn of(&self, id: &str) -> Option<&Path> {
        let (_, marketplace) = id.rsplit_once('@')?;
        self.0.get(marketplace).map(PathBuf::as_path)
    }

    fn folder_of(&self, id: &str) -> Option<PathBuf> {
        of_marketplace(id, self.of(id)?)
    }
}

/// Returns true if a plugin is enabled: by `true`, or by constraints on its version.
fn is_enabled(value: &Value) -> bool {
    match value {
        Value::Bool(is_enabled) => *is_enabled,
        Value::Null => false,
        Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => true,
    }
}

fn folder_of(id: &str, root: &Path) -> Option<PathBuf> {
    let (name, marketplace) = plain_parts(id)?;
    installed(id, root)
        .or_else(|| of_marketplace(id, &marketplace_folder(marketplace, root)))
        .or_else(|| newest(&root.join("cache").join(marketplace).join(name)))
}

/// Returns the folder of a plugin's marketplace.
fn marketplace_of(id: &str, root: &Path) -> Option<PathBuf> {
    let (_, marketplace) = plain_parts(id)?;
    Some(marketplace_folder(marketplace, root))
}

/// Returns the name of a plugin and that of its marketplace, if both are names of folders.
fn plain_parts(id: &str) -> Option<(&str, &str)> {
    let (name, marketplace) = id.rsplit_once('@')?;
    let is_plain = |part: &str| !part.is_empty() && !part.contains('/') && part != "..";
    (is_plain(name) && is_plain(marketplace)).then_some((name, marketplace))
}

/// Returns the folder in which the reference has unpacked a plugin.
fn installed(id: &str, root: &Path) -> Option<PathBuf> {
    let list = read(&root.join("installed_plugins.json"))?;
    let entry = &list["plugins"][id];
    // A list with an entry for each scope, or a single entry.
    let entries = entry.as_array().map_or(std::slice::from_ref(entry), Vec::as_slice);
    let paths = entries.iter().filter_map(|entry| entry["installPath"].as_str());
    paths.map(PathBuf::from).find(|path| path.is_absolute() && path.is_dir())
}

fn marketplace_folder(marketplace: &str, root: &Path) -> PathBuf {
    let known = read(&root.join("known_marketplaces.json"));
    let place =
        known.and_then(|known| known[marketplace]["installLocation"].as_str().map(PathBuf::from));
    place
        .filter(|place| place.is_absolute())
        .unwrap_or_else(|| root.join("marketplaces").join(marketplace))
}

/// Returns the entry of a plugin in the list of a marketplace.
fn entry_of(id: &str, marketplace: &Path) -> Option<MarketplaceEntry> {
    let file = marketplace.join(MARKETPLACE);
    let list = read(&file)?;
    let value = entry_in(&list, id)?.clone();
    Some(MarketplaceEntry { file, value })
}

fn entry_in<'a>(list: &'a Value, id: &str) -> Option<&'a Value> {
    let (name, _) = id.rsplit_once('@')?;
    list["plugins"].as_array()?.iter().find(|entry| entry["name"] == name)
}

/// Returns the folder of a plugin within its marketplace.
fn of_marketplace(id: &str, marketplace: &Path) -> Option<PathBuf> {
    let list = read(&marketplace.join(MARKETPLACE))?;
    let entry = entry_in(&list, id)?;
    let source = Path::new(entry["source"].as_str()?);
    let below = list["metadata"]["pluginRoot"].as_str().map(Path::new);
    let source = below.map_or_else(|| source.to_owned(), |below| below.join(source));
    let stays_inside =
        source.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let folder = marketplace.join(source);
    (stays_inside && folder.is_dir()).then_some(folder)
}

/// Returns the version of a plugin that was unpacked last.
fn newest(folder: &Path) -> Option<PathBuf> {
    let versions = fs::read_dir(folder).ok()?.flatten();
    let dated = versions.filter_map(|version| {
        let facts = version.metadata().ok().filter(fs::Metadata::is_dir)?;
        Some((facts.modified().ok()?, version.path()))
    });
    dated.max().map(|(_, path)| path)
}

fn read(path: &Path) -> Option<Value> {
    json::read(&file_reads::read_regular(path, LIST_BYTES_MAX).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    fn write(folder: &TempDir, path: &str, text: &str) {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, text).expect("a file");
    }

    fn places(found: &EnabledPlugins) -> Vec<(String, PathBuf)> {
        found.found.iter().map(|plugin| (plugin.id.clone(), plugin.folder.clone())).collect()
    }

    #[test]
    fn enabled_plugins_are_found_where_they_were_unpacked() {
        let config = tempfile::tempdir().expect("a folder");
        let place = config.path().join("elsewhere/one");
        for folder in
            ["elsewhere/one", "plugins/marketplaces/shop/kits/two", "plugins/cache/shop/three/1.0"]
        {
            fs::create_dir_all(config.path().join(folder)).expect("folders");
        }
        let list = json!({ "plugins": {
            "one@shop": [{ "scope": "user", "installPath": place }],
            "gone@shop": { "installPath": "/nowhere/at/all" },
        } });
        write(&config, "plugins/installed_plugins.json", &list.to_string());
        let shop = json!({ "name": "shop", "plugins": [
            { "name": "two", "source": "./kits/two" },
            { "name": "out", "source": "../../.." },
            { "name": "far", "source": { "source": "github", "repo": "a/b" } },
        ] });
        write(
            &config,
            "plugins/marketplaces/shop/.claude-plugin/marketplace.json",
            &shop.to_string(),
        );
        let enabled = json!({
            "one@shop": true, "two@shop": ["1.0"], "three@shop": true, "off@shop": false,
            "gone@shop": true, "out@shop": true, "far@shop": true, "two": true, "../two@shop": true,
            "two@../shop": true,
        });
        let enabled = serde_json::from_value(enabled).expect("an object");
        let folders = [config.path().to_owned()];
        let found = EnabledPlugins::find(&enabled, &folders, &Marketplaces::default());
        let root = config.path().join("plugins");
        let folders = [
            ("one@shop", place),
            ("three@shop", root.join("cache/shop/three/1.0")),
            ("two@shop", root.join("marketplaces/shop/./kits/two")),
        ];
        assert_eq!(places(&found), folders.map(|(id, folder)| (id.to_owned(), folder)));
        let entries: Vec<_> = found.found.iter().map(|plugin| plugin.entry.is_some()).collect();
        assert_eq!(entries, [false, false, true], "only the last is in the list");
        assert_eq!(
            found.missing,
            ["../two@shop", "far@shop", "gone@shop", "out@shop", "two", "two@../shop"]
        );
    }

    #[test]
    fn marketplaces_of_settings_are_folders_on_this_disk() {
        let config = tempfile::tempdir().expect("a folder");
        let list = json!({ "plugins": [{ "name": "kit", "source": "./kit" }] }).to_string();
        for shop in ["near", "listed"] {
            write(&config, &format!("{shop}/.claude-plugin/marketplace.json"), &list);
            write(&config, &format!("{shop}/kit/.claude-plugin/plugin.json"), "{}");
        }
        let named = json!({
            "near": { "source": { "source": "directory", "path": "near" } },
            "listed": { "source": { "source": "file",
                "path": config.path().join("listed/.claude-plugin/marketplace.json") } },
            "far": { "source": { "source": "github", "repo": "a/b", "path": "near" } },
            "odd": "near",
        });
        let named = serde_json::from_value(named).expect("an object");
        let mut marketplaces = Marketplaces::default();
        assert_eq!(marketplaces.add(&named, config.path()), ["odd"]);
        let enabled = json!({
            "kit@near": true, "kit@listed": true, "kit@far": true, "kit@odd": true, "no@near": true,
        });
        let enabled = serde_json::from_value(enabled).expect("an object");
        let found = EnabledPlugins::find(&enabled, &[], &marketplaces);
        let folders = ["listed", "near"]
            .map(|shop| (format!("kit@{shop}"), config.path().join(shop).join("./kit")));
        assert_eq!(places(&found), folders);
        assert_eq!(found.missing, ["kit@far", "kit@odd", "no@near"]);
    }
}
