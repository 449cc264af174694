//! Permission prompts for calls that the rules leave open: hooks of `PermissionRequest` answer
//! them, or else `--permission-prompt-tool`, which is an MCP tool or the host.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::hooks::{HookDecision, HookEvent, HookPermission};
use crate::json;
use crate::mcp::{CallReply, ContentPart};
use crate::recovery::Interrupt;
use crate::tools::{GrantSource, PermissionUpdate, Permit, PreparedCall, ToolRefusal, UpdateError};
use crate::transcript::{Block, ToolCall, without_error_tags};
use crate::types::{HostError, HostRequest, PermissionMode, PermissionPrompt};

use super::hook_runner::HookInput;
use super::run_event::RunEvent;
use super::run_monitor::CancelReason;
use super::tool_hooks::NotPermitted;
use super::waiting_for::WaitingFor;
use super::world::RunWorld;

/// A hook, in messages for the model.
const HOOK: &str = "a hook";

/// The host, in messages for the model.
const HOST: &str = "the host";

/// The answer of the prompt tool or the host.
#[derive(Debug, PartialEq)]
enum PermissionAnswer {
    /// Allowed, perhaps with another input.
    Allow(Option<Value>),
    /// Denied, with the reason for the model.
    Deny(String),
    /// Denied with this reason, and the run ends.
    End(String),
}

/// The reason that a change of permissions is not made.
#[derive(Debug, thiserror::Error)]
enum RefusedUpdate {
    #[error(transparent)]
    Unreadable(#[from] serde_json::Error),
    #[error(transparent)]
    Invalid(#[from] UpdateError),
}

impl RunWorld<'_> {
    /// Asks hooks, the prompt tool or the host about a refused call, if there is one that may
    /// decide: a denial by a rule or a hook is final. An input that it changes is checked as if the
    /// model had written it.
    pub(super) async fn prompt_for_permission(
        &mut self,
        prepared: &Arc<PreparedCall>,
        decision: &HookDecision,
        refusal: ToolRefusal,
    ) -> Result<Permit, NotPermitted> {
        let by_hook = decision.halt.is_some()
            || decision.denial().is_some()
            || matches!(decision.permission, Some((HookPermission::Deny, _)));
        let reason = match &refusal {
            ToolRefusal::Denied { reason, .. } if !by_hook => reason.clone(),
            ToolRefusal::Denied { .. } | ToolRefusal::Invalid(_) => return Err(refusal.into()),
        };
        match self.authorize(prepared, GrantSource::Prompt).await {
            Ok(_) => {}
            Err(NotPermitted::Refused(_)) => return Err(refusal.into()),
            Err(cut @ NotPermitted::Cut(_)) => return Err(cut),
        }
        let call = prepared.call();
        let prompt = self.tools.toolbox().prompt_tool().cloned();
        let (name, answer) = match (self.ask_hooks(prepared).await?, prompt) {
            (Some(answer), _) => (HOOK.to_owned(), answer),
            (None, None) => return Err(refusal.into()),
            (None, Some(PermissionPrompt::Tool(tool))) => {
                let reply = self.ask_tool(&tool, call).await?;
                let answer = parse_tool_answer(&tool, &reply);
                (tool, answer)
            }
            (None, Some(PermissionPrompt::Host)) => {
                (HOST.to_owned(), self.ask_host(call, &reason).await?)
            }
        };
        let why = match answer {
            PermissionAnswer::Deny(why) => why,
            PermissionAnswer::End(why) => {
                self.record_denial(call, &why);
                return Err(CancelReason::Interrupt(Interrupt::HostRequest).into());
            }
            PermissionAnswer::Allow(input) => {
                let toolbox = self.tools.toolbox();
                let changed = input.map(|input| ToolCall { input, ..call.clone() });
                let changed = changed.map(|call| toolbox.prepare_changed(call));
                let prepared = changed.as_ref().unwrap_or(prepared);
                match self.authorize(prepared, GrantSource::Prompt).await {
                    Err(NotPermitted::Refused(ToolRefusal::Denied { reason, .. })) => reason,
                    Err(NotPermitted::Refused(ToolRefusal::Invalid(_))) => {
                        format!("{name} allowed this with an input that does not fit the tool")
                    }
                    permit => return permit,
                }
            }
        };
        Err(ToolRefusal::by_prompt(&self.conversation.hook_text(&why)).into())
    }

    /// Asks the hooks of `PermissionRequest`. `None`: they leave it open.
    async fn ask_hooks(
        &mut self,
        prepared: &Arc<PreparedCall>,
    ) -> Result<Option<PermissionAnswer>, CancelReason> {
        let event = HookEvent::PermissionRequest;
        if !self.hooks.listen_to(event) {
            return Ok(None);
        }
        let fields = [("permission_suggestions".to_owned(), suggestions(prepared.call()))];
        let input = HookInput::about(event, prepared, Map::from_iter(fields));
        let decision = self.run_hooks(input).await?;
        self.hooks.record_halt(event, &decision, &self.conversation);
        self.apply_updates(&decision.updates);
        if let Some(why) = &decision.objection {
            return Ok(Some(PermissionAnswer::Deny(why.clone())));
        }
        Ok(decision.permission.map(|(permission, why)| match permission {
            HookPermission::Allow => PermissionAnswer::Allow(decision.input),
            HookPermission::Ask | HookPermission::Defer | HookPermission::Deny => {
                PermissionAnswer::Deny(format!("{HOOK} was asked, and does not allow this: {why}"))
            }
        }))
    }

    /// Asks the host, which may ask a person: only the run's deadline and interrupts limit the
    /// wait. Changes of permissions that come with the answer are made before the next call.
    async fn ask_host(
        &mut self,
        call: &ToolCall,
        reason: &str,
    ) -> Result<PermissionAnswer, CancelReason> {
        let Some(host) = self.context.deps.host.clone() else {
            return Ok(PermissionAnswer::Deny("there is no host that can be asked".to_owned()));
        };
        let question = HostRequest::CanUseTool {
            tool_name: call.name.clone(),
            input: call.input.clone(),
            tool_use_id: call.id.clone(),
            permission_suggestions: suggestions(call),
            decision_reason: reason.to_owned(),
            agent_id: self.context.identity.as_ref().map(|agent| agent.id.clone()),
        };
        let waiting_for = WaitingFor::Permission { tool: call.name.clone(), id: call.id.clone() };
        let cancel = CancellationToken::new();
        let asking = async {
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err(HostError::Closed),
                reply = host.request(question) => reply,
            }
        };
        let answer = match self.run_cancellable(waiting_for, &cancel, asking).await? {
            Ok(answer) => answer,
            Err(error) => {
                let why = format!("{HOST} was asked, and could not decide: {error}");
                return Ok(PermissionAnswer::Deny(why));
            }
        };
        self.apply_updates(answer["updatedPermissions"].as_array().map_or(&[], Vec::as_slice));
        let ends_turn = answer["interrupt"] == true;
        let answer = parse_answer(HOST, &answer);
        if let (PermissionAnswer::Deny(why), true) = (&answer, ends_turn) {
            return Ok(PermissionAnswer::End(why.clone()));
        }
        Ok(answer)
    }

