//! Serves connections: answers requests from the script, and those that are not part of it.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::json;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::connection::{RecordedRequest, ServerConnection};
use super::decide::{decide, invalid};
use super::door::{self, EventFormat};
use super::play::{ConnectionOutcome, play, play_at_accept};
use super::render::{self, RenderContext};
use super::request_validator;
use super::scenario::{ScriptStep, ScriptedHttp, StepAnswer};
use super::script::RequestTraits;
use super::shared_state::SharedState;

/// Accepts connections until the task is dropped.
pub(super) async fn accept(listener: TcpListener, stage: Arc<SharedState>) {
    // Dropping this task drops every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                let id = {
                    let mut script = stage.script.lock();
                    script.accepted += 1;
                    script.accepted
                };
                stage.changes.send_replace(());
                connections.spawn(serve(ServerConnection::new(id, stream), Arc::clone(&stage)));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut connection: ServerConnection, stage: Arc<SharedState>) {
    let fault = stage.script.lock().fault_at_accept(&stage.part);
    if let Some(fault) = fault {
        return play_at_accept(connection, &fault, stage.time_scale).await;
    }
    loop {
        let request = match connection.read_request().await {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) => {
                let step = ScriptStep::new(StepAnswer::Http(invalid(&error.to_string())));
                return drop(send(connection, &step, &stage, false).await);
            }
        };
        let (request, events) = door::admit(request);
        let path = request.path.split('?').next().unwrap_or_default().to_owned();
        let outcome = match (request.method.as_str(), path.as_str()) {
            ("POST", _) if RequestTraits::is_probe(&request) && events.is_some() => {
                answer_probe(connection, &request, &stage).await
            }
            ("POST", _) if let Some(events) = events => {
                answer(connection, request, &stage, events).await
            }
            ("POST", path)
                if path.ends_with("/v1/messages/count_tokens")
                    || path.ends_with("/models/count-tokens:rawPredict") =>
            {
                let count = json!({ "input_tokens": count_tokens(&request, &stage) });
                answer_unscripted(connection, &request, &stage, count).await
            }
            ("POST", path) if stage.token_rules().is_some_and(|rules| rules.path == path) => {
                renew(connection, &request, &stage).await
            }
            ("HEAD" | "GET", path) if !path.contains("/v1/") => {
                answer_unscripted(connection, &request, &stage, json!({ "rehearsal": true })).await
            }
            _ => {
                let step = ScriptStep::new(StepAnswer::Http(render::error_response(404, None)));
                send(connection, &step, &stage, request.keep_alive).await
            }
        };
        match outcome {
            ConnectionOutcome::Open(open) => connection = open,
            ConnectionOutcome::Ended | ConnectionOutcome::Abandoned => return,
        }
    }
}

fn count_tokens(request: &RecordedRequest, stage: &SharedState) -> u64 {
    match (stage.part.rules.token_limit, json::read(&request.body)) {
        (Some(_), Ok(body)) => request_validator::count(&body),
        _ => request.body.len().div_ceil(4) as u64,
    }
}

/// Answers a request for a new access token.
async fn renew(
    connection: ServerConnection,
    request: &RecordedRequest,
    stage: &SharedState,
) -> ConnectionOutcome {
    let (answer, delay) = match stage.token_rules() {
        Some(rules) => (stage.script.lock().grants.handle_refresh(rules, request), rules.delay),
        None => (render::error_response(404, None), Duration::ZERO),
    };
    stage.changes.send_replace(());
    let step = ScriptStep { delay, ..ScriptStep::new(StepAnswer::Http(answer)) };
    send(connection, &step, stage, request.keep_alive).await
}

/// Answers a request that is not part of the script.
async fn answer_unscripted(
    connection: ServerConnection,
    request: &RecordedRequest,
    stage: &SharedState,
    body: Value,
) -> ConnectionOutcome {
    let body = body.to_string();
    let headless = request.method == "HEAD";
    let step = ScriptStep::new(StepAnswer::Http(ScriptedHttp {
        status: 200,
        content_type: "application/json".to_owned(),
        content_length: Some(body.len()),
        body: if headless { String::new() } else { body },
    }));
    send(connection, &step, stage, request.keep_alive).await
}

/// Answers a capacity probe like the next request, without advancing the script.
async fn answer_probe(
    connection: ServerConnection,
    request: &RecordedRequest,
    stage: &SharedState,
) -> ConnectionOutcome {
    let body: Value = json::read(&request.body).unwrap_or(Value::Null);
    let asked = RequestTraits { request, body: &body };
    let refusal = stage.script.lock().probe_refusal(&stage.part, &asked);
    stage.changes.send_replace(());
    if let Some(step) = refusal {
        return send(connection, &step, stage, request.keep_alive).await;
    }
    let message = json!({
        "id": format!("msg_{}_probe", stage.name),
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{ "type": "text", "text": "Hi" }],
        "stop_reason": "max_tokens",
        "stop_sequence": null,
        "usage": { "input_tokens": 8, "output_tokens": 1 },
    });
    answer_unscripted(connection, request, stage, message).await
}

/// Answers a request for a model reply.
async fn answer(
    connection: ServerConnection,
    request: RecordedRequest,
    stage: &SharedState,
    events: EventFormat,
) -> ConnectionOutcome {
    let (number, step, resolved) = decide(&connection, &request, stage);
    let streaming = resolved.as_ref().is_some_and(|(_, streaming)| *streaming);
    let at = RenderContext {
        request_id: &format!("req_{}_{number}", stage.name),
        reply: resolved.as_ref().map(|(resolved, _)| resolved),
        streaming,
        keep_alive: request.keep_alive,
        events,
    };
    let outcome = play(connection, &render::render(&step, &at), &step, stage.time_scale).await;
    if matches!(outcome, ConnectionOutcome::Abandoned) {
        if let Some(recorded) = stage.script.lock().recorded.get_mut(number - 1) {
            recorded.aborted_by_client = true;
        }
        stage.changes.send_replace(());
    }
    outcome
}

/// Sends an answer that is not a scripted reply.
async fn send(
    connection: ServerConnection,
    step: &ScriptStep,
    stage: &SharedState,
    keep_alive: bool,
) -> ConnectionOutcome {
    let at = RenderContext {
        request_id: &format!("req_{}_0", stage.name),
        reply: None,
        streaming: false,
        keep_alive,
        events: EventFormat::Sse,
    };
    play(connection, &render::render(step, &at), step, stage.time_scale).await
}
