//! How much a model is asked to think and to do: the fields `thinking` and `output_config` of a
//! request.

use serde_json::{Value, json};

use super::prices::{Thinking, supported_effort, thinking};
use crate::types::{Effort, ThinkingDisplay};

/// The smallest thinking budget that the service accepts, in tokens.
const THINKING_BUDGET_MIN: u32 = 1024;

/// Whether and how a model thinks before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThinkingMode {
    /// Adaptive where the model has that, none elsewhere.
    #[default]
    Adaptive,
    /// None; as little as possible from a model that always thinks.
    Off,
    /// At most this many tokens, where the model takes a budget. Adaptive elsewhere.
    Budget(u32),
}

/// What a request asks for beyond an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reasoning {
    pub thinking: ThinkingMode,
    /// `None`: as the service does by default.
    pub display: Option<ThinkingDisplay>,
    /// `None`: as the service does by default.
    pub effort: Option<Effort>,
}

/// The fields of a request's body for thinking and for effort.
pub(super) const THINKING: &str = "thinking";
pub(super) const EFFORT: &str = "output_config";

impl Reasoning {
    /// For requests beside the conversation, such as summaries: no thinking.
    pub const LEAST: Self = Self { thinking: ThinkingMode::Off, display: None, effort: None };

    /// Whether a request to `model` has the field for thinking, unless it has no room for it.
    pub fn asks_for_thinking(&self, model: &str) -> bool {
        self.thinking_field(model, u32::MAX).is_some()
    }

    /// Whether a request to `model` has the field for effort.
    pub fn asks_for_effort(&self, model: &str) -> bool {
        self.effort_for(model).is_some()
    }

    /// The field `thinking`, with an output cap of `cap` tokens. Thinking counts towards the cap, so
    /// a budget leaves a quarter of it for the answer.
    pub(super) fn thinking_field(&self, model: &str, cap: u32) -> Option<Value> {
        let mut field = match (self.thinking, thinking(model)) {
            (ThinkingMode::Adaptive, Thinking::Budget)
            | (ThinkingMode::Off, Thinking::Budget | Thinking::Always) => return None,
            (ThinkingMode::Off, Thinking::Adaptive) => return Some(json!({ "type": "disabled" })),
            (
                ThinkingMode::Adaptive | ThinkingMode::Budget(_),
                Thinking::Adaptive | Thinking::Always,
            ) => json!({ "type": "adaptive" }),
            (ThinkingMode::Budget(budget), Thinking::Budget) => {
                let budget = budget.min(cap - cap / 4);
                if budget < THINKING_BUDGET_MIN {
                    return None;
                }
                json!({ "type": "enabled", "budget_tokens": budget })
            }
        };
        if let Some(display) = self.display {
            field["display"] = json!(display);
        }
        Some(field)
    }

    /// The effort that the model has and that comes closest to the wanted one.
    pub(super) fn effort_for(&self, model: &str) -> Option<Effort> {
        let always = thinking(model) == Thinking::Always;
        let least = (self.thinking == ThinkingMode::Off && always).then_some(Effort::Low);
        supported_effort(model, self.effort.or(least)?)
    }
}
