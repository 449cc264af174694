//! Progress lines on standard error: plain and greppable.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use console::truncate_str;
use jiff::Timestamp;

use crate::agent::{AgentIdentity, AgentStatus, Observer, RunEvent};
use crate::cli::args::Verbosity;
use crate::cli::timestamps::{WallTime, format_duration};
use crate::recovery::{ErrorClass, Event, Fast, Fault, RecoveryPlan, ReplyKind, Transition};
use crate::tools::RequirementCheck;
use crate::transcript::{Block, Message};

use super::PipeSender;
use super::calls::{self, CallNames, NamedCall};
use super::heartbeat_line::{heartbeat, purpose, total_wait};
use super::style::{Styling, Tone};
use super::summary::{RunLimits, first_line};
use super::terminal_filter::{TerminalFilter, break_lines, is_terminal_control};
use super::{agents, recoveries};

/// Prefix of every line.
const PREFIX: &str = "outlast: ";

/// Maximum number of characters of a call's input, or of a line of the model, in verbose output.
const INPUT_MAX: usize = 1_000;

/// Level of detail, medium and colours of progress lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineStyle {
    pub verbosity: Verbosity,
    pub medium: LineMedium,
    pub styling: Styling,
    /// The limits of the run, for its first line.
    pub limits: RunLimits,
}

/// Medium that shows progress lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineMedium {
    /// A log, in which each line must be complete.
    #[default]
    Log,
    /// A terminal, with a status line of times and costs below the lines.
    Terminal,
}

/// A line about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProgressLine {
    pub(super) tone: Tone,
    pub(super) text: String,
}

impl ProgressLine {
    fn plain(text: String) -> Self {
        Self { tone: Tone::Plain, text }
    }

    fn warning(text: &str) -> Self {
        Self { tone: Tone::Warning, text: format!("warning: {text}") }
    }
}

/// Writes progress lines to standard error.
pub struct ProgressLines {
    out: PipeSender,
    clock: Arc<dyn Fn() -> WallTime + Send + Sync>,
    style: LineStyle,
    turns: u32,
    waited: Duration,
    /// End of the current wait, as announced, so that its heartbeats agree.
    end: Option<Timestamp>,
    /// Class of the last failure.
    failed: Option<ErrorClass>,
    /// True if the last step tried the preferred model again.
    returning: bool,
    calls: CallNames,
    /// The state of each sub-agent, by id.
    agents: BTreeMap<String, ProgressLines>,
}

impl ProgressLines {
    /// Writes lines to `out`. `clock` returns the wall time.
    pub fn new(
        out: PipeSender,
        clock: impl Fn() -> WallTime + Send + Sync + 'static,
        style: LineStyle,
    ) -> Self {
        Self::with(out, Arc::new(clock), style)
    }

    fn with(
        out: PipeSender,
        clock: Arc<dyn Fn() -> WallTime + Send + Sync>,
        style: LineStyle,
    ) -> Self {
        Self {
            out,
            clock,
            style,
            turns: 0,
            waited: Duration::ZERO,
            end: None,
            failed: None,
            returning: false,
            calls: CallNames::default(),
            agents: BTreeMap::new(),
        }
    }

    /// Formats an event of a sub-agent.
    fn of_agent(&mut self, agent: &AgentIdentity, event: &RunEvent) -> Vec<ProgressLine> {
        let (out, clock, style) = (self.out.clone(), Arc::clone(&self.clock), self.style);
        let entry = self.agents.entry(agent.id.clone());
        let lines = entry.or_insert_with(|| Self::with(out, clock, style)).lines(event);
        let named = |line: ProgressLine| ProgressLine {
            text: format!("agent {} ({}): {}", agent.id, agent.kind, line.text),
            ..line
        };
        lines.into_iter().map(named).collect()
    }

