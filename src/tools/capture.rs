//! Captures a command's output in bounded memory: head and tail in memory, the whole in a file.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::fs::{DirBuilder, File};
use tokio::io::AsyncWriteExt;
use tokio::sync::OnceCell;

use crate::process::HeldFolder;
use crate::secrets::{KnownSecrets, Redactor, StreamRedactor};

use super::background::LiveOutput;
use super::head_and_tail::HeadAndTail;
use super::text;

/// The maximum size of one command's output on disk, in bytes.
const SPILL_BYTES_MAX: u64 = 64 << 20;

/// The maximum size of all outputs of a session on disk, in bytes.
const SESSION_BYTES_MAX: u64 = 512 << 20;

/// The folder for long outputs, and the space left in it.
#[derive(Debug)]
pub(super) struct OutputFolder {
    folder: PathBuf,
    /// Opened only once: commands write there too, and might replace the folder by a symbolic link.
    held: OnceCell<Result<HeldFolder, FolderError>>,
    secrets: KnownSecrets,
    used: AtomicU64,
    files: AtomicU64,
}

/// The error when the folder cannot be used. Opening is not retried: a command may have created one
/// by then.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct FolderError(Arc<io::Error>);

impl From<io::Error> for FolderError {
    fn from(error: io::Error) -> Self {
        Self(Arc::new(error))
    }
}

impl OutputFolder {
    /// Creates an output folder. `secrets` are redacted from both saved and shown output.
    pub(super) fn new(folder: &Path, secrets: &KnownSecrets) -> Arc<Self> {
        Arc::new(Self {
            folder: folder.to_path_buf(),
            held: OnceCell::new(),
            secrets: secrets.clone(),
            used: AtomicU64::new(0),
            files: AtomicU64::new(0),
        })
    }

    /// Reserves up to `wanted` bytes of the session's disk space. Returns the number of reserved
    /// bytes.
    fn reserve(&self, wanted: u64) -> u64 {
        let room = |used: u64| wanted.min(SESSION_BYTES_MAX.saturating_sub(used));
        let before = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(used + room(used)));
        // The update closure always returns `Some`.
        room(before.unwrap_or_else(|used| used))
    }

    /// Creates the folder and holds it open. Call it before a command starts: later there may be a
    /// link in its place.
    pub(super) async fn hold(&self) -> Result<&HeldFolder, FolderError> {
        let open = || async {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).await?;
            Ok(HeldFolder::open(&self.folder)?)
        };
        self.held.get_or_init(open).await.as_ref().map_err(Clone::clone)
    }

    /// Creates an empty file, and its folder if needed. Both are accessible to their owner only.
    pub(super) async fn create(&self, kind: &str) -> io::Result<(PathBuf, File)> {
        let held = self.hold().await.map_err(io::Error::other)?;
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("{kind}-{number}-{}", &unique[..8]);
        let file = held.create_new(OsStr::new(&name), 0o600)?;
        Ok((self.folder.join(name), File::from_std(file)))
    }

    /// Saves complete content to a file.
    pub(super) async fn keep(&self, kind: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        let length = bytes.len() as u64;
        if length > SPILL_BYTES_MAX || self.reserve(length) < length {
            return Err(io::Error::other("the session has saved too much already"));
        }
        let (path, mut file) = self.create(kind).await?;
        file.write_all(bytes).await?;
        file.flush().await?;
        Ok(path)
    }
}

/// One command's output, as it was written.
#[derive(Debug)]
pub(super) struct OutputCapture {
    ends: HeadAndTail,
    limit: usize,
    /// Redacts the shown output. The model may see keys that it needs for its work.
    for_model: StreamRedactor,
    /// Redacts the saved output, which may contain no keys.
    for_file: StreamRedactor,
    scratch: Arc<OutputFolder>,
    spill: SpillFile,
    /// The reader of a background command's output, if there is one.
    live: Option<Arc<LiveOutput>>,
}

#[derive(Debug)]
enum SpillFile {
    /// Short so far: kept in memory.
    Short(Vec<u8>),
    File {
        path: PathBuf,
        file: File,
        written: u64,
    },
    /// The file has reached its size limit, or that of the session.
    Full {
        path: PathBuf,
        file: File,
    },
    Failed(io::Error),
}

