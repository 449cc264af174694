//! Makes the answer of a script from a recorded request: the reply that was kept, a reply of the
//! same kind, or the fault.

use std::time::Duration;

use crate::history::{CallEnd, CallRecord, TurnRecord};
use crate::recovery::{
    CutKind, ErrorBody, ErrorClass, Event, Failure, FailureStage, Incomplete, RecoveryPlan,
    ReplyDisposition, ReplyKind, RetryAfter, RetryAfterSource, RetryHint,
};
use crate::rehearsal::{
    FaultPosition, ScriptStep, ScriptedError, ScriptedFault, ScriptedFaultKind, ScriptedHttp,
    ScriptedReply, ScriptedToolCall, ScriptedUsage, StepAnswer, error_response, usual_error,
};
use crate::transcript::{Block, Usage};

use super::paths::PathMask;

/// Replaces content that a session does not record: that of replies that did not enter the
/// conversation.
const NOT_RECORDED: &str = "(This reply was dropped; its text was not recorded.)";

/// Replaces the text of a reply that broke off. Shorter than one delta of the script's server.
const BROKEN_OFF: &str = "(Not recorded.)";

/// The events of a stream before its first block is complete: start, begin of the block, ping.
const BEFORE_A_BLOCK: usize = 3;

/// The events until after the first block, which has one delta, and the begin of the next.
const AFTER_A_BLOCK: usize = 6;

/// The interval of the pings of a server that does not answer.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The answer of a script to a recorded request.
pub(super) struct RecordedAnswer {
    pub(super) step: ScriptStep,
    /// The description of the recorded event, for a comment.
    pub(super) note: String,
    /// The difference from the recorded answer of the service, if there is one.
    pub(super) skipped: Option<String>,
}

impl RecordedAnswer {
    fn exact(step: ScriptStep, note: String) -> Self {
        Self { step, note, skipped: None }
    }
}

