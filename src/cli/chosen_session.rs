//! The session that the flags choose: found, locked and read once, before the settings of the run
//! are resolved. Its contract is one of their sources.

use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use uuid::Uuid;

use super::args::RunArgs;
use super::session_name;
use super::usage::{UsageError, UsageErrorKind};
use crate::config::environment::{self, Variables};
use crate::journal::{
    JournalError, LockedSession, MachineId, OnDamage, ReadRequest, RestoredSession, ResumePoint,
    SessionFolder, SessionId, Terms, UserMessageIds, latest, read_session, read_terms,
};
use crate::process::file_reads;
use crate::secrets::{KnownSecrets, Redactor};
use crate::tools::secret_values;
use crate::transcript::TokenDensity;

/// The choice of a session by flags. The session is not read yet.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct SessionChoice {
    place: SessionFolder,
    /// The id of the run's session.
    id: SessionId,
    /// The session to resume.
    source: Option<SessionId>,
    /// True if the run's session is a fork of it.
    is_fork: bool,
    request: ReadRequest,
    /// True for `--resume-or-start`: the same command may be run again and again, even while
    /// another process works on the session.
    is_repeatable: bool,
    /// True if a journal is kept.
    persist: bool,
    /// True if the user named the folder to work in, so that the session may move there.
    names_folder: bool,
}

/// Uses `~/.claude`, the folder of hosts, for settings and sessions if the session to resume is
/// there, and not in outlast's own folder: a host began it, and the command in its result names
/// only the id. Does nothing for a session of another program, which has no contract, or if
/// outlast's folder has settings of the user.
pub(super) fn use_folder_of_session(args: &RunArgs, variables: &mut Variables, cwd: &Path) {
    let Some((own, shared)) = default_folders(variables) else { return };
    if own.join("settings.json").exists() {
        return;
    }
    if let Some(id) = resumed_id(args)
        && !SessionFolder::new(&own, cwd).has(&id)
        && has_contract(&shared, cwd, &id)
    {
        use_folder(variables, shared);
    }
}

/// Returns true if [`use_folder_of_session`] does not find the sessions of a host in this folder.
pub(super) fn is_overlooked(config_dir: &Path, variables: &Variables) -> bool {
    environment::home(variables).is_some_and(|home| {
        let own_folder = home.join(environment::CONFIG_FOLDER);
        config_dir == home.join(environment::SHARED_FOLDER)
            && own_folder.join("settings.json").exists()
    })
}

/// Uses `~/.claude`, where clients of the SDKs look, for settings and sessions of a host, unless a
/// variable names another folder, or the session to resume is in outlast's own folder because a
/// plain run began it.
pub(super) fn use_folder_of_hosts(args: &RunArgs, variables: &mut Variables, cwd: &Path) {
    let Some((own, shared)) = default_folders(variables) else { return };
    let is_own = resumed_id(args).is_some_and(|id| {
        !SessionFolder::new(&shared, cwd).has(&id) && has_contract(&own, cwd, &id)
    });
    if !is_own {
        use_folder(variables, shared);
    }
}

/// Returns outlast's own folder and the one for hosts, unless a variable names another one.
fn default_folders(variables: &Variables) -> Option<(PathBuf, PathBuf)> {
    Some((environment::config_dir(variables), environment::shared_folder(variables)?))
}

fn use_folder(variables: &mut Variables, folder: PathBuf) {
    variables.insert("CLAUDE_CONFIG_DIR".into(), folder.into());
}

/// Returns the id of the session to resume, if the flags name one that is kept in a default folder.
fn resumed_id(args: &RunArgs) -> Option<SessionId> {
    let session = &args.session;
    let name = session.resume_or_start.as_ref().or(session.resume.as_ref());
    name.filter(|_| session.own_folder.is_none()).and_then(|name| uuid("", name).ok())
}

/// Returns true if outlast began the session.
fn has_contract(folder: &Path, cwd: &Path, id: &SessionId) -> bool {
    let terms = read_terms(&SessionFolder::new(folder, cwd), id);
    terms.is_ok_and(|terms| terms.contract.is_some())
}

