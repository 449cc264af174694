//! Programs that tests start.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use super::python::search_path;

/// The setting of a hook that is this shell command.
pub(crate) fn script(text: &str) -> Value {
    json!({ "type": "command", "command": text })
}

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

/// The path of an installed program. To look a name up in the PATH of the child, the standard
/// library would fork: the memory map of the test process, which is large, would be copied.
pub(crate) fn installed(name: &str) -> PathBuf {
    which::which_in(name, Some(search_path()), "/").expect("the program is installed")
}
