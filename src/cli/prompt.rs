//! The prompt: from the argument, from standard input, or from both.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::json;
use crate::text::counted;
use crate::tools::{NUL_SIGN, is_binary};

use super::settings::PromptSource;
use super::stdin::{Pieces, ReadPlan, StdinMode};
use super::timestamps::format_duration;
use super::usage::UsageError;

/// An input in messages.
#[derive(Clone, Copy, Debug)]
pub struct InputLabel<'a> {
    pub name: &'a str,
    /// Advice if it cannot be read, or stays silent.
    pub instead: &'static str,
    /// Advice if it is too large.
    pub if_large: &'static str,
}

/// Standard input with the prompt.
const STDIN: InputLabel<'static> = InputLabel {
    name: "standard input",
    instead: "redirect it from a file or /dev/null",
    if_large: "put it in a file and name the file in the prompt",
};

/// Maximum size of standard input, in bytes.
pub const LARGEST: usize = 10 * 1024 * 1024;

/// The prompt, and the use of standard input.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct GatheredPrompt {
    /// Empty only when the source allows it.
    pub prompt: String,
    /// Reason that standard input was left unread although it may hold data.
    pub unused: Option<Unused>,
    /// Amount of standard input that was added to the argument, or that is the prompt of a resumed
    /// session, which needs no prompt.
    pub added: Option<AddedInput>,
    /// Position of the first byte of standard input that is not UTF-8.
    pub invalid: Option<String>,
    /// Position of its first NUL.
    pub nul: Option<String>,
}

impl GatheredPrompt {
    /// Returns the warnings of the run. `is_shared` returns true if a shell that runs outlast reads
    /// the same standard input.
    pub fn warnings(&self, is_shared: impl FnOnce() -> bool) -> Vec<String> {
        let invalid = self.invalid.as_ref().map(|place| {
            format!(
                "standard input is not valid UTF-8 at {place}: such bytes are read as U+FFFD; convert it, for \
                 example with iconv, if they matter"
            )
        });
        let nul = self.nul.as_ref().map(|place| {
            format!("standard input holds a NUL at {place}: each is read as {NUL_SIGN}")
        });
        let of_loop = self.added.filter(|_| is_shared()).map(|added| {
            format!(
                "{added}; the shell that runs outlast has the same standard input: in a loop such as \
                 `... | while read` it was the rest of the loop's input, which the loop does not see (--no-stdin \
                 or < /dev/null leaves it, --stdin says that this is meant)"
            )
        });
        [self.unused.map(Unused::warning), invalid, nul, of_loop].into_iter().flatten().collect()
    }
}

/// The amount of standard input that was added to the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedInput {
    pub lines: usize,
    pub bytes: usize,
    /// True if it is the whole prompt.
    pub is_all: bool,
}

impl AddedInput {
    fn of(input: &[u8], is_all: bool) -> Self {
        let lines = input.split_inclusive(|byte| *byte == b'\n').count();
        Self { lines, bytes: input.len(), is_all }
    }
}

impl fmt::Display for AddedInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lines, bytes, is_all } = *self;
        let (lines, counted_bytes) = (counted(lines, "line"), counted(bytes, "byte"));
        write!(f, "{lines}, {counted_bytes} of standard input ")?;
        f.write_str(if bytes == 1 { "was" } else { "were" })?;
        f.write_str(if is_all { " taken as the prompt" } else { " added to the prompt" })
    }
}

/// Reason that standard input was left unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unused {
    /// It is open, but sent no data within this time.
    Silent(Duration),
    /// It is a file that another process has partly read.
    InUse,
}

impl Unused {
    /// Returns the warning of the run.
    pub fn warning(self) -> String {
        match self {
            Self::Silent(waited) => format!(
                "standard input is open but brought nothing for {}, so it is left unread (--stdin \
                 waits for it, --no-stdin says that this is meant)",
                format_duration(waited)
            ),
            Self::InUse => "standard input is a file that another program has read in part, so \
                            the rest is left unread (--stdin reads it, --no-stdin says that this \
                            is meant)"
                .to_owned(),
        }
    }
}

