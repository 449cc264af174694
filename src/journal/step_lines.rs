//! The lines of one step of the state machine, which are valid only together.
//!
//! A process that is killed while it writes them leaves some of them. The reader drops those, so
//! that either both a reply and the decision about it are recorded, or neither.

use crate::recovery::Transition;

use super::Journal;
use super::entry::{JournalRecord, seal};
use super::recorded_prompt::RecordedPrompt;
use super::writer::Sync;

/// The lines of a step that is being written, as JSON objects.
#[derive(Debug, Default)]
pub(super) struct StepLines {
    objects: Vec<Vec<u8>>,
    /// The most urgent sync that one of them needs.
    sync: Sync,
}

impl StepLines {
    pub(super) fn add(&mut self, objects: Vec<Vec<u8>>, sync: Sync) {
        self.objects.extend(objects);
        self.sync = self.sync.max(sync);
    }

    /// The lines, with their numbers within the step if there are several.
    pub(super) fn sealed(self) -> (Vec<Vec<u8>>, Sync) {
        let of = self.objects.len();
        let lines = self.objects.into_iter().enumerate().map(|(index, mut object)| {
            if of > 1 {
                object.pop();
                object.extend_from_slice(format!(r#","step":[{},{of}]}}"#, index + 1).as_bytes());
            }
            seal(object)
        });
        (lines.collect(), self.sync)
    }
}

impl Journal {
    /// Returns the state of the prompt, folded from its records, including those that could not be
    /// written.
    pub fn recorded(&self) -> &RecordedPrompt {
        self.fold.recorded()
    }

    /// Begins a step of the state machine: the lines up to its transition are valid only together.
    pub fn begin_step(&mut self) {
        self.end_step();
        self.step = Some(StepLines::default());
    }

    /// Appends a step of the state machine, after its changes to the conversation.
    pub fn transition(&mut self, transition: &Transition) {
        self.record(&JournalRecord::Transition { transition: Box::new(*transition) }, Sync::Later);
        self.end_step();
    }

    /// Writes the lines of the step in one write.
    pub(super) fn end_step(&mut self) {
        if let Some(step) = self.step.take() {
            let (lines, sync) = step.sealed();
            self.write_lines(lines.concat(), sync);
        }
    }

    /// Appends JSON objects as lines: at once, or with the step that they belong to.
    pub(super) fn append_lines(&mut self, objects: Vec<Vec<u8>>, sync: Sync) {
        if let Some(step) = &mut self.step {
            step.add(objects, sync);
        } else if !objects.is_empty() {
            let lines: Vec<Vec<u8>> = objects.into_iter().map(seal).collect();
            self.write_lines(lines.concat(), sync);
        }
    }
}
