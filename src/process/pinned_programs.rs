//! The user's own programs that lie where commands of the model can write: hooks, key helpers,
//! servers. They run without a sandbox, so what runs is what was there when the run began.
//!
//! A program is copied at the start to a folder that commands cannot write to. Before each run the
//! file is compared with the start, and then the copy runs: a file that is swapped after the
//! comparison is not what runs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::file_reads::read_regular;
use super::job::Job;
use super::program_copies::ProgramCopies;
use super::programs::absolute_path;
use super::shell_words::{ShellWord, shell_words};

/// The largest program that is pinned, in bytes.
const BYTES_MAX: u64 = 512 << 20;

/// A folder in which no file can ever be.
const NOWHERE: &str = "/dev/null";

/// Shells: what follows their `-c` (or `-ec`) is a line of commands.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];

/// Programs that run the first file they are given, without versions (`python3.13`).
const INTERPRETERS: [&str; 22] = [
    ".", "source", "sh", "bash", "dash", "ash", "ksh", "zsh", "fish", "python", "pypy", "node",
    "nodejs", "deno", "bun", "ruby", "perl", "php", "lua", "java", "pwsh", "tsx",
];

/// Programs that run the command they are given.
const WRAPPERS: [&str; 11] = [
    "exec", "env", "command", "builtin", "nice", "nohup", "timeout", "stdbuf", "setsid", "sudo",
    "xargs",
];

/// Files that are run, wherever in a command they are named. Others are if they are executable.
const SCRIPTS: [&str; 15] = [
    "sh", "bash", "zsh", "fish", "py", "js", "mjs", "cjs", "ts", "mts", "rb", "pl", "php", "lua",
    "jar",
];

/// Why a program is not run.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PinError {
    #[error("{} was changed after the run began, so it is not run", .0.display())]
    Changed(PathBuf),
    #[error("{} was removed after the run began", .0.display())]
    Removed(PathBuf),
    #[error("{} was not there when the run began, so it is not run", .0.display())]
    Appeared(PathBuf),
    #[error("{} lies where commands can write, and cannot be protected: {}", .0.display(), .1)]
    Unprotected(PathBuf, String),
}

/// The pinned programs of a run.
#[derive(Debug)]
pub struct PinnedPrograms {
    /// Where commands can write: real paths.
    writable: Vec<PathBuf>,
    /// Where copies can be kept, the best place first.
    places: Vec<PathBuf>,
    state: Mutex<PinState>,
}

#[derive(Debug, Default)]
struct PinState {
    copies: Option<ProgramCopies>,
    pins: BTreeMap<PathBuf, Pin>,
}

#[derive(Debug)]
struct Pin {
    /// The file that the path led to.
    real: PathBuf,
    digest: Vec<u8>,
    /// What is run instead, or why there is none.
    copy: Result<PathBuf, String>,
}

/// What is done with a file that a job names, which the job runs or not: returns what to name in its
/// place.
type FileVisitor<'a> = dyn FnMut(PathBuf, bool) -> Result<Option<PathBuf>, PinError> + 'a;

impl PinnedPrograms {
    pub fn new(writable: Vec<PathBuf>, places: Vec<PathBuf>) -> Self {
        Self { writable, places, state: Mutex::default() }
    }

