//! The user's own programs (hooks, key helpers, servers) in folders to which commands of the model
//! can write. They run inside the sandbox of commands, so that a program that a command has changed
//! can do no more than the command itself, and only as long as their files have not changed since
//! the run began.
//!
//! A program is also confined unless it is certain that everything it runs is in other folders.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::code_programs::{RUNNERS, program_name};
use super::code_variables::{loaded_paths, own_paths, without_working_folder};
use super::data_words::Operands;
use super::job::Job;
use super::job_paths::{FoundPrograms, absolute, joined, search_path};
use super::landlock_policy::{LandlockPolicy, PathRule};
use super::program_files::{KnownEntry, ProgramChange, UsedFiles, compare, is_runnable};
use super::program_words::{ProgramWords, UNKNOWN, is_path_alone};
use super::writable_folders::WritableFolders;

/// The most folders in which the words of a job are looked up.
const STARTS_MAX: usize = 8;

/// Returns the current sandbox of commands. `None` if commands have none.
pub type CommandSandbox = Box<dyn Fn() -> io::Result<Option<LandlockPolicy>> + Send + Sync>;

/// The programs of a run's user.
pub struct UserPrograms {
    writable: WritableFolders,
    /// Programs that the user allows without the sandbox: names of servers, words and paths of
    /// commands.
    unconfined: Vec<String>,
    sandbox: CommandSandbox,
    /// Not locked while a file is read: its disk may hang.
    entries: Mutex<Arc<BTreeMap<PathBuf, KnownEntry>>>,
    /// The folders of a `PATH` that commands can write to.
    open_paths: Mutex<BTreeMap<OsString, Vec<PathBuf>>>,
    found: FoundPrograms,
}

impl fmt::Debug for UserPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserPrograms").field("writable", &self.writable).finish_non_exhaustive()
    }
}

/// A job that may run.
#[derive(Debug)]
pub(super) struct AdmittedJob {
    pub(super) job: Job,
    pub(super) files: UsedFiles,
}

/// The programs of a job.
#[derive(Debug)]
struct JobPrograms {
    /// The paths that it names and commands can write to.
    named: Vec<PathBuf>,
    /// The paths of files that it certainly runs, whatever their names are.
    run: Vec<PathBuf>,
    /// True if it must run inside the sandbox.
    is_confined: bool,
}

impl UserPrograms {
    /// `writable` are the folders that commands can write to, as real paths.
    pub fn new(writable: Vec<PathBuf>, unconfined: Vec<String>, sandbox: CommandSandbox) -> Self {
        Self {
            writable: WritableFolders(writable),
            unconfined,
            sandbox,
            entries: Mutex::default(),
            open_paths: Mutex::default(),
            found: FoundPrograms::default(),
        }
    }

    /// Records the current state of a job's program files, unless it is recorded already. Blocks.
    pub fn remember(&self, job: &Job) {
        let words = ProgramWords::of(job, &self.found);
        let folders = words.all().map(|word| absolute(&job.cwd, word, job));
        let folders: Vec<PathBuf> = folders.filter(|path| path.is_dir()).collect();
        let open = folders.into_iter().filter(|path| self.writable.can_change(path));
        let open: Vec<_> = open.map(|path| (path, KnownEntry::Folder)).collect();
        Arc::make_mut(&mut self.entries.lock()).extend(open);
        let JobPrograms { named, run, .. } = self.find(&words, job);
        let bare = self.bare_paths(&words, job);
        let bare = bare.into_iter().filter(|path| path.is_file() && self.writable.can_change(path));
        let known = self.known();
        let new = named.into_iter().chain(bare).filter(|path| !known.contains_key(path));
        let read = new.filter_map(|path| {
            let is_program = is_runnable(&path) || run.contains(&path);
            KnownEntry::read(&path, is_program).map(|entry| (path, entry))
        });
        let read: Vec<_> = read.collect();
        drop(known);
        let mut entries = self.entries.lock();
        for (path, entry) in read {
            // Another job may have recorded the path meanwhile.
            Arc::make_mut(&mut entries).entry(path).or_insert(entry);
        }
    }

    /// The entries that are recorded now.
    fn known(&self) -> Arc<BTreeMap<PathBuf, KnownEntry>> {
        Arc::clone(&self.entries.lock())
    }

    /// Returns true if a job runs inside the sandbox of commands, provided that they have one.
    /// Blocks.
    pub fn confines(&self, job: &Job) -> bool {
        self.remember(job);
        self.find(&ProgramWords::of(job, &self.found), job).is_confined
    }