/// A chosen session with its state so far. Nothing was written to it.
pub(super) struct ChosenSession {
    pub(super) id: SessionId,
    pub(super) place: SessionFolder,
    pub(super) origin: SessionOrigin,
    /// True for `--resume-or-start`.
    pub(super) is_repeatable: bool,
    /// True if the session may continue in another folder: the user named one, or it is a fork.
    pub(super) may_move: bool,
}

/// The state that a run's session begins with.
pub(super) enum SessionOrigin {
    New,
    Resumed(Box<LockedSession>),
    /// With the id of its source.
    Forked(SessionId, Box<RestoredSession>),
    /// Restored read-only: no journal is kept.
    ReadOnly(Box<RestoredSession>),
    /// Another process holds the session, with `--resume-or-start`. The session is refused once the
    /// prompt is known, since another prompt is the better reason for the refusal.
    InUse(Box<JournalError>, Box<Terms>),
}

impl SessionChoice {
    /// Determines the session that the flags choose.
    ///
    /// # Errors
    /// The flags contradict each other, or there is no session of that name.
    pub(super) fn of(
        args: &RunArgs,
        variables: &Variables,
        cwd: &Path,
    ) -> Result<Self, UsageError> {
        let session = &args.session;
        args.check()?;
        check(args)?;
        let folder = session_dir(args, &environment::config_dir(variables));
        let mut place = SessionFolder::new(&folder, cwd);
        if let Some(name) = environment::host_id(variables) {
            place = place.on_machine(MachineId::named(&name));
        }
        let source = match (&session.resume_or_start, &session.resume) {
            (Some(id), _) => Some(uuid("--resume-or-start", id)?),
            (None, Some(name)) => Some(resumed(&place, name, variables)?),
            (None, None) if session.go_on => Some(newest(&place)?),
            (None, None) => None,
        };
        let given = session.session_id.as_deref().map(|id| uuid("--session-id", id)).transpose()?;
        let fresh = given.unwrap_or_else(SessionId::generate);
        let resumed = source.clone().filter(|_| !session.fork_session);
        Ok(Self {
            id: resumed.unwrap_or(fresh),
            place,
            source,
            is_fork: session.fork_session,
            request: reading(args)?,
            is_repeatable: session.resume_or_start.is_some(),
            persist: !session.no_session_persistence,
            names_folder: session.names_folder,
        })
    }

    /// Returns the folder for the files beside the journal of the run's session.
    pub(super) fn folder(&self) -> PathBuf {
        self.place.folder().join(self.id.as_str())
    }

    /// Reads the session, and locks it if the run will write to it. Changes nothing.
    ///
    /// # Errors
    /// It does not exist, is in use, or cannot be read.
    pub(super) fn lock(self) -> Result<ChosenSession, UsageError> {
        let writable = self.source.as_ref().filter(|_| self.persist && !self.is_fork);
        let Some(source) = writable else { return self.read() };
        let locked = LockedSession::lock_and_read(&self.place, source, self.request.clone());
        let origin = match locked {
            Ok(session) => SessionOrigin::Resumed(Box::new(session)),
            Err(error @ JournalError::Locked { .. }) if self.is_repeatable => {
                let terms = read_terms(&self.place, source);
                SessionOrigin::InUse(Box::new(error), Box::new(terms.unwrap_or_default()))
            }
            Err(error) => self.missing(error)?,
        };
        Ok(self.with(origin))
    }

    /// Reads the session without locking it, for reports about it and for a fork.
    ///
    /// # Errors
    /// It does not exist, or cannot be read.
    pub(super) fn read(self) -> Result<ChosenSession, UsageError> {
        let Some(source) = self.source.clone() else { return Ok(self.with(SessionOrigin::New)) };
        let origin = match read_session(&self.place, &source, self.request.clone()).map(Box::new) {
            Ok(restored) if self.is_fork => SessionOrigin::Forked(source, restored),
            Ok(restored) => SessionOrigin::ReadOnly(restored),
            Err(error) => self.missing(error)?,
        };
        Ok(self.with(origin))
    }

