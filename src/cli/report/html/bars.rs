//! Bars that compare many sessions.

use crate::report::{RecoverySummary, SessionsOverview};

use super::super::document::ReportTable;
use super::super::markup::escaped;
use super::{class, share};

/// Renders the section with the number of sessions for each outcome.
pub(super) fn outcomes(table: &ReportTable, overview: &SessionsOverview) -> String {
    let mut bars = String::new();
    for row in &table.rows {
        let [outcome, number, part, ..] = &row[..] else { continue };
        let sessions = number.text.replace(',', "").parse().unwrap_or_default();
        let width = share(sessions, f64::from(overview.outcomes.sessions()));
        let track = format!("<i class=\"{}\" style=\"width:{width}\"></i>", class(outcome.tone));
        let value = format!("{} · {}", escaped(&number.text), escaped(&part.text));
        bars += &bar(&outcome.text, &track, &value);
    }
    format!(
        "<section>\n<h2>Outcomes</h2>\n<ul class=\"bars\" aria-label=\"Sessions by outcome\">\n\
         {bars}</ul>\n</section>\n"
    )
}

fn bar(name: &str, track: &str, value: &str) -> String {
    let name = escaped(name);
    format!(
        "<li><span>{name}</span><span class=\"track\">{track}</span>\
         <span class=\"value\">{value}</span></li>\n"
    )
}

/// Renders the numbers of saved and lost recoveries of each class, with their costs.
pub(super) fn recoveries(overview: &SessionsOverview) -> String {
    let most = overview.recoveries.iter().map(|impact| impact.summary.fired).max();
    let most = f64::from(most.unwrap_or_default());
    let mut bars = String::new();
    for impact in &overview.recoveries {
        let RecoverySummary { class, saved, lost, cost, .. } = &impact.summary;
        let widths = [*saved, *lost].map(|number| share(number.into(), most));
        let track = format!(
            "<i class=\"good\" style=\"width:{}\"></i><i class=\"bad\" style=\"width:{}\"></i>",
            widths[0], widths[1]
        );
        let value = format!("{saved} saved, {lost} lost · {}", cost.as_cost());
        bars += &bar(&class.replace('_', " "), &track, &value);
    }
    format!(
        "<ul class=\"legend\" aria-hidden=\"true\"><li><i style=\"background:var(--good)\"></i>\
         saved</li><li><i style=\"background:var(--bad)\"></i>lost</li></ul>\n\
         <ul class=\"bars\" aria-label=\"Recoveries by what went wrong\">\n{bars}</ul>\n"
    )
}
