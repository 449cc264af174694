//! One step of a scenario file.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::render;
use crate::scenario::{
    ChunkTiming, FaultPosition, ReplyForm, ScriptStep, ScriptedError, ScriptedFault,
    ScriptedFaultKind, ScriptedHttp, ScriptedReply, ScriptedToolCall, ScriptedUsage, StepAnswer,
    StepCondition,
};
use crate::scripted_duration::ScriptedDuration;
use crate::scripted_values::{JsonValue, status};

use super::step_error::StepError;

/// One answer: a reply of the model, another HTTP response, or raw bytes. A fault can break a reply
/// or a response.
#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StepTable {
    /// The requests that it answers. All by default.
    when: StepCondition,
    /// The number of requests that it answers. 1 by default.
    repeat: Option<NonZeroU32>,
    /// The time before the first byte.
    delay: ScriptedDuration,
    /// The text of the reply. `${cwd}` is replaced by the path of the scratch folder.
    text: Option<String>,
    /// The thinking of the reply.
    thinking: Option<String>,
    /// The tool calls of the reply.
    pub(super) tool: Vec<ToolTable>,
    /// Whether the reply has no content.
    empty: bool,
    /// The stop reason of the reply. `tool_use` or `end_turn` by default.
    stop_reason: Option<String>,
    /// The token counts that the reply reports.
    usage: Option<ScriptedUsage>,
    /// The format of the reply.
    form: Option<ReplyForm>,
    /// The status of the response. By default the body is the usual error of the status.
    #[serde(deserialize_with = "status")]
    #[schemars(range(min = 200, max = 599))]
    status: Option<u16>,
    /// The error in the body of the response.
    error: Option<ScriptedError>,
    /// The body of the response, in place of an error.
    body: Option<String>,
    /// The content type of the response.
    content_type: Option<String>,
    /// The `content-length` of the response, in place of the correct one.
    content_length: Option<usize>,
    /// Bytes in place of a response. Then the connection is closed.
    raw: Option<String>,
    /// Headers that are added, or replace others. `${unix+5h}` and `${date+61s}` are replaced by
    /// times: seconds since the epoch, and an HTTP date.
    headers: BTreeMap<String, String>,
    /// The number of bytes per write. By default each write is one event.
    chunk: Option<NonZeroUsize>,
    /// The time between two writes.
    pause: ScriptedDuration,
    /// The fault that breaks the answer.
    fault: Option<FaultTable>,
    /// Whether the connection is closed afterwards although the headers announce keep-alive.
    closes_early: bool,
}

impl From<&ScriptStep> for StepTable {
    fn from(step: &ScriptStep) -> Self {
        let answer = match &step.answer {
            StepAnswer::Reply(reply)
                if step.fault.is_some() && *reply == ScriptedReply::interrupted_default() =>
            {
                Self::default()
            }
            StepAnswer::Reply(reply) => reply.into(),
            StepAnswer::Http(http) => http.into(),
            StepAnswer::Raw(bytes) => {
                let raw = Some(String::from_utf8_lossy(bytes).into_owned());
                Self { raw, ..Self::default() }
            }
        };
        Self {
            when: step.when.clone(),
            repeat: NonZeroU32::new(step.repeat).filter(|repeat| repeat.get() != 1),
            delay: ScriptedDuration(step.delay),
            headers: step.headers.iter().cloned().collect(),
            chunk: step.timing.chunk.and_then(NonZeroUsize::new),
            pause: ScriptedDuration(step.timing.pause),
            fault: step.fault.as_ref().map(FaultTable::from),
            closes_early: step.closes_early,
            ..answer
        }
    }
}

impl From<&ScriptedReply> for StepTable {
    fn from(reply: &ScriptedReply) -> Self {
        Self {
            text: reply.text.clone(),
            thinking: reply.thinking.clone(),
            tool: reply.tools.iter().map(ToolTable::from).collect(),
            empty: reply.text.is_none() && reply.thinking.is_none() && reply.tools.is_empty(),
            stop_reason: reply.stop_reason.clone(),
            usage: Some(reply.usage).filter(|usage| *usage != ScriptedUsage::default()),
            form: Some(reply.form).filter(|form| *form != ReplyForm::default()),
            ..Self::default()
        }
    }
}

impl From<&ScriptedHttp> for StepTable {
    fn from(http: &ScriptedHttp) -> Self {
        let usual = render::error_response(http.status, None);
        let is_whole = |error: &ScriptedError| {
            render::error_response(http.status, Some(error)).body == http.body
        };
        let error = error_in(&http.body).filter(is_whole);
        Self {
            status: Some(http.status),
            body: error.is_none().then(|| http.body.clone()),
            error: error.filter(|_| http.body != usual.body),
            content_type: (http.content_type != usual.content_type)
                .then(|| http.content_type.clone()),
            content_length: http.content_length,
            ..Self::default()
        }
    }
}

