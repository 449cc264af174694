//! The atomic replacement of files.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::fs::llistxattr;
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::paths::{open_or_create_folder, path_of_open};

/// The maximum size of the names of a file's extended attributes that are examined, in bytes.
const ATTRIBUTE_NAMES_MAX: usize = 4_096;

/// Replaces a file atomically, keeping its mode and owner.
///
/// # Errors
/// System errors, or the run is being cancelled; then nothing has changed.
pub(super) fn replace_atomically(
    path: &Path,
    content: &[u8],
    existing: Option<&Metadata>,
    cancel: &CancellationToken,
) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("it has no parent folder"))?;
    let held = open_or_create_folder(folder)?;
    let folder = &*path_of_open(&held, folder);
    let path = &folder.join(path.file_name().unwrap_or_default());
    // The metadata of the file that is there now: a command may have replaced the one that was
    // checked.
    let existing = existing.map(|_| fs::symlink_metadata(path)).transpose()?;
    if let Some(metadata) = &existing {
        // A rename would succeed even on a file without write permission.
        writable().open(path)?;
        if metadata.nlink() > 1 || has_attributes(path) {
            return overwrite(path, content, cancel);
        }
    }
    let mode = existing.as_ref().map_or(0o666, |metadata| metadata.mode() & 0o7777);
    let beside = tempfile::Builder::new()
        .prefix(".outlast-")
        .permissions(Permissions::from_mode(if existing.is_some() { 0o600 } else { mode }))
        .tempfile_in(folder);
    let mut beside = match (beside, &existing) {
        (Ok(beside), _) => beside,
        // The folder may not be writable although the file is.
        (Err(_), Some(_)) => return overwrite(path, content, cancel),
        // The library's message names the path by number.
        (Err(error), None) => return Err(error.kind().into()),
    };
    beside.as_file_mut().write_all(content)?;
    if let Some(metadata) = &existing
        && (!can_set_owner(beside.path(), metadata) || !can_set_mode(beside.as_file(), mode))
    {
        return overwrite(path, content, cancel);
    }
    stop_if_cancelled(cancel)?;
    match beside.persist(path) {
        Ok(_) => Ok(()),
        // The file itself is a mount point, as containers have it.
        Err(failed) if failed.error.raw_os_error() == Some(nix::libc::EBUSY) => {
            overwrite(path, content, cancel)
        }
        Err(failed) => Err(failed.error),
    }
}

/// True if a file has extended attributes that a new file would not have: those of the user, and
/// access lists.
fn has_attributes(path: &Path) -> bool {
    let is_lost = |name: &[u8]| name.starts_with(b"user.") || name.starts_with(b"system.posix_acl");
    let mut names = Vec::with_capacity(ATTRIBUTE_NAMES_MAX);
    match llistxattr(path, spare_capacity(&mut names)) {
        Ok(_) => names.split(|byte| *byte == 0).any(is_lost),
        Err(error) => error == Errno::RANGE,
    }
}

fn can_set_owner(path: &Path, wanted: &Metadata) -> bool {
    let same =
        fs::metadata(path).is_ok_and(|own| own.uid() == wanted.uid() && own.gid() == wanted.gid());
    same || std::os::unix::fs::chown(path, Some(wanted.uid()), Some(wanted.gid())).is_ok()
}

/// Sets the mode of a file. File systems such as CIFS and exFAT give all files one mode, and let
/// only one user set it.
fn can_set_mode(file: &File, mode: u32) -> bool {
    let same = file.metadata().is_ok_and(|own| own.mode() & 0o7777 == mode);
    same || file.set_permissions(Permissions::from_mode(mode)).is_ok()
}

/// Writes in place, if a rename would break hard links or change the owner.
///
/// The part beyond the former end is written first: if the disk is full, the file is as before.
fn overwrite(path: &Path, content: &[u8], cancel: &CancellationToken) -> io::Result<()> {
    stop_if_cancelled(cancel)?;
    let file = writable().open(path)?;
    let former = file.metadata()?.len();
    let (head, beyond) = content.split_at(
        usize::try_from(former).map_or(content.len(), |former| former.min(content.len())),
    );
    if let Err(error) = file.write_all_at(beyond, former) {
        file.set_len(former)?;
        return Err(error);
    }
    file.write_all_at(head, 0)?;
    file.set_len(content.len() as u64)
}

/// Options that neither follow a link nor block on a pipe.
fn writable() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK);
    options
}

