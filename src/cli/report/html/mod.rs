//! Reports as one self-contained HTML page: no script, no network, no further files.

mod bars;
mod events;
mod timeline;

use std::fmt::Write as _;

use crate::history::SessionHistory;
use crate::recovery::StopReason;
use crate::report::{
    ChangedFile, SessionOutcome, SessionReport, SessionTimeline, SessionsOverview, WorkDone,
};
use crate::text::words_joined;
use crate::tools::DiffLine;

use super::super::sessions::{Column, SessionsContext};
use super::answer;
use super::document::{
    BlockForm, CHANGED_FILES, CellTone, Figure, NOT_RUN, OUTCOMES, RECOVERIES, REFUSED_CALL,
    ReportBlock, ReportCell, ReportDocument, ReportTable,
};
use super::markup::{escaped, escaped_lines};
use super::words::thousands;

const STYLE: &str = include_str!("style.css");
/// Maximum number of rows of a listing.
const LISTED_MAX: usize = 2000;
/// Maximum number of changed lines that are unfolded at first.
const OPEN_LINES_MAX: usize = 60;
/// Maximum number of sessions with a part of their own: the last used ones.
pub(super) const DETAILED_MAX: usize = 200;

/// Renders the page of one session.
pub(super) fn session_page(
    context: &SessionsContext,
    document: &ReportDocument,
    (history, work): (&SessionHistory, &WorkDone),
    timeline: &SessionTimeline,
) -> String {
    let mut body = blocks(document);
    if !work.files.is_empty() {
        let files = changes(work);
        let _ = write!(body, "<section>\n<h2>{CHANGED_FILES}</h2>\n{files}</section>\n");
    }
    let tables = document.tables.iter().filter(|table| table.heading != CHANGED_FILES);
    let (outcome, figures): (Vec<_>, Vec<_>) = tables.partition(|table| table.heading == NOT_RUN);
    for table in outcome {
        body.push_str(&section(table, ""));
    }
    body.push_str(&timeline::section(history, timeline));
    for table in figures {
        body.push_str(&section(table, ""));
    }
    body.push_str(&events::sections(context, history));
    let end = history.end.as_ref().map(|end| SessionOutcome::Ended(end.reason));
    page(document, &end.map_or_else(String::new, cause), &body)
}

/// Renders the page of many sessions, with a part for each of `parts`.
pub(super) fn overview_page(
    document: &ReportDocument,
    overview: &SessionsOverview,
    parts: &[(&SessionReport, ReportDocument)],
) -> String {
    let mut body = String::new();
    for table in &document.tables {
        match table.heading {
            OUTCOMES => body.push_str(&bars::outcomes(table, overview)),
            RECOVERIES => body.push_str(&section(table, &bars::recoveries(overview))),
            _ => body.push_str(&section(table, "")),
        }
    }
    for (session, document) in parts {
        body.push_str(&part(document, session));
    }
    page(document, "", &body)
}

/// Renders the part of a page about one of many sessions. The table of sessions links to it.
fn part(document: &ReportDocument, session: &SessionReport) -> String {
    let (title, status) = (escaped(&document.title), &document.status);
    let mut text = format!(
        "<section class=\"part\" id=\"{}\">\n<p class=\"pill {}\">{}</p>\n<h2>{title}</h2>\n{}{}",
        escaped(&anchor(&session.subject.id)),
        class(status.tone),
        escaped(&status.text),
        cause(session.outcome),
        definitions("facts", document.facts.iter().map(|(label, value)| (*label, escaped(value))))
    );
    for block in &document.blocks {
        text.push_str(&block_text(block));
    }
    if !session.work.files.is_empty() {
        let _ = write!(text, "<h2>{CHANGED_FILES}</h2>\n{}", changes(&session.work));
    }
    text + "</section>\n"
}

/// Describes the failure behind a model error.
fn cause(outcome: SessionOutcome) -> String {
    let SessionOutcome::Ended(StopReason::ModelError(class)) = outcome else {
        return String::new();
    };
    format!("<p class=\"cause bad\">{}</p>\n", escaped(class.info().meaning))
}

/// Returns the name of a part of the page.
fn anchor(id: &str) -> String {
    format!("session-{id}")
}

/// Renders the outcome, with a section for each block.
fn blocks(document: &ReportDocument) -> String {
    let section = |block: &ReportBlock| format!("<section>\n{}</section>\n", block_text(block));
    document.blocks.iter().map(section).collect()
}

fn block_text(block: &ReportBlock) -> String {
    let heading = escaped(&block.heading);
    let text = match block.form {
        BlockForm::Answer => format!("<div class=\"answer\">{}</div>", answer::html(&block.text)),
        BlockForm::Data | BlockForm::Output => {
            let text = escaped_lines(&block.text);
            format!("<pre class=\"output\" tabindex=\"0\">{text}</pre>")
        }
    };
    format!("<h2>{heading}</h2>\n{text}\n")
}

/// Renders the changed files. Their changes are unfolded if there are only a few.
fn changes(work: &WorkDone) -> String {
    let hunks = work.files.iter().flat_map(|file| &file.hunks);
    let lines: usize = hunks.map(|hunk| hunk.lines.len()).sum();
    let open = if lines <= OPEN_LINES_MAX { " open" } else { "" };
    let mut text = String::new();
    for file in &work.files {
        let mut heading = format!("<span>{}</span>", escaped(&file.path));
        for (tone, sign, count) in [("good", "+", file.added), ("bad", "-", file.removed)] {
            if count > 0 {
                let count = thousands(u64::try_from(count).unwrap_or(u64::MAX));
                let _ = write!(heading, " <b class=\"{tone}\">{sign}{count}</b>");
            }
        }
        if file.is_new {
            heading.push_str(" <small>new</small>");
        }
        if file.hunks.is_empty() {
            let _ = writeln!(text, "<p class=\"diff\">{heading}</p>");
            continue;
        }
        let _ = write!(
            text,
            "<details class=\"diff\"{open}><summary>{heading}</summary>\n<pre tabindex=\"0\">"
        );
        hunk_lines(file, &mut text);
        let _ = writeln!(text, "</pre></details>");
    }
    text
}

