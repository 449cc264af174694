//! The list of a session's events: turns with their tool calls, and the events between them.

use std::fmt::Write as _;

use crate::history::{
    AgentHistory, HistoryEvent, HistoryItem, MessageAuthor, SessionHistory, ToolRun, ToolRunState,
};
use crate::recovery::RecoveryPlan;
use crate::text::shortened;
use crate::tools::refusal_reason;
use crate::transcript::summarize_call;

use super::super::super::sessions::{SessionsContext, event_lines, tool_outcome};
use super::super::answer;
use super::super::markup::{escaped, escaped_lines};

/// Maximum numbers of events that are listed of a session and of a sub-agent: the last ones.
const EVENTS_MAX: usize = 1000;
const AGENT_EVENTS_MAX: usize = 200;
/// Maximum number of characters of a text that are shown.
const TEXT_CHARS: usize = 600;
/// Maximum number of characters of the output of a failed call that are shown: the last ones.
const OUTPUT_CHARS: usize = 2000;

/// Renders the sections about the events of a session, and of its sub-agents.
pub(super) fn sections(context: &SessionsContext, history: &SessionHistory) -> String {
    let mut text = String::from("<section>\n<h2>What happened</h2>\n");
    text.push_str(&list(context, history, EVENTS_MAX));
    text.push_str("</section>\n");
    if history.agents.is_empty() {
        return text;
    }
    text.push_str("<section>\n<h2>What sub-agents did</h2>\n");
    for AgentHistory { meta, history } in &history.agents {
        let end = history.end_words();
        let _ = writeln!(
            text,
            "<details><summary>{} <small>{} · {} · {end} · {} turns · {}</small></summary>\n{}\
             </details>",
            escaped(&meta.description),
            escaped(&meta.agent_id),
            escaped(&meta.agent_type),
            history.totals.turns,
            history.totals.spending().as_cost(),
            list(context, history, AGENT_EVENTS_MAX)
        );
    }
    text + "</section>\n"
}

fn list(context: &SessionsContext, history: &SessionHistory, most: usize) -> String {
    let before = history.items.len().saturating_sub(most);
    let mut text = String::new();
    if before > 0 {
        let _ = writeln!(
            text,
            "<p>{before} events before: outlast sessions show {} has all.</p>",
            escaped(&history.id)
        );
    }
    text.push_str("<ol class=\"events\">\n");
    let mut items = history.items.iter().skip(before).peekable();
    while let Some(item) = items.next() {
        // A failure and the wait after it are one entry: an outage has many of both.
        let is_failure = matches!(item.event, HistoryEvent::Failure(_));
        let is_wait = |next: &&HistoryItem| matches!(next.event, HistoryEvent::Wait(_));
        let wait = items.next_if(|next| is_failure && is_wait(next));
        event(context, item, wait.map(|wait| &wait.event), &mut text);
    }
    text + "</ol>\n"
}

fn event(
    context: &SessionsContext,
    item: &HistoryItem,
    wait: Option<&HistoryEvent>,
    text: &mut String,
) {
    let kind = css_class(&item.event);
    let _ = write!(text, "<li class=\"{kind}\"><time>{}</time><div>", context.clock(item.at));
    for line in event_lines(&item.event) {
        let _ = write!(text, "<p class=\"head\">{}</p>", escaped(&line));
    }
    for line in wait.map(event_lines).unwrap_or_default() {
        let _ = write!(text, "<p class=\"wait\">{}</p>", escaped(&line));
    }
    if let HistoryEvent::Turn(turn) = &item.event {
        for reply in turn.texts() {
            let reply = answer::html(&beginning(reply));
            let _ = write!(text, "<div class=\"answer\">{reply}</div>");
        }
        if !turn.tools.is_empty() {
            text.push_str("\n<ul class=\"tools\">\n");
            for tool in &turn.tools {
                call(tool, text);
            }
            text.push_str("</ul>");
        }
    } else if let HistoryEvent::Message(message) = &item.event
        && message.author == MessageAuthor::User
    {
        let _ = write!(text, "<p>{}</p>", escaped(&beginning(&message.text)));
    }
    text.push_str("</div></li>\n");
}

/// Returns the CSS class of an event.
fn css_class(event: &HistoryEvent) -> &'static str {
    if let HistoryEvent::Turn(_) = event {
        return "turn";
    }
    if let HistoryEvent::Message(message) = event {
        return if message.author == MessageAuthor::User { "prompt" } else { "event" };
    }
    if let HistoryEvent::Failure(failure) = event {
        let ended = matches!(failure.plan, RecoveryPlan::Stop(_));
        return if ended { "event bad" } else { "event open" };
    }
    let is_good = if let HistoryEvent::Recovery(record) = event {
        record.saved
    } else if let HistoryEvent::Requirement { passed, .. } = event {
        *passed
    } else if let HistoryEvent::End(end) = event {
        end.exit_code() == 0
    } else {
        return "event";
    };
    if is_good { "event good" } else { "event bad" }
}

/// Returns the beginning of a text.
fn beginning(text: &str) -> String {
    shortened(text.trim(), TEXT_CHARS, " ...")
}

fn call(tool: &ToolRun, text: &mut String) {
    let succeeded = tool.state == ToolRunState::Succeeded;
    let class = if succeeded { "" } else { " class=\"failed\"" };
    let output = match tool.state {
        ToolRunState::Failed | ToolRunState::NotRun => output_of(tool),
        ToolRunState::Succeeded
        | ToolRunState::Running
        | ToolRunState::Unknown
        | ToolRunState::Pending => String::new(),
    };
    let _ = writeln!(
        text,
        "<li{class}><code>{}</code><span>{}</span>{output}</li>",
        escaped(&summarize_call(&tool.name, &tool.input)),
        escaped(&tool_outcome(tool))
    );
}

/// Renders the end of a call's output, which the reader can unfold.
fn output_of(tool: &ToolRun) -> String {
    let output = tool.output_text();
    let output = refusal_reason(&output);
    let from = output.char_indices().rev().nth(OUTPUT_CHARS - 1).map_or(0, |(at, _)| at);
    if output.is_empty() {
        return String::new();
    }
    let output = escaped_lines(&output[from..]);
    format!("<details><summary>output</summary><pre class=\"output\">{output}</pre></details>")
}
