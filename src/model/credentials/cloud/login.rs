//! Holds the current token of an identity, which is renewed before it expires, and once after it
//! was rejected. The runs of a host take turns with a lock file, and share the token that one of
//! them fetched.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::super::credential::Renewal;
use super::super::files::{FILE_BYTES_MAX, unblocked};
use super::super::helper::HelperCommand;
use super::super::secret::Secret;
use super::aws_exchange;
use super::aws_identity::AwsIdentity;
use super::command::run_login;
use super::google_exchange;
use super::identity::CloudIdentity;
use super::token::CloudToken;
use super::token_http::{TokenContext, invalid_answer};
use crate::json;
use crate::model::headers::wall_clock;
use crate::process::file_reads;
use crate::process::{FileLock, create_private_folder};
use crate::recovery::{Fault, FaultKind};
use crate::text::hex;

/// Time before its expiry at which a token is renewed: clocks differ, and requests take time.
const MARGIN: Duration = Duration::from_mins(2);
/// Pause after a failed renewal, if the token is still valid or another try would fail, too.
const EARLY_RENEWAL_PAUSE: Duration = Duration::from_secs(30);
/// Maximum wait for a lock that another run holds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(40);
/// The lock of the command that renews a login of AWS, and the maximum wait for it: the command may
/// wait for a user.
const LOGIN_LOCK: &str = "aws-login.lock";
const LOGIN_LOCK_TIMEOUT: Duration = Duration::from_mins(4);

/// An identity with its current token.
#[derive(Debug)]
pub(in super::super) struct CloudLogin {
    pub(in super::super) identity: CloudIdentity,
    context: TokenContext,
    current: Mutex<CurrentToken>,
}

#[derive(Debug, Default)]
struct CurrentToken {
    token: Option<CloudToken>,
    /// The secret of a token that the service rejected.
    rejected: Option<Secret>,
    /// Time before which no early renewal is tried.
    no_early_renewal_before: Option<Instant>,
    /// The last failure that another try at once would repeat, and its time.
    failed: Option<(Instant, Box<Fault>)>,
}

impl CloudLogin {
    /// Records the current state of the programs that the identity names. Blocks.
    pub(in super::super) fn new(identity: CloudIdentity, context: TokenContext) -> Self {
        for command in identity.commands() {
            context.supervisor.remember(&HelperCommand::new(&command).job());
        }
        Self { identity, context, current: Mutex::default() }
    }

    /// Returns a token that is valid, renewed if necessary.
    pub(in super::super) async fn token(&self) -> Result<CloudToken, Box<Fault>> {
        let mut current = self.current.lock().await;
        let now = wall_clock();
        if let Some(token) = &current.token
            && current.rejected.as_ref() != Some(token.secret())
            && token.is_valid_for(now, Duration::ZERO)
        {
            let is_paused = current.no_early_renewal_before.is_some_and(|end| Instant::now() < end);
            if is_paused || token.is_valid_for(now, MARGIN) {
                return Ok(token.clone());
            }
            let token = token.clone();
            if self.renew(&mut current).await.is_err() {
                current.no_early_renewal_before = Some(Instant::now() + EARLY_RENEWAL_PAUSE);
                return Ok(token);
            }
        } else {
            self.renew(&mut current).await?;
        }
        current.token.clone().ok_or_else(|| invalid_answer("the identity"))
    }

    /// Records that the service rejected the token with this secret.
    pub(in super::super) async fn reject(&self, secret: &Secret) {
        self.current.lock().await.rejected = Some(secret.clone());
    }

    /// Fetches a different token than the current one.
    pub(in super::super) async fn refresh(&self) -> Renewal {
        let mut current = self.current.lock().await;
        let before = current.token.as_ref().map(|token| token.secret().clone());
        // The current token must not be adopted again from the cache of the host.
        let rejected = current.rejected.clone().or_else(|| before.clone());
        current.rejected.clone_from(&rejected);
        if let Err(fault) = self.renew(&mut current).await {
            return Renewal::Failed(fault);
        }
        let now = current.token.as_ref().map(|token| token.secret().clone());
        if before.is_none() || now != before { Renewal::Replaced } else { Renewal::Unchanged }
    }

    /// The identity according to the cloud. `None` if the cloud does not provide it.
    pub(in super::super) async fn caller(&self) -> Result<Option<String>, Box<Fault>> {
        let token = self.token().await?;
        match &self.identity {
            CloudIdentity::Aws(aws) => {
                aws_exchange::caller(aws, &token, &self.context).await.map(Some)
            }
            CloudIdentity::Google(_) | CloudIdentity::Entra(_) => Ok(None),
        }
    }

    async fn renew(&self, current: &mut CurrentToken) -> Result<(), Box<Fault>> {
        if let Some((at, fault)) = &current.failed
            && at.elapsed() < EARLY_RENEWAL_PAUSE
        {
            return Err(fault.clone());
        }
        let renewed = self.fetch_or_share(current).await;
        current.failed = match &renewed {
            Err(fault) if !is_temporary(fault) => Some((Instant::now(), fault.clone())),
            Ok(()) | Err(_) => None,
        };
        renewed
    }

