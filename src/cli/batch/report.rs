//! Reports on a batch: the state of every task, and the merged results.

use serde_json::{Value, json};
use strum::IntoEnumIterator;

use crate::batch::{BatchFolder, BatchPlan, BatchSummary, Submission, TaskReport, TaskState};
use crate::cli::args::{BatchStatusArgs, CollectBatchArgs, CollectFormat, ReportFormat};
use crate::cli::destination::Destination;
use crate::cli::output::one_line;
use crate::cli::output_file::Readers;
use crate::cli::report;
use crate::cli::run::ProcessContext;
use crate::cli::sessions::{Column, SessionsContext, Table, terminal_width};
use crate::cli::stdout::print_report;
use crate::cli::usage::UsageError;
use crate::json::to_line;
use crate::text::{counted, quoted_command};

use super::engine_program::{EngineJobState, job_state};
use super::open::{open, resume_command};

const HEADINGS: [&str; 7] = ["INDEX", "ID", "STATE", "EXIT", "ATTEMPTS", "COST", "WHY"];

/// The current state of a batch, with its job on an engine.
pub(super) struct BatchOverview<'a> {
    folder: &'a BatchFolder,
    plan: &'a BatchPlan,
    pub(super) summary: BatchSummary<'a>,
    /// The last submission, unless every task has a result.
    job: Option<(Submission, EngineJobState)>,
}

impl<'a> BatchOverview<'a> {
    /// Reads the files of all tasks, and asks the engine for the state of its job.
    ///
    /// # Errors
    /// A signal came.
    pub(super) async fn gather(
        folder: &'a BatchFolder,
        plan: &'a BatchPlan,
        context: &ProcessContext,
    ) -> Result<Self, UsageError> {
        let local = Self::of_files(folder, plan);
        let submission = folder.submission().filter(|_| local.summary.open() > 0);
        let Some(submission) = submission else { return Ok(local) };
        let state = job_state(&submission, context).await?;
        Ok(local.with_job(submission, state))
    }

    /// Reads the files of all tasks only.
    pub(super) fn of_files(folder: &'a BatchFolder, plan: &'a BatchPlan) -> Self {
        Self { folder, plan, summary: BatchSummary::gather(folder, plan), job: None }
    }

    pub(super) fn with_job(self, submission: Submission, state: EngineJobState) -> Self {
        let summary = match state {
            EngineJobState::Active | EngineJobState::Ended | EngineJobState::Unknown(_) => {
                self.summary.with_queued(&submission.tasks)
            }
            EngineJobState::Gone => self.summary,
        };
        Self { summary, job: Some((submission, state)), ..self }
    }

    /// Returns the command that resumes the batch, if it can be resumed now.
    fn resume(&self) -> Option<String> {
        let is_at_engine =
            matches!(&self.job, Some((_, EngineJobState::Active | EngineJobState::Ended)));
        let can_resume = self.summary.open() > 0 && !is_at_engine;
        can_resume.then(|| resume_command(self.folder, self.plan))
    }

    /// Returns the summary as JSON, with the exit code of this process.
    pub(super) fn object(&self, exit_code: u8) -> Value {
        let mut object = self.summary.object(self.folder, self.resume().as_deref());
        object["exit_code"] = exit_code.into();
        if let Some((submission, state)) = &self.job {
            object["submission"] = json!({
                "engine": submission.engine,
                "job": submission.job,
                "at": submission.at,
                "state": state.into_str(),
            });
        }
        object
    }

    /// Describes the state of the job in a line for people.
    fn job_line(&self) -> Option<String> {
        let (submission, state) = self.job.as_ref()?;
        let job = &submission.job;
        let (look_up, removal) =
            (quoted_command(submission.look_up()), quoted_command(submission.removal()));
        match state {
            EngineJobState::Gone => None,
            EngineJobState::Active => Some(format!("submitted, job {job}: {look_up} shows it")),
            EngineJobState::Ended => Some(format!(
                "submitted, job {job}: it has ended, and its results are on its volume; {removal} \
                 makes room to go on"
            )),
            EngineJobState::Unknown(why) => Some(format!(
                "submitted, job {job}: whether it is queued or running is not known ({}); {look_up} \
                 shows it",
                one_line(why)
            )),
        }
    }

    /// Returns the command that shows the progress of the batch.
    pub(super) fn status_command(&self) -> String {
        self.command("status")
    }

    fn command(&self, subcommand: &str) -> String {
        let path = self.folder.path().display().to_string();
        quoted_command(["outlast", "batch", subcommand, &path])
    }