/// Progress of the wait for standard input, at a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    pub so_far: Duration,
    /// Time that standard input may stay silent from now on.
    pub left: Duration,
}

/// Reads standard input, or another pipe, to its end: at most `most` bytes, and with no longer
/// silence than `silence`. `still_waiting` is called at every heartbeat of the wait.
///
/// # Errors
/// It cannot be read, is larger, or stays silent.
pub async fn read_to_end(
    (label, mut pieces): (InputLabel<'_>, Pieces),
    (silence, most): (Duration, usize),
    heartbeat: Duration,
    mut still_waiting: impl FnMut(Waited),
) -> Result<Vec<u8>, UsageError> {
    let mut input = Vec::new();
    let began = Instant::now();
    let mut wait = InputWait { label, heartbeat, began, most, still_waiting: &mut still_waiting };
    wait.rest(&mut pieces, &mut input, silence).await?;
    Ok(input)
}

/// Builds the prompt: the argument, followed by standard input. `still_waiting` is called at every
/// heartbeat of the wait.
///
/// # Errors
/// There is no prompt, or the text cannot be used as one.
pub async fn gather(
    source: &PromptSource,
    plan: ReadPlan,
    open: impl FnOnce() -> Pieces,
    heartbeat: Duration,
    mut still_waiting: impl FnMut(Waited),
) -> Result<GatheredPrompt, UsageError> {
    // A wrapper may give an empty argument, and the prompt in a pipe.
    let argument = source.argument.as_ref().filter(|argument| !argument.trim().is_empty());
    let mut input = Vec::new();
    let mut unused = None;
    let first = match plan {
        ReadPlan::Unavailable => return Err(unavailable(source)),
        ReadPlan::Leave => None,
        ReadPlan::LeaveInUse => {
            unused = Some(Unused::InUse);
            None
        }
        ReadPlan::ToEnd => Some(source.stdin_timeout),
        ReadPlan::IfWithin(grace) => Some(grace),
    };
    if let Some(first) = first {
        let mut pieces = open();
        let (label, began, most) = (STDIN, Instant::now(), LARGEST);
        let still_waiting = &mut still_waiting;
        let mut wait = InputWait { label, heartbeat, began, most, still_waiting };
        match wait.next(&mut pieces, first).await? {
            InputStep::Silence if plan == ReadPlan::ToEnd => {
                return Err(silent(STDIN, source.stdin_timeout));
            }
            InputStep::Silence => unused = Some(Unused::Silent(first)),
            InputStep::End => {}
            InputStep::Piece(piece) => {
                input = piece;
                wait.rest(&mut pieces, &mut input, source.stdin_timeout).await?;
            }
        }
    }
    let is_all = argument.is_none();
    let added = AddedInput::of(&input, is_all);
    let DecodedInput { text: input, invalid, nul } = decode(&input)?;
    if is_all && source.argument.is_some() && input.trim().is_empty() {
        return Err(UsageError::new(
            "the prompt argument is empty; say what to do, or leave it out and pipe the prompt in",
        ));
    }
    let is_added = (!is_all || source.may_be_empty) && !input.trim().is_empty();
    let added = is_added.then_some(added);
    let argument = argument.map(|text| text.trim_start_matches('\u{feff}'));
    let prompt = match (argument, input.trim().is_empty()) {
        (Some(argument), true) => argument.to_owned(),
        (Some(argument), false) => format!("{argument}\n{input}"),
        (None, false) => input,
        // A continued session may have no new prompt.
        (None, true) => String::new(),
    };
    if prompt.is_empty() && !source.may_be_empty {
        return Err(UsageError::new(
            "the prompt is empty: neither an argument nor standard input says anything; give the \
             task as one argument, or pipe it in",
        ));
    }
    Ok(GatheredPrompt { prompt, unused, added, invalid, nul })
}

enum InputStep {
    Piece(Vec<u8>),
    End,
    Silence,
}

/// A wait for standard input, or another pipe: named, bounded, and with heartbeats.
struct InputWait<'a, F: FnMut(Waited)> {
    label: InputLabel<'a>,
    heartbeat: Duration,
    began: Instant,
    /// The largest input, in bytes.
    most: usize,
    still_waiting: &'a mut F,
}

