//! Renews an OAuth login: by one process at a time, once for all processes.
//!
//! ```text
//!            expired, or rejected by the service
//!                        │
//!                 take the lock ──── timeout ──► temporary fault
//!                        │
//!               read the file again ── new token ──► use it
//!                        │ same token
//!             create the replacement file
//!                        │
//!                 refresh grant ──── refused ──► no credential
//!                        │
//!         write, sync, rename ──► use it
//! ```
//!
//! From the grant on, cancelling the caller does not cancel the renewal: the old refresh token may
//! already be spent.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, timeout};

use crate::process::{FileLock, LockError};
use crate::recovery::{Fault, FaultKind};
use crate::secrets::KnownSecrets;

use super::super::headers::wall_clock;
use super::super::proxies::Proxies;
use super::credential::Renewal;
use super::fault::{issuer_unreachable, missing_credential};
use super::grant::TokenRequest;
use super::login::{Login, LoginError, LoginFile, append_suffix};
use super::secret::Secret;
use super::store::{ReplacementFile, complete_replacement};

/// Time before its expiry at which a token is renewed: clocks differ, and requests take time.
const MARGIN: Duration = Duration::from_mins(1);
/// Pause after a failed early renewal, while the token is still valid.
const EARLY_RENEWAL_PAUSE: Duration = Duration::from_secs(30);

/// A login and its file.
#[derive(Debug)]
pub(super) struct OAuthLogin {
    file: LoginFile,
    roots: Vec<CertificateDer<'static>>,
    proxies: Proxies,
    state: Arc<Mutex<LoginState>>,
}

/// The state of the login in this process.
#[derive(Debug, Default)]
struct LoginState {
    login: Option<Login>,
    /// An access token that the service rejected.
    rejected: Option<Secret>,
    /// A rejected refresh token, and the endpoint's error.
    refused_grant: Option<(Secret, Box<Fault>)>,
    /// Time before its expiry at which the current token is renewed.
    margin: Duration,
    /// Time before which no early renewal is tried.
    no_early_renewal_before: Option<Instant>,
    /// The secrets to redact.
    known: KnownSecrets,
}

type RenewalGuard = OwnedMutexGuard<LoginState>;

