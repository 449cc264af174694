//! One call of a server's tool: bounded, cancellable, and answered in any case.

use std::time::Duration;

use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest};
use rmcp::service::ServiceError;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::content::Reply;
use super::link::Line;
use super::member::Member;
use super::miss::{Miss, miss};
use super::servers::Timers;
use super::state::{Loss, Status};

/// How long a call waits for a server that is being started anew.
const RETURN: Duration = Duration::from_secs(10);

/// Why a call has no answer.
enum Failure {
    Missed(Miss),
    Late(Duration),
    Cancelled,
}

impl Member {
    /// Calls a tool by the server's own name for it.
    pub(super) async fn call(
        &self,
        tool: &str,
        input: &Value,
        timers: Timers,
        cancel: &CancellationToken,
    ) -> Reply {
        let arguments = input.as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        match self.request(tool, &request, timers, cancel).await {
            Ok(result) => Reply::of(&result),
            Err(why) => Reply::failure(why),
        }
    }

    /// Asks the server for something, which people know as `what`.
    ///
    /// # Errors
    /// Why there is no answer, in words for the model.
    pub(super) async fn request(
        &self,
        what: &str,
        request: &ClientRequest,
        timers: Timers,
        cancel: &CancellationToken,
    ) -> Result<Value, String> {
        let limit = self.config.timeout.unwrap_or(timers.call);
        for renewed in [false, true] {
            let (line, epoch) = self.line(cancel).await?;
            match ask(&line, request.clone(), limit, timers.call_max, cancel).await {
                Ok(result) => return Ok(result),
                // The server has not looked at the call, so it may be made again.
                Err(Failure::Missed(Miss::Expired)) if !renewed => {
                    self.lose(epoch, Loss::Expired);
                }
                Err(failure) => return Err(self.take(what, failure, epoch)),
            }
        }
        Err("the call was not made".to_owned())
    }

    /// Takes note of a failure, has people told of it, and says what the model should know.
    fn take(&self, what: &str, failure: Failure, epoch: u64) -> String {
        let name = &self.config.name;
        let (happened, advice) = match failure {
            Failure::Cancelled => return "Interrupted by user".to_owned(),
            // That a tool says no is between it and the model.
            Failure::Missed(Miss::Refused(why)) => return why,
            Failure::Missed(Miss::Expired) => {
                self.lose(epoch, Loss::Expired);
                ("lost its session again".to_owned(), "the call was not made")
            }
            Failure::Missed(Miss::NeedsAuth(why)) => {
                self.lose(epoch, Loss::NeedsAuth(why.clone()));
                // People are told once, with what they can do about it.
                return format!(
                    "MCP server {name:?} cannot be used: {why}, and nobody is there to log in. The \
                     call was not made; go on without it."
                );
            }
            Failure::Missed(Miss::Doubtful(why)) => {
                self.suspect();
                (why, "whether the call had an effect is unknown: look before you call again")
            }
            Failure::Missed(Miss::Lost(why)) => {
                self.lose(epoch, Loss::Passing(why.clone()));
                let advice = "whether the call had an effect is unknown: look before you call \
                              again. The server is being started anew";
                (format!("was lost while the call was under way: {why}"), advice)
            }
            Failure::Late(limit) => {
                self.suspect();
                let late = format!("did not answer within {:.1} s", limit.as_secs_f32());
                (late, "it was told to stop, and whether the call had an effect is unknown")
            }
        };
        self.say(&format!("the call of {what:?} failed: {happened}; {advice}"));
        format!("MCP server {name:?}: {happened}; {advice}.")
    }

    /// The connection, waited for a while if it is being made.
    async fn line(&self, cancel: &CancellationToken) -> Result<(Line, u64), String> {
        let mut watch = self.watch();
        let end = Instant::now() + RETURN;
        loop {
            let state = watch.borrow_and_update().clone();
            let why = state.why.map_or_else(String::new, |why| format!(": {why}"));
            let name = &self.config.name;
            match (state.line, state.status) {
                (Some(line), _) => return Ok((line, state.epoch)),
                (None, Status::NeedsAuth) => {
                    return Err(format!(
                        "MCP server {name:?} cannot be used{why}, and nobody is there to log in. \
                         Go on without it."
                    ));
                }
                (None, Status::Failed | Status::Disabled) => {
                    return Err(format!(
                        "MCP server {name:?} is not there any more{why}. Go on without it."
                    ));
                }
                (None, Status::Pending | Status::Connected) => {}
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err("Interrupted by user".to_owned()),
                changed = timeout_at(end, watch.changed()) => if !matches!(changed, Ok(Ok(()))) {
                    return Err(format!(
                        "MCP server {name:?} is not connected at the moment{why}. It is being \
                         started anew: try later, or do without."
                    ));
                },
            }
        }
    }
}

/// Asks. Progress puts off the end of patience, up to `max` in all.
async fn ask(
    line: &Line,
    request: ClientRequest,
    limit: Duration,
    max: Duration,
    cancel: &CancellationToken,
) -> Result<Value, Failure> {
    let sent = line.send(request).await;
    let (mut handle, progress) = sent.map_err(|error| Failure::Missed(miss(&error, &line.mask)))?;
    let (id, token) = (handle.id.clone(), handle.progress_token.0.clone());
    let start = Instant::now();
    let latest = start + max.max(limit);
    let mut end = start + limit;
    let answer = loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                line.cancel(id, "interrupted");
                break Err(Failure::Cancelled);
            }
            answer = &mut handle.rx => break match answer {
                Ok(Ok(result)) => Ok(serde_json::to_value(result).unwrap_or_default()),
                Ok(Err(error)) => Err(Failure::Missed(miss(&error, &line.mask))),
                Err(_) => Err(Failure::Missed(miss(&ServiceError::TransportClosed, &line.mask))),
            },
            // Before progress, which may come without end.
            () = sleep_until(end) => {
                line.cancel(id, "out of time");
                break Err(Failure::Late(start.elapsed()));
            }
            () = progress.notified() => end = (Instant::now() + limit).min(latest),
        }
    };
    line.forget(&token);
    answer
}
