//! Builds a history from the lines of a journal, in their order.
//!
//! A step of the state machine is recorded after its changes to the conversation. The items that a
//! step explains (costs, notices, a compaction) are therefore between it and the step before it:
//!
//! ```text
//! step (ask) ─► spend ─► reply ─► notice ─► step (keep, say) ─► intent ─► result …
//!               └────── explained by ──────┘
//! ```

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::journal::{
    BackgroundChanges, CarryOver, Contract, FailedCheck, JournalEntry, JournalLine, JournalRecord,
    JournalView, MessageEntry, OpenRecord, PromptFold, RefusalReason, SpendRecord, ToolDetail,
    ToolStarted, worst_case,
};
use crate::recovery::{
    Action, Event, Moment, Money, Phase, RecoveryPlan, RecoveryRecord, ReplyDisposition,
    StopReason, Transition,
};
use crate::transcript::{Block, Message, Role, Usage};

use super::calls::{CallContext, CallLog};
use super::session::{
    FailureRecord, HistoryEnd, HistoryEvent, HistoryItem, MessageAuthor, RecordedMessage,
    SessionHistory, UnreadableLine, WaitCause, WaitRecord,
};
use super::turn::{ToolRun, ToolRunState, TurnRecord, elapsed, texts_of};

/// The contents of a history that its reader needs. Other contents are dropped while the journal is
/// read, so that a large session takes little memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryContents {
    #[default]
    All,
    /// All except the outputs of calls that succeeded.
    WithoutOutputs,
    /// Only the contents of this number of last messages and turns, of at least one.
    Last(usize),
}

/// Builds a history from journal lines, one at a time.
#[derive(Debug, Default)]
pub struct HistoryBuilder {
    history: SessionHistory,
    contents: HistoryContents,
    /// Indexes of the last messages and turns, if only those keep their contents.
    last: VecDeque<usize>,
    /// Time of the current line.
    at: Option<Timestamp>,
    /// Position of each tool call by its id: the index of its turn's item, and its index there.
    calls: HashMap<String, (usize, usize)>,
    /// Number of the process that started each call, by the call's id.
    started: HashMap<String, u64>,
    epoch: u64,
    /// True if the next message of the user is a prompt.
    awaits_prompt: bool,
    /// Costs since the last step. The next step decides which turn they belong to.
    spent: Vec<SpendRecord>,
    /// Index of the first item after the last step.
    since_step: usize,
    /// Time at which the last request was sent.
    sent: Option<Timestamp>,
    /// The current pause: the index of its item, and its start on the run's own clock.
    pause: Option<(usize, Moment)>,
    /// Index of the last reply's item, while further lines may continue the reply.
    reply: Option<usize>,
    /// Start of the current process.
    process_began: Option<Timestamp>,
    /// Unreadable lines after the last readable one.
    torn: Vec<UnreadableLine>,
    /// True if a line could be read.
    has_lines: bool,
    /// True if outlast wrote a line.
    is_ours: bool,
    requests: CallLog,
    prompt: PromptFold,
    /// Number of prompts of the user so far.
    prompts: u32,
    /// A failed `--require` check, which the next step reports.
    failed_check: Option<Box<FailedCheck>>,
}

impl HistoryBuilder {
    /// Begins the history of the session or sub-agent `id`.
    pub fn new(id: &str) -> Self {
        let history = SessionHistory { id: id.to_owned(), ..SessionHistory::default() };
        Self { history, awaits_prompt: true, ..Self::default() }
    }

    /// Keeps only these contents.
    #[must_use]
    pub fn keeping(self, contents: HistoryContents) -> Self {
        Self { contents, ..self }
    }

    /// Adds the next line.
    pub fn apply(&mut self, line: JournalLine) {
        let JournalLine { number, at, entry, detail, usage, follows_gap } = line;
        let entry = match entry {
            Ok(entry) => entry,
            Err(why) => {
                let what = match why {
                    RefusalReason::Damaged(what) => what,
                    RefusalReason::Newer(what) => format!("written by a newer outlast: {what}"),
                };
                self.torn.push(UnreadableLine { line: number, what });
                return;
            }
        };
        self.has_lines = true;
        self.is_ours |= match &entry {
            JournalEntry::Message(entry) => entry.ours,
            JournalEntry::Record(_) | JournalEntry::UnreadTransition => true,
            JournalEntry::Link { .. } | JournalEntry::Title(_) | JournalEntry::Other => false,
        };
        self.history.problems.append(&mut self.torn);
        if follows_gap {
            let what = "lines are missing before it".to_owned();
            self.history.problems.push(UnreadableLine { line: number, what });
        }
        if matches!(&entry, JournalEntry::Record(it) if matches!(**it, JournalRecord::Open(_))) {
            self.end_process();
        }
        self.observe_time(at);
        entry.show(&mut self.prompt);
        if let JournalEntry::Message(entry) = entry {
            self.add_message(*entry, detail, usage);
        } else {
            entry.show(self);
        }
    }

