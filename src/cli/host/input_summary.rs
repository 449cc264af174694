//! Counts the lines of a host that had no effect, for a message at the end of its input.

use std::collections::BTreeMap;

use crate::cli::usage::UsageError;
use crate::host::HostFrame;

/// The type of messages that only keep a connection open.
const KEEP_ALIVE: &str = "keep_alive";

/// Maximum length of the name of a type in a message, in characters.
const TYPE_CHARS_MAX: usize = 40;

/// The kinds of the lines so far.
#[derive(Debug, Default)]
pub(super) struct InputSummary {
    /// True if there was a prompt or a request.
    has_task: bool,
    /// The number of lines that were ignored.
    ignored: usize,
    /// The types of these lines, each with the number of its lines.
    types: BTreeMap<String, usize>,
}

impl InputSummary {
    pub(super) fn record(&mut self, frame: &HostFrame) {
        match frame {
            HostFrame::User(_) | HostFrame::Control { .. } => self.has_task = true,
            HostFrame::Ignored(kind) if kind != KEEP_ALIVE => {
                self.ignored += 1;
                let kind = kind.chars().take(TYPE_CHARS_MAX).collect();
                *self.types.entry(kind).or_default() += 1;
            }
            HostFrame::Ignored(_) | HostFrame::Reply { .. } => {}
        }
    }

    /// Returns an error if the input had lines, but neither a prompt nor a request: it may be meant
    /// for another program, or be misspelt.
    pub(super) fn lost_task(&self) -> Option<UsageError> {
        let mut types: Vec<_> = self.types.iter().collect();
        types.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let types: Vec<&str> = types.iter().take(3).map(|(kind, _)| kind.as_str()).collect();
        (!self.has_task && self.ignored > 0).then(|| {
            UsageError::new(format!(
                "standard input had no prompt: {} of the types {} were ignored; a prompt is an object of \
                 the type \"user\"",
                if self.ignored == 1 { "1 line".to_owned() } else { format!("{} lines", self.ignored) },
                types.join(", ")
            ))
        })
    }
}
