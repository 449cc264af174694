//! Finds Google's application default credentials.
//!
//! ```text
//! GOOGLE_APPLICATION_CREDENTIALS ► gcloud's file ► metadata server
//! ```

use std::fs;
use std::io;
use std::iter;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::super::fault::missing_credential;
use super::super::files::FILE_BYTES_MAX;
use super::aws_files::variable;
use crate::json;
use crate::process::file_reads;
use crate::recovery::Fault;
use crate::secrets::Variables;
use crate::text::hex;

/// The variable with which the user permits a credentials file to name a program.
pub(super) const ALLOW_PROGRAMS: &str = "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES";

/// An identity of Google Cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoogleIdentity {
    pub variables: Variables,
    pub home: Option<PathBuf>,
    /// The folder for tokens that the runs of a host share.
    pub cache: Option<PathBuf>,
}

/// A source of Google tokens.
#[derive(Clone, Debug)]
pub(super) enum GoogleSource {
    /// A credentials file.
    File { path: PathBuf, value: Value },
    /// The metadata server of a virtual machine, pod or function.
    Metadata { url: String },
}

impl GoogleIdentity {
    /// Determines the source. Reads files, and contacts no service.
    pub(super) fn plan(&self) -> Result<GoogleSource, Box<Fault>> {
        if let Some(path) = variable(&self.variables, "GOOGLE_APPLICATION_CREDENTIALS") {
            let path = PathBuf::from(path);
            let Some(value) = read_file(&path)? else {
                return Err(no_credentials(format!(
                    "the file {} (GOOGLE_APPLICATION_CREDENTIALS) does not exist; correct it",
                    path.display()
                )));
            };
            return Ok(GoogleSource::File { path, value });
        }
        if let Some(path) = self.gcloud_file()
            && let Some(value) = read_file(&path)?
        {
            return Ok(GoogleSource::File { path, value });
        }
        let host = variable(&self.variables, "GCE_METADATA_HOST");
        let host = host.unwrap_or_else(|| "169.254.169.254".to_owned());
        Ok(GoogleSource::Metadata { url: format!("http://{host}") })
    }

    /// The file of `gcloud auth application-default login`.
    fn gcloud_file(&self) -> Option<PathBuf> {
        let folder = variable(&self.variables, "CLOUDSDK_CONFIG").map(PathBuf::from);
        let folder = folder.or_else(|| Some(self.home.as_ref()?.join(".config/gcloud")))?;
        Some(folder.join("application_default_credentials.json"))
    }

    /// The program that the credentials file names, if it may be run.
    pub(super) fn command(&self) -> Option<String> {
        if !self.allows_programs() {
            return None;
        }
        let GoogleSource::File { value, .. } = self.plan().ok()? else { return None };
        let inner =
            iter::successors(Some(&value), |outer| outer.get("source_credentials")).last()?;
        inner["credential_source"]["executable"]["command"].as_str().map(str::to_owned)
    }

    /// True if a credentials file may name a program that is run.
    pub(super) fn allows_programs(&self) -> bool {
        variable(&self.variables, ALLOW_PROGRAMS).as_deref() == Some("1")
    }

    /// The project of the credentials.
    pub fn project(&self) -> Option<String> {
        match self.plan().ok()? {
            GoogleSource::File { value, .. } => {
                let fields = [&value["project_id"], &value["quota_project_id"]];
                fields.into_iter().find_map(Value::as_str).map(str::to_owned)
            }
            GoogleSource::Metadata { .. } => None,
        }
    }

    /// A hash of the credentials file: it may be replaced by the file of another account.
    pub(super) fn fingerprint(&self) -> String {
        match self.plan() {
            Ok(GoogleSource::File { value, .. }) => hex(&Sha256::digest(value.to_string())),
            Ok(GoogleSource::Metadata { .. }) | Err(_) => String::new(),
        }
    }

    pub(super) fn describe(&self) -> String {
        match self.plan() {
            Err(fault) => fault.detail().to_owned(),
            Ok(GoogleSource::Metadata { .. }) => "the metadata server".to_owned(),
            Ok(GoogleSource::File { path, value }) => {
                let kind = value["type"].as_str().unwrap_or("unknown").to_owned();
                let who = [&value["client_email"], &value["audience"]];
                let who = who.into_iter().find_map(Value::as_str);
                let who = who.map_or(String::new(), |who| format!(" of {who}"));
                format!("{kind}{who} in {}", path.display())
            }
        }
    }
}

impl GoogleSource {
    /// True if the tokens are fetched from a service, so that the runs of a host share them.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::File { .. })
    }
}

fn read_file(path: &Path) -> Result<Option<Value>, Box<Fault>> {
    let wrong = |what: &str| {
        no_credentials(format!("the credentials in {} {what}; correct them", path.display()))
    };
    if fs::metadata(path).is_ok_and(|facts| facts.file_type().is_fifo()) {
        return Err(no_credentials(format!(
            "{} is a pipe, and the credentials are read several times: write them to a file",
            path.display()
        )));
    }
    let bytes = match file_reads::read_bounded(path, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(&format!("cannot be read: {error}"))),
    };
    // Its content is not quoted: it holds secrets.
    let value: Value = json::read(&bytes).map_err(|_| wrong("are not valid JSON"))?;
    Ok(Some(value))
}

pub(super) fn no_credentials(message: String) -> Box<Fault> {
    missing_credential("google_no_credentials", message)
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn credentials_in_a_pipe_are_refused_without_a_wait_for_its_writer() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let pipe = folder.path().join("key");
        mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe can be made");
        let variable = ("GOOGLE_APPLICATION_CREDENTIALS".into(), pipe.clone().into());
        let variables = [variable].into_iter().collect();
        let identity = GoogleIdentity { variables, home: None, cache: None };
        let why = identity.plan().expect_err("a pipe").detail().to_owned();
        let wanted = format!("{} is a pipe", pipe.display());
        assert!(why.starts_with(&wanted) && why.ends_with("write them to a file"), "{why}");
    }
}
