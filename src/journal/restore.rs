//! Rebuilds a session from journal entries: the conversation, its cost, and interrupted calls.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::recovery::{
    Incomplete, LeftOff, Limits, LoopDetector, Moment, Money, RecoveryLog, RefusedField,
    ReplyDisposition, Run, StopReason, ToolCallRecord, Transition,
};
use crate::transcript::{
    Block, HistoryRepair, Message, Role, answer_calls, repair_history, strip_thinking,
};

use super::SessionId;
use super::damage::Rest;
use super::ended_calls::UndoneCalls;
use super::entry::{
    BackgroundChanges, BackgroundWork, CarryOver, Damage, OpenRecord, SpendRecord, ToolStarted,
};
use super::error::JournalError;
use super::learned_facts::LearnedFacts;
use super::past_agents::{self, PastAgent};
use super::prompt_fold::PromptFold;
use super::reader::{JournalContents, MessageEntry};
use super::recorded_prompt::RecordedPrompt;
use super::terms::Terms;
use super::tool_results::{
    answers_of, call_ids, interrupted_answer, merge_branch_results, results_off_chain,
};
use super::totals::{SessionTotals, TurnCounting, finish_reason, worst_case};
use super::view::JournalView;

/// A session as restored from its file.
#[derive(Clone, Debug)]
pub struct RestoredSession {
    pub id: SessionId,
    /// A valid history, which may end with a message of the assistant. Empty for an unused session.
    pub messages: Vec<Message>,
    /// The repairs that were made, apart from answers to interrupted calls.
    pub repairs: Vec<HistoryRepair>,
    /// The state machine after its last step; `None` if there is none, or this version cannot read
    /// it.
    pub run: Option<Run>,
    /// The state of the last prompt, folded from its records.
    pub recorded: RecordedPrompt,
    /// The position of the last prompt. `None`: the session can only go on with a new prompt.
    pub left_off: Option<LeftOff>,
    /// True if the last message has a call that a hook deferred and that has no result.
    pub deferred: bool,
    /// The stop reason of the last prompt, recorded or only decided. `None` if there is none: then
    /// turns and money of `prompt` count towards the totals of its continuation.
    pub ended: Option<StopReason>,
    /// Totals of the last prompt.
    pub prompt: SessionTotals,
    /// Totals of the session.
    pub session: SessionTotals,
    /// The recoveries of the last prompt. Unfinished ones continue.
    pub recovery: RecoveryLog,
    /// The loop detector's state for the last prompt.
    pub loop_detector: LoopDetector,
    pub learned_facts: LearnedFacts,
    /// The worst-case cost of a call that was in flight when the process died. Whether it was
    /// billed is unknown, so the totals include it.
    pub in_flight: Money,
    /// The model that this cost is booked under.
    pub in_flight_model: String,
    /// Number of torn lines that were dropped.
    pub dropped_records: u32,
    /// The damage of the file, if only the part before it is used.
    pub damage: Option<Damage>,
    /// The contract and the first prompt of the session, if recorded.
    pub terms: Terms,
    /// Working time of the processes of the last prompt, each up to its last record.
    pub worked: Duration,
    /// Started calls that were answered with "outcome unknown".
    pub unknown_outcomes: u32,
    pub cwd: Option<PathBuf>,
    /// The model that was requested.
    pub model: Option<String>,
    /// The model that answered last, by the API's name. All thinking is from it.
    pub answered_by: Option<String>,
    /// The requested name of the model in `answered_by`, if known.
    pub signed_by: Option<String>,
    pub permission_mode: Option<String>,
    pub limits: Option<Limits>,
    /// The MCP servers that the last process required.
    pub required_servers: Vec<String>,
    /// The sub-agents of the last prompt.
    pub agents: Vec<PastAgent>,
    pub background: PastBackground,
}

/// The background work of earlier processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastBackground {
    /// Number of commands that they started.
    pub commands: usize,
    /// The work whose end was not reported to the model.
    pub lost: Vec<BackgroundWork>,
}

impl PastBackground {
    fn apply(&mut self, changes: &BackgroundChanges) {
        self.commands = self.commands.max(changes.commands);
        self.lost.extend(changes.started.iter().cloned());
        self.lost.retain(|work| !changes.reported.iter().any(|id| id == work.id()));
    }
}

/// The message up to which a session is restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// The id of the last message that is kept.
    pub message: String,
    /// The id of the prompt whose turn is dropped. If there is one, nothing else may be dropped.
    pub dropped_turn: Option<String>,
}

