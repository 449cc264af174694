//! Writes the result of a run exactly once, to standard output, the result file and standard error;
//! correctly even if standard output is not read, a disk hangs, or the run hangs.

use std::convert::Infallible;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use crate::agent::{JournalHealth, RunOutcome};
use crate::host::{api_error_message, ends_as_asked, result_for_hosts};
use crate::json::to_line;
use crate::messages::ResultObject;
use crate::process::last_panic;
use crate::recovery::{Interrupt, Money, StopReason};

use super::args::{OutputFormat, Verbosity};
use super::chosen_session::is_overlooked;
use super::exit_watchdog::{SLOW_DISK, SLOW_READER, WatchdogOutput, WatchdogReason};
use super::moved_session::RepeatedTerms;
use super::output::{
    PipeSender, ResultBuilder, ResultReport, RunObservers, SnapshotRecorder, StreamJson, Tone,
    last_line, model_usage, one_line,
};
use super::output_file::ResultRetention;
use super::run::{OutputDrain, ResultSubject, RunJob, interrupted_reason};
use super::settings::Settings;
use super::timestamps::{WallTime, format_duration, format_elapsed};
use super::tool_setup::temporary_folder;

/// The minimum time for a reader of standard output when the time of the run is over.
const READER_TIME_AFTER_DEADLINE: Duration = Duration::from_secs(2);

/// The time limit for the removal of files that are not kept.
const REMOVAL_LIMIT: Duration = Duration::from_secs(1);

/// The interval of checks whether all output has been written.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

const RESULT_FILE_TIMEOUT: &str = "the result file could not be written in time: its disk hangs";

impl RunJob {
    /// Returns the writer of the result for a run whose thread hangs.
    pub(super) fn watchdog_writer(
        &self,
        snapshots: SnapshotRecorder,
        subject: &ResultSubject,
        out: &PipeSender,
    ) -> WatchdogOutput {
        let (job, subject, out) = (self.clone(), subject.clone(), out.clone());
        Box::new(move |why| {
            let reason = match why {
                WatchdogReason::Interrupted(interrupt) => interrupted_reason(&snapshots, interrupt),
                WatchdogReason::Late => StopReason::Deadline,
                WatchdogReason::Broken => StopReason::InternalError,
            };
            let outcome = job.outcome_from_snapshot(&snapshots, reason);
            let mut warnings = snapshots.warnings();
            warnings.push("the run hung, and was left behind".to_owned());
            let (uuid, now) = (Uuid::new_v4().to_string(), WallTime::from_clock(&job.clock));
            let report = job.report(&outcome, &subject, (&uuid, &now), &warnings);
            let object = job.object(&report);
            match job.settings.output.format {
                OutputFormat::Text => {}
                OutputFormat::Json => out.send_last(object.to_value(), None),
                OutputFormat::StreamJson => {
                    out.send_last(object.to_value(), Some(StreamJson::LONGEST));
                }
            }
            if io::stderr().is_terminal() {
                // The status line may still be there.
                job.shared.stderr.send("");
            }
            for line in report.errors().iter().chain(&warnings) {
                job.shared.stderr.send(&format!("outlast: {}", one_line(line)));
            }
            job.annotate(&report);
            // An error is dropped: there is no time left to report it.
            let _ = job.write_result(&object, ResultRetention::AtOnce, &WriteClaim::default());
            while !(out.is_idle() && job.shared.stderr.is_idle()) {
                thread::sleep(POLL_INTERVAL);
            }
        })
    }

    /// Returns the builder of results for turns that wait for sub-agents. Only hosts that read the
    /// state of the session get them: for other hosts, the first result is the end.
    pub(super) fn interim_results(&self, subject: &ResultSubject) -> Option<ResultBuilder> {
        self.host.as_ref().filter(|host| host.reads_state)?;
        let (job, subject) = (self.clone(), subject.clone());
        Some(Box::new(move |outcome| {
            let (uuid, now) = (Uuid::new_v4().to_string(), WallTime::from_clock(&job.clock));
            job.object(&job.report(outcome, &subject, (&uuid, &now), &[]))
        }))
    }

