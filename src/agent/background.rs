//! Background commands of a run: reports their ends to the model and the observer, and ends them
//! with the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::recovery::{Event, Moment, Nudge, StopReason, WORK_GONE, WorkStatus};
use crate::tools::{STARTED_IN_BACKGROUND, is_agent_tool};
use crate::transcript::{Block, Message};

use super::messages::{join_list, text_of};
use super::run_event::{RunEvent, WaitingFor};
use super::run_monitor::{CANCEL_GRACE, CancelReason, LATE_CANCEL_GRACE, RunMonitor, WaitTimer};
use super::world::RunWorld;

impl RunWorld<'_> {
    /// Waits for a change in background work, until `until` at most.
    pub(super) async fn await_work(&mut self, until: Moment) -> Event {
        self.release_permit();
        let event = self.await_news(until).await;
        match self.acquire_permit().await {
            Ok(()) => event,
            Err(cut) => cut.into(),
        }
    }

    async fn await_news(&mut self, until: Moment) -> Event {
        let toolbox = Arc::clone(&self.tools.toolbox);
        let news = toolbox.wait_for_background_news();
        let over = self.monitor.clock;
        let over = async move { over.sleep_until(until).await };
        let news = async {
            tokio::select! {
                biased;
                work = news => work,
                () = over => WorkStatus::StillRunning,
            }
        };
        let mut timer = self.monitor.begin();
        let progress = self.caller.turn_progress();
        let show = |monitor: &mut RunMonitor<'_>, timer: &WaitTimer| {
            let running = toolbox.list_running();
            let left = monitor.clock.now().until(until);
            monitor.emit_heartbeat_until(timer, WaitingFor::Work { running }, progress, left);
        };
        match self.monitor.wait_for(&mut timer, show, news).await {
            Ok(work) => Event::BackgroundWaited(work),
            Err(cut) => {
                self.start_shutdown(cut);
                cut.into()
            }
        }
    }

    /// Waits for work that ends by itself once it is cancelled, which it is when the run is cut
    /// off. Work that takes too long is ended by dropping it.
    pub(super) async fn run_cancellable<T>(
        &mut self,
        waiting_for: WaitingFor,
        cancel: &CancellationToken,
        work: impl Future<Output = T>,
    ) -> Result<T, CancelReason> {
        tokio::pin!(work);
        let mut timer = self.monitor.begin();
        let progress = self.caller.turn_progress();
        let show = |monitor: &mut RunMonitor<'_>, timer: &WaitTimer| {
            monitor.emit_heartbeat(timer, waiting_for.clone(), progress, None);
        };
        let cut = match self.monitor.wait_for(&mut timer, show, work.as_mut()).await {
            Ok(done) => return Ok(done),
            Err(cut) => cut,
        };
        cancel.cancel();
        self.start_shutdown(cut);
        let _ = tokio::time::timeout(cut.grace(), work).await;
        Err(cut)
    }

    /// Begins to end hooks and background commands as soon as the run is cut off, in parallel with
    /// the rest of the shutdown.
    pub(super) fn start_shutdown(&mut self, cut: CancelReason) {
        self.hooks.prepare_kill();
        self.tools.start_shutdown(cut, &mut self.monitor);
    }

    /// Ends background commands. What the model does not know of them is recorded, for a resumed
    /// session.
    pub(super) async fn end_work(&mut self, reason: StopReason) {
        self.hooks.prepare_kill();
        if let StopReason::AbortedStreaming(by) | StopReason::AbortedTools(by) = reason {
            self.start_shutdown(CancelReason::Interrupt(by));
        }
        let late = matches!(
            reason,
            StopReason::Deadline | StopReason::BackgroundPending | StopReason::Denied
        );
        let limit = if late { LATE_CANCEL_GRACE } else { CANCEL_GRACE };
        Arc::clone(&self.tools.toolbox).stop_and_wait(limit).await;
        self.tools.show_tasks(&mut self.monitor);
    }

    /// Adds a last message about background commands that were cut.
    pub(super) fn record_cut_work(&mut self, reason: StopReason) {
        if reason != StopReason::Completed
            && let Some(news) = self.tools.toolbox.take_background_news()
        {
            self.conversation.add_user_message(
                vec![Block::text(join_list(WORK_GONE, &news))],
                Vec::new(),
                &mut self.monitor,
            );
        }
    }

    /// Tells the model of a resumed session which commands were lost with an earlier process.
    pub(super) fn report_lost_work(&mut self) {
        for agent in self.context.deps.registry.lost() {
            self.monitor.emit(&RunEvent::Agent(Box::new(agent)));
        }
        let past = BackgroundHistory::of(self.conversation.history.messages());
        self.tools.toolbox.count_tasks_from(past.started);
        if !past.lost.is_empty() {
            let list = past.list(&|id| self.context.deps.registry.known_of(id));
            self.conversation.add_user_message(
                vec![Block::text(join_list(WORK_GONE, &list))],
                Vec::new(),
                &mut self.monitor,
            );
        }
    }
}

