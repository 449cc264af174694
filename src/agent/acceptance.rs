//! Accepts or rejects the work: the command of `--require`, the structured answer, the loop
//! detector.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::journal::{FailedCheck, Journal};
use crate::process::file_reads::read_regular;
use crate::recovery::{CallEffect, Event, Fingerprint, LoopLimits, ToolCallRecord};
use crate::tools::{Delivery, OtherCalls, STRUCTURED_OUTPUT};
use crate::transcript::{Block, ToolCall};

use super::messages::is_error;
use super::run_event::RunEvent;
use super::run_monitor::CancelReason;
use super::tool_runner::{CompletedCall, ToolRunner};
use super::waiting_for::WaitingFor;
use super::world::{InternalError, RunWorld};

/// Largest file whose content is hashed, in bytes. A larger one is compared by size and time.
const FILE_MAX: u64 = 8_000_000;

/// Time limit for hashing a file. A file that takes longer counts as changed.
const HASH_LIMIT: Duration = Duration::from_secs(1);

impl ToolRunner {
    /// Turns the results of a batch of tool calls into the next event.
    pub(super) async fn finish_batch(
        &mut self,
        batch: &[CompletedCall<'_>],
        journal: &mut Journal,
        loops: LoopLimits,
    ) -> Event {
        let others = |done: &&CompletedCall<'_>| done.call.call().name != STRUCTURED_OUTPUT;
        let failed = batch.iter().filter(others).any(|done| is_error(done.result));
        let others = if failed { OtherCalls::Failed } else { OtherCalls::Succeeded };
        match self.toolbox().settle_answers(others) {
            Delivery::Answer(_) => return self.check_background_work(Event::Delivered),
            Delivery::Invalid => return Event::SchemaMismatch,
            Delivery::Nothing => {}
        }
        let mut records = Vec::with_capacity(batch.len());
        for done in batch {
            let effect = match (self.call_effect(done), done.detail["filePath"].as_str()) {
                (CallEffect::Changed, Some(path)) => {
                    edit_effect(Path::new(path)).await.unwrap_or(CallEffect::Changed)
                }
                (effect, _) => effect,
            };
            records.push(call_record(done, effect));
        }
        journal.tool_calls(&records);
        Event::ToolsDone(self.observe(&records, loops))
    }
}

impl RunWorld<'_> {
    /// Runs the command of `--require`.
    ///
    /// # Errors
    /// The run was cut off meanwhile.
    pub(super) async fn check(&mut self) -> Result<Event, CancelReason> {
        let cancel = CancellationToken::new();
        let toolbox = Arc::clone(self.tools.toolbox());
        let checking = Box::pin(toolbox.run_requirement(cancel.clone()));
        let waiting_for = WaitingFor::Tool { name: "--require".to_owned(), id: String::new() };
        let Some(check) = self.run_cancellable(waiting_for, &cancel, checking).await? else {
            return Ok(self.internal_error(InternalError::NoRequirement));
        };
        let passed = check.passed();
        let verified = self.tools.toolbox().acceptance().requirement;
        let attempt = verified.map_or(1, |verified| verified.attempts);
        let of = (u32::from(self.limits.budgets.requirement_tries) + 1).max(attempt);
        if !passed {
            let messages = self.conversation.messages();
            self.failed_checks.record(&check, (attempt, of), messages);
            self.journal.failed_check(FailedCheck {
                command: check.command.clone(),
                end: check.end_phrase(),
                output: check.tail(),
            });
        }
        let check = Arc::new(check);
        self.monitor.emit(&RunEvent::RequirementEnds { check, attempt, of });
        Ok(Event::Checked { passed })
    }
}

/// Returns an edit of a file, with a fingerprint of its current content.
async fn edit_effect(path: &Path) -> Option<CallEffect> {
    let file = Fingerprint::of(&[path.as_os_str().as_encoded_bytes()]);
    Some(CallEffect::Edited { file, now: content_fingerprint(path).await? })
}

fn call_record(done: &CompletedCall<'_>, effect: CallEffect) -> ToolCallRecord {
    let ToolCall { name, input, .. } = done.call.call();
    let mut arguments = input.clone();
    if let Some(arguments) = arguments.as_object_mut() {
        // Prose for people, which a model may vary while it repeats the same call.
        arguments.shift_remove("description");
    }
    let (arguments, text) = (arguments.to_string(), comparable_text(done));
    ToolCallRecord::new(name, arguments.as_bytes(), text.as_bytes(), effect)
}

/// Fingerprints a file's content. Regular files only: reading anything else could block.
async fn content_fingerprint(path: &Path) -> Option<Fingerprint> {
    let path = path.to_owned();
    let hashing = tokio::task::spawn_blocking(move || fingerprint_file(&path));
    tokio::time::timeout(HASH_LIMIT, hashing).await.ok()?.ok()?
}

fn fingerprint_file(path: &Path) -> Option<Fingerprint> {
    let facts = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    if facts.len() > FILE_MAX {
        let time = format!("{:?}", facts.modified().ok());
        return Some(Fingerprint::of(&[&facts.len().to_le_bytes(), time.as_bytes()]));
    }
    // A background command may change its type or size meanwhile.
    Some(Fingerprint::of(&[&read_regular(path, FILE_MAX).ok()?]))
}

/// Returns the text of a result, for comparison: without the names of the file that holds a long
/// output and of a background command, which are new each time.
fn comparable_text(done: &CompletedCall<'_>) -> String {
    let Block::ToolResult { content, .. } = done.result else { return String::new() };
    let text = |block: &Block| match block.as_text() {
        Some(text) => text.to_owned(),
        None => serde_json::to_string(block).unwrap_or_default(),
    };
    let text = content.iter().map(text).collect::<Vec<_>>().join("\n");
    let names = ["output_file", "backgroundTaskId"].map(|field| done.detail[field].as_str());
    names.into_iter().flatten().fold(text, |text, name| text.replace(name, ""))
}