    /// Completes the history, and returns it.
    pub fn finish(mut self) -> SessionHistory {
        self.flush_spending(None);
        self.end_process();
        self.history.calls = mem::take(&mut self.requests).finish();
        self.history.recorded = self.prompt.recorded().clone();
        self.history.is_of_others = self.has_lines && !self.is_ours;
        // A killed process leaves one incomplete line, and nothing after it.
        if let [_cut_off] = &self.torn[..] {
            self.history.is_torn = true;
        } else {
            self.history.problems.append(&mut self.torn);
        }
        self.history
    }

    fn observe_time(&mut self, at: Option<Timestamp>) {
        self.at = at;
        let Some(at) = at else { return };
        self.history.started.get_or_insert(at);
        self.process_began.get_or_insert(at);
        self.history.ended = Some(at);
    }

    fn push(&mut self, event: HistoryEvent) -> usize {
        self.push_at(self.at, event)
    }

    fn push_at(&mut self, at: Option<Timestamp>, event: HistoryEvent) -> usize {
        let index = self.history.items.len();
        if let HistoryContents::Last(count) = self.contents
            && matches!(event, HistoryEvent::Message(_) | HistoryEvent::Turn(_))
        {
            self.last.push_back(index);
            if self.last.len() > count.max(1)
                && let Some(first) = self.last.pop_front()
                && let Some(item) = self.history.items.get_mut(first)
            {
                item.event.clear();
            }
        }
        self.history.items.push(HistoryItem { at, event });
        index
    }

    fn add_message(
        &mut self,
        entry: MessageEntry,
        detail: Option<ToolDetail>,
        usage: Option<Usage>,
    ) {
        if self.history.project.is_none() {
            self.history.project = entry.cwd.as_ref().map(PathBuf::from);
        }
        self.history.end = None;
        match entry.message.role {
            Role::Assistant => self.reply(entry, usage.unwrap_or_default()),
            Role::User => self.user_message(entry, detail),
        }
    }

    fn reply(&mut self, entry: MessageEntry, usage: Usage) {
        self.awaits_prompt = false;
        // Other programs write one line for each block.
        let continues = entry.continues_reply() || !entry.ours;
        let index = match self.reply.filter(|_| continues) {
            Some(index) => index,
            None => self.begin_turn(&entry, usage),
        };
        self.reply = Some(index);
        let MessageEntry { message, stop_reason, .. } = entry;
        let Some(turn) = self.turn_at(index) else { return };
        turn.stop_reason = stop_reason.or(turn.stop_reason.take());
        let mut calls = Vec::new();
        for block in message.content {
            if let Block::ToolUse { id, name, input, .. } = block {
                calls.push((id.clone(), (index, turn.tools.len())));
                turn.tools.push(ToolRun::new(id, name, input));
            } else {
                turn.content.push(block);
            }
        }
        self.calls.extend(calls);
    }

    fn begin_turn(&mut self, entry: &MessageEntry, usage: Usage) -> usize {
        let model = entry.model.clone().unwrap_or_default();
        let before = self.history.turns().map(|turn| &turn.model).rfind(|name| !name.is_empty());
        if let Some(from) = before.filter(|from| **from != model && !model.is_empty()).cloned() {
            self.push(HistoryEvent::ModelSwitch { from, to: model.clone() });
        }
        self.history.totals.count_turn(Some(&*model).filter(|name| !name.is_empty()));
        let number = self.history.totals.turns;
        let took = self.sent.zip(self.at).and_then(|(from, to)| elapsed(from, to));
        let turn = TurnRecord { number, model, usage, took, ..TurnRecord::default() };
        self.push(HistoryEvent::Turn(Box::new(turn)))
    }

    fn turn_at(&mut self, index: usize) -> Option<&mut TurnRecord> {
        let event = &mut self.history.items.get_mut(index)?.event;
        if let HistoryEvent::Turn(turn) = event { Some(turn) } else { None }
    }

    fn tool(&mut self, call: &str) -> Option<&mut ToolRun> {
        let (item, tool) = *self.calls.get(call)?;
        self.turn_at(item)?.tools.get_mut(tool)
    }

