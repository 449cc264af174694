//! Parses the messages of a host, one JSON object on each line.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::json;
use crate::messages::{ControlReply, ControlResult, HostMessage, RequestId};

use super::fields::{FrameError, text};
use super::initialize::Initialize;
use super::prompt::UserPrompt;

/// Maximum length of the quotation of an invalid line, in characters.
const QUOTE_CHARS_MAX: usize = 60;

/// One message of the host.
#[derive(Clone, Debug, PartialEq)]
pub enum HostFrame {
    /// A prompt, which begins a turn.
    User(Box<UserPrompt>),
    /// A request, which must be answered under its id.
    Control { id: RequestId, request: ControlRequest },
    /// The reply to a request from outlast: its value, or the host's error text.
    Reply { id: String, reply: Result<Value, String> },
    /// A message that needs no action, by its type: an unknown one, or a keep-alive.
    Ignored(String),
}

/// A control request: a message of the host that is not a prompt and has a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlRequest {
    Initialize(Box<Initialize>),
    /// End the current turn.
    Interrupt {
        /// True if the prompts that wait are dropped.
        cancels_queued: bool,
    },
    SetPermissionMode(String),
    /// Use this model. `None`: the model before the first such request.
    SetModel(Option<String>),
    /// Stop a background command or a sub-agent, by its task id.
    StopTask(String),
    /// Report the usage of the context window.
    GetContextUsage,
    /// Limit thinking to this many tokens. `None`: the limit of the flags and settings.
    SetMaxThinkingTokens(Option<u32>),
    /// Restore the files that were changed since the prompt with this id.
    RewindFiles {
        prompt: String,
        is_dry_run: bool,
    },
    McpStatus,
    /// Use these MCP servers, by name, instead of those of an earlier request.
    McpSetServers(Map<String, Value>),
    /// Reconnect the MCP server with this name.
    McpReconnect(String),
    McpToggle {
        server: String,
        is_enabled: bool,
    },
    /// A message of an MCP server that runs in the host.
    McpMessage {
        server: String,
        message: Value,
    },
    /// A request with this unsupported subtype.
    Unsupported(String),
    /// A request that cannot be parsed, with the reason.
    Unreadable(String),
}

/// Parses one line.
///
/// # Errors
/// It is not a valid message.
pub fn parse(line: &str) -> Result<HostFrame, FrameError> {
    let frame: Value = match json::read_str(line) {
        Ok(frame) => frame,
        Err(error) => {
            let quoted = line.chars().take(QUOTE_CHARS_MAX).collect();
            return unreadable(line, &error.to_string()).ok_or(FrameError::NotJson(quoted));
        }
    };
    match frame["type"].as_str().ok_or(FrameError::NoType)? {
        "user" => UserPrompt::parse(&frame).map(|prompt| HostFrame::User(Box::new(prompt))),
        "control_request" => {
            let id = RequestId::deserialize(&frame["request_id"]);
            let id = id.map_err(|_| FrameError::NoRequestId)?;
            Ok(HostFrame::Control { id, request: ControlRequest::parse(&frame["request"]) })
        }
        "control_response" => Ok(reply(&frame["response"])),
        other => Ok(HostFrame::Ignored(other.to_owned())),
    }
}

/// Returns the frame for a line that is not valid JSON, but whose message type and request id can
/// be found: the request fails with the parse error.
fn unreadable(line: &str, why: &str) -> Option<HostFrame> {
    let why = format!("the host's line cannot be read: {why}");
    let id = text_after(line, "\"request_id\"")?.to_owned();
    match text_after(line, "\"type\"")? {
        "control_response" => Some(HostFrame::Reply { id, reply: Err(why) }),
        "control_request" => {
            let id = RequestId::Text(id);
            Some(HostFrame::Control { id, request: ControlRequest::Unreadable(why) })
        }
        _ => None,
    }
}

/// Returns the string value after the first occurrence of a key, if it has no escapes.
fn text_after<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(key)?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let (text, _) = value.split_once('"')?;
    (!text.contains('\\')).then_some(text)
}

fn reply(response: &Value) -> HostFrame {
    let Some(id) = text(response, "request_id") else {
        return HostFrame::Ignored("control_response".to_owned());
    };
    let reply = if response["subtype"] == "error" {
        Err(text(response, "error").unwrap_or_else(|| "the host gave no reason".to_owned()))
    } else {
        Ok(response["response"].clone())
    };
    HostFrame::Reply { id, reply }
}

impl ControlRequest {
    fn parse(request: &Value) -> Self {
        let field = |name| text(request, name).unwrap_or_default();
        match request["subtype"].as_str().unwrap_or_default() {
            "initialize" => Self::Initialize(Box::new(Initialize::parse(request))),
            "interrupt" => Self::Interrupt { cancels_queued: request["cancel_queued"] == true },
            "set_permission_mode" => Self::SetPermissionMode(field("mode")),
            "set_model" => {
                let model = Some(field("model"));
                Self::SetModel(model.filter(|model| !model.is_empty() && model != "default"))
            }
            "stop_task" => Self::StopTask(field("task_id")),
            "get_context_usage" => Self::GetContextUsage,
            "set_max_thinking_tokens" => {
                let tokens = request["max_thinking_tokens"].as_u64();
                let tokens = tokens.map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX));
                Self::SetMaxThinkingTokens(tokens)
            }
            "rewind_files" => Self::RewindFiles {
                prompt: field("user_message_id"),
                is_dry_run: request["dry_run"] == true,
            },
            "mcp_status" => Self::McpStatus,
            "mcp_set_servers" => {
                Self::McpSetServers(request["servers"].as_object().cloned().unwrap_or_default())
            }
            "mcp_reconnect" => Self::McpReconnect(field("serverName")),
            "mcp_toggle" => Self::McpToggle {
                server: field("serverName"),
                is_enabled: request["enabled"] != false,
            },
            "mcp_message" => Self::McpMessage {
                server: field("server_name"),
                message: request["message"].clone(),
            },
            other => Self::Unsupported(other.to_owned()),
        }
    }
}

/// The reply to a control request that succeeded.
pub fn control_success(id: &RequestId, response: ControlResult) -> HostMessage {
    let response = ControlReply::Success { request_id: id.clone(), response };
    HostMessage::ControlResponse { response }
}

/// The reply to a control request that failed.
pub fn control_error(id: &RequestId, error: &str, code: Option<&'static str>) -> HostMessage {
    let (request_id, error) = (id.clone(), error.to_owned());
    let response = ControlReply::Error { request_id, error, error_code: code };
    HostMessage::ControlResponse { response }
}
