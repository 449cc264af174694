//! Makes the answer of a script to a recorded request: the recorded reply, a reply of the same
//! kind, or the fault.

use std::time::Duration;

use crate::history::{CallEnd, CallRecord, ToolRun, TurnRecord};
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

/// Replaces the content of replies that did not enter the conversation, which is not recorded.
const NOT_RECORDED: &str = "(This reply was dropped; its text was not recorded.)";

/// Replaces the text of a reply that broke off. It is shorter than one delta of the script's
/// server.
const BROKEN_OFF: &str = "(Not recorded.)";

/// Number of events of a stream before its first block is complete: start, begin of the block,
/// ping.
const BEFORE_A_BLOCK: usize = 3;

/// Number of events until after the first block, which has one delta, and the begin of the next.
const AFTER_A_BLOCK: usize = 6;

/// Interval of the pings of a server that does not answer.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// A window, in tokens, of which each request takes less than half.
const ANY_WINDOW: u64 = 10_000_000;

/// Number of bytes after which the input of a call is cut.
const CUT_BYTES: usize = 14;

/// The answer of a script to a recorded request.
pub(super) struct RecordedAnswer {
    pub(super) step: ScriptStep,
    /// The description of the recorded event, for a comment.
    pub(super) note: String,
    /// The difference from the recorded answer of the service, if there is one.
    pub(super) skipped: Option<String>,
}

impl From<ScriptStep> for RecordedAnswer {
    fn from(step: ScriptStep) -> Self {
        Self { step, note: String::new(), skipped: None }
    }
}

