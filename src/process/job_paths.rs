//! The paths that the words of a job lead to.

use std::env;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

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

/// The program that a word without a slash names on the `PATH` of a job.
pub(super) fn on_search_path(word: &str, job: &Job) -> Option<PathBuf> {
    let folders = absolute_path(variable(job, "PATH"));
    env::split_paths(&folders).map(|folder| folder.join(word)).find(|path| path.is_file())
}
