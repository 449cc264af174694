//! Builds scenarios in Rust: `Scenario::new().status(529).times(3).reply("done")`.
//!
//! `reply`, `tool`, `empty`, `status`, `raw` and `breaks` begin a step. All other methods modify
//! the last step.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::render;
use super::rules::ServerRules;
use super::scenario::{
    AfterLast, ChunkTiming, Expectation, FaultPosition, ReplyForm, Scenario, ScratchFile,
    ScriptStep, ScriptedError, ScriptedFault, ScriptedFaultKind, ScriptedHttp, ScriptedReply,
    ScriptedToolCall, ScriptedUsage, ServerPart, StepAnswer, StepCondition,
};

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: "unnamed".to_owned(),
            summary: String::new(),
            prompt: String::new(),
            args: Vec::new(),
            env: BTreeMap::new(),
            time_scale: 1.0,
            files: BTreeMap::new(),
            main: ServerPart::default(),
            servers: BTreeMap::new(),
            expect: Expectation::default(),
        }
    }
}

/// Methods that begin a step.
impl Scenario {
    /// A scenario without steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step.
    pub fn step(mut self, step: ScriptStep) -> Self {
        self.main.steps.push(step);
        self
    }

    /// The model answers with `text` and ends its turn.
    pub fn reply(self, text: &str) -> Self {
        self.empty().and_text(text)
    }

    /// The model calls one tool. See [`Scenario::and_tool`] for more.
    pub fn tool(self, name: &str, input: Value) -> Self {
        self.empty().and_tool(name, input)
    }

    /// The model sends an empty reply.
    pub fn empty(self) -> Self {
        self.step(ScriptStep::new(StepAnswer::Reply(ScriptedReply::default())))
    }

    /// The service answers with an error status and its usual message.
    pub fn status(self, status: u16) -> Self {
        self.step(ScriptStep::new(StepAnswer::Http(render::error_response(status, None))))
    }

    /// The server sends these bytes and closes the connection.
    pub fn raw(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(ScriptStep::new(StepAnswer::Raw(bytes.into())))
    }

    /// A reply that is interrupted. Set its content with [`Scenario::and_text`] and
    /// [`Scenario::and_tool`].
    pub fn interrupted(self, kind: ScriptedFaultKind, after: FaultPosition) -> Self {
        let mut step = ScriptStep::new(StepAnswer::Reply(ScriptedReply::interrupted_default()));
        step.fault = Some(ScriptedFault::new(kind, after));
        self.step(step)
    }
}

/// Methods that modify the last step.
impl Scenario {
    /// Sets the text of the reply.
    pub fn and_text(self, text: &str) -> Self {
        self.on_reply(|reply| reply.text = Some(text.to_owned()))
    }

    /// Sets the thinking of the reply.
    pub fn and_thinking(self, thinking: &str) -> Self {
        self.on_reply(|reply| reply.thinking = Some(thinking.to_owned()))
    }

    /// Adds a tool call to the reply.
    pub fn and_tool(self, name: &str, input: Value) -> Self {
        self.on_reply(|reply| {
            let name = name.to_owned();
            reply.tools.push(ScriptedToolCall { name, input, id: None, cut: None });
        })
    }

    /// Gives the last tool call this id.
    pub fn id(self, id: &str) -> Self {
        self.on_reply(|reply| {
            if let Some(tool) = reply.tools.last_mut() {
                tool.id = Some(id.to_owned());
            }
        })
    }

    /// Truncates the last tool call's input after `bytes`, by the output limit.
    pub fn cut(self, bytes: usize) -> Self {
        self.stop_reason("max_tokens").on_reply(|reply| {
            if let Some(tool) = reply.tools.last_mut() {
                tool.cut = Some(bytes);
            }
        })
    }

    /// Sets the stop reason of the reply.
    pub fn stop_reason(self, stop_reason: &str) -> Self {
        self.on_reply(|reply| reply.stop_reason = Some(stop_reason.to_owned()))
    }

    /// Sets the input and output tokens, without cached ones.
    pub fn usage(self, input_tokens: u64, output_tokens: u64) -> Self {
        self.on_reply(|reply| {
            reply.usage = ScriptedUsage {
                input_tokens: Some(input_tokens),
                output_tokens: Some(output_tokens),
                cache_creation_input_tokens: Some(0),
                cache_read_input_tokens: Some(0),
            };
        })
    }

    /// Sets the format of the reply.
    pub fn form(self, form: ReplyForm) -> Self {
        self.on_reply(|reply| reply.form = form)
    }

    /// Sets the error's type, message and code.
    pub fn error(self, kind: &str, message: &str, code: Option<&str>) -> Self {
        let code = code.map(str::to_owned);
        let error = ScriptedError { code, ..ScriptedError::new(kind, message) };
        self.on_http(|http| *http = render::error_response(http.status, Some(&error)))
    }