/// The reason that a request has no answer in the script.
pub(super) enum Unanswered {
    /// It was not sent, or nothing answered it before the process ended.
    Skipped,
    /// It cannot be reproduced: the description for the list of omissions.
    Omitted(&'static str),
}

/// Makes the answer to a request. `turn` is the reply that entered the conversation, if there is
/// one.
pub(super) fn answer(
    record: &CallRecord,
    turn: Option<&TurnRecord>,
    paths: &PathMask<'_>,
) -> Result<RecordedAnswer, Unanswered> {
    let Some(end) = &record.end else { return Err(Unanswered::Skipped) };
    if let Event::Replied(kind) = end.event {
        Ok(match turn {
            Some(turn) => RecordedAnswer::exact(kept(turn, paths), String::new()),
            None => dropped(end, kind, paths),
        })
    } else if let Event::Failed(failure) = end.event {
        failed(record, end, failure)
    } else if end.event == Event::DeadlinePassed {
        Ok(RecordedAnswer::exact(
            broken(ScriptedFaultKind::Pings { every: PING_INTERVAL }, BEFORE_A_BLOCK),
            "The time of the run was over before the reply.".to_owned(),
        ))
    } else if matches!(end.event, Event::SharedLimitMet { .. }) {
        Err(Unanswered::Omitted("waits for rate limits known on the host"))
    } else if end.event == Event::SummaryPrevented {
        Err(Unanswered::Omitted("a hook that prevented a summary"))
    } else if matches!(end.event, Event::HookStopped | Event::Deferred) {
        Err(Unanswered::Omitted("a hook that ended the run"))
    } else if matches!(end.event, Event::Interrupted(_)) {
        Err(Unanswered::Omitted("the signal that ended the run"))
    } else if end.event == Event::InternalError {
        Err(Unanswered::Omitted("an internal error"))
    } else {
        Err(Unanswered::Skipped)
    }
}

/// The step for a reply that entered the conversation.
pub(super) fn kept(turn: &TurnRecord, paths: &PathMask<'_>) -> ScriptStep {
    let mut reply = ScriptedReply { usage: usage(turn.usage), ..ScriptedReply::default() };
    let join = |texts: Vec<&str>| {
        let whole = texts.join("\n\n");
        (!texts.is_empty()).then(|| paths.hide(&whole))
    };
    let thinking = turn.content.iter().filter_map(|block| {
        if let Block::Thinking { thinking, .. } = block { Some(thinking.as_str()) } else { None }
    });
    reply.thinking = join(thinking.filter(|text| !text.is_empty()).collect());
    reply.text = join(turn.texts().collect());
    let call = |tool: &crate::history::ToolRun| ScriptedToolCall {
        name: tool.name.clone(),
        input: paths.hide_in(&tool.input),
        id: None,
        cut: None,
    };
    reply.tools = turn.tools.iter().map(call).collect();
    let usual = if reply.tools.is_empty() { "end_turn" } else { "tool_use" };
    reply.stop_reason = turn.stop_reason.clone().filter(|reason| reason != usual);
    if reply == (ScriptedReply { usage: reply.usage, ..ScriptedReply::default() }) {
        // It had thinking that is not recorded.
        reply.thinking = Some(NOT_RECORDED.to_owned());
    }
    ScriptStep::new(StepAnswer::Reply(reply))
}

fn usage(usage: Usage) -> ScriptedUsage {
    if usage == Usage::default() {
        return ScriptedUsage::default();
    }
    ScriptedUsage {
        input_tokens: Some(usage.input_tokens),
        output_tokens: Some(usage.output_tokens),
        cache_creation_input_tokens: Some(usage.cache_creation_input_tokens),
        cache_read_input_tokens: Some(usage.cache_read_input_tokens),
    }
}

/// A reply of the same kind as one that was dropped, or a summary.
fn dropped(end: &CallEnd, kind: ReplyKind, paths: &PathMask<'_>) -> RecordedAnswer {
    let text = |text: &str| Some(text.to_owned());
    let mut reply =
        ScriptedReply { usage: usage(end.usage.unwrap_or_default()), ..ScriptedReply::default() };
    let summary = end.summary.as_deref().filter(|_| end.reply == ReplyDisposition::Summary);
    let mut note = "A reply that was dropped.";
    match kind {
        ReplyKind::Answer { .. } | ReplyKind::Early { .. } | ReplyKind::LeftOpen { .. } => {
            reply.text = summary.map(|it| paths.hide(it)).or_else(|| text(NOT_RECORDED));
            if end.reply == ReplyDisposition::Summary {
                note = "A summary.";
            }
        }
        ReplyKind::ToolCalls { .. } => {
            reply.tools = vec![harmless_call(None)];
        }
        ReplyKind::CutShort(CutKind::Text) => {
            reply.text = text(NOT_RECORDED);
            reply.stop_reason = text("max_tokens");
        }
        ReplyKind::CutShort(CutKind::ToolCall) => {
            reply.tools = vec![harmless_call(Some(CUT_BYTES))];
            reply.stop_reason = text("max_tokens");
        }
        ReplyKind::CutShort(CutKind::Thinking) => {
            reply.thinking = text(NOT_RECORDED);
            reply.stop_reason = text("max_tokens");
        }
        ReplyKind::Incomplete(why) => {
            reply.text = text(NOT_RECORDED);
            reply.stop_reason = text(match why {
                Incomplete::MissingCall => "tool_use",
                Incomplete::Filtered => "content_filter",
                Incomplete::BrokenOff => "error",
                Incomplete::CallInText | Incomplete::UnknownReason => "not_recorded",
            });
        }
        ReplyKind::Refusal => {
            reply.text = text(NOT_RECORDED);
            reply.stop_reason = text("refusal");
        }
        ReplyKind::Empty => note = "An empty reply.",
        ReplyKind::Paused => {
            reply.text = text(NOT_RECORDED);
            reply.stop_reason = text("pause_turn");
        }
    }
    RecordedAnswer::exact(ScriptStep::new(StepAnswer::Reply(reply)), note.to_owned())
}

/// The number of bytes after which the input of a call is cut.
const CUT_BYTES: usize = 14;

/// A replacement for a tool call that was not recorded, and is not run.
fn harmless_call(cut: Option<usize>) -> ScriptedToolCall {
    let input = serde_json::json!({ "command": "true" });
    ScriptedToolCall { name: "Bash".to_owned(), input, id: None, cut }
}

fn failed(
    record: &CallRecord,
    end: &CallEnd,
    failure: Failure,
) -> Result<RecordedAnswer, Unanswered> {
    let class = failure.class;
    if end.plan == Some(RecoveryPlan::Strip) {
        return Err(Unanswered::Omitted(
            "a refusal of images or documents, which are not recorded",
        ));
    }
    let mut answer = if class == ErrorClass::ConnectionError {
        connection_failure(failure)
    } else if class == ErrorClass::ApiTimeout {
        if failure.has_streamed() {
            let stall = stream_fault(ScriptedFaultKind::Stall, failure);
            RecordedAnswer {
                skipped: Some(
                    "a stream that went on until the time of a reply was over: it stalls instead"
                        .to_owned(),
                ),
                ..RecordedAnswer::exact(stall, String::new())
            }
        } else {
            RecordedAnswer::exact(no_answer(ScriptedFaultKind::Stall), String::new())
        }
    } else if class == ErrorClass::StreamStalled {
        RecordedAnswer::exact(stream_fault(ScriptedFaultKind::Stall, failure), String::new())
    } else if class == ErrorClass::BadResponse {
        RecordedAnswer::exact(bad_response(failure), String::new())
    } else if class == ErrorClass::EmptyResponse {
        let reply = StepAnswer::Reply(ScriptedReply::default());
        RecordedAnswer::exact(ScriptStep::new(reply), String::new())
    } else if class == ErrorClass::SslCertError {
        return Err(Unanswered::Omitted("a certificate that was not accepted"));
    } else if class == ErrorClass::Aborted {
        return Err(Unanswered::Omitted("a request that was cut off"));
    } else {
        refusal(record, end, failure)
    };
    class.name().clone_into(&mut answer.note);
    answer.step.headers.extend(headers(failure));
    Ok(answer)
}

fn headers(failure: Failure) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    let mut add = |name: &str, value: String| headers.push((name.to_owned(), value));
    match failure.retry_after {
        Some(RetryAfter { wait, source: RetryAfterSource::RetryAfter })
            if wait.subsec_nanos() == 0 =>
        {
            add("retry-after", wait.as_secs().to_string());
        }
        Some(RetryAfter { wait, source: RetryAfterSource::RetryAfter }) => {
            add("retry-after-ms", wait.as_millis().to_string());
        }
        Some(RetryAfter { wait, source: RetryAfterSource::Reset }) => {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            let span = humantime::format_duration(Duration::from_secs(seconds));
            add("anthropic-ratelimit-unified-reset", format!("${{unix+{span}}}"));
        }
        None => {}
    }
    match failure.retry_hint {
        Some(RetryHint::Retry) => add("x-should-retry", "true".to_owned()),
        Some(RetryHint::Stop) => add("x-should-retry", "false".to_owned()),
        None => {}
    }
    if failure.fast_denied {
        add("anthropic-ratelimit-unified-overage-disabled-reason", "out_of_credits".to_owned());
    }
    headers
}

