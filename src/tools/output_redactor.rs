//! Redacts secrets from a command's output stream.

use crate::secrets::{self, KnownSecrets, Redactor};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputStream {
    Out,
    Err,
}

/// The redaction state of both streams. A secret may be split between chunks, but not between
/// streams.
#[derive(Debug)]
pub(super) struct OutputRedactor {
    out: RedactionStages,
    err: RedactionStages,
}

/// The model may see keys that it needs for its work; saved output may not contain them.
#[derive(Debug)]
struct RedactionStages {
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
        let stages = || RedactionStages {
            shown: Redactor::for_model(secrets.clone()).stream(),
            saved: Redactor::new(secrets.clone()).stream(),
        };
        Self { out: stages(), err: stages() }
    }

    pub(super) fn push(&mut self, stream: OutputStream, bytes: &[u8]) -> RedactedOutput {
        let stages = self.stages(stream);
        RedactedOutput { shown: stages.shown.push(bytes), saved: stages.saved.push(bytes) }
    }

    /// Returns the bytes held back of a stream that has ended.
    pub(super) fn finish(&mut self, stream: OutputStream) -> RedactedOutput {
        let stages = self.stages(stream);
        RedactedOutput { shown: stages.shown.finish(), saved: stages.saved.finish() }
    }

    fn stages(&mut self, stream: OutputStream) -> &mut RedactionStages {
        match stream {
            OutputStream::Out => &mut self.out,
            OutputStream::Err => &mut self.err,
        }
    }
}
