//! The access token of a server in a run: renewed before it expires and when the server rejects it,
//! by one process at a time, once for all that share the login.
//!
//! ```text
//!          ends soon, or 401
//!                 │
//!          take the lock ──── timeout ──► temporary fault
//!                 │
//!         read the file again ── another token ──► use it
//!                 │ the same
//!         make the new file, ask for a token ──── refused ──► a person must log in
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
use super::token_file::{GrantKind, SavedLogin};
use crate::mcp::environment::LoginEnvironment;

/// The time before its expiry at which a token is renewed: clocks differ, and requests take time.
const MARGIN: Duration = Duration::from_mins(1);

/// The pause after a failed early renewal, while the token is valid.
const EARLY_RENEWAL_PAUSE: Duration = Duration::from_secs(30);

/// The time limit of one renewal, all its requests included.
const RENEWAL_TIMEOUT: Duration = Duration::from_mins(1);

/// The time limit for the lock: longer than a renewal by another process may take, so that its
/// token can be used.
const LOCK_PATIENCE: Duration = Duration::from_secs(70);

/// The tokens of a server.
pub(in crate::mcp) struct AccessTokens {
    source: Arc<TokenSource>,
    held: Arc<Mutex<HeldLogin>>,
}

/// A token as it is sent. It is never displayed.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::mcp) struct BearerToken(String);

/// The login as this process holds it.
#[derive(Default)]
struct HeldLogin {
    is_read: bool,
    login: Option<SavedLogin>,
    /// The token that the server rejected last.
    rejected: Option<String>,
    /// The refresh token that was refused, and the fault.
    refused: Option<(String, OAuthFault)>,
    no_early_renewal_before: Option<Instant>,
}

type HeldGuard = OwnedMutexGuard<HeldLogin>;

impl AccessTokens {
    pub(in crate::mcp) fn new(
        server: &str,
        url: Url,
        settings: OAuthSettings,
        environment: &LoginEnvironment,
    ) -> Self {
        let source = Arc::new(TokenSource::new(server, url, settings, environment));
        Self { source, held: Arc::default() }
    }

    /// The token for a request, renewed if it expires soon. `None` if there is no login yet; the
    /// server may need none.
    ///
    /// # Errors
    /// There is a login that cannot be used.
    pub(in crate::mcp) async fn token(&self) -> Result<Option<BearerToken>, OAuthFault> {
        let mut held = Arc::clone(&self.held).lock_owned().await;
        if !held.is_read {
            held.adopt(self.source.usable_login()?, &self.source);
        }
        let now = SystemTime::now();
        if held.is_fresh(now) {
            return Ok(held.token());
        }
        let is_valid = held.login.as_ref().is_some_and(|it| it.is_valid_for(now, Duration::ZERO));
        // If another process holds the lock, it is renewing; the next request uses its result.
        let patience = if is_valid { Duration::ZERO } else { LOCK_PATIENCE };
        let (mut held, renewed) = self.renew_held(held, patience, None).await;
        match renewed {
            Err(fault) if !is_valid => return Err(fault),
            Err(_) => held.no_early_renewal_before = Some(Instant::now() + EARLY_RENEWAL_PAUSE),
            Ok(()) => {}
        }
        Ok(held.token())
    }

    /// Obtains a token to replace one that the server rejected, or to follow a request without one.
    /// `None` if only the user can provide one, by a login.
    ///
    /// # Errors
    /// The authorization server issues none; or the login cannot be read or saved.
    pub(in crate::mcp) async fn renew(
        &self,
        rejected: Option<&BearerToken>,
        challenge: Option<&str>,
    ) -> Result<Option<BearerToken>, OAuthFault> {
        let mut held = Arc::clone(&self.held).lock_owned().await;
        let in_hand = held.token();
        if in_hand.is_some() && in_hand.as_ref() != rejected {
            // Another request has renewed it meanwhile.
            return Ok(in_hand);
        }
        held.rejected = rejected.map(|token| token.0.clone());
        if self.source.client().is_none() && self.source.usable_login()?.is_none() {
            return Ok(None);
        }
        let challenge = challenge.map(ToOwned::to_owned);
        let (held, renewed) = self.renew_held(held, LOCK_PATIENCE, challenge).await;
        renewed?;
        Ok(held.token())
    }

