//! `outlast sessions show`: a session as readable text.
//!
//! Prompts, replies and tool output are untrusted text: control characters are removed from each
//! line, also if standard output is not a terminal.

use std::time::Duration;

use jiff::Timestamp;

use crate::history::{
    AgentHistory, HistoryContents, HistoryEvent, HistoryItem, MessageAuthor, RecordedMessage,
    SessionHistory, ToolRun, ToolRunState, TurnRecord, WaitRecord, read_history,
};
use crate::journal::{BackgroundChanges, BackgroundWork, CarryOver, OpenRecord};
use crate::recovery::{RecoveryRecord, Spending};
use crate::text::{counted, shortened};
use crate::transcript::{Block, summarize_call};

use super::super::args::ShowSessionArgs;
use super::super::moved_session::resume_command;
use super::super::output::one_line;
use super::super::usage::UsageError;
use super::{ReportWriter, SessionsContext, phrases, unreadable};

/// Number of lines of a text that are shown without `--full`.
const TEXT_LINES: usize = 40;
/// Number of lines of a tool's output that are shown without `--full`: its last ones.
const OUTPUT_LINES: usize = 5;
/// Number of characters of a line that are shown without `--full`.
const LINE_CHARS: usize = 400;
/// Maximum number of unreadable lines that are named.
const PROBLEMS_MAX: usize = 10;
/// The indentation of the details of an event.
const INDENT: usize = 4;

pub(super) fn show(context: &SessionsContext, args: &ShowSessionArgs) -> Result<u8, UsageError> {
    let file = context.find(&args.id)?;
    let contents = args.last.map_or(HistoryContents::All, HistoryContents::Last);
    let history = read_history(&file, contents).map_err(|error| unreadable(&file.path, &error))?;
    let mut out = ReportWriter::new();
    out.print(&heading(context, &history))?;
    let transcript = Transcript { context, all: &history, is_full: args.full };
    let start = args.last.map_or(0, |last| start_of_last(&history.items, last));
    if start > 0 {
        let before = counted(start, "event");
        out.print(&format!("({before} before; without --last all are shown)\n"))?;
    }
    for item in history.items.iter().skip(start) {
        let mut text = Lines::default();
        transcript.item(item, None, 0, &mut text);
        out.print(&text.0)?;
    }
    out.print(&closing(&history))?;
    Ok(0)
}

/// Returns the index of the first event that belongs to the last messages.
fn start_of_last(items: &[HistoryItem], last: usize) -> usize {
    let is_message =
        |item: &HistoryItem| matches!(item.event, HistoryEvent::Message(_) | HistoryEvent::Turn(_));
    let messages = items.iter().enumerate().filter(|(_, item)| is_message(item));
    match last.checked_sub(1) {
        None => items.len(),
        Some(before) => messages.rev().nth(before).map_or(0, |(index, _)| index),
    }
}

fn heading(context: &SessionsContext, history: &SessionHistory) -> String {
    let folder = history.project.as_deref().map(|path| context.shown_folder(path));
    let folder = folder.map_or_else(String::new, |folder| format!(" in {folder}"));
    let started = history.started.map(|at| format!("started {}", context.exact_time(at)));
    let started = started.unwrap_or_else(|| "start unknown".to_owned());
    let agents = match history.agents.len() {
        0 => String::new(),
        count => format!(", sub-agents: {count}"),
    };
    let mut text = Lines::default();
    text.line(0, &format!("session {}{folder}", history.id));
    let (worked, turns) = (phrases::took(history.worked), history.totals.turns);
    let cost = history.spending().as_cost();
    text.line(0, &format!("{started}, worked {worked}, turns: {turns}{agents}, cost {cost}"));
    text.0.push('\n');
    text.0
}

