//! The timeline of a session: bars in lanes, and the line of the costs.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::config::format_took;
use crate::history::{SessionHistory, ToolRun};
use crate::recovery::Money;
use crate::report::{
    BarContent, MarkContent, SessionTimeline, TimelineBar, TimelineMark, TimelineRow,
};
use crate::text::millis;
use crate::transcript::summarize_call;

use super::super::super::sessions::phrases;
use super::super::super::sessions::tool_outcome;
use super::super::markup::escaped;
use super::share;

/// Maximum number of sub-agents with a lane of their own.
const AGENTS_MAX: usize = 40;
/// Approximate number of ticks on the time axis.
const TICKS: u64 = 6;

/// Renders the section with the timeline. Empty if no times are known.
pub(super) fn section(history: &SessionHistory, timeline: &SessionTimeline) -> String {
    if timeline.length.is_zero() {
        return String::new();
    }
    let drawing = TimelineDrawing { history, timeline };
    let mut text = String::from(
        "<section>\n<h2>Timeline</h2>\n<ul class=\"legend\">\n\
         <li><i class=\"turn\"></i>model</li>\n<li><i class=\"tool\"></i>tools</li>\n\
         <li><i class=\"wait\"></i>waits</li>\n<li><i class=\"recovery\"></i>recoveries</li>\n\
         <li><i class=\"failed\"></i>failed or lost</li>\n</ul>\n<div class=\"timeline\">\n",
    );
    drawing.marks(&mut text);
    for row in timeline.rows.iter().take(AGENTS_MAX + 1) {
        drawing.row(row, &mut text);
    }
    drawing.spend(&mut text);
    drawing.axis(&mut text);
    text.push_str("</div>\n");
    let more = timeline.rows.len().saturating_sub(AGENTS_MAX + 1);
    if more > 0 {
        let _ = writeln!(text, "<p>{more} more sub-agents have no row.</p>");
    }
    drawing.mark_list(&mut text);
    text + "</section>\n"
}

struct TimelineDrawing<'a> {
    history: &'a SessionHistory,
    timeline: &'a SessionTimeline,
}

impl TimelineDrawing<'_> {
    fn at(&self, time: Duration) -> String {
        share(time.as_secs_f64(), self.timeline.length.as_secs_f64())
    }

    fn row(&self, row: &TimelineRow, text: &mut String) {
        let agent = row.agent.and_then(|place| self.history.agents.get(place));
        let history = agent.map_or(self.history, |agent| &agent.history);
        let tools = tool_calls(history);
        if let Some(agent) = agent {
            // One lane for each sub-agent: turns, tools and waits together.
            let name = format!("{} {}", agent.meta.agent_id, agent.meta.description);
            let kinds = [&row.waits, &row.turns, &row.tools];
            let bars: String = kinds.into_iter().map(|bars| self.bars(bars, &tools)).collect();
            let label = format!("sub-agent {name}");
            Self::track(&escaped(&name), &label, &bars, text);
            return;
        }
        for (name, bars) in [
            ("Model", &row.turns),
            ("Tools", &row.tools),
            ("Waits", &row.waits),
            ("Recoveries", &row.recoveries),
        ] {
            if bars.is_empty() {
                continue;
            }
            let number: usize = bars.iter().map(|bar| bar.content.count()).sum();
            let total = bars.iter().map(|bar| bar.to.saturating_sub(bar.from)).sum();
            let label = format!("{name}: {number}, {} in all", format_took(total));
            let name = format!("{name} <b>{number}</b>");
            Self::track(&name, &label, &self.bars(bars, &tools), text);
        }
    }

    fn track(name: &str, label: &str, bars: &str, text: &mut String) {
        let _ = writeln!(
            text,
            "<div class=\"row\"><span class=\"row-name\">{name}</span>\
             <div class=\"track\" role=\"img\" aria-label=\"{}\">{bars}</div></div>",
            escaped(label)
        );
    }

    fn bars(&self, bars: &[TimelineBar], tools: &ToolCalls<'_>) -> String {
        bars.iter().map(|bar| self.bar(bar, tools)).collect()
    }

    fn bar(&self, bar: &TimelineBar, tools: &ToolCalls<'_>) -> String {
        let took = bar.to.saturating_sub(bar.from);
        let (kind, what) = describe(&bar.content, tools);
        let kind = if bar.content.has_failure() { "failed" } else { kind };
        let title = format!("{what} · {} · at {}", format_took(took), format_took(bar.from));
        format!(
            "<i class=\"{kind}\" style=\"left:min({}, 100% - 3px);width:{}\" title=\"{}\"></i>",
            self.at(bar.from),
            self.at(took),
            escaped(&title)
        )
    }

    /// Draws the cost as a line in steps: the cost of a reply is known once it is complete.
    fn spend(&self, text: &mut String) {
        let Some(last) = self.timeline.spend.last() else { return };
        let most = last.spent.as_dollars();
        let x = |at: Duration| at.as_secs_f64() / self.timeline.length.as_secs_f64() * 1000.0;
        let y = |spent: Money| 96.0 - spent.as_dollars() / most * 90.0;
        let mut line = String::from("M0 96");
        for point in &self.timeline.spend {
            let _ = write!(line, "H{:.1}V{:.1}", x(point.at).min(1000.0), y(point.spent));
        }
        line.push_str("H1000");
        let _ = writeln!(
            text,
            "<div class=\"row\"><span class=\"row-name\">Spend <b>{}</b></span>\
             <div class=\"track spend\" role=\"img\" aria-label=\"The costs grew to {} over {}\">\
             <svg viewBox=\"0 0 1000 100\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
             <path class=\"area\" d=\"{line}V100H0Z\"/><path class=\"line\" d=\"{line}\"/></svg>\
             </div></div>",
            last.spent,
            last.spent,
            format_took(self.timeline.length)
        );
    }

    fn axis(&self, text: &mut String) {
        text.push_str("<div class=\"axis\" aria-hidden=\"true\">");
        let step = tick_step(self.timeline.length);
        let mut at = Duration::ZERO;
        while at < self.timeline.length.saturating_sub(step / 2) {
            let _ = write!(text, "<span style=\"left:{}\">{}</span>", self.at(at), tick(at));
            at += step;
        }
        let end = format_took(self.timeline.length);
        let _ = writeln!(text, "<span class=\"last\" style=\"left:100%\">{end}</span></div>");
    }

    /// Returns the marks except the end, which is the right edge.
    fn noted(&self) -> impl Iterator<Item = &TimelineMark> {
        self.timeline.marks.iter().filter(|mark| !matches!(mark.content, MarkContent::End(_)))
    }

    fn marks(&self, text: &mut String) {
        let line = |mark: &TimelineMark| format!("<i style=\"left:{}\"></i>", self.at(mark.at));
        let lines: String = self.noted().map(line).collect();
        if !lines.is_empty() {
            let _ = writeln!(text, "<div class=\"marks\" aria-hidden=\"true\">{lines}</div>");
        }
    }

    /// Renders the legend of the dashed lines.
    fn mark_list(&self, text: &mut String) {
        let describe = |mark: &TimelineMark| {
            let what = match &mark.content {
                MarkContent::Resumed => "another process goes on".to_owned(),
                MarkContent::ModelSwitch { to } => format!("{} answers", escaped(to)),
                MarkContent::Compaction => "older messages are summarised".to_owned(),
                MarkContent::End(reason) => reason.name().to_owned(),
            };
            format!("{what} (at {})", format_took(mark.at))
        };
        let marks = self.noted().map(describe).collect::<Vec<_>>().join(", ");
        if !marks.is_empty() {
            let _ = writeln!(text, "<p class=\"legend\">Dashed lines: {marks}</p>");
        }
    }
}