fn hunk_lines(file: &ChangedFile, text: &mut String) {
    for hunk in &file.hunks {
        let _ = writeln!(text, "<i>@@ -{} +{} @@</i>", hunk.old_start, hunk.new_start);
        for line in &hunk.lines {
            let marked = escaped(&line.marked());
            let _ = match line {
                DiffLine::Kept(_) => writeln!(text, "{marked}"),
                DiffLine::Removed(_) => writeln!(text, "<del>{marked}</del>"),
                DiffLine::Added(_) => writeln!(text, "<ins>{marked}</ins>"),
            };
        }
    }
    text.push_str(if file.is_cut { "...\n" } else { "" });
}

fn page(document: &ReportDocument, cause: &str, body: &str) -> String {
    let (title, status) = (escaped(&document.title), &document.status);
    let (tone, status) = (class(status.tone), escaped(&status.text));
    let facts =
        definitions("facts", document.facts.iter().map(|(label, value)| (*label, escaped(value))));
    let figures = definitions(
        "figures",
        document.figures.iter().map(|figure| (figure.label, figure_value(figure))),
    );
    let mut notes = String::new();
    for note in &document.notes {
        let _ = writeln!(notes, "<section class=\"note\"><p>{}</p></section>", escaped(note));
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title} · {status}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<p class=\"brand\">outlast report</p>\n\
         <p class=\"pill {tone}\">{status}</p>\n<h1>{title}</h1>\n{cause}{facts}{figures}</header>\n\
         {notes}{body}<footer>Written by outlast report. Times leave out the gaps between the \
         processes of a session.</footer>\n</main>\n</body>\n</html>\n"
    )
}

fn definitions<'a>(name: &str, pairs: impl Iterator<Item = (&'a str, String)>) -> String {
    let mut text = String::new();
    for (term, value) in pairs {
        let _ = writeln!(text, "<div><dt>{term}</dt><dd>{value}</dd></div>");
    }
    if text.is_empty() { text } else { format!("<dl class=\"{name}\">\n{text}</dl>\n") }
}

fn figure_value(figure: &Figure) -> String {
    let detail = match figure.detail.as_str() {
        "" => String::new(),
        detail => format!("<small>{}</small>", escaped(detail)),
    };
    format!("{}{detail}", escaped(&figure.value))
}

/// Renders a section with a table, and bars before it.
fn section(table: &ReportTable, bars: &str) -> String {
    let ReportTable { heading, columns, rows, .. } = table;
    let mut text = format!(
        "<section>\n<h2>{heading}</h2>\n{bars}<div class=\"scroll\" role=\"region\" \
         aria-label=\"{heading}\" tabindex=\"0\">\n<table>\n<thead><tr>"
    );
    let order = column_order(columns);
    for (name, column) in order.iter().map(|place| columns[*place]) {
        let class = match column {
            Column::Left => "",
            Column::Right => " class=\"right\"",
        };
        let _ = write!(text, "<th scope=\"col\"{class}>{name}</th>");
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    let listed = if table.is_listing { LISTED_MAX } else { usize::MAX };
    for row in rows.iter().take(listed) {
        text.push_str("<tr>");
        for place in &order {
            text.push_str(&table_cell(&row[*place], columns[*place]));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody>\n</table>\n</div>\n");
    let more = rows.len().saturating_sub(listed);
    if more > 0 {
        let _ = writeln!(text, "<p>{more} more: --format json has all.</p>");
    }
    text + "</section>\n"
}

/// Returns the order of columns on a page: the outcome and the prompt first, so that a phone shows
/// them.
fn column_order(columns: &[(&str, Column)]) -> Vec<usize> {
    let rank = |place: &usize| match columns[*place].0 {
        "Outcome" => 0,
        "Prompt" => 1,
        "Session" => 3,
        _ => 2,
    };
    let mut order: Vec<usize> = (0..columns.len()).collect();
    if columns.iter().any(|(name, _)| *name == "Prompt") {
        order.sort_by_key(rank);
    }
    order
}

fn table_cell(cell: &ReportCell, (name, column): (&str, Column)) -> String {
    let text = escaped(&cell.text);
    let text = match &cell.anchor {
        Some(id) => format!("<a href=\"#{}\">{text}</a>", escaped(&anchor(id))),
        None => text,
    };
    let side = match column {
        Column::Left => "",
        Column::Right => "right",
    };
    let tone = if cell.tone == CellTone::Plain { "" } else { "tone" };
    let kind = match name {
        "Prompt" | REFUSED_CALL => "text",
        "Session" => "id",
        _ => "",
    };
    let classes = [side, tone, class(cell.tone), kind].join(" ");
    match words_joined(&classes).as_str() {
        "" => format!("<td>{text}</td>"),
        classes => format!("<td class=\"{classes}\">{text}</td>"),
    }
}

fn class(tone: CellTone) -> &'static str {
    match tone {
        CellTone::Plain => "",
        CellTone::Good => "good",
        CellTone::Bad => "bad",
        CellTone::Open => "open",
    }
}

/// Formats a part of a whole as a percentage for CSS.
fn share(part: f64, whole: f64) -> String {
    let share = if whole > 0.0 { (part / whole * 100.0).clamp(0.0, 100.0) } else { 0.0 };
    format!("{share:.3}%")
}
