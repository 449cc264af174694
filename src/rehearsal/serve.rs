//! Serves connections: answers requests from the script, and those that are not part of it.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::json;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::cloud_protocols::{self, EventFormat};
use super::connection::{RecordedRequest, ServerConnection};
use super::decide::{Decision, decide, invalid};
use super::render::{self, RenderContext};
use super::request_validator;
use super::response_sender::{ConnectionState, SendResult, break_connection, send_response};
use super::scenario::{ScriptStep, ScriptedHttp, StepAnswer};
use super::script::RequestTraits;
use super::shared_state::SharedState;

/// Accepts connections until the task is dropped.
pub(super) async fn accept(listener: TcpListener, shared: Arc<SharedState>) {
    // Dropping this task drops every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                let id = {
                    let mut script = shared.script.lock();
                    script.accepted += 1;
                    script.accepted
                };
                shared.changes.send_replace(());
                connections.spawn(serve(ServerConnection::new(id, stream), Arc::clone(&shared)));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut connection: ServerConnection, shared: Arc<SharedState>) {
    let fault = shared.script.lock().fault_at_accept(&shared.part);
    if let Some(fault) = fault {
        return break_connection(connection, &fault, shared.time_scale).await;
    }
    loop {
        let request = match connection.read_request().await {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) => {
                let step = ScriptStep::new(StepAnswer::Http(invalid(&error.to_string())));
                // The connection is closed in any case.
                let _ = send(connection, &step, &shared, false).await;
                return;
            }
        };
        let (request, events) = cloud_protocols::admit(request);
        let path = request.bare_path().to_owned();
        let sent = match (request.method.as_str(), path.as_str()) {
            ("POST", _) if RequestTraits::is_probe(&request) && events.is_some() => {
                answer_probe(connection, &request, &shared).await
            }
            ("POST", _) if let Some(events) = events => {
                answer(connection, request, &shared, events).await
            }
            ("POST", path)
                if path.ends_with("/v1/messages/count_tokens")
                    || path.ends_with("/models/count-tokens:rawPredict") =>
            {
                let count = json!({ "input_tokens": count_tokens(&request, &shared) });
                answer_unscripted(connection, &request, &shared, count).await
            }
            ("POST", path) if shared.token_rules().is_some_and(|rules| rules.path == path) => {
                renew(connection, &request, &shared).await
            }
            ("HEAD" | "GET", path) if !path.contains("/v1/") => {
                answer_unscripted(connection, &request, &shared, json!({ "rehearsal": true })).await
            }
            _ => {
                let step = ScriptStep::new(StepAnswer::Http(render::error_response(404, None)));
                send(connection, &step, &shared, request.keep_alive).await
            }
        };
        let Ok(ConnectionState::Open(open)) = sent else { return };
        connection = open;
    }
}

fn count_tokens(request: &RecordedRequest, shared: &SharedState) -> u64 {
    match (shared.part.rules.token_limit, json::read(&request.body)) {
        (Some(_), Ok(body)) => request_validator::count(&body),
        _ => request.body.len().div_ceil(4) as u64,
    }
}

/// Answers a request for a new access token.
async fn renew(
    connection: ServerConnection,
    request: &RecordedRequest,
    shared: &SharedState,
) -> SendResult {
    let (answer, delay) = match shared.token_rules() {
        Some(rules) => (shared.script.lock().grants.handle_refresh(rules, request), rules.delay),
        None => (render::error_response(404, None), Duration::ZERO),
    };
    shared.changes.send_replace(());
    let step = ScriptStep { delay, ..ScriptStep::new(StepAnswer::Http(answer)) };
    send(connection, &step, shared, request.keep_alive).await
}

/// Answers a request that is not part of the script.
async fn answer_unscripted(
    connection: ServerConnection,
    request: &RecordedRequest,
    shared: &SharedState,
    body: Value,
) -> SendResult {
    let body = body.to_string();
    let is_head = request.method == "HEAD";
    let step = ScriptStep::new(StepAnswer::Http(ScriptedHttp {
        status: 200,
        content_type: "application/json".to_owned(),
        content_length: Some(body.len()),
        body: if is_head { String::new() } else { body },
    }));
    send(connection, &step, shared, request.keep_alive).await
}

/// Answers a capacity probe like the next request, without advancing the script.
async fn answer_probe(
    connection: ServerConnection,
    request: &RecordedRequest,
    shared: &SharedState,
) -> SendResult {
    let body: Value = json::read(&request.body).unwrap_or(Value::Null);
    let traits = RequestTraits { request, body: &body };
    let refusal = shared.script.lock().probe_refusal(&shared.part, &traits);
    shared.changes.send_replace(());
    if let Some(step) = refusal {
        return send(connection, &step, shared, request.keep_alive).await;
    }
    let message = json!({
        "id": format!("msg_{}_probe", shared.name),
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{ "type": "text", "text": "Hi" }],
        "stop_reason": "max_tokens",
        "stop_sequence": null,
        "usage": { "input_tokens": 8, "output_tokens": 1 },
    });
    answer_unscripted(connection, request, shared, message).await
}

/// Answers a request for a model reply.
async fn answer(
    connection: ServerConnection,
    request: RecordedRequest,
    shared: &SharedState,
    events: EventFormat,
) -> SendResult {
    let Decision { number, step, reply, streaming } = decide(&connection, &request, shared);
    let context = RenderContext {
        request_id: &format!("req_{}_{number}", shared.name),
        reply: reply.as_ref(),
        streaming,
        keep_alive: request.keep_alive,
        events,
    };
    let response = render::render(&step, &context);
    let sent = send_response(connection, &response, &step, shared.time_scale).await;
    if sent.is_err() {
        if let Some(recorded) = shared.script.lock().recorded.get_mut(number - 1) {
            recorded.aborted_by_client = true;
        }
        shared.changes.send_replace(());
    }
    sent
}

/// Sends an answer that is not a scripted reply.
async fn send(
    connection: ServerConnection,
    step: &ScriptStep,
    shared: &SharedState,
    keep_alive: bool,
) -> SendResult {
    let context = RenderContext {
        request_id: &format!("req_{}_0", shared.name),
        reply: None,
        streaming: false,
        keep_alive,
        events: EventFormat::Sse,
    };
    let response = render::render(step, &context);
    send_response(connection, &response, step, shared.time_scale).await
}
