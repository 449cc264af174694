//! `outlast report`: outcomes, costs and recoveries of recorded sessions, for people and programs.

mod answer;
pub(super) mod document;
mod html;
mod json;
mod junit;
pub(super) mod markdown;
mod markup;
mod task;
mod terminal;
mod words;

use std::path::Path;
use std::time::SystemTime;

use crate::batch::TaskReport;
use crate::config::environment::Variables;
use crate::history::{HistoryContents, SessionHistory, read_history};
use crate::journal::{SessionFile, SessionId, locate_session};
use crate::report::{SessionReport, SessionTimeline, SessionsOverview};

use super::args::{ReportArgs, ReportFormat};
use super::destination::Destination;
use super::output_file::Readers;
use super::run::ProcessContext;
use super::sessions::{
    SessionsContext, read_in_parallel, terminal_width, unreadable, until_signal,
};
use super::usage::UsageError;

use document::{IdLength, ReportDocument};

/// Reports on recorded sessions.
///
/// # Errors
/// There is no such session, a file cannot be read or written, or a signal came.
pub(super) async fn report(
    args: ReportArgs,
    ProcessContext { variables, cwd, signals, .. }: ProcessContext,
) -> Result<u8, UsageError> {
    until_signal(&signals, move || perform(&args, &variables, &cwd)).await
}

fn perform(args: &ReportArgs, variables: &Variables, cwd: &Path) -> Result<u8, UsageError> {
    let context = SessionsContext::new(variables, cwd);
    let format = args.format()?;
    let destination = Destination::open(args.output.as_deref(), cwd, Readers::Owner)?;
    let text = match &requested(&context, args)?[..] {
        [file] if has_named_sessions(args) => render_one(&context, file, format)?,
        files => render_many(&context, &read_all(files)?, format),
    };
    destination.write_text(&text)?;
    Ok(0)
}

/// Returns true unless the user requests all sessions of a folder, of all folders, or since a time.
fn has_named_sessions(args: &ReportArgs) -> bool {
    !args.all && !args.all_projects && args.since.is_none()
}

/// Returns the requested sessions, each once.
fn requested(context: &SessionsContext, args: &ReportArgs) -> Result<Vec<SessionFile>, UsageError> {
    if has_named_sessions(args) {
        if args.sessions.is_empty() {
            return Ok(vec![context.find("latest")?]);
        }
        let mut files: Vec<SessionFile> = Vec::new();
        for name in &args.sessions {
            let file = context.find(name)?;
            if !files.iter().any(|known| known.path == file.path) {
                files.push(file);
            }
        }
        return Ok(files);
    }
    let mut files = context.list(SessionsContext::scope(args.all_projects))?;
    if let Some(age) = args.since {
        let oldest = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        files.retain(|file| file.written >= oldest);
    }
    Ok(files)
}

fn render_one(
    context: &SessionsContext,
    file: &SessionFile,
    format: ReportFormat,
) -> Result<String, UsageError> {
    let contents = match format {
        ReportFormat::Html => HistoryContents::All,
        ReportFormat::Table | ReportFormat::Markdown | ReportFormat::Json | ReportFormat::Junit => {
            HistoryContents::WithoutOutputs
        }
    };
    let (history, report) = read(file, contents)?;
    let document = ReportDocument::of_session(context, &report);
    Ok(match format {
        ReportFormat::Table => terminal::render(&document, terminal_width()),
        ReportFormat::Markdown => markdown::render(&document),
        ReportFormat::Json => json_text(&[report]),
        ReportFormat::Junit => junit::render(&[(&report, document)]),
        ReportFormat::Html => {
            let timeline = SessionTimeline::of(&history);
            html::session_page(context, &document, (&history, &report.work), &timeline)
        }
    })
}

/// Reports on the tasks of a batch, from the session of each, or else from its result. A task with
/// neither is listed as unfinished, without any work.
///
/// # Errors
/// The file of a session cannot be read.
pub(super) fn on_tasks(
    context: &SessionsContext,
    tasks: &[TaskReport<'_>],
    format: ReportFormat,
) -> Result<String, UsageError> {
    let locate = |task: &TaskReport<'_>| {
        let id = SessionId::parse(&task.session_id.to_string())?;
        locate_session(context.place(), &id).ok()
    };
    let (mut files, mut without_session) = (Vec::new(), Vec::new());
    for task in tasks {
        match locate(task) {
            Some(file) => files.push(file),
            None => without_session.push(task::of_task(task)),
        }
    }
    files.sort_unstable_by(|one, other| (other.written, &other.id).cmp(&(one.written, &one.id)));
    let mut reports = read_all(&files)?;
    for report in &mut reports {
        let task = tasks.iter().find(|task| task.session_id.to_string() == report.subject.id);
        report.subject.name = task.map(|task| task.task.id.clone());
    }
    reports.extend(without_session);
    Ok(render_many(context, &reports, format))
}

fn render_many(
    context: &SessionsContext,
    reports: &[SessionReport],
    format: ReportFormat,
) -> String {
    let overview = overview(reports);
    let document = |ids| ReportDocument::of_sessions(context, &overview, reports, ids);
    let with_documents = |count| {
        let reports = reports.iter().take(count);
        let with_document = |report| (report, ReportDocument::of_session(context, report));
        reports.map(with_document).collect::<Vec<_>>()
    };
    match format {
        ReportFormat::Table => {
            let width = terminal_width();
            let short = width.map(|_| IdLength::Chars(context.unique_length()));
            terminal::render(&document(short.unwrap_or(IdLength::Whole)), width)
        }
        ReportFormat::Markdown => markdown::render(&document(IdLength::Whole)),
        ReportFormat::Json => json_text(reports),
        ReportFormat::Html => {
            let parts = with_documents(html::DETAILED_MAX);
            html::overview_page(&document(IdLength::Whole), &overview, &parts)
        }
        ReportFormat::Junit => junit::render(&with_documents(usize::MAX)),
    }
}

fn json_text(reports: &[SessionReport]) -> String {
    format!("{:#}\n", json::object(&overview(reports), reports))
}

fn overview(reports: &[SessionReport]) -> SessionsOverview {
    let mut overview = SessionsOverview::default();
    for report in reports {
        overview.add(report);
    }
    overview.sorted()
}

fn read(
    file: &SessionFile,
    contents: HistoryContents,
) -> Result<(SessionHistory, SessionReport), UsageError> {
    let history = read_history(file, contents).map_err(|error| unreadable(&file.path, &error))?;
    let report = SessionReport::of(&history);
    Ok((history, report))
}

/// Reads sessions, and keeps only the report on each.
fn read_all(files: &[SessionFile]) -> Result<Vec<SessionReport>, UsageError> {
    let read_one = |file: &_| read(file, HistoryContents::WithoutOutputs).map(|(_, report)| report);
    let reports = read_in_parallel(files, read_one);
    reports.into_iter().collect()
}
