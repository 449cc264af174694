//! What the model is told of an interruption by the user of a host: the notice, and the part of its
//! reply that the user has seen.

use crate::model::StreamProgress;
use crate::recovery::{Interrupt, StopReason};
use crate::transcript::Block;

use super::run_monitor::CancelReason;
use super::world::RunWorld;

/// The text of a reply that streams.
#[derive(Debug, Default)]
pub(super) struct StreamedText {
    /// The texts of its complete blocks.
    complete: Vec<String>,
    /// That of the block that streams.
    begun: String,
}

impl StreamedText {
    pub(super) fn record(&mut self, step: &StreamProgress) {
        match step {
            StreamProgress::Block { block, .. } => {
                self.begun.clear();
                self.complete.extend(block.as_text().map(str::to_owned));
            }
            StreamProgress::Event(event) => {
                let block = &event["content_block"]["text"];
                let text = block.as_str().or(event["delta"]["text"].as_str());
                self.begun.push_str(text.unwrap_or_default());
            }
            StreamProgress::Sending
            | StreamProgress::Accepted(_)
            | StreamProgress::Bytes(_)
            | StreamProgress::Received(_) => {}
        }
    }

    fn into_text(self) -> String {
        let texts = [&self.complete[..], &[self.begun]].concat();
        let texts: Vec<&str> = texts.iter().map(|text| text.trim()).collect();
        texts.join("\n").trim().to_owned()
    }
}

/// The notice for the model in a conversation that a host has interrupted, in the words of the
/// protocol. A signal is no wish of the user: the session may go on with its prompt.
fn notice(reason: StopReason) -> Option<&'static str> {
    if reason == StopReason::AbortedStreaming(Interrupt::HostRequest) {
        Some("[Request interrupted by user]")
    } else if reason == StopReason::AbortedTools(Interrupt::HostRequest) {
        Some("[Request interrupted by user for tool use]")
    } else {
        None
    }
}

impl RunWorld<'_> {
    /// Keeps the text of a reply that a host has interrupted: the user has seen it.
    pub(super) fn keep_interrupted_text(&mut self, cut: CancelReason, text: StreamedText) {
        let text = text.into_text();
        let is_of_user = cut == CancelReason::Interrupt(Interrupt::HostRequest);
        if is_of_user && self.context.mark.is_none() && !text.is_empty() {
            let model = self.caller.endpoint().facts.name.clone();
            self.conversation.add_cut_reply(Block::text(text), &model, &mut self.journal);
        }
    }

    /// Adds the notice of an interruption to the conversation. Without it, the model would take the
    /// next prompt as a part of the one that was interrupted.
    pub(super) fn add_interruption_notice(&mut self, reason: StopReason) {
        let is_begun = !self.conversation.messages().is_empty();
        if let Some(notice) = notice(reason)
            && is_begun
            && self.context.mark.is_none()
        {
            self.add_text(notice.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_of_an_interrupted_reply_is_that_of_its_complete_blocks_and_of_the_one_that_streams()
    {
        let event = |event| StreamProgress::Event(event);
        let start = |block| event(json!({ "type": "content_block_start", "content_block": block }));
        let delta = |delta| event(json!({ "type": "content_block_delta", "delta": delta }));
        let block = |block| StreamProgress::Block { index: 0, block };
        let mut text = StreamedText::default();
        for step in [
            start(json!({ "type": "thinking", "thinking": "hm" })),
            delta(json!({ "type": "thinking_delta", "thinking": "secret" })),
            start(json!({ "type": "text", "text": "" })),
            delta(json!({ "type": "text_delta", "text": "One" })),
            delta(json!({ "type": "text_delta", "text": " two." })),
            block(Block::text("One two.")),
            event(json!({ "type": "content_block_stop" })),
            start(json!({ "type": "tool_use", "name": "Read", "input": {} })),
            delta(json!({ "type": "input_json_delta", "partial_json": "{" })),
            start(json!({ "type": "text", "text": "Thr" })),
            delta(json!({ "type": "text_delta", "text": "ee " })),
        ] {
            text.record(&step);
        }
        assert_eq!(text.into_text(), "One two.\nThree");
        assert_eq!(StreamedText::default().into_text(), "");
    }
}
