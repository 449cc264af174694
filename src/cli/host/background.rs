//! The parts of a host's session that outlive its turns: background commands, and the hooks of its
//! end.

use std::time::Duration;

use tokio::time::Instant;

use crate::cli::output::command_messages;
use crate::host::UserPrompt;
use crate::recovery::Interrupt;

use super::session::{HostSession, system_message};

/// Time that commands may continue after the last result once the host has closed standard input.
const GRACE_AFTER_RESULT: Duration = Duration::from_secs(5);

/// Time limit for stopping everything of a turn that is still running, except its commands.
const TURN_END: Duration = Duration::from_secs(1);

/// Time limit for all hooks of the session's end after a signal: the process has four seconds for
/// everything.
const HOOKS_AFTER_SIGNAL: Duration = Duration::from_secs(2);

/// Time limit for stopping the commands at the end of the session.
const SESSION_END: Duration = Duration::from_secs(2);

impl HostSession {
    /// Reports commands to the host after the end of a turn.
    pub(super) async fn report_commands(&mut self) {
        self.resources.commands.end_run(TURN_END).await;
        self.last_turn_ended = Instant::now();
        let (out, session_id) = (self.out.clone(), self.session_id.clone());
        self.resources.commands.report_to(move |task| {
            for message in command_messages(&task) {
                out.send_message(system_message(message, &session_id.get()), None);
            }
        });
    }

    /// Sends the host no further messages, except answers to its requests.
    pub(super) fn end_messages(&mut self) {
        self.is_silent = true;
        self.resources.commands.report_to(|_| {});
    }

    /// Begins a turn about commands that have ended: a host that reads the state of the session
    /// expects results without a prompt. With other hosts, the next prompt reports the commands to
    /// the model.
    pub(super) fn begin_turn_about_commands(&mut self) {
        self.queue.push_back(UserPrompt::about_background_commands());
    }

    /// Waits a moment after the last result for commands to end by themselves.
    ///
    /// # Errors
    /// A signal ends the session.
    pub(super) async fn await_last_commands(&self) -> Result<(), Interrupt> {
        let grace = tokio::time::sleep_until(self.last_turn_ended + GRACE_AFTER_RESULT);
        tokio::select! {
            biased;
            interrupt = self.context.signals.first() => Err(interrupt),
            () = self.resources.commands.wait_until_ended() => Ok(()),
            () = grace => Ok(()),
        }
    }

    /// Runs the hooks for the end of the session, if it has begun. They have their own time limits,
    /// and less time after a signal.
    pub(super) async fn end_hooks(&self, reason: &'static str) {
        let after_signal = async {
            self.context.signals.first().await;
            tokio::time::sleep(HOOKS_AFTER_SIGNAL).await;
        };
        let failures = tokio::select! {
            failures = self.resources.lifecycle.end(reason) => failures,
            () = after_signal => Vec::new(),
        };
        for failure in failures {
            self.warn(&failure);
        }
    }

    /// Stops the commands that are left when the session ends.
    pub(super) async fn stop_commands(&self) {
        self.resources.commands.stop(SESSION_END).await;
    }
}