    /// Makes changes of permissions that come with an answer.
    fn apply_updates(&mut self, updates: &[Value]) {
        for update in updates {
            if let Err(why) = self.update_permissions(update) {
                let warning = format!("a change of permissions was not made: {why}");
                self.monitor.emit(&RunEvent::Warning(warning));
            }
        }
    }

    fn update_permissions(&self, update: &Value) -> Result<(), RefusedUpdate> {
        let update = PermissionUpdate::deserialize(update)?;
        Ok(self.tools.toolbox().update_permissions(&update)?)
    }

    /// Calls the prompt tool, with the time limit of a tool call.
    async fn ask_tool(&mut self, tool: &str, call: &ToolCall) -> Result<CallReply, CancelReason> {
        let question = json!({
            "tool_name": call.name,
            "input": call.input,
            "tool_use_id": call.id,
        });
        let (servers, cancel) = (Arc::clone(self.tools.servers()), CancellationToken::new());
        let waiting_for = WaitingFor::Tool { name: tool.to_owned(), id: call.id.clone() };
        let asking = servers.call(tool, &question, &cancel);
        self.run_cancellable(waiting_for, &cancel, asking).await
    }
}

/// Returns the changes of permissions that the host may offer to the user.
fn suggestions(call: &ToolCall) -> Value {
    match (call.name.as_str(), call.input["command"].as_str()) {
        // In a rule, `*` stands for any text: there is none for such a command only.
        ("Bash", Some(command)) if !command.contains('*') => json!([{
            "type": "addRules",
            "rules": [{ "toolName": "Bash", "ruleContent": command }],
            "behavior": "allow",
            "destination": "localSettings",
        }]),
        ("Write" | "Edit" | "MultiEdit" | "NotebookEdit", _) => json!([{
            "type": "setMode",
            "mode": PermissionMode::AcceptEdits.name(),
            "destination": "session",
        }]),
        _ => json!([]),
    }
}

/// Parses the answer of a tool: JSON in a text.
fn parse_tool_answer(tool: &str, reply: &CallReply) -> PermissionAnswer {
    let texts = reply.parts.iter().filter_map(|part| match part {
        ContentPart::Block(Block::Text { text }) => Some(text.as_str()),
        ContentPart::Block(_) | ContentPart::Data { .. } => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    if reply.is_error {
        let error = without_error_tags(&text);
        return PermissionAnswer::Deny(format!(
            "{tool} was asked whether this is allowed, and failed: {error}"
        ));
    }
    parse_answer(tool, &json::read_str(text.trim()).unwrap_or_default())
}

/// Parses an answer. Anything but a clear permission is a denial.
fn parse_answer(tool: &str, answer: &Value) -> PermissionAnswer {
    // An empty object, which calls no tool, means that nothing is changed.
    let is_changed = |input: &&Value| !input.is_null() && **input != json!({});
    let input = answer.get("updatedInput").filter(is_changed);
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

    fn text_reply(text: &str) -> CallReply {
        CallReply { parts: vec![ContentPart::Block(Block::text(text))], is_error: false }
    }

    #[test]
    fn permission_prompt_allows_only_on_a_clear_allow() {
        let answer = |text: &str| parse_tool_answer("t", &text_reply(text));
        for (text, input) in [
            (r#"{"behavior":"allow"}"#, None),
            (r#" {"behavior":"allow","updatedInput":{"a":1}}"#, Some(json!({ "a": 1 }))),
            (r#"{"behavior":"allow","updatedInput":{}}"#, None),
        ] {
            assert_eq!(answer(text), PermissionAnswer::Allow(input), "{text}");
        }
        for text in [
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
        ] {
            assert!(matches!(answer(text), PermissionAnswer::Deny(_)), "{text}");
        }
        let failed = CallReply { is_error: true, ..text_reply(r#"{"behavior":"allow"}"#) };
        assert!(matches!(parse_tool_answer("t", &failed), PermissionAnswer::Deny(_)));
    }
}