    /// Pins the programs of a job as they are now. Blocks.
    pub fn pin(&self, job: &Job) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pin = |path: PathBuf, is_program: bool| {
            let is_new = !state.pins.contains_key(&path);
            if is_program && is_new && path.is_file() && self.is_exposed(&path) {
                let pin = self.make_pin(&path, &mut state.copies);
                state.pins.insert(path, pin);
            }
            Ok(None)
        };
        // Pinning never fails: a program that cannot be pinned is refused when it is to run.
        let _ = visit_job(job, &mut pin);
    }

    /// Returns the job with copies in place of its pinned programs. Blocks.
    ///
    /// # Errors
    /// One of them is not what it was when the run began.
    pub fn verify(&self, job: &Job) -> Result<Job, PinError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut verify = |path: PathBuf, is_program: bool| match state.pins.get(&path) {
            Some(pin) => {
                pin.check(&path)?;
                let copy = pin.copy.clone();
                copy.map(Some).map_err(|why| PinError::Unprotected(path, why))
            }
            None if !is_program || !self.is_exposed(&path) => Ok(None),
            None if path.is_file() => Err(PinError::Appeared(path)),
            // It must stay missing, even if a command makes it right now.
            None => Ok(path.file_name().map(|name| Path::new(NOWHERE).join(name))),
        };
        visit_job(job, &mut verify)
    }

    /// What weakens the protection, for a warning.
    pub fn warning(&self) -> Option<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.copies.as_ref().filter(|copies| copies.is_exposed).map(|_| {
            "hooks, helpers or servers in folders that commands write to are not protected: there \
             is no other folder for copies; set OUTLAST_CONFIG_DIR to one"
                .to_owned()
        })
    }

    fn make_pin(&self, path: &Path, shelter: &mut Option<ProgramCopies>) -> Pin {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let content = read_regular(&real, BYTES_MAX);
        let digest = content.as_ref().map(|bytes| Sha256::digest(bytes).to_vec());
        let digest = digest.unwrap_or_default();
        let copy = content.and_then(|bytes| {
            let copies = match shelter {
                Some(copies) => copies,
                none @ None => {
                    let is_open = |place: &Path| self.is_exposed(place);
                    none.insert(ProgramCopies::create(&self.places, is_open)?)
                }
            };
            match (self.root_of(&real), self.root_of(path)) {
                (Some(root), _) => copies.copy(root, &real, &bytes),
                (None, Some(root)) => copies.link(root, path, &real),
                (None, None) => Ok(real.clone()),
            }
        });
        Pin { real, digest, copy: copy.map_err(|error| error.to_string()) }
    }

    /// The innermost folder around a path that commands can write to.
    fn root_of(&self, path: &Path) -> Option<&Path> {
        let roots = self.writable.iter().filter(|root| path != *root && path.starts_with(root));
        roots.max_by_key(|root| root.as_os_str().len()).map(PathBuf::as_path)
    }

    /// Whether commands can change what is found at a path: a folder or a link on the way to it is
    /// where they can write.
    fn is_exposed(&self, path: &Path) -> bool {
        let is_inside = |path: &Path| self.writable.iter().any(|root| path.starts_with(root));
        is_inside(path)
            || path
                .ancestors()
                .filter_map(|part| fs::canonicalize(part).ok())
                .any(|it| is_inside(&it))
    }
}

impl Pin {
    fn check(&self, path: &Path) -> Result<(), PinError> {
        let real = fs::canonicalize(path).map_err(|_| PinError::Removed(path.to_owned()))?;
        let bytes = read_regular(&real, BYTES_MAX);
        let is_same = bytes.is_ok_and(|bytes| Sha256::digest(bytes).as_slice() == self.digest);
        if is_same && real == self.real { Ok(()) } else { Err(PinError::Changed(path.to_owned())) }
    }
}

/// Follows the words of commands, to tell programs from other arguments.
struct CommandReader {
    /// Where the job starts.
    start: PathBuf,
    /// Where its `cd` leads.
    folder: PathBuf,
    path: OsString,
    /// The command that is being read.
    command: String,
    /// Whether an interpreter has its script already.
    has_script: bool,
    /// Whether the next word is a line of commands.
    expects_line: bool,
}

impl CommandReader {
    fn new(job: &Job) -> Self {
        let path = variable(job, "PATH");
        Self {
            start: job.cwd.clone(),
            folder: job.cwd.clone(),
            path: absolute_path(path.as_deref().map(OsStr::new)),
            command: String::new(),
            has_script: false,
            expects_line: false,
        }
    }

    /// Reads the next word. Returns the path that it may be, and whether it is run.
    fn read(&mut self, text: &str, begins: bool) -> Option<(PathBuf, bool)> {
        let is_wrapped = !begins
            && WRAPPERS.contains(&self.command.as_str())
            && !text.contains('=')
            && !text.starts_with(|letter: char| letter == '-' || letter.is_ascii_digit());
        if begins || is_wrapped {
            self.command = program_name(text);
            self.has_script = false;
            self.expects_line = self.command == "eval";
            if text.contains('/') {
                return Some((self.locate(text), true));
            }
            let found = std::env::split_paths(&self.path).map(|folder| folder.join(text));
            return found.into_iter().find(|path| path.is_file()).map(|path| (path, true));
        }
        if text.starts_with('-') || text.is_empty() {
            let is_shell = SHELLS.contains(&self.command.as_str());
            self.expects_line = is_shell && !text.starts_with("--") && text.ends_with('c');
            return None;
        }
        if self.command == "cd" {
            self.folder.push(text);
            return None;
        }
        let path = self.locate(text);
        let is_script = !self.has_script
            && INTERPRETERS.contains(&self.command.as_str())
            && (path.is_file() || has_script_name(&path));
        self.has_script |= is_script;
        let is_program = is_script || is_runnable(&path);
        Some((path, is_program))
    }
}

