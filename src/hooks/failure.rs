//! The failures of hooks.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::Serialize;

use crate::process::file_reads::{open_regular, unblocked};

use super::matcher::MatcherError;

/// The number of bytes at the beginning of a script that are read for its first line.
const FIRST_LINE_MAX: u64 = 256;

/// The failure of a hook, which is then ignored unless it is fail-closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookFailure {
    pub kind: HookFailureKind,
    pub detail: String,
}

impl HookFailure {
    /// A bug in outlast, for which the hook is not at fault.
    pub(super) fn internal() -> Self {
        let detail = "outlast crashed while handling it, which is a bug in outlast".to_owned();
        Self { kind: HookFailureKind::Crash, detail }
    }

    /// A fail-closed hook requested to run in the background, where it cannot deny anything.
    pub(super) fn background_guard() -> Self {
        let detail = "it asks to run on in the background (async), where no guard can forbid \
                      anything";
        Self { kind: HookFailureKind::InvalidOutput, detail: detail.to_owned() }
    }

    /// Adds the cause if a shell did not run a file that exists. The shell says "not found" if it is
    /// the program in the file's first line that is missing.
    pub(super) async fn with_cause(self, line: String, cwd: &Path) -> Self {
        if self.kind != HookFailureKind::Missing {
            return self;
        }
        let (cwd, message) = (cwd.to_owned(), self.detail.clone());
        let cause = unblocked(move || cause(line.trim(), &message, &cwd)).await;
        let cause =
            cause.unwrap_or_default().map_or_else(String::new, |cause| format!("; {cause}"));
        Self { detail: self.detail + &cause, ..self }
    }

    /// The files that the call names could not be compared with its output.
    pub(super) fn unread_files(error: &io::Error) -> Self {
        let detail =
            format!("a file that the call names cannot be compared with its output: {error}");
        Self { kind: HookFailureKind::TimedOut, detail }
    }

    /// It cannot be determined whether the hook applies to what happened.
    pub(super) fn matcher_failed(why: &MatcherError) -> Self {
        Self { kind: HookFailureKind::MatcherFailed, detail: why.to_string() }
    }
}

/// Returns why a shell did not run the file that a command line or the shell's `message` names.
fn cause(line: &str, message: &str, cwd: &Path) -> Option<&'static str> {
    if line.contains(' ') && cwd.join(line).is_file() {
        return Some("its path has a blank: write the path in quotes");
    }
    // The shell itself comes first in its message.
    let path =
        message.rsplit(": ").map(|part| cwd.join(part.trim())).find(|path| path.is_file())?;
    let mut start = Vec::new();
    open_regular(&path).ok()?.take(FIRST_LINE_MAX).read_to_end(&mut start).ok()?;
    let first = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if first.starts_with(b"#!") && first.ends_with(b"\r") {
        return Some(
            "its lines end in a carriage return: save the file with the line ends of Unix",
        );
    }
    let is_executable =
        fs::metadata(&path).is_ok_and(|facts| facts.permissions().mode() & 0o111 != 0);
    (!is_executable).then_some("the file is not executable: use chmod +x")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HookFailureKind {
    /// It ended with an exit code that has no meaning for hooks, or was killed.
    Crash,
    #[serde(rename = "timeout")]
    TimedOut,
    /// Its output is not valid hook output.
    InvalidOutput,
    /// It could not be started.
    Missing,
    /// One of its files has changed since the run began, or could not be checked.
    Changed,
    /// It runs in a host that was not asked: its input is too long.
    NotSent,
    /// It runs in a host that can no longer reply.
    HostClosed,
    /// Its matcher failed with an error.
    MatcherFailed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_script_that_exists_and_is_not_run_is_named() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        for (name, text, mode) in [
            ("crlf.sh", "#!/bin/sh\r\nexit 0\r\n", 0o755),
            ("my hook.sh", "#!/bin/sh\n", 0o755),
            ("plain.sh", "#!/bin/sh\n", 0o644),
            ("good.sh", "#!/bin/none\n", 0o755),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("a new file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
        }
        for (line, message, wanted) in [
            ("./crlf.sh -x", "exit code 127: /bin/sh: 1: ./crlf.sh: not found", Some("carriage")),
            ("./my hook.sh", "exit code 127: /bin/sh: 1: ./my: not found", Some("in quotes")),
            (
                "./plain.sh",
                "exit code 126: /bin/sh: 1: ./plain.sh: Permission denied",
                Some("chmod"),
            ),
            ("./good.sh", "exit code 127: /bin/sh: 1: ./good.sh: not found", None),
            ("./gone.sh", "exit code 127: /bin/sh: 1: ./gone.sh: not found", None),
        ] {
            let cause = cause(line, message, folder.path());
            let is_as_wanted =
                cause.is_some_and(|cause| wanted.is_some_and(|it| cause.contains(it)));
            assert!(is_as_wanted || cause == wanted, "{line}: {cause:?}");
        }
    }
}
