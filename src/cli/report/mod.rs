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

use std::time::SystemTime;

use crate::batch::TaskReport;
use crate::config::environment::Variables;
use crate::history::{HistoryContents, SessionHistory, read_history};
use crate::journal::{ListScope, SessionFile, SessionId, locate_session};
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
pub(super) async fn report(args: ReportArgs, world: ProcessContext) -> Result<u8, UsageError> {
    let ProcessContext { variables, cwd, signals, .. } = world;
    until_signal(&signals, move || perform(&args, &variables, &cwd)).await
}

fn perform(
    args: &ReportArgs,
    variables: &Variables,
    cwd: &std::path::Path,
) -> Result<u8, UsageError> {
    let context = SessionsContext::new(variables, cwd);
    let format = args.format()?;
    let destination = Destination::open(args.output.as_deref(), cwd, Readers::Owner)?;
    let text = match &wanted(&context, args)?[..] {
        [only] if is_about_one(args) => one(&context, only, format)?,
        files => many(&context, files, format)?,
    };
    destination.write_text(&text)?;
    Ok(0)
}

/// Returns true unless the user asked for all sessions of a folder, of all folders, or since a
/// time.
fn is_about_one(args: &ReportArgs) -> bool {
    !args.all && !args.all_projects && args.since.is_none()
}

/// The sessions that the user means, each once.
fn wanted(context: &SessionsContext, args: &ReportArgs) -> Result<Vec<SessionFile>, UsageError> {
    if is_about_one(args) {
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
    let scope = if args.all_projects { ListScope::All } else { ListScope::Project };
    let mut files = context.list(scope)?;
    if let Some(age) = args.since {
        let oldest = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        files.retain(|file| file.written >= oldest);
    }
    Ok(files)
}

fn one(
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
        ReportFormat::Junit => junit::render(&[(report, document)]),
        ReportFormat::Html => {
            let timeline = SessionTimeline::of(&history);
            html::session_page(context, &document, (&history, &report.work), &timeline)
        }
    })
}

fn many(
    context: &SessionsContext,
    files: &[SessionFile],
    format: ReportFormat,
) -> Result<String, UsageError> {
    Ok(render_many(context, read_all(files)?, format))
}

/// A report on the tasks of a batch: on the session of each, or else on its result. One with neither
/// is listed as unfinished, with nothing done.
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
    let located: Vec<Option<SessionFile>> = tasks.iter().map(locate).collect();
    let mut files: Vec<SessionFile> = located.iter().flatten().cloned().collect();
    files.sort_unstable_by(|one, other| (other.written, &other.id).cmp(&(one.written, &one.id)));
    let mut reports = read_all(&files)?;
    for report in &mut reports {
        let task = tasks.iter().find(|task| task.session_id.to_string() == report.subject.id);
        report.subject.name = task.map(|task| task.task.id.clone());
    }
    let without = tasks.iter().zip(&located).filter(|(_, file)| file.is_none());
    reports.extend(without.map(|(task, _)| task::of_task(task)));
    Ok(render_many(context, reports, format))
}

fn render_many(
    context: &SessionsContext,
    reports: Vec<SessionReport>,
    format: ReportFormat,
) -> String {
    let overview = overview(&reports);
    let document = |ids| ReportDocument::of_sessions(context, &overview, &reports, ids);
    match format {
        ReportFormat::Table => {
            let width = terminal_width();
            let short = width.map(|_| IdLength::Chars(context.unique_length()));
            terminal::render(&document(short.unwrap_or(IdLength::Whole)), width)
        }
        ReportFormat::Markdown => markdown::render(&document(IdLength::Whole)),
        ReportFormat::Json => json_text(&reports),
        ReportFormat::Html => {
            let detailed = reports.iter().take(html::DETAILED_MAX);
            let parts = detailed.map(|one| (one, ReportDocument::of_session(context, one)));
            let parts: Vec<_> = parts.collect();
            html::overview_page(&document(IdLength::Whole), &overview, &parts)
        }
        ReportFormat::Junit => {
            let with_document = |report: SessionReport| {
                let document = ReportDocument::of_session(context, &report);
                (report, document)
            };
            junit::render(&reports.into_iter().map(with_document).collect::<Vec<_>>())
        }
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
