//! Bounds the work spent on checking one command, so that no command can stall the run.

use std::cell::Cell;

/// How many characters may be examined, counted each time they are examined. Enough for any command
/// that is not deliberately obfuscated, and about one second in a debug build.
const WORK_MAX: usize = 10_000_000;

/// The work budget for checking one command.
///
/// Once it is used up, checks stop early and their findings are incomplete. That is safe because
/// the budget stays exhausted: the caller tests [`Self::is_exhausted`] after each check and refuses the
/// command.
pub(super) struct WorkBudget {
    left: Cell<Option<usize>>,
}

impl WorkBudget {
    pub(super) fn new() -> Self {
        Self { left: Cell::new(Some(WORK_MAX)) }
    }

    /// Charges the cost of a check, in characters. Returns whether the budget covered it.
    #[must_use]
    pub(super) fn charge(&self, letters: usize) -> bool {
        self.left.set(self.left.get().and_then(|left| left.checked_sub(letters)));
        !self.is_exhausted()
    }

    /// Whether the budget was exceeded, so that some checks were skipped.
    pub(super) fn is_exhausted(&self) -> bool {
        self.left.get().is_none()
    }
}
