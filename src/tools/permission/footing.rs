//! Knows where a command line may be standing after each of its parts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::chores::{self, KnownCommand};
use super::effort::WorkBudget;
use super::script::{Separator, SimpleCommand};

/// How many folders are kept in mind. Each `cd` of which nobody knows whether it succeeded may
/// double them.
const BASES_MAX: usize = 64;

/// Where it may be standing.
#[derive(Clone, Debug)]
pub(super) struct CwdTracker {
    /// After `cd x; …` nobody knows whether `cd` succeeded.
    bases: Vec<PathBuf>,
    /// Where it stands if a `cd` in this chain of `&&` has failed.
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

    /// It may stand in any of these.
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

    /// Whether it changed folders more often than anybody kept in mind. It may stand anywhere then,
    /// and not only in the folders that are still known.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost_track
    }

    /// Takes note of a part that ran. `find` tells where a path leads, seen from a folder.
    pub(super) fn after_part(
        &mut self,
        part: &SimpleCommand,
        effort: &WorkBudget,
        find: impl Fn(&str, &Path) -> PathBuf,
    ) {
        if self.is_lost_track {
            return;
        }
        let chore = chores::classify(part);
        if let Some(KnownCommand::ChangesFolder(folder)) = chore {
            // They are sorted, too.
            if !effort.charge(8 * self.path_lengths(folder)) {
                self.is_lost_track = true;
                return;
            }
            let moved: Vec<PathBuf> = self.bases.iter().map(|base| find(folder, base)).collect();
            // In a pipe it moves only itself.
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

    /// How long the paths are that this one makes, seen from everywhere.
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
            // Those who ask heed that, and need no folder but to say what means the same in each.
            self.bases.truncate(1);
            self.bases_if_cd_failed.clear();
        }
    }
}