impl<F: FnMut(Waited)> InputWait<'_, F> {
    async fn next(
        &mut self,
        pieces: &mut Pieces,
        silence: Duration,
    ) -> Result<InputStep, UsageError> {
        let end = Instant::now() + silence;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match timeout(left.min(self.heartbeat), pieces.recv()).await {
                Ok(Some(Ok(piece))) => return Ok(InputStep::Piece(piece)),
                Ok(Some(Err(error))) => {
                    let InputLabel { name, instead, .. } = self.label;
                    return Err(UsageError::new(format!(
                        "{name} cannot be read: {error}; {instead}"
                    )));
                }
                Ok(None) => return Ok(InputStep::End),
                Err(_) if left <= self.heartbeat => return Ok(InputStep::Silence),
                Err(_) => (self.still_waiting)(Waited {
                    so_far: self.began.elapsed(),
                    left: end.saturating_duration_since(Instant::now()),
                }),
            }
        }
    }

    async fn rest(
        &mut self,
        pieces: &mut Pieces,
        input: &mut Vec<u8>,
        silence: Duration,
    ) -> Result<(), UsageError> {
        loop {
            if input.len() > self.most {
                let InputLabel { name, if_large, .. } = self.label;
                return Err(UsageError::new(format!(
                    "{name} is larger than {} MB; {if_large}",
                    self.most >> 20
                )));
            }
            match self.next(pieces, silence).await? {
                InputStep::Piece(piece) => input.extend(piece),
                InputStep::End => return Ok(()),
                InputStep::Silence => return Err(silent(self.label, silence)),
            }
        }
    }
}

fn unavailable(source: &PromptSource) -> UsageError {
    UsageError::new(match source.stdin {
        StdinMode::Refuse => {
            "there is no prompt, and --no-stdin leaves standard input alone; give the task as one \
             argument"
        }
        StdinMode::Auto | StdinMode::Insist => {
            "there is no prompt; give the task as one argument, or pipe it in"
        }
    })
}

fn silent(InputLabel { name, instead, .. }: InputLabel<'_>, limit: Duration) -> UsageError {
    UsageError::new(format!(
        "{name} stayed silent for {} and did not end; close it, {instead}, or raise --stdin-timeout",
        format_duration(limit)
    ))
}

/// Standard input as text.
struct DecodedInput {
    text: String,
    /// Position of the first byte that is not UTF-8.
    invalid: Option<String>,
    /// Position of the first NUL.
    nul: Option<String>,
}

/// Decodes standard input.
///
/// # Errors
/// The input is binary: it contains NULs, and more control characters than text does.
fn decode(bytes: &[u8]) -> Result<DecodedInput, UsageError> {
    let place = |at: usize, bytes: &[u8]| {
        let before = bytes.get(..at).unwrap_or_default();
        let line = before.split(|byte| *byte == b'\n').count();
        format!("line {line}, byte {}", at + 1)
    };
    let text = json::decode(bytes);
    let nul = text.bytes().position(|byte| byte == 0).map(|at| place(at, text.as_bytes()));
    if let Some(place) = nul.as_ref().filter(|_| is_binary(text.as_bytes())) {
        return Err(UsageError::new(format!(
            "standard input holds a NUL at {place}, and is binary; it must be text"
        )));
    }
    let is_damaged = text.contains(char::REPLACEMENT_CHARACTER);
    let invalid = str::from_utf8(bytes).err().filter(|_| is_damaged);
    let invalid = invalid.map(|error| place(error.valid_up_to(), bytes));
    Ok(DecodedInput { text: text.replace('\0', NUL_SIGN), invalid, nul })
}
