//! Rebuilds a session from journal entries: the conversation, its cost, and interrupted calls.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::recovery::{
    LeftOff, LoopDetector, Moment, Money, RecoveryLog, ReplyDisposition, Run, StopReason,
    ToolCallRecord, Transition,
};
use crate::transcript::{
    Block, HistoryRepair, Message, Role, Usage, answer_calls, repair_history, strip_thinking,
};
use crate::types::ReadFile;

use super::SessionId;
use super::damage::Rest;
use super::entry::{BackgroundChanges, CarryOver, Damage, OpenRecord, SpendRecord, ToolStarted};
use super::error::JournalError;
use super::files_read::files_read;
use super::learned_facts::LearnedFacts;
use super::message_links::{MessageLinks, UserMessageIds};
use super::parsed_line::MessageEntry;
use super::past_agents::{self, PastAgent};
use super::past_background::PastBackground;
use super::prompt_fold::PromptFold;
use super::reader::JournalContents;
use super::recorded_prompt::RecordedPrompt;
use super::terms::Terms;
use super::tool_results::{
    answers_of, call_ids, ends_with_calls, interrupted_answer, left_off, merge_branch_results,
    results_off_chain,
};
use super::totals::{SessionTotals, TurnCounting, worst_case};
use super::view::JournalView;

/// A session as restored from its file, in parts. Each part has an owner in a run, which takes it
/// whole.
#[derive(Clone, Debug, Default)]
pub struct RestoredSession {
    pub conversation: RestoredConversation,
    pub totals: RestoredTotals,
    pub learned_facts: LearnedFacts,
    pub work: WorkInProgress,
    pub contract: RestoredContract,
}

/// The conversation, and its last prompt.
#[derive(Clone, Debug, Default)]
pub struct RestoredConversation {
    /// A valid history, which may end with a message of the model. Empty for an unused session.
    pub messages: Vec<Message>,
    /// The repairs that were made, apart from answers to interrupted calls.
    pub repairs: Vec<HistoryRepair>,
    /// The state of the last prompt, folded from its records.
    pub recorded: RecordedPrompt,
    /// The position of the last prompt. `None`: the session can only continue with a new prompt.
    pub left_off: Option<LeftOff>,
    /// True if the last message has a call that a hook deferred and that has no result.
    pub deferred: bool,
    /// True if the session begins as a copy of another one.
    pub is_fork: bool,
    /// The model that answered last, by the API's name. All thinking is from it.
    pub answered_by: Option<String>,
    /// The requested name of the model in `answered_by`, if known.
    pub signed_by: Option<String>,
    /// The token counts of the last reply, if the messages up to it are those that were sent.
    pub last_usage: Option<Usage>,
    pub user_message_ids: UserMessageIds,
}

/// Counts and costs.
#[derive(Clone, Debug, Default)]
pub struct RestoredTotals {
    /// Totals of the last prompt.
    pub prompt: SessionTotals,
    /// Totals of the session.
    pub session: SessionTotals,
    /// The recoveries of the last prompt. Unfinished ones continue.
    pub recovery: RecoveryLog,
    /// The worst-case cost of a call that was in flight when the process died. Whether it was
    /// billed is unknown, so the totals include it.
    pub in_flight: Money,
    /// The model that this cost is booked under.
    pub in_flight_model: String,
    /// Working time of the processes of the last prompt, each until its last record.
    pub worked: Duration,
    /// Started calls that were answered with "outcome unknown".
    pub unknown_outcomes: u32,
    /// Number of torn lines that were dropped.
    pub dropped_records: u32,
}

impl RestoredTotals {
    /// Returns the cost of the session before the last prompt.
    pub fn cost_before(&self) -> Money {
        self.session.spent.minus(self.prompt.spent)
    }

    /// Starts at zero for another prompt.
    pub fn begin_prompt(&mut self) {
        (self.prompt, self.recovery) = (SessionTotals::default(), RecoveryLog::default());
        self.worked = Duration::ZERO;
    }
}

/// The work on the last prompt.
#[derive(Clone, Debug, Default)]
pub struct WorkInProgress {
    /// The state machine after its last step; `None` if there is none, or this version cannot read
    /// it.
    pub run: Option<Run>,
    /// The stop reason of the last prompt, recorded or only decided. `None` if there is none: then
    /// its turns and money count towards the totals of its continuation.
    pub ended: Option<StopReason>,
    /// The loop detector's state.
    pub loop_detector: LoopDetector,
    /// The sub-agents of the last prompt.
    pub agents: Vec<PastAgent>,
    pub background: PastBackground,
    /// The files whose content is in the conversation.
    pub files_read: Vec<ReadFile>,
}