/// A reply that breaks where the recorded one did.
fn stream_fault(kind: ScriptedFaultKind, failure: Failure) -> ScriptStep {
    let events = if failure.stage == FailureStage::Block { AFTER_A_BLOCK } else { BEFORE_A_BLOCK };
    broken(kind, events)
}

fn broken(kind: ScriptedFaultKind, events: usize) -> ScriptStep {
    let reply = ScriptedReply {
        text: Some(BROKEN_OFF.to_owned()),
        // A second block, so that the break is before its end.
        tools: vec![harmless_call(None)],
        ..ScriptedReply::default()
    };
    let mut step = ScriptStep::new(StepAnswer::Reply(reply));
    step.fault = Some(ScriptedFault::new(kind, FaultPosition::Events(events)));
    step
}

/// A step that sends no byte of an answer.
fn no_answer(kind: ScriptedFaultKind) -> ScriptStep {
    let reply = StepAnswer::Reply(ScriptedReply::interrupted_default());
    let mut step = ScriptStep::new(reply);
    step.fault = Some(ScriptedFault::new(kind, FaultPosition::Request));
    step
}

fn connection_failure(failure: Failure) -> RecordedAnswer {
    let step = match failure.stage {
        FailureStage::Stream | FailureStage::Block | FailureStage::Status => {
            stream_fault(ScriptedFaultKind::Close, failure)
        }
        FailureStage::Unsent | FailureStage::StaleConnection | FailureStage::FreshConnection => {
            no_answer(ScriptedFaultKind::Reset)
        }
    };
    let skipped = (failure.stage == FailureStage::Unsent).then(|| {
        "an address that could not be reached: the connection is reset instead".to_owned()
    });
    RecordedAnswer { skipped, ..RecordedAnswer::exact(step, String::new()) }
}

/// A response of status 200 that cannot be parsed.
fn bad_response(failure: Failure) -> ScriptStep {
    if failure.has_streamed() {
        let nonsense = b"event: content_block_delta\ndata: {\n\n".to_vec();
        return stream_fault(ScriptedFaultKind::Insert(nonsense), failure);
    }
    ScriptStep::new(StepAnswer::Http(ScriptedHttp {
        status: 200,
        content_type: "application/json".to_owned(),
        body: "{".to_owned(),
        content_length: None,
    }))
}

