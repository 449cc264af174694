//! Configured context windows of models.

use std::collections::BTreeMap;

use crate::config::models::WindowSizes;

/// The sizes that flags and files name, by model. The empty name is for every model.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct ContextWindows {
    flags: BTreeMap<String, u32>,
    file: BTreeMap<String, u32>,
}

impl ContextWindows {
    /// Merges the sizes of flags and files.
    pub(super) fn new(flags: Option<&WindowSizes>, files: Option<&WindowSizes>) -> Self {
        let by_model =
            |sizes: Option<&WindowSizes>| sizes.map(WindowSizes::by_model).unwrap_or_default();
        Self { flags: by_model(flags), file: by_model(files) }
    }

    /// Returns the size for a model of the chain, by its names, closest first. Flags outrank its
    /// `entry`, which outranks the files.
    pub(super) fn of_entry(&self, names: &[&str], entry: Option<u32>) -> Option<u32> {
        find(&self.flags, names).or(entry).or_else(|| find(&self.file, names))
    }

    /// Returns all sizes, flags over files.
    pub(super) fn all(&self) -> serde_json::Map<String, serde_json::Value> {
        let sizes = self.file.iter().chain(&self.flags);
        sizes.map(|(model, size)| (model.clone(), (*size).into())).collect()
    }

    /// Returns the size for a model outside of the chain, by its names, closest first.
    pub(in crate::cli) fn of_model(&self, names: &[&str]) -> Option<u32> {
        self.of_entry(names, None)
    }
}

fn find(sizes: &BTreeMap<String, u32>, names: &[&str]) -> Option<u32> {
    names.iter().find_map(|name| sizes.get(*name)).copied()
}
