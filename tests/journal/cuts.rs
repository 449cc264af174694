//! A result is what the session holds: a run that is killed or fails anywhere, and is resumed, ends
//! as it would have ended undisturbed, and prints the same again.
//!
//! `CUTS=100000` tries more cuts; `SEED=17` takes one story.

use std::fs;

use outlast::agent::{World, drive};
use outlast::journal::{Journal, JournalError, LockedSession, MessageMeta, OnDamage, SessionId};
use outlast::model::{Counts, EndWords, ModelReply, classify_reply};
use outlast::recovery::{
    Action, CutKind, Event, FailureStage, Fault, FaultKind, Interrupt, LeftOff, Limits, LoopStatus,
    Moment, Money, Nudge, ReplyDisposition, Run, StopHookDecision, StopReason, TokenEstimate,
    Transition, classify,
};
use outlast::transcript::{Block, Message, Role, Usage, history_violations};
use serde_json::{Value, json};

use super::session_fixture::{MODEL, Sandbox, opening};
use crate::support::rotation::number;
use crate::support::seeds::first_seed;

/// A reply of the scripted model.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scripted {
    Tool,
    Cut,
    CutThinking,
    Paused,
    /// It ends for an unknown reason.
    Odd,
    Answer,
    /// The structured output, beside another call.
    Output,
}

/// The replies of a model, and the checks that its answers have to pass.
#[derive(Debug)]
struct Story {
    replies: Vec<Scripted>,
    /// Number of objections by Stop hooks.
    objections: usize,
    /// Number of failures of the command of `--require`.
    failures: usize,
    limits: Limits,
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }
}

impl Story {
    fn of(dice: &mut Dice) -> Self {
        let limits = Limits {
            structured: dice.below(4) == 0,
            stop_hooks: dice.below(3) == 0,
            requirement: dice.below(3) == 0,
            effort: (dice.below(3) == 0).then_some(10_000),
            ..Limits::default()
        };
        let mut replies = Vec::new();
        for _part in 0..=dice.below(3) {
            for _ in 0..dice.below(3) {
                replies.push(Scripted::Tool);
            }
            if dice.below(4) == 0 {
                replies.push(Scripted::Odd);
            }
            let kinds = [Scripted::Cut, Scripted::CutThinking, Scripted::Paused];
            for _ in 0..dice.below(4) {
                replies.push(kinds[dice.below(3)]);
            }
            let is_output = limits.structured && dice.below(5) > 0;
            replies.push(if is_output { Scripted::Output } else { Scripted::Answer });
        }
        let (objections, failures) = (dice.below(2), dice.below(3));
        Self { replies, objections, failures, limits }
    }

    /// The reply of the model, which knows only the conversation.
    fn reply(&self, messages: &[Message]) -> ModelReply {
        let number = position(messages);
        let usual = if self.limits.structured { Scripted::Output } else { Scripted::Answer };
        let kind = self.replies.get(number).copied().unwrap_or(usual);
        let tail = ["", " ", "\n", " ü", "."][number % 5];
        let text = Block::text(format!("<{number}> of it{tail}"));
        let call = |name: &str, input: Value| {
            let id = format!("{}-{number}", name.to_lowercase());
            Block::call(id, name, input)
        };
        let thinking =
            || Block::Thinking { thinking: "hm".to_owned(), signature: "Eq==".to_owned() };
        let (content, stop_reason) = match kind {
            Scripted::Tool => (vec![thinking(), text, call("Read", json!({}))], "tool_use"),
            Scripted::Cut => (vec![text], "max_tokens"),
            Scripted::CutThinking => (vec![thinking()], "max_tokens"),
            Scripted::Paused => (vec![text, Block::text("<more> blocks")], "pause_turn"),
            Scripted::Odd => (vec![text], "odd"),
            Scripted::Answer => (vec![text], "end_turn"),
            Scripted::Output => {
                // A call that was cut off is made again.
                let output = call("StructuredOutput", json!({ "answer": 42 }));
                (vec![text, call("Read", json!({})), output], "tool_use")
            }
        };
        let usage = Usage { input_tokens: 10, output_tokens: 50, ..Usage::default() };
        ModelReply {
            id: format!("msg_{number}"),
            model: MODEL.to_owned(),
            content,
            cut_tool_call: false,
            malformed: Vec::new(),
            has_end: true,
            stop_reason: stop_reason.to_owned(),
            usage,
            counts: Counts::Possible,
            request_id: None,
            first_token: None,
        }
    }
}

