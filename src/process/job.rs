//! The specification of a program to start, and its serialized form.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::egress::JobEgress;
use super::landlock_policy::{LandlockPolicy, PathRule};

/// A program to start, with every attribute given: nothing is inherited.
#[derive(Clone, Debug)]
pub struct Job {
    pub program: PathBuf,
    /// The arguments after the program's name.
    pub arguments: Vec<OsString>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Its complete environment. Of two values for a name the later one wins.
    pub environment: Vec<(OsString, OsString)>,
    /// True if standard input is a pipe from outlast. Otherwise it is empty.
    pub input: bool,
    /// The limit, in bytes, of the memory that all jobs with a limit may take together. `None` if
    /// this one does not count.
    pub memory: Option<u64>,
    /// The Landlock policy for the program and its descendants. `None` for an unrestricted program.
    pub landlock: Option<LandlockPolicy>,
    /// The confinement of a user program.
    pub terms: ProgramTerms,
}

/// The confinement of a program of the user; see [`UserPrograms`](super::UserPrograms).
#[derive(Clone, Debug, Default)]
pub struct ProgramTerms {
    /// The name that settings give it.
    pub name: Option<String>,
    /// Paths that it may access in addition to those of the sandbox of commands.
    pub grants: Vec<PathRule>,
    /// True if it is confined regardless of where its files lie.
    pub is_confined: bool,
}

/// A job as it is sent to its job init process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProcessSpec {
    program: OsText,
    arguments: Vec<OsText>,
    cwd: OsText,
    environment: Vec<(OsText, OsText)>,
    /// The policy without its rules, which are sent along as a ruleset.
    pub(super) landlock: Option<LandlockPolicy>,
}

/// An `OsString`, serialized as text where it is UTF-8 and as bytes elsewhere.
#[derive(Debug, Serialize, Deserialize)]
enum OsText {
    #[serde(rename = "t")]
    Plain(String),
    #[serde(rename = "b")]
    Raw(Vec<u8>),
}

impl ProcessSpec {
    /// Serializes `job`, with one more environment variable.
    pub(super) fn new(job: &Job, (name, value): (&str, &str)) -> Self {
        let own = (OsText::of(OsStr::new(name)), OsText::of(OsStr::new(value)));
        let pair = |(name, value): &(OsString, OsString)| (OsText::of(name), OsText::of(value));
        let egress = job.landlock.as_ref().and_then(|policy| policy.egress.as_ref());
        let of_egress = egress
            .map_or(&[][..], JobEgress::variables)
            .iter()
            .map(|(name, value)| (OsText::Plain(name.clone()), OsText::Plain(value.clone())));
        Self {
            program: OsText::of(job.program.as_os_str()),
            arguments: job.arguments.iter().map(|argument| OsText::of(argument)).collect(),
            cwd: OsText::of(job.cwd.as_os_str()),
            environment: job.environment.iter().map(pair).chain(of_egress).chain([own]).collect(),
            landlock: job.landlock.clone(),
        }
    }

    pub(super) fn command(self) -> Command {
        let mut command = Command::new(self.program.into_os());
        command
            .args(self.arguments.into_iter().map(OsText::into_os))
            .current_dir(self.cwd.into_os())
            .env_clear()
            .envs(
                self.environment.into_iter().map(|(name, value)| (name.into_os(), value.into_os())),
            );
        command
    }
}

impl OsText {
    fn of(text: &OsStr) -> Self {
        match text.to_str() {
            Some(plain) => Self::Plain(plain.to_owned()),
            None => Self::Raw(text.as_bytes().to_owned()),
        }
    }

    fn into_os(self) -> OsString {
        match self {
            Self::Plain(text) => text.into(),
            Self::Raw(bytes) => OsString::from_vec(bytes),
        }
    }
}
