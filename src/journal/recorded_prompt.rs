//! The state of a prompt, folded from its records: its answer and its position.
//!
//! A run applies this fold to the records that it writes, and a later process to the records that
//! it reads, so both have the same result.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::recovery::{
    Event, Incomplete, LeftOff, NewDemands, Nudge, ReplyDisposition, ReplyKind, StopReason,
    Transition,
};
use crate::transcript::Block;

use super::ended_calls::{Denial, ToolStats, UndoneCalls};

/// The member of a tool's structured result that is an accepted structured output.
pub(super) const STRUCTURED: &str = "structured_output";

/// The answer to a prompt so far, and the position of the prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedPrompt {
    /// The completed part of the answer, to which the model may add.
    kept_text: String,
    /// The text of the model after that part.
    text: String,
    joint: Joint,
    stop_reason: Option<String>,
    /// The stop reason of the last reply of the completed part.
    kept_stop_reason: Option<String>,
    /// The structured output that was accepted.
    structured: Option<Value>,
    /// Number of calls for a structured output that have a result.
    outputs: u32,
    /// Number of completed runs of the command of `--require`; `passed` is the outcome of the last
    /// one.
    checks: u32,
    passed: bool,
    tools: ToolStats,
    denials: Vec<Denial>,
    left_off: LeftOff,
    /// The last reply, as long as no step of the state machine has decided about it.
    undecided: Option<UndecidedReply>,
    calls: ReplyCalls,
}

/// The calls of the last reply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct ReplyCalls {
    /// Calls without a result: the id, and true if the call is for a structured output.
    open: Vec<(String, bool)>,
    /// True if a call for anything else failed.
    has_failed: bool,
    /// The structured output that was accepted.
    output: Option<Value>,
    /// The ids of calls that were denied.
    denied: Vec<String>,
    /// The ids of calls that get a synthetic result.
    abandoned: Vec<String>,
}

/// The way in which the text of the next reply joins the text before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Joint {
    /// The next text replaces the one before.
    #[default]
    None,
    /// The next text continues the one before in mid-sentence.
    Seamless,
    /// The next text is a further block of the same reply.
    Block,
}

