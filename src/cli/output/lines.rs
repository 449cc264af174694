//! Progress lines on standard error: plain and greppable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::agent::{AgentIdentity, AgentStatus, Heartbeat, Observer, RunEvent, WaitingFor};
use crate::cli::timestamps::{WallTime, format_duration, format_elapsed};
use crate::recovery::{
    ErrorClass, Event, Fast, Fault, Pause, RecoveryCounts, RecoveryPlan, RecoveryRecord, ReplyKind,
    Transition,
};
use crate::transcript::{Block, Message};

use super::PipeSender;
use super::agents;
use super::terminal_filter::controls;

/// What every line begins with.
const PREFIX: &str = "outlast: ";

/// Writes progress lines to standard error.
pub struct ProgressLines {
    out: PipeSender,
    clock: Arc<dyn Fn() -> WallTime + Send + Sync>,
    verbose: bool,
    turns: u32,
    waited: Duration,
    /// When the current wait ends, as announced, so that its heartbeats agree.
    end: Option<Timestamp>,
    /// What the last failure was.
    failed: Option<ErrorClass>,
    /// Whether the last step was to try the preferred model again.
    returning: bool,
    /// The state of each sub-agent, by id.
    agents: BTreeMap<String, ProgressLines>,
}

impl ProgressLines {
    /// `clock` says what the time is on the wall.
    pub fn new(
        out: PipeSender,
        clock: impl Fn() -> WallTime + Send + Sync + 'static,
        verbose: bool,
    ) -> Self {
        Self::with(out, Arc::new(clock), verbose)
    }

    fn with(
        out: PipeSender,
        clock: Arc<dyn Fn() -> WallTime + Send + Sync>,
        verbose: bool,
    ) -> Self {
        Self {
            out,
            clock,
            verbose,
            turns: 0,
            waited: Duration::ZERO,
            end: None,
            failed: None,
            returning: false,
            agents: BTreeMap::new(),
        }
    }

    /// The line for something that happened to a sub-agent.
    fn of_agent(&mut self, agent: &AgentIdentity, event: &RunEvent) -> Option<String> {
        let (out, clock, verbose) = (self.out.clone(), Arc::clone(&self.clock), self.verbose);
        let own = self.agents.entry(agent.id.clone());
        let line = own.or_insert_with(|| Self::with(out, clock, verbose)).line(event)?;
        Some(format!("agent {} ({}): {line}", agent.id, agent.kind))
    }

    /// Formats an event as a line, if it is worth reporting.
    pub(super) fn line(&mut self, event: &RunEvent) -> Option<String> {
        match event {
            RunEvent::WaitBegins { pause, until, now, fault, spent } => {
                let wait = now.until(*until);
                let now = (self.clock)();
                let end = *self.end.insert(now.after(wait));
                Some(format!(
                    "waiting {} {}, until {}{}, {spent} spent",
                    format_duration(wait),
                    purpose(*pause, fault.as_deref()),
                    now.clock_time(end),
                    total_wait(self.waited),
                ))
            }
            RunEvent::WaitEnds { waited, .. } => {
                self.waited += *waited;
                self.end = None;
                None
            }
            RunEvent::Heartbeat(heartbeat) => Some(self.heartbeat(heartbeat)),
            RunEvent::ModelSwitched { from, to } => {
                Some(format!("switched from {from} to {to} {}", self.why_switched()))
            }
            RunEvent::Compacted { before, after } => Some(format!(
                "compacted the conversation from about {before} to about {after} tokens"
            )),
            RunEvent::RecoveryEnds(episode) => self.verbose.then(|| recovery(episode)),
            RunEvent::Task(task) => self.verbose.then(|| {
                format!("background command {} {}: {}", task.id, task.status(), task.command)
            }),
            RunEvent::Agent(task) => {
                let told = self.verbose || task.status == AgentStatus::Failed;
                told.then(|| agents::line(task))
            }
            RunEvent::OfAgent { agent, event } => self.of_agent(agent, event),
            RunEvent::Denied { tool, id, reason } => {
                Some(format!("warning: {tool} ({id}) was not allowed: {reason}"))
            }
            RunEvent::HookSays { event, text } => Some(format!("{} hook: {text}", event.name())),
            RunEvent::Remark(text) => self.verbose.then(|| text.clone()),
            RunEvent::Warning(text) => Some(format!("warning: {text}")),
            RunEvent::Assistant { message, usage, .. } => {
                self.turns += 1;
                self.verbose.then(|| turn(self.turns, message, usage.output_tokens))
            }
            RunEvent::Step { transition, fault } => self.step(transition, fault.as_deref()),
            RunEvent::Init(init) => {
                self.verbose.then(|| format!("session {}, model {}", init.session_id, init.model))
            }
            RunEvent::AwaitsAgents(_)
            | RunEvent::ToolEnds { .. }
            | RunEvent::StreamEvent(_)
            | RunEvent::Block { .. }
            | RunEvent::BlocksDropped { .. }
            | RunEvent::User { .. }
            | RunEvent::Hook(_) => None,
        }
    }