    /// Formats an event. Empty if it is not reported.
    pub(super) fn lines(&mut self, event: &RunEvent) -> Vec<ProgressLine> {
        match event {
            RunEvent::WaitBegins { pause, until, now, fault, spent } => {
                let wait = now.until(*until);
                let now = (self.clock)();
                let end = *self.end.insert(now.after(wait));
                let purpose = purpose(*pause, fault.as_deref());
                let mut line = format!("waiting {} {purpose}", format_duration(wait));
                if self.style.medium == LineMedium::Log {
                    let (end, waited) = (now.clock_time(end), total_wait(self.waited));
                    let _ = write!(line, ", until {end}{waited}, {spent}");
                }
                vec![ProgressLine::plain(line)]
            }
            RunEvent::WaitEnds { waited, .. } => {
                self.waited += *waited;
                self.end = None;
                Vec::new()
            }
            RunEvent::Heartbeat(heartbeat_of) => {
                let line = heartbeat(heartbeat_of, &self.calls, &(self.clock)(), self.end);
                vec![ProgressLine::plain(line)]
            }
            RunEvent::ModelSwitched { from, to } => {
                let why = self.why_switched();
                vec![ProgressLine::plain(format!("switched from {from} to {to} {why}"))]
            }
            RunEvent::Compacted { before, after } => vec![ProgressLine::plain(format!(
                "compacted the conversation from about {before} to about {after} tokens"
            ))],
            RunEvent::RecoveryEnds(record) => self.detail(|| recoveries::outcome(record)),
            RunEvent::Task(task) => self.detail(|| {
                format!("background command {} {}: {}", task.id, task.status(), task.command)
            }),
            RunEvent::Agent(task) if task.status == AgentStatus::Failed => {
                vec![ProgressLine { tone: Tone::Warning, text: agents::line(task) }]
            }
            RunEvent::Agent(task) => self.at(Verbosity::Calls, || agents::line(task)),
            RunEvent::OfAgent { agent, event } => self.of_agent(agent, event),
            RunEvent::Denied(denial) => {
                let call = self.calls.of(&denial.tool_use_id, &denial.tool_name);
                vec![ProgressLine::warning(&format!("{call} was not allowed: {}", denial.reason))]
            }
            RunEvent::HookSays { event, text } => {
                vec![ProgressLine::plain(format!("{} hook: {text}", event.name()))]
            }
            RunEvent::Note(text) => self.detail(|| text.clone()),
            RunEvent::Warning(text) => vec![ProgressLine::warning(text)],
            RunEvent::Assistant { message, usage, .. } => {
                self.turns += 1;
                self.calls.replace(message, &self.out);
                self.reply(message, usage.output_tokens)
            }
            RunEvent::ToolEnds(call) => {
                let mut lines = self.at(Verbosity::Calls, || calls::ended(&self.calls, call));
                lines.extend(self.output(&call.tail));
                lines
            }
            RunEvent::RequirementEnds { check, attempt, of } => {
                self.check_ends(check, (*attempt, *of))
            }
            RunEvent::Step { transition, fault } => self.step(transition, fault.as_deref()),
            RunEvent::Init(init) => {
                self.calls.set_folder(&init.cwd);
                let limits = self.style.limits;
                self.at(Verbosity::Calls, || first_line(init, limits))
            }
            RunEvent::RequestSent
            | RunEvent::AwaitsAgents(_)
            | RunEvent::StreamEvent(_)
            | RunEvent::Block { .. }
            | RunEvent::BlocksDropped { .. }
            | RunEvent::User { .. }
            | RunEvent::Hook(_) => Vec::new(),
        }
    }

    /// Returns a line that is shown at a verbosity and above.
    fn at(&self, verbosity: Verbosity, text: impl FnOnce() -> String) -> Vec<ProgressLine> {
        let shown = self.style.verbosity >= verbosity;
        shown.then(|| ProgressLine { tone: Tone::Faint, text: text() }).into_iter().collect()
    }

    fn detail(&self, text: impl FnOnce() -> String) -> Vec<ProgressLine> {
        self.at(Verbosity::Detail, text)
    }

    /// Formats a reply and its calls.
    fn reply(&self, message: &Message, tokens: u64) -> Vec<ProgressLine> {
        let mut lines = self.detail(|| turn(self.turns, message, tokens));
        for block in &message.content {
            if let Block::Text { text } = block {
                let first = text.lines().map(str::trim).find(|line| !line.is_empty());
                let first = first.map(|line| line.chars().take(INPUT_MAX).collect::<String>());
                if let Some(first) = first {
                    lines.extend(self.detail(|| format!("| \"{first}\"")));
                }
            } else if let Block::ToolUse { name, input, .. } = block {
                let input = self.out.redact_input(input).to_string();
                let input: String = input.chars().take(INPUT_MAX).collect();
                lines.extend(self.detail(|| format!("| {name} {input}")));
            }
        }
        lines
    }

    fn check_ends(&self, check: &RequirementCheck, tries: (u32, u32)) -> Vec<ProgressLine> {
        let mut lines = self.at(Verbosity::Calls, || calls::check(check, tries));
        if !check.passed() {
            for line in &mut lines {
                line.tone = Tone::Warning;
            }
            lines.extend(self.output(&check.tail()));
        }
        lines
    }

