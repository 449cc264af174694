//! Checks a reply that would end the run: a tool call that was left as text, and work that was left
//! open.

use crate::model::ModelReply;
use crate::recovery::{CutKind, Incomplete, ReplyKind, StopReason, Transition};
use crate::tools::STRUCTURED_OUTPUT;
use crate::transcript::{Block, Message, OtherFields, find_call_in_text};

use super::emitted_blocks::fresh_call_id;
use super::left_open::LeftOpen;
use super::messages::text_of;
use super::run_event::RunEvent;
use super::world::RunWorld;

impl RunWorld<'_> {
    /// Returns the kind of a reply, after a check of its text if it would end the run. A structured
    /// output in the text is added as the call that it should have been.
    pub(super) fn check_final_reply(
        &mut self,
        answer: &mut ModelReply,
        reply: ReplyKind,
    ) -> ReplyKind {
        if matches!(reply, ReplyKind::Answer { .. } | ReplyKind::ToolCalls { .. }) {
            self.conversation.left_open = LeftOpen::default();
        }
        let ReplyKind::Answer { tokens } = reply else { return reply };
        // The output limit or a pause may have split the answer, even within a tag.
        let recorded = self.journal.recorded();
        let text = recorded.text_with(&answer.content);
        let unseparated = recorded.unseparated_text_with(&answer.content);
        let called = self.find_call(&text).or_else(|| self.find_call(&unseparated));
        if called.as_ref().is_none_or(|tool| tool == STRUCTURED_OUTPUT)
            && let Some(input) = self.tools.toolbox().answer_in_text(&unseparated)
        {
            answer.content.push(Block::ToolUse {
                id: fresh_call_id(),
                name: STRUCTURED_OUTPUT.to_owned(),
                input,
                others: OtherFields::default(),
            });
            "tool_use".clone_into(&mut answer.stop_reason);
            return ReplyKind::ToolCalls { tokens };
        }
        if called.is_some() {
            return ReplyKind::Incomplete(Incomplete::CallInText);
        }
        let has_worked =
            self.journal.recorded().tools().calls > 0 && has_worked(self.conversation.messages());
        if has_worked {
            self.conversation.left_open = LeftOpen {
                todos: self.tools.toolbox().open_todos(),
                announcement: announcement(&text).map(str::to_owned),
            };
        }
        let is_open = !self.conversation.left_open.is_nothing();
        if is_open { ReplyKind::LeftOpen { tokens } } else { reply }
    }

    /// Returns the kind of a reply to a request for a summary. A tool call as text is not a
    /// summary: tools were withheld, and the model wanted to continue the work.
    pub(super) fn check_summary(&self, answer: &ModelReply, reply: ReplyKind) -> ReplyKind {
        let is_text =
            matches!(reply, ReplyKind::Answer { .. } | ReplyKind::CutShort(CutKind::Text));
        if is_text && self.find_call(&text_of(&answer.content)).is_some() {
            return ReplyKind::Incomplete(Incomplete::CallInText);
        }
        reply
    }

    /// Returns the tool of which the text has a call.
    fn find_call(&self, text: &str) -> Option<String> {
        find_call_in_text(text, self.caller.fixed().tools()).map(str::to_owned)
    }

    /// Warns that the work after a finished answer failed. For a reminder, the warning of open work
    /// says enough.
    pub(super) fn warn_of_kept_answer(&mut self, transition: &Transition) {
        if transition.keeps_answer() && self.conversation.left_open.is_nothing() {
            let cause = self.caller.last_fault().map(|fault| format!(": {}", fault.detail()));
            let cause = cause.unwrap_or_default();
            let text = format!("the additional work after the answer did not succeed{cause}");
            self.monitor.emit(&RunEvent::Warning(text));
        }
    }

    /// Warns of work that the last reply of a successful run left open.
    pub(super) fn warn_of_open_work(&mut self, reason: StopReason) {
        if reason == StopReason::Completed && !self.conversation.left_open.is_nothing() {
            let what = self.conversation.left_open.describe();
            self.monitor.emit(&RunEvent::Warning(format!("the model ended although {what}")));
        }
    }
}

/// Returns true if a tool was called for the work itself, and not only to plan it.
fn has_worked(messages: &[Message]) -> bool {
    let is_work =
        |block: &Block| matches!(block, Block::ToolUse { name, .. } if name != "TodoWrite");
    messages.iter().flat_map(|message| &message.content).any(is_work)
}

/// Beginnings of a sentence that announces the next step, in lower case.
const ANNOUNCING: [&str; 13] = [
    "let me ",
    "let's ",
    "i'll now ",
    "i will now ",
    "i'm now going to ",
    "i am now going to ",
    "now i'll ",
    "now i will ",
    "now i'm going to ",
    "now let me ",
    "next, i'll ",
    "next, i will ",
    "next, let me ",
];

/// Returns the last line of a text, if it announces something that does not follow: it ends with a
/// colon or an ellipsis, or its last sentence states the next step of the model.
fn announcement(text: &str) -> Option<&str> {
    let line = text.trim_end().lines().next_back()?.trim();
    let bare = line.trim_end_matches(['*', '_', ' ']);
    if bare.ends_with([':', '\u{ff1a}', '\u{2026}']) || bare.ends_with("...") {
        return Some(line);
    }
    let bare = bare.trim_end_matches(['.', '!']);
    let last_sentence = [". ", "! ", "? "].iter().filter_map(|end| bare.rfind(end)).max();
    let last = last_sentence.map_or(bare, |end| &bare[end + 2..]);
    let last = last.to_lowercase().replace('\u{2019}', "'");
    let last = last.trim_start_matches(['*', '_', '-', ' ']);
    let begins = ANNOUNCING.iter().any(|words| last.starts_with(words));
    (begins && !last.contains("let me know")).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_announces_a_next_step_is_distinguished_from_an_answer() {
        for text in [
            "The parser is fixed. Now let me run the tests:",
            "Done so far:\n\n**Next steps:**",
            "Now running the tests...",
            "Found it\u{2026}",
            "The file is there. Let me fix it.",
            "I see the cause. Now I\u{2019}ll change the parser.",
            "\u{4e0b}\u{4e00}\u{6b65}\u{ff1a}",
        ] {
            assert!(announcement(text).is_some(), "{text}");
        }
        for text in [
            "All tests pass.",
            "Fixed in src/a.rs:12",
            "Summary:\n- one\n- two",
            "The result is:\n\n```\n42\n```",
            "Done. Let me know if anything is missing.",
            "I will not change the tests.",
            "Let me explain: the cache was stale. It is cleared now.",
            "",
        ] {
            assert_eq!(announcement(text), None, "{text}");
        }
    }
}