    /// Formats a transition that affects waiting time or cost.
    fn step(&mut self, transition: &Transition, fault: Option<&Fault>) -> Option<String> {
        if let Event::Failed(failure) = transition.event {
            self.failed = Some(failure.class);
        } else if transition.event == Event::Replied(ReplyKind::Empty) {
            self.failed = Some(ErrorClass::EmptyResponse);
        }
        let plan = transition.plan?;
        self.returning = plan == RecoveryPlan::ReturnToPreferredModel;
        match (plan, transition.next.fast) {
            (RecoveryPlan::CoolDown, Fast::Cooling { until }) => {
                let now = (self.clock)();
                let end = now.clock_time(now.after(transition.at.until(until)));
                Some(format!("going on at normal speed{}, fast again after {end}", self.cause()))
            }
            (RecoveryPlan::DisableFastMode, _) => {
                let reason = fault.and_then(|fault| fault.overage_disabled.as_deref());
                let reason = reason.map_or_else(|| self.cause(), |reason| format!(": {reason}"));
                Some(format!("fast mode is off for the rest of the session{reason}"))
            }
            _ if self.verbose && !plan.is_reported_elsewhere() => {
                Some(format!("recovering: {}", plan.name()))
            }
            _ => None,
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

    fn heartbeat(&self, heartbeat: &Heartbeat) -> String {
        let Heartbeat { elapsed, turn, spent, .. } = heartbeat;
        match &heartbeat.waiting_for {
            WaitingFor::Retry(pause) => {
                let end = heartbeat.ends_in.map_or_else(String::new, |left| {
                    let now = (self.clock)();
                    let end = self.end.unwrap_or_else(|| now.after(left));
                    format!(", {} left, until {}", format_duration(left), now.clock_time(end))
                });
                // The total includes the current wait; the announced one does not.
                let waited = total_wait(heartbeat.waited_in_all);
                format!("waiting {}{end}{waited}, {spent} spent", purpose(*pause, None))
            }
            WaitingFor::Model(model) => {
                let silence = heartbeat.since_last_byte.map_or_else(String::new, |silence| {
                    format!(", last byte {} ago", format_elapsed(silence))
                });
                format!(
                    "waiting for {model} to answer, {} so far{silence}, turn {turn}, {spent} spent",
                    format_elapsed(*elapsed)
                )
            }
            WaitingFor::Work { running } => {
                let left = heartbeat.ends_in.unwrap_or_default();
                let list = running.trim_start_matches("- ").replace("\n- ", "; ");
                format!(
                    "waiting for background commands to end, {} so far, {} left, turn {turn}, \
                     {spent} spent: {list}",
                    format_elapsed(*elapsed),
                    format_duration(left)
                )
            }
            WaitingFor::Agents { running } => format!(
                "waiting for agents, {} so far, turn {turn}, {spent} spent: {}",
                format_elapsed(*elapsed),
                running.trim_start_matches("- ").replace("\n- ", "; ")
            ),
            WaitingFor::Servers { names } => server_wait(names, heartbeat),
            WaitingFor::Money => format!(
                "waiting until other agents' calls are paid and the budget has room, {} so far, \
                 turn {turn}, {spent} spent",
                format_elapsed(*elapsed)
            ),
            WaitingFor::Hook { event } => {
                format!(
                    "running {} hooks, {} so far, turn {turn}, {spent} spent",
                    event.name(),
                    format_elapsed(*elapsed)
                )
            }
            WaitingFor::Permission { tool, id } => format!(
                "waiting for the host's permission for {tool} ({id}), {} so far, turn {turn}, \
                 {spent} spent",
                format_elapsed(*elapsed)
            ),
            WaitingFor::Tool { name, id } => {
                let end = heartbeat
                    .ends_in
                    .map_or_else(String::new, |left| format!(", {} left", format_duration(left)));
                format!(
                    "running {name} ({id}), {} so far{end}, turn {turn}, {spent} spent",
                    format_elapsed(*elapsed)
                )
            }
        }
    }

    /// Redacts a line and removes control characters.
    pub(super) fn printable(&self, line: &str) -> String {
        self.out.redact(&one_line(line))
    }
}

/// Formats the wait for MCP servers before the first request.
fn server_wait(names: &str, heartbeat: &Heartbeat) -> String {
    format!(
        "waiting for MCP servers ({names}), {} so far, {} left until the run begins without them",
        format_elapsed(heartbeat.elapsed),
        format_duration(heartbeat.ends_in.unwrap_or_default())
    )
}

fn total_wait(waited: Duration) -> String {
    format!(", waited {} so far", format_elapsed(waited))
}

impl Observer for ProgressLines {
    fn observe(&mut self, event: &RunEvent) {
        if let Some(line) = self.line(event) {
            self.out.offer(&format!("{PREFIX}{}", one_line(&line)));
        }
    }
}

/// Sanitises untrusted text to a single line without terminal control sequences.
pub fn one_line(text: &str) -> String {
    text.chars().map(|letter| if controls(letter) { ' ' } else { letter }).collect()
}

fn purpose(pause: Pause, fault: Option<&Fault>) -> String {
    if pause.is_for_others() {
        return "to ask (rate limit shared by other runs)".to_owned();
    }
    let status = fault.and_then(Fault::status).map(|status| format!("HTTP {status}, "));
    let timer = fault.and_then(Fault::timer).map(|timer| format!("{}, ", timer.name()));
    let cause = status.or(timer).unwrap_or_default();
    match pause.of {
        Some(of) => format!("to retry ({}, {cause}retry {} of {of})", pause.class, pause.retry),
        None => {
            format!("to retry ({}, {cause}retry {}, as many as it takes)", pause.class, pause.retry)
        }
    }
}

/// Formats the outcome of a recovery.
fn recovery(episode: &RecoveryRecord) -> String {
    let RecoveryRecord { class, attempts, waited, cost, .. } = episode;
    let outcome = match &episode.lost_to {
        None => format!("recovered from {class}"),
        Some(reason) => format!("did not recover from {class} before the end ({reason})"),
    };
    let tried = named(&episode.strategies);
    format!(
        "{outcome}: {tried}; attempts {attempts}, waited {}, cost {cost}",
        format_elapsed(*waited)
    )
}

fn named(counts: &RecoveryCounts) -> String {
    let names = counts.iter().map(|(name, times)| format!("{name} x{times}"));
    names.collect::<Vec<_>>().join(", ")
}

fn turn(number: u32, message: &Message, tokens: u64) -> String {
    let calls: Vec<&str> = message
        .content
        .iter()
        .filter_map(|block| {
            if let Block::ToolUse { name, .. } = block { Some(name.as_str()) } else { None }
        })
        .collect();
    let calls = if calls.is_empty() {
        "no tool calls".to_owned()
    } else {
        format!("calls {}", calls.join(", "))
    };
    format!("turn {number}: {tokens} tokens, {calls}")
}
