//! Reading what may never come: a file may be a pipe whose writer is another program, or lie on a
//! disk that hangs. Nothing is bounded here; but whoever waits learns what it waits for.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is being read now, the oldest first.
static UNDER_WAY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<PathBuf>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What has been read for longest and is not over.
pub fn under_way() -> Option<PathBuf> {
    all().first().cloned()
}

/// One file being read.
struct Note<'a>(&'a Path);

impl<'a> Note<'a> {
    fn take(path: &'a Path) -> Self {
        all().push(path.to_owned());
        Self(path)
    }
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        let mut all = all();
        if let Some(at) = all.iter().position(|path| path == self.0) {
            all.remove(at);
        }
    }
}

/// Reads a whole file.
///
/// # Errors
/// As of [`fs::read`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let _note = Note::take(path);
    fs::read(path)
}

/// Reads a whole text.
///
/// # Errors
/// As of [`fs::read_to_string`].
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let _note = Note::take(path);
    fs::read_to_string(path)
}

/// Reads a file, but no more than `most` bytes of it.
///
/// # Errors
/// It cannot be opened or read.
pub fn read_start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let _note = Note::take(path);
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
