//! The login files of programs, which are closed to commands in general.

use std::path::PathBuf;

use super::super::credentials::{CREDENTIALS, CredentialSet};
use super::super::real_paths::LinkedPath;
use super::context::SandboxContext;

/// The places of a set of credentials on this machine, whether or not they exist.
#[derive(Debug)]
pub(super) struct FoundLogins {
    set: &'static CredentialSet,
    pub(super) places: Vec<LinkedPath>,
    state: Vec<LinkedPath>,
}

/// The login files of a program that are closed to commands in general.
#[derive(Debug)]
pub(super) struct LoginPlaces {
    pub(super) set: &'static CredentialSet,
    pub(super) places: Vec<PathBuf>,
    /// The files among them that the program also writes to.
    pub(super) state: Vec<PathBuf>,
}

/// Finds the places of all credentials of the table.
pub(super) fn find_all(around: &SandboxContext<'_>) -> Vec<FoundLogins> {
    let paths =
        |places: &[&str]| places.iter().flat_map(|place| around.login_paths(place)).collect();
    let found = |set| FoundLogins { set, places: paths(set.places), state: paths(set.state) };
    CREDENTIALS.iter().map(found).collect()
}

/// The login files of programs, except those that the user denied.
pub(super) fn of_programs(found: &[FoundLogins], denied_reads: &[PathBuf]) -> Vec<LoginPlaces> {
    let paths = |places: &[LinkedPath]| {
        let is_open = |path: &&PathBuf| !denied_reads.iter().any(|denied| path.starts_with(denied));
        let both = places.iter().flat_map(LinkedPath::both);
        let mut paths: Vec<PathBuf> = both.filter(is_open).cloned().collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    };
    let sets = found.iter().filter(|it| it.set.name().is_some());
    sets.map(|it| LoginPlaces { set: it.set, places: paths(&it.places), state: paths(&it.state) })
        .collect()
}
