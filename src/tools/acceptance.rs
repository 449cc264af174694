//! What a run must come up with before it is a success: an answer of a given shape, and a command
//! that passes.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::transcript::ToolDefinition;

use super::require::{Check, Requirement, Requirements, Verified};
use super::settings::{BadSettings, ToolSettings};
use super::structured::{Answers, Delivery, Others, STRUCTURED_OUTPUT};
use super::toolbox::Toolbox;

/// What the demands on a run came to, for its result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Acceptance {
    /// The answer, in the shape that was asked for.
    pub structured_output: Option<Value>,
    /// How many answers were checked. `None` when no shape was asked for.
    pub schema_attempts: Option<u32>,
    /// `None` when no command must pass.
    pub requirement: Option<Verified>,
}

/// What is demanded of a run.
#[derive(Debug)]
pub(super) struct Demands {
    answers: Option<Arc<Answers>>,
    requirements: Option<Requirements>,
}

impl Demands {
    pub(super) fn new(settings: &ToolSettings) -> Result<Self, BadSettings> {
        let requirements = settings.requirement.clone().map(Requirements::new).transpose();
        Ok(Self {
            answers: settings.answer.clone().map(|schema| Arc::new(Answers::new(schema))),
            requirements: requirements.map_err(|why| BadSettings::Requirement { why })?,
        })
    }

    pub(super) fn define(&self) -> Option<ToolDefinition> {
        self.answers.as_ref().map(|answers| answers.define())
    }

    /// Who takes the calls of this tool, if it is the one that takes answers.
    pub(super) fn answers(&self, tool: &str) -> Option<Arc<Answers>> {
        self.answers.clone().filter(|_| tool == STRUCTURED_OUTPUT)
    }
}

impl Toolbox {
    /// Whether the run must give an answer through [`STRUCTURED_OUTPUT`].
    pub fn wants_answer(&self) -> bool {
        self.kit.demands.answers.is_some()
    }

    /// Settles what the calls of one reply delivered. To be asked once after each reply's tools,
    /// when all of them are done.
    pub fn settle(&self, others: Others) -> Delivery {
        self.kit.demands.answers.as_ref().map_or(Delivery::Nothing, |all| all.settle(others))
    }

    /// The command that must pass, if there is one.
    pub fn requirement(&self) -> Option<&Requirement> {
        self.kit.demands.requirements.as_ref().map(Requirements::requirement)
    }

    /// Runs the command that must pass. `None` when there is none. Takes no longer than the
    /// requirement's timeout and the few seconds it takes to end a command; dropped, it takes
    /// the command with it.
    pub async fn check(&self, cancel: CancellationToken) -> Option<Check> {
        let requirements = self.kit.demands.requirements.as_ref()?;
        let cwd = self.kit.places.cwd();
        Some(requirements.check(&self.kit.shell, cwd, &cancel).await)
    }

    /// What the demands on the run came to so far.
    pub fn acceptance(&self) -> Acceptance {
        let demands = &self.kit.demands;
        Acceptance {
            structured_output: demands.answers.as_ref().and_then(|all| all.delivered()),
            schema_attempts: demands.answers.as_ref().map(|answers| answers.attempts()),
            requirement: demands.requirements.as_ref().map(Requirements::verified),
        }
    }
}