/// Data that a continuing writer needs, beside the restored session.
#[derive(Debug, Default)]
pub(super) struct RestoreRemarks {
    /// The last message.
    pub(super) leaf: Option<String>,
    /// Number of processes that wrote to the session.
    pub(super) epoch: u64,
    /// Answers to interrupted calls: in the restored messages, but not in the file.
    pub(super) answers: Vec<Block>,
}

pub(super) fn restore<'a>(
    id: SessionId,
    contents: &'a JournalContents,
    rest: Option<&'a Rest>,
    agents: &[PastAgent],
    point: Option<&'a ResumePoint>,
) -> Result<(RestoredSession, RestoreRemarks), JournalError> {
    let mut story = SessionReplay::default();
    contents.entries.iter().for_each(|entry| entry.show(&mut story));
    rest.into_iter().flat_map(Rest::spending_records).for_each(|spend| spend.show(&mut story));
    if let Some(point) = point {
        story.cut(&id, point)?;
    }
    let chain = story.chain();
    let (leaf, is_recorded) =
        (chain.last().map(|entry| entry.uuid.clone()), story.records_last_prompt(&chain));
    let answered_by = chain.iter().rev().find_map(|entry| entry.model.clone());
    let cwd = chain.last().and_then(|entry| entry.cwd.clone());
    let own = chain.iter().filter(|entry| entry.ours);
    let ours: HashSet<&str> = own.flat_map(|entry| call_ids(&entry.message)).collect();
    let mut messages = story.join(&chain, answered_by.as_deref());
    let unknown = |id: &str| {
        // Its intent may be among the lines that were left out.
        rest.is_some() || !ours.contains(id) || story.intents.contains_key(id)
    };
    let deferred = story.deferred && rest.is_none() && ends_with_calls(&messages);
    let held = if deferred { messages.pop() } else { None };
    let outcome = |id: &str| interrupted_answer(story.intents.get(id).copied(), unknown(id));
    let describe = |id: &str| past_agents::describe_call(agents, id, outcome(id));
    let open = answer_calls(&mut messages, describe);
    let unknown_outcomes = open.iter().filter(|id| unknown(id)).count();
    let answers = answers_of(&messages, &open);
    let (mut messages, repairs) = repair_history(messages, describe);
    messages.extend(held);
    let mut recorded = mem::take(&mut story.fold).recorded();
    if let Some(note) = rest.map(Rest::note_to_model) {
        recorded.add_user_message(std::slice::from_ref(&note), None);
        append_to_user(&mut messages, note);
    }
    let left_off = left_off(&messages, is_recorded.then(|| recorded.left_off()));
    past_agents::add_spending(agents, &mut story.session, 0);
    past_agents::add_spending(agents, &mut story.prompt, story.prompt_epoch);
    let (asked, opened) = (story.book_in_flight(), story.opened);
    let restored = RestoredSession {
        id,
        messages,
        repairs,
        run: story.run,
        recorded,
        left_off,
        deferred,
        ended: story.ended.or(story.planned_end),
        prompt: story.prompt,
        session: story.session,
        recovery: story.recovery.resumed(),
        loop_detector: story.loop_detector,
        learned_facts: story.learned_facts,
        in_flight: story.in_flight,
        in_flight_model: asked,
        dropped_records: rest.map_or(contents.torn_lines, |rest| rest.damage.dropped_records),
        damage: rest.map(|rest| rest.damage.clone()),
        terms: Terms::default(),
        worked: story.worked + Moment::default().until(story.now),
        unknown_outcomes: u32::try_from(unknown_outcomes).unwrap_or(u32::MAX),
        cwd: opened.map(|open| open.cwd.clone()).or(cwd).map(PathBuf::from),
        model: opened.map(|open| open.model.clone()),
        answered_by,
        signed_by: story.signed_by.map(str::to_owned),
        permission_mode: opened.map(|open| open.permission_mode.clone()),
        limits: opened.map(|open| open.limits),
        required_servers: opened.map_or_else(Vec::new, |it| it.required_servers.clone()),
        agents: agents.iter().filter(|agent| agent.epoch >= story.prompt_epoch).cloned().collect(),
        background: story.background,
    };
    Ok((restored, RestoreRemarks { leaf, epoch: opened.map_or(0, |open| open.epoch), answers }))
}