/// The facts that the session was started with, and the state of its file.
#[derive(Clone, Debug, Default)]
pub struct RestoredContract {
    /// The contract and the first prompt of the session, if recorded.
    pub terms: Terms,
    /// The last process. `None`: outlast did not write to the session.
    pub opened: Option<OpenRecord>,
    /// The folder that the session worked in.
    pub cwd: Option<PathBuf>,
    /// The damage of the file, if only the part before it is used.
    pub damage: Option<Damage>,
}

/// The message up to which a session is restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// The id of the last message that is kept.
    pub message: String,
    /// The id of the prompt whose turn is dropped. If there is one, nothing else may be dropped.
    pub dropped_turn: Option<String>,
}

/// Data that a continuing writer needs, besides the restored session.
#[derive(Debug, Default)]
pub(super) struct RestoreRemarks {
    /// The last message.
    pub(super) leaf: Option<String>,
    /// Answers to interrupted calls: in the restored messages, but not in the file.
    pub(super) answers: Vec<Block>,
    /// The ids of all messages of the file.
    pub(super) ids: HashSet<String>,
    /// The state of the last prompt after the lines of the file.
    pub(super) fold: PromptFold,
}

/// A session's file, with the journals of its sub-agents.
pub(super) struct ParsedFile {
    pub(super) contents: JournalContents,
    /// The part that was left out, if the file is damaged.
    pub(super) rest: Option<Rest>,
    pub(super) terms: Terms,
    pub(super) agents: Vec<PastAgent>,
}

impl ParsedFile {
    /// The facts that the session was started with. `cwd` is the folder of its last message.
    fn contract(&self, opened: Option<&OpenRecord>, cwd: Option<String>) -> RestoredContract {
        RestoredContract {
            terms: self.terms.clone(),
            opened: opened.cloned(),
            cwd: opened.map(|open| open.cwd.clone()).or(cwd).map(PathBuf::from),
            damage: self.rest.as_ref().map(|rest| rest.damage.clone()),
        }
    }
}

/// Restores a session, up to `point` if it is given.
///
/// # Errors
/// Those of [`SessionReplay::cut`].
pub(super) fn restore(
    id: &SessionId,
    file: &ParsedFile,
    point: Option<&ResumePoint>,
) -> Result<(RestoredSession, RestoreRemarks), JournalError> {
    let ParsedFile { contents, rest, agents, .. } = file;
    let mut replay = SessionReplay::of(file);
    if let Some(point) = point {
        replay.cut(id, point)?;
    }
    let chain = replay.chain();
    let leaf = chain.last().map(|entry| entry.uuid.clone());
    let is_recorded = replay.records_last_prompt(&chain);
    let answered_by = chain.iter().rev().find_map(|entry| entry.model.clone());
    let cwd = chain.last().and_then(|entry| entry.cwd.clone());
    let our_entries = chain.iter().filter(|entry| entry.ours);
    let our_calls: HashSet<&str> = our_entries.flat_map(|entry| call_ids(&entry.message)).collect();
    let mut messages = replay.join(&chain, answered_by.as_deref());
    // The intent of a call may be among the lines that were left out.
    let may_lack_intent = |id: &str| rest.is_some() || !our_calls.contains(id);
    let is_unknown = |id: &str| may_lack_intent(id) || replay.intents.contains_key(id);
    let deferred = replay.deferred && rest.is_none() && ends_with_calls(&messages);
    // The resumed run decides on the deferred calls, so they are not answered here.
    let deferred_message = if deferred { messages.pop() } else { None };
    let outcome = |id: &str| interrupted_answer(replay.intents.get(id).copied(), is_unknown(id));
    let describe = |id: &str| past_agents::describe_call(agents, id, outcome(id));
    let open = answer_calls(&mut messages, describe);
    let unknown_outcomes = open.iter().filter(|id| is_unknown(id)).count();
    let answers = answers_of(&messages, &open);
    let (mut messages, repairs) = repair_history(messages, describe);
    let last_usage = replay.last_usage(&chain).filter(|_| repairs.is_empty());
    messages.extend(deferred_message);
    let mut recorded = replay.fold.recorded().clone();
    if let Some(note) = rest.as_ref().map(Rest::note_to_model) {
        recorded.add_user_message(std::slice::from_ref(&note), None);
        Message::user(vec![note]).join(&mut messages);
    }
    let left_off = left_off(&messages, is_recorded.then(|| recorded.left_off()));
    replay.add_open_costs(agents);
    let user_message_ids = replay.user_message_ids(&chain);
    let ids = replay.messages.iter().map(|entry| entry.uuid.clone()).collect();
    let SessionReplay { opened, signed_by, now, prompt_epoch, fold, .. } = replay;
    let totals = RestoredTotals {
        recovery: replay.totals.recovery.resumed(),
        worked: replay.totals.worked + Moment::default().until(now),
        unknown_outcomes: u32::try_from(unknown_outcomes).unwrap_or(u32::MAX),
        dropped_records: rest
            .as_ref()
            .map_or(contents.torn_lines, |rest| rest.damage.dropped_records),
        ..replay.totals
    };
    let work = WorkInProgress {
        ended: replay.work.ended.or(replay.planned_end),
        agents: agents.iter().filter(|agent| agent.meta.epoch >= prompt_epoch).cloned().collect(),
        files_read: files_read(&contents.entries, point.map(|point| point.message.as_str())),
        ..replay.work
    };
    let contract = file.contract(opened, cwd);
    let conversation = RestoredConversation {
        messages,
        repairs,
        recorded,
        left_off,
        deferred,
        is_fork: false,
        answered_by,
        signed_by: signed_by.map(str::to_owned),
        last_usage,
        user_message_ids,
    };
    let learned_facts = replay.learned_facts;
    let restored = RestoredSession { conversation, totals, learned_facts, work, contract };
    Ok((restored, RestoreRemarks { leaf, answers, ids, fold }))
}

