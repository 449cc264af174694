//! Bars that compare many sessions.

use std::fmt::Write as _;

use crate::report::SessionsOverview;

use super::super::document::ReportTable;
use super::super::markup::escaped;
use super::{class, share};

/// Renders the section with the number of sessions for each outcome.
pub(super) fn outcomes(table: &ReportTable, overview: &SessionsOverview) -> String {
    let mut text = String::from(
        "<section>\n<h2>Outcomes</h2>\n<ul class=\"bars\" aria-label=\"Sessions by outcome\">\n",
    );
    for row in &table.rows {
        let [outcome, number, part, ..] = &row[..] else { continue };
        let sessions = number.text.replace(',', "").parse().unwrap_or_default();
        let _ = writeln!(
            text,
            "<li><span>{}</span><span class=\"track\"><i class=\"{}\" style=\"width:{}\"></i></span>\
             <span class=\"value\">{} · {}</span></li>",
            escaped(&outcome.text),
            class(outcome.tone),
            share(sessions, f64::from(overview.outcomes.sessions())),
            escaped(&number.text),
            escaped(&part.text)
        );
    }
    text + "</ul>\n</section>\n"
}

/// Renders the numbers of saved and lost recoveries of each class, with their costs.
pub(super) fn recoveries(overview: &SessionsOverview) -> String {
    let most = overview.recoveries.iter().map(|impact| impact.summary.fired).max();
    let most = f64::from(most.unwrap_or_default());
    let mut text = String::from(
        "<ul class=\"legend\" aria-hidden=\"true\"><li><i style=\"background:var(--good)\"></i>\
         saved</li><li><i style=\"background:var(--bad)\"></i>lost</li></ul>\n\
         <ul class=\"bars\" aria-label=\"Recoveries by what went wrong\">\n",
    );
    for impact in &overview.recoveries {
        let summary = &impact.summary;
        let _ = writeln!(
            text,
            "<li><span>{}</span><span class=\"track\"><i class=\"good\" style=\"width:{}\"></i>\
             <i class=\"bad\" style=\"width:{}\"></i></span>\
             <span class=\"value\">{} saved, {} lost · {}</span></li>",
            escaped(&summary.class.replace('_', " ")),
            share(summary.saved.into(), most),
            share(summary.lost.into(), most),
            summary.saved,
            summary.lost,
            summary.cost.as_cost()
        );
    }
    text + "</ul>\n"
}
