//! The access token of a server in a run: renewed before it expires and when the server rejects it,
//! by one process at a time, once for all that share the login.
//!
//! ```text
//!          ends soon, or 401
//!                 │
//!          take the lock ──── timeout ──► temporary fault
//!                 │
//!         read the file again ── another token ──► use it
//!                 │ same token
//!         make the new file, request a token ──── refused ──► the user must log in
//!                 │
//!         write, sync, rename ──► use it
//! ```
//!
//! Cancelling the caller does not cancel a renewal: the old refresh token may already be spent.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::Url;
use reqwest::header::HeaderValue;
use tempfile::NamedTempFile;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, timeout};

use crate::process::LockError;

use super::exchange::{TokenSource, demanded_scope};
use super::fault::OAuthFault;
use super::settings::OAuthSettings;
use super::token_file::{GrantKind, LOCK_TIMEOUT, SavedLogin};
use crate::mcp::environment::LoginEnvironment;

/// The time before its expiry at which a token is renewed: clocks differ, and requests take time.
const MARGIN: Duration = Duration::from_mins(1);

/// The pause after a failed early renewal, while the token is valid.
const EARLY_RENEWAL_PAUSE: Duration = Duration::from_secs(30);

/// The time limit of one renewal, all its requests included.
const RENEWAL_TIMEOUT: Duration = Duration::from_mins(1);

/// The tokens of a server.
pub(in crate::mcp) struct AccessTokens {
    source: Arc<TokenSource>,
    cached: Arc<Mutex<CachedLogin>>,
}

/// A token, which is sent but never displayed.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::mcp) struct BearerToken(String);

/// The login as last read or renewed by this process.
#[derive(Default)]
struct CachedLogin {
    is_read: bool,
    login: Option<SavedLogin>,
    /// The token that the server rejected last.
    rejected: Option<String>,
    /// The refresh token that was refused, and the fault.
    refused: Option<(String, OAuthFault)>,
    no_early_renewal_before: Option<Instant>,
}

type CacheGuard = OwnedMutexGuard<CachedLogin>;

impl AccessTokens {
    pub(in crate::mcp) fn new(
        server: &str,
        url: Url,
        settings: OAuthSettings,
        environment: &LoginEnvironment,
    ) -> Self {
        let source = Arc::new(TokenSource::new(server, url, settings, environment));
        Self { source, cached: Arc::default() }
    }

    /// The token for a request, renewed if it expires soon. `None` if there is no login yet; the
    /// server may need none.
    ///
    /// # Errors
    /// There is a login that cannot be used.
    pub(in crate::mcp) async fn token(&self) -> Result<Option<BearerToken>, OAuthFault> {
        let mut cached = Arc::clone(&self.cached).lock_owned().await;
        if !cached.is_read {
            cached.adopt(self.source.usable_login()?, &self.source);
        }
        let now = SystemTime::now();
        if cached.is_fresh(now) {
            return Ok(cached.token());
        }
        let is_valid = cached.login.as_ref().is_some_and(|it| it.is_valid_for(now, Duration::ZERO));
        // If another process holds the lock, it is renewing; the next request uses its result.
        let lock_timeout = if is_valid { Duration::ZERO } else { LOCK_TIMEOUT };
        let (mut cached, renewed) = self.renew_locked(cached, lock_timeout, None).await;
        match renewed {
            Err(fault) if !is_valid => return Err(fault),
            Err(_) => cached.no_early_renewal_before = Some(Instant::now() + EARLY_RENEWAL_PAUSE),
            Ok(()) => {}
        }
        Ok(cached.token())
    }

    /// Obtains a token after the server rejected one, or demanded one for a request without a
    /// token. `None` if only the user can provide one, by a login.
    ///
    /// # Errors
    /// The authorization server issues no token, or the login cannot be read or saved.
    pub(in crate::mcp) async fn renew(
        &self,
        rejected: Option<&BearerToken>,
        challenge: Option<&str>,
    ) -> Result<Option<BearerToken>, OAuthFault> {
        let mut cached = Arc::clone(&self.cached).lock_owned().await;
        let current = cached.token();
        if current.is_some() && current.as_ref() != rejected {
            // Another request has renewed it meanwhile.
            return Ok(current);
        }
        cached.rejected = rejected.map(|token| token.0.clone());
        if self.source.client().is_none() && self.source.usable_login()?.is_none() {
            return Ok(None);
        }
        let challenge = challenge.map(ToOwned::to_owned);
        let (cached, renewed) = self.renew_locked(cached, LOCK_TIMEOUT, challenge).await;
        renewed?;
        Ok(cached.token())
    }

    async fn renew_locked(
        &self,
        mut cached: CacheGuard,
        lock_timeout: Duration,
        challenge: Option<String>,
    ) -> (CacheGuard, Result<(), OAuthFault>) {
        let lock = match self.source.file.lock(lock_timeout).await {
            Ok(lock) => Some(lock),
            // A client with its own credentials needs no file: without a file, it only requests
            // tokens more often.
            Err(LockError::Unusable(_)) if self.source.client().is_some() => None,
            Err(error) => return (cached, Err(self.source.lock_fault(&error, lock_timeout))),
        };
        let source = Arc::clone(&self.source);
        let renewal = async move {
            let renewed =
                timeout(RENEWAL_TIMEOUT, cached.renew(&source, challenge.as_deref())).await;
            // Released after the login is saved, so that the next process finds it.
            drop(lock);
            let seconds = RENEWAL_TIMEOUT.as_secs();
            let late = format!("its authorization server gave no token within {seconds} s");
            (cached, renewed.unwrap_or(Err(OAuthFault::Temporary(late))))
        };
        let Ok(ended) = tokio::spawn(renewal).await else {
            let cached = Arc::clone(&self.cached).lock_owned().await;
            let why = "the renewal of the login was aborted".to_owned();
            return (cached, Err(OAuthFault::Temporary(why)));
        };
        ended
    }
}

