//! The ids of a session's prompts: a host sends a prompt again if it does not know whether it
//! arrived.

use std::collections::HashSet;

use uuid::Uuid;

use crate::host::UserPrompt;
use crate::journal::UserMessageIds;

/// The ids of the prompts of a session.
#[derive(Default)]
pub(super) struct PromptIds {
    known: HashSet<String>,
    /// The ids of the last prompt of earlier processes, until another prompt follows.
    last: HashSet<String>,
}

impl From<UserMessageIds> for PromptIds {
    fn from(UserMessageIds { earlier, last }: UserMessageIds) -> Self {
        let known = earlier.into_iter().chain(last.iter().cloned()).collect();
        Self { known, last: last.into_iter().collect() }
    }
}

impl PromptIds {
    /// Returns the prompt if it must be answered. The last prompt of an earlier process is
    /// continued, since its result may not have reached the host. `None`: a copy of another known
    /// prompt.
    pub(super) fn admit(&mut self, prompt: UserPrompt) -> Option<UserPrompt> {
        let id = prompt.uuid.as_deref().map(normalized);
        if id.as_ref().is_some_and(|id| self.last.contains(id)) {
            self.last.clear();
            return Some(prompt.of_session());
        }
        let is_new = id.is_none_or(|id| self.known.insert(id));
        if is_new && !prompt.is_context {
            self.last.clear();
        }
        is_new.then_some(prompt)
    }

    /// Forgets prompts that were cancelled: the host may send them again.
    pub(super) fn forget(&mut self, ids: &[String]) {
        for id in ids {
            self.known.remove(&normalized(id));
        }
    }
}

/// Returns an id as it is written to the journal.
fn normalized(id: &str) -> String {
    Uuid::try_parse(id).map_or_else(|_| id.to_owned(), |id| id.to_string())
}