/// Describes the state of the session, unreadable lines, and the command that resumes it.
fn closing(history: &SessionHistory) -> String {
    let mut text = Lines::default();
    text.0.push('\n');
    let resume = resume_command(&history.id, history.project.as_deref(), None, "");
    let resume = format!("to go on: {resume}");
    if history.is_running {
        text.line(0, "A process works on the session right now.");
    } else if let Some(end) = &history.end {
        text.line(0, &format!("The session ended: {}.", phrases::stop_reason(end.reason)));
        if end.exit_code() != 0 {
            text.line(0, &resume);
        }
    } else if history.is_foreign() {
        text.line(0, "Another program recorded the session.");
        text.line(0, &resume);
    } else {
        text.line(0, "The session is unfinished: its last process did not record an end.");
        text.line(0, &resume);
    }
    if history.is_torn {
        text.line(0, "The last line was cut off, as by a kill, and is not shown.");
    }
    problems(history, "", &mut text);
    for agent in &history.agents {
        problems(&agent.history, &format!(" of sub-agent {}", agent.meta.agent_id), &mut text);
    }
    text.0
}

fn problems(history: &SessionHistory, of: &str, text: &mut Lines) {
    for problem in history.problems.iter().take(PROBLEMS_MAX) {
        let place = match problem.line {
            0 => format!("the journal{of}"),
            line => format!("line {line}{of}"),
        };
        text.line(0, &format!("damaged: {place}: {}", problem.what));
    }
    let more = history.problems.len().saturating_sub(PROBLEMS_MAX);
    if more > 0 {
        text.line(0, &format!("damaged: {}{of}", counted(more, "more line")));
    }
}

/// Renders the events of a session.
struct Transcript<'a> {
    context: &'a SessionsContext,
    /// The session, with all its sub-agents.
    all: &'a SessionHistory,
    is_full: bool,
}

impl Transcript<'_> {
    /// Adds an event of the sub-agent `agent`, or of the run itself.
    fn item(&self, item: &HistoryItem, agent: Option<&str>, indent: usize, text: &mut Lines) {
        let at = self.context.clock(item.at);
        for line in event_lines(&item.event) {
            text.line(indent, &format!("{at}  {line}"));
        }
        if let HistoryEvent::Message(message) = &item.event {
            self.text(&message.text, indent + INDENT, text);
            if message.media > 0 {
                let media = counted(message.media, "attachment");
                text.line(indent + INDENT, &format!("({media})"));
            }
        } else if let Some(turn) = item.turn() {
            self.turn(turn, agent, indent + INDENT, text);
        }
    }

    fn turn(&self, turn: &TurnRecord, agent: Option<&str>, indent: usize, text: &mut Lines) {
        for block in &turn.content {
            match block {
                Block::Text { text: content } => self.text(content, indent, text),
                Block::Thinking { thinking, .. } if self.is_full => {
                    text.line(indent, "(thinking)");
                    self.text(thinking, indent, text);
                }
                Block::Thinking { .. }
                | Block::RedactedThinking { .. }
                | Block::ToolUse { .. }
                | Block::ToolResult { .. } => {}
                Block::Image { .. } | Block::Document { .. } | Block::Other(_) => {
                    text.line(indent, "(content that is not text)");
                }
            }
        }
        for tool in &turn.tools {
            self.tool(tool, agent, indent, text);
        }
    }

    fn tool(&self, tool: &ToolRun, agent: Option<&str>, indent: usize, text: &mut Lines) {
        let call = summarize_call(&tool.name, &tool.input);
        text.line(indent, &format!("{call} → {}", tool_outcome(tool)));
        if self.is_full {
            let input = serde_json::to_string_pretty(&tool.input).unwrap_or_default();
            self.prefixed("input: ", input.lines(), indent + INDENT, text);
        }
        for started in self.all.agents_of(agent, &tool.id) {
            self.agent(started, indent + INDENT, text);
        }
        let output = tool.output_text();
        let lines: Vec<&str> = output.lines().collect();
        let left_out = if self.is_full { 0 } else { lines.len().saturating_sub(OUTPUT_LINES) };
        if left_out > 0 {
            let lines = counted(left_out, "line");
            text.line(indent + INDENT, &format!("| ({lines} before; --full shows all)"));
        }
        self.prefixed("| ", lines.into_iter().skip(left_out), indent + INDENT, text);
    }

    fn agent(&self, agent: &AgentHistory, indent: usize, text: &mut Lines) {
        let AgentHistory { meta, history } = agent;
        let kind = if meta.background { ", in the background" } else { "" };
        let heading = format!("sub-agent {} ({}{kind})", meta.agent_id, meta.agent_type);
        let (turns, cost) = (history.totals.turns, history.totals.spending().as_cost());
        let (task, end) = (&meta.description, history.end_words());
        text.line(indent, &format!("{heading}: {task}; turns: {turns}, cost {cost}, {end}"));
        for item in &history.items {
            self.item(item, Some(&meta.agent_id), indent + INDENT, text);
        }
    }

    /// Adds a text, and without `--full` only its first lines.
    fn text(&self, content: &str, indent: usize, text: &mut Lines) {
        let lines: Vec<&str> = content.trim_end().lines().collect();
        let shown = if self.is_full { lines.len() } else { lines.len().min(TEXT_LINES) };
        self.prefixed("", lines[..shown].iter().copied(), indent, text);
        if lines.len() > shown {
            let more = counted(lines.len() - shown, "more line");
            text.line(indent, &format!("({more}; --full shows all)"));
        }
    }

    fn prefixed<'l>(
        &self,
        prefix: &str,
        lines: impl Iterator<Item = &'l str>,
        indent: usize,
        text: &mut Lines,
    ) {
        for line in lines {
            let limit = if self.is_full { usize::MAX } else { LINE_CHARS };
            text.line(indent, &format!("{prefix}{}", shortened(line, limit, " ...")));
        }
    }
}

