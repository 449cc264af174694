//! Runs the programs of an engine: those that accept a batch, and those that report on its job.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::batch::{ClusterEngine, Submission};
use crate::cli::run::ProcessContext;
use crate::cli::usage::{UsageError, UsageErrorKind};
use crate::process::find_user_program;

/// Time limit of a program that looks up a job.
const LOOK_UP_MAX: Duration = Duration::from_secs(20);

/// Error messages, in lower case, of programs of Slurm and of kubectl that cannot reach the service
/// behind them.
const UNREACHABLE: [&str; 24] = [
    "unable to contact slurm controller",
    "unable to establish configuration source",
    "could not establish a configuration source",
    "dns srv lookup failed",
    "unable to establish controller machine",
    "munge encode failed",
    "communication connection failure",
    "controller in standby mode",
    "zero bytes were transmitted",
    "temporarily unable to accept job",
    "resource temporarily unavailable",
    "unable to connect to the server",
    "the connection to the server",
    "connection refused",
    "connection reset",
    "no such host",
    "name lookup failure",
    "timed out",
    "timeout",
    "(serviceunavailable)",
    "(toomanyrequests)",
    "(internalerror)",
    "leader changed",
    ": eof",
];

/// Exit status and output of a program that has ended.
pub(super) struct EngineOutput {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    stderr: String,
}

impl EngineOutput {
    /// Returns true if the program failed because the service behind it cannot be reached now.
    pub(super) fn is_unreachable(&self) -> bool {
        is_unreachable(&self.stderr)
    }

    /// Returns the most informative line of standard error, without a prefix such as `error: `, and
    /// the other lines.
    pub(super) fn error_lines(&self) -> (String, Vec<&str>) {
        let lines: Vec<&str> =
            self.stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let is_error = |line: &&&str| line.to_lowercase().contains("error");
        let chosen = lines.iter().find(|line| is_unreachable(line));
        let chosen = chosen.or_else(|| lines.iter().find(is_error)).or(lines.first());
        let Some(chosen) = chosen else { return ("it printed nothing".to_owned(), Vec::new()) };
        let others = lines.iter().filter(|line| *line != chosen).copied().collect();
        let text = chosen.rsplit_once("error: ").map_or(*chosen, |(_, text)| text);
        (text.to_owned(), others)
    }
}

fn is_unreachable(text: &str) -> bool {
    let lower = text.to_lowercase();
    UNREACHABLE.iter().any(|message| lower.contains(message))
}

/// Runs a program to its end.
///
/// # Errors
/// It could not be run, or took too long; or a signal came.
pub(super) async fn run_program(
    program: &Path,
    words: &[OsString],
    context: &ProcessContext,
    limit: Duration,
) -> Result<EngineOutput, UsageError> {
    let mut command = Command::new(program);
    command.args(words).current_dir(&context.cwd).stdin(Stdio::null()).kill_on_drop(true);
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let ended = tokio::select! {
        biased;
        interrupt = context.signals.first() => return Err(UsageError::interrupted(interrupt)),
        ended = tokio::time::timeout(limit, command.output()) => ended,
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match ended {
        Ok(Ok(output)) => Ok(EngineOutput {
            status: output.status,
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }),
        Ok(Err(error)) => Err(UsageError::new(format!("{name} could not be run: {error}"))),
        Err(_) => Err(UsageError::of(
            UsageErrorKind::Temporary,
            format!("{name} did not end within {} s", limit.as_secs()),
        )),
    }
}

/// State of a job, as the engine reports it.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub(super) enum EngineJobState {
    /// It is queued or running.
    Active,
    /// It has ended, and must be deleted before the batch is submitted again.
    Ended,
    /// The engine no longer has it.
    Gone,
    /// The engine did not report it, for this reason.
    Unknown(String),
}

/// Finds the program of an engine on the `PATH` of the user.
pub(super) fn find_engine_program(name: &str, context: &ProcessContext) -> Option<PathBuf> {
    let variable = |name: &str| context.variables.get(OsStr::new(name)).map(OsString::as_os_str);
    let path = variable("PATH").unwrap_or_default();
    find_user_program(name, path, &context.cwd, variable("HOME"))
}

/// Asks the engine for the state of a job.
///
/// # Errors
/// A signal came.
pub(super) async fn job_state(
    submission: &Submission,
    context: &ProcessContext,
) -> Result<EngineJobState, UsageError> {
    let mut words = submission.look_up();
    let name = words.remove(0);
    let format: &[&str] = match submission.engine {
        ClusterEngine::Slurm => &["--noheader"],
        ClusterEngine::Kubernetes => &["-o", "json"],
    };
    words.extend(format.iter().map(ToString::to_string));
    let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    let Some(program) = find_engine_program(&name, context) else {
        return Ok(EngineJobState::Unknown(format!("{name} was not found on PATH")));
    };
    match run_program(&program, &words, context, LOOK_UP_MAX).await {
        Ok(output) => Ok(state_of(submission.engine, &output)),
        Err(error) if matches!(error.cause, UsageErrorKind::Interrupted(_)) => Err(error),
        Err(error) => Ok(EngineJobState::Unknown(error.to_string())),
    }
}