/// A command's captured output, ready to be shown.
#[derive(Debug)]
pub(super) struct CapturedOutput {
    pub(super) text: String,
    /// The file with the whole output, if only a part of it is shown.
    pub(super) file: Option<PathBuf>,
    pub(super) bytes: u64,
}

impl OutputCapture {
    pub(super) fn new(limit: usize, scratch: Arc<OutputFolder>) -> Self {
        Self {
            ends: HeadAndTail::showing(limit),
            limit,
            for_model: Redactor::for_model(scratch.secrets.clone()).stream(),
            for_file: Redactor::new(scratch.secrets.clone()).stream(),
            scratch,
            spill: SpillFile::Short(Vec::new()),
            live: None,
        }
    }

    /// Passes output to `live` as it arrives, for readers before the command ends.
    pub(super) fn with_live_output(&mut self, live: Arc<LiveOutput>) {
        self.live = Some(live);
    }

    pub(super) async fn push(&mut self, bytes: &[u8]) {
        let (shown, saved) = (self.for_model.push(bytes), self.for_file.push(bytes));
        self.save_chunk(&shown, &saved).await;
    }

    async fn save_chunk(&mut self, shown: &[u8], bytes: &[u8]) {
        self.ends.push(shown);
        if let Some(live) = &self.live {
            live.push(shown);
        }
        self.spill = match std::mem::replace(&mut self.spill, SpillFile::Short(Vec::new())) {
            SpillFile::Short(mut all) => {
                all.extend_from_slice(bytes);
                if all.len() > self.limit {
                    self.begin_file(&all).await
                } else {
                    SpillFile::Short(all)
                }
            }
            SpillFile::File { path, file, written } => self.add(path, file, written, bytes).await,
            SpillFile::Full { path, file } => SpillFile::Full { path, file },
            SpillFile::Failed(error) => SpillFile::Failed(error),
        };
    }

    async fn begin_file(&self, all: &[u8]) -> SpillFile {
        match self.scratch.create("output").await {
            Ok((path, file)) => {
                if let Some(live) = &self.live {
                    live.set_file(path.clone());
                }
                self.add(path, file, 0, all).await
            }
            Err(error) => SpillFile::Failed(error),
        }
    }

    async fn add(&self, path: PathBuf, mut file: File, written: u64, bytes: &[u8]) -> SpillFile {
        let room = (SPILL_BYTES_MAX - written).min(bytes.len() as u64);
        let taken = usize::try_from(self.scratch.reserve(room)).unwrap_or(usize::MAX);
        if let Err(error) = file.write_all(&bytes[..taken]).await {
            return SpillFile::Failed(error);
        }
        if taken < bytes.len() {
            SpillFile::Full { path, file }
        } else {
            SpillFile::File { path, file, written: written + taken as u64 }
        }
    }

    /// Ends the capture: no more output follows.
    pub(super) async fn finish(mut self) -> CapturedOutput {
        // The redactors hold back bytes in which a secret may begin.
        let (shown, saved) = (self.for_model.finish(), self.for_file.finish());
        self.save_chunk(&shown, &saved).await;
        // Output with NUL characters or binary data is not shown byte for byte, so it is saved in
        // full.
        if let SpillFile::Short(all) = &mut self.spill
            && (all.contains(&0) || text::is_binary(all))
        {
            let all = std::mem::take(all);
            self.spill = self.begin_file(&all).await;
        }
        let (file, place) = match &mut self.spill {
            SpillFile::Short(_) => (None, String::new()),
            SpillFile::File { path, file, .. } => match file.flush().await {
                Ok(()) if tokio::fs::try_exists(&path).await.is_ok_and(|there| !there) => {
                    (None, "; the file with the complete output was deleted".to_string())
                }
                Ok(()) => (Some(path.clone()), format!("; all of it is in {}", path.display())),
                Err(error) => (None, format!("; it could not be saved: {error}")),
            },
            SpillFile::Full { path, file } => {
                let flushed = file.flush().await;
                let share = flushed.map_or("a part", |()| "its first part");
                (Some(path.clone()), format!("; {share} is in {}", path.display()))
            }
            SpillFile::Failed(error) => (None, format!("; it could not be saved: {error}")),
        };
        CapturedOutput { text: self.ends.show(self.limit, &place), bytes: self.ends.total, file }
    }
}