/// The reason why a request has no answer in the script.
pub(super) enum Unanswered {
    /// It was not sent, or not answered before the process ended.
    Skipped,
    /// It cannot be reproduced. The text describes it in the list of omissions.
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
            Some(turn) => recorded_reply(turn, paths).into(),
            None => dropped(end, kind, paths),
        })
    } else if let Event::Failed(failure) = end.event {
        failed(record, end, failure)
    } else if end.event == Event::DeadlinePassed {
        let note = "The time of the run was over before the reply.".to_owned();
        let step = broken(ScriptedFaultKind::Pings { every: PING_INTERVAL }, BEFORE_A_BLOCK);
        Ok(RecordedAnswer { note, ..step.into() })
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

/// Makes the step for a reply that entered the conversation.
pub(super) fn recorded_reply(turn: &TurnRecord, paths: &PathMask<'_>) -> ScriptStep {
    let mut reply = ScriptedReply { usage: usage(turn.usage), ..ScriptedReply::default() };
    let join = |texts: Vec<&str>| (!texts.is_empty()).then(|| paths.hide(&texts.join("\n\n")));
    let thinking = turn.content.iter().filter_map(|block| {
        if let Block::Thinking { thinking, .. } = block { Some(thinking.as_str()) } else { None }
    });
    reply.thinking = join(thinking.filter(|text| !text.is_empty()).collect());
    reply.text = join(turn.texts().collect());
    let call = |tool: &ToolRun| ScriptedToolCall {
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

/// Makes a reply of the same kind as one that was dropped, or a summary.
fn dropped(end: &CallEnd, kind: ReplyKind, paths: &PathMask<'_>) -> RecordedAnswer {
    let text = |text: &str| Some(text.to_owned());
    let mut reply =
        ScriptedReply { usage: usage(end.usage.unwrap_or_default()), ..ScriptedReply::default() };
    let is_summary = end.reply == ReplyDisposition::Summary;
    let mut note = "A reply that was dropped.";
    let stop_reason = match kind {
        ReplyKind::Answer { .. } | ReplyKind::Early { .. } | ReplyKind::LeftOpen { .. } => {
            if is_summary {
                note = "A summary.";
                reply.text = end.summary.as_deref().map(|summary| paths.hide(summary));
            }
            None
        }
        ReplyKind::ToolCalls { .. } => None,
        ReplyKind::CutShort(_) => Some("max_tokens"),
        ReplyKind::Incomplete(Incomplete::MissingCall) => Some("tool_use"),
        ReplyKind::Incomplete(Incomplete::Filtered) => Some("content_filter"),
        ReplyKind::Incomplete(Incomplete::BrokenOff) => Some("error"),
        ReplyKind::Incomplete(Incomplete::CallInText | Incomplete::UnknownReason) => {
            Some("not_recorded")
        }
        ReplyKind::Refusal => Some("refusal"),
        ReplyKind::Empty => {
            note = "An empty reply.";
            None
        }
        ReplyKind::Paused => Some("pause_turn"),
    };
    reply.stop_reason = stop_reason.and_then(text);
    match kind {
        ReplyKind::ToolCalls { .. } => reply.tools = vec![harmless_call(None)],
        ReplyKind::CutShort(CutKind::ToolCall) => {
            reply.tools = vec![harmless_call(Some(CUT_BYTES))];
        }
        ReplyKind::CutShort(CutKind::Thinking) => reply.thinking = text(NOT_RECORDED),
        ReplyKind::Empty => {}
        ReplyKind::Answer { .. }
        | ReplyKind::Early { .. }
        | ReplyKind::LeftOpen { .. }
        | ReplyKind::CutShort(CutKind::Text)
        | ReplyKind::Incomplete(_)
        | ReplyKind::Refusal
        | ReplyKind::Paused => reply.text = reply.text.or_else(|| text(NOT_RECORDED)),
    }
    let step = ScriptStep::new(StepAnswer::Reply(reply));
    RecordedAnswer { note: note.to_owned(), ..step.into() }
}

/// Replaces a tool call that was not recorded, and is not run.
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
    } else if class == ErrorClass::ApiTimeout && failure.has_streamed() {
        let what = "a stream that went on until the time of a reply was over: it stalls instead";
        let stall = stream_fault(ScriptedFaultKind::Stall, failure);
        RecordedAnswer { skipped: Some(what.to_owned()), ..stall.into() }
    } else if class == ErrorClass::ApiTimeout {
        no_answer(ScriptedFaultKind::Stall).into()
    } else if class == ErrorClass::StreamStalled {
        stream_fault(ScriptedFaultKind::Stall, failure).into()
    } else if class == ErrorClass::BadResponse {
        bad_response(failure).into()
    } else if class == ErrorClass::EmptyResponse {
        ScriptStep::new(StepAnswer::Reply(ScriptedReply::default())).into()
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

/// Makes a reply that breaks where the recorded one did.
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

/// Makes a step that sends no byte of an answer.
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
    RecordedAnswer { skipped, ..step.into() }
}

/// Makes a response of status 200 that cannot be parsed.
fn bad_response(failure: Failure) -> ScriptStep {
    if failure.has_streamed() {
        let invalid = b"event: content_block_delta\ndata: {\n\n".to_vec();
        return stream_fault(ScriptedFaultKind::Insert(invalid), failure);
    }
    ScriptStep::new(StepAnswer::Http(ScriptedHttp {
        status: 200,
        content_type: "application/json".to_owned(),
        body: "{".to_owned(),
        content_length: None,
    }))
}

/// Makes an error of the service, as a response or within a stream.
fn refusal(record: &CallRecord, end: &CallEnd, failure: Failure) -> RecordedAnswer {
    let (status, error) = error_of(record, end, failure);
    let is_block =
        failure.class == ErrorClass::InvalidRequest && end.plan == Some(RecoveryPlan::RepairBlock);
    let skipped = is_block.then(|| "which block of the conversation was refused".to_owned());
    if failure.has_streamed() {
        let error = error.unwrap_or_else(|| usual_error(status));
        let step = stream_fault(ScriptedFaultKind::Error(error), failure);
        return RecordedAnswer { skipped, ..step.into() };
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
    RecordedAnswer { skipped, ..ScriptStep::new(StepAnswer::Http(http)).into() }
}

/// Returns the status and the error for a class. Without an error, the usual one of the status is
/// sent.
fn error_of(record: &CallRecord, end: &CallEnd, failure: Failure) -> (u16, Option<ScriptedError>) {
    let error = |kind: &str, message: &str| {
        Some(ScriptedError { kind: kind.to_owned(), message: message.to_owned(), code: None })
    };
    let invalid = |message: &str| error("invalid_request_error", message);
    match failure.class {
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
            Some(_) | None => (400, None),
        },
        ErrorClass::ContentFiltered => (400, invalid("blocked by content policy")),
        ErrorClass::Refusal | ErrorClass::Unknown => (302, None),
        ErrorClass::ServerError
        | ErrorClass::Aborted
        | ErrorClass::ApiTimeout
        | ErrorClass::StreamStalled
        | ErrorClass::ConnectionError
        | ErrorClass::SslCertError
        | ErrorClass::BadResponse
        | ErrorClass::EmptyResponse => (500, None),
    }
}

/// Returns the message about a conversation that is too long, with the window that it named.
fn too_long(record: &CallRecord, end: &CallEnd) -> String {
    let window = end.window.or_else(|| {
        // Only a window far above the request has it sent again as it is.
        (end.plan == Some(RecoveryPlan::RetryOverflow)).then_some(ANY_WINDOW)
    });
    let Some(window) = window else { return "prompt is too long".to_owned() };
    if end.plan == Some(RecoveryPlan::LowerCap) {
        let cap = u64::from(record.call.cap);
        let input = window.saturating_sub(cap / 2);
        return format!(
            "input length and `max_tokens` exceed context limit: {input} + {cap} > {window}"
        );
    }
    format!("prompt is too long: {} tokens > {window} maximum", window + 1)
}
