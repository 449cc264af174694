//! Commands in the background, as the run sees them: the model is told what came of them, whoever
//! watches too, and none outlives the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::recovery::{Event, Interrupt, Moment, Nudge, ReplyKind, StopReason, WORK_GONE, WorkStatus};
use crate::tools::{BackgroundKind, BackgroundTask, STARTED_IN_BACKGROUND, is_agent_tool};
use crate::transcript::{Block, Message};

use super::conversation::text_of;
use super::cut::{CANCEL_GRACE, LATE_CANCEL_GRACE};
use super::observer::{RunNotice, WaitingFor};
use super::session::Session;
use super::watch::{CancelReason, WaitTimer, RunMonitor};

impl Session<'_> {
    /// An end that the model comes to, seen together with background work.
    pub(super) fn check_background_work(&self, event: Event) -> Event {
        if self.toolbox.background_work() == WorkStatus::Over {
            event
        } else if let Event::Replied(ReplyKind::Answer { tokens }) = event {
            Event::Replied(ReplyKind::Early { tokens })
        } else if event == Event::Delivered {
            Event::DeliveredEarly
        } else {
            event
        }
    }

    /// Waits for news of background work, until `until` at most.
    pub(super) async fn await_work(&mut self, until: Moment) -> Event {
        self.release_permit();
        let event = self.await_news(until).await;
        match self.acquire_permit().await {
            Ok(()) => event,
            Err(cut) => cut.into(),
        }
    }

    async fn await_news(&mut self, until: Moment) -> Event {
        let toolbox = Arc::clone(&self.toolbox);
        let news = toolbox.wait_for_background_news();
        let over = self.watch.clock;
        let over = async move { over.sleep_until(until).await };
        let news = async {
            tokio::select! {
                biased;
                work = news => work,
                () = over => WorkStatus::StillRunning,
            }
        };
        let mut vigil = self.watch.begin();
        let figures = self.turn_progress();
        let show = |watch: &mut RunMonitor<'_>, vigil: &WaitTimer| {
            let running = toolbox.list_running();
            let left = watch.clock.now().until(until);
            watch.emit_heartbeat_until(vigil, WaitingFor::Work { running: &running }, figures, left);
        };
        match self.watch.wait_for(&mut vigil, show, news).await {
            Ok(work) => Event::BackgroundWaited(work),
            Err(cut) => {
                self.start_shutdown(cut);
                cut.into()
            }
        }
    }

    /// The words for a nudge about background work, below which its list stands.
    pub(super) fn work_report(&mut self, nudge: Nudge) -> Option<String> {
        match nudge {
            Nudge::WorkEnded => self.toolbox.take_background_news(),
            Nudge::StillRunning => Some(self.toolbox.list_running()),
            Nudge::Continue(_)
            | Nudge::ContinueLast
            | Nudge::Complete(_)
            | Nudge::MoreEffort
            | Nudge::WrapUp
            | Nudge::LastTurn
            | Nudge::StepBack
            | Nudge::UseStructuredOutput
            | Nudge::Unmet
            | Nudge::UnmetAgain
            | Nudge::UnmetLast
            | Nudge::StopHookObjection => None,
        }
    }

    /// What has ended while the model was at work, to go along with tool results.
    pub(super) fn work_news(&mut self) -> Option<Block> {
        let news = self.toolbox.take_background_news()?;
        Some(Block::text(join_list(Nudge::WorkEnded.text(), &news)))
    }

    /// Shows begins and ends to whoever watches.
    pub(super) fn show_tasks(&mut self) {
        let commands = |task: &BackgroundTask| task.kind == BackgroundKind::Command;
        for task in self.toolbox.take_task_events().into_iter().filter(commands) {
            self.watch.emit(&RunNotice::Task(&task));
        }
    }

    /// The run is about to end: background commands begin to at once, beside whatever else does.
    pub(super) fn start_shutdown(&mut self, cut: CancelReason) {
        self.hook_state.prepare_kill();
        self.show_tasks();
        let running = self.toolbox.list_running();
        self.toolbox.request_stop();
        let CancelReason::Interrupt(by) = cut else { return };
        if running.is_empty() || std::mem::replace(&mut self.work_stop_announced, true) {
            return;
        }
        let list = running.replace("\n- ", "; ");
        let list = list.trim_start_matches("- ");
        let again = match by {
            Interrupt::Sigint => "; a second SIGINT within 3 s ends all at once",
            Interrupt::Sigterm
            | Interrupt::Sighup
            | Interrupt::Sigquit
            | Interrupt::Sigusr1
            | Interrupt::Sigusr2
            | Interrupt::Sigalrm
            | Interrupt::Sigxcpu
            | Interrupt::StdoutClosed => "",
        };
        let warning = format!("background commands are being stopped: {list}{again}");
        self.watch.emit(&RunNotice::Warning(&warning));
    }

    /// Ends what runs in the background. What the model does not know of it, it will read should
    /// the session go on.
    pub(super) async fn end_work(&mut self, reason: StopReason) {
        self.hook_state.prepare_kill();
        if let StopReason::AbortedStreaming(by) | StopReason::AbortedTools(by) = reason {
            self.start_shutdown(CancelReason::Interrupt(by));
        }
        let late = matches!(
            reason,
            StopReason::Deadline | StopReason::BackgroundPending | StopReason::Denied
        );
        let patience = if late { LATE_CANCEL_GRACE } else { CANCEL_GRACE };
        Arc::clone(&self.toolbox).stop_and_wait(patience).await;
        self.show_tasks();
    }

    /// The last words to a model whose background work was cut.
    pub(super) fn record_cut_work(&mut self, reason: StopReason) {
        if reason != StopReason::Completed
            && let Some(news) = self.toolbox.take_background_news()
        {
            self.add_user_message(vec![Block::text(join_list(WORK_GONE, &news))], &[]);
        }
    }

    /// Tells a model that goes on in this process what was lost with an earlier one.
    pub(super) fn report_lost_work(&mut self) {
        for agent in self.agent_context.registry.lost() {
            self.watch.emit(&RunNotice::Agent(&agent));
        }
        let past = BackgroundHistory::of(self.history.messages());
        self.toolbox.count_tasks_from(past.started);
        if !past.lost.is_empty() {
            let list = past.list(&|id| self.agent_context.registry.known_of(id));
            self.add_user_message(vec![Block::text(join_list(WORK_GONE, &list))], &[]);
        }
    }
}

/// Words, and a list below them. In one block, which a compaction knows for ours by how it begins.
fn join_list(words: &str, list: &str) -> String {
    format!("{words}\n\n{list}")
}

/// Whether background commands were lost with the process that said this.
pub fn has_lost_work(messages: &[Message]) -> bool {
    !BackgroundHistory::of(messages).lost.is_empty()
}

/// What a conversation tells of background commands.
#[derive(Debug, Default)]
struct BackgroundHistory {
    started: usize,
    /// Those of which no end is told, with their commands.
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

    /// A line that begins with a name and says that it is over.
    fn parse_end(&mut self, line: &str) {
        let name = line.split(' ').next().unwrap_or_default();
        let first = line.lines().next().unwrap_or_default();
        if first.contains(" ended after ") || first.contains(" was stopped after ") {
            self.lost.remove(name);
        }
    }

    /// A line for each, and below it what is known of it.
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
