//! Files whose content the model has seen.

use serde::{Deserialize, Serialize};

/// The state of a file when the model saw its content. Its mode and link count may change without
/// harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    pub bytes: u64,
    /// Time of the last change, in nanoseconds since 1970. `None`: it is not known.
    pub modified: Option<u64>,
}

/// A file that the model has read or written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFile {
    /// The real path.
    pub path: String,
    /// `None`: what the model knows of the file no longer applies.
    pub stamp: Option<FileStamp>,
}
