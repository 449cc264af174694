//! The prompt: from the argument, from standard input, or from both.

use std::io::{self, IsTerminal, Read};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::settings::PromptSource;
use super::usage::UsageError;
use super::wall::span;

/// How long piped data has to begin when there is a prompt without it.
pub const FIRST_BYTE: Duration = Duration::from_secs(1);

/// The most that standard input may hold, in bytes.
pub const LARGEST: usize = 10 * 1024 * 1024;

/// Standard input as it comes: pieces, then nothing.
pub type Pieces = mpsc::Receiver<io::Result<Vec<u8>>>;

/// What came of looking for a prompt.
#[derive(Debug, PartialEq, Eq)]
pub struct Gathered {
    /// Empty only when the source allows it.
    pub prompt: String,
    /// Standard input was open but silent, and is left unread.
    pub left_unread: bool,
}

/// Starts reading standard input on a thread of its own, so that nothing need wait for it. `None`
/// when it is a terminal: nobody sits there.
pub fn stdin() -> Option<Pieces> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return None;
    }
    let (send, pieces) = mpsc::channel(4);
    thread::spawn(move || {
        let mut stdin = stdin.lock();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let piece = match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => Ok(buffer.get(..read).unwrap_or_default().to_vec()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = piece.is_err();
            if send.blocking_send(piece).is_err() || failed {
                return;
            }
        }
    });
    Some(pieces)
}

/// Puts the prompt together (SPEC 19). An argument is never held up by an open standard input:
/// data is added when it begins within a second. `still_waiting` is told every so often how long
/// standard input has been waited for.
///
/// # Errors
/// There is no prompt, or it cannot be one.
pub async fn gather(
    source: &PromptSource,
    open: impl FnOnce() -> Option<Pieces>,
    heartbeat: Duration,
    mut still_waiting: impl FnMut(Duration),
) -> Result<Gathered, UsageError> {
    if let Some(argument) = &source.argument {
        check_argument(argument)?;
    }
    let needed = source.insists || (source.argument.is_none() && !source.may_be_empty);
    let mut input = Vec::new();
    let mut left_unread = false;
    match open() {
        None if needed => return Err(nobody(source)),
        None => {}
        Some(mut pieces) => {
            let first = if needed { source.patience } else { FIRST_BYTE };
            let mut wait = Wait { heartbeat, began: Instant::now(), tell: &mut still_waiting };
            match wait.next(&mut pieces, first).await? {
                Next::Silence if needed => return Err(silent(source.patience)),
                Next::Silence => left_unread = true,
                Next::End => {}
                Next::Piece(piece) => {
                    input = piece;
                    wait.rest(&mut pieces, &mut input, source.patience).await?;
                }
            }
        }
    }
    let input = text(input)?;
    let prompt = match (&source.argument, input.trim().is_empty()) {
        (Some(argument), true) => argument.clone(),
        (Some(argument), false) => format!("{argument}\n{input}"),
        (None, _) => input,
    };
    if prompt.trim().is_empty() && !source.may_be_empty {
        return Err(UsageError::new(
            "the prompt is empty: neither an argument nor standard input says anything; give the \
             task as one argument, or pipe it in",
        ));
    }
    Ok(Gathered { prompt, left_unread })
}

enum Next {
    Piece(Vec<u8>),
    End,
    Silence,
}

/// A wait for standard input: named, bounded, and with heartbeats.
struct Wait<'a, F: FnMut(Duration)> {
    heartbeat: Duration,
    began: Instant,
    tell: &'a mut F,
}

impl<F: FnMut(Duration)> Wait<'_, F> {
    async fn next(&mut self, pieces: &mut Pieces, patience: Duration) -> Result<Next, UsageError> {
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match timeout(left.min(self.heartbeat), pieces.recv()).await {
                Ok(Some(Ok(piece))) => return Ok(Next::Piece(piece)),
                Ok(Some(Err(error))) => {
                    return Err(UsageError::new(format!(
                        "standard input cannot be read: {error}; redirect it from a file or \
                         /dev/null"
                    )));
                }
                Ok(None) => return Ok(Next::End),
                Err(_) if left <= self.heartbeat => return Ok(Next::Silence),
                Err(_) => (self.tell)(self.began.elapsed()),
            }
        }
    }

    async fn rest(
        &mut self,
        pieces: &mut Pieces,
        input: &mut Vec<u8>,
        patience: Duration,
    ) -> Result<(), UsageError> {
        loop {
            if input.len() > LARGEST {
                return Err(UsageError::new(
                    "standard input is larger than 10 MB; put it in a file and name the file in \
                     the prompt",
                ));
            }
            match self.next(pieces, patience).await? {
                Next::Piece(piece) => input.extend(piece),
                Next::End => return Ok(()),
                Next::Silence => return Err(silent(patience)),
            }
        }
    }
}

fn check_argument(argument: &str) -> Result<(), UsageError> {
    if argument.trim().is_empty() {
        return Err(UsageError::new(
            "the prompt argument is empty; say what to do, or leave it out and pipe the prompt in",
        ));
    }
    Ok(())
}

fn nobody(source: &PromptSource) -> UsageError {
    UsageError::new(if source.insists {
        "standard input is a terminal, and nobody is asked there; pipe the prompt in"
    } else {
        "there is no prompt; give the task as one argument, or pipe it in"
    })
}

fn silent(patience: Duration) -> UsageError {
    UsageError::new(format!(
        "standard input stayed silent for {} and did not end; close it, or redirect it from a file \
         or /dev/null",
        span(patience)
    ))
}

/// Standard input as text.
fn text(bytes: Vec<u8>) -> Result<String, UsageError> {
    let place = |at: usize, bytes: &[u8]| {
        let before = bytes.get(..at).unwrap_or_default();
        let line = before.split(|byte| *byte == b'\n').count();
        format!("line {line}, byte {}", at + 1)
    };
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(UsageError::new(format!(
            "standard input holds a NUL at {}; it must be text",
            place(at, &bytes)
        )));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').map(ToOwned::to_owned).unwrap_or(text)),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            Err(UsageError::new(format!(
                "standard input is not valid UTF-8 at {}; convert it, for example with iconv",
                place(at, error.as_bytes())
            )))
        }
    }
}