    /// Returns the writer that replaces a success in the result file, if the process ends before
    /// the success was delivered. If the replacement cannot be written, there is no file, which is
    /// better than a wrong result.
    fn success_replacement(
        &self,
        outcome: RunOutcome,
        subject: &ResultSubject,
        uuid: &str,
        warnings: &[String],
    ) -> WatchdogOutput {
        let (job, subject) = (self.clone(), subject.clone());
        let (uuid, warnings) = (uuid.to_owned(), warnings.to_vec());
        Box::new(move |why| {
            let Some(file) = &job.settings.output.files.result else { return };
            // If even this fails, there is no further way.
            let _ = file.remove();
            let by = match why {
                WatchdogReason::Interrupted(interrupt) => interrupt,
                WatchdogReason::Late | WatchdogReason::Broken => Interrupt::StdoutClosed,
            };
            let lost = DeliveryFailure::Unread(by).outcome(&outcome);
            let now = WallTime::from_clock(&job.clock);
            let report = job.report(&lost, &subject, (&uuid, &now), &warnings);
            let object = job.object(&report);
            let _ = job.write_result(&object, ResultRetention::AtOnce, &WriteClaim::default());
        })
    }

    /// Writes the result everywhere, and returns the exit code that agrees with it.
    pub(super) async fn deliver_result(
        &self,
        mut outcome: RunOutcome,
        subject: &ResultSubject,
        watchers: RunObservers,
        out: &PipeSender,
        drain: OutputDrain,
    ) -> u8 {
        let RunObservers { snapshots, people, programs, .. } = watchers;
        if let Some(programs) = &programs {
            outcome.text = programs.undelivered(&outcome.text);
        }
        // Removes the progress bar from the terminal.
        drop(people);
        let (uuid, now) = (Uuid::new_v4().to_string(), WallTime::from_clock(&self.clock));
        let mut warnings = snapshots.warnings();
        warnings.extend(self.signals.disregarded_warning());
        let report = self.report(&outcome, subject, (&uuid, &now), &warnings);
        // The files come first, so that a slow reader does not delay them, and that of the result
        // is the last one, so that it reports a failure of the other.
        let written = self.write_last_message(&report).await;
        let is_error = report.verdict().is_error();
        let outcome = self.after_writing(written, is_error, outcome, &mut warnings);
        let report = self.report(&outcome, subject, (&uuid, &now), &warnings);
        let written = self.write_result_file(&report).await;
        let is_error = report.verdict().is_error();
        let outcome = self.after_writing(written, is_error, outcome, &mut warnings);
        let report = self.report(&outcome, subject, (&uuid, &now), &warnings);
        if !report.verdict().is_error() {
            self.exit_watchdog.set_success_replacement(self.success_replacement(
                outcome.clone(),
                subject,
                &uuid,
                &warnings,
            ));
        }
        if !self.exit_watchdog.claim(self.exit_code(&report)) {
            // The exit watchdog has written the result, and the process is about to end.
            std::future::pending::<()>().await;
        }
        self.write_stdout(&report, programs, out);
        let failure = self.wait_for_reader(drain).await.err();
        let lost = failure.map(|failure| failure.outcome(&outcome));
        let report = match &lost {
            Some(lost) if !report.verdict().is_error() => {
                let report = ResultReport { outcome: lost, ..report };
                // Errors of the file were already reported, and an interrupted run does not wait
                // for a disk.
                let object = self.object(&report);
                let _ = self.write_result_in_time(object, ResultRetention::AtOnce).await;
                report
            }
            Some(_) | None => report,
        };
        self.finish_delivery(&report).await
    }

    /// Completes a delivery, successful or not: records the usage, reports on standard error and in
    /// CI, and removes temporary files. Returns the exit code.
    async fn finish_delivery(&self, report: &ResultReport<'_>) -> u8 {
        if let Some(host) = &self.host {
            host.resources.usage.add(report.outcome);
        }
        let exit_code = self.exit_code(report);
        self.exit_watchdog.mark_delivered(exit_code);
        if self.host.is_none() || self.settings.output.verbosity == Some(Verbosity::Detail) {
            self.report_on_stderr(report);
        }
        self.annotate(report);
        self.write_step_summary(report).await;
        if !self.settings.persist {
            let folder = temporary_folder(report.session_id);
            // It usually does not exist.
            remove_in_time(move || std::fs::remove_dir_all(folder)).await;
        }
        exit_code
    }

    /// Returns the exit code, in the terms of the reader of the result.
    fn exit_code(&self, report: &ResultReport<'_>) -> u8 {
        if self.host.is_some() && ends_as_asked(report.outcome.reason) {
            return 0;
        }
        report.verdict().exit_code()
    }