/// The error in a body of the service.
fn error_in(body: &str) -> Option<ScriptedError> {
    let body: Value = serde_json::from_str(body).ok()?;
    let field = |path: &str| body.pointer(path).and_then(Value::as_str).map(str::to_owned);
    Some(ScriptedError {
        kind: field("/error/type")?,
        message: field("/error/message")?,
        code: field("/error/details/error_code"),
    })
}

impl StepTable {
    pub(super) fn into_step(mut self) -> Result<ScriptStep, StepError> {
        let answer = self.take_answer()?;
        let fault = self.fault.map(FaultTable::into_fault).transpose()?;
        Ok(ScriptStep {
            when: self.when,
            repeat: self.repeat.map_or(1, NonZeroU32::get),
            delay: self.delay.0,
            answer,
            headers: self.headers.into_iter().collect(),
            timing: ChunkTiming { chunk: self.chunk.map(NonZeroUsize::get), pause: self.pause.0 },
            fault,
            closes_early: self.closes_early,
        })
    }

    fn take_answer(&mut self) -> Result<StepAnswer, StepError> {
        let has_content = self.text.is_some() || self.thinking.is_some() || !self.tool.is_empty();
        let describes_reply =
            self.stop_reason.is_some() || self.usage.is_some() || self.form.is_some();
        let replies = has_content || self.empty || describes_reply;
        let refuses = self.status.is_some()
            || self.error.is_some()
            || self.body.is_some()
            || self.content_type.is_some()
            || self.content_length.is_some();
        match (replies, refuses, self.raw.take()) {
            (true, false, None) if self.empty && has_content => Err(StepError::EmptyWithContent),
            (true, false, None) if !self.empty && !has_content => Err(StepError::NoContent),
            (true, false, None) => Ok(StepAnswer::Reply(ScriptedReply {
                thinking: self.thinking.take(),
                text: self.text.take(),
                tools: std::mem::take(&mut self.tool)
                    .into_iter()
                    .map(ToolTable::into_call)
                    .collect::<Result<_, _>>()?,
                stop_reason: self.stop_reason.take(),
                usage: self.usage.unwrap_or_default(),
                form: self.form.unwrap_or_default(),
            })),
            (false, true, None) => self.take_http().map(StepAnswer::Http),
            (false, false, Some(_)) if self.fault.is_some() || !self.headers.is_empty() => {
                Err(StepError::RawWithOthers)
            }
            (false, false, Some(raw)) => Ok(StepAnswer::Raw(raw.into_bytes())),
            (false, false, None) if self.fault.is_some() => {
                Ok(StepAnswer::Reply(ScriptedReply::interrupted_default()))
            }
            (false, false, None) => Err(StepError::NoAnswer),
            (_, _, _) => Err(StepError::SeveralAnswers),
        }
    }

    fn take_http(&mut self) -> Result<ScriptedHttp, StepError> {
        if self.error.is_some() && self.body.is_some() {
            return Err(StepError::ErrorAndBody);
        }
        let mut http = render::error_response(self.status.unwrap_or(200), self.error.as_ref());
        if let Some(body) = self.body.take() {
            http.body = body;
        }
        if let Some(content_type) = self.content_type.take() {
            http.content_type = content_type;
        }
        http.content_length = self.content_length;
        Ok(http)
    }
}

/// A tool call of a reply.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolTable {
    /// The name of the tool.
    name: String,
    /// The input. Tools expect a table. In its texts `${cwd}` is replaced by the path of the
    /// scratch folder.
    #[schemars(with = "Option<Value>")]
    input: Option<JsonValue>,
    /// The input as JSON, for values that TOML does not have, such as null.
    input_json: Option<String>,
    /// The id of the call. Generated by default.
    id: Option<String>,
    /// Truncates the JSON of the input after this number of bytes, as an output limit does.
    cut: Option<usize>,
}

impl From<&ScriptedToolCall> for ToolTable {
    fn from(call: &ScriptedToolCall) -> Self {
        let input = Some(&call.input).filter(|input| !input.is_null()).cloned();
        let (input, input_json) = match input {
            Some(input) if toml::Value::try_from(&input).is_err() => {
                (None, Some(input.to_string()))
            }
            input => (input.map(JsonValue), None),
        };
        Self { name: call.name.clone(), input, input_json, id: call.id.clone(), cut: call.cut }
    }
}

