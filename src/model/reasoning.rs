//! The thinking and effort that a request asks of a model: its fields `thinking` and
//! `output_config`.

use serde_json::{Value, json};

use super::prices::{Thinking, supported_effort, thinking};
use crate::types::{Effort, ThinkingDisplay};

/// The smallest thinking budget that the service accepts, in tokens.
const THINKING_BUDGET_MIN: u32 = 1024;

/// The tokens of a large output cap that a thinking budget leaves for the answer.
const ANSWER_TOKENS: u32 = 8_192;

/// The kind of thinking of a model before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThinkingMode {
    /// Adaptive if the model supports it, otherwise none.
    #[default]
    Adaptive,
    /// No thinking, or as little as possible from a model that always thinks.
    Off,
    /// At most this many tokens if the model takes a budget, otherwise adaptive.
    Budget(u32),
}

/// The thinking and effort of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reasoning {
    pub thinking: ThinkingMode,
    /// `None`: the default of the service.
    pub display: Option<ThinkingDisplay>,
    /// `None`: the default of the service.
    pub effort: Option<Effort>,
}

impl Reasoning {
    /// The settings for requests outside of the conversation, such as summaries: no thinking.
    pub const LEAST: Self = Self { thinking: ThinkingMode::Off, display: None, effort: None };

    /// True if a request to `model` has the field for thinking, unless its output cap has no room
    /// for it.
    pub fn asks_for_thinking(&self, model: &str) -> bool {
        self.thinking_field(model, u32::MAX).is_some()
    }

    /// True if a request to `model` has the field for effort.
    pub fn asks_for_effort(&self, model: &str) -> bool {
        self.effort_for(model).is_some()
    }

    /// The thinking budget that the user asks for, if `model` takes one.
    pub fn budget(&self, model: &str) -> Option<u32> {
        match self.thinking {
            ThinkingMode::Budget(budget) => (thinking(model) == Thinking::Budget).then_some(budget),
            ThinkingMode::Adaptive | ThinkingMode::Off => None,
        }
    }

    /// The largest thinking budget with an output cap of `cap` tokens. Thinking counts towards the
    /// cap, so a budget leaves a part of it for the answer. 0: the cap has no room for thinking.
    pub fn budget_max(cap: u32) -> u32 {
        let most = cap - (cap / 4).min(ANSWER_TOKENS);
        if most < THINKING_BUDGET_MIN { 0 } else { most }
    }

    /// The field `thinking`, with an output cap of `cap` tokens.
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
                let budget = budget.min(Self::budget_max(cap));
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

    /// The highest effort that the model supports, up to the requested one.
    pub(super) fn effort_for(&self, model: &str) -> Option<Effort> {
        let always = thinking(model) == Thinking::Always;
        let least = (self.thinking == ThinkingMode::Off && always).then_some(Effort::Low);
        supported_effort(model, self.effort.or(least)?)
    }
}