impl CommandReader {
    /// Which `cd` comes before a word is not always known.
    fn locate(&self, text: &str) -> PathBuf {
        let join = |folder: &Path| folder.join(text).components().collect::<PathBuf>();
        let (moved, unmoved) = (join(&self.folder), join(&self.start));
        if !moved.exists() && unmoved.exists() { unmoved } else { moved }
    }
}

/// The name of a program, without its folder and version.
fn program_name(text: &str) -> String {
    let name = text.rsplit('/').next().unwrap_or_default();
    let plain = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    if plain.is_empty() { name.to_owned() } else { plain.to_owned() }
}

/// Whether a file is executable, or a script by its name.
fn is_runnable(path: &Path) -> bool {
    let Ok(facts) = fs::metadata(path) else { return false };
    facts.is_file() && (has_script_name(path) || facts.permissions().mode() & 0o111 != 0)
}

fn has_script_name(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    extension.is_some_and(|extension| SCRIPTS.contains(&extension))
}

fn variable(job: &Job, wanted: &str) -> Option<String> {
    let value = job.environment.iter().rev().find(|(name, _)| name == wanted);
    value.and_then(|(_, value)| value.to_str()).map(ToOwned::to_owned)
}

/// Shows `visit` the files that a job may name, and returns the job with what it names instead.
fn visit_job(job: &Job, visit: &mut FileVisitor<'_>) -> Result<Job, PinError> {
    let mut changed = job.clone();
    let mut reader = CommandReader::new(job);
    if let Some(program) =
        visit_word(job, &mut reader, (&job.program.to_string_lossy(), true), visit)?
    {
        changed.program = program.into();
    }
    for (index, argument) in job.arguments.iter().enumerate() {
        let Some(text) = argument.to_str() else { continue };
        if let Some(argument) = visit_word(job, &mut reader, (text, false), visit)? {
            changed.arguments[index] = argument;
        }
    }
    Ok(changed)
}

/// Visits a word, which may be a line of commands. Returns what replaces it.
fn visit_word(
    job: &Job,
    reader: &mut CommandReader,
    (text, begins): (&str, bool),
    visit: &mut FileVisitor<'_>,
) -> Result<Option<OsString>, PinError> {
    if std::mem::take(&mut reader.expects_line) && !begins && !text.starts_with('-') {
        return Ok(visit_line(job, text, visit)?.map(Into::into));
    }
    let Some((path, is_program)) = reader.read(text, begins) else { return Ok(None) };
    Ok(visit(path, is_program)?.map(PathBuf::into_os_string))
}

fn visit_line(
    job: &Job,
    line: &str,
    visit: &mut FileVisitor<'_>,
) -> Result<Option<String>, PinError> {
    let known = |name: &str| match name {
        "PWD" => job.cwd.to_str().map(ToOwned::to_owned),
        "CLAUDE_PROJECT_DIR" | "HOME" => variable(job, name),
        _ => None,
    };
    let mut reader = CommandReader::new(job);
    let mut edits = Vec::new();
    for ShellWord { span, text, begins } in shell_words(line, &known) {
        let text = match text {
            Some(text) => text,
            // An unknown command.
            None if begins => "$".to_owned(),
            None => continue,
        };
        if let Some(replaced) = visit_word(job, &mut reader, (&text, begins), visit)? {
            edits.push((span, replaced.to_string_lossy().replace('\'', "'\\''")));
        }
    }
    if edits.is_empty() {
        return Ok(None);
    }
    // From the last to the first, so that places stay valid.
    edits.sort_unstable_by_key(|(span, _)| Reverse(span.start));
    let mut line = line.to_owned();
    for (span, replaced) in edits {
        line.replace_range(span, &format!("'{replaced}'"));
    }
    Ok(Some(line))
}
