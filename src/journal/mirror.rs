//! Copies of journal lines for another program that keeps the session too.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::json;

/// Members that copies omit, because they belong to the file rather than to the line: a copy may be
/// written in another form and order.
const OF_THE_FILE: [&str; 2] = ["seq", "crc"];

type Receiver = dyn Fn(&Path, Value) + Send + Sync;

/// Receives each line that was appended to a file of the session. Clones share it.
#[derive(Clone)]
pub struct JournalMirror(Arc<Receiver>);

impl JournalMirror {
    pub fn new(receive: impl Fn(&Path, Value) + Send + Sync + 'static) -> Self {
        Self(Arc::new(receive))
    }

    /// Passes on a line, without its number and checksum.
    pub(super) fn copy(&self, path: &Path, line: &[u8]) {
        // Everything that is appended is an object, or the newline of one.
        let Ok(Value::Object(mut entry)) = json::read(line) else { return };
        for member in OF_THE_FILE {
            entry.remove(member);
        }
        (self.0)(path, Value::Object(entry));
    }

    /// Passes on the metadata of a sub-agent as a line of its journal: a copy has no file beside
    /// it.
    pub(super) fn copy_metadata(&self, journal: &Path, metadata: &[u8]) {
        let Ok(Value::Object(mut entry)) = json::read(metadata) else { return };
        entry.insert("type".to_owned(), Value::from("agent_metadata"));
        (self.0)(journal, Value::Object(entry));
    }
}

impl fmt::Debug for JournalMirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JournalMirror")
    }
}
