//! Configured context windows of models.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::chain::ChainEntry;
use super::entry::SMALLEST_WINDOW;
use super::file_settings::FileSettings;
use crate::cli::usage::UsageError;
use crate::cli::values;

/// The setting `contextWindow`: one number for every model, or one for each, in tokens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "something else")]
pub(super) enum WindowSizes {
    Every(u32),
    ByModel(BTreeMap<String, u32>),
}

impl WindowSizes {
    /// Returns the models with too small a context window; `None` stands for every model.
    pub(super) fn too_small(&self) -> Vec<Option<&str>> {
        let small = |size: u32| size < SMALLEST_WINDOW;
        match self {
            Self::Every(size) => Some(None).filter(|_| small(*size)).into_iter().collect(),
            Self::ByModel(sizes) => {
                let models = sizes.iter().filter(|(_, size)| small(**size));
                models.map(|(model, _)| Some(model.as_str())).collect()
            }
        }
    }
}

/// The sizes that flags and files name, by model. The empty name is for every model.
#[derive(Clone, Debug)]
pub(in crate::cli) struct ContextWindows {
    flags: BTreeMap<String, u32>,
    file: BTreeMap<String, u32>,
}

impl ContextWindows {
    /// Merges the sizes of flags and files.
    ///
    /// # Errors
    /// The first `--context-window` that is none.
    pub(super) fn new(flags: &[String], file: &FileSettings) -> Result<Self, UsageError> {
        let file = match &file.context_window {
            Some(WindowSizes::Every(size)) => BTreeMap::from([(String::new(), *size)]),
            Some(WindowSizes::ByModel(sizes)) => sizes.clone(),
            None => BTreeMap::new(),
        };
        let flags = flags.iter().map(|flag| one(flag)).collect::<Result<_, _>>()?;
        Ok(Self { flags, file })
    }

    /// The size for a link whose own entry says `said`: flags outrank that, and that the files.
    pub(super) fn of(&self, link: &ChainEntry, said: Option<u32>) -> Option<u32> {
        let keys = link.keys();
        find(&self.flags, &keys).or(said).or_else(|| find(&self.file, &keys))
    }

    /// All sizes, flags over files.
    pub(super) fn all(&self) -> serde_json::Map<String, serde_json::Value> {
        let sizes = self.file.iter().chain(&self.flags);
        sizes.map(|(model, size)| (model.clone(), (*size).into())).collect()
    }

    /// The size for a model that is not of the chain, by its names, closest first.
    pub(in crate::cli) fn of_model(&self, names: &[&str]) -> Option<u32> {
        find(&self.flags, names).or_else(|| find(&self.file, names))
    }
}

fn find(sizes: &BTreeMap<String, u32>, names: &[&str]) -> Option<u32> {
    names.iter().find_map(|name| sizes.get(*name)).copied()
}

fn one(flag: &str) -> Result<(String, u32), UsageError> {
    let (model, size) = flag.rsplit_once('=').unwrap_or(("", flag));
    let size = values::tokens(size).map(u32::from).ok().filter(|size| *size >= SMALLEST_WINDOW);
    let size = size.ok_or_else(|| {
        UsageError::new(format!(
            "--context-window: {flag:?} is no context window; write it like 200k or my-model=32k, \
             and at least {SMALLEST_WINDOW}"
        ))
    })?;
    Ok((model.trim().to_owned(), size))
}
