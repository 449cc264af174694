//! The login files of programs, which are closed to commands in general.

use std::path::PathBuf;

use super::super::credentials::{CREDENTIALS, CredentialSet, UNOWNED_SECRETS};
use super::super::paths::PathSet;
use super::super::real_paths::LinkedPath;
use super::context::SandboxContext;
use super::denied_paths::is_in_any;
use super::key_files;
use super::login_folders::LoginFolders;
use super::named_secrets;

/// The programs whose settings name further files with keys and passwords.
const USERS_OF_KEYS: [&str; 2] = ["git", "ssh"];

/// The paths of all credentials on this machine, whether or not they exist.
#[derive(Debug, Default)]
pub(super) struct FoundLogins {
    pub(super) folders: LoginFolders,
    /// The paths that variables, settings and the system name, by set.
    named: Vec<(&'static CredentialSet, Vec<LinkedPath>)>,
}

/// The login files of a program that are closed to commands in general.
#[derive(Debug)]
pub(super) struct LoginPlaces {
    pub(super) set: &'static CredentialSet,
    pub(super) places: Vec<PathBuf>,
    /// The files among them that the program also writes to.
    pub(super) state: Vec<PathBuf>,
}

impl FoundLogins {
    /// Finds the paths of all credentials of the table; and outside of the folders that commands may
    /// write to, files with secrets that variables or settings of ssh and git name, or that are
    /// named like such files.
    pub(super) fn find(context: &SandboxContext<'_>, writable: &[PathBuf]) -> Self {
        let keys = key_files::find(context, writable);
        let named = |set: &'static CredentialSet| {
            let places = set.places.iter().filter(|place| place.starts_with(['$', '/']));
            let mut places: Vec<LinkedPath> =
                places.flat_map(|place| context.login_paths(place)).collect();
            if set.name().is_some_and(|name| USERS_OF_KEYS.contains(&name)) {
                places.extend(keys.iter().cloned());
            }
            (set, places)
        };
        let mut others = context.secret_files(writable);
        others.extend(named_secrets::find(context, writable));
        let named = CREDENTIALS.iter().map(named).chain([(&UNOWNED_SECRETS, others)]).collect();
        Self { folders: LoginFolders::find(context), named }
    }

    /// All paths but those of entries in `folders` without links.
    pub(super) fn listed(&self) -> impl Iterator<Item = LinkedPath> {
        let named = self.named.iter().flat_map(|(_, places)| places).cloned();
        self.folders.linked().chain(named)
    }

    /// The login files of programs, except those that the user denied.
    pub(super) fn of_programs(&self, denied_reads: &[PathBuf]) -> Vec<LoginPlaces> {
        let sorted = |paths: Vec<PathBuf>| {
            let open = paths.into_iter().filter(|path| !is_in_any(path, denied_reads));
            open.collect::<PathSet>().into_vec()
        };
        let of_entries = |entries: &'static [&str]| {
            entries.iter().flat_map(|place| self.folders.paths_of(place)).collect::<Vec<_>>()
        };
        let sets = self.named.iter().filter(|(set, _)| set.name().is_some());
        sets.map(|(set, named)| {
            let mut places = of_entries(set.places);
            places.extend(named.iter().flat_map(LinkedPath::both).cloned());
            LoginPlaces { set, places: sorted(places), state: sorted(of_entries(set.state)) }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::super::super::paths::resolve;
    use super::super::denied_paths::DeniedPaths;
    use super::*;

    /// A login may be created, and a link followed, while a command runs.
    #[test]
    fn logins_are_denied_by_each_path_whether_or_not_they_exist() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        for name in ["home/.aws", "home/.local", "moved", "keys", "data"] {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        symlink(top.join("moved"), top.join("home/.config")).unwrap();
        symlink(top.join("keys"), top.join("home/.ssh")).unwrap();
        symlink(top.join("keys"), top.join("data/hub")).unwrap();
        symlink(top.join("home"), top.join("link")).unwrap();
        for (home, allowed) in [("home", vec![top.join("home/.aws")]), ("link", vec![])] {
            let home = top.join(home);
            let environment: [(OsString, OsString); 1] =
                [("XDG_DATA_HOME".into(), top.join("data").into())];
            let context = SandboxContext::new(&top, Some(&home), &top, &environment);
            let found = FoundLogins::find(&context, &[]);
            let folders = &found.folders.real;
            let (denied, real) = DeniedPaths::new(found.listed(), folders, &allowed, vec![]);
            let closed: HashSet<PathBuf> = denied.entries_in(Path::new("/")).chain(real).collect();
            let all: HashSet<PathBuf> = denied.all_in(Path::new("/")).collect();
            let entries = CREDENTIALS.iter().flat_map(|set| set.places);
            let mut paths =
                entries.flat_map(|place| found.folders.paths_of(place)).collect::<Vec<_>>();
            assert!(paths.contains(&home.join(".ssh")) && paths.contains(&top.join("keys")));
            assert!(paths.contains(&top.join("moved/gh")), "{paths:?}");
            paths.extend([".netrc", ".config/gh"].map(|name| home.join(name)));
            for path in paths {
                let is_allowed = is_in_any(&path, &allowed);
                assert_eq!(denied.contains(&path), !is_allowed, "{path:?}");
                assert_eq!(closed.contains(&resolve(&path)), !is_allowed, "{path:?}");
                assert_eq!(all.contains(&path), !is_allowed, "{path:?}");
            }
            assert!(!denied.contains(&home) && !denied.contains(&home.join(".profile")));
        }
    }

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
            let found = FoundLogins::find(&context, std::slice::from_ref(&work));
            found.listed().any(|place| *place.real() == top.join(file))
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