fn stop_if_cancelled(cancel: &CancellationToken) -> io::Result<()> {
    if cancel.is_cancelled() {
        return Err(io::Error::other("interrupted; nothing was changed"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nix::fcntl::OFlag;
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};

    use super::super::paths::open_real;
    use super::*;

    #[test]
    fn write_does_not_follow_a_link_that_replaced_a_folder() {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().canonicalize().unwrap();
        let (inside, outside) = (real.join("work/sub"), real.join("outside"));
        fs::create_dir_all(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        let cancel = CancellationToken::new();
        let write = |name: &str| replace_atomically(&inside.join(name), b"one", None, &cancel);
        for name in ["a", "b/a", "c/d/e/f", "b/c/a"] {
            write(name).unwrap();
            assert_eq!(fs::read(inside.join(name)).unwrap(), b"one");
        }
        fs::write(outside.join("secret"), "secret").unwrap();
        // The path was resolved before; now a command puts a link at a place of it.
        let there = outside.join("there");
        for (link, to) in [
            ("", &outside),
            ("b", &outside),
            ("b/c", &outside),
            ("new", &outside),
            ("new", &there),
            ("b/new", &there),
            ("c/d/e", &outside),
        ] {
            let link = if link.is_empty() { inside.clone() } else { inside.join(link) };
            let away = real.join("away");
            let was_there = fs::rename(&link, &away).is_ok();
            std::os::unix::fs::symlink(to, &link).unwrap();
            for name in ["a", "b/a", "b/c/a", "b/c/n", "new/a", "new/x/y/a", "b/new/x/a", "c/d/e/f"]
            {
                let path = inside.join(name);
                if path.starts_with(&link) {
                    let refused = write(name).unwrap_err();
                    assert!(
                        refused.to_string().contains("a link has taken its place"),
                        "{refused}"
                    );
                }
            }
            assert!(open_real(&link.join("secret"), OFlag::O_RDONLY).is_err());
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{}", link.display());
            fs::remove_file(&link).unwrap();
            if was_there {
                fs::rename(&away, &link).unwrap();
            }
        }
    }

    #[test]
    fn a_file_that_is_a_mount_point_is_overwritten() {
        let root = tempfile::tempdir().unwrap();
        let (path, twin) = (root.path().join("file"), root.path().join("twin"));
        fs::write(&path, "old").unwrap();
        fs::write(&twin, "twin").unwrap();
        let cancel = CancellationToken::new();
        let in_own_mounts = || {
            if unshare(CloneFlags::CLONE_NEWNS).is_err() {
                eprintln!("WARNING: no mount namespace may be made: the mount point is not tried");
                return false;
            }
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none).unwrap();
            mount(Some(&twin), &path, none, MsFlags::MS_BIND, none).unwrap();
            let facts = fs::metadata(&path).unwrap();
            replace_atomically(&path, b"new", Some(&facts), &cancel).unwrap();
            true
        };
        let before = fs::metadata(&twin).unwrap().ino();
        // Only this thread has the namespace.
        let is_tried = std::thread::scope(|scope| scope.spawn(in_own_mounts).join().unwrap());
        assert_eq!(fs::metadata(&twin).unwrap().ino(), before);
        assert_eq!(fs::read(&twin).unwrap() == b"new", is_tried);
        assert_eq!(fs::read(&path).unwrap(), b"old", "the mount is over it");
    }

    #[test]
    fn a_file_that_is_written_in_place_on_a_full_disk_keeps_its_text() {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().to_owned();
        let on_a_full_disk = move || {
            if unshare(CloneFlags::CLONE_NEWNS).is_err() {
                eprintln!("WARNING: no mount namespace may be made: the full disk is not tried");
                return;
            }
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none).unwrap();
            mount(none, &disk, Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
            let (path, filler) = (disk.join("file"), disk.join("filler"));
            let (text_before, filling) = ("old line\n".repeat(1_000), 40 << 10);
            fs::write(&path, &text_before).unwrap();
            fs::hard_link(&path, disk.join("twin")).unwrap();
            fs::write(&filler, vec![b'x'; filling]).unwrap();
            let facts = fs::metadata(&path).unwrap();
            let cancel = CancellationToken::new();
            let write =
                |text: &str| replace_atomically(&path, text.as_bytes(), Some(&facts), &cancel);
            let full = write(&"new line\n".repeat(4_000)).unwrap_err();
            assert_eq!(full.kind(), io::ErrorKind::StorageFull);
            assert_eq!(fs::read_to_string(&path).unwrap(), text_before);
            fs::remove_file(filler).unwrap();
            for lines in [4_000, 1, 0] {
                let new = "new line\n".repeat(lines);
                write(&new).unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), new);
            }
        };
        // Only this thread has the namespace.
        std::thread::scope(|scope| scope.spawn(on_a_full_disk).join().unwrap());
    }

    #[test]
    fn a_mode_is_not_set_where_it_is_right_already() {
        // Nothing in this folder can be changed, as on a file system with one mode for all files.
        let file = File::open("/proc/self/stat").unwrap();
        let mode = file.metadata().unwrap().mode() & 0o7777;
        assert!(can_set_mode(&file, mode));
        assert!(!can_set_mode(&file, mode ^ 0o111));
    }

    #[test]
    fn mode_and_owner_of_a_replaced_file_are_those_of_the_file_that_is_there() {
        let root = tempfile::tempdir().unwrap();
        let (checked, there) = (root.path().join("checked"), root.path().join("there"));
        for (path, mode) in [(&checked, 0o4755), (&there, 0o640)] {
            fs::write(path, "x").unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let metadata = fs::metadata(&checked).unwrap();
        let never = CancellationToken::new();
        replace_atomically(&there.canonicalize().unwrap(), b"y", Some(&metadata), &never).unwrap();
        assert_eq!(fs::metadata(&there).unwrap().mode() & 0o7777, 0o640);
    }
}