    /// Describes the end of a batch for people: the tasks that need attention, the figures, and how
    /// to resume. Tasks that were not begun can be thousands, and are only counted in the figures.
    pub(super) fn text(&self) -> String {
        let needs_attention = |report: &TaskReport<'_>| match report.state {
            TaskState::Done => report.denied_calls() > 0,
            TaskState::Failed | TaskState::Running | TaskState::Unfinished => true,
            TaskState::Submitted | TaskState::Missing => false,
        };
        let mut text = self.table(needs_attention);
        if !text.is_empty() {
            text.push('\n');
        }
        text + &self.footer()
    }

    fn footer(&self) -> String {
        let shown = TaskState::iter().filter_map(|state| match self.summary.count(state) {
            0 if state != TaskState::Done => None,
            count => Some(format!("{count} {}", state.into_str())),
        });
        let denied = self.summary.tasks_with_denied_calls();
        let has_failed = self.summary.count(TaskState::Failed) > 0;
        let lines = [
            Some(format!(
                "batch {}, {}: {}, {}",
                self.summary.batch,
                counted(self.summary.tasks.len(), "task"),
                shown.collect::<Vec<_>>().join(", "),
                self.summary.cost(),
            )),
            (denied > 0).then(|| format!("{} had calls denied", counted(denied, "task"))),
            Some(format!("results: {}", self.command("collect"))),
            self.job_line(),
            self.resume().map(|resume| format!("to go on: {resume}")),
            has_failed.then(|| {
                let resume = resume_command(self.folder, self.plan);
                format!("to run what failed again: {resume} --retry-failed")
            }),
        ];
        lines.into_iter().flatten().map(|line| line + "\n").collect()
    }

    /// Lays out a table of some tasks. Empty if there are none.
    fn table(&self, is_shown: impl Fn(&TaskReport<'_>) -> bool) -> String {
        let shown = self.summary.tasks.iter().filter(|report| is_shown(report));
        let rows: Vec<_> = shown.map(|report| self.row(report)).collect();
        if rows.is_empty() {
            return String::new();
        }
        let columns = HEADINGS.map(|name| (name.to_owned(), Column::Left));
        Table { columns: columns.to_vec(), rows }.lay_out(terminal_width())
    }

    fn row(&self, report: &TaskReport<'_>) -> Vec<String> {
        let outcome = report.outcome.as_ref();
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            report.task.index.to_string(),
            one_line(&report.task.id),
            report.state.into_str().to_owned(),
            or_dash(outcome.map(|outcome| outcome.exit_code.to_string())),
            report.attempts.to_string(),
            or_dash(outcome.map(|outcome| outcome.spending().as_cost())),
            one_line(&self.reason(report)),
        ]
    }

    /// Describes why a task is not done, the job that it waits for, and the number of its denied
    /// calls.
    fn reason(&self, report: &TaskReport<'_>) -> String {
        let outcome = report.outcome.as_ref().filter(|_| report.state != TaskState::Done);
        let why = outcome.map(|outcome| {
            let reason = outcome.reason().unwrap_or("not started");
            outcome.error().map_or(reason.to_owned(), |error| format!("{reason}: {error}"))
        });
        let job = self.job.as_ref().filter(|_| report.state == TaskState::Submitted);
        let job = job.map(|(submission, _)| format!("job {}", submission.job));
        let calls = report.denied_calls();
        let denied = (calls > 0).then(|| format!("{} denied", counted(calls, "call")));
        [why, job, denied].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// Lists every task with its state. The exit code is that of the batch.
///
/// # Errors
/// There is no such batch.
pub(super) async fn status(
    args: &BatchStatusArgs,
    context: &ProcessContext,
) -> Result<u8, UsageError> {
    let (folder, plan) = open(&args.batch, context)?;
    let overview = BatchOverview::gather(&folder, &plan, context).await?;
    let code = overview.summary.exit_code();
    let text = if args.json {
        format!("{}\n", overview.object(code))
    } else {
        overview.table(|_| true) + "\n" + &overview.footer()
    };
    print_report(&text)?;
    Ok(code)
}

/// Merges the results. The exit code is that of the batch.
///
/// # Errors
/// There is no such batch, or the file cannot be written.
pub(super) async fn collect(
    args: &CollectBatchArgs,
    context: &ProcessContext,
) -> Result<u8, UsageError> {
    let format = args.format()?;
    let destination = Destination::open(args.output.as_deref(), &context.cwd, Readers::Umask)?;
    let (folder, plan) = open(&args.batch, context)?;
    let overview = BatchOverview::gather(&folder, &plan, context).await?;
    let code = overview.summary.exit_code();
    let sessions = SessionsContext::new(&context.variables, &context.cwd);
    let render = |format| report::on_tasks(&sessions, &overview.summary.tasks, format);
    let text = match format {
        CollectFormat::Json => to_line(&overview.object(code)),
        CollectFormat::Jsonl => {
            let lines = overview.summary.tasks.iter().map(|report| to_line(&report.line()));
            lines.collect::<Vec<_>>().join("\n")
        }
        CollectFormat::Table => render(ReportFormat::Table)?,
        CollectFormat::Markdown => render(ReportFormat::Markdown)?,
        CollectFormat::Junit => render(ReportFormat::Junit)?,
        CollectFormat::Html => render(ReportFormat::Html)?,
    };
    destination.write_text(&format!("{}\n", text.trim_end()))?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::progress::tests::plan;
    use super::*;

    #[test]
    fn tasks_that_were_not_begun_are_counted_at_the_end_and_listed_by_status() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = BatchFolder::new(scratch.path().to_owned());
        let ids: Vec<String> = (0..300).map(|number| format!("b-{number}")).collect();
        let plan = plan(&ids.iter().map(String::as_str).collect::<Vec<_>>());
        let cut_off = folder.task(7);
        cut_off.create().expect("a new folder");
        fs::write(cut_off.result(), "{\"exit_code\":143}").expect("it can be written");
        let overview = BatchOverview::of_files(&folder, &plan);
        let (text, list) = (overview.text(), overview.table(|_| true));
        let sum = "300 tasks: 0 done, 1 unfinished, 299 missing, ";
        assert!(text.contains("\n7      b-7  unfinished  143") && text.contains(sum), "{text}");
        assert_eq!((text.lines().count(), list.lines().count()), (6, 301), "{text}");
    }
}