impl OAuthLogin {
    pub(super) fn new(
        file: LoginFile,
        roots: Vec<CertificateDer<'static>>,
        proxies: Proxies,
        known: KnownSecrets,
    ) -> Self {
        let state = LoginState { known, ..LoginState::default() };
        Self { file, roots, proxies, state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the access token, renewed if necessary.
    pub(super) async fn token(&self) -> Result<Secret, Box<Fault>> {
        let mut state = Arc::clone(&self.state).lock_owned().await;
        if state.login.is_none() {
            state.adopt_login(self.read_login()?, MARGIN);
        }
        let now = wall_clock();
        if state.is_fresh(now) {
            return state.access();
        }
        let is_usable = state.is_usable_for(now, Duration::ZERO);
        // If another process holds the lock, it is renewing; the next request uses its result.
        let lock_timeout = if is_usable { Duration::ZERO } else { self.file.lock_timeout };
        let (mut state, renewed) = self.renew(state, lock_timeout).await;
        match renewed {
            Err(fault) if !is_usable => return Err(fault),
            Err(_) => state.no_early_renewal_before = Some(Instant::now() + EARLY_RENEWAL_PAUSE),
            Ok(()) => {}
        }
        state.access()
    }

    /// Records that the service rejected this token: it is not sent again.
    pub(super) async fn reject(&self, token: &Secret) {
        self.state.lock().await.rejected = Some(token.clone());
    }

    /// Fetches a different token than the current one.
    pub(super) async fn refresh(&self) -> Renewal {
        let mut state = Arc::clone(&self.state).lock_owned().await;
        if state.login.is_none() {
            match self.read_login() {
                Ok(login) => state.adopt_login(login, MARGIN),
                Err(fault) => return Renewal::Failed(fault),
            }
        }
        let before = state.login.as_ref().and_then(|login| login.access.clone());
        let (state, renewed) = self.renew(state, self.file.lock_timeout).await;
        let now = state.login.as_ref().and_then(|login| login.access.clone());
        match renewed {
            Err(fault) => Renewal::Failed(fault),
            Ok(()) if now == before || now == state.rejected => Renewal::Unchanged,
            Ok(()) => Renewal::Replaced,
        }
    }

    /// Waits until no renewal is in progress, but no longer than `limit`.
    pub(super) async fn finish_renewal(&self, limit: Duration) {
        // On a timeout the next process finds the unchanged login.
        let _ = timeout(limit, self.state.lock()).await;
    }

    fn read_login(&self) -> Result<Login, Box<Fault>> {
        let gone = || {
            let path = self.file.path.display();
            let what = format!("there is no login in {path}; log in again");
            missing_credential("oauth_no_login", what)
        };
        self.file.read().map_err(|error| unreadable_login(&error))?.ok_or_else(gone)
    }

    async fn renew(
        &self,
        mut state: RenewalGuard,
        lock_timeout: Duration,
    ) -> (RenewalGuard, Result<(), Box<Fault>>) {
        let path = self.file.real_path();
        let lock_path = append_suffix(&path, ".lock");
        let lock = match FileLock::take(&lock_path, lock_timeout).await {
            Ok(lock) => lock,
            Err(error) => return (state, Err(lock_fault(&error, &lock_path, lock_timeout))),
        };
        let file = LoginFile { path, ..self.file.clone() };
        let (roots, proxies) = (self.roots.clone(), self.proxies.clone());
        let renewal = async move {
            let result = state.renew(&file, &roots, &proxies).await;
            // Released after the login is saved, so that the next holder finds it.
            drop(lock);
            (state, result)
        };
        let Ok(ended) = tokio::spawn(renewal).await else {
            let what = "the renewal of the login was aborted".to_owned();
            let state = Arc::clone(&self.state).lock_owned().await;
            return (state, Err(missing_credential("oauth_renewal_failed", what)));
        };
        ended
    }
}

impl LoginState {
    /// Renews the login under the lock.
    async fn renew(
        &mut self,
        file: &LoginFile,
        roots: &[CertificateDer<'static>],
        proxies: &Proxies,
    ) -> Result<(), Box<Fault>> {
        let path = &file.path;
        complete_replacement(path)
            .map_err(|error| unsaved_login("cannot be renewed", path, &error))?;
        let Some(saved) = file.read().map_err(|error| unreadable_login(&error))? else {
            let what = format!("there is no login in {} any more; log in again", path.display());
            return Err(missing_credential("oauth_no_login", what));
        };
        if self.is_different(&saved) && saved.is_valid_for(wall_clock(), Duration::ZERO) {
            self.adopt_login(saved, MARGIN);
            return Ok(());
        }
        let request = TokenRequest::new(&saved)?;
        if let Some((token, fault)) = &self.refused_grant
            && saved.refresh.as_ref() == Some(token)
        {
            return Err(fault.clone());
        }
        let replacement = ReplacementFile::prepare(path)
            .map_err(|error| unsaved_login("is not renewed, for a new one", path, &error))?;
        let now = wall_clock();
        let granted = match request.run(roots, proxies, file.limit).await {
            Ok(grant) => replacement
                .commit(&grant, now)
                .map_err(|error| unsaved_login("was renewed, but", path, &error))
                .map(|()| grant),
            Err(fault) => {
                replacement.abandon();
                Err(fault)
            }
        };
        let grant = granted.inspect_err(|fault| {
            let spent = saved.refresh.clone().filter(|_| is_permanent(fault));
            self.refused_grant = spent.map(|token| (token, fault.clone()));
        })?;
        // A token whose lifetime is shorter than the margin must not be renewed with every request.
        let margin = grant.lifetime.map_or(MARGIN, |lifetime| MARGIN.min(lifetime / 4));
        let expires = grant.lifetime.and_then(|lifetime| now.checked_add(lifetime));
        let refresh = grant.refresh.or(saved.refresh);
        self.adopt_login(Login { access: Some(grant.access), refresh, expires, ..saved }, margin);
        Ok(())
    }

    fn adopt_login(&mut self, login: Login, margin: Duration) {
        for secret in [&login.access, &login.refresh].into_iter().flatten() {
            self.known.add(secret.reveal());
        }
        self.login = Some(login);
        self.margin = margin;
        self.no_early_renewal_before = None;
    }

    /// True if a login has a different access token than the current and the rejected one.
    fn is_different(&self, login: &Login) -> bool {
        let current = self.login.as_ref().and_then(|login| login.access.as_ref());
        login.access.as_ref() != current && login.access != self.rejected
    }

    /// True if the token need not be renewed now.
    fn is_fresh(&self, now: SystemTime) -> bool {
        let Some(login) = &self.login else { return false };
        if login.access.is_some() && TokenRequest::new(login).is_err() {
            // The login cannot be renewed: send the token and let the service decide.
            return true;
        }
        let is_paused = self.no_early_renewal_before.is_some_and(|end| Instant::now() < end);
        self.is_usable_for(now, if is_paused { Duration::ZERO } else { self.margin })
    }

    /// True if the service has not rejected the token, which is valid for longer than `ahead`.
    fn is_usable_for(&self, now: SystemTime, ahead: Duration) -> bool {
        let login = self.login.as_ref().filter(|login| login.access != self.rejected);
        login.is_some_and(|login| login.is_valid_for(now, ahead))
    }

    fn access(&self) -> Result<Secret, Box<Fault>> {
        let access = self.login.as_ref().and_then(|login| login.access.clone());
        access.ok_or_else(|| {
            missing_credential("oauth_no_login", "the login holds no access token".to_owned())
        })
    }
}

/// True if a retry would get the same answer.
fn is_permanent(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::Refused { status: 200, .. })
}

fn unreadable_login(error: &LoginError) -> Box<Fault> {
    missing_credential("oauth_no_login", format!("{error}; log in again"))
}

fn unsaved_login(what: &str, path: &Path, error: &io::Error) -> Box<Fault> {
    let path = path.display();
    let message = format!("the login {what} could not be saved in {path}: {error}");
    missing_credential("oauth_not_saved", message)
}

fn lock_fault(error: &LockError, path: &Path, lock_timeout: Duration) -> Box<Fault> {
    let path = path.display();
    match error {
        LockError::Held(by) => {
            let waited = lock_timeout.as_secs_f32();
            issuer_unreachable(format!(
                "the login is being renewed by {by}, which has held {path} for {waited} s"
            ))
        }
        LockError::Unusable(error) => missing_credential(
            "oauth_not_saved",
            format!("the login cannot be renewed, since {path} cannot be locked: {error}"),
        ),
    }
}
