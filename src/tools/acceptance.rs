//! Acceptance criteria of a run: an answer that satisfies a schema, and a command that must pass.

use std::sync::Arc;

use serde_json::Value;

use crate::transcript::ToolDefinition;

use super::requirement::{RequirementReport, RequirementState};
use super::settings::{AcceptanceSettings, BadSettings};
use super::structured::{STRUCTURED_OUTPUT, StructuredAnswers};

/// The results of the acceptance criteria, for the result of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Acceptance {
    /// The structured answer that was requested.
    pub structured_output: Option<Value>,
    /// The number of answers that were validated. `None` if no schema was given.
    pub schema_attempts: Option<u32>,
    /// The result of the required command. `None` when no command must pass.
    pub requirement: Option<RequirementReport>,
}

/// The acceptance criteria of a run.
#[derive(Debug)]
pub(super) struct AcceptanceDemands {
    pub(super) answers: Option<Arc<StructuredAnswers>>,
    pub(super) requirements: Option<RequirementState>,
}

impl AcceptanceDemands {
    pub(super) fn new(settings: &AcceptanceSettings) -> Result<Self, BadSettings> {
        let requirements = settings.requirement.clone().map(RequirementState::new).transpose();
        Ok(Self {
            answers: settings.schema.clone().map(|schema| Arc::new(StructuredAnswers::new(schema))),
            requirements: requirements.map_err(|why| BadSettings::Requirement { why })?,
        })
    }

    pub(super) fn define(&self) -> Option<ToolDefinition> {
        self.answers.as_ref().map(|answers| answers.define())
    }

    /// The handler for calls of this tool, if it is the structured-output tool.
    pub(super) fn answers_of(&self, tool: &str) -> Option<Arc<StructuredAnswers>> {
        self.answers.clone().filter(|_| tool == STRUCTURED_OUTPUT)
    }
}
