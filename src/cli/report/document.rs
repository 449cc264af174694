//! The content of a report for people, for all formats: its texts and numbers.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::config::format_took;
use crate::journal::ModelTotals;
use crate::recovery::{Money, Spending};
use crate::report::{
    Answer, ChangedFile, ConversationChanges, FailedCommand, OutcomeCounts, RecoverySummary,
    RefusedCall, SessionOutcome, SessionReport, SessionsOverview, SpendSummary, WorkDone,
};
use crate::text::{counted, shortened};

use super::super::output::one_line;
use super::super::sessions::phrases::stop_reason;
use super::super::sessions::{Column, SessionsContext};
use super::words::{percent, thousands, tried};

/// Maximum number of characters of a block.
const BLOCK_CHARS: usize = 20_000;

/// A report on one session or on many.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct ReportDocument {
    /// The beginning of the prompt, or the number of sessions.
    pub(super) title: String,
    pub(super) status: ReportCell,
    /// The results, which precede the numbers.
    pub(super) blocks: Vec<ReportBlock>,
    /// The most important numbers.
    pub(super) figures: Vec<Figure>,
    /// Facts that identify the session and its folder.
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) tables: Vec<ReportTable>,
    /// Further remarks, a sentence each.
    pub(in crate::cli) notes: Vec<String>,
}

/// A text of several lines with a heading.
#[derive(Clone, Debug)]
pub(super) struct ReportBlock {
    pub(super) heading: String,
    pub(super) text: String,
    pub(super) form: BlockForm,
}

/// Format of the text of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockForm {
    /// Markdown of the model.
    Answer,
    /// JSON.
    Data,
    /// The output of a command.
    Output,
}

/// An important number.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) label: &'static str,
    pub(super) value: String,
    /// Details of the value. May be empty.
    pub(super) detail: String,
}

/// A table with a heading.
#[derive(Clone, Debug)]
pub(super) struct ReportTable {
    pub(super) heading: &'static str,
    pub(super) columns: Vec<(&'static str, Column)>,
    pub(super) rows: Vec<Vec<ReportCell>>,
    /// Columns that a narrow terminal leaves out, the least important first.
    pub(super) spare: &'static [&'static str],
    /// True if there may be very many rows, so that formats for people show only the first ones.
    pub(super) is_listing: bool,
}

/// A text in a table.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportCell {
    pub(super) text: String,
    pub(super) tone: CellTone,
    /// The id of the session that the text links to.
    pub(super) anchor: Option<String>,
}

/// The meaning of a text, which formats show by a colour or a sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CellTone {
    #[default]
    Plain,
    Good,
    Bad,
    /// Neither good nor bad yet.
    Open,
}

impl From<String> for ReportCell {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl From<u32> for ReportCell {
    fn from(number: u32) -> Self {
        thousands(number.into()).into()
    }
}

/// The length of an id in a table of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdLength {
    Whole,
    /// Long enough to distinguish all sessions.
    Chars(usize),
}

/// The table of changed files, for which a page shows the changes.
pub(super) const CHANGED_FILES: &str = "Changed files";

/// The table of calls that were denied, invalid or cancelled, and its first column.
pub(super) const NOT_RUN: &str = "Not run";
pub(super) const REFUSED_CALL: &str = "Call that was not run";

/// The headings of tables that a page has bars for.
pub(super) const RECOVERIES: &str = "Recoveries";
pub(super) const OUTCOMES: &str = "Outcomes";

