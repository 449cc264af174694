//! Maps a stop reason to the exit status of the process, by the table of stop reasons.

use crate::recovery::StopReason;
use crate::types::exit_code::{SUCCESS, TEMPORARY};

pub use crate::types::exit_code::MEANINGS;

/// The outcome of a run as an exit status. A failure with exit code 0 cannot be expressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    Success,
    Failure(RunFailure),
}

/// Exit code and result subtype of a run that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunFailure {
    /// Never 0: only this module makes one.
    code: u8,
    subtype: &'static str,
}

impl ExitStatus {
    pub(super) const fn failure(code: u8) -> Self {
        Self::Failure(RunFailure { code, subtype: "error_during_execution" })
    }

    pub fn exit_code(self) -> u8 {
        match self {
            Self::Success => SUCCESS,
            Self::Failure(failed) => failed.code,
        }
    }

    /// The `subtype` of the result.
    pub fn subtype(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure(failed) => failed.subtype,
        }
    }

    pub fn is_error(self) -> bool {
        self != Self::Success
    }

    /// Returns true if the same run may succeed later.
    pub fn is_temporary(self) -> bool {
        self.exit_code() == TEMPORARY
    }
}

/// Maps a stop reason to the exit status.
pub fn exit_status(reason: StopReason) -> ExitStatus {
    let info = reason.info();
    if info.exit_code == SUCCESS {
        return ExitStatus::Success;
    }
    ExitStatus::Failure(RunFailure { code: info.exit_code, subtype: info.subtype })
}
