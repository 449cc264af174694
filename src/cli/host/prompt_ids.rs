//! The ids of a session's prompts: a host sends a prompt again if it does not know whether it
//! arrived.

use std::collections::HashSet;

use crate::cli::chosen_session::message_id;
use crate::host::UserPrompt;
use crate::journal::UserMessageIds;

/// The ids of the prompts of a session.
#[derive(Default)]
pub(super) struct PromptIds {
    known: HashSet<String>,
    /// The ids of the last prompt of earlier processes, until another prompt takes its place.
    last: HashSet<String>,
    /// True if that prompt is being continued, so that others may follow it.
    is_continued: bool,
}

impl From<UserMessageIds> for PromptIds {
    fn from(UserMessageIds { earlier, last }: UserMessageIds) -> Self {
        let known = earlier.into_iter().chain(last.iter().cloned()).collect();
        Self { known, last: last.into_iter().collect(), is_continued: false }
    }
}

impl PromptIds {
    /// Returns the prompt if it must be answered. The last prompt of an earlier process is
    /// continued, since its result may not have reached the host. `None`: a copy of another known
    /// prompt.
    pub(super) fn admit(&mut self, prompt: UserPrompt) -> Option<UserPrompt> {
        let id = prompt.uuid.as_deref().map(message_id);
        if !self.is_continued && id.as_ref().is_some_and(|id| self.last.contains(id)) {
            self.is_continued = true;
            return Some(prompt.of_session());
        }
        let is_new = id.is_none_or(|id| self.known.insert(id));
        if is_new && !prompt.is_context && !self.is_continued {
            self.last.clear();
        }
        is_new.then_some(prompt)
    }

    /// Forgets prompts that were cancelled: the host may send them again. The session has the last
    /// prompt of earlier processes already, so that one is continued then.
    pub(super) fn forget(&mut self, ids: &[String]) {
        for id in ids.iter().map(|id| message_id(id)) {
            if self.last.contains(&id) {
                self.is_continued = false;
            } else {
                self.known.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(id: &str) -> UserPrompt {
        UserPrompt { uuid: Some(id.to_owned()), ..UserPrompt::default() }
    }

    /// The prompts that are answered: true for those that the session has.
    fn admitted(ids: &mut PromptIds, sent: &[&str]) -> Vec<(String, bool)> {
        let answered = sent.iter().filter_map(|id| ids.admit(prompt(id)));
        answered.map(|it| (it.uuid.expect("it was given"), it.is_recorded)).collect()
    }

    #[test]
    fn a_prompt_that_was_cancelled_in_the_queue_is_answered_when_it_is_sent_again() {
        let ids = |ids: &[&str]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
        let session = UserMessageIds { earlier: ids(&["old"]), last: ids(&["part", "last"]) };
        let mut known = PromptIds::from(session);
        assert_eq!(admitted(&mut known, &["old", "last"]), [("last".to_owned(), true)]);
        // The session has it, so it is not a new prompt in any number of attempts.
        for _ in 0..2 {
            assert_eq!(admitted(&mut known, &["new"]), [("new".to_owned(), false)]);
            known.forget(&ids(&["last", "new"]));
            let again = admitted(&mut known, &["last", "part", "last"]);
            assert_eq!(again, [("last".to_owned(), true)]);
        }
        // Another prompt takes its place.
        let mut known = PromptIds::from(UserMessageIds { earlier: ids(&[]), last: ids(&["last"]) });
        assert_eq!(admitted(&mut known, &["new", "last"]), [("new".to_owned(), false)]);
    }
}
