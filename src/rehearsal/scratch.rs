//! The scratch folders of a rehearsal.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::scenario::Scenario;
use super::server::RehearsalServer;

/// A temporary folder with a scenario's files, and another one that replaces the user's home
/// folder. Both are removed when dropped.
#[derive(Debug)]
pub struct ScratchFolder {
    root: tempfile::TempDir,
    work: PathBuf,
}

impl ScratchFolder {
    /// Creates the folders, and the scenario's files.
    ///
    /// # Errors
    /// The folder or a file cannot be written.
    pub fn create(scenario: &Scenario) -> io::Result<Self> {
        // It may hold the files of a private session, and the temporary folder is shared.
        let private = fs::Permissions::from_mode(0o700);
        let root =
            tempfile::Builder::new().prefix("outlast-rehearsal-").permissions(private).tempdir()?;
        let work = root.path().join("work");
        fs::create_dir(&work)?;
        fs::create_dir(root.path().join(HOME))?;
        for (path, file) in &scenario.files {
            let path = work.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&path, &file.content)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
        }
        Ok(Self { root, work })
    }

    /// Replaces server URLs in the files, now that the servers are running.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn fill_in(&self, server: &RehearsalServer) -> io::Result<()> {
        for (path, file) in &server.scenario().files {
            let content = server.fill_in_urls(&file.content);
            if content != file.content {
                fs::write(self.work.join(path), content)?;
            }
        }
        Ok(())
    }

    /// The folder to work in.
    pub fn path(&self) -> &Path {
        &self.work
    }

    /// The folder that replaces the user's home folder.
    pub fn home(&self) -> PathBuf {
        self.root.path().join(HOME)
    }
}

const HOME: &str = "home";