    /// Reports errors and the command that resumes the run on standard error.
    fn report_on_stderr(&self, report: &ResultReport<'_>) {
        let styling = self.styling();
        if self.verbosity() == Verbosity::Failures && !report.verdict().is_error() {
            return;
        }
        for error in report.errors() {
            let line = format!("outlast: {}", one_line(&error));
            self.shared.stderr.send(&styling.paint(Tone::Failure, &line));
        }
        let output = report.requirement_output();
        if !output.is_empty() {
            self.shared.stderr.send("outlast: the required command printed, at its end:");
        }
        for line in output {
            self.shared.stderr.send(&format!("outlast: | {}", one_line(line)));
        }
        // Without a session and a file, only standard error can have the answer.
        if report.outcome.reason == StopReason::OutputFailed
            && report.outcome.journal != JournalHealth::Durable
        {
            self.shared.stderr.send("outlast: the answer:");
            for line in report.answer().lines() {
                self.shared.stderr.send(&format!("outlast: | {}", one_line(line)));
            }
        }
        if let Some(command) = report.resume_command() {
            let how = report.outcome.reason.info().to_go_on;
            self.shared.stderr.send(&format!("outlast: {how}: {command}"));
        }
        if let Some(warning) = report.resume_warning() {
            self.shared.warn(&warning);
        }
        if self.verbosity() == Verbosity::Failures {
            for warning in report.warnings {
                self.shared.warn(warning);
            }
            let folder = one_line(&report.terms.cwd.display().to_string());
            let line = format!("outlast: session {} in {folder}", report.session_id);
            self.shared.stderr.send(&line);
        }
        if self.verbosity() != Verbosity::Waits {
            let (tone, line) = last_line(report.outcome);
            let prefix = if io::stderr().is_terminal() { "" } else { "outlast: " };
            self.shared.stderr.send(&styling.paint(tone, &format!("{prefix}{line}")));
        }
    }

    /// Returns the result object, in the terms of its reader.
    fn object(&self, report: &ResultReport<'_>) -> ResultObject {
        let stdin = self.added_input.as_ref().map(ToString::to_string);
        let mut object = ResultObject { stdin, ..report.object() };
        let Some(host) = &self.host else { return object };
        let usage = host.resources.usage.with(report.outcome);
        if let Some(run) = &mut object.run {
            let (spent, unsettled) = usage.known_amounts().unzip();
            run.budget.spent_usd = spent.map(Money::as_dollars);
            run.budget.unsettled_usd = unsettled.map(Money::as_dollars);
        }
        let object = ResultObject {
            model_usage: model_usage(&usage.by_model),
            user_message_uuid: host.prompt.uuid.clone(),
            origin: host.prompt.origin.clone(),
            ..result_for_hosts(object, report.outcome.reason)
        };
        if host.is_kept { object } else { object.without_session() }
    }

    /// Returns the fields of the result that the user chose, in that order. Missing fields are
    /// null.
    fn chosen_fields(&self, object: &ResultObject) -> Value {
        let object = object.to_value();
        let fields = &self.settings.output.fields;
        if fields.is_empty() {
            return object;
        }
        // A name may be repeated, so the values are not moved out.
        let chosen = fields.iter().map(|field| (field.clone(), object[field.as_str()].clone()));
        Value::Object(chosen.collect())
    }

