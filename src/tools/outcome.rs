//! Results of tool calls: effects, outcomes and refusals.

use serde_json::Value;

use crate::transcript::{Block, with_error_tags, without_error_tags};

/// The possible effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Running it twice, or not at all, changes nothing.
    ReadOnly,
    /// Read-only for this machine, but visible to other systems. The call is therefore not run for
    /// a reply that may still be discarded.
    Network,
    /// It changes nothing but the agent's own state: its notes, or the tools that it is offered.
    Notes,
    Changes,
}

impl Effect {
    /// True if the call may run in parallel with others of its kind.
    pub fn changes_nothing(self) -> bool {
        match self {
            Self::ReadOnly | Self::Network => true,
            Self::Notes | Self::Changes => false,
        }
    }
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutcome {
    /// The content that the model sees.
    pub content: Vec<Block>,
    pub is_error: bool,
    /// The structured result for programs, or `"Error: …"`.
    pub detail: Value,
    /// The reason that the call was not run, if permission was denied late.
    pub denied: Option<String>,
}

impl ToolOutcome {
    pub(super) fn text(text: impl Into<String>, detail: Value) -> Self {
        Self { content: vec![Block::text(text)], is_error: false, detail, denied: None }
    }

    pub(super) fn failure(message: impl AsRef<str>) -> Self {
        let message = message.as_ref();
        Self {
            content: vec![Block::text(with_error_tags(message))],
            is_error: true,
            detail: Value::String(format!("Error: {message}")),
            denied: None,
        }
    }

    pub(super) fn interrupted() -> Self {
        ToolError::interrupted().into()
    }

    /// The exit code of a command that ended by itself.
    pub fn exit_code(&self) -> Option<i32> {
        self.detail["exit_code"].as_i64().and_then(|code| i32::try_from(code).ok())
    }

    /// The text that the model sees.
    pub fn visible_text(&self) -> String {
        let texts = self.content.iter().filter_map(Block::as_text);
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// The reason that a tool call has no result, worded for the model. Failures that code
/// distinguishes have types of their own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct ToolError(String);

impl ToolError {
    pub(super) fn interrupted() -> Self {
        Self("Interrupted by user".to_owned())
    }
}

impl<T: Into<String>> From<T> for ToolError {
    fn from(message: T) -> Self {
        Self(message.into())
    }
}

impl From<ToolError> for ToolOutcome {
    fn from(error: ToolError) -> Self {
        Self::failure(error.0)
    }
}

impl From<ToolError> for ToolRefusal {
    fn from(error: ToolError) -> Self {
        Self::invalid(error.0)
    }
}

/// The source of the permission for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantSource {
    /// The permission rules and the mode.
    Rules,
    /// A hook, unless a rule denies the call.
    Hook,
    /// The permission prompt, unless a rule denies the call.
    Prompt,
}

/// The sentences after the reason of a denial, for the model.
const NO_PERMISSION_PROMPT: &str = "This run cannot ask for permission.";
const DENIAL_ADVICE: &str = "Do not work around this: go on with what is allowed, and say at the \
                             end what was not done.";

/// Returns the reason of a refusal, as users read it, from the text that the model received.
pub fn refusal_reason(received: &str) -> &str {
    let bare = without_error_tags(received.trim()).trim_end();
    let reason = bare.strip_suffix(DENIAL_ADVICE).unwrap_or(bare).trim_end();
    reason.strip_suffix(NO_PERMISSION_PROMPT).unwrap_or(reason).trim_end()
}

/// The refusal of a call that was not run.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolRefusal {
    /// The tool does not exist, or the input is not valid.
    Invalid(Box<ToolOutcome>),
    /// The call is not allowed, for this reason.
    Denied { outcome: Box<ToolOutcome>, reason: String },
}

impl ToolRefusal {
    pub(super) fn invalid(message: impl AsRef<str>) -> Self {
        Self::Invalid(Box::new(ToolOutcome::failure(message)))
    }

    pub(super) fn denied(reason: String) -> Self {
        let message = format!("{reason}\n{NO_PERMISSION_PROMPT} {DENIAL_ADVICE}");
        Self::Denied { outcome: Box::new(ToolOutcome::failure(message)), reason }
    }

    /// The refusal of a call whose arguments are not valid JSON.
    pub fn of_malformed_call(tool: &str, problem: &str) -> Self {
        Self::invalid(format!(
            "{tool} was not run: {problem}. Send the call again, with one JSON object that fits \
             the tool's input schema."
        ))
    }

    /// The refusal of a call by a hook. `why` is for the model.
    pub fn by_hook(why: &str) -> Self {
        Self::denied(why.to_owned())
    }

    /// The refusal of a call by the permission prompt. `why` is for the model.
    pub fn by_prompt(why: &str) -> Self {
        let outcome = ToolOutcome::failure(format!("{why}\n{DENIAL_ADVICE}"));
        Self::Denied { outcome: Box::new(outcome), reason: why.to_owned() }
    }

    /// The outcome that the model receives.
    pub fn into_outcome(self) -> ToolOutcome {
        match self {
            Self::Invalid(outcome) => *outcome,
            Self::Denied { outcome, reason } => ToolOutcome { denied: Some(reason), ..*outcome },
        }
    }
}
