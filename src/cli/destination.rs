//! The destination of the document that a command writes: `--output`.

use std::io::{self, Write};
use std::path::Path;

use super::output::TerminalFilter;
use super::output_file::{OutputFile, Readers, ResultRetention, STANDARD_OUTPUT};
use super::stdout::is_reader_gone;
use super::usage::{UsageError, UsageErrorKind};

/// The destination of a document: standard output or a file.
pub(super) enum Destination {
    StandardOutput,
    File(OutputFile, Readers),
}

/// Failure of reading or writing a document.
pub(super) enum DocumentError {
    /// The source of the document could not be read.
    Source(UsageError),
    Write(io::Error),
}

impl From<io::Error> for DocumentError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

impl Destination {
    /// Opens the destination that `--output` names, or standard output. Called before the work, so
    /// that a mistake in the name is reported at once.
    ///
    /// # Errors
    /// It cannot be written, or must not be replaced.
    pub(super) fn open(
        output: Option<&Path>,
        cwd: &Path,
        readers: Readers,
    ) -> Result<Self, UsageError> {
        let is_file = |path: &&Path| STANDARD_OUTPUT.iter().all(|name| *path != Path::new(name));
        let Some(path) = output.filter(is_file) else { return Ok(Self::StandardOutput) };
        let opened = OutputFile::open(&cwd.join(path));
        opened
            .map(|file| Self::File(file, readers))
            .map_err(|error| UsageError::new(format!("--output {}: {error}", path.display())))
    }

    /// Writes a text.
    ///
    /// # Errors
    /// It could not be written.
    pub(super) fn write_text(&self, text: &str) -> Result<(), UsageError> {
        self.write(|out| Ok(out.write_all(text.as_bytes())?))
    }

    /// Writes a document in pieces of whole characters. A file is replaced in one step, so that its
    /// readers never see a part of the document. A closed standard output is not an error.
    ///
    /// # Errors
    /// The document could not be read or written.
    pub(super) fn write(
        &self,
        document: impl FnOnce(&mut dyn Write) -> Result<(), DocumentError>,
    ) -> Result<(), UsageError> {
        match self {
            Self::StandardOutput => {
                let mut out = TerminalFilter::new(io::stdout().lock());
                let written = document(&mut out).and_then(|()| Ok(out.flush()?));
                match written {
                    Err(DocumentError::Write(error)) if is_reader_gone(&error) => Ok(()),
                    Err(DocumentError::Write(error)) => Err(UsageError::unwritable(&error)),
                    Err(DocumentError::Source(error)) => Err(error),
                    Ok(()) => Ok(()),
                }
            }
            Self::File(file, readers) => {
                let failed = |error: anyhow::Error| {
                    let what = format!("--output {}: {error:#}", file.path().display());
                    UsageError::of(UsageErrorKind::Internal, what)
                };
                let mut staged = file.begin(*readers).map_err(failed)?;
                document(&mut staged).map_err(|error| match error {
                    DocumentError::Write(error) => {
                        failed(anyhow::Error::new(error).context("the write failed"))
                    }
                    DocumentError::Source(error) => error,
                })?;
                let retention = ResultRetention::Synced;
                let published = staged.sync(retention).and_then(|()| staged.publish(retention));
                published.map_err(failed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_standard_output_is_not_a_file_and_a_device_is_refused() {
        // Files are only created when something is written.
        let open =
            |name: &str| Destination::open(Some(Path::new(name)), Path::new("/"), Readers::Owner);
        for name in STANDARD_OUTPUT {
            assert!(matches!(open(name), Ok(Destination::StandardOutput)), "{name}");
        }
        let refused = open("/dev/null").err().map(|error| error.to_string());
        let expected = "--output /dev/null: is a device or a pipe; name a regular file";
        assert_eq!(refused.as_deref(), Some(expected));
    }
}
