//! The files whose content is in a restored conversation.

use std::collections::BTreeMap;

use crate::types::ReadFile;

use super::parsed_line::{JournalEntry, MessageEntry};
use super::view::JournalView;

/// A view of the records of files.
#[derive(Default)]
struct FilesReadView<'a> {
    /// The id of the last restored message. `None`: all are restored.
    last: Option<&'a str>,
    /// True if the latest message was that one.
    has_passed_end: bool,
    /// True if the messages from here on are not restored.
    is_over: bool,
    /// The latest record of each file.
    files: BTreeMap<&'a str, &'a ReadFile>,
}

impl<'a> JournalView<'a> for FilesReadView<'a> {
    fn message(&mut self, entry: &'a MessageEntry) {
        self.is_over |= self.has_passed_end;
        self.has_passed_end = Some(entry.uuid.as_str()) == self.last;
    }

    fn files_read(&mut self, files: &'a [ReadFile]) {
        if !self.is_over {
            self.files.extend(files.iter().map(|file| (file.path.as_str(), file)));
        }
    }
}

/// Returns the latest state of each file, up to the message `last`.
pub(super) fn files_read(entries: &[JournalEntry], last: Option<&str>) -> Vec<ReadFile> {
    let mut view = FilesReadView { last, ..FilesReadView::default() };
    for entry in entries {
        entry.show(&mut view);
    }
    view.files.into_values().cloned().collect()
}
