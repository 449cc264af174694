//! The outcomes of tool calls that a result reports.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Counts of the tool calls of a prompt that have a result, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ToolStats {
    pub calls: u32,
    pub failed: u32,
    pub denied: u32,
    /// Answered with a synthetic result: never started, or cut off with unknown outcome.
    pub abandoned: u32,
}

/// A tool call that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Denial {
    pub tool_name: String,
    pub tool_use_id: String,
    pub tool_input: Value,
    /// The reason that the model read.
    pub reason: String,
}

/// Calls that end without having done their work. Recorded before their results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UndoneCalls {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<Denial>,
    /// Denied calls of sub-agents. Their ids may equal those of other calls here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub of_agents: Vec<Denial>,
    /// The ids of calls that get a synthetic result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub abandoned: Vec<String>,
}
