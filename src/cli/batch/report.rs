//! Reports on a batch: the state of every task, and the merged results.

use std::fmt::Write as _;

use crate::batch::{
    BatchFolder, BatchPlan, BatchSummary, PlannedTask, TaskOutcome, TaskReport, TaskState,
    quoted_command,
};
use crate::cli::args::{BatchStatusArgs, CollectBatchArgs, CollectFormat, ReportFormat};
use crate::cli::output::one_line;
use crate::cli::output_file::{OutputFile, ResultRetention};
use crate::cli::report;
use crate::cli::run::ProcessContext;
use crate::cli::sessions::{Column, SessionsContext, Table, terminal_width};
use crate::cli::stdout::print_report;
use crate::cli::usage::{UsageError, UsageErrorKind};
use crate::journal::SessionId;
use crate::json::to_line;

use super::open::{open, resume_command};

const HEADINGS: [&str; 7] = ["INDEX", "ID", "STATE", "EXIT", "ATTEMPTS", "COST", "WHY"];

/// Lists every task with its state. The exit code is that of the batch.
///
/// # Errors
/// There is no such batch.
pub(super) fn status(args: &BatchStatusArgs, world: &ProcessContext) -> Result<u8, UsageError> {
    let (folder, plan) = open(&args.batch, world)?;
    let summary = BatchSummary::gather(&folder, &plan);
    let text = if args.json {
        format!("{}\n", summary.object(&folder, resume(&summary, &folder, &plan).as_deref()))
    } else {
        table(&summary.tasks, |_| true) + "\n" + &footer(&summary, &folder, &plan)
    };
    print_report(&text)?;
    Ok(summary.counts.exit_code())
}

/// Merges the results. The exit code is that of the batch.
///
/// # Errors
/// There is no such batch, or the file cannot be written.
pub(super) fn collect(args: &CollectBatchArgs, world: &ProcessContext) -> Result<u8, UsageError> {
    let (folder, plan) = open(&args.batch, world)?;
    let summary = BatchSummary::gather(&folder, &plan);
    let resume = resume(&summary, &folder, &plan);
    let text = match args.format {
        CollectFormat::Json => to_line(&summary.object(&folder, resume.as_deref())),
        CollectFormat::Jsonl => {
            let lines: Vec<String> =
                summary.tasks.iter().map(|report| to_line(&report.line())).collect();
            lines.join("\n")
        }
        CollectFormat::Table => sessions(&plan, world, ReportFormat::Table)?,
        CollectFormat::Markdown => sessions(&plan, world, ReportFormat::Markdown)?,
        CollectFormat::Junit => sessions(&plan, world, ReportFormat::Junit)?,
        CollectFormat::Html => sessions(&plan, world, ReportFormat::Html)?,
    };
    let text = text.trim_end();
    match &args.output {
        None => print_report(&format!("{text}\n"))?,
        Some(path) => {
            let path = world.cwd.join(path);
            let place = |what: String| format!("--output {}: {what}", path.display());
            let file = OutputFile::open(&path)
                .map_err(|error| UsageError::new(place(error.to_string())))?;
            file.write(text, ResultRetention::Synced).map_err(|error| {
                UsageError::of(UsageErrorKind::Internal, place(format!("{error:#}")))
            })?;
        }
    }
    Ok(summary.counts.exit_code())
}

/// The report on the sessions of all tasks.
fn sessions(
    plan: &BatchPlan,
    world: &ProcessContext,
    format: ReportFormat,
) -> Result<String, UsageError> {
    let context = SessionsContext::new(&world.variables, &world.cwd);
    let session = |task: &PlannedTask| SessionId::parse(&task.session_id.to_string());
    let tasks = plan.tasks.iter().filter_map(|task| Some((&*task.id, session(task)?)));
    report::on_tasks(&context, &tasks.collect::<Vec<_>>(), format)
}

fn resume(summary: &BatchSummary<'_>, folder: &BatchFolder, plan: &BatchPlan) -> Option<String> {
    (summary.counts.open() > 0).then(|| resume_command(folder, plan))
}

/// The end of a batch for people: the figures, what is not done, and how to go on.
pub(super) fn summary_text(
    summary: &BatchSummary<'_>,
    folder: &BatchFolder,
    plan: &BatchPlan,
) -> String {
    let mut text = table(&summary.tasks, |state| state != TaskState::Done);
    if !text.is_empty() {
        text.push('\n');
    }
    text + &footer(summary, folder, plan)
}

fn footer(summary: &BatchSummary<'_>, folder: &BatchFolder, plan: &BatchPlan) -> String {
    let counts = TaskState::ALL.into_iter().filter_map(|state| match summary.counts.of(state) {
        0 if state != TaskState::Done => None,
        count => Some(format!("{count} {}", state.name())),
    });
    let counts: Vec<String> = counts.collect();
    let cost = summary.cost();
    let place = folder.path().display().to_string();
    let mut text = format!(
        "batch {}, {} tasks: {}, {cost}\nresults: {}\n",
        summary.batch,
        summary.counts.total(),
        counts.join(", "),
        quoted_command(["outlast", "batch", "collect", &place]),
    );
    if summary.counts.open() > 0 {
        let _ = writeln!(text, "to go on: {}", resume_command(folder, plan));
    }
    if summary.counts.failed > 0 {
        let _ = writeln!(
            text,
            "to run what failed again: {} --retry-failed",
            resume_command(folder, plan)
        );
    }
    text
}

/// Aligns the rows of tasks in these states. Empty if there is none.
fn table(tasks: &[TaskReport<'_>], is_shown: impl Fn(TaskState) -> bool) -> String {
    let shown = tasks.iter().filter(|report| is_shown(report.state));
    let rows: Vec<Vec<String>> = shown.map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let columns = HEADINGS.map(|name| (name.to_owned(), Column::Left));
    Table { columns: columns.to_vec(), rows }.lay_out(terminal_width())
}

fn row(report: &TaskReport<'_>) -> Vec<String> {
    let outcome = report.outcome.as_ref();
    let is_failure = report.state != TaskState::Done;
    let why = outcome.filter(|_| is_failure).map(|outcome| {
        let reason = outcome.reason().unwrap_or("not started");
        outcome.error().map_or(reason.to_owned(), |error| format!("{reason}: {error}"))
    });
    vec![
        report.task.index.to_string(),
        one_line(&report.task.id),
        report.state.name().to_owned(),
        outcome
            .map_or_else(|| "-".to_owned(), |outcome: &TaskOutcome| outcome.exit_code.to_string()),
        report.attempts.to_string(),
        outcome.map_or_else(|| "-".to_owned(), |outcome| outcome.spending().as_cost()),
        one_line(&why.unwrap_or_default()),
    ]
}