    /// Reads the terms that the session was started with, without locking it. Empty if it cannot be
    /// read, which its next run reports.
    pub(super) fn terms(&self) -> Terms {
        let source = self.source.as_ref();
        source.and_then(|id| read_terms(&self.place, id).ok()).unwrap_or_default()
    }

    /// Returns the origin of a session that could not be read: it may not exist yet.
    fn missing(&self, error: JournalError) -> Result<SessionOrigin, UsageError> {
        if self.is_repeatable && matches!(error, JournalError::Unknown { .. }) {
            return Ok(SessionOrigin::New);
        }
        Err(journal_error(error))
    }

    fn with(self, origin: SessionOrigin) -> ChosenSession {
        let Self { id, place, is_repeatable, is_fork, names_folder, .. } = self;
        ChosenSession { id, place, origin, is_repeatable, may_move: names_folder || is_fork }
    }
}

impl ChosenSession {
    pub(super) fn restored(&self) -> Option<&RestoredSession> {
        match &self.origin {
            SessionOrigin::New | SessionOrigin::InUse(..) => None,
            SessionOrigin::Resumed(session) => Some(session.restored()),
            SessionOrigin::Forked(_, restored) | SessionOrigin::ReadOnly(restored) => {
                Some(restored)
            }
        }
    }

    /// Returns the session.
    ///
    /// # Errors
    /// Another process holds it.
    pub(super) fn unless_in_use(self) -> Result<Self, UsageError> {
        match self.origin {
            SessionOrigin::InUse(error, _) => Err(journal_error(*error)),
            origin @ (SessionOrigin::New
            | SessionOrigin::Resumed(_)
            | SessionOrigin::Forked(..)
            | SessionOrigin::ReadOnly(_)) => Ok(Self { origin, ..self }),
        }
    }

    /// Returns the terms that the session was started with. Empty for a new one.
    pub(super) fn terms(&self) -> Terms {
        if let SessionOrigin::InUse(_, terms) = &self.origin {
            return Terms::clone(terms);
        }
        self.restored().map(|restored| restored.contract.terms.clone()).unwrap_or_default()
    }

    /// Returns the id of the session that was read: for a fork, its source.
    pub(super) fn source(&self) -> &SessionId {
        if let SessionOrigin::Forked(source, _) = &self.origin { source } else { &self.id }
    }

    /// Returns true if a hook has deferred the last call, whose answer is missing.
    pub(super) fn has_deferred_call(&self) -> bool {
        !self.is_repeatable && self.restored().is_some_and(|it| it.conversation.deferred)
    }

    /// Returns the ids of the user's messages so far. Empty for a fork, whose messages get new ids,
    /// and with `--resume-or-start`, which recognizes its prompt by the text.
    pub(super) fn user_message_ids(&self) -> UserMessageIds {
        let is_fork = matches!(self.origin, SessionOrigin::Forked(..));
        let restored = self.restored().filter(|_| !is_fork && !self.is_repeatable);
        restored.map(|it| it.conversation.user_message_ids.clone()).unwrap_or_default()
    }

    /// Estimates the tokens of the messages so far.
    pub(super) fn message_tokens(&self) -> u64 {
        self.restored().map_or(0, |it| TokenDensity::USUAL.of(&it.conversation.messages))
    }
}

/// Checks the flags that choose a session, without looking for it.
///
/// # Errors
/// They contradict each other, or an id is not valid.
pub(super) fn check(args: &RunArgs) -> Result<(), UsageError> {
    let session = &args.session;
    let given = session.session_id.as_deref();
    given.map(|id| uuid("--session-id", id)).transpose()?;
    let resuming = session.go_on || session.resume.is_some();
    if resuming && given.is_some() && !session.fork_session {
        return Err(UsageError::new(
            "--session-id names a new session; with --resume or --continue add --fork-session",
        ));
    }
    if session.fork_session && !resuming {
        return Err(needs_resume("--fork-session"));
    }
    if session.to_last_intact && !resuming {
        return Err(needs_resume("--to-last-intact"));
    }
    let repeatable = session.resume_or_start.as_deref();
    repeatable.map(|id| uuid("--resume-or-start", id)).transpose()?;
    reading(args).map(drop)
}

