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

/// The request's number, the step that answers it, and the reply; the flag is true if it is
/// streamed.
type Decision = (usize, ScriptStep, Option<(ResolvedReply, bool)>);

/// A request that is being validated.
struct RequestCase<'a> {
    part: &'a ServerPart,
    asked: RequestTraits<'a>,
    line: ScriptLine,
    /// Counted from 1.
    number: usize,
    signing_key: SigningKey,
}

/// Records a request and decides how it is answered.
pub(super) fn decide(
    connection: &ServerConnection,
    request: &RecordedRequest,
    stage: &SharedState,
) -> Decision {
    let body: Value = json::read(&request.body).unwrap_or(Value::Null);
    let mut script = stage.script.lock();
    let number = script.recorded.len() + 1;
    let line = ScriptLine::of(&stage.part, request);
    let (kept, raw) = match stage.retention {
        RequestRetention::Whole => (body.clone(), request.body.clone()),
        RequestRetention::Heads => (Value::Null, Vec::new()),
    };
    script.recorded.push(ReceivedRequest {
        at: stage.start.elapsed(),
        path: request.path.clone(),
        headers: request.headers.clone(),
        body: kept,
        raw: raw.into(),
        connection_id: connection.id,
        line,
        step: None,
        aborted_by_client: false,
    });
    let expired = stage.part.rules.expire_signatures_after;
    let signing_key = if expired.is_some_and(|after| number as u64 > after) {
        SigningKey::Second
    } else {
        SigningKey::First
    };
    let asked = RequestTraits { request, body: &body };
    let case = RequestCase { part: &stage.part, asked, line, number, signing_key };
    let step = answer(&mut script, &case);
    let streaming = body["stream"].as_bool().unwrap_or(false);
    let step = if streaming { step } else { render::without_streaming(step) };
    let resolved = match &step.answer {
        StepAnswer::Reply(reply) => {
            let given = ReplyContext {
                names: &format!("{}_{number}", stage.name),
                model: body["model"].as_str().unwrap_or_default(),
                cwd: &stage.cwd,
                asked: script.count(&stage.part, &body, &request.body),
                signing_key,
                speed: body["speed"].as_str(),
            };
            let resolved = ResolvedReply::new(reply, &given);
            if resolved.stop_reason == "pause_turn" {
                script.track(line).last_word = LastWord::AnyRole;
            }
            Some((resolved, streaming))
        }
        StepAnswer::Http(_) | StepAnswer::Raw(_) => None,
    };
    drop(script);
    stage.changes.send_replace(());
    (number, step, resolved)
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
            refusal.note(case.asked.body, rule, &http.body, status);
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
    if let Some(at) = script.next(case.part, case.line, &case.asked) {
        script.recorded[case.number - 1].step = Some(at);
        return case.line.steps(case.part)[at].clone();
    }
    let message = format!("request {} came after the end of the script", case.number);
    script.violations.push(message.clone());
    let kind = "api_error".to_owned();
    non_retryable(render::error_response(500, Some(&ScriptedError { kind, message, code: None })))
}

/// A refusal that the client must not retry.
fn non_retryable(http: ScriptedHttp) -> ScriptStep {
    ScriptStep {
        headers: vec![("x-should-retry".to_owned(), "false".to_owned())],
        ..ScriptStep::new(StepAnswer::Http(http))
    }
}

/// Returns true if the error may be retried. Amazon sends throttling as a 400, marked by a header.
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
    let (rules, RequestTraits { request, body }) = (&case.part.rules, &case.asked);
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
    script
        .violations
        .extend(faults.iter().map(|fault| format!("request {}: {fault}", case.number)));
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
    let kind = "invalid_request_error".to_owned();
    render::error_response(
        400,
        Some(&ScriptedError { kind, message: message.to_owned(), code: None }),
    )
}
