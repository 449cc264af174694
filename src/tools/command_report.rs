//! The result of an ended command, for the model and for programs.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use indicatif::HumanBytes;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::transcript::{Block, exit_note};

use super::capture::CapturedOutput;
use super::command::{CommandEnd, EndedCommand, exit_code};
use super::outcome::ToolOutcome;
use super::shell_lexer::{self, base_name};
use super::shell_wrappers::inner_command;

/// The heading for a command whose job init process was killed.
const UNKNOWN: &str = "unknown: the process that looked after the command was killed, \
                       and the command with it.";
/// The heading for a command that the kernel killed.
const KILLED_FOR_MEMORY: &str = "137 (killed by SIGKILL, while the kernel ended processes because \
                                 the machine or its control group ran out of memory)";
/// Builds the result of an ended command for the model and for programs.
pub(super) struct CommandReport<'a> {
    pub(super) command: &'a str,
    pub(super) limit: Duration,
    /// The maximum memory of all commands together, in bytes.
    pub(super) memory: Option<u64>,
    pub(super) ended: EndedCommand,
    pub(super) captured: CapturedOutput,
    pub(super) notes: Vec<String>,
}

impl CommandReport<'_> {
    pub(super) fn outcome(self) -> ToolOutcome {
        let (heading, is_error) = self.status_line();
        let mut parts: Vec<&str> = Vec::new();
        parts.extend(heading.as_deref());
        let output = self.captured.text.trim_end_matches('\n');
        if !output.trim().is_empty() {
            parts.push(output);
        } else if heading.is_none() {
            parts.push("(no output)");
        }
        parts.extend(self.notes.iter().map(String::as_str));
        ToolOutcome {
            content: vec![Block::text(parts.join("\n"))],
            is_error,
            detail: json!({
                // Both streams, in the order in which they were written.
                "stdout": self.captured.text,
                "stderr": "",
                "exit_code": self.ended.status.map(exit_code),
                "interrupted": self.ended.cause == CommandEnd::Cancelled,
                "timed_out": self.ended.cause == CommandEnd::TimedOut,
                "memory_exceeded": matches!(self.ended.cause, CommandEnd::MemoryExceeded(_)),
                "output_bytes": self.captured.bytes,
                "output_file": self.captured.file,
            }),
            denied: None,
        }
    }

    fn status_line(&self) -> (Option<String>, bool) {
        let gone = match self.ended.status {
            Some(_) => "was stopped",
            None => "was killed and has not ended yet",
        };
        match (self.ended.cause, self.ended.status) {
            (CommandEnd::Cancelled, _) => {
                (Some(format!("Interrupted by user: the command {gone}.")), true)
            }
            (CommandEnd::TimedOut, _) => {
                let limit = humantime::format_duration(self.limit);
                let advice = "What needs longer can run with run_in_background";
                (Some(format!("Timed out after {limit}: the command {gone}. {advice}.")), true)
            }
            (CommandEnd::MemoryExceeded(taken), _) => {
                (Some(memory_exceeded_note(taken, self.memory)), true)
            }
            (CommandEnd::KilledForMemory, _) => (Some(exit_note(KILLED_FOR_MEMORY)), true),
            (CommandEnd::Exited, None) => (Some(exit_note(UNKNOWN)), true),
            (CommandEnd::Exited, Some(status)) => match (exit_code(status), status.signal()) {
                (0, _) => (None, false),
                (1, None) if exit_code_1_is_a_result(self.command) => {
                    (Some(exit_note("1 (no match, or a difference)")), false)
                }
                (code, Some(number)) => {
                    let name = Signal::try_from(number).map_or("a signal", Signal::as_str);
                    (Some(exit_note(format_args!("{code} (killed by {name})"))), true)
                }
                (code, None) => (Some(exit_note(code)), true),
            },
        }
    }
}

/// The note for the model about a command that took too much memory.
fn memory_exceeded_note(taken: u64, bound: Option<u64>) -> String {
    let bound = bound.map_or(String::new(), |bound| format!(" ({})", HumanBytes(bound)));
    format!(
        "Out of memory: the command was stopped when it took {}. All commands of the run together \
         may take no more than the setting commandMemory{bound}; this one took most. Let it work \
         on less at a time, or with fewer processes.",
        HumanBytes(taken)
    )
}

/// True if an exit code of 1 is this command's negative result and not a failure.
fn exit_code_1_is_a_result(command: &str) -> bool {
    let Ok(parts) = shell_lexer::split(command) else { return false };
    let words = parts.last().map_or(&[][..], |last| inner_command(&last.words));
    let name = |at: usize| words.get(at).map(|word| base_name(&word.plain));
    match name(0) {
        Some("git") => matches!(name(1), Some("grep" | "diff")),
        Some(
            "grep" | "egrep" | "fgrep" | "zgrep" | "rg" | "diff" | "cmp" | "find" | "test" | "[",
        ) => true,
        Some(_) | None => false,
    }
}
