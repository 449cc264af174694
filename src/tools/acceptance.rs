//! Acceptance criteria of a run: an answer that satisfies a schema, and a command that must pass.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::transcript::ToolDefinition;

use super::requirement::{Requirement, RequirementCheck, RequirementReport, RequirementState};
use super::settings::{BadSettings, ToolSettings};
use super::structured::{Delivery, OtherCalls, STRUCTURED_OUTPUT, StructuredAnswers};
use super::toolbox::Toolbox;

/// The results of the acceptance criteria, for the result of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Acceptance {
    /// The structured answer that was requested.
    pub structured_output: Option<Value>,
    /// How many answers were validated. `None` if no schema was given.
    pub schema_attempts: Option<u32>,
    /// `None` when no command must pass.
    pub requirement: Option<RequirementReport>,
}

/// The acceptance criteria of a run.
#[derive(Debug)]
pub(super) struct AcceptanceDemands {
    answers: Option<Arc<StructuredAnswers>>,
    requirements: Option<RequirementState>,
}

impl AcceptanceDemands {
    pub(super) fn new(settings: &ToolSettings) -> Result<Self, BadSettings> {
        let requirements = settings.requirement.clone().map(RequirementState::new).transpose();
        Ok(Self {
            answers: settings.answer.clone().map(|schema| Arc::new(StructuredAnswers::new(schema))),
            requirements: requirements.map_err(|why| BadSettings::Requirement { why })?,
        })
    }

    pub(super) fn define(&self) -> Option<ToolDefinition> {
        self.answers.as_ref().map(|answers| answers.define())
    }

    /// The handler for calls of this tool, if it is the structured-output tool.
    pub(super) fn answers(&self, tool: &str) -> Option<Arc<StructuredAnswers>> {
        self.answers.clone().filter(|_| tool == STRUCTURED_OUTPUT)
    }
}

impl Toolbox {
    /// Whether the run must give an answer through [`STRUCTURED_OUTPUT`].
    pub fn requires_answer(&self) -> bool {
        self.tools.acceptance.answers.is_some()
    }

    /// Evaluates the answers delivered by one reply. Call it once after each reply, when all of its
    /// tools have finished.
    pub fn settle_answers(&self, others: OtherCalls) -> Delivery {
        self.tools.acceptance.answers.as_ref().map_or(Delivery::Nothing, |all| all.settle(others))
    }

    /// The command that must pass, if there is one.
    pub fn requirement(&self) -> Option<&Requirement> {
        self.tools.acceptance.requirements.as_ref().map(RequirementState::requirement)
    }

    /// Runs the command that must pass; returns `None` if there is none. Takes no longer than the
    /// requirement's timeout plus the few seconds needed to kill a command. Dropping the future
    /// kills the command.
    pub async fn run_requirement(&self, cancel: CancellationToken) -> Option<RequirementCheck> {
        let requirements = self.tools.acceptance.requirements.as_ref()?;
        let cwd = self.tools.places.cwd();
        Some(requirements.check(&self.tools.shell, cwd, &cancel).await)
    }

    /// The state of the acceptance criteria so far.
    pub fn acceptance(&self) -> Acceptance {
        let demands = &self.tools.acceptance;
        Acceptance {
            structured_output: demands.answers.as_ref().and_then(|all| all.delivered()),
            schema_attempts: demands.answers.as_ref().map(|answers| answers.attempts()),
            requirement: demands.requirements.as_ref().map(RequirementState::verified),
        }
    }
}