/// The state while entries are replayed in order.
#[derive(Default)]
struct SessionReplay<'a> {
    messages: Vec<&'a MessageEntry>,
    /// Number of messages that are older than the process that started the last prompt.
    old_messages: usize,
    /// The value of `old_messages` for each prompt, from the first on.
    prompt_starts: Vec<usize>,
    /// The epoch of the process that started the last prompt.
    prompt_epoch: u64,
    /// The last message of the conversation, if it is not the last one of the file.
    leaf: Option<&'a str>,
    links: MessageLinks<'a>,
    /// Calls that were about to run, with their inputs if changed.
    intents: HashMap<&'a str, &'a Option<Value>>,
    opened: Option<&'a OpenRecord>,
    fold: PromptFold,
    /// True if the records of the last prompt are those of the session that this one was forked
    /// from.
    is_forked: bool,
    /// True if a hook deferred a call, and no message or start of a call was recorded since.
    deferred: bool,
    /// The stop reason that the state machine has chosen.
    planned_end: Option<StopReason>,
    totals: RestoredTotals,
    learned_facts: LearnedFacts,
    work: WorkInProgress,
    /// The time of the current process's last step.
    now: Moment,
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
        self.links.add(&entry.uuid, entry.parent.as_deref());
        self.messages.push(entry);
    }

    fn link(&mut self, uuid: &'a str, parent: Option<&'a str>) {
        self.links.add(uuid, parent);
    }

    fn unread_transition(&mut self) {
        self.work.run = None;
        self.totals.in_flight = Money::ZERO;
    }

    fn open(&mut self, open: &'a OpenRecord) {
        self.totals.worked += Moment::default().until(mem::take(&mut self.now));
        match open.carry {
            CarryOver::Fresh => {
                self.begin_prompt();
                self.prompt_epoch = open.epoch;
                self.old_messages = self.messages.len();
                self.prompt_starts.push(self.old_messages);
            }
            CarryOver::On => {
                self.totals.recovery = mem::take(&mut self.totals.recovery).resumed();
                let run = &mut self.work.run;
                *run = run.map(|run| run.with_demands(open.new_demands, &open.limits));
            }
        }
        if open.forked_from.is_some() {
            // The copied messages are counted by the session that they come from.
            self.totals.begin_prompt();
            self.totals.session = SessionTotals::default();
        }
        self.work.ended = None;
        self.opened = Some(open);
    }

    fn transition(&mut self, transition: &'a Transition) {
        self.begin_prompt_after_end();
        if self.counted.observe_step(transition.edit.reply) {
            self.count_turn();
        }
        self.totals.recovery.observe(transition, self.totals.prompt.turns);
        self.now = transition.at;
        self.totals.in_flight = worst_case(self.totals.in_flight, transition);
        self.planned_end = transition.action.end();
        if transition.edit.reply == ReplyDisposition::Summary {
            self.work.loop_detector.record_compaction();
        }
        self.work.run = Some(transition.next);
    }

    fn intent(&mut self, calls: &'a [ToolStarted]) {
        self.deferred = false;
        self.intents.extend(calls.iter().map(|call| (&*call.id, &call.changed)));
    }

    fn spend(&mut self, spend: &'a SpendRecord) {
        self.totals.session.add_record(spend);
        if self.work.ended.is_some() {
            // That of a later prompt, of which damage has left nothing else.
            return;
        }
        self.totals.prompt.add_record(spend);
        let tokens = spend.usage.input() + spend.usage.output_tokens;
        self.totals.recovery.record_cost(spend.cost, tokens);
        self.charged = Some(&spend.model);
        self.paid = self.charged.filter(|_| !spend.is_upper_bound).or(self.paid);
        self.totals.in_flight = Money::ZERO;
    }

    fn rewrite(&mut self, after: Option<&'a str>, messages: &'a [Message]) {
        self.begin_prompt_after_end();
        let model = self.messages.iter().rev().find_map(|entry| entry.model.as_deref());
        self.rewritten.push(RewrittenHistory { after, model, messages });
    }

    fn tool_calls(&mut self, calls: &'a [ToolCallRecord]) {
        let limits = self.opened.map(|open| open.limits.loops);
        self.work.loop_detector.observe(calls, limits.unwrap_or_default());
    }

    fn background(&mut self, changes: &'a BackgroundChanges) {
        self.work.background.apply(changes);
    }

    fn forked(&mut self, _recorded: &'a RecordedPrompt) {
        self.is_forked = true;
    }

    fn end(&mut self, reason: StopReason, _error: Option<&str>) {
        self.work.ended = Some(reason);
        self.deferred = reason == StopReason::ToolDeferred;
        self.totals.recovery.end(self.now, reason);
        self.totals.in_flight = Money::ZERO;
    }
}

