//! Finds programs on `PATH`, except those that a checkout or a command of a run can have put there.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat, geteuid};

/// The default `PATH`.
const USUAL: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the absolute folders of a `PATH`, or the default folders if there are none. Relative
/// folders (`.`, `bin`, an empty one) depend on the working folder, so files of a repository could
/// be run.
pub fn absolute_path(path: Option<&OsStr>) -> OsString {
    let folders = path.map(env::split_paths).into_iter().flatten();
    let absolute = env::join_paths(folders.filter(|folder| folder.is_absolute()));
    let absolute = absolute.expect("folders that were split at colons contain none");
    if absolute.is_empty() { USUAL.into() } else { absolute }
}

/// Finds the first of these programs on a `PATH`, outside `cwd` and the checkout that contains it.
/// Inside them (`cwd` may be `/`), finds programs only in folders to which neither a checkout nor a
/// command of a run can add files.
pub fn find_program(names: &[&str], path: &OsStr, cwd: &Path) -> Option<PathBuf> {
    let tree = working_tree(cwd);
    let folders = folders(path);
    names.iter().find_map(|name| {
        let found: Vec<PathBuf> = all_named(name, &folders).collect();
        let is_outside = |found: &&PathBuf| {
            let real = real_folder(found);
            tree.as_ref().is_none_or(|tree| !real.starts_with(tree))
        };
        let is_closed = |found: &&PathBuf| {
            tree.as_ref().is_some_and(|tree| is_closed_folder(&real_folder(found), found, tree))
        };
        found.iter().find(is_outside).or_else(|| found.iter().find(is_closed)).cloned()
    })
}

/// Finds a program that runs as a program of the user. [`UserPrograms`](super::UserPrograms)
/// confines it if commands can change it, so in a folder that contains the home folder, and
/// therefore cannot be a checkout, all of `PATH` is searched.
pub fn find_user_program(
    name: &str,
    path: &OsStr,
    cwd: &Path,
    home: Option<&OsStr>,
) -> Option<PathBuf> {
    let contains_home = working_tree(cwd).is_some_and(|tree| {
        let home = home.and_then(|home| fs::canonicalize(home).ok());
        tree.parent().is_none() || home.is_some_and(|home| home.starts_with(tree))
    });
    if contains_home {
        return all_named(name, &folders(path)).next();
    }
    find_program(&[name], path, cwd)
}

/// Returns the root of the git checkout that contains a folder. `None` if it is in none.
pub fn checkout_root(folder: &Path) -> Option<&Path> {
    // A dangling link counts, too, so that a checkout cannot hide.
    folder.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok())
}

/// The folders of a run that commands can write to: the git checkout that contains its working
/// folder, or else that folder.
fn working_tree(cwd: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(cwd).ok()?;
    Some(checkout_root(&real).unwrap_or(&real).to_path_buf())
}

/// The program of this name that [`find_program`] found but did not take.
pub fn skipped_program(name: &str, path: &OsStr) -> Option<PathBuf> {
    all_named(name, &folders(path)).next()
}

/// The folders of a `PATH`, each once.
fn folders(path: &OsStr) -> Vec<PathBuf> {
    let path = absolute_path(Some(path));
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in env::split_paths(&path) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// The programs of a name, in the order of the folders.
fn all_named<'a>(name: &'a str, folders: &'a [PathBuf]) -> impl Iterator<Item = PathBuf> + 'a {
    folders.iter().filter_map(move |folder| which::which_in(name, Some(folder), "/").ok())
}

/// The real folder of a program.
fn real_folder(program: &Path) -> PathBuf {
    let folder = program.parent().unwrap_or(program);
    fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf())
}

/// Returns true if neither a checkout nor a command of a run in `tree` can have put a program into
/// a folder inside `tree`: the user cannot write to it, and it is in no git checkout. Root can
/// write everywhere, so for root these are the usual folders of programs.
fn is_closed_folder(folder: &Path, program: &Path, tree: &Path) -> bool {
    let is_usual =
        env::split_paths(USUAL).any(|usual| fs::canonicalize(usual).is_ok_and(|it| it == folder));
    if geteuid().is_root() {
        return is_usual;
    }
    let Ok(real) = fs::canonicalize(program) else { return false };
    let on_the_way = folder.ancestors().chain(real.ancestors());
    !on_the_way.filter(|it| it.starts_with(tree)).any(is_writable)
        && (is_usual || checkout_root(folder).is_none())
}

/// Returns true if the user can change a path, or its permissions.
fn is_writable(path: &Path) -> bool {
    let is_own = fs::metadata(path).is_ok_and(|facts| facts.uid() == geteuid().as_raw());
    is_own || faccessat(AT_FDCWD, path, AccessFlags::W_OK, AtFlags::AT_EACCESS).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(folder: &Path, name: &str) -> PathBuf {
        fs::create_dir_all(folder).expect("a folder");
        fs::write(folder.join(name), "#!/bin/sh\n").expect("a file");
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755))
            .expect("its mode");
        folder.join(name)
    }

    #[test]
    fn programs_of_the_system_are_found_in_every_folder_and_own_ones_only_for_the_user() {
        let scratch = tempfile::tempdir().expect("a folder");
        let home = fs::canonicalize(scratch.path()).expect("it is there");
        let own = program(&home.join(".local/bin"), "sh");
        let path = env::join_paths([own.parent().expect("a folder"), Path::new("/usr/bin")]);
        let path = path.expect("no colons");
        let above = home.parent().expect("a folder");
        for tree in ["/", "/usr", "/usr/bin"].map(Path::new) {
            let usual = find_program(&["sh"], OsStr::new("/usr/bin"), tree);
            assert_eq!(usual, Some("/usr/bin/sh".into()), "{tree:?}");
        }
        for tree in [Path::new("/"), above, &home] {
            assert_eq!(find_program(&["sh"], &path, tree), Some("/usr/bin/sh".into()), "{tree:?}");
            let of_user = find_user_program("sh", &path, tree, Some(home.as_os_str()));
            assert_eq!(of_user.as_ref(), Some(&own), "{tree:?}");
        }
        fs::create_dir_all(home.join("sub/deep")).expect("a folder");
        let deep = home.join("sub/deep");
        assert_eq!(find_program(&["sh"], &path, &deep).as_ref(), Some(&own), "beside it");
        fs::create_dir(home.join(".git")).expect("a folder");
        assert_eq!(find_program(&["sh"], &path, &deep), Some("/usr/bin/sh".into()), "its checkout");
        let of_user = find_user_program("sh", &path, &deep, Some(home.as_os_str()));
        assert_eq!(of_user.as_ref(), Some(&own), "a home folder that is a checkout");
        fs::remove_dir(home.join(".git")).expect("it is there");
        let below = home.join(".local");
        let of_user = find_user_program("sh", &path, &below, Some(home.as_os_str()));
        assert_eq!(of_user, Some("/usr/bin/sh".into()), "a checkout in the home folder");
        let alone = own.parent().expect("a folder").as_os_str();
        assert_eq!(find_program(&["sh"], alone, &home), None);
        assert_eq!(skipped_program("sh", alone), Some(own));
    }
}