    /// Returns the job, inside the sandbox if it belongs there. Blocks.
    ///
    /// # Errors
    /// A [`ProgramChange`] if one of its programs has changed since the run began; or the sandbox
    /// cannot be made.
    pub(super) fn admit(&self, mut job: Job) -> io::Result<AdmittedJob> {
        let words = ProgramWords::of(&job, &self.found);
        let JobPrograms { named, run, is_confined } = self.find(&words, &job);
        let is_confined_here = job.landlock.is_none() && is_confined;
        let policy = if is_confined_here { (self.sandbox)()? } else { None };
        let executed = self.executed(&self.starts(&words, &job), &job);
        let mut files = UsedFiles::default();
        let known = self.known();
        for path in named {
            // What the job only reads may change, but code that it loads then needs the sandbox.
            if policy.is_some() && !executed.contains(&path) {
                continue;
            }
            match known.get(&path) {
                Some(KnownEntry::Data | KnownEntry::Folder) => {}
                Some(KnownEntry::Program { real, length, sha256 }) => {
                    let mark = compare(&path, real, *length, sha256.as_deref())
                        .map_err(io::Error::other)?;
                    files.0.push((path, mark));
                }
                None if is_runnable(&path) || (run.contains(&path) && path.is_file()) => {
                    return Err(io::Error::other(ProgramChange::Appeared(path)));
                }
                None => {}
            }
        }
        if is_confined_here {
            job.landlock = policy.map(|policy| with_grants(policy, &job.terms.grants));
        } else {
            job.environment = without_working_folder(&job);
        }
        Ok(AdmittedJob { job, files })
    }

    fn find(&self, words: &ProgramWords, job: &Job) -> JobPrograms {
        let starts = self.starts(words, job);
        let mut run = run_files(words, &starts, job);
        run.retain(|path| self.writable.can_change(path));
        let mut named = self.on_path(words, job);
        for start in &starts {
            named.extend(words.all().filter_map(|word| self.locate(start, word, job)));
        }
        let bare = self.bare_paths(words, job);
        let may_run = ProgramWords::with(Operands::MayBeCode, job, &self.found);
        let paths_in = |values: fn(&str) -> Vec<&str>| -> BTreeSet<PathBuf> {
            let in_folder = |start: &PathBuf| {
                let paths = may_run.all().flat_map(|word| values(word));
                let paths = paths.filter(|path| may_be_path(start, path));
                paths.filter_map(|path| self.locate(start, path, job)).collect::<Vec<_>>()
            };
            starts.iter().flat_map(in_folder).collect()
        };
        let joined = paths_in(joined_values);
        let mut may_be_put = paths_in(|word| vec![without_option(word)]);
        may_be_put.extend(joined.iter().cloned());
        let known = self.known();
        named.extend(bare.into_iter().filter(|path| known.contains_key(path)));
        named.extend(may_be_put.iter().cloned());
        let is_code = |path: &PathBuf| match known.get(path) {
            // A folder may be one of modules (`-Ilib`), or the data of a program.
            Some(KnownEntry::Folder) => joined.contains(path),
            Some(KnownEntry::Data | KnownEntry::Program { .. }) => true,
            None => may_be_put.contains(path) || fs::symlink_metadata(path).is_ok(),
        };
        let names_code = named.iter().any(is_code);
        named.extend(run.iter().cloned());
        named.sort_unstable();
        named.dedup();
        let is_lifted =
            job.terms.name.iter().chain(words.written()).any(|word| self.lifts(word, job));
        let is_confined = job.terms.is_confined
            || (!is_lifted
                && (names_code
                    || !self.open_folders(job).is_empty()
                    || self.loads_open_code(job)
                    || self.may_run_open_code(&may_run, job)));
        JobPrograms { named, run, is_confined }
    }

    /// The paths that a job may execute or interpret.
    fn executed(&self, starts: &[PathBuf], job: &Job) -> BTreeSet<PathBuf> {
        let words = ProgramWords::with(Operands::MayBeExecuted, job, &self.found);
        let mut paths: BTreeSet<PathBuf> = run_files(&words, starts, job).into_iter().collect();
        paths.extend(self.on_path(&words, job));
        for start in starts {
            for word in words.all() {
                paths.extend(self.locate(start, word, job));
                let values = joined_values(word).into_iter();
                paths.extend(values.filter_map(|value| self.locate(start, value, job)));
                paths.extend(in_folder(start, word));
            }
        }
        paths
    }

    /// The folders in which words of a job are looked up: its working directory, and the recorded
    /// folders that it names, into which it may change.
    fn starts(&self, words: &ProgramWords, job: &Job) -> Vec<PathBuf> {
        let known = self.known();
        let named = words.all().map(|word| absolute(&job.cwd, word, job));
        let folders = named.filter(|path| matches!(known.get(path), Some(KnownEntry::Folder)));
        let mut starts = vec![job.cwd.clone()];
        for folder in folders {
            if starts.len() < STARTS_MAX && !starts.contains(&folder) {
                starts.push(folder);
            }
        }
        starts
    }

    /// The paths of words without a slash, in each folder where the job may be.
    fn bare_paths(&self, words: &ProgramWords, job: &Job) -> Vec<PathBuf> {
        let starts = self.starts(words, job);
        let bare = |start: &PathBuf| {
            words.written().flat_map(|word| in_folder(start, word)).collect::<Vec<_>>()
        };
        starts.iter().flat_map(bare).collect()
    }

    /// Returns true if the user allows this word's program without the sandbox.
    fn lifts(&self, word: &str, job: &Job) -> bool {
        self.unconfined.iter().any(|entry| {
            let path = |text| absolute(&job.cwd, text, job);
            entry == word || (entry.contains('/') && path(entry) == path(word))
        })
    }