fn state_of(engine: ClusterEngine, output: &EngineOutput) -> EngineJobState {
    if !output.status.success() {
        let lower = output.stderr.to_lowercase();
        let is_gone = match engine {
            ClusterEngine::Slurm => lower.contains("invalid job id"),
            ClusterEngine::Kubernetes => lower.contains("(notfound)"),
        };
        return if is_gone {
            EngineJobState::Gone
        } else {
            EngineJobState::Unknown(output.error_lines().0)
        };
    }
    match engine {
        ClusterEngine::Slurm if output.stdout.trim().is_empty() => EngineJobState::Gone,
        ClusterEngine::Slurm => EngineJobState::Active,
        ClusterEngine::Kubernetes => {
            let job: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
            let conditions = job["status"]["conditions"].as_array();
            let has_ended = conditions.into_iter().flatten().any(|condition| {
                condition["status"] == "True"
                    && (condition["type"] == "Complete" || condition["type"] == "Failed")
            });
            if has_ended { EngineJobState::Ended } else { EngineJobState::Active }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn output(code: i32, stdout: &str, stderr: &str) -> EngineOutput {
        let (stdout, stderr) = (stdout.to_owned(), stderr.to_owned());
        EngineOutput { status: ExitStatus::from_raw(code << 8), stdout, stderr }
    }

    #[test]
    fn the_line_that_says_the_most_is_the_error_and_the_others_stay_apart() {
        let text = "sbatch: warning: a note\n\nsbatch: error: two\nsbatch: error: Batch job \
                    submission failed: Unable to contact slurm controller (connect failure)\n";
        let unreachable = output(1, "", text);
        assert!(unreachable.is_unreachable());
        let (error, rest) = unreachable.error_lines();
        assert!(error.starts_with("Batch job submission failed: Unable to contact"), "{error}");
        assert_eq!(rest, ["sbatch: warning: a note", "sbatch: error: two"]);
        let text = "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n\
                    sbatch: error: fetch_config: DNS SRV lookup failed\n\
                    sbatch: fatal: Could not establish a configuration source\n";
        let configless = output(1, "", text);
        assert!(configless.is_unreachable());
        assert_eq!(configless.error_lines().0, "fetch_config: DNS SRV lookup failed");
        let refused = output(1, "", "a note\nsbatch: error: invalid partition specified: x\n");
        assert!(!refused.is_unreachable());
        assert_eq!(refused.error_lines().0, "invalid partition specified: x");
    }

    #[test]
    fn the_state_of_a_job_is_what_the_engine_says() {
        let of_slurm = |code, stdout: &str, stderr: &str| {
            state_of(ClusterEngine::Slurm, &output(code, stdout, stderr)).into_str()
        };
        assert_eq!(of_slurm(0, "4242_[0-2] debug PD", ""), "active");
        assert_eq!(of_slurm(0, "\n", ""), "gone");
        let purged = "slurm_load_jobs error: Invalid job id specified";
        assert_eq!(of_slurm(1, "", purged), "gone");
        assert_eq!(of_slurm(1, "", "Unable to contact slurm controller"), "unknown");
        let of_cluster = |code, stdout: &str, stderr: &str| {
            state_of(ClusterEngine::Kubernetes, &output(code, stdout, stderr)).into_str()
        };
        let with = |kind: &str, status: &str| {
            format!(r#"{{"status":{{"conditions":[{{"type":"{kind}","status":"{status}"}}]}}}}"#)
        };
        assert_eq!(of_cluster(0, r#"{"status":{}}"#, ""), "active");
        assert_eq!(of_cluster(0, &with("Suspended", "True"), ""), "active");
        assert_eq!(of_cluster(0, &with("Complete", "False"), ""), "active");
        assert_eq!(of_cluster(0, &with("Complete", "True"), ""), "ended");
        assert_eq!(of_cluster(0, &with("Failed", "True"), ""), "ended");
        let gone = "Error from server (NotFound): jobs.batch \"b\" not found";
        assert_eq!(of_cluster(1, "", gone), "gone");
        let denied = "Error from server (Forbidden): jobs.batch \"b\" is forbidden";
        assert_eq!(of_cluster(1, "", denied), "unknown");
    }
}
