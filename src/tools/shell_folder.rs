//! The folder in which the model's commands start: it follows their `cd`.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::capture::OutputFolder;
use super::final_cwd::{CwdReport, FinalCwd};
use super::paths::{WorkFolders, resolve};

/// The folder in which the next command starts.
#[derive(Debug)]
pub(super) struct ShellFolder {
    next: Mutex<PathBuf>,
    /// That folder as the session has recorded it.
    recorded: Mutex<PathBuf>,
    /// The file to which the next command reports its final folder, if the last one has left it.
    spare_report: Mutex<Option<FinalCwd>>,
}

impl ShellFolder {
    pub(super) fn new(cwd: &Path) -> Self {
        Self {
            next: Mutex::new(cwd.to_path_buf()),
            recorded: Mutex::new(cwd.to_path_buf()),
            spare_report: Mutex::default(),
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.next.lock().clone()
    }

    /// Returns the folder in which the next command starts, if it is another one than at the last
    /// call.
    pub(super) fn take_new(&self) -> Option<PathBuf> {
        let cwd = self.path();
        let mut recorded = self.recorded.lock();
        let is_new = *recorded != cwd;
        recorded.clone_from(&cwd);
        is_new.then_some(cwd)
    }

    /// Starts the next command in `folder`. Returns false if it is gone, or the run may not work
    /// there.
    pub(super) fn go_on_in(&self, folder: &Path, places: &WorkFolders) -> bool {
        let is_usable = folder.is_dir() && resolve(folder) == folder && places.contains(folder);
        if is_usable {
            self.set(folder.to_path_buf());
        }
        // If it is not usable, the other folder is a new one for the session.
        let mut recorded = self.recorded.lock();
        folder.clone_into(&mut recorded);
        is_usable
    }

    /// The file to which a command reports its final folder.
    pub(super) async fn report_file(&self, scratch: &OutputFolder) -> Option<FinalCwd> {
        let spare = self.spare_report.lock().take().filter(FinalCwd::is_in_place);
        if spare.is_some() { spare } else { FinalCwd::create(scratch).await.ok() }
    }

    /// The folder in which the command starts: the one where the last command ended, if it still
    /// exists.
    pub(super) fn usable(&self, places: &WorkFolders, notes: &mut Vec<String>) -> PathBuf {
        let cwd = self.path();
        if cwd.is_dir() {
            return cwd;
        }
        let home = places.cwd().to_path_buf();
        notes.push(format!(
            "{} is gone; the working directory is {} again.",
            cwd.display(),
            home.display()
        ));
        self.set(home.clone());
        home
    }

    fn set(&self, folder: PathBuf) {
        *self.next.lock() = folder;
    }

    /// Makes the folder in which the command ended the working directory, unless the run may not
    /// work there.
    pub(super) async fn update(
        &self,
        final_cwd: FinalCwd,
        has_moved: bool,
        places: &WorkFolders,
        notes: &mut Vec<String>,
    ) {
        let (report, spare) = final_cwd.read().await;
        *self.spare_report.lock() = spare;
        match report {
            // The command replaced its shell, or what the shell does at its exit.
            CwdReport::Nothing if has_moved => {
                notes.push(format!("The working directory is {}.", self.path().display()));
            }
            CwdReport::Nothing => {}
            CwdReport::Folder(there) if there == self.path() => {}
            CwdReport::Folder(there) if places.contains(&there) => self.set(there),
            CwdReport::Folder(there) => {
                let home = places.cwd().to_path_buf();
                notes.push(format!(
                    "{} is outside the working directories; the working directory is {} again.",
                    there.display(),
                    home.display()
                ));
                self.set(home);
            }
            CwdReport::Invalid => notes.push(format!(
                "The final directory of the command is unknown; the working directory is still {}.",
                self.path().display()
            )),
        }
    }
}
