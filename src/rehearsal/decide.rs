//! Decides how a request is answered: by the rules, the request validator or the script.

use outlast_core::json;
use serde_json::Value;

use super::connection::{RecordedRequest, ServerConnection};
use super::render;
use super::repeat_check::ServerStatus;
use super::request_validator::{self, BODY_MAX, LastWord};
use super::scenario::{ScriptStep, ScriptedError, ScriptedHttp, ServerPart, StepAnswer};
use super::script::{ReceivedRequest, RequestRetention, RequestTraits, ScriptLine, ScriptState};
use super::shared_state::SharedState;
use super::sse::{ReplyContext, ResolvedReply, SigningKey};

/// The decision on a request: the step that answers it.
pub(super) struct Decision {
    /// The number of the request, counted from 1.
    pub(super) number: usize,
    pub(super) step: ScriptStep,
    /// The reply of the step, with defaults filled in.
    pub(super) reply: Option<ResolvedReply>,
    /// True if the request asks for a stream.
    pub(super) streaming: bool,
}

/// A request to decide on.
struct RequestCase<'a> {
    part: &'a ServerPart,
    traits: RequestTraits<'a>,
    line: ScriptLine,
    /// Counted from 1.
    number: usize,
    signing_key: SigningKey,
}

/// Records a request and decides how it is answered.
pub(super) fn decide(
    connection: &ServerConnection,
    request: &RecordedRequest,
    shared: &SharedState,
) -> Decision {
    let body: Value = json::read(&request.body).unwrap_or(Value::Null);
    let mut script = shared.script.lock();
    let number = script.recorded.len() + 1;
    let line = ScriptLine::of(&shared.part, request);
    let (kept_body, raw) = match shared.retention {
        RequestRetention::Whole => (body.clone(), request.body.clone()),
        RequestRetention::Heads => (Value::Null, Vec::new()),
    };
    script.recorded.push(ReceivedRequest {
        at: shared.start.elapsed(),
        path: request.path.clone(),
        headers: request.headers.clone(),
        body: kept_body,
        raw: raw.into(),
        connection_id: connection.id,
        line,
        step: None,
        aborted_by_client: false,
    });
    let expired = shared.part.rules.expire_signatures_after;
    let signing_key = if expired.is_some_and(|after| number as u64 > after) {
        SigningKey::Second
    } else {
        SigningKey::First
    };
    let traits = RequestTraits { request, body: &body };
    let case = RequestCase { part: &shared.part, traits, line, number, signing_key };
    let step = answer(&mut script, &case);
    let streaming = body["stream"].as_bool().unwrap_or(false);
    let step = if streaming { step } else { render::without_streaming(step) };
    let mut resolved_reply = None;
    if let StepAnswer::Reply(reply) = &step.answer {
        let context = ReplyContext {
            id_suffix: &format!("{}_{number}", shared.name),
            model: body["model"].as_str().unwrap_or_default(),
            cwd: &shared.cwd,
            request_tokens: script.count(&shared.part, &body, &request.body),
            signing_key,
            speed: body["speed"].as_str(),
        };
        let reply = ResolvedReply::new(reply, &context);
        if reply.stop_reason == "pause_turn" {
            script.track(line).last_word = LastWord::AnyRole;
        }
        resolved_reply = Some(reply);
    }
    drop(script);
    shared.changes.send_replace(());
    Decision { number, step, reply: resolved_reply, streaming }
}

/// Chooses the answer to a request, and records whether the request may be repeated.
fn answer(script: &mut ScriptState, case: &RequestCase<'_>) -> ScriptStep {
    let (step, rule) = match find_objection(script, case) {
        Some(RequestObjection { http, rule }) => (non_retryable(http), rule),
        None => (scripted_step(script, case), None),
    };
    let status = script.status;
    let refusal = &mut script.track(case.line).refusal;
    match &step.answer {
        StepAnswer::Http(http) if http.status == 400 && !invites_retry(&step) => {
            refusal.record(case.traits.body, rule, &http.body, status);
        }
        StepAnswer::Http(_) => refusal.forget(),
        StepAnswer::Reply(_) | StepAnswer::Raw(_) => {
            refusal.forget();
            script.status = ServerStatus::Proven;
        }
    }
    step
}

fn scripted_step(script: &mut ScriptState, case: &RequestCase<'_>) -> ScriptStep {
    if let Some(at) = script.next(case.part, case.line, &case.traits) {
        script.recorded[case.number - 1].step = Some(at);
        return case.line.steps(case.part)[at].clone();
    }
    let message = format!("request {} came after the end of the script", case.number);
    script.violations.push(message.clone());
    let error = ScriptedError::new("api_error", message);
    non_retryable(render::error_response(500, Some(&error)))
}

/// A refusal that the client must not retry.
fn non_retryable(http: ScriptedHttp) -> ScriptStep {
    ScriptStep {
        headers: vec![("x-should-retry".to_owned(), "false".to_owned())],
        ..ScriptStep::new(StepAnswer::Http(http))
    }
}

/// True if the error may be retried. Amazon sends throttling as a 400, marked by a header.
fn invites_retry(step: &ScriptStep) -> bool {
    step.headers.iter().any(|(name, value)| match name.to_ascii_lowercase().as_str() {
        "x-should-retry" => value == "true",
        "x-amzn-errortype" => value.starts_with("ThrottlingException"),
        _ => false,
    })
}

/// A refusal of a request by validation or rules, before the script.
struct RequestObjection {
    http: ScriptedHttp,
    /// The message of the rule that refused it.
    rule: Option<String>,
}

impl From<ScriptedHttp> for RequestObjection {
    fn from(http: ScriptedHttp) -> Self {
        Self { http, rule: None }
    }
}

fn find_objection(script: &mut ScriptState, case: &RequestCase<'_>) -> Option<RequestObjection> {
    let (rules, RequestTraits { request, body }) = (&case.part.rules, &case.traits);
    if let Some(key) = &rules.require_key
        && !request_validator::has_credential(request, key)
    {
        return Some(render::error_response(401, None).into());
    }
    if let Some(tokens) = &rules.tokens
        && let Some(http) = script.grants.check_token(tokens, request)
    {
        return Some(http.into());
    }
    let track = script.track(case.line);
    if body["messages"].as_array().and_then(|all| all.last()?["role"].as_str()) == Some("user") {
        track.last_word = LastWord::User;
    }
    let mut faults = request_validator::validate(request, body, track.last_word, rules.signatures);
    if track.refusal.forbids(body) {
        faults.push("the same request was refused with a 400 just before".to_owned());
    }
    let rule = match faults.first() {
        Some(_) => None,
        None => request_validator::exceeded_limit(rules, request, body, case.signing_key),
    };
    let again = rule.as_ref().filter(|rule| track.refusal.has_message(rule));
    faults.extend(again.map(|rule| format!("the same 400 was provoked again: {rule}")));
    let violations = faults.iter().map(|fault| format!("request {}: {fault}", case.number));
    script.violations.extend(violations);
    match (rule, faults.first()) {
        (Some(rule), _) => Some(RequestObjection { http: invalid(&rule), rule: Some(rule) }),
        (None, Some(_)) if request.body.len() > BODY_MAX => {
            Some(render::error_response(413, None).into())
        }
        (None, Some(fault)) => Some(invalid(fault).into()),
        (None, None) => None,
    }
}

pub(super) fn invalid(message: &str) -> ScriptedHttp {
    render::error_response(400, Some(&ScriptedError::new("invalid_request_error", message)))
}
