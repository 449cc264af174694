//! The user's trust in repositories.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::fs;
use std::path::{Component, Path, PathBuf};

use globset::{Glob, GlobBuilder};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::json;
use crate::process::{checkout_root, file_reads};
use crate::text::{hex, in_home};
use crate::tools::check_glob;

use super::comments::{FILE_BYTES_MAX, written_json};
use super::kinds::{SettingValue, TextOrObject, kinds};
use super::named_scripts::named_scripts;
use super::schema_parts::{list, nullable};
use super::values::InvalidValue;

/// An entry of the setting `trustedProjects`: a folder, the content of a file, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrustedProject {
    /// Absolute, or below `~`; perhaps with wildcards.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The SHA-256 digests of the trusted files, in lower case. Empty: all files are trusted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sha256: Vec<String>,
}

/// The setting `trustedProjects`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TrustedProjects(pub Vec<TrustedProject>);

kinds! {
    @TrustedProjects: "a list of folders, or of objects with \"path\", \"sha256\" or both",
        |texts| {
            let entries = texts.iter().map(|path| TrustedProject::folder(path));
            entries.collect::<Result<_, _>>().map(Self)
        },
        list(&json!({ "anyOf": [String::json_schema(), TrustEntryFields::json_schema()] }));
}

/// The extent of the trust in a repository's settings files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    Full,
    /// Only files with one of these contents.
    Files(Vec<String>),
}

/// The reason why a file is not trusted although its own content is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UntrustedScript {
    /// It names this script, whose content is not listed.
    Unlisted(PathBuf),
    /// This text may name scripts that are not found.
    Unclear(String),
}

impl Trust {
    /// Determines the trust from the entries for `cwd`, after resolving links. Entries with digests
    /// may also name the root of its repository. Entries without digests must name `cwd` itself, so
    /// that they do not cover folders that are added below a root later.
    pub fn of(entries: &[TrustedProject], cwd: &Path, home: Option<&Path>) -> Self {
        // Most users list none, and each file of a repository is judged on its own.
        let places = LazyCell::new(|| {
            fs::canonicalize(cwd).map_or_else(|_| Vec::new(), |cwd| vec![cwd.clone(), root(&cwd)])
        });
        let about = |entry: &&TrustedProject| match &entry.path {
            None => true,
            Some(path) => {
                let counted = if entry.sha256.is_empty() { 1 } else { places.len() };
                is_about(path, &places[..counted.min(places.len())], home)
            }
        };
        let mut contents = Vec::new();
        for entry in entries.iter().filter(about) {
            if entry.sha256.is_empty() {
                return Self::Full;
            }
            contents.extend(entry.sha256.iter().cloned());
        }
        Self::Files(contents)
    }

    /// Returns the trust in a file that is in another folder and applies in this one: both are
    /// required.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        if self == Self::Full { other } else { self }
    }

    /// Returns true if a settings file of the repository with this content is trusted. Trust by
    /// content requires that the content of each script that the file names is listed, too.
    ///
    /// # Errors
    /// The script that is not trusted.
    pub fn covers_settings(&self, content: &[u8], cwd: &Path) -> Result<bool, UntrustedScript> {
        // The reader decodes UTF-16, too.
        let text = written_json(&json::decode(content));
        // A file that is not JSON is rejected where it is read.
        let settings = serde_json::from_str(&text).unwrap_or_default();
        self.covers_commands(content, &settings, cwd)
    }

    /// Returns true if any file of the repository with this content is trusted, as in
    /// [`Self::covers_settings`]. `settings` are those in its content.
    ///
    /// # Errors
    /// The script that is not trusted.
    pub fn covers_commands(
        &self,
        content: &[u8],
        settings: &Value,
        cwd: &Path,
    ) -> Result<bool, UntrustedScript> {
        if *self == Self::Full || !self.covers(content) {
            return Ok(*self == Self::Full);
        }
        let Ok(cwd) = fs::canonicalize(cwd) else { return Ok(false) };
        let is_known = |file: &PathBuf| {
            let read = file_reads::read_regular(file, FILE_BYTES_MAX);
            read.is_ok_and(|script| self.covers(&script))
        };
        let scripts = named_scripts(settings, &cwd, &root(&cwd));
        let mut scripts =
            scripts.map_err(|unclear| UntrustedScript::Unclear(unclear.0))?.into_iter();
        let unlisted = scripts.find(|script| !is_known(script));
        unlisted.map_or(Ok(true), |script| Err(UntrustedScript::Unlisted(script)))
    }

    /// Returns true if the repository is fully trusted, or a file with this content is listed.
    fn covers(&self, content: &[u8]) -> bool {
        match self {
            Self::Full => true,
            Self::Files(known) => known.contains(&hex(&Sha256::digest(content))),
        }
    }
}

