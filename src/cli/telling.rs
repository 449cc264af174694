//! Tells everybody how a run ended: once, and truthfully even when nobody reads, when a disk hangs,
//! and when the run itself does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use crate::agent::RunOutcome;
use crate::recovery::{Interrupt, StopReason};

use super::args::OutputFormat;
use super::output::{
    PipeDrain, PipeSender, ResultReport, ResultRetention, RunObservers, SnapshotRecorder,
    StreamJson, one_line, remove_result_file, stage_result_file,
};
use super::panics;
use super::run::{ResultSubject, RunJob, stopped};
use super::testament::{WatchdogOutput, WatchdogReason};
use super::toolset::passing_folder;
use super::wall::WallTime;

/// How long a slow reader of standard output may take to read the result.
const SLOW_READER: Duration = Duration::from_secs(30);

/// How long a slow disk may take to keep the result.
const SLOW_DISK: Duration = Duration::from_secs(5);

/// How often it is looked whether all has been written.
const GLANCE: Duration = Duration::from_millis(2);

const NOT_YET: &str = "the result file could not be written in time: its disk hangs";

impl RunJob {
    /// What to say when the run itself no longer can: its thread hangs.
    pub(super) fn last_words(
        &self,
        witness: SnapshotRecorder,
        subject: &ResultSubject,
        out: &PipeSender,
    ) -> WatchdogOutput {
        let (job, subject, out) = (self.clone(), subject.clone(), out.clone());
        Box::new(move |why| {
            let reason = match why {
                WatchdogReason::Asked(interrupt) => stopped(&witness, interrupt),
                WatchdogReason::Late => StopReason::Deadline,
                WatchdogReason::Broken => StopReason::InternalError,
            };
            let ending = job.as_seen(&witness, reason);
            let mut warnings = witness.warnings();
            warnings.push("the run hung, and was left behind".to_owned());
            let (uuid, now) = (Uuid::new_v4().to_string(), WallTime::by(&job.clock));
            let report = job.report(&ending, &subject, (&uuid, &now), &warnings);
            let object = report.object();
            match job.settings.output.format {
                OutputFormat::Text => {}
                OutputFormat::Json => out.send_last(object.clone(), None),
                OutputFormat::StreamJson => {
                    out.send_last(object.clone(), Some(StreamJson::LONGEST));
                }
            }
            for line in report.errors().iter().chain(&warnings) {
                job.shared.voice.send(&format!("outlast: {}", one_line(line)));
            }
            // Whether that worked is told to nobody: there is no time.
            let _ = job.keep(&object, ResultRetention::AtOnce, &Claim::default());
            while !(out.is_idle() && job.shared.voice.is_idle()) {
                thread::sleep(GLANCE);
            }
        })
    }

    /// Takes back what the result file says of a success, should the process end before anybody
    /// has heard of it. No result at all is better than one that is not true.
    fn denial(
        &self,
        ending: RunOutcome,
        subject: &ResultSubject,
        uuid: &str,
        warnings: &[String],
    ) -> WatchdogOutput {
        let (job, subject) = (self.clone(), subject.clone());
        let (uuid, warnings) = (uuid.to_owned(), warnings.to_vec());
        Box::new(move |why| {
            let Some(path) = &job.settings.output.result_file else { return };
            // Where even this fails there is nothing left to try.
            let _ = remove_result_file(path);
            let by = match why {
                WatchdogReason::Asked(interrupt) => interrupt,
                WatchdogReason::Late | WatchdogReason::Broken => Interrupt::StdoutClosed,
            };
            let lost = RunOutcome { reason: StopReason::AbortedStreaming(by), ..ending };
            let now = WallTime::by(&job.clock);
            let report = job.report(&lost, &subject, (&uuid, &now), &warnings);
            let _ = job.keep(&report.object(), ResultRetention::AtOnce, &Claim::default());
        })
    }