impl ReportDocument {
    /// Reports on one session.
    pub(in crate::cli) fn of_session(context: &SessionsContext, report: &SessionReport) -> Self {
        let recoveries = report.recoveries.classes().iter().map(recovery_row).collect();
        let agents = report.agents.iter().map(|agent| {
            vec![
                left("Sub-agent", agent.id.clone()),
                left("Kind", agent.kind.clone()),
                left("Outcome", outcome_cell(agent.outcome)),
                right("Turns", agent.turns),
                right("Tools", agent.tools.calls()),
                right("Worked", format_took(agent.worked)),
                right("Cost", agent.cost.as_cost()),
                left("Task", agent.description.clone()),
            ]
        });
        let files = report.work.files.iter().map(file_row).collect();
        let refused = report.work.refused.iter().map(refused_row).collect();
        let spare = &["Kind", "Tools", "Worked"];
        let mut tables = vec![
            table(CHANGED_FILES, files, &[]),
            listing(NOT_RUN, refused, &[]),
            table(RECOVERIES, recoveries, &["Tokens", "Attempts", "Lost"]),
            table("Models", models(&report.spending), &[]),
            listing("Sub-agents", agents.collect(), spare),
        ];
        tables.retain(|table| !table.rows.is_empty());
        let subject = &report.subject;
        let prompt = subject.prompt.clone().unwrap_or_else(|| format!("session {}", subject.id));
        Self {
            title: prompt,
            status: status(report.outcome),
            blocks: blocks(report),
            figures: session_figures(report),
            facts: facts(context, report),
            tables,
            notes: notes(report),
        }
    }

    /// Reports on many sessions.
    pub(super) fn of_sessions(
        context: &SessionsContext,
        overview: &SessionsOverview,
        reports: &[SessionReport],
        ids: IdLength,
    ) -> Self {
        let recoveries = overview.recoveries.iter().map(|impact| {
            let mut row = recovery_row(&impact.summary);
            // The number of attempts is of little use for many sessions.
            row.remove(4);
            let sessions = right("Sessions", impact.sessions);
            row.splice(1..1, [sessions, right("Sessions saved", impact.saved_sessions)]);
            row
        });
        let counts = &overview.outcomes;
        let outcomes = counts.by_name.iter().map(|(name, sessions)| {
            let report = reports.iter().find(|report| report.outcome.name() == *name);
            let name = report
                .map_or_else(|| (*name).to_owned().into(), |report| outcome_cell(report.outcome));
            vec![
                left("Outcome", name),
                right("Sessions", *sessions),
                right("Share", percent(counts.fraction(*sessions))),
            ]
        });
        let sessions = reports.iter().map(|report| session_row(context, report, ids)).collect();
        let spare = &["Cache", "Waited", "Project", "Started", "Recovered", "Worked", "Turns"];
        let mut tables = vec![
            table(OUTCOMES, outcomes.collect(), &[]),
            table(RECOVERIES, recoveries.collect(), &["Tokens", "Lost", "Saved", "Cost"]),
            table("Models", models(&overview.spending), &[]),
            listing("Sessions", sessions, spare),
        ];
        tables.retain(|table| !table.rows.is_empty());
        let number = usize::try_from(counts.sessions()).unwrap_or(usize::MAX);
        let OutcomeCounts { succeeded, failed, others, .. } = *counts;
        let tone = if failed > 0 { CellTone::Bad } else { CellTone::Good };
        let mut text = format!("{succeeded} succeeded, {failed} failed");
        if others > 0 {
            let _ = write!(text, ", {others} open or owned by other programs");
        }
        Self {
            title: counted(number, "session"),
            status: ReportCell { text, tone, anchor: None },
            blocks: Vec::new(),
            figures: overview_figures(overview),
            facts: Vec::new(),
            tables,
            notes: match overview.damaged {
                0 => Vec::new(),
                damaged => vec![format!("{damaged} of the journals have unreadable lines.")],
            },
        }
    }
}

