//! Knows where a command line may be standing after each of its parts.

use std::path::{Path, PathBuf};

use super::chores::{self, Chore};
use super::script::{Joint, Simple};

/// How many folders are kept in mind. Each `cd` of which nobody knows whether it succeeded may
/// double them.
const BASES_MAX: usize = 64;

/// Where it may be standing.
#[derive(Clone, Debug)]
pub(super) struct Footing {
    /// After `cd x; …` nobody knows whether `cd` succeeded.
    bases: Vec<PathBuf>,
    /// Where it stands if a `cd` in this chain of `&&` has failed.
    stayed: Vec<PathBuf>,
    before: Joint,
    lost: bool,
}

impl Footing {
    pub(super) fn new(base: &Path) -> Self {
        Self {
            bases: vec![base.to_path_buf()],
            stayed: Vec::new(),
            before: Joint::Other,
            lost: false,
        }
    }

    /// It may stand in any of these.
    pub(super) fn anywhere(bases: Vec<PathBuf>) -> Self {
        let mut footing = Self { bases, ..Self::new(Path::new("/")) };
        footing.tidy();
        footing
    }

    pub(super) fn bases(&self) -> &[PathBuf] {
        &self.bases
    }

    /// Whether it changed folders more often than anybody kept in mind.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Takes note of a part that ran. `find` tells where a path leads, seen from a folder.
    pub(super) fn pass(&mut self, part: &Simple, find: impl Fn(&str, &Path) -> PathBuf) {
        if let Some(Chore::Moves(folder)) = chores::recognise(part) {
            let moved: Vec<PathBuf> = self.bases.iter().map(|base| find(folder, base)).collect();
            // In a pipe it moves only itself.
            if part.then == Joint::And && self.before != Joint::Pipe {
                self.stayed.append(&mut self.bases);
            }
            self.bases.extend(moved);
        }
        if part.then == Joint::Other {
            self.bases.append(&mut self.stayed);
        }
        self.before = part.then;
        self.tidy();
    }

    fn tidy(&mut self) {
        for list in [&mut self.bases, &mut self.stayed] {
            list.sort_unstable();
            list.dedup();
            self.lost |= list.len() > BASES_MAX;
            list.truncate(BASES_MAX);
        }
    }
}
