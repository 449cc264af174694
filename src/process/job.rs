//! The specification of a program to start, and its serialized form.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::errno::Errno;

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
    /// Its complete environment. The last value for a name counts.
    pub environment: Vec<(OsString, OsString)>,
    /// True if standard input is a pipe from outlast. Otherwise it is empty.
    pub input: bool,
    /// True if standard error is the pipe of standard output, which keeps the order of the output.
    pub joins_output: bool,
    /// The limit, in bytes, of the memory that all jobs with a limit may take together. `None` if
    /// the memory of this job does not count.
    pub memory: Option<u64>,
    /// The Landlock policy for the program and its descendants. `None` for an unrestricted program.
    pub landlock: Option<LandlockPolicy>,
    /// The confinement of a user program.
    pub terms: ProgramTerms,
}

impl Job {
    /// A program without input and without limits.
    pub fn new(
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
        cwd: impl Into<PathBuf>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            cwd: cwd.into(),
            environment: environment.into_iter().collect(),
            input: false,
            joins_output: false,
            memory: None,
            landlock: None,
            terms: ProgramTerms::default(),
        }
    }

    /// A command line of the POSIX shell, without input and without limits.
    pub fn shell(
        line: impl Into<OsString>,
        cwd: impl Into<PathBuf>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        Self::new("/bin/sh", ["-c".into(), line.into()], cwd, environment)
    }
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
    /// The names of the variables that settings give to it alone.
    pub own_variables: Vec<String>,
}

/// A job in the form that its job init process receives: texts that `execve` takes unchanged.
pub(super) struct ProcessSpec<'a> {
    pub(super) cwd: &'a CStr,
    /// The program, then its arguments.
    pub(super) arguments: Vec<&'a CStr>,
    /// Each in the form `NAME=VALUE`.
    pub(super) environment: Vec<&'a CStr>,
    /// The policy without its rules, which are sent along as a ruleset.
    pub(super) landlock: Option<LandlockPolicy>,
}

/// Bytes before the texts of a specification: the numbers of arguments and of variables.
const COUNT_BYTES: usize = 4;

impl<'a> ProcessSpec<'a> {
    /// Encodes `job`, with one more environment variable.
    ///
    /// # Errors
    /// A text contains a NUL character.
    pub(super) fn encode(job: &Job, (name, value): (&str, &str)) -> io::Result<Vec<u8>> {
        let egress = job.landlock.as_ref().and_then(|policy| policy.egress.as_ref());
        let of_egress = egress.map_or(&[][..], JobEgress::variables).iter();
        let of_egress = of_egress.map(|(name, value)| (&**name, &**value)).chain([(name, value)]);
        let of_egress = of_egress.map(|(name, value)| (OsStr::new(name), OsStr::new(value)));
        let variables = job.environment.iter().map(|(name, value)| (&**name, &**value));
        // A later value replaces an earlier one.
        let variables: BTreeMap<_, _> = variables.chain(of_egress).collect();
        let arguments = job.arguments.len() + 1;
        let mut bytes = Vec::new();
        for count in [arguments, variables.len()] {
            let count = u32::try_from(count).map_err(|_| Errno::E2BIG)?;
            bytes.extend(count.to_le_bytes());
        }
        push_text(&mut bytes, &[job.cwd.as_os_str()])?;
        push_text(&mut bytes, &[job.program.as_os_str()])?;
        for argument in &job.arguments {
            push_text(&mut bytes, &[argument])?;
        }
        for (name, value) in variables {
            push_text(&mut bytes, &[name, OsStr::new("="), value])?;
        }
        serde_json::to_writer(&mut bytes, &job.landlock)?;
        Ok(bytes)
    }

    /// Decodes a specification. `None` if it is malformed.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (arguments, bytes) = bytes.split_first_chunk::<COUNT_BYTES>()?;
        let (variables, mut bytes) = bytes.split_first_chunk::<COUNT_BYTES>()?;
        let mut next = || {
            let text = CStr::from_bytes_until_nul(bytes).ok()?;
            bytes = &bytes[text.count_bytes() + 1..];
            Some(text)
        };
        let cwd = next()?;
        let arguments =
            (0..u32::from_le_bytes(*arguments)).map(|_| next()).collect::<Option<_>>()?;
        let environment =
            (0..u32::from_le_bytes(*variables)).map(|_| next()).collect::<Option<_>>()?;
        let landlock = serde_json::from_slice(bytes).ok()?;
        Some(Self { cwd, arguments, environment, landlock })
    }
}

/// Appends the parts of a text, and the NUL character that ends it.
fn push_text(bytes: &mut Vec<u8>, parts: &[&OsStr]) -> io::Result<()> {
    for part in parts {
        if part.as_bytes().contains(&0) {
            return Err(Errno::EINVAL.into());
        }
        bytes.extend(part.as_bytes());
    }
    bytes.push(0);
    Ok(())
}

/// The bytes of a specification. They are overwritten when they are no longer needed: the values of
/// variables may be secrets, and the process continues to run.
pub(super) struct SpecBytes(pub(super) Vec<u8>);

impl Drop for SpecBytes {
    fn drop(&mut self) {
        self.0.fill(0);
        // Keeps the compiler from removing a write that nothing reads.
        std::hint::black_box(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        let pairs = [("A", "1"), ("TAG", "x"), ("A", ""), ("B", "=2")];
        let arguments = ["-c".as_ref(), OsStr::from_bytes(b"\xff"), "".as_ref()];
        let variables = pairs.map(|(name, value)| (name.into(), value.into()));
        Job {
            landlock: Some(LandlockPolicy::default()),
            ..Job::new("/bin/sh", arguments, "/tmp", variables)
        }
    }

    #[test]
    fn a_specification_is_decoded_as_it_was_encoded() {
        let bytes = ProcessSpec::encode(&job(), ("TAG", "run")).expect("no NUL");
        let spec = ProcessSpec::decode(&bytes).expect("it is whole");
        assert_eq!(spec.cwd, c"/tmp");
        assert_eq!(spec.arguments, [c"/bin/sh", c"-c", c"\xff", c""]);
        assert_eq!(spec.environment, [c"A=", c"B==2", c"TAG=run"]);
        assert_eq!(spec.landlock, Some(LandlockPolicy::default()));
        for length in 0..bytes.len() {
            assert!(ProcessSpec::decode(&bytes[..length]).is_none(), "{length}");
        }
    }

    #[test]
    fn a_text_with_a_nul_character_is_refused() {
        let change: [fn(&mut Job); 4] = [
            |job| job.program = "a\0".into(),
            |job| job.cwd = "/a\0b".into(),
            |job| job.arguments[0] = "\0".into(),
            |job| job.environment[0].1 = "\0".into(),
        ];
        for change in change {
            let mut job = job();
            // The last value of a variable counts.
            job.environment.truncate(2);
            change(&mut job);
            let refused = ProcessSpec::encode(&job, ("TAG", "run"));
            assert_eq!(refused.expect_err("a NUL").raw_os_error(), Some(Errno::EINVAL as i32));
        }
    }
}