    /// The path of a word with a slash, if commands can write to it or to a folder on the way.
    fn locate(&self, start: &Path, word: &str, job: &Job) -> Option<PathBuf> {
        let word = without_option(word);
        let is_open = word.contains('/') && self.writable.can_change(&joined(start, word, job));
        is_open.then(|| absolute(start, word, job))
    }

    /// The programs that words name in those folders of `PATH` that commands can write to.
    fn on_path(&self, words: &ProgramWords, job: &Job) -> Vec<PathBuf> {
        let folders = self.open_folders(job);
        let in_order = || words.in_order.iter().chain(&words.of_scripts);
        let bare = || in_order().filter(|word| !word.contains('/'));
        let named = folders.iter().flat_map(|folder| bare().map(|word| folder.join(word)));
        let known = self.known();
        named.filter(|path| path.is_file() || known.contains_key(path)).collect()
    }

    /// The folders of the job's `PATH` that commands can write to.
    fn open_folders(&self, job: &Job) -> Vec<PathBuf> {
        let path = search_path(job);
        if let Some(known) = self.open_paths.lock().get(&path) {
            return known.clone();
        }
        let open = std::env::split_paths(&path).filter(|it| self.writable.can_change(it));
        let open: Vec<_> = open.collect();
        self.open_paths.lock().insert(path, open.clone());
        open
    }

    /// Returns true if a variable names code that commands can write to.
    fn loads_open_code(&self, job: &Job) -> bool {
        // The working folder is rather the data of a program than its code.
        let is_data = |path: &PathBuf| *path == job.cwd || self.writable.is_one(path);
        loaded_paths(job).iter().any(|path| self.writable.can_change(path))
            || own_paths(job).iter().any(|it| !is_data(it) && self.writable.can_change(it))
    }

    /// Returns true if a word may run code that no word names: a runner of packages, or an
    /// interpreter without a script file outside the folders that commands can write to.
    fn may_run_open_code(&self, words: &ProgramWords, job: &Job) -> bool {
        let is_closed = |word: &String| {
            let path = absolute(&job.cwd, word, job);
            path.is_file() && !self.writable.can_change(&path)
        };
        // A text with a slash is seldom a program (`s/a/git`).
        let is_program =
            |word: &&String| !word.contains('/') || absolute(&job.cwd, word, job).is_file();
        let mut programs = words.in_order.iter().chain(&words.of_scripts).filter(is_program);
        programs.any(|word| RUNNERS.contains(&program_name(word).as_str()))
            || words
                .interpreted()
                .any(|(program, it)| is_program(&program) && !it.is_some_and(is_closed))
    }
}

/// The paths in a folder of a word without a slash, or of the value of an option in it.
fn in_folder(folder: &Path, word: &str) -> Vec<PathBuf> {
    let values = [word, without_option(word)].into_iter().chain(joined_values(word));
    let names = values.filter(|value| !value.is_empty() && !value.contains('/'));
    names.map(|value| folder.join(value)).collect()
}

/// The value of an option (`--config=x`), or the word.
fn without_option(word: &str) -> &str {
    word.split_once('=').filter(|_| word.starts_with('-')).map_or(word, |it| it.1)
}

/// The parts of a word that may be the value of an option before them (`-Ilib/x`, `-qflib/x`).
fn joined_values(word: &str) -> Vec<&str> {
    let letters = word.strip_prefix('-').filter(|_| !word.contains('=')).unwrap_or_default();
    let options = letters.char_indices().take_while(|(_, letter)| letter.is_ascii_alphanumeric());
    // The slash of `-F/` is a separator.
    options.map(|(index, _)| &letters[index + 1..]).filter(|value| *value != "/").collect()
}

/// Returns true if a text may be meant as a path in a folder, and not as `s/a/b/`.
fn may_be_path(folder: &Path, text: &str) -> bool {
    let mut parts = text.split('/');
    let first = parts.next().unwrap_or_default();
    if first.starts_with(UNKNOWN) {
        // `$1/$2` is more likely a text than a path.
        return !parts.next_back().is_some_and(|name| name.contains(UNKNOWN));
    }
    is_path_alone(text) || folder.join(first).exists()
}

/// The program itself, and the scripts that interpreters are given, in each of these folders.
fn run_files(words: &ProgramWords, starts: &[PathBuf], job: &Job) -> Vec<PathBuf> {
    let run = [&words.in_order[0]].into_iter().chain(words.interpreted().filter_map(|it| it.1));
    run.flat_map(|word| starts.iter().map(|start| absolute(start, word, job))).collect()
}

/// The policy of commands, with the additional grants of a program. The kernel accepts real paths
/// only.
fn with_grants(policy: LandlockPolicy, grants: &[PathRule]) -> LandlockPolicy {
    let real =
        |grant: &PathRule| Some(PathRule::new(fs::canonicalize(&grant.path).ok()?, grant.access));
    let rules = policy.rules.iter().cloned().chain(grants.iter().filter_map(real)).collect();
    LandlockPolicy { rules, ..policy }
}

#[cfg(test)]
mod reading_tests;
#[cfg(test)]
mod tests;