/// Returns the position of the prompt after these messages. The records of outlast decide; without
/// them, only a message that the model has not answered can be continued.
fn left_off(messages: &[Message], recorded: Option<LeftOff>) -> Option<LeftOff> {
    let is_unanswered = messages.last()?.role == Role::User;
    match recorded {
        None => is_unanswered.then_some(LeftOff::ReplyDue),
        // The reply is there, but the decision about it is not.
        Some(LeftOff::ReplyDue) if !is_unanswered => {
            Some(LeftOff::Incomplete(Incomplete::UnknownReason))
        }
        recorded @ Some(_) => recorded,
    }
}

fn ends_with_calls(messages: &[Message]) -> bool {
    messages.last().is_some_and(|last| call_ids(last).next().is_some())
}

/// Adds a block to the last user message.
fn append_to_user(messages: &mut Vec<Message>, block: Block) {
    match messages.last_mut() {
        Some(last) if last.role == Role::User => last.content.push(block),
        Some(_) | None => messages.push(Message::user(vec![block])),
    }
}

/// The state while entries are replayed in order.
#[derive(Default)]
struct SessionReplay<'a> {
    messages: Vec<&'a MessageEntry>,
    /// Number of messages that are older than the process that started the last prompt.
    old_messages: usize,
    /// The value of `old_messages` for each prompt, from the first on.
    prompt_starts: Vec<usize>,
    /// The epoch of that process.
    prompt_epoch: u64,
    /// The last message of the conversation, if it is not the last one of the file.
    leaf: Option<&'a str>,
    /// Parents of messages and links, by uuid.
    links: HashMap<&'a str, Option<&'a str>>,
    /// Calls that were about to run, with their inputs if changed.
    intents: HashMap<&'a str, Option<&'a Value>>,
    opened: Option<&'a OpenRecord>,
    run: Option<Run>,
    fold: PromptFold,
    /// True if the records of the last prompt are those of the session that this one was forked
    /// from.
    is_forked: bool,
    /// True if a hook deferred a call, and no message or start of a call was recorded since.
    deferred: bool,
    ended: Option<StopReason>,
    /// The stop reason that the state machine has chosen.
    planned_end: Option<StopReason>,
    prompt: SessionTotals,
    session: SessionTotals,
    recovery: RecoveryLog,
    loop_detector: LoopDetector,
    learned_facts: LearnedFacts,
    background: PastBackground,
    /// The time of the current process's last step.
    now: Moment,
    /// Working time of earlier processes on the last prompt.
    worked: Duration,
    in_flight: Money,
    /// The model whose reply was paid for last.
    paid: Option<&'a str>,
    /// The model that was charged for last, including upper bounds.
    charged: Option<&'a str>,
    signed_by: Option<&'a str>,
    counted: TurnCounting,
    rewritten: Vec<RewrittenHistory<'a>>,
}

/// A replaced conversation.
struct RewrittenHistory<'a> {
    /// The last message before the replacement.
    after: Option<&'a str>,
    /// The model of its thinking.
    model: Option<&'a str>,
    messages: &'a [Message],
}

