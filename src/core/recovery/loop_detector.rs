//! The loop detector: finds repeated calls without new results.
//!
//! It compares fingerprints, not text. A repetition counts in full only when nothing changed in
//! between:
//!
//! ```text
//! since the last time ...                          this time counts
//! a file reached a new state                       not at all: counting restarts
//! another change was made for the first time       not at all, unless it failed
//! the model waited                                 a twentieth: that is polling
//! a compaction removed the result                  half, or a twentieth if a new result was seen
//! a new result was seen                            half
//! none of these                                    in full
//! ```
//!
//! At `soft` full repetitions the model gets a notice to step back; at `hard` the run is stuck.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::tool_call_record::{CallEffect, Fingerprint, ToolCallRecord};

/// The thresholds of the loop detector, in full repetitions of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LoopLimits {
    /// Repetitions at which the model gets a notice. At least 2: one occurrence is not a
    /// repetition. `u32::MAX`: never.
    pub soft: u32,
    /// Repetitions at which the run ends. Always more than `soft`, unless `soft` means never.
    pub hard: u32,
}

impl Default for LoopLimits {
    fn default() -> Self {
        Self { soft: 5, hard: 10 }
    }
}

impl LoopLimits {
    fn soft(self) -> u64 {
        u64::from(self.soft.max(2)) * FULL
    }

    /// True if the run ends without an earlier notice to the model.
    fn has_no_notice(self) -> bool {
        self.soft == u32::MAX
    }

    fn hard(self) -> u64 {
        let hard = u64::from(self.hard) * FULL;
        if self.has_no_notice() { hard.max(2 * FULL) } else { hard.max(self.soft() + FULL) }
    }
}

/// The verdict of the loop detector.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum LoopStatus {
    #[default]
    Fresh,
    /// A loop has begun. Reported once for each.
    Repeating,
    /// The loop continued after it was reported.
    Stuck,
}

/// The weight of a full repetition, in units of the smallest one.
const FULL: u64 = 40;
const HALF: u64 = FULL / 2;
const POLL: u64 = FULL / 20;

/// Maximum number of calls, failures and files that are watched for repetition at a time.
const WATCHED: usize = 48;
/// Loops that begin within this many batches of each other count as one.
const SAME_ONSET: u64 = 4;
/// Maximum number of calls, of results and of file states that are remembered.
const KNOWN: usize = 512;

/// Counts of progress so far, which reduce the weight of a repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ProgressCounts {
    /// Files that reached a new state.
    made: u64,
    /// Other changes that were not made before.
    changed: u64,
    /// Results that were not seen before.
    learned: u64,
    waited: u64,
    /// Compactions: a model may legitimately repeat calls whose results it has forgotten.
    compacted: u64,
}

/// A call, failure or file that may be repeating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RepetitionTrace {
    kind: RepetitionKind,
    key: Fingerprint,
    tool: Fingerprint,
    repetitions: u64,
    /// The batch of the last occurrence.
    batch: u64,
    /// The progress counts at that time.
    progress: ProgressCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepetitionKind {
    /// A repeated call with an unchanged result.
    Call,
    /// A repeated failure of a tool, with any arguments.
    Failure,
    /// A file that returns to an earlier state.
    Return,
}

/// The state of the loop detector. Its size is bounded, however long the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopDetector {
    batch: u64,
    progress: ProgressCounts,
    /// The most recent last.
    traces: VecDeque<RepetitionTrace>,
    calls: KnownFingerprints,
    results: KnownFingerprints,
    states: KnownFingerprints,
    /// The batch of the latest loop, or of its start.
    looped: Option<u64>,
}

impl LoopDetector {
    /// Records the tool calls of one reply, in the order in which they ran.
    pub fn observe(&mut self, batch: &[ToolCallRecord], limits: LoopLimits) -> LoopStatus {
        self.batch += 1;
        let mut status = LoopStatus::Fresh;
        for record in batch {
            let repetition = self.repetition_of(record);
            let (before, after) =
                repetition.map_or((0, 0), |(_, key)| self.take_trace_values(record, key));
            status = status.max(self.loop_status(before, after, limits));
            self.record_progress(record);
            if let Some((kind, key)) = repetition {
                let (tool, batch, progress) = (record.tool, self.batch, self.progress);
                let trace =
                    RepetitionTrace { kind, key, tool, repetitions: after, batch, progress };
                self.traces.push_back(trace);
            }
        }
        status
    }

    /// Records that a compaction removed the results of earlier calls.
    pub fn record_compaction(&mut self) {
        self.progress.compacted += 1;
    }