fn needs_resume(flag: &str) -> UsageError {
    UsageError::new(format!("{flag} needs --resume or --continue; add one of them"))
}

/// Returns the folder of the run's sessions.
pub(super) fn session_dir(args: &RunArgs, config_dir: &Path) -> PathBuf {
    args.session.own_folder.clone().unwrap_or_else(|| config_dir.to_owned())
}

/// Returns the options for reading the session to resume, such as its last message.
fn reading(args: &RunArgs) -> Result<ReadRequest, UsageError> {
    let session = &args.session;
    let is_resumed = session.resume.is_some() || session.go_on;
    let point = match (&session.resume_session_at, &session.resume_drops_turn) {
        (None, None) => None,
        (None, Some(_)) => {
            return Err(UsageError::new(
                "--resume-drops-turn checks what --resume-session-at drops; add it",
            ));
        }
        (Some(_), _) if !is_resumed => return Err(needs_resume("--resume-session-at")),
        (Some(message), turn) => Some(ResumePoint {
            message: message_id(message),
            dropped_turn: turn.as_deref().map(message_id),
        }),
    };
    let intact = session.to_last_intact;
    let on_damage = if intact { OnDamage::UseIntactPart } else { OnDamage::Refuse };
    Ok(ReadRequest { on_damage, point })
}

/// Returns the id of a message as it is recorded. Other programs write it in upper case, too.
pub(super) fn message_id(given: &str) -> String {
    let given = given.trim();
    Uuid::try_parse(given).map_or_else(|_| given.to_owned(), |uuid| uuid.to_string())
}

/// Finds the session that `--resume` names: by its id or the beginning of its id, by its name, or
/// as `latest`. Names are recorded without secrets.
fn resumed(
    place: &SessionFolder,
    name: &str,
    variables: &Variables,
) -> Result<SessionId, UsageError> {
    let name = name.trim();
    if Uuid::try_parse(name).is_ok() {
        return uuid("--resume", name);
    }
    let found = session_name::find(place, name).or_else(|error| {
        let secrets = KnownSecrets::new(secret_values(variables, None));
        let recorded = Redactor::new(secrets).redact(name);
        if recorded == name { Err(error) } else { session_name::find(place, &recorded) }
    });
    uuid("--resume", found.map_err(|error| error.with_place("--resume"))?.id.as_str())
}

fn newest(place: &SessionFolder) -> Result<SessionId, UsageError> {
    latest(place).map_err(journal_error)?.ok_or_else(|| {
        if let Some(closed) = file_reads::closed_part(&place.folder(), geteuid()) {
            return UsageError::new(format!("the sessions cannot be read: {closed}"));
        }
        UsageError::new(format!(
            "there is no session to continue in {}; start one by giving only a prompt",
            place.cwd().display()
        ))
    })
}

fn uuid(flag: &str, id: &str) -> Result<SessionId, UsageError> {
    let uuid = Uuid::try_parse(id.trim()).ok();
    uuid.and_then(|uuid| SessionId::parse(&uuid.to_string())).ok_or_else(|| {
        let shown: String = id.chars().take(60).collect();
        UsageError::new(format!("{flag}: {shown:?} is not the id of a session; it is a UUID"))
    })
}

#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
pub(super) fn journal_error(error: JournalError) -> UsageError {
    let line = format!("{error}; {}", error.hint());
    match error {
        JournalError::Locked { .. } => UsageError::of(UsageErrorKind::Busy, line),
        JournalError::Unknown { .. }
        | JournalError::NoMessage { .. }
        | JournalError::DropsMore { .. } => UsageError::of(UsageErrorKind::NotResumable, line),
        JournalError::Unwritable { .. }
        | JournalError::Exists { .. }
        | JournalError::Unreadable { .. }
        | JournalError::Damaged { .. }
        | JournalError::Newer { .. } => UsageError::new(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_by_its_id_in_any_case() {
        let id = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        for given in [id, &id.to_uppercase(), &format!(" {id}\n")] {
            assert_eq!(message_id(given), id);
        }
        assert_eq!(message_id("msg_A1"), "msg_A1", "ids of other programs stay");
    }
}
