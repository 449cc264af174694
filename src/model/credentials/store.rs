//! Puts a new login into its file so that at every moment one of both is whole on the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::grant::TokenGrant;
use super::login::{Login, SECTION, read_document};

/// More than any two tokens take, in bytes.
const ROOM: usize = 16 * 1024;

/// The end of a successor's name.
const REPLACEMENT_SUFFIX: &str = ".new";

/// A file that will replace another one. Made before the old token is spent: a folder that cannot
/// be written to, or a full disk, must not be found out afterwards.
#[derive(Debug)]
pub(super) struct ReplacementFile {
    file: File,
    path: PathBuf,
    target: PathBuf,
}

impl ReplacementFile {
    /// Makes it, with room for what will be in it. The caller holds the lock.
    pub(super) fn prepare(target: &Path) -> io::Result<Self> {
        let before = fs::metadata(target)?;
        let path = append_suffix(target, REPLACEMENT_SUFFIX);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        if file.metadata()?.uid() != before.uid() {
            // Whoever runs this as root wants to use the login as themselves afterwards.
            fchown(&file, Some(before.uid()), Some(before.gid()))?;
        }
        let length = usize::try_from(before.len()).unwrap_or_default().saturating_add(ROOM);
        file.write_all(&vec![b' '; length])?;
        file.sync_all()?;
        Ok(Self { file, path, target: target.to_owned() })
    }

    /// Writes the login as `grant` makes it, and nothing else of the file changes.
    pub(super) fn commit(mut self, grant: &TokenGrant, now: SystemTime) -> io::Result<()> {
        // Read anew: other programs keep other things in the file, and know nothing of our lock.
        let mut document = read_document(&self.target).ok().flatten().unwrap_or_default();
        let mut section = match document.remove(SECTION) {
            Some(Value::Object(section)) => section,
            Some(_) | None => Map::new(),
        };
        write_tokens(&mut section, grant, now);
        document.insert(SECTION.to_owned(), Value::Object(section));
        let mut text = serde_json::to_vec_pretty(&document)?;
        text.push(b'\n');
        self.file.rewind()?;
        self.file.write_all(&text)?;
        self.file.set_len(text.len() as u64)?;
        self.file.sync_all()?;
        replace_file(&self.path, &self.target, &text)
    }

    /// Leaves everything as it was.
    pub(super) fn abandon(self) {
        // It holds nothing but blanks, and the next one overwrites it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Finishes what another process was killed in the middle of: a login that was written whole,
/// but did not get into its place. One that is older than what is there was overtaken.
pub(super) fn complete_replacement(target: &Path) -> io::Result<()> {
    let path = append_suffix(target, REPLACEMENT_SUFFIX);
    let (Ok(left), Ok(there)) = (fs::metadata(&path), fs::metadata(target)) else { return Ok(()) };
    let overtaken = left.modified()? < there.modified()? && Login::read(target).is_ok();
    if overtaken || !matches!(Login::read(&path), Ok(Some(_))) {
        return Ok(());
    }
    replace_file(&path, target, &fs::read(&path)?)
}

/// The login that a process which was killed left next to a file that it left broken.
pub(super) fn read_replacement(target: &Path) -> Option<Login> {
    Login::read(&append_suffix(target, REPLACEMENT_SUFFIX)).ok().flatten()
}

fn replace_file(path: &Path, target: &Path, text: &[u8]) -> io::Result<()> {
    if fs::rename(path, target).is_err() {
        // A file that is mounted on its own cannot be replaced. The successor stays until it was
        // overwritten: `adopt` finds it if that is cut off.
        overwrite(target, text)?;
        fs::remove_file(path)?;
    }
    sync_folder(target)
}

/// A name next to a file's.
pub(super) fn append_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
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
    // 0: nobody knows.
    section.insert("expiresAt".to_owned(), milliseconds.unwrap_or(0).into());
}

fn overwrite(target: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(target)?;
    file.write_all(text)?;
    file.set_len(text.len() as u64)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.sync_all()
}

/// A rename is on the disk when its folder is.
fn sync_folder(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
