//! Reads files of credentials, which may be pipes, devices or on a disk that hangs.

use super::fault::missing_credential;
use crate::process::file_reads;
use crate::recovery::Fault;

/// Maximum size of a file, in bytes.
pub(super) const FILE_BYTES_MAX: u64 = 8 << 20;

/// Runs a method of an identity that reads files, on a thread for blocking work.
pub(super) async fn unblocked<I: Clone + Send + 'static, T: Send + 'static>(
    identity: &I,
    read: impl FnOnce(&I) -> Result<T, Box<Fault>> + Send + 'static,
) -> Result<T, Box<Fault>> {
    let identity = identity.clone();
    file_reads::unblocked(move || read(&identity)).await.map_err(|error| {
        let message = format!("the files of the cloud's credentials cannot be read: {error}");
        missing_credential("cloud_files_unreadable", message)
    })?
}
