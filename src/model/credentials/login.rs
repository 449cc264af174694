//! Reads the login file that an interactive login left, with its access and refresh tokens.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::files::FILE_BYTES_MAX;
use super::secret::Secret;
use crate::json;
use crate::process::file_reads;

/// The key of the file's object that holds the login. Other keys belong to other programs.
pub(super) const SECTION: &str = "claudeAiOauth";

/// Suffix of the replacement file's name.
pub(super) const REPLACEMENT_SUFFIX: &str = ".new";

/// The location of a login, and the settings of its renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginFile {
    pub path: PathBuf,
    /// The token endpoint, overriding the one in the file.
    pub token_endpoint: Option<String>,
    /// The OAuth client id, overriding the one in the file.
    pub client_id: Option<String>,
    /// Timeout of a renewal, connecting included.
    pub limit: Duration,
    /// Maximum wait while another process renews. Longer than `limit`, so that the result of that
    /// renewal can be used.
    pub lock_timeout: Duration,
}

impl LoginFile {
    /// The login in `folder`, with a renewal timeout of 30 seconds.
    pub fn within(folder: &Path) -> Self {
        Self {
            path: folder.join(".credentials.json"),
            token_endpoint: None,
            client_id: None,
            limit: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(40),
        }
    }

    /// The file behind symbolic links, so that all processes use the same lock, and the link
    /// survives a renewal.
    pub(super) fn real_path(&self) -> PathBuf {
        fs::canonicalize(&self.path).unwrap_or_else(|_gone| self.path.clone())
    }

    /// Reads the login. `None`: there is no login, or no file.
    ///
    /// # Errors
    /// [`LoginError`], when the file cannot be read or is invalid.
    pub fn read(&self) -> Result<Option<Login>, LoginError> {
        let login = match Login::read(&self.path) {
            Err(error) => Some(read_replacement(&self.real_path()).ok_or(error)?),
            Ok(login) => login,
        };
        Ok(login.map(|login| Login {
            token_endpoint: self.token_endpoint.clone().or(login.token_endpoint),
            client_id: self.client_id.clone().or(login.client_id),
            ..login
        }))
    }
}

/// An unusable login file.
#[derive(Debug, thiserror::Error)]
#[error("the login file {}: {problem}", path.display())]
pub struct LoginError {
    pub path: PathBuf,
    pub problem: LoginProblem,
}

/// The problem with a login file. Never quotes its content.
#[derive(Debug, thiserror::Error)]
pub enum LoginProblem {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("is not valid JSON, at line {line}, column {column}")]
    Broken { line: usize, column: usize },
    #[error("\"{member}\" is not {wanted}")]
    Shape { member: &'static str, wanted: &'static str },
}

/// A login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The access token. `None`: it must be fetched first.
    pub access: Option<Secret>,
    /// The refresh token.
    pub refresh: Option<Secret>,
    /// Time at which `access` expires, if known.
    pub expires: Option<SystemTime>,
    /// The kind of subscription.
    pub subscription: Option<String>,
    pub token_endpoint: Option<String>,
    pub client_id: Option<String>,
}

impl Login {
    pub(super) fn read(path: &Path) -> Result<Option<Self>, LoginError> {
        let error = |problem| LoginError { path: path.to_owned(), problem };
        match read_document(path).map_err(error)? {
            None => Ok(None),
            Some(document) => Self::parse(&document).map_err(error),
        }
    }

    fn parse(document: &Map<String, Value>) -> Result<Option<Self>, LoginProblem> {
        let section = match document.get(SECTION) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Object(section)) => section,
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                return Err(LoginProblem::Shape { member: SECTION, wanted: "an object" });
            }
        };
        let secret = |member| {
            let secret = parse_text(section, member)?.map(|text| Secret::new(&text));
            if secret.as_ref().is_some_and(|secret| !secret.fits_header()) {
                return Err(LoginProblem::Shape { member, wanted: "plain text on one line" });
            }
            Ok(secret)
        };
        let either = |one, other| -> Result<Option<String>, LoginProblem> {
            Ok(parse_text(section, one)?.or(parse_text(section, other)?))
        };
        let login = Self {
            access: secret("accessToken")?,
            refresh: secret("refreshToken")?,
            expires: parse_expiry(section, "expiresAt")?,
            subscription: parse_text(section, "subscriptionType")?,
            token_endpoint: either("tokenEndpoint", "token_endpoint")?,
            client_id: either("clientId", "client_id")?,
        };
        Ok((login.access.is_some() || login.refresh.is_some()).then_some(login))
    }

    /// True if there is an access token that stays valid for longer than `ahead`.
    pub(super) fn is_valid_for(&self, now: SystemTime, ahead: Duration) -> bool {
        let good = |end: SystemTime| end.duration_since(now).is_ok_and(|left| left > ahead);
        self.access.is_some() && self.expires.is_none_or(good)
    }
}

/// Parses a login file into its JSON object. `None`: there is no file, or it is empty.
pub(super) fn read_document(path: &Path) -> Result<Option<Map<String, Value>>, LoginProblem> {
    let bytes = match file_reads::read_bounded(path, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes).trim_ascii();
    if bytes.is_empty() {
        return Ok(None);
    }
    // Parsed as untyped JSON: an error about a type would quote the content.
    match json::read(bytes) {
        Ok(Value::Object(document)) => Ok(Some(document)),
        Ok(_) => Err(LoginProblem::Broken { line: 1, column: 1 }),
        Err(error) => Err(LoginProblem::Broken { line: error.line(), column: error.column() }),
    }
}

/// The login in a replacement file that a killed process left next to a broken login file.
fn read_replacement(target: &Path) -> Option<Login> {
    Login::read(&append_suffix(target, REPLACEMENT_SUFFIX)).ok().flatten()
}

/// Appends `suffix` to a file's name.
pub(super) fn append_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn parse_text(
    section: &Map<String, Value>,
    member: &'static str,
) -> Result<Option<String>, LoginProblem> {
    match section.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.trim().to_owned()).filter(|it| !it.is_empty())),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(LoginProblem::Shape { member, wanted: "a text" })
        }
    }
}

/// Parses milliseconds since 1970. 0 means an unknown time.
fn parse_expiry(
    section: &Map<String, Value>,
    member: &'static str,
) -> Result<Option<SystemTime>, LoginProblem> {
    let wrong = || LoginProblem::Shape { member, wanted: "a number of milliseconds since 1970" };
    let milliseconds = match section.get(member) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value.as_f64().filter(|number| *number >= 0.0).ok_or_else(wrong)?,
    };
    let since = Duration::try_from_secs_f64(milliseconds / 1000.0).map_err(|_| wrong())?;
    let moment = UNIX_EPOCH.checked_add(since).ok_or_else(wrong)?;
    Ok(Some(moment).filter(|moment| *moment != UNIX_EPOCH))
}
