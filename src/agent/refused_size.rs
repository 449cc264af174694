//! Learns from refusals the sizes of the context window, of the input and of the output, unless the
//! request contradicts the refusal.

use crate::recovery::{CallPurpose, ClassifiedFault, ErrorClass, ModelCall, RefusedCap};
use crate::transcript::has_media;

use super::compactor::ContextView;

/// A request below so many tokens fits into the smallest window of a model that can use tools, so a
/// refusal of it as too long is implausible.
const SMALL_REQUEST: u64 = 16_000;

impl ContextView<'_> {
    /// Returns true if the request contradicts its refusal, and the request before was not refused
    /// for the same reason.
    pub(super) fn contradicts(&mut self, fault: &ClassifiedFault, ask: &ModelCall) -> bool {
        let class = fault.failure.class;
        if self.caller.last_failure().is_some_and(|before| before.failure.class == class) {
            return false;
        }
        if class == ErrorClass::PromptTooLong {
            self.is_implausible_overflow(fault, ask)
        } else if class == ErrorClass::RequestTooLarge {
            // Their bytes are not in the size in tokens.
            let has_media = has_media(self.conversation.messages());
            !has_media && self.size_of(ask.purpose) < SMALL_REQUEST
        } else if matches!(class, ErrorClass::InvalidRequest | ErrorClass::ContentFiltered) {
            self.contradicts_refusal(fault, ask.purpose)
        } else {
            false
        }
    }

    /// Returns true if a refusal as too long contradicts the known window: the request is far
    /// smaller. A window that the refusal does not name may be smaller than the known one, so only
    /// a small request contradicts it. If the output may be what does not fit, the next request
    /// asks for less of it.
    fn is_implausible_overflow(&mut self, fault: &ClassifiedFault, ask: &ModelCall) -> bool {
        let (output, unnamed) = if fault.counts_output() {
            (u64::from(ask.cap), 0)
        } else {
            (0, self.caller.window().min(2 * SMALL_REQUEST))
        };
        let window = fault.named_window().unwrap_or(unnamed);
        self.size_of(ask.purpose) + output < window / 2
    }

    /// Learns the real window size from an overflow: the size that the service names or, without
    /// one, nine tenths of the size that did not fit. A summarising request is shorter than one for
    /// a reply, so its size says nothing about the window.
    fn learn_window(&mut self, fault: &ClassifiedFault, purpose: CallPurpose) {
        if fault.failure.class != ErrorClass::PromptTooLong {
            return;
        }
        let size = (purpose == CallPurpose::Reply).then(|| self.conversation.history().estimate());
        let known = self.caller.window();
        let named = fault.named_window().filter(|&window| !self.contradicts_window(window));
        let Some(reported) = named.or_else(|| size.map(|size| size / 10 * 9)) else { return };
        let learned = reported.min(known).max(1);
        self.caller.learn_window(learned, self.journal);
    }

    /// Returns true if a window contradicts an earlier answer: it has no room for the system prompt
    /// and the tools, and the model has read more than it holds.
    fn contradicts_window(&self, window: u64) -> bool {
        let history = self.conversation.history();
        window <= history.fixed() && history.counted().is_some_and(|tokens| tokens > window)
    }

    /// Learns the output limit of the model from the refusal of an output cap: the limit that the
    /// service names or, without one, a cap that is probably accepted.
    pub(super) fn learn_output_limit(&mut self, fault: &ClassifiedFault, ask: &ModelCall) {
        let Some(refused) = fault.refused_output_cap(ask.cap) else { return };
        let first = self.limits.caps.first;
        let learned = match refused {
            RefusedCap::Named(limit) => limit,
            RefusedCap::Unnamed if ask.cap > first => first,
            RefusedCap::Unnamed => ask.cap / 2,
        };
        self.caller.learn_output_limit(learned, self.journal);
    }

    /// Learns from an overflow the size of the window and, if it counts the output, how much of it
    /// the input takes.
    pub(super) fn learn_from_overflow(&mut self, fault: &ClassifiedFault, ask: &ModelCall) {
        if !fault.counts_output() {
            return self.learn_window(fault, ask.purpose);
        }
        let half = u64::from(ask.cap / 2);
        let size = self.size_of(ask.purpose);
        if fault.named_window().is_none() && ask.cap > self.limits.caps.floor {
            // It is only known that both together did not fit: the next cap is half of this one.
            let window = self.caller.window().min(size.saturating_add(half));
            return self.caller.learn_window(window, self.journal);
        }
        self.learn_window(fault, ask.purpose);
        let window = self.caller.window();
        // At least so much was sent if half of this cap does not fit, either.
        let beside_half = window.saturating_sub(half);
        let last = self.caller.last_failure().map(|last| last.failure.class);
        let is_again = last == Some(ErrorClass::PromptTooLong);
        match fault.named_input(ask.cap) {
            // Some services count the input only as far as it takes to refuse it.
            Some(input) if is_again => self.record_size(ask.purpose, input.max(beside_half)),
            Some(input) => self.record_size(ask.purpose, input),
            None if size.saturating_add(ask.cap.into()) <= window => {
                self.record_size(ask.purpose, beside_half);
            }
            // The next cap is what the estimate leaves.
            None => {}
        }
    }
}