impl<'a> SessionReplay<'a> {
    /// Replays a file.
    fn of(file: &'a ParsedFile) -> Self {
        let mut replay = Self::default();
        for entry in &file.contents.entries {
            entry.show(&mut replay.fold);
            entry.show(&mut replay.learned_facts);
            entry.show(&mut replay);
        }
        for spend in file.rest.iter().flat_map(Rest::spending_records) {
            spend.show(&mut replay.fold);
            spend.show(&mut replay);
        }
        replay
    }

    /// Adds the spending of the sub-agents, and the worst-case cost of the call that was in flight.
    fn add_open_costs(&mut self, agents: &[PastAgent]) {
        past_agents::add_spending(agents, &mut self.totals.session, 0);
        past_agents::add_spending(agents, &mut self.totals.prompt, self.prompt_epoch);
        let opened = self.opened.map(|open| open.model.as_str());
        let model = self.charged.or(opened).unwrap_or("unknown");
        let RestoredTotals { prompt, session, recovery, in_flight, .. } = &mut self.totals;
        prompt.add_in_flight(*in_flight, model);
        session.add_in_flight(*in_flight, model);
        recovery.record_cost(*in_flight, 0);
        self.totals.in_flight_model = model.to_owned();
    }

    fn count_turn(&mut self) {
        for sums in [&mut self.totals.prompt, &mut self.totals.session] {
            sums.count_turn(self.paid);
        }
    }

    fn begin_prompt(&mut self) {
        self.totals.begin_prompt();
        (self.work.loop_detector, self.planned_end) = (LoopDetector::default(), None);
        self.is_forked = false;
    }

    /// Starts a new prompt if the last one had ended: the same process continued with another one.
    fn begin_prompt_after_end(&mut self) {
        if self.work.ended.take().is_some() {
            self.begin_prompt();
        }
    }

    /// Returns true if the last message belongs to the last prompt, and outlast has recorded it.
    fn records_last_prompt(&self, chain: &[&MessageEntry]) -> bool {
        let is_ours = chain.last().is_some_and(|last| last.ours) && self.leaf.is_none();
        is_ours && (self.is_forked || self.messages.len() > self.old_messages)
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
        (self.work.run, self.work.ended) = (None, None);
        self.deferred = false;
        self.work.background.lost.clear();
        self.work.background.folder = None;
        Ok(())
    }

