//! Text form of file names that are not UTF-8: each invalid byte is written like `\xE9`.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The maximum number of names in a folder that are compared.
const NAMES_MAX: usize = 100_000;

/// Formats a path as text, from which [`find`] finds the file again.
pub(super) fn shown(path: &Path) -> String {
    let mut shown = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        shown.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\x{byte:02X}");
        }
    }
    shown
}

/// Returns the file that a path means. Its names may be written as [`shown`] writes them, or with
/// U+FFFD for invalid UTF-8, as in the output of commands. A name that exists as written, or that
/// fits several files, is taken literally.
pub(super) fn find(path: &Path) -> PathBuf {
    let is_replaced = |text: &str| text.contains('\u{fffd}') || text.contains("\\x");
    if !path.to_str().is_some_and(is_replaced) {
        return path.to_owned();
    }
    let mut found = PathBuf::new();
    for part in path.components() {
        let name = part.as_os_str();
        let is_missing = || fs::symlink_metadata(found.join(name)).is_err();
        let other = name.to_str().filter(|text| is_replaced(text) && is_missing());
        match other.and_then(|text| find_name(&found, text)) {
            Some(real) => found.push(real),
            None => found.push(name),
        }
    }
    found
}

/// Finds the only name in a folder that is not UTF-8 and has this text form.
fn find_name(folder: &Path, text: &str) -> Option<PathBuf> {
    let names = fs::read_dir(folder).ok()?.take(NAMES_MAX).flatten().map(|entry| entry.file_name());
    let is_meant = |name: &OsStr| {
        name.to_str().is_none()
            && (shown(Path::new(name)) == text || name.to_string_lossy() == text)
    };
    let mut meant = names.filter(|name| is_meant(name));
    let first = meant.next()?;
    meant.next().is_none().then(|| first.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_text_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join(OsStr::from_bytes(b"r\xe9sum\xe9"));
        fs::create_dir(&odd).unwrap();
        let file = odd.join(OsStr::from_bytes(b"\xff.txt"));
        fs::write(&file, "").unwrap();
        let text = shown(&file);
        assert!(text.ends_with("/r\\xE9sum\\xE9/\\xFF.txt"), "{text}");
        assert_eq!(find(Path::new(&text)), file);
        assert_eq!(find(Path::new(file.to_string_lossy().as_ref())), file);
        // An ambiguous name is taken literally; the escaped form is unique.
        let twin = odd.join(OsStr::from_bytes(b"\xfe.txt"));
        fs::write(&twin, "").unwrap();
        let unclear = PathBuf::from(file.to_string_lossy().as_ref());
        assert_eq!(find(&unclear).file_name(), unclear.file_name());
        assert_eq!(find(Path::new(&shown(&twin))), twin);
        // A name that exists as it is written is taken literally.
        let literal = odd.join(Path::new("\\xFF.txt"));
        fs::write(&literal, "").unwrap();
        assert_eq!(find(&literal), literal);
        assert_eq!(find(Path::new("/a/\u{fffd}")), Path::new("/a/\u{fffd}"));
    }
}