/// A cell with its column.
struct ColumnCell {
    column: (&'static str, Column),
    cell: ReportCell,
}

type Row = Vec<ColumnCell>;

fn left(heading: &'static str, cell: impl Into<ReportCell>) -> ColumnCell {
    ColumnCell { column: (heading, Column::Left), cell: cell.into() }
}

fn right(heading: &'static str, cell: impl Into<ReportCell>) -> ColumnCell {
    ColumnCell { column: (heading, Column::Right), cell: cell.into() }
}

/// Creates a table of rows that have the same columns.
fn table(heading: &'static str, rows: Vec<Row>, spare: &'static [&'static str]) -> ReportTable {
    let columns = rows.first().into_iter().flatten().map(|cell| cell.column).collect();
    let rows = rows.into_iter().map(|row| row.into_iter().map(|cell| cell.cell).collect());
    ReportTable { heading, columns, rows: rows.collect(), spare, is_listing: false }
}

fn listing(heading: &'static str, rows: Vec<Row>, spare: &'static [&'static str]) -> ReportTable {
    ReportTable { is_listing: true, ..table(heading, rows, spare) }
}

fn figure(label: &'static str, value: String, detail: impl Into<String>) -> Figure {
    Figure { label, value, detail: detail.into() }
}

/// Describes the outcome of a session.
fn status(outcome: SessionOutcome) -> ReportCell {
    let text: Cow<'static, str> = match outcome {
        SessionOutcome::Ended(reason) => stop_reason(reason).into(),
        SessionOutcome::Running => "running: a process works on it".into(),
        SessionOutcome::Unfinished => "unfinished: its last process did not record an end".into(),
        SessionOutcome::NotStarted(code) => format!("not started, exit code {code}").into(),
        SessionOutcome::Foreign => "recorded by another program".into(),
    };
    ReportCell { text: text.into_owned(), tone: tone(outcome), anchor: None }
}

/// Names the outcome of a session in one or two words.
fn outcome_cell(outcome: SessionOutcome) -> ReportCell {
    let text = match outcome {
        SessionOutcome::Ended(reason) => format!("{} ({})", reason.name(), reason.info().exit_code),
        SessionOutcome::Running | SessionOutcome::Unfinished => outcome.name().to_owned(),
        SessionOutcome::NotStarted(code) => format!("not started ({code})"),
        SessionOutcome::Foreign => "another program's".to_owned(),
    };
    ReportCell { text, tone: tone(outcome), anchor: None }
}

fn tone(outcome: SessionOutcome) -> CellTone {
    if outcome.is_success() {
        CellTone::Good
    } else if outcome.is_failure() {
        CellTone::Bad
    } else {
        CellTone::Open
    }
}

/// Returns the answer, and the output of the failed command.
fn blocks(report: &SessionReport) -> Vec<ReportBlock> {
    let heading = if report.outcome.is_failure() { "Last message of the model" } else { "Answer" };
    let answer = report.work.answer.as_ref().map(|answer| {
        let form = match answer {
            Answer::Text(_) => BlockForm::Answer,
            Answer::Structured(_) => BlockForm::Data,
        };
        let text = shortened(answer.text(), BLOCK_CHARS, "\n...");
        ReportBlock { heading: heading.to_owned(), text, form }
    });
    let error = report.error.clone().map(|text| ReportBlock {
        heading: "Error".to_owned(),
        text,
        form: BlockForm::Output,
    });
    let failed = report.work.failed.as_ref().map(failed_block);
    // Output that explains a failure comes first.
    error.into_iter().chain(failed).chain(answer).collect()
}

fn failed_block(failed: &FailedCommand) -> ReportBlock {
    let what = if failed.is_requirement { "Required command" } else { "Last failed command" };
    let (command, end) = (one_line(&failed.command), &failed.end);
    let output = if failed.output.trim().is_empty() { "(no output)" } else { &failed.output };
    let text = shortened(output, BLOCK_CHARS, "\n...");
    ReportBlock { heading: format!("{what} {command:?} {end}"), text, form: BlockForm::Output }
}

fn file_row(file: &ChangedFile) -> Row {
    let kind = if file.is_new { "new" } else { "changed" };
    let number = |lines: usize| thousands(u64::try_from(lines).unwrap_or(u64::MAX));
    let counts = [("+", file.added), ("-", file.removed)];
    let [added, removed] = counts.map(|(sign, lines)| format!("{sign}{}", number(lines)));
    vec![
        left("Changed file", file.path.clone()),
        right("Added", added),
        right("Removed", removed),
        left("Change", kind.to_owned()),
    ]
}

fn refused_row(refused: &RefusedCall) -> Row {
    vec![left(REFUSED_CALL, refused.call.clone()), left("Reason", refused.reason.clone())]
}

fn session_figures(report: &SessionReport) -> Vec<Figure> {
    let mut figures = vec![figure("Turns", thousands(report.turns.into()), "")];
    figures.extend(common_figures(&report.spending));
    let time = report.time;
    figures.push(figure("Worked", format_took(time.worked), ""));
    let waits = [
        ("before retries", time.retries),
        ("for shared limits", time.shared_limits),
        ("for background work", time.background),
    ];
    let waits = waits.iter().filter(|(_, waited)| !waited.is_zero());
    let waits: Vec<_> =
        waits.map(|(why, waited)| (*why, format!("{} {why}", format_took(*waited)))).collect();
    let waits = match &waits[..] {
        [(why, _)] => (*why).to_owned(),
        waits => waits.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(", "),
    };
    figures.push(figure("Waited", format_took(time.waited()), waits));
    let tools = report.tools;
    let parts = [
        (tools.failed, "failed"),
        (tools.not_run, "not run"),
        (tools.running, "running"),
        (tools.unknown, "of unknown outcome"),
    ];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    let parts: Vec<_> = parts.map(|(number, what)| format!("{number} {what}")).collect();
    figures.push(figure("Tool calls", thousands(tools.calls().into()), parts.join(", ")));
    figures.push(recoveries(&report.recoveries.sum()));
    let ConversationChanges { model_switches, compactions } = report.changes;
    let changes = [("Model switches", model_switches), ("Compactions", compactions)];
    let changes = changes.into_iter().filter(|(_, number)| *number > 0);
    figures.extend(changes.map(|(label, number)| figure(label, number.to_string(), "")));
    figures
}

fn overview_figures(overview: &SessionsOverview) -> Vec<Figure> {
    let share = overview.outcomes.fraction(overview.outcomes.succeeded);
    let saved = match overview.saved {
        0 => String::new(),
        saved => format!("{saved} of them after a recovery"),
    };
    let mut figures = vec![figure("Succeeded", percent(share), saved)];
    figures.extend(common_figures(&overview.spending));
    figures.push(figure("Turns", thousands(overview.turns.into()), ""));
    figures.push(figure("Worked", format_took(overview.time.worked), ""));
    figures.push(figure("Waited", format_took(overview.time.waited()), ""));
    figures.push(recoveries(&overview.all_recoveries()));
    figures
}

/// Returns costs and tokens.
fn common_figures(spending: &SpendSummary) -> Vec<Figure> {
    let bound = match spending.upper_bounds {
        Money::ZERO => String::new(),
        bound => format!("up to {bound} of it for replies that broke off"),
    };
    let usage = spending.usage;
    let cache = spending.cache_hits().map_or_else(|| "-".to_owned(), percent);
    let tokens = usage.input() + usage.output_tokens;
    let of = format!("{} in, {} out", thousands(usage.input()), thousands(usage.output_tokens));
    vec![
        figure("Cost", spending.cost.as_cost(), bound),
        figure("Tokens", thousands(tokens), of),
        figure("Cache hits", cache, "of the input tokens"),
    ]
}

fn recoveries(sum: &RecoverySummary) -> Figure {
    let (saved, lost) = (thousands(sum.saved.into()), thousands(sum.lost.into()));
    let detail = if sum.fired == 0 {
        String::new()
    } else {
        format!("{saved} saved, {lost} lost, {}", sum.cost.as_cost())
    };
    figure("Recoveries", thousands(sum.fired.into()), detail)
}

fn facts(context: &SessionsContext, report: &SessionReport) -> Vec<(&'static str, String)> {
    let subject = &report.subject;
    let mut facts = vec![("Session", subject.id.clone())];
    facts.extend(subject.name.clone().map(|name| ("Name", name)));
    let project = subject.project.as_deref().map(|path| context.shown_folder(path));
    facts.extend(project.map(|project| ("Project", project)));
    facts.extend(subject.started.map(|at| ("Started", context.exact_time(at))));
    if subject.processes > 1 {
        facts.push(("Processes", subject.processes.to_string()));
    }
    let models: Vec<&str> =
        report.spending.by_model.iter().map(|model| model.model.as_str()).collect();
    if !models.is_empty() {
        facts.push(("Models", models.join(", ")));
    }
    facts
}

/// Returns a note on commands whose changes of files the table of changed files leaves out.
pub(super) fn commands_note(work: &WorkDone) -> Option<String> {
    let ran = counted(work.writing_commands, "command");
    let note = || format!("{ran} ran that may have changed files; such changes are not listed.");
    (work.writing_commands > 0).then(note)
}

fn notes(report: &SessionReport) -> Vec<String> {
    let mut notes = Vec::from_iter(commands_note(&report.work));
    if report.damage.is_torn {
        notes.push("The last line of the journal was cut off, as by a kill.".to_owned());
    }
    match report.damage.unreadable_lines {
        0 => {}
        lines => notes.push(format!(
            "{} of the journal cannot be read; outlast sessions show {} names them.",
            counted(lines, "line"),
            report.subject.id
        )),
    }
    notes
}

fn recovery_row(summary: &RecoverySummary) -> Row {
    let saved = if summary.saved > 0 { CellTone::Good } else { CellTone::Plain };
    let lost = if summary.lost > 0 { CellTone::Bad } else { CellTone::Plain };
    vec![
        left("What went wrong", summary.class.replace('_', " ")),
        right("Times", summary.fired),
        right("Saved", ReportCell { tone: saved, ..summary.saved.into() }),
        right("Lost", ReportCell { tone: lost, ..summary.lost.into() }),
        right("Attempts", summary.attempts),
        right("Waited", format_took(summary.waited)),
        right("Tokens", thousands(summary.tokens)),
        right("Cost", summary.cost.as_cost()),
        left("What was tried", tried(&summary.strategies)),
    ]
}

/// Returns a row for each model, if there are several.
fn models(spending: &SpendSummary) -> Vec<Row> {
    let [_, _, ..] = &spending.by_model[..] else { return Vec::new() };
    let row = |total: &ModelTotals| {
        let alone = SpendSummary::new(Money::ZERO, Money::ZERO, vec![total.clone()]);
        let cache = alone.cache_hits().map_or_else(|| "-".to_owned(), percent);
        let cost = Spending::from(total.cost).as_cost();
        vec![
            left("Model", total.model.clone()),
            right("Input tokens", thousands(total.usage.input())),
            right("From cache", cache),
            right("Output tokens", thousands(total.usage.output_tokens)),
            right("Cost", cost),
        ]
    };
    spending.by_model.iter().map(row).collect()
}

fn session_row(context: &SessionsContext, report: &SessionReport, ids: IdLength) -> Row {
    let SessionReport { subject, outcome, .. } = report;
    let id = match ids {
        IdLength::Whole => subject.id.clone(),
        IdLength::Chars(length) => subject.id.chars().take(length).collect(),
    };
    let id = ReportCell { text: id, anchor: Some(subject.id.clone()), ..ReportCell::default() };
    let started = subject.started.map_or_else(String::new, |at| context.shown_time(at));
    let cache = report.spending.cache_hits().map_or_else(|| "-".to_owned(), percent);
    let sum = report.recoveries.sum();
    let recovered = match sum.fired {
        0 => ReportCell::from("-".to_owned()),
        fired => {
            let tone = if sum.lost > 0 { CellTone::Bad } else { CellTone::Good };
            ReportCell { text: format!("{} of {fired}", sum.saved), tone, anchor: None }
        }
    };
    let project = subject.project.as_deref().map(|path| context.shown_folder(path));
    let prompt = subject.name.clone().or(subject.prompt.clone()).unwrap_or_default();
    let prompt = ReportCell { anchor: id.anchor.clone(), ..prompt.into() };
    vec![
        left("Session", id),
        left("Started", started),
        left("Outcome", outcome_cell(*outcome)),
        right("Turns", report.turns),
        right("Worked", format_took(report.time.worked)),
        right("Waited", format_took(report.time.waited())),
        right("Cost", report.spending.cost.as_cost()),
        right("Cache", cache),
        right("Recovered", recovered),
        left("Project", project.unwrap_or_default()),
        left("Prompt", prompt),
    ]
}