    /// The kind of repetition that a call may be part of, with its key.
    fn repetition_of(&self, record: &ToolCallRecord) -> Option<(RepetitionKind, Fingerprint)> {
        match record.effect {
            CallEffect::Changed | CallEffect::ReadOnly | CallEffect::Waited => {
                Some((RepetitionKind::Call, record.call.with(record.result)))
            }
            CallEffect::Failed => Some((RepetitionKind::Failure, record.tool.with(record.result))),
            CallEffect::Edited { file, now } => {
                self.states.contains(file.with(now)).then_some((RepetitionKind::Return, file))
            }
        }
    }

    /// Removes the trace of a call and returns its weight without and with the call.
    fn take_trace_values(&mut self, record: &ToolCallRecord, key: Fingerprint) -> (u64, u64) {
        let index = self.traces.iter().position(|trace| trace.key == key);
        let found = index.and_then(|index| self.traces.remove(index));
        if self.traces.len() == WATCHED {
            self.traces.pop_front();
        }
        let once = if record.effect == CallEffect::Waited { POLL } else { FULL };
        let Some(trace) = found.filter(|trace| !self.moved_on(trace)) else { return (0, once) };
        // Calls of one reply were made before the results of the others were known.
        let more =
            if trace.batch == self.batch { 0 } else { self.repetition_value(&trace, record) };
        (trace.repetitions, trace.repetitions + more)
    }

    /// True if so much has changed that a repetition is legitimate.
    fn moved_on(&self, trace: &RepetitionTrace) -> bool {
        let (then, now) = (trace.progress, self.progress);
        // A failure is over when its tool succeeds with something new: see `record_progress`.
        now.made > then.made || (trace.kind == RepetitionKind::Call && now.changed > then.changed)
    }

    /// The weight of one more repetition.
    fn repetition_value(&self, trace: &RepetitionTrace, record: &ToolCallRecord) -> u64 {
        let (then, now) = (trace.progress, self.progress);
        let waited = record.effect == CallEffect::Waited || now.waited > then.waited;
        let is_other_call =
            trace.kind == RepetitionKind::Failure && !self.calls.contains(record.call);
        let progressed = now.learned > then.learned || now.changed > then.changed;
        let forgotten = now.compacted > then.compacted;
        if trace.kind != RepetitionKind::Return && (waited || (forgotten && progressed)) {
            POLL
        } else if is_other_call || progressed || forgotten {
            HALF
        } else {
            FULL
        }
    }

    fn loop_status(&mut self, before: u64, after: u64, limits: LoopLimits) -> LoopStatus {
        if limits.has_no_notice() {
            return if after >= limits.hard() { LoopStatus::Stuck } else { LoopStatus::Fresh };
        }
        if after < limits.soft() {
            return LoopStatus::Fresh;
        }
        let is_reported = self.looped.is_some_and(|last| self.batch - last <= SAME_ONSET);
        self.looped = Some(self.batch);
        if before >= limits.soft() {
            return if after >= limits.hard() { LoopStatus::Stuck } else { LoopStatus::Fresh };
        }
        // The calls of one loop reach the limit one after the other: that is one onset.
        if is_reported { LoopStatus::Fresh } else { LoopStatus::Repeating }
    }

    /// Remembers a call, and updates the progress counts.
    fn record_progress(&mut self, record: &ToolCallRecord) {
        let new_call = self.calls.add(record.call);
        let new_result = self.results.add(record.result);
        let progress = &mut self.progress;
        match record.effect {
            CallEffect::Failed => return,
            CallEffect::Edited { file, now } => {
                progress.made += u64::from(self.states.add(file.with(now)));
            }
            CallEffect::Changed => progress.changed += u64::from(new_call),
            CallEffect::Waited => progress.waited += 1,
            CallEffect::ReadOnly => {}
        }
        progress.learned += u64::from(new_result);
        if new_call || new_result {
            self.traces
                .retain(|trace| trace.kind != RepetitionKind::Failure || trace.tool != record.tool);
        }
    }
}

/// The last [`KNOWN`] fingerprints that were seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct KnownFingerprints(VecDeque<Fingerprint>);

impl KnownFingerprints {
    fn contains(&self, fingerprint: Fingerprint) -> bool {
        self.0.contains(&fingerprint)
    }

    /// Adds a fingerprint. Returns true if it is new.
    fn add(&mut self, fingerprint: Fingerprint) -> bool {
        let index = self.0.iter().position(|known| *known == fingerprint);
        let old = index.and_then(|index| self.0.remove(index));
        if self.0.len() == KNOWN {
            self.0.pop_front();
        }
        self.0.push_back(fingerprint);
        old.is_none()
    }
}