impl BearerToken {
    /// The value of the header with the token. `None` if a header cannot contain it.
    pub(in crate::mcp) fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl CachedLogin {
    fn adopt(&mut self, login: Option<SavedLogin>, source: &TokenSource) {
        if let Some(login) = &login {
            source.hide(login);
        }
        (self.login, self.is_read, self.no_early_renewal_before) = (login, true, None);
    }

    /// True if the token need not be renewed now.
    fn is_fresh(&self, now: SystemTime) -> bool {
        let Some(login) = &self.login else { return true };
        let is_renewable =
            login.grant == GrantKind::ClientCredentials || login.refresh_token().is_some();
        // A token whose lifetime is shorter than the margin must not be renewed with every request.
        let margin = login.lifetime().map_or(MARGIN, |lifetime| MARGIN.min(lifetime / 4));
        let is_paused = self.no_early_renewal_before.is_some_and(|end| Instant::now() < end);
        // A token that cannot be renewed is sent, and the server decides.
        !is_renewable || login.is_valid_for(now, if is_paused { Duration::ZERO } else { margin })
    }

    fn token(&self) -> Option<BearerToken> {
        let token = self.login.as_ref()?.access_token()?;
        Some(BearerToken(token.to_owned()))
    }

    /// Renews the login under the lock.
    async fn renew(
        &mut self,
        source: &TokenSource,
        challenge: Option<&str>,
    ) -> Result<(), OAuthFault> {
        let saved = source.usable_login()?;
        let current = self.login.as_ref().and_then(SavedLogin::access_token);
        if let Some(saved) = &saved
            && saved.access_token() != current
            && saved.access_token() != self.rejected.as_deref()
            && saved.is_valid_for(SystemTime::now(), Duration::ZERO)
        {
            self.adopt(Some(saved.clone()), source);
            return Ok(());
        }
        let login = match (saved, source.client()) {
            (Some(saved), _) if saved.grant == GrantKind::Login => {
                self.renew_login(source, saved, challenge).await?
            }
            (before, Some(client)) => {
                let login = source.client_token(client, before.as_ref(), challenge).await?;
                source.hide(&login);
                // Without the file, each run requests its own token.
                let _ = source.file.prepare().and_then(|new| source.file.commit(new, &login));
                login
            }
            (Some(_) | None, None) => return Err(source.gone()),
        };
        self.adopt(Some(login), source);
        Ok(())
    }

    async fn renew_login(
        &mut self,
        source: &TokenSource,
        mut saved: SavedLogin,
        challenge: Option<&str>,
    ) -> Result<SavedLogin, OAuthFault> {
        if let Some(scope) = challenge.and_then(|it| demanded_scope(it, &source.url)) {
            saved.wanted_scope = Some(scope.clone());
            source.save(source.prepare()?, &saved)?;
            return Err(OAuthFault::Permanent(format!(
                "it demands the scope {scope:?}, which the login does not have"
            )));
        }
        let Some(refresh) = saved.refresh_token().map(ToOwned::to_owned) else {
            let why = "the login has ended, and came without a refresh token";
            return Err(OAuthFault::Permanent(why.to_owned()));
        };
        if let Some((refused, fault)) = &self.refused
            && *refused == refresh
        {
            return Err(fault.clone());
        }
        let new = source.prepare()?;
        match source.refresh(&saved, challenge).await {
            Ok(login) => {
                source.hide(&login);
                source.save(new, &login)?;
                Ok(login)
            }
            Err(fault @ OAuthFault::Permanent(_)) => {
                self.refused = Some((refresh, fault.clone()));
                Err(fault)
            }
            Err(fault @ OAuthFault::Temporary(_)) => Err(fault),
        }
    }
}

impl TokenSource {
    /// The saved login, unless its client is no longer configured.
    fn usable_login(&self) -> Result<Option<SavedLogin>, OAuthFault> {
        let path = self.file.path().display();
        let login = self.file.load().map_err(|error| {
            OAuthFault::Permanent(format!("the login in {path} cannot be read: {error}"))
        })?;
        let client_id = self.client().map(|(id, _)| id);
        Ok(login.filter(|login| match login.grant {
            GrantKind::Login => true,
            GrantKind::ClientCredentials => client_id == Some(&login.credentials.client_id),
        }))
    }

    fn prepare(&self) -> Result<NamedTempFile, OAuthFault> {
        self.file.prepare().map_err(|error| self.unsaved(&error))
    }

    fn save(&self, new: NamedTempFile, login: &SavedLogin) -> Result<(), OAuthFault> {
        self.file.commit(new, login).map_err(|error| self.unsaved(&error))
    }

    fn unsaved(&self, error: &io::Error) -> OAuthFault {
        let path = self.file.path().display();
        OAuthFault::Permanent(format!(
            "the login is not renewed, since {path} cannot be written: {error}"
        ))
    }

    fn gone(&self) -> OAuthFault {
        let path = self.file.path().display();
        OAuthFault::Permanent(format!("there is no login in {path} any more"))
    }

    fn lock_fault(&self, error: &LockError, lock_timeout: Duration) -> OAuthFault {
        let path = self.file.path().display();
        match error {
            LockError::Held(by) => {
                let seconds = lock_timeout.as_secs();
                OAuthFault::Temporary(format!(
                    "the login in {path} is being renewed by {by}, for more than {seconds} s"
                ))
            }
            LockError::Unusable(error) => OAuthFault::Permanent(format!(
                "the login in {path} cannot be renewed, since it cannot be locked: {error}"
            )),
        }
    }
}
