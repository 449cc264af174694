//! The queue of ended spans.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use super::span::Span;

/// Queues ended spans without blocking.
#[derive(Clone)]
pub(super) struct SpanSender {
    pub(super) queue: mpsc::Sender<Span>,
    /// Number of spans for which the queue had no room.
    pub(super) dropped: Arc<AtomicU64>,
}

impl SpanSender {
    pub(super) fn send(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