/// Describes an event, usually in one line, without the texts of messages and turns.
pub(in crate::cli) fn event_lines(event: &HistoryEvent) -> Vec<String> {
    let line = match event {
        HistoryEvent::Process(start) => process(start),
        HistoryEvent::Message(message) => message_heading(message).to_owned(),
        HistoryEvent::Turn(turn) => turn_heading(turn),
        HistoryEvent::Failure(failure) => {
            let (what, did) = (phrases::failure(failure.class), failure.plan.info().done);
            format!("failure: {what}: {did}")
        }
        HistoryEvent::Wait(wait) => waiting(wait),
        HistoryEvent::Recovery(record) => recovery(record),
        HistoryEvent::ModelSwitch { from, to } => {
            format!("model {to} answers from here on, instead of {from}")
        }
        HistoryEvent::Compaction { messages } => {
            format!("compacted: a summary replaced older messages; {messages} are left")
        }
        HistoryEvent::HistoryChange { messages } => {
            format!("old content was removed or repaired; {messages} messages are left")
        }
        HistoryEvent::Spend(spend) => {
            let bound = if spend.is_upper_bound { "up to " } else { "" };
            let cost = Spending::from(spend.cost).as_cost();
            format!("paid beside the turns: cost {bound}{cost}, {}", spend.model)
        }
        HistoryEvent::Requirement { passed: true, .. } => "the required command passed".to_owned(),
        HistoryEvent::Requirement { passed: false, failure } => failure.as_ref().map_or_else(
            || "the required command failed".to_owned(),
            |failure| format!("the required command failed: it {}", failure.end),
        ),
        HistoryEvent::Background(changes) => return background(changes),
        HistoryEvent::End(end) => {
            let error = end.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
            format!("end: {}{error}", phrases::stop_reason(end.reason))
        }
    };
    vec![line]
}

