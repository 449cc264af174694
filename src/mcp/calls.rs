//! Calls of a server's tool: bounded in time, cancellable, and always answered.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::process::RunningClock;

use super::call_error::{CallError, classify_call_error};
use super::connection::ConnectionHandle;
use super::content::CallReply;
use super::environment::McpTimers;
use super::server_task::ServerTask;
use super::state::{ConnectionLoss, ServerStatus};

/// The time for which a call waits for a server that is reconnecting.
const RECONNECT_WAIT: Duration = Duration::from_secs(10);

/// The maximum number of times that a call is sent again because the server demands more input.
const INPUT_ROUNDS_MAX: usize = 16;

pub(super) struct ServerRequest {
    pub(super) method: &'static str,
    /// An object.
    pub(super) params: Value,
}

/// The reason that a call has no result.
enum CallFailure {
    Failed(CallError),
    TimedOut(Duration),
    Cancelled,
}

/// The reason that a request has no result, as a text for the model.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct RequestError(String);

impl RequestError {
    fn interrupted() -> Self {
        Self("Interrupted by user".to_owned())
    }
}

impl ServerTask {
    /// Calls a tool by the server's own name for it.
    pub(super) async fn call(
        &self,
        tool: &str,
        input: &Value,
        timers: McpTimers,
        cancel: &CancellationToken,
    ) -> CallReply {
        let arguments = input.as_object().cloned().unwrap_or_default();
        let request = ServerRequest {
            method: "tools/call",
            params: json!({ "name": tool, "arguments": arguments }),
        };
        match self.request(tool, &request, timers, cancel).await {
            Ok(result) => CallReply::from_call_result(&result),
            Err(why) => CallReply::error(why.to_string()),
        }
    }

    /// Sends a request to the server; `what` names it in messages.
    ///
    /// # Errors
    /// There is no result; the error is a text for the model.
    pub(super) async fn request(
        &self,
        what: &str,
        request: &ServerRequest,
        timers: McpTimers,
        cancel: &CancellationToken,
    ) -> Result<Value, RequestError> {
        let limit = self.call_limit(timers);
        for renewed in [false, true] {
            let (handle, epoch) = self.wait_for_connection(cancel).await?;
            match exchange(&handle, request, (limit, timers.call_max), cancel).await {
                Ok(result) => {
                    self.mark_answered(epoch);
                    return Ok(result);
                }
                Err(failure @ CallFailure::Failed(CallError::Refused(_))) => {
                    self.mark_answered(epoch);
                    return Err(self.handle_failure(what, failure, epoch));
                }
                // The server has not processed the call, so it can be repeated.
                Err(CallFailure::Failed(CallError::Expired(_))) if !renewed => {
                    self.mark_lost(epoch, ConnectionLoss::Expired);
                }
                Err(CallFailure::Failed(CallError::NotSent(why))) if !renewed => {
                    self.mark_lost(epoch, ConnectionLoss::Transient(why));
                }
                Err(failure) => return Err(self.handle_failure(what, failure, epoch)),
            }
        }
        Err(RequestError("the call was not made".to_owned()))
    }

    /// Handles a failure: updates the server's state, warns the user, and returns the error for the
    /// model.
    fn handle_failure(&self, what: &str, failure: CallFailure, epoch: u64) -> RequestError {
        let name = &self.config.name;
        let (happened, advice) = match failure {
            CallFailure::Cancelled => return RequestError::interrupted(),
            // A tool's own error is for the model only.
            CallFailure::Failed(CallError::Refused(why)) => return RequestError(why),
            CallFailure::Failed(CallError::Expired(why)) => {
                self.mark_lost(epoch, ConnectionLoss::Expired);
                (format!("lost its session again: {why}"), "the call was not made")
            }
            CallFailure::Failed(CallError::NotSent(why)) => {
                self.mark_lost(epoch, ConnectionLoss::Transient(why.clone()));
                (format!("was lost again: {why}"), "the call was not made")
            }
            CallFailure::Failed(CallError::NeedsAuth(why)) => {
                self.mark_lost(epoch, ConnectionLoss::NeedsAuth(why.clone()));
                // The user is warned once, with advice.
                return RequestError(format!(
                    "MCP server {name:?} cannot be used: {why}, and an unattended run cannot log \
                     in. The call was not made; go on without it."
                ));
            }
            CallFailure::Failed(CallError::MissingScope(why)) => {
                let advice = self.config.place.login_advice(name);
                self.warn(&format!("the call of {what:?} was refused: {why}; {advice}"));
                return RequestError(format!(
                    "MCP server {name:?} refused the call: {why}, and an unattended run cannot \
                     log in. The call was not made; other calls of the server can be."
                ));
            }
            CallFailure::Failed(CallError::Ambiguous(why)) => {
                self.request_check();
                (why, "whether the call had an effect is unknown: check before you call again")
            }
            CallFailure::Failed(CallError::Lost(why)) => {
                self.mark_lost(epoch, ConnectionLoss::Transient(why.clone()));
                let advice = "whether the call had an effect is unknown: check before you call \
                              again. The server is being restarted";
                (format!("was lost while the call was under way: {why}"), advice)
            }
            CallFailure::TimedOut(limit) => {
                self.request_check();
                let late = format!("did not answer within {:.1} s", limit.as_secs_f32());
                (late, "it was asked to stop, and whether the call had an effect is unknown")
            }
        };
        self.warn(&format!("the call of {what:?} failed: {happened}; {advice}"));
        RequestError(format!("MCP server {name:?}: {happened}; {advice}."))
    }