/// The tool calls of a history, by the number of their turn and their index in it.
type ToolCalls<'a> = HashMap<(u32, usize), &'a ToolRun>;

fn tool_calls(history: &SessionHistory) -> ToolCalls<'_> {
    let mut calls = ToolCalls::new();
    for turn in history.turns() {
        let indexed = turn.tools.iter().enumerate();
        calls.extend(indexed.map(|(index, tool)| ((turn.number, index), tool)));
    }
    calls
}

/// Returns the class of a bar, and its description.
fn describe(content: &BarContent, tools: &ToolCalls<'_>) -> (&'static str, String) {
    match content {
        BarContent::Turn { number, cost } => {
            let cost = cost.map_or_else(|| "cost unknown".to_owned(), |cost| cost.to_string());
            ("turn", format!("turn {number} · {cost}"))
        }
        BarContent::FailedRequest { class } => {
            ("turn", format!("request failed: {}", phrases::failure(class)))
        }
        BarContent::Tool { turn, place, .. } => {
            let call = tools.get(&(*turn, *place)).map_or_else(String::new, |tool| {
                format!("{} · {}", summarize_call(&tool.name, &tool.input), tool_outcome(tool))
            });
            ("tool", call)
        }
        BarContent::Wait(cause) => ("wait", format!("waited {}", phrases::wait(*cause))),
        BarContent::Recovery { class, is_saved } => {
            let outcome = if *is_saved { "recovered from" } else { "did not recover from" };
            ("recovery", format!("{outcome} {}", class.replace('_', " ")))
        }
        BarContent::Several { count, .. } => ("several", format!("{count} close together")),
    }
}

/// Returns the time between ticks: a round number.
fn tick_step(length: Duration) -> Duration {
    const MILLISECONDS: [u64; 3] = [100, 200, 500];
    const SECONDS: [u64; 6] = [1, 2, 5, 10, 15, 30];
    const MINUTES: [u64; 6] = [1, 2, 5, 10, 15, 30];
    const HOURS: [u64; 9] = [1, 2, 3, 6, 12, 24, 48, 120, 240];

    let minimum = Duration::from_millis(millis(length) / TICKS);
    let mut steps = MILLISECONDS
        .map(Duration::from_millis)
        .into_iter()
        .chain(SECONDS.map(Duration::from_secs))
        .chain(MINUTES.map(Duration::from_mins))
        .chain(HOURS.map(Duration::from_hours));
    steps.find(|step| *step >= minimum).unwrap_or(minimum)
}

fn tick(at: Duration) -> String {
    if at.is_zero() { "0".to_owned() } else { format_took(at).replace(".0s", "s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_has_a_few_round_ticks() {
        for (seconds, step) in
            [(1, 200), (9, 2000), (141, 30_000), (3600, 600_000), (90_000, 21_600_000)]
        {
            let length = Duration::from_secs(seconds);
            assert_eq!(tick_step(length), Duration::from_millis(step), "{seconds}");
        }
        let years = Duration::from_secs(u64::from(u32::MAX));
        assert!(years.as_millis() / tick_step(years).as_millis() <= u128::from(TICKS));
    }
}