fn texts(messages: &[Message], role: Role) -> impl Iterator<Item = &str> {
    let blocks = messages.iter().filter(move |it| it.role == role).flat_map(|it| &it.content);
    blocks.filter_map(|block| if let Block::Text { text } = block { Some(&**text) } else { None })
}

fn count(messages: &[Message], nudges: &[Nudge]) -> usize {
    let is_one = |text: &&str| nudges.iter().any(|nudge| text.starts_with(nudge.text()));
    texts(messages, Role::User).filter(is_one).count()
}

/// The number of replies of the story in a conversation. A reply of thinking only is counted by its
/// nudge.
fn position(messages: &[Message]) -> usize {
    let said = texts(messages, Role::Assistant)
        .filter(|text| text.starts_with('<') && !text.starts_with("<more>"));
    said.count() + count(messages, &[Nudge::Continue(CutKind::Thinking)])
}

/// An early end of a process, other than by a kill.
#[derive(Clone, Copy, Debug)]
enum Fate {
    None,
    /// The request of this number in the process fails for good.
    Failure(usize),
    Deadline(usize),
    Signal(usize),
    /// So many turns are allowed.
    Turns(u32),
}

/// The output of a run for its user.
#[derive(Clone, Debug, PartialEq)]
struct Printed {
    reason: StopReason,
    answer: String,
    stop_reason: Option<String>,
    has_passed: bool,
}

impl Printed {
    fn of(reason: StopReason, journal: &Journal) -> Self {
        let recorded = journal.recorded();
        let structured = recorded.structured().map(|(answer, _)| answer.to_string());
        Self {
            reason,
            answer: structured.unwrap_or_else(|| recorded.answer()),
            stop_reason: recorded.stop_reason().map(str::to_owned),
            has_passed: recorded.checks().1,
        }
    }
}

/// A process that works on a session: the journal is real, the rest is scripted.
struct Process<'a> {
    story: &'a Story,
    journal: Journal,
    messages: Vec<Message>,
    pending: Option<ModelReply>,
    fate: Fate,
    requests: usize,
    now: Moment,
}

impl World for Process<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn record(&mut self, transition: &Transition) {
        self.journal.begin_step();
        if let Some(reply) = self.pending.take()
            && transition.edit.reply == ReplyDisposition::Keep
            && reply.content.iter().any(|block| !matches!(block, Block::Thinking { .. }))
        {
            let message = Message::assistant(reply.content.clone());
            let meta = MessageMeta {
                id: Some(&reply.id),
                model: Some(MODEL),
                stop_reason: Some(&reply.stop_reason),
                usage: Some(reply.usage),
                ..MessageMeta::default()
            };
            self.journal.message(&message, &meta);
            message.join(&mut self.messages);
        }
        for nudge in [transition.edit.say, transition.edit.notice].into_iter().flatten() {
            self.tell(vec![Block::text(nudge.text())]);
        }
        self.journal.transition(transition);
    }

    async fn perform(&mut self, action: Action) -> Event {
        self.now = self.now.after(std::time::Duration::from_millis(1));
        match action {
            Action::Estimate { .. } => Event::Estimated(TokenEstimate::FREE),
            Action::Ask(_) => self.ask(),
            Action::RunTools => self.run_tools(),
            Action::RunStopHooks => {
                let told = count(&self.messages, &[Nudge::StopHookObjection]);
                Event::Consulted(if told < self.story.objections {
                    StopHookDecision::Block
                } else {
                    StopHookDecision::Pass
                })
            }
            Action::RunRequirement => {
                let unmet = [Nudge::Unmet, Nudge::UnmetAgain, Nudge::UnmetLast];
                let told = count(&self.messages, &unmet);
                Event::Checked { passed: told >= self.story.failures }
            }
            Action::Wait { until } => {
                self.now = until;
                Event::WaitEnded
            }
            Action::Refresh
            | Action::AwaitWork { .. }
            | Action::Probe { .. }
            | Action::Finish(_) => Event::InternalError,
        }
    }
}

