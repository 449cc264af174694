//! What a run must come up with before it is a success: an answer of a given shape, and a command
//! that passes.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::transcript::ToolDefinition;

use super::require::{RequirementCheck, Requirement, RequirementState, RequirementReport};
use super::settings::{BadSettings, ToolSettings};
use super::structured::{StructuredAnswers, Delivery, OtherCalls, STRUCTURED_OUTPUT};
use super::toolbox::Toolbox;

/// What the demands on a run came to, for its result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Acceptance {
    /// The answer, in the shape that was asked for.
    pub structured_output: Option<Value>,
    /// How many answers were checked. `None` when no shape was asked for.
    pub schema_attempts: Option<u32>,
    /// `None` when no command must pass.
    pub requirement: Option<RequirementReport>,
}

/// What is demanded of a run.
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

    /// Who takes the calls of this tool, if it is the one that takes answers.
    pub(super) fn answers(&self, tool: &str) -> Option<Arc<StructuredAnswers>> {
        self.answers.clone().filter(|_| tool == STRUCTURED_OUTPUT)
    }
}

impl Toolbox {
    /// Whether the run must give an answer through [`STRUCTURED_OUTPUT`].
    pub fn requires_answer(&self) -> bool {
        self.tools.acceptance.answers.is_some()
    }

    /// Settles what the calls of one reply delivered. To be asked once after each reply's tools,
    /// when all of them are done.
    pub fn settle_answers(&self, others: OtherCalls) -> Delivery {
        self.tools.acceptance.answers.as_ref().map_or(Delivery::Nothing, |all| all.settle(others))
    }

    /// The command that must pass, if there is one.
    pub fn requirement(&self) -> Option<&Requirement> {
        self.tools.acceptance.requirements.as_ref().map(RequirementState::requirement)
    }

    /// Runs the command that must pass. `None` when there is none. Takes no longer than the
    /// requirement's timeout and the few seconds it takes to end a command; dropped, it takes
    /// the command with it.
    pub async fn run_requirement(&self, cancel: CancellationToken) -> Option<RequirementCheck> {
        let requirements = self.tools.acceptance.requirements.as_ref()?;
        let cwd = self.tools.places.cwd();
        Some(requirements.check(&self.tools.shell, cwd, &cancel).await)
    }

    /// What the demands on the run came to so far.
    pub fn acceptance(&self) -> Acceptance {
        let demands = &self.tools.acceptance;
        Acceptance {
            structured_output: demands.answers.as_ref().and_then(|all| all.delivered()),
            schema_attempts: demands.answers.as_ref().map(|answers| answers.attempts()),
            requirement: demands.requirements.as_ref().map(RequirementState::verified),
        }
    }
}
