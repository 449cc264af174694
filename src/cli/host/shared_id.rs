//! The id of a host's session.

use std::sync::Arc;

use parking_lot::Mutex;

/// The id of the session, once it is known. Clones share it.
#[derive(Clone, Default)]
pub(super) struct SharedId(Arc<Mutex<String>>);

impl SharedId {
    pub(super) fn set(&self, id: String) {
        *self.0.lock() = id;
    }

    pub(super) fn get(&self) -> String {
        self.0.lock().clone()
    }
}
