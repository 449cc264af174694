//! The file of a login: tokens for one server at one address, readable by the user only.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oauth2::TokenResponse;
use reqwest::Url;
use rmcp::transport::auth::StoredCredentials;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::json;
use crate::process::{FileLock, LockError, create_private_folder, file_reads, sync_folder};

/// The folder of logins in the folder of settings and sessions.
const FOLDER: &str = "mcp-logins";

/// The version of the file's format.
const VERSION: u32 = 1;

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The time limit for the lock: longer than a renewal by another process may take, so that its
/// token can be used.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(70);

/// The space to reserve for a login, in bytes: more than any login takes.
const ROOM: usize = 32 << 10;

/// The most characters of a server's name in the name of its file.
const NAME_CHARS_MAX: usize = 40;

/// The folder of the logins at servers.
#[derive(Clone, Debug)]
pub struct LoginFolder(PathBuf);

/// The file of a login, which need not exist.
#[derive(Clone, Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    server: String,
    url: String,
}

/// The kind of grant by which a token was obtained. Its renewals use that kind, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum GrantKind {
    /// The user logged in.
    Login,
    /// The client authenticated itself.
    ClientCredentials,
}

/// The content of the file.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct SavedLogin {
    version: u32,
    server: String,
    url: String,
    pub(super) grant: GrantKind,
    /// The secret of the client, where the entry does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_secret: Option<String>,
    /// A scope that the server demanded of a run, for the next login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) wanted_scope: Option<String>,
    pub(super) credentials: StoredCredentials,
}

/// The login at a server, as known without a request to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginState {
    None,
    /// The user is logged in: until `ends`, if the login is not renewed.
    LoggedIn {
        ends: Option<SystemTime>,
        is_renewable: bool,
    },
    /// Runs authenticate themselves as a client.
    Client,
    Unreadable(String),
}

impl LoginFolder {
    pub fn within(config_dir: &Path) -> Self {
        Self(config_dir.join(FOLDER))
    }

    /// The file of a server. Its name contains a hash of the address: a login is not sent to
    /// another one.
    pub(super) fn file(&self, server: &str, url: &Url) -> TokenFile {
        let mut url = url.clone();
        url.set_fragment(None);
        let digest = Sha256::digest(url.as_str().as_bytes());
        let beginning = digest.iter().take(8).fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        let name = server.chars().take(NAME_CHARS_MAX);
        let name: String = name.map(|it| if is_plain(it) { it } else { '_' }).collect();
        let path = self.0.join(format!("{name}-{beginning:016x}.json"));
        TokenFile { path, server: server.to_owned(), url: url.into() }
    }

    /// The file of the login at a server, whether or not it exists.
    pub fn path(&self, server: &str, url: &str) -> Option<PathBuf> {
        Url::parse(url).ok().map(|url| self.file(server, &url).path)
    }

    /// The state of the login at a server.
    pub fn state(&self, server: &str, url: &str) -> LoginState {
        let Ok(url) = Url::parse(url) else { return LoginState::None };
        match self.file(server, &url).load() {
            Ok(None) => LoginState::None,
            Ok(Some(login)) => match login.grant {
                GrantKind::ClientCredentials => LoginState::Client,
                GrantKind::Login => LoginState::LoggedIn {
                    ends: login.ends(),
                    is_renewable: login.refresh_token().is_some(),
                },
            },
            Err(error) => LoginState::Unreadable(error.to_string()),
        }
    }

    /// Removes the login at a server. Returns true if there was one.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, server: &str, url: &str) -> io::Result<bool> {
        let Some(path) = self.path(server, url) else { return Ok(false) };
        match fs::remove_file(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl TokenFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the lock that all processes take before they renew this login.
    ///
    /// # Errors
    /// Another process holds it, or the lock file cannot be used.
    pub(super) async fn lock(&self, timeout: Duration) -> Result<FileLock, LockError> {
        create_private_folder(self.folder()).map_err(LockError::Unusable)?;
        FileLock::take(&self.path.with_extension("lock"), timeout).await
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Reads the login. `None` if there is none for this server and address.
    ///
    /// # Errors
    /// The file cannot be read, or was not written by outlast. The error does not quote the
    /// content.
    pub(super) fn load(&self) -> io::Result<Option<SavedLogin>> {
        let bytes = match file_reads::read_bounded(&self.path, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let unknown = || io::Error::new(io::ErrorKind::InvalidData, "it holds no login");
        let login: SavedLogin = json::read(&bytes).map_err(|_| unknown())?;
        if login.version != VERSION {
            return Err(unknown());
        }
        Ok((login.server == self.server && login.url == self.url).then_some(login))
    }

    /// Creates a login for this file.
    pub(super) fn login(&self, grant: GrantKind, credentials: StoredCredentials) -> SavedLogin {
        SavedLogin {
            version: VERSION,
            server: self.server.clone(),
            url: self.url.clone(),
            grant,
            client_secret: None,
            wanted_scope: None,
            credentials,
        }
    }

    /// Makes the file that will replace this one, with space for its content. It is made before the
    /// old refresh token is spent, so that a full disk is found in time.
    pub(super) fn prepare(&self) -> io::Result<NamedTempFile> {
        create_private_folder(self.folder())?;
        let file = NamedTempFile::with_prefix_in(".login-", self.folder());
        // The library's messages name the temporary file.
        let mut file = file.map_err(|error| error.kind())?;
        file.as_file_mut().write_all(&vec![b' '; ROOM])?;
        file.as_file().sync_all()?;
        Ok(file)
    }

    /// Replaces the file.
    pub(super) fn commit(&self, mut file: NamedTempFile, login: &SavedLogin) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(login)?;
        text.push(b'\n');
        io::Seek::rewind(file.as_file_mut())?;
        file.as_file_mut().write_all(&text)?;
        file.as_file().set_len(text.len() as u64)?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        sync_folder(&File::open(self.folder())?)
    }
}

impl SavedLogin {
    pub(super) fn access_token(&self) -> Option<&str> {
        let tokens = self.credentials.token_response.as_ref()?;
        Some(tokens.access_token().secret())
    }

    pub(super) fn refresh_token(&self) -> Option<&str> {
        let tokens = self.credentials.token_response.as_ref()?;
        Some(tokens.refresh_token()?.secret())
    }

    /// The lifetime of the token, if the authorization server stated one.
    pub(super) fn lifetime(&self) -> Option<Duration> {
        self.credentials.token_response.as_ref()?.expires_in()
    }

    /// The expiry of the token, if it is known.
    pub(super) fn ends(&self) -> Option<SystemTime> {
        let received = Duration::from_secs(self.credentials.token_received_at?);
        UNIX_EPOCH.checked_add(received)?.checked_add(self.lifetime()?)
    }

    /// Returns true if the token is still valid after `margin`, as far as its expiry is known.
    pub(super) fn is_valid_for(&self, now: SystemTime, margin: Duration) -> bool {
        self.access_token().is_some() && self.ends().is_none_or(|end| now + margin < end)
    }
}
