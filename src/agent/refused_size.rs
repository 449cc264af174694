//! Learns from refusals of input and output that together exceed the context window.

use crate::recovery::{ClassifiedFault, ErrorClass, ModelCall};

use super::compactor::ContextView;

impl ContextView<'_> {
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
