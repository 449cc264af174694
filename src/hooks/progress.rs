//! Progress reports about single hooks: start, and end with the outcome.

use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::secrets::{KnownSecrets, Redactor};

use super::event::HookEvent;
use super::output::truncate;
use super::result::{HookEnd, HookRun};

/// The start or the end of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookProgress {
    /// Unique to this hook run; the same in both reports.
    pub id: String,
    pub event: HookEvent,
    /// The event and its subject: `PreToolUse:Bash`.
    pub name: String,
    /// The end of the hook; `None` in the first report.
    pub finished: Option<HookFinished>,
}

/// The end of a hook, with masked secrets and limited length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookFinished {
    pub stdout: String,
    pub stderr: String,
    pub exit_code: Option<i32>,
    pub outcome: HookOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum HookOutcome {
    Success,
    Error,
    /// The run was cancelled while it ran.
    Cancelled,
}

/// Reports one hook: sends the start at once, and the end exactly once.
pub(super) struct HookReporter {
    progress: HookProgress,
    receiver: Option<UnboundedSender<HookProgress>>,
    redactor: Redactor,
    is_finished: bool,
}

impl HookReporter {
    pub(super) fn begin(
        event: HookEvent,
        subject: &str,
        receiver: Option<UnboundedSender<HookProgress>>,
        secrets: &KnownSecrets,
    ) -> Self {
        let name = if subject.is_empty() {
            event.name().to_owned()
        } else {
            format!("{}:{subject}", event.name())
        };
        let progress = HookProgress { id: Uuid::new_v4().to_string(), event, name, finished: None };
        let report = Self {
            progress,
            receiver,
            redactor: Redactor::new(secrets.clone()),
            is_finished: false,
        };
        report.send(report.progress.clone());
        report
    }

    pub(super) fn end(mut self, hook_run: &HookRun, cancelled: bool) {
        let exit_code = if let HookEnd::Exited(code) = hook_run.end { Some(code) } else { None };
        let outcome = match exit_code {
            _ if cancelled => HookOutcome::Cancelled,
            None if hook_run.end == HookEnd::Released => HookOutcome::Success,
            Some(0) => HookOutcome::Success,
            Some(_) | None => HookOutcome::Error,
        };
        let shown = |text: &str| self.redactor.redact(&truncate(text, &self.redactor));
        let (stdout, stderr) = (shown(&hook_run.stdout), shown(&hook_run.stderr));
        self.finish(HookFinished { stdout, stderr, exit_code, outcome });
    }

    fn finish(&mut self, finished: HookFinished) {
        self.is_finished = true;
        self.send(HookProgress { finished: Some(finished), ..self.progress.clone() });
    }

    fn send(&self, progress: HookProgress) {
        if let Some(receiver) = &self.receiver {
            // The receiver is gone once the run is over.
            let _ = receiver.send(progress);
        }
    }
}

impl Drop for HookReporter {
    /// A report that is dropped without an end belongs to a cancelled hook.
    fn drop(&mut self) {
        if !self.is_finished {
            let (stdout, stderr) = (String::new(), String::new());
            let outcome = HookOutcome::Cancelled;
            self.finish(HookFinished { stdout, stderr, exit_code: None, outcome });
        }
    }
}
