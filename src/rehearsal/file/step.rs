//! Parses one step of a scenario file.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use serde::Deserialize;
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

/// A step as written in a file, with the keys of every kind of answer.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StepTable {
    when: StepCondition,
    repeat: Option<NonZeroU32>,
    delay: ScriptedDuration,
    // A reply.
    text: Option<String>,
    thinking: Option<String>,
    tool: Vec<ToolTable>,
    empty: bool,
    stop_reason: Option<String>,
    usage: Option<ScriptedUsage>,
    form: Option<ReplyForm>,
    // Any other HTTP response.
    #[serde(deserialize_with = "status")]
    status: Option<u16>,
    error: Option<ScriptedError>,
    body: Option<String>,
    content_type: Option<String>,
    content_length: Option<usize>,
    // Bytes that are not HTTP.
    raw: Option<String>,

    headers: BTreeMap<String, String>,
    chunk: Option<NonZeroUsize>,
    pause: ScriptedDuration,
    fault: Option<FaultTable>,
    closes_early: bool,
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

/// A tool call as written in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolTable {
    name: String,
    input: Option<JsonValue>,
    input_json: Option<String>,
    id: Option<String>,
    cut: Option<usize>,
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultTable {
    kind: AnswerKind,
    after: FaultPosition,
    hold: Option<ScriptedDuration>,
    every: Option<ScriptedDuration>,
    error: Option<ScriptedError>,
    bytes: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnswerKind {
    Reset,
    Close,
    End,
    Stall,
    Pings,
    Error,
    Insert,
}

impl FaultTable {
    fn into_fault(self) -> Result<ScriptedFault, StepError> {
        let belongs = |given: bool, key, kinds: &[AnswerKind], names| {
            let fits = !given || kinds.contains(&self.kind);
            if fits { Ok(()) } else { Err(StepError::KeyOfOtherFault { key, kinds: names }) }
        };
        let holding = &[AnswerKind::Stall, AnswerKind::Pings];
        belongs(self.hold.is_some(), "hold", holding, "`stall` or `pings`")?;
        belongs(self.every.is_some(), "every", &[AnswerKind::Pings], "`pings`")?;
        belongs(self.error.is_some(), "error", &[AnswerKind::Error], "`error`")?;
        belongs(self.bytes.is_some(), "bytes", &[AnswerKind::Insert], "`insert`")?;
        let (begun, speaks) = match self.after {
            FaultPosition::Accept | FaultPosition::Request => {
                (false, self.after == FaultPosition::Request)
            }
            FaultPosition::HalfHead => (false, false),
            FaultPosition::Headers
            | FaultPosition::Events(_)
            | FaultPosition::Bytes(_)
            | FaultPosition::Delta => (true, true),
        };
        let kind = match self.kind {
            AnswerKind::Reset => ScriptedFaultKind::Reset,
            AnswerKind::Close => ScriptedFaultKind::Close,
            AnswerKind::Stall => ScriptedFaultKind::Stall,
            AnswerKind::End | AnswerKind::Pings | AnswerKind::Error if !begun => {
                return Err(StepError::BeforeHeaders);
            }
            AnswerKind::Insert if !speaks => {
                return Err(StepError::BeforeRequest);
            }
            AnswerKind::End => ScriptedFaultKind::End,
            AnswerKind::Pings => ScriptedFaultKind::Pings {
                every: self.every.unwrap_or(ScriptedDuration(Duration::from_secs(15))).0,
            },
            AnswerKind::Error => {
                ScriptedFaultKind::Error(self.error.unwrap_or_else(render::overloaded))
            }
            AnswerKind::Insert => {
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