fn process(start: &OpenRecord) -> String {
    let OpenRecord { epoch, pid, host, version, model, permission_mode, .. } = start;
    let mode = match permission_mode.as_str() {
        "" => String::new(),
        mode => format!(", permission mode {mode}"),
    };
    let how = match (epoch, start.carry, &start.forked_from) {
        (_, _, Some(from)) => format!("goes on with a copy of {from}"),
        (_, CarryOver::On, None) => "goes on with the last prompt".to_owned(),
        (2.., CarryOver::Fresh, None) => "goes on with a new prompt".to_owned(),
        (_, CarryOver::Fresh, None) => "begins".to_owned(),
    };
    let damage = start.damage.as_ref().map_or_else(String::new, |damage| {
        format!("; left out {} lines from line {} on", damage.dropped_records, damage.line)
    });
    format!("process {pid} on {host} {how}: outlast {version}, {model}{mode}{damage}")
}

fn message_heading(message: &RecordedMessage) -> &'static str {
    match message.author {
        MessageAuthor::User => "prompt",
        MessageAuthor::Outlast(nudge) => phrases::notice(nudge),
    }
}

fn turn_heading(turn: &TurnRecord) -> String {
    let mut parts = vec![format!("turn {}", turn.number)];
    if !turn.model.is_empty() {
        parts.push(turn.model.clone());
    }
    parts.extend(turn.took.map(phrases::took));
    parts.push(format!("{} tokens in, {} out", turn.usage.input(), turn.usage.output_tokens));
    parts.extend(turn.cost.map(|cost| cost.to_string()));
    parts.join(", ")
}

/// Describes the outcome of a tool call.
pub(in crate::cli) fn tool_outcome(tool: &ToolRun) -> String {
    let running = || {
        let age = tool.started.map(|began| Timestamp::now().duration_since(began));
        let age = age.and_then(|age| Duration::try_from(age).ok());
        age.map_or_else(String::new, |age| format!(", {} so far", phrases::took(age)))
    };
    let state = match tool.state {
        ToolRunState::Running => &format!("running{}", running()),
        ToolRunState::Succeeded => "ok",
        ToolRunState::Failed if tool.is_timed_out() => "timed out",
        ToolRunState::Failed => "failed",
        ToolRunState::NotRun => "not run",
        ToolRunState::Unknown => "outcome unknown, its process ended first",
        ToolRunState::Pending => "no result",
    };
    let mut parts = vec![state.to_owned()];
    parts.extend(tool.exit_code().map(|code| format!("exit code {code}")));
    parts.extend(tool.took().map(phrases::took));
    if tool.is_changed {
        parts.push("input changed by a hook or host".to_owned());
    }
    parts.join(", ")
}

fn waiting(wait: &WaitRecord) -> String {
    let why = phrases::wait(wait.cause);
    match wait.waited.map(phrases::took) {
        Some(waited) => format!("waited {waited} {why}"),
        None => {
            format!("waiting up to {} {why}; its end is not recorded", phrases::took(wait.planned))
        }
    }
}

fn recovery(record: &RecoveryRecord) -> String {
    let RecoveryRecord { class, attempts, waited, .. } = record;
    let cost = record.spending().as_cost();
    let class = class.replace('_', " ");
    let outcome = match &record.lost_to {
        None => format!("recovered from {class}"),
        Some(reason) => format!("did not recover from {class} before the end ({reason})"),
    };
    format!("{outcome}: attempts {attempts}, waited {}, cost {cost}", phrases::took(*waited))
}

fn background(changes: &BackgroundChanges) -> Vec<String> {
    let started = changes.started.iter().map(|work| {
        let what = match work {
            BackgroundWork::Command { id, command } => format!("command {id}: {command}"),
            BackgroundWork::Agent { id, description } => format!("sub-agent {id}: {description}"),
        };
        format!("started in the background: {what}")
    });
    let reported = changes.reported.iter();
    let reported = reported.map(|id| format!("the model was informed of the end of {id}"));
    let folder = changes.folder.as_ref().map(|folder| folder.display());
    let folder = folder.map(|folder| format!("working directory of commands: {folder}"));
    started.chain(reported).chain(folder).collect()
}

/// Lines of text, each without control characters.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn line(&mut self, indent: usize, line: &str) {
        let line = one_line(line);
        self.0.extend(std::iter::repeat_n(' ', indent));
        self.0.push_str(line.trim_end());
        self.0.push('\n');
    }
}
