//! The paths that the words of a job lead to.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use parking_lot::Mutex;

use super::job::Job;
use super::programs::absolute_path;

/// The value of a variable in the environment of a job.
pub(super) fn variable<'a>(job: &'a Job, wanted: &str) -> Option<&'a OsStr> {
    let found = job.environment.iter().rev().find(|(name, _)| name == wanted);
    found.map(|(_, value)| value.as_os_str())
}

/// The path of a word, relative to the folder `start`. A leading `~` is replaced by `HOME`.
pub(super) fn joined(start: &Path, word: &str, job: &Job) -> PathBuf {
    let home = word.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
    match home.zip(variable(job, "HOME")) {
        Some((rest, home)) => Path::new(home).join(rest.trim_start_matches('/')),
        None => start.join(word),
    }
}

/// Like [`joined`], without `.` and `..`.
pub(super) fn absolute(start: &Path, word: &str, job: &Job) -> PathBuf {
    let mut path = PathBuf::new();
    for part in joined(start, word, job).components() {
        if part == Component::ParentDir {
            path.pop();
        } else {
            path.push(part);
        }
    }
    path
}

/// The absolute folders of the `PATH` of a job.
pub(super) fn search_path(job: &Job) -> OsString {
    absolute_path(variable(job, "PATH"))
}

/// The programs that were found, by `PATH` and name. Each is looked up once: network folders are
/// slow. A program that commands add later is in a folder that they can write to, and a `PATH` with
/// such a folder is a sufficient reason for the sandbox.
#[derive(Debug, Default)]
pub(super) struct FoundPrograms(Mutex<BTreeMap<OsString, BTreeMap<String, Option<PathBuf>>>>);

impl FoundPrograms {
    /// The program that a word without a slash names in these folders.
    pub(super) fn find(&self, word: &str, folders: &OsStr) -> Option<PathBuf> {
        if let Some(found) = self.0.lock().get(folders).and_then(|known| known.get(word)) {
            return found.clone();
        }
        let mut paths = env::split_paths(folders).map(|folder| folder.join(word));
        let found = paths.find(|path| path.is_file());
        let mut known = self.0.lock();
        known.entry(folders.to_owned()).or_default().insert(word.to_owned(), found.clone());
        found
    }
}
