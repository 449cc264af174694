//! Maps a stop reason to the exit status of the process, by the table of stop reasons.

use crate::recovery::StopReason;
use crate::types::exit_code::{SUCCESS, TEMPORARY};

pub use crate::types::exit_code::MEANINGS;

/// The outcome of a run: its exit code, and the subtype of its result. Exit code 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitStatus {
    code: u8,
    subtype: &'static str,
}

impl ExitStatus {
    pub(super) const fn failure(code: u8) -> Self {
        Self { code, subtype: "error_during_execution" }
    }

    pub fn exit_code(self) -> u8 {
        self.code
    }

    /// The `subtype` of the result.
    pub fn subtype(self) -> &'static str {
        self.subtype
    }

    pub fn is_error(self) -> bool {
        self.code != SUCCESS
    }

    /// Returns true if the same run may succeed later.
    pub fn is_temporary(self) -> bool {
        self.code == TEMPORARY
    }
}

/// Maps a stop reason to the exit status.
pub fn exit_status(reason: StopReason) -> ExitStatus {
    let info = reason.info();
    ExitStatus { code: info.exit_code, subtype: info.subtype }
}
