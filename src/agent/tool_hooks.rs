//! Tool hooks: denials, changes and additions by hooks before and after tool calls.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::hooks::{HookDecision, HookEvent, HookPermission};
use crate::text::millis;
use crate::tools::{GrantSource, Permit, PreparedCall, ToolRefusal, Toolbox};
use crate::transcript::{Block, ToolCall, without_error_tags};

use super::hook_runner::HookInput;
use super::messages::{is_error, text_of};
use super::run_event::RunEvent;
use super::run_monitor::CancelReason;
use super::tool_runner::CompletedCall;
use super::world::RunWorld;

/// The reason that a call does not have a permit.
pub(super) enum NotPermitted {
    Refused(ToolRefusal),
    /// The run was cut off during the check, or a host ended it by its answer.
    Cut(CancelReason),
}

impl From<ToolRefusal> for NotPermitted {
    fn from(refusal: ToolRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<CancelReason> for NotPermitted {
    fn from(cut: CancelReason) -> Self {
        Self::Cut(cut)
    }
}

/// A replacement of a result by a hook.
pub(super) struct ReplacedResult {
    pub(super) id: String,
    pub(super) result: Block,
    pub(super) detail: Value,
}

/// A call that hooks decide on.
struct HookedCall {
    /// Its place among the calls.
    index: usize,
    prepared: Arc<PreparedCall>,
}

impl RunWorld<'_> {
    /// Runs the hooks before tools. Returns a decision for each call, in their order.
    pub(super) async fn before_tools(
        &mut self,
        calls: &[Arc<PreparedCall>],
    ) -> Result<Vec<HookDecision>, CancelReason> {
        let event = HookEvent::PreToolUse;
        let mut decisions = vec![HookDecision::default(); calls.len()];
        if !self.hooks.listen_to(event) {
            return Ok(decisions);
        }
        // Hooks do not see malformed calls.
        let is_valid = |call: &PreparedCall| {
            self.tools.refusal_of_malformed(call.call()).is_none() && !call.is_invalid()
        };
        let valid = calls.iter().cloned().enumerate().filter(|(_, call)| is_valid(call));
        let valid: Vec<HookedCall> =
            valid.map(|(index, prepared)| HookedCall { index, prepared }).collect();
        // A hook that guards a file guards it under each of its names, as permission rules do.
        let mut aliases = Vec::new();
        for &HookedCall { index, ref prepared } in &valid {
            let checked = Arc::clone(prepared);
            let resolve = move |toolbox: &Toolbox| toolbox.with_real_path(&checked);
            match self.check_call(prepared.call(), resolve).await {
                Ok(alias) => {
                    aliases.extend(alias.map(|prepared| HookedCall { index, prepared }));
                }
                // A path that cannot be resolved in time is not permitted, either.
                Err(NotPermitted::Refused(_)) => {}
                Err(NotPermitted::Cut(cut)) => return Err(cut),
            }
        }
        let inputs = valid.iter().chain(&aliases);
        let inputs = inputs.map(|call| HookInput::about(event, &call.prepared, Map::new()));
        let mut decided = self.run_hooks_for_all(event, inputs.collect()).await?;
        let of_aliases = decided.split_off(valid.len());
        for (call, decision) in valid.iter().zip(decided) {
            decisions[call.index] = decision;
        }
        for (alias, decision) in aliases.iter().zip(of_aliases) {
            decisions[alias.index].restrict(decision);
        }
        Ok(decisions)
    }

    /// Decides on a call by the hooks' decision and by the rules, which no hook overrides. A
    /// changed input is checked as if the model had written it.
    pub(super) async fn admit(
        &mut self,
        prepared: &mut Arc<PreparedCall>,
        decision: &HookDecision,
    ) -> Result<Permit, NotPermitted> {
        let grant = self.grant_of(prepared, decision)?;
        self.authorize(prepared, grant).await
    }

    /// Checks the permission of a call.
    pub(super) async fn authorize(
        &mut self,
        prepared: &Arc<PreparedCall>,
        grant: GrantSource,
    ) -> Result<Permit, NotPermitted> {
        let checked = Arc::clone(prepared);
        let check = move |toolbox: &Toolbox| toolbox.authorize(&checked, grant);
        Ok(self.check_call(prepared.call(), check).await??)
    }

    /// Returns what may permit a call by the hooks' decision, and changes its input as they
    /// require.
    fn grant_of(
        &mut self,
        prepared: &mut Arc<PreparedCall>,
        decision: &HookDecision,
    ) -> Result<GrantSource, ToolRefusal> {
        if let Some(refusal) = self.tools.refusal_of_malformed(prepared.call()) {
            return Err(refusal);
        }
        self.hooks.add_context(&decision.context, &self.conversation);
        let refuse = |what: &str, why: &str| {
            let why = self.conversation.hook_text(why);
            Err(ToolRefusal::by_hook(&format!("{what}: {why}")))
        };
        if let Some(why) = &decision.halt {
            self.hooks.halt(HookEvent::PreToolUse, why, &self.conversation);
            return refuse("A hook stopped the run before this call", why);
        }
        if let Some(why) = decision.denial() {
            return refuse("A hook does not allow this", why);
        }
        if let Some(input) = &decision.input {
            let call = ToolCall { input: input.clone(), ..prepared.call().clone() };
            *prepared = self.tools.toolbox().prepare_changed(call);
        }
        Ok(match &decision.permission {
            Some((HookPermission::Allow, _)) => GrantSource::Hook,
            Some((HookPermission::Defer, _)) if self.context.is_root() => {
                let warning = format!(
                    "a hook defers a call of {}, which has no effect: it is not the only call of its \
                     reply",
                    prepared.call().name
                );
                self.monitor.emit(&RunEvent::Warning(warning));
                GrantSource::Rules
            }
            Some((HookPermission::Ask | HookPermission::Defer | HookPermission::Deny, why)) => {
                return refuse("A hook wants this to be asked about", why);
            }
            None => GrantSource::Rules,
        })
    }

    /// Runs the hooks after tools. Their output is added beside the results, or replaces some.
    pub(super) async fn after_tools(
        &mut self,
        ran: &[CompletedCall<'_>],
    ) -> Result<Vec<ReplacedResult>, CancelReason> {
        let mut replaced = Vec::new();
        for (event, failed) in
            [(HookEvent::PostToolUse, false), (HookEvent::PostToolUseFailure, true)]
        {
            let ran: Vec<_> = ran.iter().filter(|ran| is_error(ran.result) == failed).collect();
            if ran.is_empty() {
                continue;
            }
            let inputs = ran.iter().map(|ran| input_after(event, ran)).collect();
            let decisions = self.run_hooks_for_all(event, inputs).await?;
            for (ran, decision) in ran.into_iter().zip(decisions) {
                if let (HookEvent::PostToolUse, Some(output)) = (event, &decision.output) {
                    replaced.extend(self.replace(ran, output).await);
                }
                self.hooks.record_halt(event, &decision, &self.conversation);
                let texts = decision.objection.iter().chain(&decision.context);
                self.hooks.add_context(texts, &self.conversation);
            }
        }
        Ok(replaced)
    }

    /// Replaces the result of a tool by the output of a hook, if it has the same shape.
    async fn replace(&mut self, ran: &CompletedCall<'_>, output: &Value) -> Option<ReplacedResult> {
        let ToolCall { id, name, .. } = ran.call.call().clone();
        let Some((text, mut detail)) = in_place_of(ran.detail, output) else {
            let warning = format!(
                "ignored the updatedToolOutput of a hook: its structure is not that of a {name} result"
            );
            self.monitor.emit(&RunEvent::Warning(warning));
            return None;
        };
        self.conversation.redactor_for_model().redact_json(&mut detail);
        let text = self.conversation.hook_text(&text);
        let content = vec![Block::text(self.tools.toolbox().within_limit(&text).await)];
        let result = Block::ToolResult { tool_use_id: id.clone(), content, is_error: false };
        Some(ReplacedResult { id, result, detail })
    }
}

/// Returns the text and the structured result of an output that replaces `known`: text, some of the
/// same fields, or text blocks. `None` for anything else.
fn in_place_of(known: &Value, output: &Value) -> Option<(String, Value)> {
    match (known, output) {
        (_, Value::String(text)) => Some((text.clone(), output.clone())),
        (Value::Object(known), Value::Object(given)) => {
            let mut fields = known.clone();
            let mut count = 0;
            for (name, field) in &mut fields {
                let Some(value) = given.get(name) else { continue };
                let is_null = value.is_null() || field.is_null();
                if !is_null && std::mem::discriminant(value) != std::mem::discriminant(field) {
                    return None;
                }
                count += 1;
                value.clone_into(field);
            }
            (count > 0).then(|| (text_of_fields(&fields), Value::Object(fields)))
        }
        (Value::Array(_), Value::Array(blocks)) => {
            let texts = blocks.iter().map(|block| block.get("text").and_then(Value::as_str));
            let texts: Vec<&str> = texts.collect::<Option<_>>()?;
            Some((texts.join("\n"), output.clone()))
        }
        (_, _) => None,
    }
}

/// Returns the text of a structured result: the output of a command, or the whole result.
fn text_of_fields(fields: &Map<String, Value>) -> String {
    let streams = ["stdout", "stderr"].map(|name| fields.get(name).and_then(Value::as_str));
    if streams.iter().all(Option::is_none) {
        return Value::Object(fields.clone()).to_string();
    }
    let texts = streams.into_iter().flatten().map(str::trim_end).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns the input of hooks after a tool.
fn input_after(event: HookEvent, ran: &CompletedCall<'_>) -> HookInput {
    let millis = millis(ran.took.unwrap_or_default());
    let mut more = Map::from_iter([("duration_ms".to_owned(), json!(millis))]);
    if event == HookEvent::PostToolUse {
        more.insert("tool_response".to_owned(), ran.detail.clone());
    } else if let Block::ToolResult { content, .. } = ran.result {
        more.insert("error".to_owned(), json!(without_error_tags(&text_of(content))));
        more.insert("is_interrupt".to_owned(), json!(false));
    }
    HookInput::about(event, ran.call, more)
}
