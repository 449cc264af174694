//! Records of tool calls for the loop detector: fingerprints instead of text.

use serde::{Deserialize, Serialize};

/// A fingerprint of bytes (FNV-1a), which is stable across processes and versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The fingerprint of several pieces. Their boundaries matter.
    pub fn of(pieces: &[&[u8]]) -> Self {
        let mut hash = FNV_BASIS;
        for piece in pieces {
            let length = piece.len() as u64;
            for byte in length.to_le_bytes().iter().chain(*piece) {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
            }
        }
        Self(hash)
    }

    pub(super) fn with(self, other: Self) -> Self {
        Self::of(&[&self.0.to_le_bytes(), &other.0.to_le_bytes()])
    }
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// One tool call and its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ToolCallRecord {
    pub(super) tool: Fingerprint,
    /// The tool and its arguments.
    pub(super) call: Fingerprint,
    pub(super) result: Fingerprint,
    pub(super) effect: CallEffect,
}

/// The effect of a call. When several fit, the last one applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEffect {
    /// It may have changed something.
    Changed,
    /// It changes nothing, except perhaps the agent's own notes.
    ReadOnly,
    /// It wrote a file. `now` is the fingerprint of the new content.
    Edited { file: Fingerprint, now: Fingerprint },
    /// It returned an error.
    Failed,
    /// It was a declared wait or poll, failed or not: see [`is_wait`].
    Waited,
}

impl ToolCallRecord {
    /// Records a call. `arguments` must not contain prose for people, such as a command's
    /// description. Durations are removed from failures, so that two failures that differ only in
    /// them are equal.
    pub fn new(tool: &str, arguments: &[u8], result: &[u8], effect: CallEffect) -> Self {
        let result = if effect == CallEffect::Failed {
            Fingerprint::of(&[&without_durations(result)])
        } else {
            Fingerprint::of(&[result])
        };
        let tool = tool.as_bytes();
        Self {
            tool: Fingerprint::of(&[tool]),
            call: Fingerprint::of(&[tool, arguments]),
            result,
            effect,
        }
    }
}

/// Replaces numbers that a unit of time follows: `0.53s`, `12 ms`, `3 seconds`.
fn without_durations(text: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let in_word = at > 0 && text[at - 1].is_ascii_alphanumeric();
        let digit = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
        let number = if in_word || !text[at].is_ascii_digit() {
            0
        } else {
            text[at..].iter().take_while(digit).count()
        };
        let after = &text[at + number..];
        let gap = usize::from(number > 0 && after.starts_with(b" "));
        let unit = after[gap..].iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        if number > 0 && TIME_UNITS.contains(&&after[gap..gap + unit]) {
            kept.push(b'~');
            at += number + gap + unit;
        } else {
            let step = number.max(1);
            kept.extend_from_slice(&text[at..at + step]);
            at += step;
        }
    }
    kept
}

const TIME_UNITS: [&[u8]; 10] =
    [b"ns", b"us", b"ms", b"s", b"sec", b"secs", b"second", b"seconds", b"min", b"minutes"];

/// True if a call is a declared wait: of a tool for waiting, or of a command that sleeps, waits or
/// watches.
pub fn is_wait(tool: &str, command: Option<&str>) -> bool {
    let name = tool.to_ascii_lowercase();
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    WAITING_TOOLS.contains(&name.as_str())
        || words.into_iter().any(|word| ["wait", "poll", "sleep", "watch"].contains(&word))
        || command.is_some_and(|command| {
            command.split(['\n', ';', '&', '|', '(']).any(is_waiting_command)
        })
}

const WAITING_TOOLS: [&str; 4] = ["bashoutput", "taskoutput", "agentoutput", "monitor"];

/// True if a simple command waits.
fn is_waiting_command(command: &str) -> bool {
    let mut words = command.split_whitespace().skip_while(|word| {
        // Words that can stand before the name of a command.
        ["do", "then", "else", "time", "exec", "sudo", "nohup", "{"].contains(word)
            || word.contains('=')
    });
    let Some(program) = words.next() else { return false };
    if ["sleep", "wait", "until", "watch", "inotifywait"].contains(&program) {
        return true;
    }
    // Commands whose arguments are patterns or text to print.
    let text_programs =
        ["grep", "rg", "ag", "echo", "printf", "cat", "sed", "awk", "git", "find", "ls"];
    let waiting = ["wait", "watch", "--wait", "--watch", "wait-for"];
    !text_programs.contains(&program) && words.any(|word| waiting.contains(&word))
}
