//! The scratch folder of a rehearsal.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::scenario::Scenario;
use super::server::RehearsalServer;

/// A temporary folder with a scenario's files. Removed when dropped.
#[derive(Debug)]
pub struct ScratchFolder {
    folder: tempfile::TempDir,
}

impl ScratchFolder {
    /// Creates the folder with the scenario's files.
    ///
    /// # Errors
    /// The folder or a file cannot be written.
    pub fn create(scenario: &Scenario) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("outlast-rehearsal-").tempdir()?;
        for (path, file) in &scenario.files {
            let path = folder.path().join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&path, &file.content)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
        }
        Ok(Self { folder })
    }

    /// Replaces server URLs in the files, now that the servers are running.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn fill_in(&self, server: &RehearsalServer) -> io::Result<()> {
        for (path, file) in &server.scenario().files {
            let content = server.fill_in_urls(&file.content);
            if content != file.content {
                fs::write(self.folder.path().join(path), content)?;
            }
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Keeps the folder, and returns its path.
    pub fn into_path(self) -> std::path::PathBuf {
        self.folder.keep()
    }
}
