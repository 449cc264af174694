//! The login files of programs, which are closed to commands in general.

use std::path::PathBuf;

use super::super::credentials::{CREDENTIALS, CredentialSet};
use super::context::SandboxContext;

/// The login files of a program that are closed to commands in general.
#[derive(Debug)]
pub(super) struct LoginPlaces {
    pub(super) set: &'static CredentialSet,
    pub(super) places: Vec<PathBuf>,
    /// The files among them that the program also writes to.
    pub(super) state: Vec<PathBuf>,
}

/// The login files of the programs of the table, except those that the user denied.
pub(super) fn logins(around: &SandboxContext<'_>, denied_reads: &[PathBuf]) -> Vec<LoginPlaces> {
    let paths = |places: &[&str]| {
        let written = places.iter().flat_map(|place| around.login_paths(place));
        let mut paths: Vec<PathBuf> = written.flat_map(|path| [around.real(&path), path]).collect();
        paths.retain(|path| !denied_reads.iter().any(|denied| path.starts_with(denied)));
        paths.sort_unstable();
        paths.dedup();
        paths
    };
    let sets = CREDENTIALS.iter().filter(|set| set.name().is_some());
    sets.map(|set| LoginPlaces { set, places: paths(set.places), state: paths(set.state) })
        .collect()
}
