//! Counts what it takes to judge one command, so that no command takes long.

use std::cell::Cell;

/// How many letters may be looked at, each as often as it is: enough for every command that is not
/// written to be a riddle, and about a second where nothing is optimised.
const WORK_MAX: usize = 10_000_000;

/// What judging one command may still take.
///
/// Whoever is out of it stops looking, so that nothing that was found is complete any more. That is
/// safe because it stays so to the end: who judges asks for it after each look, and refuses.
pub(super) struct WorkBudget {
    left: Cell<Option<usize>>,
}

impl WorkBudget {
    pub(super) fn new() -> Self {
        Self { left: Cell::new(Some(WORK_MAX)) }
    }

    /// Takes what a look is going to cost, in letters. Whether that was left.
    #[must_use]
    pub(super) fn charge(&self, letters: usize) -> bool {
        self.left.set(self.left.get().and_then(|left| left.checked_sub(letters)));
        !self.is_exhausted()
    }

    /// What is said of a command that takes more.
    pub(super) fn refusal() -> String {
        "Bash needs a plainer command: this one is too intricate to be checked in a short time. \
         Split it up, or write it to a file and run that"
            .to_string()
    }

    /// Whether something was not looked at.
    pub(super) fn is_exhausted(&self) -> bool {
        self.left.get().is_none()
    }
}