impl Process<'_> {
    fn tell(&mut self, blocks: Vec<Block>) {
        let message = Message::user(blocks);
        self.journal.message(&message, &MessageMeta::default());
        message.join(&mut self.messages);
    }

    fn ask(&mut self) -> Event {
        assert_eq!(history_violations(&self.messages), [], "the request is valid");
        self.requests += 1;
        match self.fate {
            Fate::Failure(at) if at == self.requests => {
                let kind = FaultKind::Refused {
                    status: 403,
                    label: "permission_error".to_owned(),
                    code: String::new(),
                    message: "no".to_owned(),
                };
                return Event::Failed(classify(&Fault::new(kind, FailureStage::Status)));
            }
            Fate::Deadline(at) if at == self.requests => return Event::DeadlinePassed,
            Fate::Signal(at) if at == self.requests => {
                return Event::Interrupted(Interrupt::Sigterm);
            }
            Fate::None
            | Fate::Failure(_)
            | Fate::Deadline(_)
            | Fate::Signal(_)
            | Fate::Turns(_) => {}
        }
        let reply = self.story.reply(&self.messages);
        self.journal.spend(Some(Money::ZERO), &reply.usage, MODEL);
        let kind = classify_reply(&reply, EndWords::OfAnyApi);
        self.pending = Some(reply);
        Event::Replied(kind)
    }

    fn run_tools(&mut self) -> Event {
        let calls = self.messages.last().expect("a reply").content.clone();
        let (mut results, mut event) = (Vec::new(), Event::ToolsDone(LoopStatus::Fresh));
        for block in calls {
            let Block::ToolUse { id, name, input, .. } = block else { continue };
            let content = vec![Block::text("done")];
            let result = Block::ToolResult { tool_use_id: id, content, is_error: false };
            let is_output = name == "StructuredOutput";
            let detail = if is_output { json!({ "structured_output": input }) } else { json!({}) };
            self.journal.outcome(&result, &detail);
            results.push(result);
            if is_output {
                event = Event::Delivered;
            }
        }
        self.journal.message(&Message::user(results.clone()), &MessageMeta::default());
        Message::user(results).join(&mut self.messages);
        event
    }
}

/// The sessions of a story.
struct Trial<'a> {
    story: &'a Story,
    sandbox: &'a Sandbox,
    id: SessionId,
    runtime: &'a tokio::runtime::Runtime,
}

impl Trial<'_> {
    /// Works on the session as the command `--resume-or-start` does.
    fn work(&self, fate: Fate) -> Printed {
        let place = &self.sandbox.place;
        let mut limits = self.story.limits;
        if let Fate::Turns(turns) = fate {
            limits.budgets.turns = Some(turns);
        }
        let (journal, restored) =
            match LockedSession::lock_and_read(place, &self.id, OnDamage::Refuse) {
                Ok(held) => {
                    let (journal, restored) = held.open(place, &opening());
                    (journal, Some(restored))
                }
                Err(JournalError::Unknown { .. }) => {
                    (Journal::create(place, &self.id, &opening()).expect("created"), None)
                }
                Err(error) => panic!("{error}"),
            };
        let mut run = Run::new(7, &limits);
        let (mut messages, mut left_off) = (Vec::new(), None);
        if let Some(restored) =
            restored.filter(|restored| !restored.conversation.messages.is_empty())
        {
            left_off = Some(restored.conversation.left_off.expect("outlast has recorded it"));
            if let Some(before) = restored.work.run {
                let is_over = restored.work.ended.is_some();
                let goes_on =
                    if is_over { before.reopened(Some(&limits), &limits) } else { before };
                run = goes_on.resumed();
                run.budgets.turns = limits
                    .budgets
                    .turns
                    .map(|all| all.saturating_sub(restored.totals.prompt.turns));
            }
            messages = restored.conversation.messages;
        }
        let (story, now) = (self.story, Moment::default());
        let mut process =
            Process { story, journal, messages, pending: None, fate, requests: 0, now };
        if left_off.is_none() {
            process.tell(vec![Block::text("Do it.")]);
        }
        let reason = match left_off {
            Some(LeftOff::Finished(reason)) => reason,
            left_off => {
                let event = left_off.map_or(Event::Begin, Event::Resumed);
                let driven = drive(run, event, &limits, &mut process);
                self.runtime.block_on(driven).expect("the events fit")
            }
        };
        process.journal.end(reason, None);
        Printed::of(reason, &process.journal)
    }

    fn file(&self) -> std::path::PathBuf {
        self.sandbox.file(&self.id)
    }

    /// Leaves only the beginning of the session's file, as a kill would.
    fn cut(&self, whole: &[u8], at: usize) {
        fs::write(self.file(), &whole[..at]).expect("written");
    }
}