    fn user_message(&mut self, entry: MessageEntry, detail: Option<ToolDetail>) {
        self.reply = None;
        let (mut rest, mut detail) = (Vec::new(), detail);
        for block in entry.message.content {
            if let Block::ToolResult { tool_use_id, content, is_error } = block {
                self.result(&tool_use_id, content, is_error, detail.take());
            } else {
                rest.push(block);
            }
        }
        if rest.is_empty() {
            return;
        }
        // A fork begins with the messages that it copied, before its first process.
        let is_copied = self.epoch == 0;
        let is_prompt = mem::take(&mut self.awaits_prompt) || is_copied || !entry.ours;
        let author = if is_prompt { MessageAuthor::User } else { MessageAuthor::Outlast(None) };
        if is_prompt {
            self.prompts += 1;
            self.history.stop_hooks.clear();
        }
        let text = texts_of(&rest).collect::<Vec<_>>().join("\n\n");
        let media = rest.len() - texts_of(&rest).count();
        self.push(HistoryEvent::Message(RecordedMessage { author, text, media }));
    }

    fn result(
        &mut self,
        call: &str,
        output: Vec<Block>,
        is_error: bool,
        detail: Option<ToolDetail>,
    ) {
        let (at, started) = (self.at, self.started.get(call).copied());
        // A later process recorded the result of a call that it did not run: the outcome is
        // unknown.
        let is_lost = started.is_some_and(|epoch| epoch < self.epoch);
        let keeps_all = self.contents != HistoryContents::WithoutOutputs;
        let Some(tool) = self.tool(call) else { return };
        tool.state = match (is_error, started) {
            _ if is_lost => ToolRunState::Unknown,
            (false, _) => ToolRunState::Succeeded,
            (true, Some(_)) => ToolRunState::Failed,
            (true, None) => ToolRunState::NotRun,
        };
        (tool.ended, tool.detail) = (at, detail);
        if keeps_all || tool.state != ToolRunState::Succeeded {
            tool.output = output;
        }
    }

    fn end_process(&mut self) {
        let worked = self.process_began.take().zip(self.history.ended);
        let worked = worked.and_then(|(from, to)| elapsed(from, to)).unwrap_or(Duration::ZERO);
        self.history.worked += worked;
    }

    /// Completes the items since the last step by the facts in this one.
    fn explain_items(&mut self, step: &Transition) {
        let mut nudges = [step.edit.say, step.edit.notice].into_iter().flatten();
        let is_summary = step.edit.reply == ReplyDisposition::Summary;
        let mut has_turn = false;
        for item in self.history.items.iter_mut().skip(self.since_step) {
            has_turn |= item.turn().is_some();
            if let HistoryEvent::Message(message) = &mut item.event
                && let MessageAuthor::Outlast(why @ None) = &mut message.author
            {
                *why = nudges.next();
            } else if let HistoryEvent::HistoryChange { messages } = item.event
                && is_summary
            {
                item.event = HistoryEvent::Compaction { messages };
            }
        }
        if step.edit.reply == ReplyDisposition::Keep && !has_turn {
            // A reply with thinking only has no message line.
            self.history.totals.count_turn(None);
            let number = self.history.totals.turns;
            let turn = TurnRecord { number, ..TurnRecord::default() };
            self.push(HistoryEvent::Turn(Box::new(turn)));
        }
    }

    /// Assigns the last cost since the previous step to the turn that this step keeps, if it keeps
    /// one. The other costs become items of their own.
    fn flush_spending(&mut self, step: Option<&Transition>) {
        let mut spent = mem::take(&mut self.spent);
        let keeps = step.is_some_and(|step| step.edit.reply == ReplyDisposition::Keep);
        let turn = (self.since_step..self.history.items.len())
            .rfind(|index| self.turn_at(*index).is_some())
            .filter(|_| keeps);
        if let Some(turn) = turn.and_then(|index| self.turn_at(index))
            && let Some(last) = spent.pop()
        {
            (turn.cost, turn.usage) = (last.cost, last.usage);
        }
        let at = self.history.ended;
        for spend in spent {
            self.push_at(at, HistoryEvent::Spend(spend));
        }
    }

