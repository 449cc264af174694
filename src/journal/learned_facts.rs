//! Facts about models and services that a session has learned from their refusals.

use crate::recovery::RefusedField;

use super::view::JournalView;

/// Facts that later requests of the session respect. Of several windows or output limits of a
/// model, the last recorded one applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnedFacts {
    windows: Vec<(String, u64)>,
    output_limits: Vec<(String, u32)>,
    refused_fields: Vec<RefusedField>,
}

impl LearnedFacts {
    /// The context window of the model with this label, in tokens.
    pub fn window(&self, model: &str) -> Option<u64> {
        latest(&self.windows, model)
    }

    /// The output limit of the model with this label, in tokens.
    pub fn output_limit(&self, model: &str) -> Option<u32> {
        latest(&self.output_limits, model)
    }

    /// The fields that a host refuses for a model.
    pub fn refused_fields(&self) -> &[RefusedField] {
        &self.refused_fields
    }
}

impl JournalView<'_> for LearnedFacts {
    fn learned_window(&mut self, model: &str, tokens: u64) {
        self.windows.push((model.to_owned(), tokens));
    }

    fn learned_output_limit(&mut self, model: &str, tokens: u32) {
        self.output_limits.push((model.to_owned(), tokens));
    }

    fn refused_field(&mut self, refused: &RefusedField) {
        self.refused_fields.push(refused.clone());
    }
}

fn latest<T: Copy>(facts: &[(String, T)], model: &str) -> Option<T> {
    facts.iter().rev().find(|(known, _)| known == model).map(|(_, fact)| *fact)
}