    /// Adopts the token that another run of this host fetched, or fetches one.
    async fn fetch_or_share(&self, current: &mut CurrentToken) -> Result<(), Box<Fault>> {
        let shared = unblocked(&self.identity, |identity| Ok(shared_file(identity))).await?;
        // A token can be fetched any number of times, so a run can do without the lock.
        let lock = match &shared {
            None => None,
            Some(path) => FileLock::take(&path.with_extension("lock"), LOCK_TIMEOUT).await.ok(),
        };
        let now = wall_clock();
        let cached = match &shared {
            Some(path) => read_cached(path).await,
            None => None,
        };
        let cached = cached.filter(|token| {
            current.rejected.as_ref() != Some(token.secret()) && token.is_valid_for(now, MARGIN)
        });
        let token = if let Some(token) = cached {
            token
        } else {
            let secret = current.token.as_ref().map(CloudToken::secret);
            let rejected = secret.filter(|_| current.rejected.as_ref() == secret);
            let token = self.fetch(rejected).await?;
            if let Some(path) = shared.as_deref().filter(|_| token.expires.is_some()) {
                // Without the cache, other runs fetch their own tokens.
                let _ = write_cached(path, &token);
            }
            token
        };
        drop(lock);
        for secret in token.secrets() {
            self.context.known.add(secret.reveal());
        }
        current.token = Some(token);
        current.no_early_renewal_before = None;
        Ok(())
    }

    /// Fetches a token. With AWS, a permanent failure or a token that equals `rejected` leads to a
    /// new login, if a command for it is configured.
    async fn fetch(&self, rejected: Option<&Secret>) -> Result<CloudToken, Box<Fault>> {
        let aws = match &self.identity {
            CloudIdentity::Aws(aws) => aws,
            CloudIdentity::Google(google) => {
                return google_exchange::fetch(google, &self.context).await;
            }
            CloudIdentity::Entra(entra) => return entra.fetch(&self.context).await,
        };
        let fetched = self.fetch_aws(aws).await;
        let Some(command) = aws.auth_refresh.as_deref() else { return fetched };
        match fetched {
            Ok(token) if Some(token.secret()) != rejected => Ok(token),
            Err(fault) if is_temporary(&fault) => Err(fault),
            Ok(_) | Err(_) => self.log_in(aws, command, rejected).await,
        }
    }

    /// Runs the command that renews the login, unless another run of this host just did.
    async fn log_in(
        &self,
        aws: &AwsIdentity,
        command: &str,
        rejected: Option<&Secret>,
    ) -> Result<CloudToken, Box<Fault>> {
        let folder = aws.cache.as_deref().filter(|folder| create_private_folder(folder).is_ok());
        let _lock = match folder {
            Some(folder) => FileLock::take(&folder.join(LOGIN_LOCK), LOGIN_LOCK_TIMEOUT).await.ok(),
            None => None,
        };
        if let Ok(token) = self.fetch_aws(aws).await
            && Some(token.secret()) != rejected
        {
            return Ok(token);
        }
        run_login("awsAuthRefresh", command, &self.context.supervisor).await?;
        self.fetch_aws(aws).await
    }

    async fn fetch_aws(&self, aws: &AwsIdentity) -> Result<CloudToken, Box<Fault>> {
        let source = unblocked(aws, AwsIdentity::plan).await?;
        aws_exchange::fetch(aws, &source, &self.context).await
    }
}

/// The file in which the runs of a host share the token. `None` if the token is not shared.
fn shared_file(identity: &CloudIdentity) -> Option<PathBuf> {
    let (is_shared, folder) = match identity {
        CloudIdentity::Aws(aws) => (aws.plan().ok()?.is_shared(), aws.cache.as_ref()),
        CloudIdentity::Google(google) => (google.plan().ok()?.is_shared(), google.cache.as_ref()),
        CloudIdentity::Entra(entra) => (entra.plan().is_shared(), entra.cache.as_ref()),
    };
    let folder = folder.filter(|_| is_shared)?;
    create_private_folder(folder).ok()?;
    let hash = Sha256::digest(identity.key());
    Some(folder.join(hex(&hash[..16]) + ".json"))
}

/// True if a retry may help, so that no login is necessary.
fn is_temporary(fault: &Fault) -> bool {
    // Status 200 marks missing credentials and refusals (see `missing_credential`).
    !matches!(fault.kind, FaultKind::Refused { status: 200, .. })
}

async fn read_cached(path: &Path) -> Option<CloudToken> {
    let bytes = file_reads::read_unblocked(path, FILE_BYTES_MAX).await.ok()?;
    let value: Value = json::read(&bytes).ok()?;
    CloudToken::from_json(&value)
}

/// Replaces the file, which only its owner can read.
fn write_cached(path: &Path, token: &CloudToken) -> io::Result<()> {
    let new = path.with_extension("new");
    // A file that a killed process left may have other permissions.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(token.to_json().to_string().as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}