    /// Begins or ends a pause. Its duration is measured on the run's own clock.
    fn follow_pause(&mut self, step: &Transition) {
        let pause = if let Phase::Awaiting { until } = step.next.phase {
            Some((until, WaitCause::BackgroundWork))
        } else {
            step.next.phase.pause().map(|(until, why)| (until, why.into()))
        };
        match (pause, self.pause) {
            (Some((until, cause)), None) => {
                let wait = WaitRecord { cause, planned: step.at.until(until), waited: None };
                let item = self.push(HistoryEvent::Wait(wait));
                self.pause = Some((item, step.at));
            }
            (None, Some((item, since))) => {
                if let Some(HistoryItem { event: HistoryEvent::Wait(wait), .. }) =
                    self.history.items.get_mut(item)
                {
                    wait.waited = Some(since.until(step.at));
                }
                self.pause = None;
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}

impl JournalView<'_> for HistoryBuilder {
    fn open(&mut self, open: &OpenRecord) {
        self.flush_spending(None);
        self.pause = None;
        self.sent = None;
        self.requests.interrupt();
        self.history.limits = Some(open.limits);
        self.history.in_flight = (Money::ZERO, open.model.clone());
        self.epoch = open.epoch;
        self.awaits_prompt = open.carry == CarryOver::Fresh;
        self.history.end = None;
        self.history.project = Some(PathBuf::from(&open.cwd));
        self.since_step = self.push(HistoryEvent::Process(Box::new(open.clone()))) + 1;
    }

    fn intent(&mut self, calls: &[ToolStarted]) {
        let at = self.at;
        for ToolStarted { id, changed, .. } in calls {
            self.started.insert(id.clone(), self.epoch);
            let Some(tool) = self.tool(id) else { continue };
            // The state stays unknown if the process is killed before it records the result.
            (tool.started, tool.state) = (at, ToolRunState::Unknown);
            if let Some(input) = changed {
                (tool.input, tool.is_changed) = (input.clone(), true);
            }
        }
    }

    fn transition(&mut self, step: &Transition) {
        let at = self.at;
        // The step proves the end, even if the record of the end was cut off.
        let reason = step.action.end();
        self.history.in_flight.0 = worst_case(self.history.in_flight.0, step);
        self.history.end = reason.map(|reason| HistoryEnd { reason, error: None, at });
        self.explain_items(step);
        self.requests.step(
            step,
            CallContext {
                at,
                prompt: self.prompts,
                turns: self.history.totals.turns,
                usage: self.spent.last().map(|spend| spend.usage),
            },
        );
        self.flush_spending(Some(step));
        if let Event::Consulted(decision) = step.event {
            self.history.stop_hooks.push(decision);
        }
        if let Event::Checked { passed } = step.event {
            // Only notices about the check can be between the two steps, so the insertion does not
            // shift an item whose index is stored.
            let failure = self.failed_check.take().filter(|_| !passed);
            let item = HistoryItem { at, event: HistoryEvent::Requirement { passed, failure } };
            let index = self.since_step.min(self.history.items.len());
            self.history.items.insert(index, item);
        }
        if let Some(mut record) = failure_of(step) {
            if matches!(step.event, Event::Failed(_)) {
                record.took = self.sent.zip(at).and_then(|(from, to)| elapsed(from, to));
            }
            self.push(HistoryEvent::Failure(record));
        }
        self.follow_pause(step);
        if matches!(step.action, Action::Ask(_)) {
            self.sent = at;
        }
        self.since_step = self.history.items.len();
    }

    fn spend(&mut self, spend: &SpendRecord) {
        self.history.totals.add_record(spend);
        self.history.in_flight.0 = Money::ZERO;
        self.spent.push(spend.clone());
    }

    fn rewrite(&mut self, _after: Option<&str>, messages: &[Message]) {
        self.requests.rewritten(messages);
        self.push(HistoryEvent::HistoryChange { messages: messages.len() });
    }

    fn recovery(&mut self, record: &RecoveryRecord) {
        self.push(HistoryEvent::Recovery(Box::new(record.clone())));
    }

    fn background(&mut self, changes: &BackgroundChanges) {
        self.push(HistoryEvent::Background(changes.clone()));
    }

    fn learned_window(&mut self, _model: &str, tokens: u64) {
        self.requests.window(tokens);
    }

    fn contract(&mut self, contract: &Contract) {
        self.history.contract = Some(contract.clone());
    }

    fn failed_check(&mut self, check: &FailedCheck) {
        self.failed_check = Some(Box::new(check.clone()));
    }

    fn title(&mut self, title: &str) {
        self.history.title = Some(title.to_owned());
    }

    fn end(&mut self, reason: StopReason, error: Option<&str>) {
        self.flush_spending(None);
        let end = HistoryEnd { reason, error: error.map(str::to_owned), at: self.at };
        self.push(HistoryEvent::End(end.clone()));
        self.history.end = Some(end);
        self.awaits_prompt = true;
        self.pause = None;
    }
}

/// Returns the failure that a step reports. `None` if there was none, and for a plan that is only a
/// probe, an early return, or a stop that no failed request caused.
fn failure_of(step: &Transition) -> Option<FailureRecord> {
    let plan = step.plan?;
    let is_cause = !matches!(plan, RecoveryPlan::Stop(_)) || matches!(step.event, Event::Failed(_));
    let class = step.failure_class().filter(|_| is_cause && !plan.info().done.is_empty())?;
    Some(FailureRecord { class, plan, took: None })
}
