//! The conversation of a simulated run, as far as its size and its contents matter.

use outlast_core::recovery::{
    AvailableMitigations, CallPurpose, HistoryEdit, ReplyDisposition, Trim,
};

/// The contents of the context window, in tokens.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is so or not, whatever the others")]
pub(super) struct Conversation {
    /// Instructions, tools, the task.
    head: u32,
    /// The summary of the rounds that were compacted.
    summary: u32,
    /// Rounds that a summary could replace.
    old: u32,
    /// The last round, which is always kept whole.
    recent: u32,
    /// As much of the old rounds as folding would save.
    folds: u32,
    /// As much of the old rounds as the summarising request leaves out.
    left_out: u32,
    media: u32,
    /// Media that are too large for the service.
    pub(super) oversize: bool,
    /// Blocks that the service refuses.
    pub(super) poison: u8,
    /// Whether they can be repaired.
    pub(super) curable: bool,
    /// Parts of the added content that requests can omit, if no repair is possible.
    pub(super) suspects: u8,
    /// Whether requests without all of them are accepted.
    pub(super) is_among_suspects: bool,
    /// Whether thinking is asked for, and refused.
    pub(super) thinking: bool,
    /// Whether the prompt cache is marked, and the marks are refused.
    pub(super) cache_marks: bool,
    /// Counts every change, so that two requests are the same only if they are.
    pub(super) revision: u64,
    /// Size of the next summary, in tokens.
    pub(super) summary_size: u32,
}

impl Conversation {
    pub(super) fn new(head: u32) -> Self {
        Self {
            head,
            summary: 0,
            old: 0,
            recent: 0,
            folds: 0,
            left_out: 0,
            media: 0,
            oversize: false,
            poison: 0,
            curable: true,
            suspects: 0,
            is_among_suspects: false,
            thinking: false,
            cache_marks: false,
            revision: 0,
            summary_size: 1_500,
        }
    }

    /// The true size of a request, in tokens.
    pub(super) fn size(&self, purpose: CallPurpose) -> u32 {
        let whole = self.head + self.summary + self.old + self.recent + self.media;
        match purpose {
            CallPurpose::Reply => whole,
            CallPurpose::Summary(_) => self.head + self.summary + self.old - self.left_out,
        }
    }

    /// The mitigations that are available for a request.
    pub(super) fn remedies(&self, purpose: CallPurpose) -> AvailableMitigations {
        let rounds = match purpose {
            CallPurpose::Reply => self.old > 0,
            CallPurpose::Summary(_) => self.left_out < self.old,
        };
        AvailableMitigations {
            folds: self.folds > 0,
            rounds,
            media: self.media > 0,
            block: self.poison > 0 && self.curable,
            output: false,
            thinking: self.thinking && purpose == CallPurpose::Reply,
            cache_marks: self.cache_marks && !self.thinking,
            streaming: false,
            added: self.poison > 0 && self.suspects > 0 && purpose == CallPurpose::Reply,
        }
    }

    /// A round of tools is over: what was recent is old.
    pub(super) fn grow(&mut self, tokens: u32, folds: bool) {
        self.old += self.recent;
        self.recent = tokens;
        self.folds = if folds { self.old / 3 } else { self.folds.min(self.old) };
        self.revision += 1;
    }

    pub(super) fn show(&mut self, tokens: u32, oversize: bool) {
        self.media += tokens;
        self.oversize |= oversize;
    }

    /// Does to the conversation what a step says.
    ///
    /// # Panics
    /// If there is nothing to take out.
    pub(super) fn apply(&mut self, edit: HistoryEdit, purpose: Option<CallPurpose>) {
        match edit.reply {
            ReplyDisposition::Absent | ReplyDisposition::Drop => {}
            ReplyDisposition::Keep => {
                self.recent += 50;
                self.revision += 1;
            }
            ReplyDisposition::Summary => self.apply_summary(),
        }
        if let Some(trim) = edit.trim {
            self.remove_rejected(trim, purpose);
        }
        if edit.say.is_some() || edit.notice.is_some() {
            self.recent += 100;
            self.revision += 1;
        }
    }

    fn apply_summary(&mut self) {
        self.summary = self.summary_size;
        (self.old, self.folds, self.left_out) = (0, 0, 0);
        self.revision += 1;
    }

    fn remove_rejected(&mut self, trim: Trim, purpose: Option<CallPurpose>) {
        match trim {
            Trim::Folds => {
                assert!(self.folds > 0, "no folds are staged");
                self.old -= self.folds;
                self.folds = 0;
            }
            Trim::OldestRounds => {
                assert!(self.left_out < self.old, "there are no rounds to leave out");
                assert!(
                    matches!(purpose, Some(CallPurpose::Summary(_))),
                    "out of a reply's request"
                );
                self.left_out = (self.left_out + self.old / 4 + 1).min(self.old);
            }
            Trim::Media => {
                assert!(self.media > 0, "there are no media");
                self.media = 0;
                self.oversize = false;
            }
            Trim::ThinkingParameter => {
                assert!(self.thinking, "thinking was not asked for");
                self.thinking = false;
            }
            // The machine itself does without streaming.
            Trim::Streaming => {}
            Trim::CacheMarks => {
                assert!(self.cache_marks, "the cache was not marked");
                self.cache_marks = false;
            }
            Trim::Block => {
                assert!(self.poison > 0 && self.curable, "there is no block to repair");
                self.poison -= 1;
            }
            Trim::Added => {
                assert!(self.poison > 0 && self.suspects > 0, "there is no suspect content");
                self.suspects -= 1;
                if self.suspects == 0 && self.is_among_suspects {
                    self.poison = 0;
                }
            }
        }
        self.revision += 1;
    }

    /// A summarising request starts with all rounds in it.
    pub(super) fn begin_summary(&mut self) {
        self.left_out = 0;
    }
}
