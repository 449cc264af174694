//! Folders for the files of one test.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::sys::statvfs::statvfs;
use tempfile::{Builder, TempDir};

/// Memory that the files of all tests together never fill, in bytes.
const ENOUGH: u64 = 2 << 30;

/// An empty folder. It is in memory where there is enough: a run syncs what it does, and no test
/// asks whether a disk is fast.
pub(crate) fn scratch_folder() -> TempDir {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    let place = PLACE.get_or_init(place);
    // The paths are as long as those in `/tmp`: what a test compares may hold them.
    let random = if place.starts_with("/dev/shm") { 5 } else { 9 };
    let made = Builder::new().prefix("t").rand_bytes(random).tempdir_in(place);
    made.expect("a scratch folder can be made")
}

fn place() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let room = statvfs(memory).map_or(0, |it| it.blocks_available() * it.fragment_size());
    if room >= ENOUGH { memory.to_path_buf() } else { std::env::temp_dir() }
}

/// Writes a file, and makes the folders above it that are missing.
pub(crate) fn write_file(path: &Path, content: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder");
    std::fs::write(path, content).expect("a file can be written");
}

/// The files of a folder and of those below it.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
