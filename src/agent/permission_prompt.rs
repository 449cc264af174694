//! Permission prompts for calls that the rules leave open: `--permission-prompt-tool`.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::hooks::{HookDecision, HookPermission};
use crate::mcp::{CallReply, ContentPart};
use crate::tools::{GrantSource, ToolRefusal};
use crate::transcript::{Block, ToolCall};

use super::run_event::WaitingFor;
use super::run_monitor::CancelReason;
use super::world::RunWorld;

/// The answer of the prompt tool.
#[derive(Debug, PartialEq)]
enum PermissionAnswer {
    /// Allowed, perhaps with another input.
    Allow(Option<Value>),
    /// Denied, with the reason for the model.
    Deny(String),
}

impl RunWorld<'_> {
    /// Asks the prompt tool about a refused call, if there is one and it may decide: a denial by a
    /// rule or a hook is final. An input that it changes is checked as if the model had chosen it.
    ///
    /// # Errors
    /// The run was cut meanwhile.
    pub(super) async fn prompt_for_permission(
        &mut self,
        call: &mut ToolCall,
        verdict: &HookDecision,
        refusal: ToolRefusal,
    ) -> Result<Result<GrantSource, ToolRefusal>, CancelReason> {
        let by_hook = verdict.halt.is_some()
            || verdict.denial().is_some()
            || matches!(verdict.permission, Some((HookPermission::Deny, _)));
        let Some(tool) = self.tools.toolbox.prompt_tool().map(str::to_owned) else {
            return Ok(Err(refusal));
        };
        let is_open = matches!(refusal, ToolRefusal::Denied { .. })
            && self.tools.toolbox.admit_with_source(call, GrantSource::Prompt).is_ok();
        if by_hook || !is_open {
            return Ok(Err(refusal));
        }
        let reply = self.ask_tool(&tool, call).await?;
        let why = match parse_answer(&tool, &reply) {
            PermissionAnswer::Deny(why) => why,
            PermissionAnswer::Allow(input) => {
                let asked = ToolCall { input: input.unwrap_or(call.input.clone()), ..call.clone() };
                let asked = self.tools.toolbox.with_absolute_path(&asked);
                match self.tools.toolbox.admit_with_source(&asked, GrantSource::Prompt) {
                    Ok(()) => {
                        *call = asked;
                        return Ok(Ok(GrantSource::Prompt));
                    }
                    Err(ToolRefusal::Denied { reason, .. }) => reason,
                    Err(ToolRefusal::Invalid(_)) => {
                        format!("{tool} allowed this with an input that does not fit the tool")
                    }
                }
            }
        };
        Ok(Err(ToolRefusal::by_prompt(&self.conversation.hook_words(&why))))
    }

    /// Calls the prompt tool, with the time limit of a tool call.
    async fn ask_tool(&mut self, tool: &str, call: &ToolCall) -> Result<CallReply, CancelReason> {
        let question = json!({
            "tool_name": call.name,
            "input": call.input,
            "tool_use_id": call.id,
        });
        let (servers, cancel) = (Arc::clone(&self.tools.servers), CancellationToken::new());
        let waiting_for = WaitingFor::Tool { name: tool.to_owned(), id: call.id.clone() };
        let asking = servers.call(tool, &question, &cancel);
        self.run_cancellable(waiting_for, &cancel, asking).await
    }
}

/// Parses an answer: JSON in a text. Anything but a clear permission is a denial.
fn parse_answer(tool: &str, reply: &CallReply) -> PermissionAnswer {
    let texts = reply.parts.iter().filter_map(|piece| match piece {
        ContentPart::Block(Block::Text { text }) => Some(text.as_str()),
        ContentPart::Block(_) | ContentPart::Data { .. } => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    if reply.is_error {
        let bare = text.trim_start_matches("<tool_use_error>");
        let bare = bare.trim_end_matches("</tool_use_error>");
        return PermissionAnswer::Deny(format!(
            "{tool} was asked whether this is allowed, and failed: {bare}"
        ));
    }
    let answer: Value = serde_json::from_str(text.trim()).unwrap_or_default();
    let input = answer.get("updatedInput").filter(|input| !input.is_null());
    match (answer["behavior"].as_str(), input) {
        (Some("allow"), None) => PermissionAnswer::Allow(None),
        (Some("allow"), Some(input)) if input.is_object() => {
            PermissionAnswer::Allow(Some(input.clone()))
        }
        (Some("deny"), _) => {
            let why = answer["message"].as_str().filter(|why| !why.trim().is_empty());
            let why =
                why.map_or_else(|| ", and does not say why".to_owned(), |why| format!(": {why}"));
            PermissionAnswer::Deny(format!("{tool} was asked, and does not allow this{why}"))
        }
        _ => PermissionAnswer::Deny(format!(
            "{tool} was asked whether this is allowed, and its answer has no known format"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> CallReply {
        CallReply { parts: vec![ContentPart::Block(Block::text(text))], is_error: false }
    }

    #[test]
    fn permission_prompt_allows_only_on_a_clear_allow() {
        assert_eq!(
            parse_answer("t", &said(r#"{"behavior":"allow"}"#)),
            PermissionAnswer::Allow(None)
        );
        let changed = parse_answer("t", &said(r#" {"behavior":"allow","updatedInput":{"a":1}}"#));
        assert_eq!(changed, PermissionAnswer::Allow(Some(json!({ "a": 1 }))));
        let odd = [
            "",
            "allow",
            "true",
            "[]",
            "{}",
            r#"{"behavior":"Allow"}"#,
            r#"{"behavior":"allow","updatedInput":"rm"}"#,
            r#"{"behavior":["allow"]}"#,
            r#"{"behavior":"deny","message":"no"}"#,
            r#"{"behavior":"deny"}"#,
        ];
        for text in odd {
            assert!(matches!(parse_answer("t", &said(text)), PermissionAnswer::Deny(_)), "{text}");
        }
        let failed = CallReply { is_error: true, ..said(r#"{"behavior":"allow"}"#) };
        assert!(matches!(parse_answer("t", &failed), PermissionAnswer::Deny(_)));
    }
}
