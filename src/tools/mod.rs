//! What the model can do to the world.

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::transcript::{Block, ToolCall, ToolDefinition};

/// The tools of a run.
pub struct Toolbox {}

/// What a call may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Running it twice, or not at all, changes nothing.
    ReadOnly,
    Changes,
}

/// What came of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What the model sees.
    pub content: Vec<Block>,
    pub is_error: bool,
    /// What programs see: the tool's structured result.
    pub detail: Value,
}

/// Why a call was not run.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// No such tool, or its input is wrong.
    Invalid(Outcome),
    /// It is not allowed. The text says why.
    Denied { outcome: Outcome, reason: String },
}

impl Toolbox {
    /// What the model is told, in a fixed order.
    pub fn definitions(&self) -> &[ToolDefinition] {
        &[]
    }

    /// What this call may do. An unknown tool is taken for the worst.
    pub fn effect(&self, _call: &ToolCall) -> Effect {
        Effect::Changes
    }

    /// Checks that the tool exists, its input fits and the call is allowed. Has no effect.
    ///
    /// # Errors
    /// What to tell the model instead.
    pub fn admit(&self, _call: &ToolCall) -> Result<(), Refusal> {
        Ok(())
    }

    /// Runs an admitted call. Never fails: every failure, a panic included, is an outcome.
    pub async fn run(&self, _call: &ToolCall, _cancel: CancellationToken) -> Outcome {
        std::future::pending().await
    }
}
