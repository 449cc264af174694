//! What comes of a tool call.

use serde_json::Value;

use crate::transcript::Block;

/// What a call may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Running it twice, or not at all, changes nothing.
    ReadOnly,
    /// The same as far as this machine knows. But others hear of it, so it is not done for a reply
    /// that may yet be thrown away.
    Network,
    Changes,
}

impl Effect {
    /// Whether it may run beside others of its kind.
    pub fn changes_nothing(self) -> bool {
        match self {
            Self::ReadOnly | Self::Network => true,
            Self::Changes => false,
        }
    }
}

/// What came of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutcome {
    /// What the model sees.
    pub content: Vec<Block>,
    pub is_error: bool,
    /// What programs see: the tool's structured result, or `"Error: …"`.
    pub detail: Value,
    /// Why it was not done, if it was not allowed after all.
    pub denied: Option<String>,
}

impl ToolOutcome {
    pub(super) fn text(text: impl Into<String>, detail: Value) -> Self {
        Self { content: vec![Block::text(text)], is_error: false, detail, denied: None }
    }

    pub(super) fn failure(message: impl AsRef<str>) -> Self {
        let message = message.as_ref();
        Self {
            content: vec![Block::text(format!("<tool_use_error>{message}</tool_use_error>"))],
            is_error: true,
            detail: Value::String(format!("Error: {message}")),
            denied: None,
        }
    }

    pub(super) fn interrupted() -> Self {
        Self::failure("Interrupted by user")
    }
}

/// Who allows a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantSource {
    /// The rules and the mode.
    Rules,
    /// A hook, where no rule says otherwise.
    Hook,
    /// Whoever was asked, where no rule denies it.
    Prompt,
}

/// Why a call was not run.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolRefusal {
    /// No such tool, or its input is wrong.
    Invalid(ToolOutcome),
    /// It is not allowed. The text says why.
    Denied { outcome: ToolOutcome, reason: String },
}

impl ToolRefusal {
    pub(super) fn invalid(message: impl AsRef<str>) -> Self {
        Self::Invalid(ToolOutcome::failure(message))
    }

    pub(super) fn denied(reason: String) -> Self {
        let outcome = ToolOutcome::failure(format!(
            "{reason}\nNobody is there to ask. Do not work around this: go on with what is \
             allowed, and say at the end what was not done."
        ));
        Self::Denied { outcome, reason }
    }

    /// The arguments of the call cannot be used.
    pub fn of_malformed_call(tool: &str, problem: &str) -> Self {
        Self::invalid(format!(
            "{tool} was not run: {problem}. Send the call again, with one JSON object that fits \
             the tool's input schema."
        ))
    }

    /// A hook forbids it. `why` is for the model.
    pub fn by_hook(why: &str) -> Self {
        Self::denied(why.to_owned())
    }

    /// Whoever was asked does not allow it. `why` is for the model.
    pub fn by_prompt(why: &str) -> Self {
        let outcome = ToolOutcome::failure(format!(
            "{why}\nDo not work around this: go on with what is allowed, and say at the end what \
             was not done."
        ));
        Self::Denied { outcome, reason: why.to_owned() }
    }

    /// What to tell the model.
    pub fn into_outcome(self) -> ToolOutcome {
        match self {
            Self::Invalid(outcome) => outcome,
            Self::Denied { outcome, reason } => ToolOutcome { denied: Some(reason), ..outcome },
        }
    }
}
