//! Protected paths, for commands and file tools alike.

use std::path::{Path, PathBuf};

/// Denied paths, and exceptions within them. The deepest entry decides.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct DeniedPlaces {
    pub(super) denied: Vec<PathBuf>,
    pub(super) allowed: Vec<PathBuf>,
    /// Write-protected paths.
    pub(super) write_protected: Vec<PathBuf>,
    /// Nothing may be written.
    pub(super) read_only: bool,
}

/// What a permission rule denies.
#[derive(Clone, Debug)]
pub(in super::super) struct RuleDenial {
    /// As the user wrote it.
    pub(in super::super) rule: String,
    /// Everything that it denies is this, or below it.
    pub(in super::super) place: PathBuf,
    /// Whether it denies all of that.
    pub(in super::super) is_whole: bool,
    /// Whether it may be read.
    pub(in super::super) changes_only: bool,
}

impl DeniedPlaces {
    /// Whether a denied location is below a folder.
    pub(in super::super) fn hides_below(&self, folder: &Path) -> bool {
        self.denied.iter().any(|place| place.starts_with(folder))
    }

    /// Whether a write-protected path is below a folder.
    pub(in super::super) fn protects_below(&self, folder: &Path) -> bool {
        self.write_protected.iter().any(|place| place.starts_with(folder))
    }

    /// Whether a path is in a denied location.
    pub(in super::super) fn hides(&self, path: &Path) -> bool {
        let deepest = |places: &[PathBuf]| {
            let around = places.iter().filter(|place| path.starts_with(place));
            around.map(|place| place.components().count()).max()
        };
        match deepest(&self.denied) {
            None => false,
            Some(depth) => deepest(&self.allowed).is_none_or(|allowed| allowed < depth),
        }
    }

    /// Why a path must not be changed, if it must not.
    pub(in super::super) fn write_denial(&self, path: &Path) -> Option<&'static str> {
        if self.read_only {
            Some("nothing may be changed (--sandbox read-only)")
        } else if self.write_protected.iter().any(|place| path.starts_with(place)) {
            Some("it is in sandbox.filesystem.denyWrite")
        } else {
            None
        }
    }
}