    /// Checks that the messages after `message` are the turn of one prompt.
    fn check_dropped(&self, message: &str, turn: &str) -> Result<(), &'static str> {
        let chain = self.chain();
        let Some(last_kept) = chain.iter().position(|entry| entry.uuid == message) else {
            return Err("the message is not in the last branch of the conversation");
        };
        let dropped = &chain[last_kept + 1..];
        let Some(first) = dropped.first() else { return Ok(()) };
        if first.uuid != turn {
            return Err("what follows the message is not the turn of that prompt");
        }
        let index = |uuid: &str| self.messages.iter().position(|entry| entry.uuid == uuid);
        let later = self.prompt_starts.iter().any(|start| Some(*start) > index(turn));
        if later || dropped[1..].iter().any(|entry| entry.is_prompt() && !entry.ours) {
            return Err("further prompts follow that turn");
        }
        Ok(())
    }

    /// The messages of the conversation from first to last, without other branches and side
    /// conversations.
    fn chain(&self) -> Vec<&'a MessageEntry> {
        let by_uuid: HashMap<&str, &MessageEntry> =
            self.messages.iter().map(|entry| (entry.uuid.as_str(), *entry)).collect();
        let last = self.messages.iter().rev().find(|entry| !entry.is_sidechain);
        let Some(last) = self.leaf.or(last.map(|entry| entry.uuid.as_str())) else {
            return Vec::new();
        };
        let lineage = self.links.lineage(last).filter_map(|uuid| by_uuid.get(uuid).copied());
        let mut chain: Vec<&MessageEntry> = lineage.collect();
        chain.reverse();
        chain
    }

    /// The ids of the user's messages.
    fn user_message_ids(&self, chain: &[&MessageEntry]) -> UserMessageIds {
        let new = &self.messages[self.old_messages..];
        let new: HashSet<&str> = match self.leaf {
            None => new.iter().map(|entry| entry.uuid.as_str()).collect(),
            Some(_) => HashSet::new(),
        };
        let prompts = chain.iter().filter(|entry| entry.is_prompt());
        let ids = prompts.map(|entry| entry.uuid.clone());
        let is_last = |id: &String| self.opened.is_some() && new.contains(id.as_str());
        let (last, earlier) = ids.partition(is_last);
        UserMessageIds { earlier, last }
    }

    /// Converts lines to messages. Consecutive lines of the same role form one message. Programs
    /// that write one line per block leave results on side branches, which are added.
    fn join(&self, chain: &[&MessageEntry], answered_by: Option<&str>) -> Vec<Message> {
        let on_branches = results_off_chain(&self.messages, chain);
        let (base, chain) = self.rewritten(chain, answered_by);
        let mut messages: Vec<(Message, usize)> =
            base.into_iter().map(|message| (message, 1)).collect();
        for entry in chain {
            let mut stripped = vec![entry.message.clone()];
            if entry.model.as_deref() != answered_by && entry.message.role == Role::Assistant {
                strip_thinking(&mut stripped);
            }
            // A message of thinking only is dropped.
            let Some(message) = stripped.pop() else { continue };
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

    /// The token counts of the last reply that follows the last replacement of the conversation.
    fn last_usage(&self, chain: &[&MessageEntry]) -> Option<Usage> {
        let after = self.last_rewrite(chain).map_or(0, |(_, end)| end);
        chain[after..].iter().rfind(|entry| entry.message.role == Role::Assistant)?.usage
    }

    /// The last replacement of the conversation on this branch, and the lines after it.
    fn rewritten<'b>(
        &self,
        chain: &'b [&'a MessageEntry],
        answered_by: Option<&str>,
    ) -> (Vec<Message>, &'b [&'a MessageEntry]) {
        let Some((rewritten, end)) = self.last_rewrite(chain) else { return (Vec::new(), chain) };
        let mut messages = rewritten.messages.to_vec();
        if rewritten.model != answered_by {
            strip_thinking(&mut messages);
        }
        (messages, &chain[end..])
    }

    /// The last replacement on this branch, and the number of lines that it replaces.
    fn last_rewrite(&self, chain: &[&MessageEntry]) -> Option<(&RewrittenHistory<'a>, usize)> {
        let end_of = |rewritten: &RewrittenHistory<'_>| {
            let Some(after) = rewritten.after else { return Some(0) };
            chain.iter().position(|entry| entry.uuid == after).map(|at| at + 1)
        };
        self.rewritten.iter().rev().find_map(|rewritten| Some((rewritten, end_of(rewritten)?)))
    }
}