fn fate(dice: &mut Dice, story: &Story) -> Fate {
    let at = 1 + dice.below(6);
    // The last turn has a nudge of its own, which does not tell that the reply only thought.
    let may_end = !story.replies.contains(&Scripted::CutThinking);
    match dice.below(if may_end { 4 } else { 3 }) {
        0 => Fate::Failure(at),
        1 => Fate::Deadline(at),
        2 => Fate::Signal(at),
        _ => Fate::Turns(u32::try_from(at).expect("few")),
    }
}

/// Cuts one story everywhere. Returns the number of cuts.
fn cut_everywhere(seed: u64, runtime: &tokio::runtime::Runtime) -> usize {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let story = Story::of(&mut dice);
    let sandbox = Sandbox::new();
    let trial = Trial { story: &story, sandbox: &sandbox, id: SessionId::generate(), runtime };
    let whole = trial.work(Fate::None);
    let bytes = fs::read(trial.file()).expect("readable");
    let again = trial.work(Fate::None);
    assert_eq!(again, whole, "seed {seed}: printed again: {story:?}");
    let lines: Vec<usize> = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at + 1)
        .collect();
    let within = (0..lines.len()).map(|_| dice.below(bytes.len())).collect::<Vec<_>>();
    let mut cuts = 0;
    for at in lines.iter().copied().chain(within) {
        trial.cut(&bytes, at);
        let mut disturbed = None;
        // Most are resumed at once; some are cut again, or end early, before they are.
        match dice.below(4) {
            0 => {
                let fate = fate(&mut dice, &story);
                let ended = trial.work(fate);
                disturbed = Some((fate, ended.clone()));
                cuts += 1;
                // Near a limit the model is asked for no more effort: the conversation is another.
                let is_limited = matches!(fate, Fate::Turns(_) | Fate::Deadline(_));
                if is_limited && story.limits.effort.is_some() {
                    let case = format!("seed {seed}, cut at {at}, then {disturbed:?}: {story:?}");
                    let resumed = trial.work(Fate::None);
                    assert_eq!(resumed.reason, whole.reason, "{case}");
                    if ended.reason == whole.reason {
                        assert_eq!(resumed, ended, "{case}");
                    }
                    assert_eq!(trial.work(Fate::None), resumed, "{case}");
                    continue;
                }
                // An answer stands if the effort after it fails: the session is over.
                if ended.reason == whole.reason && story.limits.effort.is_some() {
                    let case = format!("seed {seed}, cut at {at}, then {disturbed:?}: {story:?}");
                    let last = ended.stop_reason.as_deref();
                    let is_output = story.limits.structured && last == Some("tool_use");
                    assert!(last == Some("end_turn") || is_output, "{case}");
                    assert_eq!(trial.work(Fate::None), ended, "{case}");
                    continue;
                }
            }
            1 => {
                trial.work(Fate::None);
                let more = fs::read(trial.file()).expect("readable");
                let from = at.min(more.len());
                trial.cut(&more, from + dice.below(more.len() - from + 1));
                cuts += 1;
            }
            _ => {}
        }
        let resumed = trial.work(Fate::None);
        assert_eq!(resumed, whole, "seed {seed}, cut at {at}, then {disturbed:?}: {story:?}");
        cuts += 1;
    }
    // The same without a kill: each request fails once.
    for request in 1..=lines.len() {
        for end in [Fate::Failure(request), Fate::Deadline(request), Fate::Signal(request)] {
            fs::remove_file(trial.file()).expect("it is there");
            let ended = trial.work(end);
            if ended.reason == whole.reason {
                if ended == whole {
                    return cuts;
                }
                // An answer stood, because only effort after it failed.
                let case = format!("seed {seed}, {end:?}: {story:?}");
                assert!(story.limits.effort.is_some(), "{case}");
                assert_eq!(trial.work(Fate::None), ended, "{case}");
                continue;
            }
            assert_eq!(trial.work(Fate::None), whole, "seed {seed}, {end:?}: {story:?}");
            cuts += 1;
        }
    }
    cuts
}

#[test]
fn a_run_that_is_cut_anywhere_and_resumed_prints_what_it_would_have_printed() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    if let Some(seed) = number("SEED") {
        cut_everywhere(seed, &runtime);
        return;
    }
    let is_full = number("FULL").is_some_and(|full| full > 0);
    let wanted = number("CUTS").unwrap_or(if is_full { 20_000 } else { 250 });
    let (mut cuts, mut seed) = (0, first_seed(1_000));
    while cuts < wanted {
        cuts += u64::try_from(cut_everywhere(seed, &runtime)).expect("few");
        seed += 1;
    }
}