/// An error of the service, in an answer of its own or within a stream.
fn refusal(record: &CallRecord, end: &CallEnd, failure: Failure) -> RecordedAnswer {
    let (status, error, skipped) = error_of(record, end, failure);
    if failure.has_streamed() {
        let error = error.unwrap_or_else(|| usual_error(status));
        let step = stream_fault(ScriptedFaultKind::Error(error), failure);
        return RecordedAnswer { step, note: String::new(), skipped };
    }
    let http = match failure.body {
        ErrorBody::Foreign | ErrorBody::Portal => ScriptedHttp {
            status,
            content_type: "text/html".to_owned(),
            body: "<html><title>Not recorded</title></html>".to_owned(),
            content_length: None,
        },
        ErrorBody::Api | ErrorBody::None => error_response(status, error.as_ref()),
    };
    let step = ScriptStep::new(StepAnswer::Http(http));
    RecordedAnswer { step, note: String::new(), skipped }
}

/// Returns the status, the error and the omission for a class. Without an error, the usual one of
/// the status is sent.
fn error_of(
    record: &CallRecord,
    end: &CallEnd,
    failure: Failure,
) -> (u16, Option<ScriptedError>, Option<String>) {
    let error = |kind: &str, message: &str| {
        Some(ScriptedError { kind: kind.to_owned(), message: message.to_owned(), code: None })
    };
    let invalid = |message: &str| error("invalid_request_error", message);
    let (status, error) = match failure.class {
        ErrorClass::RateLimit | ErrorClass::QuotaExhausted => (429, None),
        ErrorClass::ServerOverload | ErrorClass::Repeated529 => (529, None),
        ErrorClass::RequestTooLarge => (413, None),
        ErrorClass::PromptTooLong => (400, invalid(&too_long(record, end))),
        ErrorClass::PdfTooLarge => (400, invalid("A maximum of 100 PDF pages may be provided.")),
        ErrorClass::ImageTooLarge => (400, invalid("image exceeds 5 MB maximum")),
        ErrorClass::ToolUseMismatch => {
            (400, invalid("`tool_use` blocks were found without `tool_result` blocks"))
        }
        ErrorClass::InvalidModel => (404, error("not_found_error", "model: not recorded")),
        ErrorClass::CreditBalanceLow => (402, None),
        ErrorClass::InvalidApiKey => (401, None),
        ErrorClass::TokenRevoked => {
            (401, error("authentication_error", "OAuth token has been revoked"))
        }
        ErrorClass::AuthError => (403, None),
        ErrorClass::InvalidRequest => match end.plan {
            Some(RecoveryPlan::DropThinking) => {
                (400, invalid("Expected `thinking`, but found `text`"))
            }
            Some(RecoveryPlan::LowerCap) => (400, invalid("max_tokens is too large")),
            Some(RecoveryPlan::DropCacheMarks) => {
                (400, invalid("cache_control: Extra inputs are not permitted"))
            }
            Some(RecoveryPlan::DropStreaming) => {
                (400, invalid("streaming is not supported for this model"))
            }
            Some(RecoveryPlan::RepairBlock) => {
                let skipped = "which block of the conversation was refused";
                return (400, None, Some(skipped.to_owned()));
            }
            Some(_) | None => (400, None),
        },
        ErrorClass::Refusal | ErrorClass::ContentFiltered | ErrorClass::Unknown => (302, None),
        ErrorClass::ServerError
        | ErrorClass::Aborted
        | ErrorClass::ApiTimeout
        | ErrorClass::StreamStalled
        | ErrorClass::ConnectionError
        | ErrorClass::SslCertError
        | ErrorClass::BadResponse
        | ErrorClass::EmptyResponse => (500, None),
    };
    (status, error, None)
}

/// The message about a conversation that does not fit, with the window that it named.
fn too_long(record: &CallRecord, end: &CallEnd) -> String {
    let Some(window) = end.window else { return "prompt is too long".to_owned() };
    if end.plan == Some(RecoveryPlan::LowerCap) {
        let cap = u64::from(record.call.cap);
        let input = window.saturating_sub(cap / 2);
        return format!(
            "input length and `max_tokens` exceed context limit: {input} + {cap} > {window}"
        );
    }
    format!("prompt is too long: {} tokens > {window} maximum", window + 1)
}
