//! One step as a file words it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::rehearsal::render;
use crate::rehearsal::scenario::{
    Answer, ApiError, Fault, Form, Harm, Http, Pace, Place, Reply, Step, Tool, Usage, When,
};
use crate::rehearsal::span::Span;

/// A step as a file words it: every key of every kind of answer.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StepSheet {
    when: When,
    repeat: Option<u32>,
    delay: Span,
    // A reply.
    text: Option<String>,
    thinking: Option<String>,
    tool: Vec<Tool>,
    empty: bool,
    stop_reason: Option<String>,
    usage: Option<Usage>,
    form: Option<Form>,
    // Anything else over HTTP.
    status: Option<u16>,
    error: Option<ApiError>,
    body: Option<String>,
    content_type: Option<String>,
    content_length: Option<usize>,
    // Not even HTTP.
    raw: Option<String>,

    headers: BTreeMap<String, String>,
    chunk: Option<usize>,
    pause: Span,
    fault: Option<FaultSheet>,
    hangs_up: bool,
}

impl StepSheet {
    pub(super) fn into_step(mut self) -> Result<Step, String> {
        let repeat = self.repeat.unwrap_or(1);
        if repeat == 0 {
            return Err("`repeat` must be at least 1".to_owned());
        }
        if self.chunk == Some(0) {
            return Err("`chunk` must be at least 1".to_owned());
        }
        let answer = self.take_answer()?;
        let fault = self.fault.map(FaultSheet::into_fault).transpose()?;
        Ok(Step {
            when: self.when,
            repeat,
            delay: self.delay.0,
            answer,
            headers: self.headers.into_iter().collect(),
            pace: Pace { chunk: self.chunk, pause: self.pause.0 },
            fault,
            hangs_up: self.hangs_up,
        })
    }

    fn take_answer(&mut self) -> Result<Answer, String> {
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
            (true, false, None) if self.empty && has_content => {
                Err("`empty = true` leaves no room for content".to_owned())
            }
            (true, false, None) if !self.empty && !has_content => {
                Err("a reply needs `text`, `thinking` or `tool`, or `empty = true`".to_owned())
            }
            (true, false, None) => Ok(Answer::Reply(Reply {
                thinking: self.thinking.take(),
                text: self.text.take(),
                tools: std::mem::take(&mut self.tool),
                stop_reason: self.stop_reason.take(),
                usage: self.usage.unwrap_or_default(),
                form: self.form.unwrap_or_default(),
            })),
            (false, true, None) => self.take_http().map(Answer::Http),
            (false, false, Some(_)) if self.fault.is_some() || !self.headers.is_empty() => {
                Err("`raw` is all that is sent: it has no `fault` and no `headers`".to_owned())
            }
            (false, false, Some(raw)) => Ok(Answer::Raw(raw.into_bytes())),
            (false, false, None) if self.fault.is_some() => Ok(Answer::Reply(Reply::doomed())),
            (false, false, None) => Err("a step needs an answer: `text`, `thinking`, `tool`, \
                 `empty = true`, `status`, `body`, `raw` or `fault`"
                .to_owned()),
            (_, _, _) => Err("a step is one answer: a reply (`text`, `thinking`, `tool`, \
                 `stop_reason`, `usage`, `form`), or `status` and what belongs to it, or `raw`"
                .to_owned()),
        }
    }

    fn take_http(&mut self) -> Result<Http, String> {
        let status = self.status.unwrap_or(200);
        if !(200..600).contains(&status) {
            return Err(format!("{status} is not the status of an answer"));
        }
        if self.error.is_some() && self.body.is_some() {
            return Err("`error` and `body` are two ways to say one thing".to_owned());
        }
        let mut http = render::refusal(status, self.error.as_ref());
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultSheet {
    kind: Kind,
    after: Place,
    hold: Option<Span>,
    every: Option<Span>,
    error: Option<ApiError>,
    bytes: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Reset,
    Close,
    End,
    Stall,
    Pings,
    Error,
    Insert,
}

impl FaultSheet {
    fn into_fault(self) -> Result<Fault, String> {
        let belongs = |given: bool, key: &str, kinds: &[Kind], names: &str| {
            let fits = !given || kinds.contains(&self.kind);
            if fits { Ok(()) } else { Err(format!("`{key}` belongs to a fault of kind {names}")) }
        };
        let holding = &[Kind::Stall, Kind::Pings];
        belongs(self.hold.is_some(), "hold", holding, "`stall` or `pings`")?;
        belongs(self.every.is_some(), "every", &[Kind::Pings], "`pings`")?;
        belongs(self.error.is_some(), "error", &[Kind::Error], "`error`")?;
        belongs(self.bytes.is_some(), "bytes", &[Kind::Insert], "`insert`")?;
        let (begun, speaks) = match self.after {
            Place::Accept | Place::Request => (false, self.after == Place::Request),
            Place::HalfHead => (false, false),
            Place::Headers | Place::Events(_) | Place::Bytes(_) | Place::Delta => (true, true),
        };
        let harm = match self.kind {
            Kind::Reset => Harm::Reset,
            Kind::Close => Harm::Close,
            Kind::Stall => Harm::Stall,
            Kind::End | Kind::Pings | Kind::Error if !begun => {
                return Err("this fault can only come after `headers`, or later".to_owned());
            }
            Kind::Insert if !speaks => {
                return Err(
                    "this fault can only come after `request`, `headers` or later".to_owned()
                );
            }
            Kind::End => Harm::End,
            Kind::Pings => {
                Harm::Pings { every: self.every.unwrap_or(Span(Duration::from_secs(15))).0 }
            }
            Kind::Error => Harm::Error(self.error.unwrap_or_else(render::overloaded)),
            Kind::Insert => Harm::Insert(
                self.bytes.ok_or("a fault of kind `insert` needs `bytes`")?.into_bytes(),
            ),
        };
        Ok(Fault { harm, after: self.after, hold: self.hold.map_or(Fault::HOLD, |hold| hold.0) })
    }
}
