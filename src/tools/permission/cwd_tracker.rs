//! Tracks the possible working directories after each part of a command line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::known_commands::{self, KnownCommand};
use super::splitter::{Separator, SimpleCommand};
use super::work_budget::WorkBudget;

/// How many folders are tracked. Each `cd` that may or may not succeed can double them.
const BASES_MAX: usize = 64;

/// The possible working directories.
#[derive(Clone, Debug)]
pub(super) struct CwdTracker {
    /// After `cd x; …` it is unknown whether `cd` succeeded.
    bases: Vec<PathBuf>,
    /// The folders in which the command continues if a `cd` in this chain of `&&` has failed.
    bases_if_cd_failed: Vec<PathBuf>,
    separator_before: Separator,
    is_lost_track: bool,
}

impl CwdTracker {
    pub(super) fn new(base: &Path) -> Self {
        Self {
            bases: vec![base.to_path_buf()],
            bases_if_cd_failed: Vec::new(),
            separator_before: Separator::Unconditional,
            is_lost_track: false,
        }
    }

    /// Starts with each of these folders as a possible working directory.
    pub(super) fn anywhere(bases: impl Iterator<Item = PathBuf>) -> Self {
        let mut kept = BTreeSet::new();
        for base in bases {
            kept.insert(base);
            if kept.len() > BASES_MAX {
                break;
            }
        }
        let mut footing = Self { bases: kept.into_iter().collect(), ..Self::new(Path::new("/")) };
        footing.limit_bases();
        footing
    }

    pub(super) fn bases(&self) -> &[PathBuf] {
        &self.bases
    }

    /// Whether there were more folder changes than are tracked. The working directory may then be
    /// any folder, not only one of those still listed.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost_track
    }

    /// Records a part that ran. `find` resolves a path against a folder.
    pub(super) fn after_part(
        &mut self,
        part: &SimpleCommand,
        effort: &WorkBudget,
        find: impl Fn(&str, &Path) -> PathBuf,
    ) {
        if self.is_lost_track {
            return;
        }
        let chore = known_commands::classify(part);
        if let Some(KnownCommand::ChangesFolder(folder)) = chore {
            // The cost includes sorting them.
            if !effort.charge(8 * self.path_lengths(folder)) {
                self.is_lost_track = true;
                return;
            }
            let moved: Vec<PathBuf> = self.bases.iter().map(|base| find(folder, base)).collect();
            // In a pipe, `cd` affects only its own process.
            if part.then == Separator::And && self.separator_before != Separator::Pipe {
                self.bases_if_cd_failed.append(&mut self.bases);
            }
            self.bases.extend(moved);
        }
        let joins = part.then == Separator::Unconditional && !self.bases_if_cd_failed.is_empty();
        if joins {
            self.bases.append(&mut self.bases_if_cd_failed);
        }
        self.separator_before = part.then;
        if joins || matches!(chore, Some(KnownCommand::ChangesFolder(_))) {
            self.limit_bases();
        }
    }

    /// The total length of `path` resolved against every possible working directory.
    pub(super) fn path_lengths(&self, path: &str) -> usize {
        self.bases.iter().map(|base| base.as_os_str().len() + path.len() + 1).sum()
    }

    fn limit_bases(&mut self) {
        for list in [&mut self.bases, &mut self.bases_if_cd_failed] {
            list.sort_unstable();
            list.dedup();
            self.is_lost_track |= list.len() > BASES_MAX;
            list.truncate(BASES_MAX);
        }
        if self.is_lost_track {
            // Callers test `is_lost` first, and use the remaining folder only to resolve paths
            // whose meaning does not depend on it.
            self.bases.truncate(1);
            self.bases_if_cd_failed.clear();
        }
    }
}