impl ToolTable {
    fn into_call(self) -> Result<ScriptedToolCall, StepError> {
        let Self { name, input, input_json, id, cut } = self;
        let input = match input_json {
            None => input.map_or(Value::Null, |input| input.0),
            Some(_) if input.is_some() => return Err(StepError::TwoInputs),
            Some(json) => serde_json::from_str(&json)
                .map_err(|error| StepError::InputJson(error.to_string()))?,
        };
        Ok(ScriptedToolCall { name, input, id, cut })
    }
}

/// A fault that breaks an answer.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultTable {
    /// The effect of the fault.
    kind: FaultName,
    /// The position of the fault.
    after: FaultPosition,
    /// Kinds `stall` and `pings`: the time until the connection is closed. 1 hour by default.
    hold: Option<ScriptedDuration>,
    /// Kind `pings`: the time between two pings. 15 seconds by default.
    every: Option<ScriptedDuration>,
    /// Kind `error`: the error, with the keys of `[step.error]`. An overload by default.
    error: Option<ScriptedError>,
    /// Kind `insert`: the inserted bytes.
    bytes: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FaultName {
    /// The connection is reset.
    Reset,
    /// The connection is closed.
    Close,
    /// The answer ends as if it were complete.
    End,
    /// Nothing more is sent.
    Stall,
    /// Only pings are sent; without a stream, nothing.
    Pings,
    /// An error event ends the stream. Without a stream, the error is the response.
    Error,
    /// Extra bytes are inserted.
    Insert,
}

impl From<&ScriptedFault> for FaultTable {
    fn from(fault: &ScriptedFault) -> Self {
        let (mut every, mut error, mut bytes) = (None, None, None);
        let kind = match &fault.kind {
            ScriptedFaultKind::Reset => FaultName::Reset,
            ScriptedFaultKind::Close => FaultName::Close,
            ScriptedFaultKind::End => FaultName::End,
            ScriptedFaultKind::Stall => FaultName::Stall,
            ScriptedFaultKind::Pings { every: span } => {
                every = Some(ScriptedDuration(*span));
                FaultName::Pings
            }
            ScriptedFaultKind::Error(sent) => {
                error = Some(sent.clone());
                FaultName::Error
            }
            ScriptedFaultKind::Insert(inserted) => {
                bytes = Some(String::from_utf8_lossy(inserted).into_owned());
                FaultName::Insert
            }
        };
        let hold = Some(fault.hold).filter(|hold| *hold != ScriptedFault::HOLD);
        Self { kind, after: fault.after, hold: hold.map(ScriptedDuration), every, error, bytes }
    }
}

impl FaultTable {
    fn into_fault(self) -> Result<ScriptedFault, StepError> {
        let belongs = |given: bool, key, kinds: &[FaultName], names| {
            let fits = !given || kinds.contains(&self.kind);
            if fits { Ok(()) } else { Err(StepError::KeyOfOtherFault { key, kinds: names }) }
        };
        let holding = &[FaultName::Stall, FaultName::Pings];
        belongs(self.hold.is_some(), "hold", holding, "`stall` or `pings`")?;
        belongs(self.every.is_some(), "every", &[FaultName::Pings], "`pings`")?;
        belongs(self.error.is_some(), "error", &[FaultName::Error], "`error`")?;
        belongs(self.bytes.is_some(), "bytes", &[FaultName::Insert], "`insert`")?;
        let is_before_headers = matches!(
            self.after,
            FaultPosition::Accept | FaultPosition::Request | FaultPosition::HalfHead
        );
        let can_insert = !is_before_headers || self.after == FaultPosition::Request;
        let kind = match self.kind {
            FaultName::Reset => ScriptedFaultKind::Reset,
            FaultName::Close => ScriptedFaultKind::Close,
            FaultName::Stall => ScriptedFaultKind::Stall,
            FaultName::End | FaultName::Pings | FaultName::Error if is_before_headers => {
                return Err(StepError::BeforeHeaders);
            }
            FaultName::Insert if !can_insert => return Err(StepError::BeforeRequest),
            FaultName::End => ScriptedFaultKind::End,
            FaultName::Pings => ScriptedFaultKind::Pings {
                every: self.every.unwrap_or(ScriptedDuration(Duration::from_secs(15))).0,
            },
            FaultName::Error => {
                ScriptedFaultKind::Error(self.error.unwrap_or_else(render::overloaded))
            }
            FaultName::Insert => {
                ScriptedFaultKind::Insert(self.bytes.ok_or(StepError::InsertsNothing)?.into_bytes())
            }
        };
        Ok(ScriptedFault {
            kind,
            after: self.after,
            hold: self.hold.map_or(ScriptedFault::HOLD, |hold| hold.0),
        })
    }
}
