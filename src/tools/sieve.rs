//! Takes secrets out of a command's output as it comes.

use crate::secrets::{self, KnownSecrets, Mask};

use super::capture::Stream;

/// Masks for both streams: a secret is cut by chunks, and never runs from one stream to the other.
#[derive(Debug)]
pub(super) struct Sieve {
    out: Stages,
    err: Stages,
}

/// What the model is shown may hold keys that it has to work with. What is saved may not.
#[derive(Debug)]
struct Stages {
    shown: secrets::Stream,
    saved: secrets::Stream,
}

/// What is left of some output.
#[derive(Debug)]
pub(super) struct Sifted {
    pub(super) shown: Vec<u8>,
    pub(super) saved: Vec<u8>,
}

impl Sieve {
    pub(super) fn new(secrets: &KnownSecrets) -> Self {
        let stages = || Stages {
            shown: Mask::toward_model(secrets.clone()).stream(),
            saved: Mask::new(secrets.clone()).stream(),
        };
        Self { out: stages(), err: stages() }
    }

    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8]) -> Sifted {
        let stages = self.stages(stream);
        Sifted { shown: stages.shown.push(bytes), saved: stages.saved.push(bytes) }
    }

    /// What was held back of a stream that is over.
    pub(super) fn finish(&mut self, stream: Stream) -> Sifted {
        let stages = self.stages(stream);
        Sifted { shown: stages.shown.finish(), saved: stages.saved.finish() }
    }

    fn stages(&mut self, stream: Stream) -> &mut Stages {
        match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        }
    }
}
