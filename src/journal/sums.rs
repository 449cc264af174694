//! Sums over a prompt or a session.

use crate::recovery::Money;
use crate::transcript::Usage;

/// What replies have brought and cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Replies that entered the history.
    pub turns: u32,
    /// Everything that counts against a budget.
    pub spent: Money,
    /// Part of it that was charged for calls of which nobody knows whether they were billed.
    pub unsettled: Money,
    pub usage: Usage,
    /// In the order in which they were first used. Without what is not settled.
    pub by_model: Vec<ModelSum>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSum {
    pub model: String,
    pub usage: Usage,
    pub cost: Money,
}

impl Sums {
    pub(super) fn add(&mut self, cost: Money, usage: Usage, model: &str) {
        self.spent += cost;
        self.usage += usage;
        match self.by_model.iter_mut().find(|sum| sum.model == model) {
            Some(sum) => {
                sum.cost += cost;
                sum.usage += usage;
            }
            None => self.by_model.push(ModelSum { model: model.to_owned(), usage, cost }),
        }
    }

    pub(super) fn forfeit(&mut self, cost: Money) {
        self.spent += cost;
        self.unsettled += cost;
    }
}