impl Joint {
    fn after(event: Event) -> Self {
        if matches!(event, Event::Replied(ReplyKind::CutShort(_))) {
            Self::Seamless
        } else if event == Event::Replied(ReplyKind::Paused) {
            Self::Block
        } else {
            Self::None
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct UndecidedReply {
    texts: Vec<String>,
    has_calls: bool,
    stop_reason: Option<String>,
}

/// The tool for structured output.
const OUTPUT_TOOL: &str = "StructuredOutput";

impl ReplyCalls {
    /// Closes a call that is open. Returns whether it is for a structured output.
    fn close(&mut self, id: &str) -> Option<bool> {
        let at = self.open.iter().position(|(open, _)| open == id)?;
        Some(self.open.remove(at).1)
    }

    /// The structured output, once every call of the reply has its result and no other call failed.
    fn delivered(&self) -> Option<&Value> {
        self.output.as_ref().filter(|_| self.open.is_empty() && !self.has_failed)
    }
}

impl RecordedPrompt {
    /// Begins a process with new demands, which void the acceptance of earlier ones.
    pub fn demand(&mut self, new: NewDemands) {
        self.left_off = self.left_off.with_demands(new);
        if new.requirement {
            (self.checks, self.passed) = (0, false);
        }
        if new.schema {
            (self.structured, self.calls.output, self.outputs) = (None, None, 0);
        }
    }

    /// Adds a reply, or further blocks of it.
    pub fn reply(&mut self, blocks: &[Block], stop_reason: Option<&str>) {
        if self.undecided.is_none() {
            self.calls = ReplyCalls::default();
        }
        let reply = self.undecided.get_or_insert_default();
        for block in blocks {
            match block {
                Block::Text { text } => reply.texts.push(text.clone()),
                Block::ToolUse { id, name, .. } => {
                    self.calls.open.push((id.clone(), name == OUTPUT_TOOL));
                    reply.has_calls = true;
                }
                Block::Thinking { .. }
                | Block::RedactedThinking { .. }
                | Block::ToolResult { .. }
                | Block::Image { .. }
                | Block::Document { .. }
                | Block::Other(_) => {}
            }
        }
        reply.stop_reason = stop_reason.map(str::to_owned);
    }

    /// Adds a message to the model, or blocks of it. `output` is the structured output that a tool
    /// result among them accepts.
    pub fn add_user_message(&mut self, blocks: &[Block], output: Option<&Value>) {
        let mut is_answer = false;
        for block in blocks {
            if let Block::ToolResult { tool_use_id, is_error, .. } = block {
                is_answer = true;
                self.result(tool_use_id, *is_error, output);
            }
        }
        if !is_answer && self.left_off.after_message() != self.left_off {
            self.left_off = self.left_off.after_message();
            self.add_to_answer();
        }
    }

    fn result(&mut self, id: &str, is_error: bool, output: Option<&Value>) {
        let Some(is_output) = self.calls.close(id) else { return };
        if is_output {
            self.outputs = self.outputs.saturating_add(1);
            self.calls.output = output.cloned().or(self.calls.output.take());
        } else {
            self.calls.has_failed |= is_error;
        }
        let is_in = |ids: &[String]| ids.iter().any(|known| known == id);
        let is_denied = is_in(&self.calls.denied);
        let is_abandoned = !is_denied && is_in(&self.calls.abandoned);
        self.tools.calls += 1;
        self.tools.denied += u32::from(is_denied);
        self.tools.abandoned += u32::from(is_abandoned);
        self.tools.failed += u32::from(is_error && !is_denied && !is_abandoned);
    }

    /// Adds calls that end without having done their work, before their results.
    pub fn undone(&mut self, calls: &UndoneCalls) {
        let UndoneCalls { denied, of_agents, abandoned } = calls;
        for denial in denied {
            self.started(&denial.tool_use_id, &denial.tool_name);
        }
        self.calls.denied.extend(denied.iter().map(|denial| denial.tool_use_id.clone()));
        self.calls.abandoned.extend(abandoned.iter().cloned());
        self.denials.extend(denied.iter().chain(of_agents).cloned());
    }

    /// Adds a call that runs now. It may be one that an earlier prompt deferred.
    pub fn started(&mut self, id: &str, name: &str) {
        if !self.calls.open.iter().any(|(open, _)| open == id) {
            self.calls.open.push((id.to_owned(), name == OUTPUT_TOOL));
        }
    }

    /// Applies a step of the state machine, after the messages that belong to it.
    pub fn step(&mut self, step: &Transition) {
        let reply = self.undecided.take();
        if step.edit.reply == ReplyDisposition::Keep {
            let mut reply = reply.unwrap_or_default();
            reply.stop_reason.get_or_insert_with(|| reason_without_words(step.event).to_owned());
            self.keep(reply, Joint::after(step.event));
        }
        if step.event.delivers_output() {
            self.structured = self.calls.output.take().or(self.structured.take());
        }
        if step.event == Event::Begin {
            // A new prompt begins.
            self.replace_answer();
            self.forget_calls();
        }
        if step.keeps_answer() {
            // The text after the answer belongs to replies that do not count.
            self.text.clear();
            self.joint = Joint::None;
            self.stop_reason = self.kept_stop_reason.clone().or(self.stop_reason.take());
        }
        if let Event::Checked { passed } = step.event {
            self.checks = self.checks.saturating_add(1);
            self.passed = passed;
        }
        if let Some(nudge) = step.edit.say {
            self.nudge(nudge);
        }
        self.left_off = self.left_off.after(step);
    }

    /// Records the end of the prompt.
    pub fn end(&mut self, reason: StopReason) {
        if matches!(reason, StopReason::Completed | StopReason::Refusal) {
            self.left_off = LeftOff::Finished(reason);
            if let Some(reply) = self.undecided.take() {
                self.keep(reply, Joint::None);
            }
        }
    }

    /// Adds the text of a reply, and records how the next one will be joined to it.
    fn keep(&mut self, reply: UndecidedReply, next: Joint) {
        let text = reply.texts.join("\n");
        let is_blank = text.trim().is_empty();
        let continues = !is_blank || self.joint != Joint::None;
        if continues {
            self.text = self.joined(&text);
        }
        self.joint = if continues { next } else { Joint::None };
        self.stop_reason = reply.stop_reason;
    }

    /// Returns the text of a reply that ends here, with the parts before it that it continues.
    pub fn text_with(&self, reply: &[Block]) -> String {
        self.joined(&text_of(reply))
    }

    /// Like [`text_with`](Self::text_with), without a separator between the parts: a pause may
    /// split a word.
    pub fn unseparated_text_with(&self, reply: &[Block]) -> String {
        let before = if self.joint == Joint::None { "" } else { &self.text };
        format!("{before}{}", text_of(reply))
    }

    /// Joins a text to the text before it, if it continues that text.
    fn joined(&self, text: &str) -> String {
        let before = match self.joint {
            Joint::None => "",
            Joint::Seamless | Joint::Block => &self.text,
        };
        let is_apart = before.ends_with(char::is_whitespace)
            || text.starts_with(char::is_whitespace)
            || text.trim().is_empty();
        let separator = if self.joint == Joint::Block && !is_apart { "\n" } else { "" };
        format!("{before}{separator}{text}")
    }

    /// Decides whether the next text continues the answer, is added to it, or replaces it.
    fn nudge(&mut self, nudge: Nudge) {
        match nudge {
            Nudge::Continue(_) | Nudge::ContinueLast | Nudge::EmptyReply => {}
            Nudge::MoreEffort | Nudge::LeftOpen | Nudge::WorkEnded | Nudge::StillRunning => {
                self.add_to_answer();
            }
            Nudge::Complete(_) | Nudge::WrapUp | Nudge::LastTurn | Nudge::StepBack => {
                self.joint = Joint::None;
                if !self.kept_text.is_empty() {
                    self.text.clear();
                }
            }
            Nudge::UseStructuredOutput
            | Nudge::Unmet
            | Nudge::UnmetAgain
            | Nudge::UnmetLast
            | Nudge::StopHookObjection => {
                self.joint = Joint::None;
                self.replace_answer();
            }
        }
    }

    /// Completes the answer so far. The next text is added to it.
    fn add_to_answer(&mut self) {
        self.kept_text = self.answer();
        self.kept_stop_reason.clone_from(&self.stop_reason);
        self.text.clear();
        self.joint = Joint::None;
    }

    /// Makes the next text replace the answer.
    fn replace_answer(&mut self) {
        self.text = self.answer();
        self.kept_text.clear();
    }

    /// Returns the text of the answer so far, or the last text of the model if there is none.
    pub fn answer(&self) -> String {
        let (kept_text, added) = (self.kept_text.trim_end(), self.text.trim_start());
        if kept_text.is_empty() || (added.starts_with(kept_text) && added.len() > kept_text.len()) {
            return self.text.clone();
        }
        let added_end = added.trim_end();
        let is_known = kept_text == added_end
            || kept_text.strip_suffix(added_end).is_some_and(|head| head.ends_with("\n\n"));
        if added_end.is_empty() || is_known {
            return self.kept_text.clone();
        }
        format!("{kept_text}\n\n{added}")
    }

    /// The last text of the model.
    pub fn last_words(&self) -> &str {
        if self.text.is_empty() { &self.kept_text } else { &self.text }
    }

    /// The API's own stop reason of the last reply.
    pub fn stop_reason(&self) -> Option<&str> {
        self.stop_reason.as_deref()
    }

    /// Returns the structured output, and the number of calls for one that have a result.
    pub fn structured(&self) -> Option<(&Value, u32)> {
        let delivered = self.calls.delivered().or(self.structured.as_ref());
        delivered.map(|answer| (answer, self.outputs))
    }

    /// The number of calls for a structured output that have a result.
    pub fn output_attempts(&self) -> u32 {
        self.outputs
    }

    /// The outcomes of the tool calls so far.
    pub fn tools(&self) -> ToolStats {
        self.tools
    }

    /// The outcomes of the tool calls so far, with denied calls that have no result yet.
    pub fn tools_with_denials(&self) -> ToolStats {
        let is_denied = |(id, _): &&(String, bool)| self.calls.denied.contains(id);
        let open = self.calls.open.iter().filter(is_denied).count();
        let open = u32::try_from(open).unwrap_or(u32::MAX);
        let ToolStats { calls, denied, .. } = self.tools;
        ToolStats { calls: calls + open, denied: denied + open, ..self.tools }
    }

    /// The calls that were refused, those of sub-agents included.
    pub fn denials(&self) -> &[Denial] {
        &self.denials
    }

    /// Resets the counts of calls: those of a forked session are reported by its source.
    pub fn forget_calls(&mut self) {
        (self.tools, self.denials) = (ToolStats::default(), Vec::new());
    }

    /// Returns the number of completed runs of the command of `--require`, and whether the last
    /// passed.
    pub fn checks(&self) -> (u32, bool) {
        (self.checks, self.passed)
    }

    /// Returns the position of the prompt. A reply that no step has decided about does not count,
    /// unless its calls were run.
    pub fn left_off(&self) -> LeftOff {
        match &self.undecided {
            None if self.calls.delivered().is_some() => LeftOff::Delivered,
            Some(reply) if reply.has_calls => LeftOff::ReplyDue,
            Some(_) => LeftOff::Incomplete(Incomplete::UnknownReason),
            None => self.left_off,
        }
    }
}

fn text_of(reply: &[Block]) -> String {
    reply.iter().filter_map(Block::as_text).collect::<Vec<_>>().join("\n")
}

/// The stop reason of a kept reply that has no message, since it had neither text nor a call.
fn reason_without_words(event: Event) -> &'static str {
    if event == Event::Replied(ReplyKind::Refusal) {
        "refusal"
    } else if event == Event::Replied(ReplyKind::Paused) {
        "pause_turn"
    } else {
        // The reply was nothing but thinking, which the output limit cut.
        "max_tokens"
    }
}
