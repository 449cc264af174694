//! Sessions that continue in another working directory than the one of their journal. A mark beside
//! the journal, `<session>.moved`, names the new directory. A copy of the mark in the project
//! folder of that directory leads to the journal, which is not moved.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::recorded_folder::recorded_folder;
use crate::process::create_private_folder;

/// The extension of marks.
pub(super) const MOVED: &str = "moved";
/// The extension of a mark that is being written.
const UNFINISHED: &str = "moved-new";

/// Returns the folder that a session works in, as journals record it.
pub(super) fn current_folder(journal: &Path) -> Option<String> {
    marked_folder(journal).or_else(|| recorded_folder(journal))
}

fn marked_folder(journal: &Path) -> Option<String> {
    fs::read_to_string(journal.with_extension(MOVED)).ok()
}

/// Records that a session continues in the working directory `now`, whose project folder is
/// `folder`. A session whose mark cannot be written is found by its id only.
pub(super) fn record_move(journal: &Path, now: &str, folder: &Path) {
    if current_folder(journal).is_none_or(|before| before == now) {
        return;
    }
    remove_marks(journal);
    let mark = journal.with_extension(MOVED);
    let Some(name) = mark.file_name() else { return };
    let _found_by_id = write_mark(&mark, now).and_then(|()| write_mark(&folder.join(name), now));
}

/// Removes the marks of a session from all project folders.
pub(super) fn remove_marks(journal: &Path) {
    let mark = journal.with_extension(MOVED);
    let (Some(name), Ok(_)) = (mark.file_name(), fs::symlink_metadata(&mark)) else { return };
    let projects = journal.parent().and_then(Path::parent).map(fs::read_dir);
    for folder in projects.into_iter().flatten().flatten().flatten() {
        let _none = fs::remove_file(folder.path().join(name));
    }
}

/// Writes a mark atomically.
fn write_mark(path: &Path, folder: &str) -> io::Result<()> {
    let unfinished = path.with_extension(UNFINISHED);
    if let Some(parent) = path.parent() {
        create_private_folder(parent)?;
    }
    let _none = fs::remove_file(&unfinished);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all(folder.as_bytes())?;
    fs::rename(&unfinished, path)
}
