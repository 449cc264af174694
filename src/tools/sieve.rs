//! Takes secrets out of a command's output as it comes.

use crate::secrets::{self, KnownSecrets, Redactor};

use super::capture::OutputStream;

/// Masks for both streams: a secret is cut by chunks, and never runs from one stream to the other.
#[derive(Debug)]
pub(super) struct OutputRedactor {
    out: RedactionStages,
    err: RedactionStages,
}

/// What the model is shown may hold keys that it has to work with. What is saved may not.
#[derive(Debug)]
struct RedactionStages {
    shown: secrets::StreamRedactor,
    saved: secrets::StreamRedactor,
}

/// What is left of some output.
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

    /// What was held back of a stream that is over.
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