    /// Formats the last lines of an output.
    fn output(&self, text: &str) -> Vec<ProgressLine> {
        calls::tail(text).flat_map(|line| self.detail(|| format!("| {line}"))).collect()
    }

    /// Formats a transition that affects waiting time or cost.
    fn step(&mut self, transition: &Transition, fault: Option<&Fault>) -> Vec<ProgressLine> {
        if let Event::Failed(failure) = transition.event {
            self.failed = Some(failure.class);
        } else if transition.event == Event::Replied(ReplyKind::Empty) {
            self.failed = Some(ErrorClass::EmptyResponse);
        }
        let Some(plan) = transition.plan else { return Vec::new() };
        self.returning = matches!(
            plan,
            RecoveryPlan::ReturnToPreferredModel | RecoveryPlan::RetryPreferredModel
        );
        match (plan, transition.next.fast) {
            (RecoveryPlan::CoolDown, Fast::Cooling { until }) => {
                let now = (self.clock)();
                let end = now.clock_time(now.after(transition.at.until(until)));
                let cause = self.cause();
                let line = format!("going on at normal speed{cause}, fast again after {end}");
                vec![ProgressLine::plain(line)]
            }
            (RecoveryPlan::DisableFastMode, _) => {
                let reason = fault.and_then(|fault| fault.overage_disabled.as_deref());
                let reason = reason.map_or_else(|| self.cause(), |reason| format!(": {reason}"));
                let line = format!("fast mode is off for the rest of the session{reason}");
                vec![ProgressLine::plain(line)]
            }
            _ => match plan.info().action {
                Some(action) => self.detail(|| action.to_owned()),
                None => Vec::new(),
            },
        }
    }

    fn cause(&self) -> String {
        self.failed.map_or_else(String::new, |class| format!(" ({class})"))
    }

    fn why_switched(&self) -> String {
        if self.returning {
            return "to try it again".to_owned();
        }
        match self.failed {
            None | Some(ErrorClass::ServerOverload) => "due to high demand".to_owned(),
            Some(class) => format!("after {class}"),
        }
    }

    /// Returns the calls of a reply, without secrets.
    pub(super) fn named_calls(&self, message: &Message) -> Vec<NamedCall> {
        self.calls.named(message, &self.out).collect()
    }

    pub(super) fn redact(&self, text: &str) -> String {
        self.out.redact(text)
    }

    /// Formats a line for a terminal, without control characters, redacted and coloured. Details
    /// are cut to the width; other lines are wrapped.
    pub(super) fn printable(&self, line: &ProgressLine, columns: usize) -> String {
        let text = self.redact(&one_line(&line.text));
        let text = if line.tone == Tone::Faint {
            truncate_str(&text, columns, "…").into_owned()
        } else {
            break_lines(&text, columns)
        };
        self.style.styling.paint(line.tone, &text)
    }
}

impl Observer for ProgressLines {
    fn observe(&mut self, event: &RunEvent) {
        for line in self.lines(event) {
            let text = format!("{PREFIX}{}", one_line(&line.text));
            self.out.offer(&self.style.styling.paint(line.tone, &text));
        }
    }
}

/// The beginnings of commands that CI systems (GitHub Actions, Azure Pipelines, `TeamCity`) execute
/// anywhere in a line of a log. Other commands, such as `::error::`, begin a line.
const LOG_COMMANDS: [&str; 3] = ["##[", "##vso[", "##teamcity["];

/// Prints a message to standard error, in one line.
pub fn print_message(text: &str) {
    let mut stderr = TerminalFilter::messages(io::stderr().lock());
    // If standard error is not read, nothing can be reported.
    let _ = stderr.write_all(format!("outlast: {}\n", one_line(text)).as_bytes());
}

/// Sanitises untrusted text to a single line without terminal control sequences, and without
/// commands to a CI system.
pub fn one_line(text: &str) -> String {
    let visible = |letter| if is_terminal_control(letter) { ' ' } else { letter };
    let line: String = text.chars().map(visible).collect();
    LOG_COMMANDS
        .iter()
        .fold(line, |line, command| line.replace(command, &command.replacen("##", "# #", 1)))
}

fn turn(number: u32, message: &Message, tokens: u64) -> String {
    let calls = message.content.iter().filter_map(Block::as_call);
    let calls: Vec<&str> = calls.map(|(_, name, _)| name).collect();
    let calls = if calls.is_empty() {
        "no tool calls".to_owned()
    } else {
        format!("calls {}", calls.join(", "))
    };
    format!("turn {number}: {tokens} tokens, {calls}")
}
