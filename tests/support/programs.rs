//! Programs that tests write and then start.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use nix::sched::{CloneFlags, unshare};

/// Writes a program, and the folder that it is in. The kernel executes no file that is open for
/// writing, and what another test starts meanwhile has copies of all descriptors until it executes
/// its own program. So the file is written by a thread whose descriptors are its own.
pub(crate) fn write_program(path: &Path, text: impl AsRef<[u8]>) {
    let text = text.as_ref();
    let write = || {
        unshare(CloneFlags::CLONE_FILES).expect("a thread may have its own descriptors");
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("it is ours");
    };
    thread::scope(|scope| scope.spawn(write).join()).expect("it is written");
}
