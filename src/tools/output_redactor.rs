//! Redacts secrets from a command's output stream.

use crate::secrets::{self, KnownSecrets, Redactor};

/// The redaction state of an output. The model may see keys that it needs for its work; saved
/// output may not contain them.
#[derive(Debug)]
pub(super) struct OutputRedactor {
    shown: secrets::StreamRedactor,
    saved: secrets::StreamRedactor,
}

/// A chunk of output after redaction.
#[derive(Debug)]
pub(super) struct RedactedOutput {
    pub(super) shown: Vec<u8>,
    pub(super) saved: Vec<u8>,
}

impl OutputRedactor {
    pub(super) fn new(secrets: &KnownSecrets) -> Self {
        Self {
            shown: Redactor::for_model(secrets.clone()).stream(),
            saved: Redactor::new(secrets.clone()).stream(),
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> RedactedOutput {
        RedactedOutput { shown: self.shown.push(bytes), saved: self.saved.push(bytes) }
    }

    /// Returns the bytes held back of an output that has ended.
    pub(super) fn finish(&mut self) -> RedactedOutput {
        RedactedOutput { shown: self.shown.finish(), saved: self.saved.finish() }
    }
}