    /// Returns the connection, and waits up to [`RECONNECT_WAIT`] for a reconnect.
    async fn wait_for_connection(
        &self,
        cancel: &CancellationToken,
    ) -> Result<(ConnectionHandle, u64), RequestError> {
        let mut watch = self.watch();
        let end = Instant::now() + RECONNECT_WAIT;
        loop {
            let state = watch.borrow_and_update().clone();
            let why = state.why.map_or_else(String::new, |why| format!(": {why}"));
            let name = &self.config.name;
            match (state.connection, state.status) {
                (Some(handle), _) => return Ok((handle, state.epoch)),
                (None, ServerStatus::NeedsAuth) => {
                    return Err(RequestError(format!(
                        "MCP server {name:?} cannot be used{why}, and an unattended run cannot log \
                         in. Go on without it."
                    )));
                }
                (None, ServerStatus::Failed | ServerStatus::Disabled) => {
                    return Err(RequestError(format!(
                        "MCP server {name:?} is no longer available{why}. Go on without it."
                    )));
                }
                (None, ServerStatus::Pending | ServerStatus::Connected) => {}
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(RequestError::interrupted()),
                changed = timeout_at(end, watch.changed()) => if !matches!(changed, Ok(Ok(()))) {
                    return Err(RequestError(format!(
                        "MCP server {name:?} is not connected at the moment{why}. It is being \
                         restarted: try later, or go on without it."
                    )));
                },
            }
        }
    }
}

/// Sends a request, and sends it again with answers if the server demands input in place of a
/// result.
async fn exchange(
    handle: &ConnectionHandle,
    request: &ServerRequest,
    limits: (Duration, Duration),
    cancel: &CancellationToken,
) -> Result<Value, CallFailure> {
    let mut params = request.params.clone();
    for _ in 0..INPUT_ROUNDS_MAX {
        let mut result = send_request(handle, request.method, params, limits, cancel).await?;
        let responses = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(CallFailure::Cancelled),
            responses = handle.input_responses(&result) => responses,
        };
        let Some(responses) = responses else { return Ok(result) };
        params = request.params.clone();
        params["inputResponses"] = responses;
        // The state belongs to the server, which gets it back unchanged.
        if let Some(state) = result.get_mut("requestState") {
            params["requestState"] = state.take();
        }
    }
    let why = format!("it has demanded more input {INPUT_ROUNDS_MAX} times for one call");
    Err(CallFailure::Failed(CallError::Refused(why)))
}

/// Sends a request. Progress and questions to the host extend the timeout, up to `max` in total.
/// Time during which outlast itself is stopped does not count: a server on this machine was stopped
/// with it.
async fn send_request(
    handle: &ConnectionHandle,
    method: &str,
    params: Value,
    (limit, max): (Duration, Duration),
    cancel: &CancellationToken,
) -> Result<Value, CallFailure> {
    let mut sent = handle.peer.request(method, params);
    let progress = sent.progress();
    let mut clock = RunningClock::new();
    let latest = max.max(limit);
    let mut end = limit;
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                sent.cancel("interrupted").await;
                return Err(CallFailure::Cancelled);
            }
            answer = sent.answer() => {
                return answer.map_err(|fault| CallFailure::Failed(classify_call_error(fault)));
            }
            // Checked before progress, which may never end.
            () = clock.wait_until(end) => {
                if end < latest && handle.peer.elicitor().is_asking() {
                    end = (clock.ran() + limit).min(latest);
                    continue;
                }
                sent.cancel("out of time").await;
                return Err(CallFailure::TimedOut(end));
            }
            () = progress.notified() => end = (clock.ran() + limit).min(latest),
        }
    }
}
