//! Replaces a login file atomically: at any moment the old or the new login is complete on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use crate::process::sync_folder;

use super::grant::TokenGrant;
use super::login::{Login, REPLACEMENT_SUFFIX, SECTION, append_suffix, read_document};

/// Space that is reserved for new tokens, in bytes: more than any two tokens take.
const ROOM: usize = 16 * 1024;

/// A file that will replace another one. Created before the old token is spent, so that a read-only
/// folder or a full disk is detected in time.
#[derive(Debug)]
pub(super) struct ReplacementFile {
    file: File,
    path: PathBuf,
    target: PathBuf,
}

impl ReplacementFile {
    /// Creates the file and reserves space for its content. The caller holds the lock.
    pub(super) fn prepare(target: &Path) -> io::Result<Self> {
        let before = fs::metadata(target)?;
        let path = append_suffix(target, REPLACEMENT_SUFFIX);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        if file.metadata()?.uid() != before.uid() {
            // After a run as root, the owner must still be able to use the login.
            fchown(&file, Some(before.uid()), Some(before.gid()))?;
        }
        let length = usize::try_from(before.len()).unwrap_or_default().saturating_add(ROOM);
        file.write_all(&vec![b' '; length])?;
        file.sync_all()?;
        Ok(Self { file, path, target: target.to_owned() })
    }

    /// Writes the login with the tokens of `grant`, keeping all other content of the file.
    pub(super) fn commit(self, grant: &TokenGrant, now: SystemTime) -> io::Result<()> {
        // Read again: other programs store other data in the file and ignore our lock.
        let mut document = read_document(&self.target).ok().flatten().unwrap_or_default();
        let mut section = match document.remove(SECTION) {
            Some(Value::Object(section)) => section,
            Some(_) | None => Map::new(),
        };
        write_tokens(&mut section, grant, now);
        document.insert(SECTION.to_owned(), Value::Object(section));
        let mut text = serde_json::to_vec_pretty(&document)?;
        text.push(b'\n');
        self.commit_text(&text)
    }

    /// Writes a whole file.
    pub(super) fn commit_text(mut self, text: &[u8]) -> io::Result<()> {
        self.file.rewind()?;
        self.file.write_all(text)?;
        self.file.set_len(text.len() as u64)?;
        self.file.sync_all()?;
        replace_file(&self.path, &self.target, text)
    }

    /// Removes the replacement file and keeps the login unchanged.
    pub(super) fn abandon(self) {
        // A file that remains holds only blanks, and the next renewal overwrites it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Completes a replacement that a killed process left unfinished: the new login was written but not
/// renamed. A replacement file older than the login is ignored.
pub(super) fn complete_replacement(target: &Path) -> io::Result<()> {
    let path = append_suffix(target, REPLACEMENT_SUFFIX);
    let (Ok(replacement), Ok(current)) = (fs::metadata(&path), fs::metadata(target)) else {
        return Ok(());
    };
    let is_older = replacement.modified()? < current.modified()? && Login::read(target).is_ok();
    if is_older || !matches!(Login::read(&path), Ok(Some(_))) {
        return Ok(());
    }
    replace_file(&path, target, &fs::read(&path)?)
}

fn replace_file(path: &Path, target: &Path, text: &[u8]) -> io::Result<()> {
    if fs::rename(path, target).is_err() {
        // A file that is a mount point cannot be replaced. The replacement file stays until the
        // login is overwritten: `complete_replacement` finds it after an interruption.
        overwrite(target, text)?;
        fs::remove_file(path)?;
    }
    // This makes the rename durable.
    target.parent().map_or(Ok(()), |folder| sync_folder(&File::open(folder)?))
}

fn write_tokens(section: &mut Map<String, Value>, grant: &TokenGrant, now: SystemTime) {
    section.insert("accessToken".to_owned(), grant.access.reveal().into());
    if let Some(refresh) = &grant.refresh {
        section.insert("refreshToken".to_owned(), refresh.reveal().into());
    }
    let end = grant.lifetime.and_then(|lifetime| now.checked_add(lifetime));
    let milliseconds = end
        .and_then(|end| end.duration_since(UNIX_EPOCH).ok())
        .and_then(|since| u64::try_from(since.as_millis()).ok());
    // 0 means an unknown time.
    section.insert("expiresAt".to_owned(), milliseconds.unwrap_or(0).into());
}

fn overwrite(target: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(target)?;
    file.write_all(text)?;
    file.set_len(text.len() as u64)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.sync_all()
}
