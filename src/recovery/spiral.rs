//! The loop detector.

use serde::{Deserialize, Serialize};

/// Whether the work leads anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    Fresh,
    /// The same again and again: time for a note.
    Repeating,
    /// The same in spite of the note.
    Stuck,
}
