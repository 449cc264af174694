//! File names that are written in another way than the file system has them: invalid UTF-8, whose
//! bytes are written like `\xE9`, and letters and blanks that look the same.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use unicode_normalization::UnicodeNormalization;

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
    find_by(path, is_replaced, |text| {
        move |name| {
            name.to_str().is_none()
                && (shown(Path::new(name)) == text || name.to_string_lossy() == text)
        }
    })
}

/// Replaces each part of a path that `may_differ` and does not exist as written by the only name in
/// its folder that is meant.
fn find_by<'a, M: Fn(&OsStr) -> bool>(
    path: &'a Path,
    may_differ: impl Fn(&str) -> bool,
    is_meant: impl Fn(&'a str) -> M,
) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        let name = part.as_os_str();
        let is_missing = || fs::symlink_metadata(found.join(name)).is_err();
        let other = name.to_str().filter(|text| may_differ(text) && is_missing());
        match other.and_then(|text| only_name(&found, is_meant(text))) {
            Some(real) => found.push(real),
            None => found.push(name),
        }
    }
    found
}

/// The only name in a folder that is meant.
fn only_name(folder: &Path, is_meant: impl Fn(&OsStr) -> bool) -> Option<PathBuf> {
    let names = fs::read_dir(folder).ok()?.take(NAMES_MAX).flatten().map(|entry| entry.file_name());
    let mut meant = names.filter(|name| is_meant(name));
    let first = meant.next()?;
    meant.next().is_none().then(|| first.into())
}

/// Returns the file whose path looks like this one. Macs, archives and Samba decompose letters, and
/// macOS puts narrow blanks into the names of screenshots; models write neither. A name that exists
/// as written, or that looks like those of several files, is taken literally.
pub(super) fn find_alike(path: &Path) -> PathBuf {
    let may_differ = |text: &str| !text.is_ascii() || text.contains(' ');
    if !path.to_str().is_some_and(may_differ) || fs::symlink_metadata(path).is_ok() {
        return path.to_owned();
    }
    find_by(path, may_differ, |text| {
        let wanted = look_of(text);
        move |name| name.to_str().is_some_and(|name| look_of(name) == wanted)
    })
}

/// A form of a name that is the same for names that look the same: composed letters, plain blanks.
pub(super) fn look_of(name: &str) -> String {
    let is_blank = |letter| matches!(letter, '\u{a0}' | '\u{202f}');
    name.nfc().map(|letter| if is_blank(letter) { ' ' } else { letter }).collect()
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

    #[test]
    fn a_name_that_looks_the_same_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (real, written) in [
            ("cafe\u{301}.md", "caf\u{e9}.md"),
            ("\u{1112}\u{1161}\u{11ab}.txt", "\u{d55c}.txt"),
            ("1.02.03\u{202f}PM.png", "1.02.03 PM.png"),
            ("a\u{a0}b.txt", "a b.txt"),
        ] {
            fs::write(path(real), "").unwrap();
            assert_eq!(find_alike(&path(written)), path(real), "{written}");
        }
        fs::create_dir(path("re\u{301}sume\u{301}")).unwrap();
        let (inner, written) =
            (path("re\u{301}sume\u{301}/new.md"), path("r\u{e9}sum\u{e9}/new.md"));
        assert_eq!(find_alike(&written), inner, "the folder, though the file is not there");
        // A name that exists as written, and one with several lookalikes, are taken literally.
        fs::write(path("caf\u{e9}.md"), "").unwrap();
        assert_eq!(find_alike(&path("caf\u{e9}.md")), path("caf\u{e9}.md"));
        fs::write(path("a\u{202f}b.txt"), "").unwrap();
        for name in ["a b.txt", "cafe.md", "other.md"] {
            assert_eq!(find_alike(&path(name)), path(name));
        }
    }
}
