//! Hooks that a host has registered in its `initialize` request: the host runs them on request.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::process::sleep_while_running;
use crate::types::{HostChannel, HostError, HostRequest};

use super::config::{
    BadHook, HookCommand, HookHandler, OnFailure, TIMEOUT_MAX, bad_hook, events_of, groups_of,
    read_matcher, read_timeout, seconds,
};
use super::event::{HookEvent, is_unsupported};
use super::matcher::HookMatcher;
use super::result::{HookEnd, HookRun};

/// The default timeout of a callback.
const CALLBACK_TIMEOUT: Duration = Duration::from_mins(1);

/// The source of callbacks, in place of a settings file.
const SOURCE: &str = "the host";

/// A matcher with the callbacks that it selects.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallbackGroup {
    matcher: Option<String>,
    hook_callback_ids: Vec<String>,
    #[serde(default, deserialize_with = "seconds")]
    timeout: Option<f64>,
    on_failure: Option<OnFailure>,
}

/// Parses the `hooks` of a host's `initialize` request. Also returns warnings about callbacks that
/// never run.
///
/// # Errors
/// The first entry that is invalid, with its path.
pub fn callbacks(hooks: &Value) -> Result<(Vec<HookHandler>, Vec<String>), BadHook> {
    let (mut handlers, mut warnings) = (Vec::new(), Vec::new());
    if hooks.is_null() {
        return Ok((handlers, warnings));
    }
    for (name, groups) in events_of(hooks)? {
        let place = format!("hooks.{name}");
        let groups = groups_of(groups, &place)?;
        let event = match callback_event(name) {
            Ok(event) => event,
            Err(_) if groups.is_empty() => continue,
            Err(why) => {
                warnings.push(format!("the host's callbacks for {name} never run: {why}"));
                continue;
            }
        };
        for (index, group) in groups.iter().enumerate() {
            handlers.extend(read_group(event, group, &format!("{place}[{index}]"))?);
        }
    }
    Ok((handlers, warnings))
}

/// Returns the event of this name, or the reason that no callback runs at it.
fn callback_event(name: &str) -> Result<HookEvent, &'static str> {
    match HookEvent::from_name(name) {
        Some(HookEvent::SessionStart | HookEvent::SessionEnd) => {
            Err("this event is for hooks of settings files only")
        }
        Some(event) => Ok(event),
        None if is_unsupported(name) => Err("outlast does not support this event"),
        None => Err("there is no such event"),
    }
}

fn read_group(event: HookEvent, group: &Value, place: &str) -> Result<Vec<HookHandler>, BadHook> {
    let group =
        CallbackGroup::deserialize(group).map_err(|error| bad_hook(place, &error.to_string()))?;
    let matcher = read_matcher(group.matcher.as_deref(), place)?;
    let timeout = read_timeout(group.timeout, CALLBACK_TIMEOUT, TIMEOUT_MAX)
        .map_err(|why| bad_hook(&format!("{place}.timeout"), &why))?;
    let handler = |(index, id)| HookHandler {
        event,
        matcher: if event.has_subject() { matcher.clone() } else { HookMatcher::All },
        condition: None,
        command: HookCommand::Callback { id },
        timeout,
        fail_closed: group.on_failure == Some(OnFailure::Block),
        background: false,
        agent_type: None,
        variables: Vec::new(),
        source: SOURCE.to_owned(),
        place: format!("{place}.hookCallbackIds[{index}]"),
    };
    Ok(group.hook_callback_ids.into_iter().enumerate().map(handler).collect())
}

/// A call of one callback.
pub(super) struct CallbackCall {
    pub(super) host: Option<Arc<dyn HostChannel>>,
    pub(super) id: String,
    pub(super) input: Value,
    pub(super) tool_use_id: String,
    pub(super) limit: Duration,
}

impl CallbackCall {
    /// Asks the host to run the callback. Its reply is treated like the output of a command that
    /// ended with exit code 0.
    pub(super) async fn run(self, cancel: &CancellationToken) -> HookRun {
        let Some(host) = self.host else {
            return HookRun::of(HookEnd::Failed("no host drives this run".to_owned()));
        };
        let reply = host.request(HostRequest::HookCallback {
            callback_id: self.id,
            input: self.input,
            tool_use_id: self.tool_use_id,
        });
        // Dropping the future also informs the host that its request is cancelled.
        tokio::select! {
            biased;
            () = cancel.cancelled() => HookRun::of(HookEnd::Cancelled),
            reply = reply => interpret_reply(reply),
            () = sleep_while_running(self.limit) => HookRun::of(HookEnd::TimedOut),
        }
    }
}

fn interpret_reply(reply: Result<Value, HostError>) -> HookRun {
    let silent = || HookRun::of(HookEnd::Exited(0));
    match reply {
        Err(HostError::Closed) => HookRun::of(HookEnd::HostClosed),
        Err(HostError::NotSent(why)) => HookRun::of(HookEnd::NotSent(why)),
        Err(error @ HostError::Refused(_)) => {
            let why = Some(error.to_string()).filter(|why| !why.trim().is_empty());
            let why = why.unwrap_or_else(|| "the host reports an error without a text".to_owned());
            HookRun::of(HookEnd::NoReply(why))
        }
        Ok(Value::Null) => silent(),
        Ok(Value::String(text)) if text.trim().is_empty() => silent(),
        // The work continues in the host, and its outcome has no effect.
        Ok(Value::Object(output)) if output.get("async") == Some(&Value::Bool(true)) => silent(),
        Ok(Value::Object(output)) => {
            HookRun { stdout: Value::Object(output).to_string(), ..silent() }
        }
        Ok(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            HookRun::of(HookEnd::InvalidReply)
        }
    }
}