    async fn renew_held(
        &self,
        mut held: HeldGuard,
        patience: Duration,
        challenge: Option<String>,
    ) -> (HeldGuard, Result<(), OAuthFault>) {
        let lock = match self.source.file.lock(patience).await {
            Ok(lock) => Some(lock),
            // A client with credentials of its own needs no file: without one it only requests
            // tokens more often.
            Err(LockError::Unusable(_)) if self.source.client().is_some() => None,
            Err(error) => return (held, Err(self.source.lock_fault(&error, patience))),
        };
        let source = Arc::clone(&self.source);
        let renewal = async move {
            let renewed = timeout(RENEWAL_TIMEOUT, held.renew(&source, challenge.as_deref())).await;
            // Released only now, so that the next process finds the saved login.
            drop(lock);
            (held, renewed.unwrap_or_else(|_| Err(late())))
        };
        let Ok(ended) = tokio::spawn(renewal).await else {
            let held = Arc::clone(&self.held).lock_owned().await;
            let why = "the renewal of the login was aborted".to_owned();
            return (held, Err(OAuthFault::Temporary(why)));
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

impl HeldLogin {
    fn adopt(&mut self, login: Option<SavedLogin>, source: &TokenSource) {
        if let Some(login) = &login {
            source.hide(login);
        }
        (self.login, self.is_read, self.no_early_renewal_before) = (login, true, None);
    }

    /// True if the token is not to be renewed now.
    fn is_fresh(&self, now: SystemTime) -> bool {
        let Some(login) = &self.login else { return true };
        let is_renewable =
            login.grant == GrantKind::ClientCredentials || login.refresh_token().is_some();
        // A token whose lifetime is shorter than the margin must not be renewed with every request.
        let margin = login.lifetime().map_or(MARGIN, |lifetime| MARGIN.min(lifetime / 4));
        let rests = self.no_early_renewal_before.is_some_and(|end| Instant::now() < end);
        // A token that cannot be renewed is sent, and the server decides.
        !is_renewable || login.is_valid_for(now, if rests { Duration::ZERO } else { margin })
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
        let there = source.usable_login()?;
        let in_hand = self.login.as_ref().and_then(SavedLogin::access_token);
        if let Some(there) = &there
            && there.access_token() != in_hand
            && there.access_token() != self.rejected.as_deref()
            && there.is_valid_for(SystemTime::now(), Duration::ZERO)
        {
            self.adopt(Some(there.clone()), source);
            return Ok(());
        }
        let login = match (there, source.client()) {
            (Some(there), _) if there.grant == GrantKind::Login => {
                self.renew_login(source, there, challenge).await?
            }
            (before, Some(client)) => {
                let login = source.client_token(client, before.as_ref(), challenge).await?;
                source.hide(&login);
                // Without the file each run requests a token of its own.
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
        there: SavedLogin,
        challenge: Option<&str>,
    ) -> Result<SavedLogin, OAuthFault> {
        if let Some(scope) = challenge.and_then(|it| demanded_scope(it, &source.url)) {
            let mut wanted = there;
            wanted.wanted_scope = Some(scope.clone());
            source.save(source.prepare()?, &wanted)?;
            return Err(OAuthFault::Permanent(format!(
                "it demands the scope {scope:?}, which the login does not have"
            )));
        }
        let Some(refresh) = there.refresh_token().map(ToOwned::to_owned) else {
            let why = "the login has ended, and came without a refresh token";
            return Err(OAuthFault::Permanent(why.to_owned()));
        };
        if let Some((refused, fault)) = &self.refused
            && *refused == refresh
        {
            return Err(fault.clone());
        }
        let new = source.prepare()?;
        match source.refresh(&there, challenge).await {
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

fn late() -> OAuthFault {
    let seconds = RENEWAL_TIMEOUT.as_secs();
    OAuthFault::Temporary(format!("its authorization server gave no token within {seconds} s"))
}

impl TokenSource {
    /// The saved login, unless its client is no longer configured.
    fn usable_login(&self) -> Result<Option<SavedLogin>, OAuthFault> {
        let path = self.file.path().display();
        let login = self.file.load().map_err(|error| {
            OAuthFault::Permanent(format!("the login in {path} cannot be read: {error}"))
        })?;
        let own = self.client().map(|(id, _)| id);
        Ok(login.filter(|login| match login.grant {
            GrantKind::Login => true,
            GrantKind::ClientCredentials => own == Some(&login.credentials.client_id),
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
        OAuthFault::Permanent(format!(
            "there is no login in {} any more",
            self.file.path().display()
        ))
    }

    fn lock_fault(&self, error: &LockError, patience: Duration) -> OAuthFault {
        let path = self.file.path().display();
        match error {
            LockError::Held(by) => {
                let by = by.map_or_else(String::new, |id| format!(" {id}"));
                let seconds = patience.as_secs();
                OAuthFault::Temporary(format!(
                    "the login in {path} is being renewed by another process{by}, for more than \
                     {seconds} s"
                ))
            }
            LockError::Unusable(error) => OAuthFault::Permanent(format!(
                "the login in {path} cannot be renewed, since it cannot be locked: {error}"
            )),
        }
    }
}
