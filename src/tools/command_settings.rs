//! The limits of commands.

use std::time::Duration;

use crate::types::ChildEnvironment;

/// The maximum length of a command, in bytes: the kernel accepts no argument longer than 128 KiB.
const COMMAND_BYTES_MAX: usize = 120_000;

/// The limits and the environment of commands.
#[derive(Clone, Debug)]
pub struct CommandSettings {
    /// The timeout of a command for which the call names none.
    pub timeout: Duration,
    /// The longest timeout that a call may name, unless `timeout` is longer.
    pub max_timeout: Duration,
    /// The default and the maximum lifetime of a background command.
    pub background_lifetime: Duration,
    /// The maximum memory of all commands together, in bytes. `None`: no limit.
    pub memory: Option<u64>,
    pub child_environment: ChildEnvironment,
    /// Names of variables that commands see although they look like secrets. Never the model's
    /// credentials.
    pub pass_env: Vec<String>,
}

impl CommandSettings {
    /// Returns the longest timeout of a command.
    pub(super) fn longest(&self) -> Duration {
        self.max_timeout.max(self.timeout)
    }
}

impl Default for CommandSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_mins(2),
            max_timeout: Duration::from_mins(10),
            background_lifetime: Duration::from_hours(1),
            memory: None,
            child_environment: ChildEnvironment::Scrub,
            pass_env: Vec::new(),
        }
    }
}

/// The reason that no shell could run a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCommand {
    #[error("the command is empty")]
    Empty,
    #[error("the command contains a NUL character")]
    ContainsNul,
    #[error(
        "the command is {bytes} bytes long; at most {COMMAND_BYTES_MAX}. Write it to a file and \
         run that."
    )]
    TooLong { bytes: usize },
}

/// Rejects a command that no shell could run.
pub(super) fn check_command(command: &str) -> Result<(), InvalidCommand> {
    if command.trim().is_empty() {
        Err(InvalidCommand::Empty)
    } else if command.contains('\0') {
        Err(InvalidCommand::ContainsNul)
    } else if command.len() > COMMAND_BYTES_MAX {
        Err(InvalidCommand::TooLong { bytes: command.len() })
    } else {
        Ok(())
    }
}
