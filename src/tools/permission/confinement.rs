//! The confinement of an allowed command, and how its paths are resolved.

use std::path::{Path, PathBuf};

use super::super::paths::ResolvedPath;

/// The confinement of a command by the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Confinement {
    /// The sandbox of the run, if it is on.
    #[default]
    Sandbox,
    /// Like `Sandbox`, but read-only.
    SandboxReading,
    /// For commands without a rule: no network; reads only of `named` and of paths that Read may
    /// read; writes only to `changed` and to paths beside or below it, or no writes at all. The
    /// working directory may change if `may_move` is true. If `runs_git` is true, the repositories
    /// around the working folders are readable, too.
    Plain { named: Vec<PathBuf>, changed: Vec<PathBuf>, may_move: bool, runs_git: bool },
}

/// Resolves a path against a folder.
pub(super) type Resolve<'a> = &'a dyn Fn(&str, &Path) -> ResolvedPath;