/// Returns the root of the repository that a folder belongs to; the folder itself if it is in none.
pub fn root(folder: &Path) -> PathBuf {
    checkout_root(folder).unwrap_or(folder).to_path_buf()
}

fn is_about(path: &str, places: &[PathBuf], home: Option<&Path>) -> bool {
    let path = match in_home(path, home) {
        Some(path) => path,
        None if path.starts_with('~') => return false,
        None => PathBuf::from(path),
    };
    // The part without wildcards may contain links, and is resolved too.
    let plain: PathBuf = path.components().take_while(|part| !is_wild(part)).collect();
    let wild: PathBuf = path.components().skip_while(|part| !is_wild(part)).collect();
    let Ok(plain) = fs::canonicalize(plain) else { return false };
    if wild.as_os_str().is_empty() {
        return places.contains(&plain);
    }
    let Some(Ok(glob)) = wild.to_str().map(glob) else { return false };
    let glob = glob.compile_matcher();
    places.iter().any(|place| place.strip_prefix(&plain).is_ok_and(|rest| glob.is_match(rest)))
}

fn is_wild(part: &Component<'_>) -> bool {
    part.as_os_str().to_string_lossy().contains(['*', '?', '[', '{'])
}

/// Compiles a pattern in which `*` stays within a folder, and `**` does not.
fn glob(pattern: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(pattern).literal_separator(true).build()
}

/// An entry as an object in a file.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TrustEntryFields {
    path: Option<String>,
    sha256: Digests,
}

impl TrustEntryFields {
    fn json_schema() -> Value {
        let text = String::json_schema();
        json!({
            "type": "object",
            "properties": {
                "path": nullable(text.clone()),
                "sha256": { "type": ["string", "array"], "items": text },
            },
            "minProperties": 1,
            "additionalProperties": false,
        })
    }
}

/// One digest, or a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Digests {
    One(String),
    Several(Vec<String>),
}

impl Default for Digests {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl TrustedProject {
    fn folder(path: &str) -> Result<Self, InvalidValue> {
        Self::of(TrustEntryFields { path: Some(path.to_owned()), ..TrustEntryFields::default() })
    }

    fn of(fields: TrustEntryFields) -> Result<Self, InvalidValue> {
        let TrustEntryFields { path, sha256 } = fields;
        let sha256 = match sha256 {
            Digests::One(one) => vec![one],
            Digests::Several(several) => several,
        };
        if let Some(path) = &path {
            let rooted = path.starts_with('/') || path == "~" || path.starts_with("~/");
            if !rooted || path.split('/').any(|part| part == "..") {
                return Err(
                    format!("{path:?} is not an absolute path; begin it with / or ~/").into()
                );
            }
            check_glob(path).map_err(|error| error.to_string())?;
            glob(path).map_err(|error| format!("{path:?} is not a pattern: {error}"))?;
        } else if sha256.is_empty() {
            return Err("an entry needs a \"path\", a \"sha256\", or both".into());
        }
        let is_digest =
            |text: &String| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let Some(wrong) = sha256.iter().find(|text| !is_digest(text)) {
            return Err(format!(
                "{wrong:?} is not a SHA-256 digest, which has 64 hexadecimal digits"
            )
            .into());
        }
        let sha256 = sha256.iter().map(|text| text.to_ascii_lowercase()).collect();
        Ok(Self { path, sha256 })
    }
}

impl<'de> Deserialize<'de> for TrustedProject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrObject {
            expected: "a folder, or an object with \"path\" and \"sha256\"",
            from_text: Self::folder,
            from_object: Self::of,
        })
    }
}