impl<'a> JournalView<'a> for SessionReplay<'a> {
    fn message(&mut self, entry: &'a MessageEntry) {
        self.fold.message(entry);
        self.begin_prompt_after_end();
        self.deferred = false;
        // The lines of one reply count once.
        let begins = entry.message.role == Role::Assistant && !entry.continues_reply();
        if begins && entry.ours && self.counted.observe_reply() {
            self.count_turn();
        }
        if begins && !entry.is_sidechain {
            self.signed_by = self.paid.take().or(entry.model.as_deref());
        }
        if entry.ours {
            self.is_forked = false;
        }
        self.links.insert(&entry.uuid, entry.parent.as_deref());
        self.messages.push(entry);
    }

    fn link(&mut self, uuid: &'a str, parent: Option<&'a str>) {
        self.links.insert(uuid, parent);
    }

    fn unread_transition(&mut self) {
        self.fold.unread_transition();
        self.run = None;
        self.in_flight = Money::ZERO;
    }

    fn open(&mut self, open: &'a OpenRecord) {
        self.fold.open(open);
        self.worked += Moment::default().until(mem::take(&mut self.now));
        match open.carry {
            CarryOver::Fresh => {
                self.begin_prompt();
                self.prompt_epoch = open.epoch;
                self.old_messages = self.messages.len();
                self.prompt_starts.push(self.old_messages);
            }
            CarryOver::On => self.recovery = mem::take(&mut self.recovery).resumed(),
        }
        self.ended = None;
        self.opened = Some(open);
    }

    fn transition(&mut self, transition: &'a Transition) {
        self.fold.transition(transition);
        self.begin_prompt_after_end();
        if self.counted.observe_step(transition) {
            self.count_turn();
        }
        self.recovery.observe(transition, self.prompt.turns);
        self.now = transition.at;
        self.in_flight = worst_case(self.in_flight, transition);
        self.planned_end = finish_reason(transition.action);
        if transition.edit.reply == ReplyDisposition::Summary {
            self.loop_detector = LoopDetector::default();
        }
        self.run = Some(transition.next);
    }

    fn intent(&mut self, calls: &'a [ToolStarted]) {
        self.fold.intent(calls);
        self.deferred = false;
        self.intents.extend(calls.iter().map(|call| (&*call.id, call.changed.as_ref())));
    }

    fn spend(&mut self, spend: &'a SpendRecord) {
        self.fold.spend(spend);
        self.begin_prompt_after_end();
        self.prompt.add_record(spend);
        self.session.add_record(spend);
        self.recovery.record_cost(spend.cost, spend.usage.input() + spend.usage.output_tokens);
        self.charged = Some(&spend.model);
        if !spend.is_upper_bound {
            self.paid = Some(&spend.model);
        }
        self.in_flight = Money::ZERO;
    }

    fn rewrite(&mut self, after: Option<&'a str>, messages: &'a [Message]) {
        self.fold.rewrite(after, messages);
        self.begin_prompt_after_end();
        let model = self.messages.iter().rev().find_map(|entry| entry.model.as_deref());
        self.rewritten.push(RewrittenHistory { after, model, messages });
    }

    fn tool_calls(&mut self, calls: &'a [ToolCallRecord]) {
        let limits = self.opened.map(|open| open.limits.loops);
        self.loop_detector.observe(calls, limits.unwrap_or_default());
    }

    fn undone_calls(&mut self, calls: &'a UndoneCalls) {
        self.fold.undone_calls(calls);
    }

    fn learned_window(&mut self, model: &'a str, tokens: u64) {
        self.learned_facts.learned_window(model, tokens);
    }

    fn learned_output_limit(&mut self, model: &'a str, tokens: u32) {
        self.learned_facts.learned_output_limit(model, tokens);
    }

    fn refused_field(&mut self, refused: &'a RefusedField) {
        self.learned_facts.refused_field(refused);
    }

    fn background(&mut self, changes: &'a BackgroundChanges) {
        self.background.apply(changes);
    }

    fn forked(&mut self, recorded: &'a RecordedPrompt) {
        self.fold.forked(recorded);
        self.is_forked = true;
    }

    fn end(&mut self, reason: StopReason) {
        self.fold.end(reason);
        self.ended = Some(reason);
        self.deferred = reason == StopReason::ToolDeferred;
        self.recovery.end(self.now, reason);
        self.in_flight = Money::ZERO;
    }
}

impl<'a> SessionReplay<'a> {
    /// Adds the worst-case cost of the call that was in flight. Returns the model that it is booked
    /// under.
    fn book_in_flight(&mut self) -> String {
        let opened = self.opened.map(|open| open.model.as_str());
        let model = self.charged.or(opened).unwrap_or("unknown");
        self.prompt.add_in_flight(self.in_flight, model);
        self.session.add_in_flight(self.in_flight, model);
        self.recovery.record_cost(self.in_flight, 0);
        model.to_owned()
    }

    fn count_turn(&mut self) {
        for sums in [&mut self.prompt, &mut self.session] {
            sums.count_turn(self.paid);
        }
    }

    fn begin_prompt(&mut self) {
        (self.prompt, self.recovery) = (SessionTotals::default(), RecoveryLog::default());
        (self.loop_detector, self.planned_end) = (LoopDetector::default(), None);
        self.worked = Duration::ZERO;
        self.is_forked = false;
    }

    /// Starts a new prompt if the last one had ended: the same process continued with another one.
    fn begin_prompt_after_end(&mut self) {
        if self.ended.take().is_some() {
            self.begin_prompt();
        }
    }

    /// Returns true if the last message belongs to the last prompt, and outlast has recorded it.
    fn records_last_prompt(&self, chain: &[&MessageEntry]) -> bool {
        let is_own = chain.last().is_some_and(|last| last.ours) && self.leaf.is_none();
        is_own && (self.is_forked || self.messages.len() > self.old_messages)
    }

