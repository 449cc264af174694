//! Reports an error that stopped a run before it began, in the requested format.

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use uuid::Uuid;

use crate::config::environment::annotates_errors;
use crate::host::exit_code_of_result_for_hosts;
use crate::json::to_line;
use crate::secrets::{KnownSecrets, Redactor, Variables};
use crate::tools::secret_values;

use super::args::{OutputFormat, RequestedOutput};
use super::output::{TerminalFilter, usage_error_result};
use super::output_file::{OutputFile, OutputFileError, ResultRetention};
use super::stdout::print;
use super::step_summary::error_command;
use super::usage::UsageError;

/// The time limit for a reader of standard error.
const STDERR_LIMIT: Duration = Duration::from_secs(1);

/// Returns the redactor of keys of known kinds and of the secrets in `variables`.
pub(super) fn mask_of(variables: &Variables) -> Redactor {
    Redactor::new(KnownSecrets::new(secret_values(variables, None)))
}

/// Reports a usage error: a result object on standard output, and a line on standard error.
pub(super) fn report_usage_error(error: &UsageError, wanted: &RequestedOutput) -> u8 {
    let mut variables: Variables = env::vars_os().collect();
    // As in a run: the folder has no secrets in its name.
    variables.extend(env::current_dir().ok().map(|cwd| ("PWD".into(), cwd.into())));
    let redactor = mask_of(&variables);
    let mut object = usage_error_result(error, "", &Uuid::new_v4().to_string());
    if wanted.is_for_host {
        object = exit_code_of_result_for_hosts(object);
    }
    let mut object = object.to_value();
    redactor.redact_json(&mut object);
    let object = to_line(&object);
    // The file is written on its own thread, so that a blocked reader and a hanging disk do not
    // delay each other. Its error is dropped: it may be the very mistake that is reported.
    let file_writer = wanted.result_file.as_ref().and_then(|path| {
        let (path_of_thread, line) = (path.clone(), object.clone());
        let writer = thread::Builder::new().spawn(move || write_file(&path_of_thread, &line));
        // The error may be that there are too many threads.
        writer.inspect_err(|_| write_file(path, &object)).ok()
    });
    // If it cannot be written, standard error and the exit code still report the error.
    let _ = match wanted.format {
        OutputFormat::Text => Ok(()),
        OutputFormat::Json if wanted.verbose => print(&format!("[{object}]\n")),
        OutputFormat::Json | OutputFormat::StreamJson => print(&format!("{object}\n")),
    };
    let message = redactor.redact(&error.to_string());
    let mut lines = format!("outlast: {message}\n");
    // The error may be in the settings, so only the variables count here.
    if annotates_errors(&variables) {
        lines.push_str(&error_command("outlast: not started", &message));
        lines.push('\n');
    }
    if !wanted.is_alone {
        write_to_stderr(&lines);
    }
    // Last, because a hanging disk delays it.
    if let Some(file_writer) = file_writer {
        let _ = file_writer.join();
    }
    wanted.exit_code_terms()(error.verdict().exit_code())
}

/// Writes the result file. If that is not possible, removes an older one, which would be taken for
/// the result of this run.
fn write_file(path: &Path, line: &str) {
    match OutputFile::open(path) {
        Ok(file) => {
            // Nothing was done that a crash of the machine could contradict, and after a signal a slow
            // disk would take longer than the process has.
            if file.write(line, ResultRetention::AtOnce).is_err() {
                let _ = file.remove();
            }
        }
        // A removal needs no descriptor.
        Err(OutputFileError::FolderClosed(error)) if is_out_of_descriptors(&error) => {
            if fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
                let _ = fs::remove_file(path);
            }
        }
        // The path is a mistake, so nothing there is touched.
        Err(_) => {}
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE))
}

/// Writes lines to standard error. If it is a full pipe that is not read, the exit code is enough.
fn write_to_stderr(lines: &str) {
    let write = |lines: &str| {
        let mut stderr = TerminalFilter::messages(io::stderr().lock());
        let _ = stderr.write_all(lines.as_bytes());
    };
    let (sender, written) = mpsc::channel();
    let text = lines.to_owned();
    let writing = thread::Builder::new().spawn(move || {
        write(&text);
        let _ = sender.send(());
    });
    match writing {
        Ok(_) => drop(written.recv_timeout(STDERR_LIMIT)),
        // The error may be that there are too many threads.
        Err(_) => write(lines),
    }
}
