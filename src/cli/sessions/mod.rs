//! `outlast sessions`: lists, shows, exports and deletes recorded sessions.
//!
//! The journals are only read, and never locked for longer than it takes to see whether a run works
//! on them; deleting one takes its lock.

mod export;
mod list;
mod parallel;
pub(super) mod phrases;
mod prune;
mod table;
mod transcript;

pub(super) use parallel::read_in_parallel;
pub(super) use table::{Column, Table, terminal_width};
pub(super) use transcript::{event_lines, tool_outcome};

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use jiff::Timestamp;

use crate::config::environment::{self, Variables};
use crate::journal::{ListScope, SessionFile, SessionFolder, list_sessions};
use crate::process::was_stdout_closed;

use super::args::{SessionsAction, SessionsArgs};
use super::output::{TerminalFilter, one_line};
use super::run::ProcessContext;
use super::session_name;
use super::signals::SignalState;
use super::stdout::is_reader_gone;
use super::timestamps::{WallTime, system_zone};
use super::usage::{UsageError, UsageErrorKind};

/// Minimum number of characters of an id in a table.
const ID_MIN: usize = 8;

/// The stored sessions, as seen from the working directory.
pub(super) struct SessionsContext {
    place: SessionFolder,
    home: Option<std::path::PathBuf>,
    wall: WallTime,
}

/// Performs a command on recorded sessions.
///
/// # Errors
/// There is no such session, a file cannot be read or written, or a signal came.
pub(super) async fn sessions(args: SessionsArgs, world: ProcessContext) -> Result<u8, UsageError> {
    let ProcessContext { variables, cwd, signals, .. } = world;
    until_signal(&signals, move || perform(args, &variables, &cwd)).await
}

/// Does work that blocks, until a signal comes.
///
/// # Errors
/// Those of the work, or a signal.
pub(super) async fn until_signal(
    signals: &SignalState,
    work: impl FnOnce() -> Result<u8, UsageError> + Send + 'static,
) -> Result<u8, UsageError> {
    let working = tokio::task::spawn_blocking(work);
    tokio::select! {
        biased;
        interrupt = signals.first() => Err(UsageError::interrupted(interrupt)),
        done = working => done.unwrap_or_else(|error| {
            let what = format!("outlast itself broke: {error}");
            Err(UsageError::of(UsageErrorKind::Internal, what))
        }),
    }
}

fn perform(args: SessionsArgs, variables: &Variables, cwd: &Path) -> Result<u8, UsageError> {
    let context = SessionsContext::new(variables, cwd);
    match args.action {
        None => list::list(&context, &args.list),
        Some(SessionsAction::List(list)) => list::list(&context, &list),
        Some(SessionsAction::Show(show)) => transcript::show(&context, &show),
        Some(SessionsAction::Export(export)) => export::export(&context, &export, cwd),
        Some(SessionsAction::Prune(prune)) => prune::prune(&context, &prune),
    }
}

/// Finds the session that the user means: an id, the beginning of one, a name, or `latest`.
///
/// # Errors
/// There is none, or there are several.
pub(super) fn find_session(
    variables: &Variables,
    cwd: &Path,
    name: &str,
) -> Result<SessionFile, UsageError> {
    SessionsContext::new(variables, cwd).find(name)
}

impl SessionsContext {
    pub(super) fn new(variables: &Variables, cwd: &Path) -> Self {
        Self {
            place: SessionFolder::new(&environment::config_dir(variables), cwd),
            home: environment::home(variables),
            wall: WallTime { at: Timestamp::now(), zone: system_zone() },
        }
    }

    pub(super) fn place(&self) -> &SessionFolder {
        &self.place
    }

    fn scope(all: bool) -> ListScope {
        if all { ListScope::All } else { ListScope::Project }
    }

    /// Lists sessions, the last written first.
    pub(super) fn list(&self, scope: ListScope) -> Result<Vec<SessionFile>, UsageError> {
        self.check_readable()?;
        Ok(list_sessions(&self.place, scope))
    }

    /// Rejects folders of sessions that are there and cannot be read: they may hold sessions.
    fn check_readable(&self) -> Result<(), UsageError> {
        for folder in [self.place.projects(), self.place.folder()] {
            match fs::read_dir(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(unreadable(&folder, &error));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Finds the session that the user means: an id, the beginning of one, a name, or `latest`.
    pub(super) fn find(&self, name: &str) -> Result<SessionFile, UsageError> {
        self.check_readable()?;
        session_name::find(&self.place, name)
    }

    /// The length of an id that no other session begins with.
    pub(super) fn unique_length(&self) -> usize {
        let all = list_sessions(&self.place, ListScope::All);
        let mut ids: Vec<&str> = all.iter().map(|file| file.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        let shared = |pair: &[&str]| {
            pair[0].bytes().zip(pair[1].bytes()).take_while(|(one, other)| one == other).count()
        };
        ids.windows(2).map(shared).max().map_or(0, |shared| shared + 1).max(ID_MIN)
    }

    /// A folder for people: with `~` for the home folder.
    pub(super) fn shown_folder(&self, path: &Path) -> String {
        let below = self.home.as_deref().and_then(|home| path.strip_prefix(home).ok());
        let shown = match below {
            Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
            Some(below) => format!("~/{}", below.display()),
            None => path.display().to_string(),
        };
        one_line(&shown)
    }

    pub(super) fn shown_time(&self, at: Timestamp) -> String {
        at.to_zoned(self.wall.zone.clone()).strftime("%Y-%m-%d %H:%M").to_string()
    }

    /// The time of day.
    pub(super) fn clock(&self, at: Option<Timestamp>) -> String {
        let zone = self.wall.zone.clone();
        at.map_or_else(
            || "--:--:--".to_owned(),
            |at| at.to_zoned(zone).strftime("%H:%M:%S").to_string(),
        )
    }

    /// A time with seconds and the offset of its zone.
    pub(super) fn exact_time(&self, at: Timestamp) -> String {
        at.to_zoned(self.wall.zone.clone()).strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
    }
}

/// Reports a file that cannot be read.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> UsageError {
    let path = path.display();
    UsageError::new(format!("cannot read {path}: {error}; check that the file belongs to you"))
}

/// Prints to standard output, piece by piece. A closed pipe ends the output without an error.
pub(super) struct ReportWriter {
    stdout: TerminalFilter<io::StdoutLock<'static>>,
    is_closed: bool,
}

impl ReportWriter {
    pub(super) fn new() -> Self {
        Self { stdout: TerminalFilter::new(io::stdout().lock()), is_closed: false }
    }

    /// A report on what a command did, which it also does if standard output was closed from the
    /// start.
    pub(super) fn optional() -> Self {
        Self { is_closed: was_stdout_closed(), ..Self::new() }
    }

    /// Prints text of whole characters.
    ///
    /// # Errors
    /// It could not be written, for another reason than a closed pipe.
    pub(super) fn print(&mut self, text: &str) -> Result<(), UsageError> {
        if self.is_closed {
            return Ok(());
        }
        match self.stdout.write_all(text.as_bytes()).and_then(|()| self.stdout.flush()) {
            Err(error) if is_reader_gone(&error) => {
                self.is_closed = true;
                Ok(())
            }
            Err(error) => Err(UsageError::unwritable(&error)),
            Ok(()) => Ok(()),
        }
    }
}
