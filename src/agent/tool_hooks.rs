//! Tool hooks: denials, changes and additions by hooks before and after tool calls.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::hooks::{HookDecision, HookEvent, HookPermission};
use crate::text::millis;
use crate::tools::{GrantSource, Permit, PreparedCall, ToolRefusal, Toolbox};
use crate::transcript::{Block, ToolCall};

use super::hook_runner::HookInput;
use super::messages::{is_error, text_of};
use super::run_event::RunEvent;
use super::run_monitor::CancelReason;
use super::world::RunWorld;

/// A tool that ran, for the hooks that run afterwards.
pub(super) struct ExecutedTool<'a> {
    pub(super) call: &'a Arc<PreparedCall>,
    pub(super) result: &'a Block,
    pub(super) detail: &'a Value,
    pub(super) took: Duration,
}

/// A replacement of a result by a hook.
pub(super) struct ReplacedResult {
    pub(super) id: String,
    pub(super) result: Block,
    pub(super) detail: Value,
}

impl RunWorld<'_> {
    /// Runs the hooks before tools. Returns a verdict for each call, in their order.
    pub(super) async fn before_tools(
        &mut self,
        calls: &[Arc<PreparedCall>],
    ) -> Result<Vec<HookDecision>, CancelReason> {
        let event = HookEvent::PreToolUse;
        let mut verdicts = vec![HookDecision::default(); calls.len()];
        if !self.hooks.listen_to(event) {
            return Ok(verdicts);
        }
        // Hooks do not see malformed calls.
        let fits = |call: &PreparedCall| {
            self.tools.refusal_of_malformed(call.call()).is_none() && !call.is_invalid()
        };
        let fitting: Vec<usize> = (0..calls.len()).filter(|&index| fits(&calls[index])).collect();
        // A hook that guards a file guards it under each of its names, as permission rules do.
        let mut linked: Vec<(usize, Arc<PreparedCall>)> = Vec::new();
        for &index in &fitting {
            let prepared = Arc::clone(&calls[index]);
            let resolve = move |toolbox: &Toolbox| toolbox.with_real_path(&prepared);
            // A path that cannot be resolved in time is not permitted, either.
            let resolved = self.check_call(calls[index].call(), resolve).await?.ok().flatten();
            linked.extend(resolved.map(|call| (index, call)));
        }
        let input = |call: &Arc<PreparedCall>| HookInput::about(event, call, Map::new());
        let named = fitting.iter().map(|&index| input(&calls[index]));
        let inputs = named.chain(linked.iter().map(|(_, call)| input(call))).collect();
        let mut decisions = self.run_hooks_for_all(event, inputs).await?.into_iter();
        for (index, verdict) in fitting.into_iter().zip(decisions.by_ref()) {
            verdicts[index] = verdict;
        }
        for ((index, _), verdict) in linked.into_iter().zip(decisions) {
            verdicts[index].restrict(verdict);
        }
        Ok(verdicts)
    }

    /// Decides on a call by the hooks' verdicts and by the rules, which no hook overrides. A
    /// changed input is checked as if the model had chosen it.
    ///
    /// # Errors
    /// The run was cut.
    pub(super) async fn admit(
        &mut self,
        prepared: &mut Arc<PreparedCall>,
        verdict: &HookDecision,
    ) -> Result<Result<Permit, ToolRefusal>, CancelReason> {
        let grant = match self.grant_of(prepared, verdict) {
            Ok(grant) => grant,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.authorize(prepared, grant).await
    }

    /// Checks the permission of a call.
    ///
    /// # Errors
    /// The run was cut.
    #[expect(clippy::result_large_err, reason = "a refusal is rare, and used up at once")]
    pub(super) async fn authorize(
        &mut self,
        prepared: &Arc<PreparedCall>,
        grant: GrantSource,
    ) -> Result<Result<Permit, ToolRefusal>, CancelReason> {
        let checked = Arc::clone(prepared);
        let check = move |toolbox: &Toolbox| toolbox.authorize(&checked, grant);
        Ok(self.check_call(prepared.call(), check).await?.and_then(|permit| permit))
    }

    /// Returns what may permit a call by the hooks' verdicts, and changes its input as they say.
    #[expect(clippy::result_large_err, reason = "a refusal is rare, and used up at once")]
    fn grant_of(
        &mut self,
        prepared: &mut Arc<PreparedCall>,
        verdict: &HookDecision,
    ) -> Result<GrantSource, ToolRefusal> {
        if let Some(refusal) = self.tools.refusal_of_malformed(prepared.call()) {
            return Err(refusal);
        }
        self.hooks.add_context(&verdict.context, &self.conversation);
        if let Some(why) = &verdict.halt {
            self.hooks.halt(HookEvent::PreToolUse, why, &self.conversation);
            let why = self.conversation.hook_words(why);
            return Err(ToolRefusal::by_hook(&format!(
                "A hook stopped the run before this call: {why}"
            )));
        }
        if let Some(why) = verdict.denial() {
            let why = self.conversation.hook_words(why);
            return Err(ToolRefusal::by_hook(&format!("A hook does not allow this: {why}")));
        }
        if let Some(input) = &verdict.input {
            let call = ToolCall { input: input.clone(), ..prepared.call().clone() };
            *prepared = self.tools.toolbox().prepare(call);
        }
        Ok(match &verdict.permission {
            Some((HookPermission::Allow, _)) => GrantSource::Hook,
            Some((HookPermission::Defer, _)) if self.context.mark.is_none() => {
                let warning = format!(
                    "a hook defers a call of {}, which has no effect: it is not the only call of its \
                     reply",
                    prepared.call().name
                );
                self.monitor.emit(&RunEvent::Warning(warning));
                GrantSource::Rules
            }
            Some((HookPermission::Ask | HookPermission::Defer | HookPermission::Deny, why)) => {
                let why = self.conversation.hook_words(why);
                return Err(ToolRefusal::by_hook(&format!(
                    "A hook wants this to be asked about: {why}"
                )));
            }
            None => GrantSource::Rules,
        })
    }

    /// Runs the hooks after tools. Their output is added beside the results, or replaces some.
    pub(super) async fn after_tools(
        &mut self,
        ran: &[ExecutedTool<'_>],
    ) -> Result<Vec<ReplacedResult>, CancelReason> {
        let mut replaced = Vec::new();
        for (event, failed) in
            [(HookEvent::PostToolUse, false), (HookEvent::PostToolUseFailure, true)]
        {
            let is_of_it = |ran: &&ExecutedTool<'_>| is_error(ran.result) == failed;
            let decisions: Vec<&ExecutedTool<'_>> = ran.iter().filter(is_of_it).collect();
            let inputs: Vec<HookInput> =
                decisions.iter().map(|ran| afterwards(event, ran)).collect();
            if inputs.is_empty() {
                continue;
            }
            let verdicts = self.run_hooks_for_all(event, inputs).await?;
            for (ran, verdict) in decisions.into_iter().zip(verdicts) {
                if let (HookEvent::PostToolUse, Some(output)) = (event, &verdict.output) {
                    replaced.extend(self.replace(ran, output).await);
                }
                self.hooks.record_halt(event, &verdict, &self.conversation);
                let texts = verdict.objection.iter().chain(&verdict.context);
                self.hooks.add_context(texts, &self.conversation);
            }
        }
        if !replaced.is_empty() {
            self.hooks.record_replaced();
        }
        Ok(replaced)
    }

    /// Replaces the result of a tool by the output of a hook, if it has the same shape.
    async fn replace(&mut self, ran: &ExecutedTool<'_>, output: &Value) -> Option<ReplacedResult> {
        let ToolCall { id, name, .. } = ran.call.call().clone();
        let Some((text, mut detail)) = in_place_of(ran.detail, output) else {
            let warning = format!(
                "ignored the updatedToolOutput of a hook: its structure is not that of a {name} result"
            );
            self.monitor.emit(&RunEvent::Warning(warning));
            return None;
        };
        self.conversation.redactor_for_model().redact_json(&mut detail);
        let text = self.conversation.hook_words(&text);
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
            for (name, place) in &mut fields {
                let Some(value) = given.get(name) else { continue };
                let empty = value.is_null() || place.is_null();
                if !empty && std::mem::discriminant(value) != std::mem::discriminant(place) {
                    return None;
                }
                count += 1;
                value.clone_into(place);
            }
            (count > 0).then(|| (words_of(&fields), Value::Object(fields)))
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
fn words_of(fields: &Map<String, Value>) -> String {
    let streams = ["stdout", "stderr"].map(|name| fields.get(name).and_then(Value::as_str));
    if streams.iter().all(Option::is_none) {
        return Value::Object(fields.clone()).to_string();
    }
    let texts = streams.into_iter().flatten().map(str::trim_end).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n")
}

fn afterwards(event: HookEvent, ran: &ExecutedTool<'_>) -> HookInput {
    let millis = millis(ran.took);
    let mut more = Map::from_iter([("duration_ms".to_owned(), json!(millis))]);
    if event == HookEvent::PostToolUse {
        more.insert("tool_response".to_owned(), ran.detail.clone());
    } else {
        let Block::ToolResult { content, .. } = ran.result else {
            return HookInput::about(event, ran.call, more);
        };
        let text = text_of(content);
        let bare = text.trim_start_matches("<tool_use_error>");
        more.insert("error".to_owned(), json!(bare.trim_end_matches("</tool_use_error>")));
        more.insert("is_interrupt".to_owned(), json!(false));
    }
    HookInput::about(event, ran.call, more)
}
