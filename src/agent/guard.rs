//! Hooks around tool calls: what they forbid, change and add.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::hooks::{HookEvent, Permission, Verdict};
use crate::tools::{Refusal, Warrant};
use crate::transcript::{Block, ToolCall};

use super::conversation::text_of;
use super::hooks::Matter;
use super::session::Session;
use super::watch::CutBy;

/// A tool that ran, for the hooks that are told afterwards.
pub(super) struct Ran<'a> {
    pub(super) call: &'a ToolCall,
    pub(super) result: &'a Block,
    pub(super) detail: &'a Value,
    pub(super) took: Duration,
}

impl Session<'_> {
    /// Tells the hooks which tools are about to run. A verdict for each call, in their order.
    pub(super) async fn before_tools(
        &mut self,
        calls: &[&ToolCall],
    ) -> Result<Vec<Verdict>, CutBy> {
        let event = HookEvent::PreToolUse;
        let mut verdicts = vec![Verdict::default(); calls.len()];
        if !self.counsellors.listen_to(event) {
            return Ok(verdicts);
        }
        // A call that makes no sense is nobody's business.
        let fits = |call: &ToolCall| !matches!(self.toolbox.admit(call), Err(Refusal::Invalid(_)));
        let fitting: Vec<usize> = (0..calls.len()).filter(|&index| fits(calls[index])).collect();
        let matters = fitting.iter().map(|&index| Matter::about(event, calls[index], Map::new()));
        let matters: Vec<Matter> = matters.collect();
        for (index, verdict) in
            fitting.into_iter().zip(self.tell_hooks_of_all(event, matters).await?)
        {
            verdicts[index] = verdict;
        }
        Ok(verdicts)
    }

    /// Judges a call by what the hooks say, and by the rules, which no hook lifts. A changed input
    /// is judged as if the model had chosen it.
    #[expect(clippy::result_large_err, reason = "a refusal is rare, and used up at once")]
    pub(super) fn admit(
        &mut self,
        call: &mut ToolCall,
        verdict: &Verdict,
    ) -> Result<Warrant, Refusal> {
        for text in &verdict.context {
            let block = self.hook_block(text);
            self.counsellors.asides.push(block);
        }
        if let Some(why) = &verdict.halt {
            self.halt(HookEvent::PreToolUse, why);
            return Err(Refusal::by_hook("A hook stopped the run before this call."));
        }
        if let Some(why) = verdict.denial() {
            let why = self.hook_words(why);
            return Err(Refusal::by_hook(&format!("A hook does not allow this: {why}")));
        }
        if let Some(input) = &verdict.input {
            call.input = input.clone();
        }
        let warrant = match &verdict.permission {
            Some((Permission::Allow, _)) => Warrant::Hook,
            Some((Permission::Ask | Permission::Deny, why)) => {
                let why = self.hook_words(why);
                let why = format!("A hook wants somebody to be asked about this, {why}");
                return Err(Refusal::by_hook(why.trim_end_matches([',', ' '])));
            }
            None => Warrant::Rules,
        };
        self.toolbox.admit_by(call, warrant).map(|()| warrant)
    }

    /// Tells the hooks what came of tools. What they say stands beside the results.
    pub(super) async fn after_tools(&mut self, ran: &[Ran<'_>]) -> Result<(), CutBy> {
        for (event, failed) in
            [(HookEvent::PostToolUse, false), (HookEvent::PostToolUseFailure, true)]
        {
            let is_of_it = |ran: &&Ran<'_>| is_error(ran.result) == failed;
            let matters: Vec<Matter> =
                ran.iter().filter(is_of_it).map(|ran| afterwards(event, ran)).collect();
            if matters.is_empty() {
                continue;
            }
            for verdict in self.tell_hooks_of_all(event, matters).await? {
                if let Some(why) = &verdict.halt {
                    self.halt(event, why);
                }
                for text in verdict.objection.iter().chain(&verdict.context) {
                    let block = self.hook_block(text);
                    self.counsellors.asides.push(block);
                }
            }
        }
        Ok(())
    }
}

fn afterwards(event: HookEvent, ran: &Ran<'_>) -> Matter {
    let millis = u64::try_from(ran.took.as_millis()).unwrap_or(u64::MAX);
    let mut more = Map::from_iter([("duration_ms".to_owned(), json!(millis))]);
    if event == HookEvent::PostToolUse {
        more.insert("tool_response".to_owned(), ran.detail.clone());
    } else {
        let Block::ToolResult { content, .. } = ran.result else {
            return Matter::about(event, ran.call, more);
        };
        let text = text_of(content);
        let bare = text.trim_start_matches("<tool_use_error>");
        more.insert("error".to_owned(), json!(bare.trim_end_matches("</tool_use_error>")));
        more.insert("is_interrupt".to_owned(), json!(false));
    }
    Matter::about(event, ran.call, more)
}

fn is_error(result: &Block) -> bool {
    matches!(result, Block::ToolResult { is_error: true, .. })
}
