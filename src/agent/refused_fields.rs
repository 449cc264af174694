//! Parts of requests that services refuse: each is left out from its refusal on, also when the
//! session is resumed.

use crate::journal::LearnedFacts;
use crate::model::Reasoning;
use crate::recovery::{
    CallPurpose, ClassifiedFault, EndpointStatus, FaultKind, OptionalField, RefusedField,
};
use crate::transcript::{Block, has_images};

use super::compactor::ContextView;
use super::setup::ModelEndpoint;

/// Omits from all requests the fields that were refused earlier in the session.
pub(super) fn drop_refused_fields(endpoints: &[ModelEndpoint], learned: &LearnedFacts) {
    for endpoint in endpoints {
        let (host, name) = (endpoint.client.host(), &endpoint.facts.name);
        let refused = learned.refused_fields().iter();
        for known in refused.filter(|known| known.host == host && known.model == *name) {
            endpoint.client.drop_field(name, known.field);
        }
    }
}

impl ContextView<'_> {
    /// Returns true if known facts contradict the refusal of a request as invalid: it has no
    /// thinking, for which it is refused, or the service has accepted others. Proxies and busy
    /// services report passing failures as invalid requests, in any words.
    pub(super) fn contradicts_refusal(
        &self,
        fault: &ClassifiedFault,
        purpose: CallPurpose,
    ) -> bool {
        let blocks = self.conversation.messages().iter().flat_map(|message| &message.content);
        let has_thinking = self.sends_field(OptionalField::Thinking, &self.reasoning_of(purpose))
            || blocks.into_iter().any(Block::is_thinking);
        let is_proven = fault.failure.endpoint_status == EndpointStatus::Proven;
        (fault.refuses(OptionalField::Thinking) && !has_thinking)
            || (is_proven && matches!(fault.fault.kind, FaultKind::Refused { .. }))
    }

    fn reasoning_of(&self, purpose: CallPurpose) -> Reasoning {
        match purpose {
            CallPurpose::Reply => {
                self.caller.reasoning_for(self.caller.endpoint(), self.conversation)
            }
            CallPurpose::Summary(_) => Reasoning::LEAST,
        }
    }

    /// Returns true if requests with this reasoning have the field.
    fn sends_field(&self, field: OptionalField, reasoning: &Reasoning) -> bool {
        let endpoint = self.caller.endpoint();
        let model = endpoint.facts.name.as_str();
        let is_wanted = match field {
            OptionalField::Thinking => reasoning.asks_for_thinking(model),
            OptionalField::Effort => reasoning.asks_for_effort(model),
            OptionalField::ThinkingByDefault
            | OptionalField::CacheControl
            | OptionalField::Streaming
            | OptionalField::SystemBlocks => true,
            OptionalField::Images => has_images(self.conversation.messages()),
        };
        is_wanted && endpoint.client.accepts_field(model, field)
    }

    /// Returns true if the refusal is about one of these fields, and the request has it.
    pub(super) fn is_refused_for(
        &self,
        fields: &[OptionalField],
        fault: &ClassifiedFault,
        purpose: CallPurpose,
    ) -> bool {
        self.refused_field(fields, fault, &self.reasoning_of(purpose)).is_some()
    }

    /// Returns the first of these fields that the request has and a refusal is about.
    fn refused_field(
        &self,
        fields: &[OptionalField],
        fault: &ClassifiedFault,
        reasoning: &Reasoning,
    ) -> Option<OptionalField> {
        let mut fields = fields.iter().copied();
        fields.find(|field| fault.refuses(*field) && self.sends_field(*field, reasoning))
    }

    /// Leaves the one of these fields that was refused out of requests from now on, also when the
    /// session is resumed.
    pub(super) fn drop_refused_field(&mut self, fields: &[OptionalField]) {
        let Some(fault) = self.caller.last_failure() else { return };
        let endpoint = self.caller.endpoint();
        let reasoning = if self.compactor.is_summarising() {
            Reasoning::LEAST
        } else {
            self.caller.reasoning_for(endpoint, self.conversation)
        };
        let Some(field) = self.refused_field(fields, fault, &reasoning) else { return };
        endpoint.client.drop_field(&endpoint.facts.name, field);
        let (host, model) = (endpoint.client.host(), endpoint.facts.name.clone());
        self.journal.refused_field(RefusedField { host, model, field });
    }
}
