//! The login files of programs, which are closed to commands in general.

use std::path::PathBuf;

use super::super::credentials::{CREDENTIALS, CredentialSet, UNOWNED_SECRETS};
use super::super::real_paths::LinkedPath;
use super::context::SandboxContext;
use super::denied_paths::is_in_any;
use super::key_files;
use super::named_secrets;

/// The programs whose settings name further files with keys and passwords.
const USERS_OF_KEYS: [&str; 2] = ["git", "ssh"];

/// The paths of a set of credentials on this machine, whether or not they exist.
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

/// Finds the paths of all credentials of the table; and outside of the folders that commands may
/// write to, files with secrets that variables or settings of ssh and git name, or that are named
/// like such files.
pub(super) fn find_all(context: &SandboxContext<'_>, writable: &[PathBuf]) -> Vec<FoundLogins> {
    let paths =
        |places: &[&str]| places.iter().flat_map(|place| context.login_paths(place)).collect();
    let keys = key_files::find(context, writable);
    let found = |set: &'static CredentialSet| {
        let mut places: Vec<LinkedPath> = paths(set.places);
        if set.name().is_some_and(|name| USERS_OF_KEYS.contains(&name)) {
            places.extend(keys.iter().cloned());
        }
        FoundLogins { set, places, state: paths(set.state) }
    };
    let mut places = context.secret_files(writable);
    places.extend(named_secrets::find(context, writable));
    let named = FoundLogins { set: &UNOWNED_SECRETS, places, state: Vec::new() };
    CREDENTIALS.iter().map(found).chain([named]).collect()
}

/// The login files of programs, except those that the user denied.
pub(super) fn of_programs(found: &[FoundLogins], denied_reads: &[PathBuf]) -> Vec<LoginPlaces> {
    let paths = |places: &[LinkedPath]| {
        let is_open = |path: &&PathBuf| !is_in_any(path, denied_reads);
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_that_variables_point_to_as_secrets_are_closed() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::create_dir(top.join("work")).unwrap();
        for name in ["secret", "program", "work/inside"] {
            fs::write(top.join(name), "x").unwrap();
        }
        fs::set_permissions(top.join("program"), fs::Permissions::from_mode(0o755)).unwrap();
        let is_closed = |variable: &str, file: &str| {
            let environment: [(OsString, OsString); 1] = [(variable.into(), top.join(file).into())];
            let work = top.join("work");
            let context = SandboxContext::new(&work, None, &work, &environment);
            let found = find_all(&context, std::slice::from_ref(&work));
            let mut places = found.iter().flat_map(|login| &login.places);
            places.any(|place| *place.real() == top.join(file))
        };
        for variable in [
            "DB_PASSWORD_FILE",
            "GITHUB_TOKEN_FILE",
            "VAULT_CLIENT_KEY",
            "JWT_PRIVATE_KEY_PATH",
            "MY_CREDENTIALS",
            "app_secret_path",
            "SERVICE_TOKEN",
            "PSQL_HISTORY",
            "KRB5_KTNAME",
        ] {
            assert!(is_closed(variable, "secret"), "{variable}");
        }
        for variable in ["TOKENIZER_PATH", "CONFIG_FILE", "JWT_PUBLIC_KEY_PATH", "BYPASS_FILE"] {
            assert!(!is_closed(variable, "secret"), "{variable}");
        }
        assert!(!is_closed("PASSWORD_FILE", "program"), "a program that asks for a password");
        assert!(!is_closed("PASSWORD_FILE", "work/inside"), "it cannot be closed");
        assert!(!is_closed("PASSWORD_FILE", "missing"));
        assert!(!is_closed("PASSWORD_FILE", "work"));
    }
}