    fn report<'a>(
        &'a self,
        outcome: &'a RunOutcome,
        subject: &'a ResultSubject,
        (uuid, now): (&'a str, &'a WallTime),
        warnings: &'a [String],
    ) -> ResultReport<'a> {
        let ResultSubject { session_id, sandbox, resumption } = subject;
        let Settings { config_dir, variables, cwd, ignored, given, tools, .. } = &*self.settings;
        let is_to_be_named = self.host.is_some() && is_overlooked(config_dir, variables);
        let config_dir = is_to_be_named.then_some(config_dir.as_path());
        let (profile, redactor) = (tools.profile, &self.shared.redactor);
        let terms = RepeatedTerms { cwd, config_dir, profile, given, redactor };
        ResultReport {
            outcome,
            session_id,
            uuid,
            now,
            warnings,
            sandbox,
            resumption,
            ignored,
            terms,
        }
    }

    /// Writes the result to standard output.
    fn write_stdout(
        &self,
        report: &ResultReport<'_>,
        programs: Option<StreamJson>,
        out: &PipeSender,
    ) {
        match (self.settings.output.format, programs) {
            (OutputFormat::Text, _) => {
                let is_silent = self.settings.output.verbosity == Some(Verbosity::Failures);
                if !report.verdict().is_error() && !is_silent {
                    out.send(report.answer().trim_end_matches('\n'));
                }
            }
            (OutputFormat::Json | OutputFormat::StreamJson, Some(programs)) => {
                let object = self.object(report);
                match &self.host {
                    Some(_) => {
                        let failure = api_error_message(&object, report.outcome.reason);
                        programs.finish_turn(failure, object);
                    }
                    None => programs.finish(&object),
                }
            }
            (OutputFormat::Json | OutputFormat::StreamJson, None) => {
                out.send_json(self.chosen_fields(&self.object(report)), None);
            }
        }
    }

    /// Waits until standard output has been read, at most until the end of the run's time.
    ///
    /// # Errors
    /// It was not read.
    async fn wait_for_reader(&self, drain: OutputDrain) -> Result<(), DeliveryFailure> {
        let interrupt = || self.signals.interrupt().unwrap_or(Interrupt::StdoutClosed);
        let deadline = async {
            tokio::join!(
                self.wait_until_time_limit(),
                tokio::time::sleep(READER_TIME_AFTER_DEADLINE)
            )
        };
        tokio::select! {
            biased;
            drained = drain.finish(SLOW_READER) => drained.map_err(|error| {
                if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::TimedOut) {
                    DeliveryFailure::Unread(interrupt())
                } else {
                    DeliveryFailure::Unwritable(error)
                }
            }),
            () = self.signals.reader_timeout() => Err(DeliveryFailure::Unread(interrupt())),
            _ = deadline => Err(DeliveryFailure::Late),
            never = self.report_unread_output() => match never {},
        }
    }

    /// Reports the wait for the reader of standard output at each heartbeat.
    async fn report_unread_output(&self) -> Infallible {
        let heartbeat = self.settings.config.limits.heartbeat.max(Duration::from_millis(1));
        let began = Instant::now();
        loop {
            tokio::time::sleep(heartbeat).await;
            let left = SLOW_READER.saturating_sub(began.elapsed());
            self.shared.stderr.offer(&format!(
                "outlast: waiting for the reader of standard output, {} so far, at most {} left",
                format_elapsed(began.elapsed()),
                format_duration(left)
            ));
        }
    }

    /// Returns the outcome after an attempt to write a file, whose failure makes a success a
    /// failure.
    fn after_writing(
        &self,
        written: anyhow::Result<()>,
        is_error: bool,
        outcome: RunOutcome,
        warnings: &mut Vec<String>,
    ) -> RunOutcome {
        let Err(error) = written else { return outcome };
        let why = format!("{error:#}");
        if !is_error {
            return RunOutcome { reason: StopReason::OutputFailed, broken: Some(why), ..outcome };
        }
        self.shared.warn(&why);
        warnings.push(why);
        outcome
    }

    /// Writes the result file. If another process has taken the session over, it is left to that
    /// process.
    async fn write_result_file(&self, report: &ResultReport<'_>) -> anyhow::Result<()> {
        if self.settings.output.files.result.is_some() {
            check_ownership(report, "the result file")?;
        }
        self.write_result_in_time(self.object(report), ResultRetention::Synced).await
    }

    /// Writes the answer to the file of `--last-message-file`, within a time limit for slow disks.
    /// If another process has taken the session over, it is left to that process.
    async fn write_last_message(&self, report: &ResultReport<'_>) -> anyhow::Result<()> {
        let Some(file) = self.settings.output.files.last_message.clone() else { return Ok(()) };
        check_ownership(report, "--last-message-file")?;
        let path = file.path().display().to_string();
        let text = self.shared.redactor.redact(&report.answer());
        let text = text.trim_end().to_owned();
        let writing =
            tokio::task::spawn_blocking(move || file.write(&text, ResultRetention::Synced));
        let written = match tokio::time::timeout(SLOW_DISK, writing).await {
            Ok(Ok(written)) => written,
            Ok(Err(_panic)) => Err(anyhow!("{}", last_panic())),
            Err(_late) => Err(anyhow!("its disk hangs")),
        };
        written.with_context(|| format!("--last-message-file {path} could not be written"))
    }

    /// Writes the result file, within a time limit for slow disks.
    async fn write_result_in_time(
        &self,
        object: ResultObject,
        how: ResultRetention,
    ) -> anyhow::Result<()> {
        let Some(file) = self.settings.output.files.result.clone() else { return Ok(()) };
        let (job, claim) = (self.clone(), WriteClaim::default());
        let writer = claim.clone();
        let writing = tokio::task::spawn_blocking(move || job.write_result(&object, how, &writer));
        let hurry = async {
            match how {
                ResultRetention::Synced => self.signals.reader_timeout().await,
                // This is the last step, so it may use the remaining time.
                ResultRetention::AtOnce => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            written = writing => return written.unwrap_or_else(|_| Err(anyhow!("{}", last_panic()))),
            () = hurry => {}
            () = tokio::time::sleep(SLOW_DISK) => {}
        }
        match claim.abandon() {
            WriteProgress::Staging | WriteProgress::Abandoned => {}
            // The file may be in its place, and contradict the result that reports the failure.
            WriteProgress::Publishing => remove_in_time(move || file.remove()).await,
            WriteProgress::Published => return Ok(()),
        }
        Err(anyhow!(RESULT_FILE_TIMEOUT))
    }

    /// Writes the result file, unless it was abandoned meanwhile. After a failure, there is no
    /// file: an earlier one may report a success that was not delivered, and this one may be lost
    /// with the machine.
    fn write_result(
        &self,
        object: &ResultObject,
        how: ResultRetention,
        claim: &WriteClaim,
    ) -> anyhow::Result<()> {
        let Some(file) = &self.settings.output.files.result else { return Ok(()) };
        let mut object = object.to_value();
        self.shared.redactor.redact_json(&mut object);
        let staged = file.stage(&to_line(&object), how);
        let written = if claim.advance(WriteProgress::Publishing) {
            let published = staged.and_then(|staged| staged.publish(how)).and_then(|()| {
                anyhow::ensure!(claim.advance(WriteProgress::Published), RESULT_FILE_TIMEOUT);
                Ok(())
            });
            published.inspect_err(|_| drop(file.remove()))
        } else {
            Err(anyhow!(RESULT_FILE_TIMEOUT))
        };
        let place = || format!("the result file {} could not be written", file.path().display());
        written.with_context(place)
    }
}

