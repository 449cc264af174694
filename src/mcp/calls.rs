//! One call of a server's tool: bounded, cancellable, and answered in any case.

use std::time::Duration;

use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest};
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::content::Reply;
use super::link::{Line, Miss, miss};
use super::member::Member;
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
        let name = &self.config.name;
        let limit = self.config.timeout.unwrap_or(timers.call);
        for renewed in [false, true] {
            let (line, epoch) = match self.line(cancel).await {
                Ok(found) => found,
                Err(why) => return Reply::failure(why),
            };
            let failure = match ask(&line, tool, input, limit, timers.call_max, cancel).await {
                Ok(result) => return Reply::of(&result),
                Err(failure) => failure,
            };
            return Reply::failure(match failure {
                Failure::Missed(Miss::Expired) => {
                    self.lose(epoch, Loss::Expired);
                    if !renewed {
                        // The server has not looked at the call, so it may be made again.
                        continue;
                    }
                    format!("MCP server {name:?} lost its session again; the call was not made")
                }
                Failure::Missed(Miss::NeedsAuth) => {
                    self.lose(epoch, Loss::NeedsAuth("it wants a login".to_owned()));
                    format!("MCP server {name:?} wants a login, and nobody is there to give one")
                }
                Failure::Missed(Miss::Refused(why)) => why,
                Failure::Missed(Miss::Lost(why)) => {
                    self.lose(epoch, Loss::Passing("it ended, or hung up".to_owned()));
                    format!(
                        "MCP server {name:?} was lost while the call was under way ({why}). \
                         Whether it had an effect is unknown: look before you call again. The \
                         server is being started anew."
                    )
                }
                Failure::Late(limit) => {
                    self.suspect();
                    format!(
                        "MCP server {name:?} did not answer within {} s and was told to stop. \
                         Whether the call had an effect is unknown.",
                        limit.as_secs_f32()
                    )
                }
                Failure::Cancelled => "Interrupted by user".to_owned(),
            });
        }
        Reply::failure("the call was not made")
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
                    return Err(format!("MCP server {name:?} cannot be used{why}"));
                }
                (None, Status::Failed | Status::Disabled) => {
                    return Err(format!("MCP server {name:?} is not there any more{why}"));
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

/// Makes the call. Progress puts off the end of patience, up to `max` in all.
async fn ask(
    line: &Line,
    tool: &str,
    input: &Value,
    limit: Duration,
    max: Duration,
    cancel: &CancellationToken,
) -> Result<Value, Failure> {
    let params = CallToolRequestParams::new(tool.to_owned())
        .with_arguments(input.as_object().cloned().unwrap_or_default());
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let sent = line.send(request).await;
    let (mut handle, mut progress) = sent.map_err(|error| Failure::Missed(miss(&error)))?;
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
                Ok(Err(error)) => Err(Failure::Missed(miss(&error))),
                Err(_) => Err(Failure::Missed(Miss::Lost("it hung up".to_owned()))),
            },
            Some(()) = progress.recv() => end = (Instant::now() + limit).min(latest),
            () = sleep_until(end) => {
                line.cancel(id, "out of time");
                break Err(Failure::Late(start.elapsed()));
            }
        }
    };
    line.forget(&token);
    answer
}
