//! `outlast sessions`: lists, shows, exports and deletes recorded sessions.
//!
//! Journals are only read. Their locks are held only to find out whether a run is working on the
//! session, and to delete a journal.

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
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use uuid::Uuid;

use crate::config::environment::{self, Variables};
use crate::journal::{ListScope, SessionFile, SessionFolder, list_sessions, unreadable_hint};
use crate::process::was_stdout_closed;

use super::args::{SessionsAction, SessionsArgs};
use super::output::{TerminalFilter, one_line};
use super::run::ProcessContext;
use super::session_name;
use super::signals::SignalState;
use super::stdout::is_reader_gone;
use super::timestamps::system_zone;
use super::usage::{UsageError, UsageErrorKind};

/// Minimum number of characters of an id in a table.
const ID_MIN: usize = 8;

/// The stored sessions, as seen from the working directory.
pub(super) struct SessionsContext {
    place: SessionFolder,
    /// The sessions of hosts, if they are elsewhere.
    of_hosts: Option<SessionFolder>,
    home: Option<PathBuf>,
    zone: TimeZone,
}

/// Performs a command on recorded sessions.
///
/// # Errors
/// There is no such session, a file cannot be read or written, or a signal came.
pub(super) async fn sessions(
    args: SessionsArgs,
    ProcessContext { variables, cwd, signals, .. }: ProcessContext,
) -> Result<u8, UsageError> {
    until_signal(&signals, move || perform(args, &variables, &cwd)).await
}

/// Does work that blocks, until a signal comes.
///
/// # Errors
/// Those of the work, or a signal.
pub(super) async fn until_signal<T: Send + 'static>(
    signals: &SignalState,
    work: impl FnOnce() -> Result<T, UsageError> + Send + 'static,
) -> Result<T, UsageError> {
    let working = tokio::task::spawn_blocking(work);
    tokio::select! {
        biased;
        interrupt = signals.first() => Err(UsageError::interrupted(interrupt)),
        done = working => done.unwrap_or_else(|error| {
            let what = format!("outlast has a defect: {error}");
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

impl SessionsContext {
    pub(super) fn new(variables: &Variables, cwd: &Path) -> Self {
        let shared = environment::shared_folder(variables);
        Self {
            place: SessionFolder::new(&environment::config_dir(variables), cwd),
            of_hosts: shared.map(|folder| SessionFolder::new(&folder, cwd)),
            home: environment::home(variables),
            zone: system_zone(),
        }
    }

    pub(super) fn place(&self) -> &SessionFolder {
        &self.place
    }

    /// Returns the sessions to list: those of all projects, or of this one.
    pub(super) fn scope(all: bool) -> ListScope {
        if all { ListScope::All } else { ListScope::Project }
    }

    /// Lists sessions, the last written first.
    pub(super) fn list(&self, scope: ListScope) -> Result<Vec<SessionFile>, UsageError> {
        self.check_readable()?;
        Ok(list_sessions(&self.place, scope))
    }

    /// Rejects existing folders of sessions that cannot be read, because they may have sessions.
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

    /// Finds a session by its id, the beginning of its id, its name, or `latest`. That of a host is
    /// found by its id only. If no session has a prompt, `latest` is the last one in the list.
    pub(super) fn find(&self, name: &str) -> Result<SessionFile, UsageError> {
        self.check_readable()?;
        session_name::find(&self.place, name).or_else(|error| {
            if name.trim() == "latest" {
                let listed = list_sessions(&self.place, ListScope::Project);
                return listed.into_iter().next().ok_or(error);
            }
            let of_hosts = self.of_hosts.as_ref().filter(|_| Uuid::try_parse(name.trim()).is_ok());
            of_hosts.and_then(|place| session_name::find(place, name).ok()).ok_or(error)
        })
    }

    /// Returns the number of characters that distinguish the ids of all sessions.
    pub(super) fn unique_length(&self) -> usize {
        let all = list_sessions(&self.place, ListScope::All);
        let mut ids: Vec<&str> = all.iter().map(|file| file.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        let common = |pair: &[&str]| {
            pair[0].bytes().zip(pair[1].bytes()).take_while(|(one, other)| one == other).count()
        };
        ids.windows(2).map(common).max().map_or(0, |common| common + 1).max(ID_MIN)
    }

    /// Formats a folder for people, with `~` for the home folder.
    pub(super) fn shown_folder(&self, path: &Path) -> String {
        let below = self.home.as_deref().and_then(|home| path.strip_prefix(home).ok());
        let shown = match below {
            Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
            Some(below) => format!("~/{}", below.display()),
            None => path.display().to_string(),
        };
        one_line(&shown)
    }

    fn format_time(&self, at: Timestamp, format: &str) -> String {
        at.to_zoned(self.zone.clone()).strftime(format).to_string()
    }

    pub(super) fn shown_time(&self, at: Timestamp) -> String {
        self.format_time(at, "%Y-%m-%d %H:%M")
    }

    /// Formats the time of day.
    pub(super) fn clock(&self, at: Option<Timestamp>) -> String {
        at.map_or_else(|| "--:--:--".to_owned(), |at| self.format_time(at, "%H:%M:%S"))
    }

    /// Formats a time with seconds and the offset of its zone.
    pub(super) fn exact_time(&self, at: Timestamp) -> String {
        self.format_time(at, "%Y-%m-%d %H:%M:%S %:z")
    }
}

/// Reports a file that cannot be read.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> UsageError {
    let (path, hint) = (path.display(), unreadable_hint(error));
    UsageError::new(format!("cannot read {path}: {error}; {hint}"))
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

    /// Creates a writer that discards its text if standard output was closed at the start. The
    /// command works without it.
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn the_session_of_a_host_is_found_by_its_id_unless_a_variable_names_a_folder() {
        let home = tempfile::tempdir().expect("a folder");
        let id = "0aaa1111-0000-4000-8000-000000000001";
        let folder = SessionFolder::new(&home.path().join(".claude"), home.path()).folder();
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(format!("{id}.jsonl")), "{}\n").expect("a file");
        let in_home = [(OsString::from("HOME"), OsString::from(home.path()))];
        let own = home.path().join("own").into_os_string();
        let named = [(OsString::from("OUTLAST_CONFIG_DIR"), own)];
        let find = |variables: Variables, name: &str| {
            SessionsContext::new(&variables, home.path()).find(name).is_ok()
        };
        assert!(find(in_home.iter().cloned().collect(), id));
        assert!(!find(in_home.iter().cloned().collect(), "0aaa1111"));
        assert!(!find(in_home.into_iter().chain(named).collect(), id));
    }
}