/// Fails if another process has taken the session over.
fn check_ownership(report: &ResultReport<'_>, file: &str) -> anyhow::Result<()> {
    let is_taken_over = matches!(report.outcome.journal, JournalHealth::TakenOver(_));
    anyhow::ensure!(!is_taken_over, "{file} was left to the process that took the session over");
    Ok(())
}

/// Removes a file or folder. If the disk hangs, it remains.
async fn remove_in_time<T: Send + 'static>(removal: impl FnOnce() -> T + Send + 'static) {
    let removal = tokio::task::spawn_blocking(removal);
    let _ = tokio::time::timeout(REMOVAL_LIMIT, removal).await;
}

/// The reason that a result did not reach the reader of standard output.
#[derive(Debug)]
enum DeliveryFailure {
    /// The reader is gone, did not read for too long, or the run was interrupted meanwhile.
    Unread(Interrupt),
    /// The time of the run was over before the result was read.
    Late,
    Unwritable(io::Error),
}

impl DeliveryFailure {
    /// Returns the outcome of a run whose success was not delivered: a failure.
    fn outcome(self, outcome: &RunOutcome) -> RunOutcome {
        let outcome = outcome.clone();
        let unfinished = || Some("the result was read from standard output".to_owned());
        match self {
            Self::Unread(by) => RunOutcome {
                reason: StopReason::AbortedStreaming(by),
                broken: unfinished(),
                ..outcome
            },
            Self::Late => {
                RunOutcome { reason: StopReason::Deadline, broken: unfinished(), ..outcome }
            }
            Self::Unwritable(error) => {
                let why = format!("standard output cannot be written: {error}");
                RunOutcome { reason: StopReason::OutputFailed, broken: Some(why), ..outcome }
            }
        }
    }
}

/// The progress of the writer of the result file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WriteProgress {
    /// The content is being written to another file.
    #[default]
    Staging,
    /// The file is being moved to its place, and the folder is being synced.
    Publishing,
    Published,
    /// The waiting task reports that there is no file.
    Abandoned,
}

/// Decides a race about the result file between the writer and the waiting task, which reports
/// after the time limit that there is no file. Clones share the progress.
#[derive(Clone, Debug, Default)]
struct WriteClaim(Arc<Mutex<WriteProgress>>);

impl WriteClaim {
    /// Records the progress of the writer. `false`: the file was abandoned.
    fn advance(&self, to: WriteProgress) -> bool {
        let mut progress = self.0.lock();
        if *progress != WriteProgress::Abandoned {
            *progress = to;
        }
        *progress == to
    }

    /// Abandons the file, and returns the progress of the writer until then.
    fn abandon(&self) -> WriteProgress {
        std::mem::replace(&mut *self.0.lock(), WriteProgress::Abandoned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_learns_in_each_step_that_its_file_was_abandoned() {
        let steps = [WriteProgress::Staging, WriteProgress::Publishing, WriteProgress::Published];
        for (index, reached) in steps.into_iter().enumerate() {
            let claim = WriteClaim::default();
            for step in &steps[..=index] {
                assert!(claim.clone().advance(*step));
            }
            assert_eq!(claim.abandon(), reached);
            for step in &steps[index..] {
                assert!(!claim.advance(*step), "{reached:?}");
            }
            assert_eq!(claim.abandon(), WriteProgress::Abandoned);
        }
    }
}