    /// Replaces the body and content type of an error.
    pub fn body(self, content_type: &str, body: &str) -> Self {
        self.on_http(|http| {
            content_type.clone_into(&mut http.content_type);
            body.clone_into(&mut http.body);
        })
    }

    /// Announces a content length that differs from the body's.
    pub fn content_length(self, bytes: usize) -> Self {
        self.on_http(|http| http.content_length = Some(bytes))
    }

    /// Adds a header.
    pub fn header(self, name: &str, value: &str) -> Self {
        self.on_step(|step| step.headers.push((name.to_owned(), value.to_owned())))
    }

    /// Sets the number of requests that the step answers.
    pub fn times(self, repeat: u32) -> Self {
        self.on_step(|step| step.repeat = repeat.max(1))
    }

    /// Sets the delay before the first byte.
    pub fn delay(self, delay: Duration) -> Self {
        self.on_step(|step| step.delay = delay)
    }

    /// Sets the bytes per write and the pause between writes.
    pub fn timing(self, chunk: Option<usize>, pause: Duration) -> Self {
        self.on_step(|step| step.timing = ChunkTiming { chunk, pause })
    }

    /// Injects a fault.
    pub fn fault(self, kind: ScriptedFaultKind, after: FaultPosition) -> Self {
        self.on_step(|step| step.fault = Some(ScriptedFault::new(kind, after)))
    }

    /// Sets the duration of the stall or the pings of the fault.
    pub fn hold(self, hold: Duration) -> Self {
        self.on_step(|step| {
            if let Some(fault) = &mut step.fault {
                fault.hold = hold;
            }
        })
    }

    /// Closes the connection although it is announced as kept.
    pub fn closes_early(self) -> Self {
        self.on_step(|step| step.closes_early = true)
    }

    /// Only matches requests to this model.
    pub fn when_model(self, model: &str) -> Self {
        self.on_step(|step| step.when.model = Some(model.to_owned()))
    }

    /// Only matches requests that fit the condition.
    pub fn when(self, when: StepCondition) -> Self {
        self.on_step(|step| step.when = when)
    }

    fn on_step(mut self, change: impl FnOnce(&mut ScriptStep)) -> Self {
        if self.main.steps.is_empty() {
            self = self.empty();
        }
        if let Some(step) = self.main.steps.last_mut() {
            change(step);
        }
        self
    }

    fn on_reply(self, change: impl FnOnce(&mut ScriptedReply)) -> Self {
        self.on_step(|step| {
            if !matches!(step.answer, StepAnswer::Reply(_)) {
                step.answer = StepAnswer::Reply(ScriptedReply::default());
            }
            if let StepAnswer::Reply(reply) = &mut step.answer {
                if step.fault.is_some() && *reply == ScriptedReply::interrupted_default() {
                    *reply = ScriptedReply::default();
                }
                change(reply);
            }
        })
    }

    fn on_http(self, change: impl FnOnce(&mut ScriptedHttp)) -> Self {
        self.on_step(|step| {
            if !matches!(step.answer, StepAnswer::Http(_)) {
                step.answer = StepAnswer::Http(render::error_response(200, None));
            }
            if let StepAnswer::Http(http) = &mut step.answer {
                change(http);
            }
        })
    }
}

/// Methods that modify the scenario.
impl Scenario {
    /// Sets the handling of requests after the last step.
    pub fn after(mut self, after: AfterLast) -> Self {
        self.main.after = after;
        self
    }

    /// Sets the number of seconds of the script that pass in one real second.
    pub fn time_scale(self, time_scale: f64) -> Self {
        Self { time_scale, ..self }
    }

    /// Sets the prompt of the run.
    pub fn prompt(self, prompt: &str) -> Self {
        Self { prompt: prompt.to_owned(), ..self }
    }

    /// Adds a file of the scratch folder, with its permission bits.
    pub fn file(mut self, path: &str, content: &str, mode: u32) -> Self {
        self.files.insert(path.to_owned(), ScratchFile { content: content.to_owned(), mode });
        self
    }

    /// Sets the rules of the main server.
    pub fn rules(mut self, rules: ServerRules) -> Self {
        self.main.rules = rules;
        self
    }

    /// Sets the steps that answer requests with `x-outlast-source: compact`.
    pub fn compactions(mut self, script: Self) -> Self {
        self.main.compactions = script.main.steps;
        self
    }

    /// Adds another server with the steps of `script`'s main server and its expected number of
    /// requests.
    pub fn server(mut self, name: &str, script: Self) -> Self {
        let part = ServerPart { requests: script.expect.requests, ..script.main };
        self.servers.insert(name.to_owned(), part);
        self
    }

    /// Adds command-line arguments of the run.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// Sets the expected end.
    pub fn expect(self, expect: Expectation) -> Self {
        Self { expect, ..self }
    }
}

impl ScriptedReply {
    /// The default content of an interrupted reply.
    pub fn interrupted_default() -> Self {
        Self {
            text: Some("These words are lost on their way to you.".to_owned()),
            ..Self::default()
        }
    }
}