    /// Drops everything after a message. The cost stays; the state of the last prompt is discarded.
    ///
    /// # Errors
    /// There is no such message, or more than the turn that may be dropped follows it.
    fn cut(&mut self, id: &SessionId, point: &'a ResumePoint) -> Result<(), JournalError> {
        let message = &point.message;
        if !self.messages.iter().any(|entry| entry.uuid == *message) {
            return Err(JournalError::NoMessage { id: id.clone(), message: message.clone() });
        }
        if let Some(turn) = &point.dropped_turn {
            self.check_dropped(message, turn).map_err(|why| JournalError::DropsMore { why })?;
        }
        self.leaf = Some(message);
        self.begin_prompt();
        self.fold = PromptFold::default();
        (self.run, self.ended) = (None, None);
        self.deferred = false;
        self.background.lost.clear();
        Ok(())
    }

    /// Checks that the messages after `message` are the turn of one prompt.
    fn check_dropped(&self, message: &str, turn: &str) -> Result<(), &'static str> {
        let chain = self.chain();
        let Some(kept) = chain.iter().position(|entry| entry.uuid == message) else {
            return Err("the message is not in the last branch of the conversation");
        };
        let dropped = &chain[kept + 1..];
        let Some(first) = dropped.first() else { return Ok(()) };
        if first.uuid != turn {
            return Err("what follows the message is not the turn of that prompt");
        }
        let index = |uuid: &str| self.messages.iter().position(|entry| entry.uuid == uuid);
        let later = self.prompt_starts.iter().any(|start| Some(*start) > index(turn));
        let is_prompt = |entry: &&&MessageEntry| {
            entry.message.role == Role::User && !entry.ours && !entry.answers()
        };
        if later || dropped[1..].iter().any(|entry| is_prompt(&entry)) {
            return Err("further prompts follow that turn");
        }
        Ok(())
    }

    /// The messages of the conversation from first to last, without other branches and side
    /// conversations.
    fn chain(&self) -> Vec<&'a MessageEntry> {
        let by_uuid: HashMap<&str, &MessageEntry> =
            self.messages.iter().map(|entry| (entry.uuid.as_str(), *entry)).collect();
        let mut chain = Vec::new();
        let mut seen = HashSet::new();
        let last = self.messages.iter().rev().find(|entry| !entry.is_sidechain);
        let mut next = self.leaf.or(last.map(|entry| entry.uuid.as_str()));
        while let Some(uuid) = next.filter(|uuid| seen.insert(*uuid)) {
            chain.extend(by_uuid.get(uuid).copied());
            next = self.links.get(uuid).copied().flatten();
        }
        chain.reverse();
        chain
    }

    /// Converts lines to messages. Consecutive lines of the same role form one message. Programs
    /// that write one line per block leave results on side branches, which are added.
    fn join(&self, chain: &[&MessageEntry], answered_by: Option<&str>) -> Vec<Message> {
        let on_branches = results_off_chain(&self.messages, chain);
        let (base, chain) = self.rewritten(chain, answered_by);
        let mut messages: Vec<(Message, usize)> =
            base.into_iter().map(|message| (message, 1)).collect();
        for entry in chain {
            let mut own = vec![entry.message.clone()];
            if entry.model.as_deref() != answered_by && entry.message.role == Role::Assistant {
                strip_thinking(&mut own);
            }
            let Some(message) = own.pop() else { continue };
            match messages.last_mut() {
                Some((last, lines)) if last.role == message.role => {
                    last.content.extend(message.content);
                    *lines += 1;
                }
                Some(_) | None => messages.push((message, 1)),
            }
        }
        merge_branch_results(messages, on_branches)
    }

    /// The last replacement of the conversation on this branch, and the lines after it.
    fn rewritten<'b>(
        &self,
        chain: &'b [&'a MessageEntry],
        answered_by: Option<&str>,
    ) -> (Vec<Message>, &'b [&'a MessageEntry]) {
        let end_of = |rewritten: &RewrittenHistory<'_>| {
            let Some(after) = rewritten.after else { return Some(0) };
            chain.iter().position(|entry| entry.uuid == after).map(|at| at + 1)
        };
        let last = self.rewritten.iter().rev().find_map(|one| Some((one, end_of(one)?)));
        let Some((rewritten, end)) = last else { return (Vec::new(), chain) };
        let mut messages = rewritten.messages.to_vec();
        if rewritten.model != answered_by {
            strip_thinking(&mut messages);
        }
        (messages, &chain[end..])
    }
}
