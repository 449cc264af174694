//! Reads files that may be anything.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;

/// Reads a regular file of at most so many bytes.
///
/// # Errors
/// Those of kind [`Other`](io::ErrorKind::Other) are ours, in words that follow "because".
pub(super) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // A pipe would wait for a writer, and a device may do anything when it is opened.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        return Err(io::Error::other(format!("it is larger than {} kB", most.div_ceil(1024))));
    }
    Ok(content)
}