    /// Tells everybody how it ended. The process ends with what the result says.
    pub(super) async fn finish(
        &self,
        ending: RunOutcome,
        subject: &ResultSubject,
        watchers: RunObservers,
        out: &PipeSender,
        drain: PipeDrain,
    ) -> u8 {
        let RunObservers { witness, people, programs, .. } = watchers;
        if !self.settings.persist {
            // Mostly there is none.
            let _none = std::fs::remove_dir_all(passing_folder(&subject.session_id));
        }
        // Takes the bar off the terminal.
        drop(people);
        let (uuid, now) = (Uuid::new_v4().to_string(), WallTime::by(&self.clock));
        let mut warnings = witness.warnings();
        let report = self.report(&ending, subject, (&uuid, &now), &warnings);
        // The file comes first: no slow reader delays it.
        let ending = match self.keep_soon(report.object(), ResultRetention::Synced).await {
            Ok(()) => ending,
            Err(why) if report.verdict().is_error() => {
                self.shared.voice.send(&format!("outlast: warning: {}", one_line(&why)));
                warnings.push(why);
                ending
            }
            Err(why) => {
                RunOutcome { reason: StopReason::OutputFailed, broken: Some(why), ..ending }
            }
        };
        let report = self.report(&ending, subject, (&uuid, &now), &warnings);
        if !report.verdict().is_error() {
            self.testament.deny_by(self.denial(ending.clone(), subject, &uuid, &warnings));
        }
        if !self.testament.speak(report.verdict().exit_code()) {
            // The last words were said, and the process is about to end.
            std::future::pending::<()>().await;
        }
        self.answer(&report, programs, out);
        let heard = self.heard(drain).await;
        // A success that nobody was told of is none.
        let unheard = self.signals.asked().unwrap_or(Interrupt::StdoutClosed);
        let reason = StopReason::AbortedStreaming(unheard);
        let lost = RunOutcome { reason, ..ending.clone() };
        let report = if heard || report.verdict().is_error() {
            report
        } else {
            let report = ResultReport { ending: &lost, ..report };
            // What was wrong with the file was said before, and whoever asked for the end does not
            // wait for a disk.
            let _ = self.keep_soon(report.object(), ResultRetention::AtOnce).await;
            report
        };
        self.testament.told(report.verdict().exit_code());
        for error in report.errors() {
            self.shared.voice.send(&format!("outlast: {}", one_line(&error)));
        }
        let output = report.requirement_output();
        if !output.is_empty() {
            self.shared.voice.send("outlast: the required command printed, at its end:");
        }
        for line in output {
            self.shared.voice.send(&format!("outlast: | {}", one_line(line)));
        }
        if let Some(command) = report.resume_command() {
            self.shared.voice.send(&format!("outlast: to go on where it ended: {command}"));
        }
        report.verdict().exit_code()
    }

    fn report<'a>(
        &'a self,
        ending: &'a RunOutcome,
        subject: &'a ResultSubject,
        (uuid, now): (&'a str, &'a WallTime),
        warnings: &'a [String],
    ) -> ResultReport<'a> {
        let ResultSubject { session_id, sandbox, resumption } = subject;
        let ignored = &self.settings.ignored[..];
        ResultReport { ending, session_id, uuid, now, warnings, sandbox, resumption, ignored }
    }

    /// Standard output's share of the end.
    fn answer(&self, report: &ResultReport<'_>, programs: Option<StreamJson>, out: &PipeSender) {
        match (self.settings.output.format, programs) {
            (OutputFormat::Text, _) => {
                if !report.verdict().is_error() {
                    out.send(report.answer().trim_end_matches('\n'));
                }
            }
            (OutputFormat::Json | OutputFormat::StreamJson, Some(programs)) => {
                programs.finish(report.object());
            }
            (OutputFormat::Json | OutputFormat::StreamJson, None) => {
                out.send_json(report.object(), None);
            }
        }
    }

    /// Waits until standard output has been read. Whether it was.
    async fn heard(&self, drain: PipeDrain) -> bool {
        tokio::select! {
            biased;
            drained = drain.finish(SLOW_READER) => drained.is_ok(),
            () = self.signals.out_of_patience() => false,
        }
    }

    /// Keeps the result, on a disk that takes it within a short time.
    async fn keep_soon(&self, object: Value, how: ResultRetention) -> Result<(), String> {
        if self.settings.output.result_file.is_none() {
            return Ok(());
        }
        let (job, claim) = (self.clone(), Claim::default());
        let writer = claim.clone();
        let keeping = tokio::task::spawn_blocking(move || job.keep(&object, how, &writer));
        let hurry = async {
            match how {
                ResultRetention::Synced => self.signals.out_of_patience().await,
                // All that is left to do: it has what time there is.
                ResultRetention::AtOnce => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            kept = keeping => return kept.unwrap_or_else(|_| Err(panics::last())),
            () = hurry => {}
            () = tokio::time::sleep(SLOW_DISK) => {}
        }
        // What is told from here on says that there is no file.
        claim.take();
        Err(NOT_YET.to_owned())
    }

    /// Writes the result file, unless its place was claimed meanwhile.
    fn keep(&self, object: &Value, how: ResultRetention, claim: &Claim) -> Result<(), String> {
        let Some(path) = &self.settings.output.result_file else { return Ok(()) };
        let mut object = object.clone();
        self.shared.mask.redact_json(&mut object);
        let staged = stage_result_file(path, &object.to_string(), how);
        let written = staged.and_then(|staged| {
            anyhow::ensure!(claim.take(), NOT_YET);
            staged.publish(how)
        });
        written.map_err(|error| {
            format!("the result file {} could not be written: {error:#}", path.display())
        })
    }
}

/// Which of two threads decides about the result file: the writer, which moves it to its place, or
/// the one that waited for it too long and reports that there is none. Clones share it.
#[derive(Clone, Debug, Default)]
struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Takes the decision. `false`: it was taken before.
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}
