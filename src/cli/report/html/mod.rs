//! Reports as one self-contained HTML page: no script, no network, nothing beside it.

mod bars;
mod events;
mod timeline;

use std::fmt::Write as _;

use crate::history::SessionHistory;
use crate::report::{SessionReport, SessionTimeline, SessionsOverview, WorkDone};
use crate::tools::DiffLine;

use super::super::sessions::{Column, SessionsContext};
use super::answer;
use super::document::{
    BlockForm, CHANGED_FILES, CellTone, Figure, OUTCOMES, RECOVERIES, ReportBlock, ReportCell,
    ReportDocument, ReportTable,
};
use super::markup::{escaped, escaped_lines};

const STYLE: &str = include_str!("style.css");
/// How many rows a listing has.
const LISTED_MAX: usize = 2000;
/// The number of sessions that have a part of their own, the last used ones.
pub(super) const DETAILED_MAX: usize = 200;

/// Renders the page of one session.
pub(super) fn session_page(
    context: &SessionsContext,
    document: &ReportDocument,
    (history, work): (&SessionHistory, &WorkDone),
    timeline: &SessionTimeline,
) -> String {
    let mut body = blocks(document);
    body.push_str(&timeline::section(history, timeline));
    for table in &document.tables {
        let files = if table.heading == CHANGED_FILES { changes(work) } else { String::new() };
        body.push_str(&section_with(table, "", &files));
    }
    body.push_str(&events::sections(context, history));
    page(document, &body)
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
    page(document, &body)
}

/// The part of a page about one of many sessions, to which the table of sessions links.
fn part(document: &ReportDocument, session: &SessionReport) -> String {
    let (title, status) = (escaped(&document.title), &document.status);
    let mut text = format!(
        "<section class=\"part\" id=\"{}\">\n<p class=\"pill {}\">{}</p>\n<h2>{title}</h2>\n{}",
        escaped(&anchor(&session.subject.id)),
        class(status.tone),
        escaped(&status.text),
        definitions("facts", document.facts.iter().map(|(label, value)| (*label, escaped(value))))
    );
    for block in &document.blocks {
        text.push_str(&block_text(block));
    }
    text.push_str(&changes(&session.work));
    text + "</section>\n"
}

/// The name of a part of the page.
fn anchor(id: &str) -> String {
    format!("session-{id}")
}

/// The outcome, a section for each block.
fn blocks(document: &ReportDocument) -> String {
    let section = |block: &ReportBlock| format!("<section>\n{}</section>\n", block_text(block));
    document.blocks.iter().map(section).collect()
}

fn block_text(block: &ReportBlock) -> String {
    let heading = escaped(&block.heading);
    match block.form {
        BlockForm::Answer => {
            format!(
                "<h2>{heading}</h2>\n<div class=\"answer\">{}</div>\n",
                answer::html(&block.text)
            )
        }
        BlockForm::Data | BlockForm::Output => {
            format!("<h2>{heading}</h2>\n<pre>{}</pre>\n", escaped_lines(&block.text))
        }
    }
}

/// The changes of each file, which the reader opens.
fn changes(work: &WorkDone) -> String {
    let mut text = String::new();
    for file in work.files.iter().filter(|file| !file.hunks.is_empty()) {
        let _ = write!(
            text,
            "<details class=\"diff\"><summary>{} <b class=\"good\">+{}</b> \
             <b class=\"bad\">-{}</b></summary>\n<pre>",
            escaped(&file.path),
            file.added,
            file.removed
        );
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
        let more = if file.is_cut { "...\n" } else { "" };
        let _ = writeln!(text, "{more}</pre></details>");
    }
    text
}

fn page(document: &ReportDocument, body: &str) -> String {
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
         <p class=\"pill {tone}\">{status}</p>\n<h1>{title}</h1>\n{facts}{figures}</header>\n\
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

/// A section with a table, and bars before it.
fn section(table: &ReportTable, bars: &str) -> String {
    section_with(table, bars, "")
}

/// The same with something after the table.
fn section_with(table: &ReportTable, bars: &str, after: &str) -> String {
    let ReportTable { heading, columns, rows, .. } = table;
    let mut text = format!(
        "<section>\n<h2>{heading}</h2>\n{bars}<div class=\"scroll\" role=\"region\" \
         aria-label=\"{heading}\" tabindex=\"0\">\n<table>\n<thead><tr>"
    );
    for (name, column) in *columns {
        let _ = write!(text, "<th scope=\"col\"{}>{name}</th>", side(*column));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    let listed = if table.is_listing { LISTED_MAX } else { usize::MAX };
    for row in rows.iter().take(listed) {
        text.push_str("<tr>");
        for (cell, (_, column)) in row.iter().zip(*columns) {
            text.push_str(&table_cell(cell, *column));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody>\n</table>\n</div>\n");
    let more = rows.len().saturating_sub(listed);
    if more > 0 {
        let _ = writeln!(text, "<p>{more} more: --format json has all.</p>");
    }
    text + after + "</section>\n"
}

fn table_cell(cell: &ReportCell, column: Column) -> String {
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
    let classes = [side, tone, class(cell.tone)].join(" ");
    match classes.split_whitespace().collect::<Vec<_>>().join(" ").as_str() {
        "" => format!("<td>{text}</td>"),
        classes => format!("<td class=\"{classes}\">{text}</td>"),
    }
}

fn side(column: Column) -> &'static str {
    match column {
        Column::Left => "",
        Column::Right => " class=\"right\"",
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

/// A part of a whole as a percentage of CSS.
fn share(part: f64, whole: f64) -> String {
    let share = if whole > 0.0 { (part / whole * 100.0).clamp(0.0, 100.0) } else { 0.0 };
    format!("{share:.3}%")
}