/// Whether background commands were lost with the process that wrote these messages.
pub fn has_lost_work(messages: &[Message]) -> bool {
    !BackgroundHistory::of(messages).lost.is_empty()
}

/// Background commands as the messages of a conversation mention them.
#[derive(Debug, Default)]
struct BackgroundHistory {
    started: usize,
    /// Commands without a recorded end, by name.
    lost: BTreeMap<String, String>,
}

impl BackgroundHistory {
    fn of(messages: &[Message]) -> Self {
        let mut past = Self::default();
        let mut calls = BTreeMap::new();
        for block in messages.iter().flat_map(|message| &message.content) {
            match block {
                Block::ToolUse { id, name, input } if name == "Bash" => {
                    let command = input["command"].as_str().unwrap_or_default();
                    calls.insert(id.as_str(), command.to_owned());
                }
                Block::ToolUse { id, name, input } if is_agent_tool(name) => {
                    let what = input["description"].as_str().unwrap_or_default();
                    calls.insert(id.as_str(), format!("agent: {what}"));
                }
                Block::ToolResult { tool_use_id, content, is_error: false } => {
                    let text = text_of(content);
                    let began = text.strip_prefix(STARTED_IN_BACKGROUND);
                    match (began, calls.get(tool_use_id.as_str())) {
                        (Some(rest), Some(command)) => past.begins(rest, command),
                        (None, None) => past.parse_end(&text),
                        (Some(_), None) | (None, Some(_)) => {}
                    }
                }
                Block::Text { text } if text.starts_with(WORK_GONE) => past.lost.clear(),
                Block::Text { text } if text.starts_with(Nudge::WorkEnded.text()) => {
                    text.lines().for_each(|line| past.parse_end(line.trim_start_matches("- ")));
                }
                Block::Text { .. }
                | Block::ToolUse { .. }
                | Block::ToolResult { .. }
                | Block::Thinking { .. }
                | Block::RedactedThinking { .. }
                | Block::Image { .. }
                | Block::Document { .. }
                | Block::Other(_) => {}
            }
        }
        past
    }

    fn begins(&mut self, rest: &str, command: &str) {
        let name = rest.split(['.', '\n']).next().unwrap_or_default();
        let number = name.strip_prefix("bash_").and_then(|number| number.parse().ok());
        self.started = self.started.max(number.unwrap_or(0));
        self.lost.insert(name.to_owned(), command.to_owned());
    }

    /// Parses a line that begins with a name and says that the command is over.
    fn parse_end(&mut self, line: &str) {
        let name = line.split(' ').next().unwrap_or_default();
        let first = line.lines().next().unwrap_or_default();
        if first.contains(" ended after ") || first.contains(" was stopped after ") {
            self.lost.remove(name);
        }
    }

    /// One line for each command, with the known details below.
    fn list<'a>(&self, known: &dyn Fn(&str) -> Option<&'a str>) -> String {
        let line = |(name, command): (&String, &String)| {
            let command: String = command.chars().take(200).collect();
            let command = command.split_whitespace().collect::<Vec<_>>().join(" ");
            let known = known(name).into_iter().flat_map(str::lines);
            let known: Vec<String> = known.map(|line| format!("\n  {line}")).collect();
            format!("- {name} (`{command}`){}", known.concat())
        };
        self.lost.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}
