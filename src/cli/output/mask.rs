//! Keeps secrets out of everything that is printed.

use crate::model::KnownSecrets;

/// What is shown instead.
const HIDDEN: &str = "[hidden]";

/// What follows such a beginning is no key when it is shorter.
const SHORTEST: usize = 8;

/// How the keys of the best-known service begin.
const KEY_PREFIX: &str = "sk-ant-";

/// The secrets of a run, those included that it comes by while it goes on.
#[derive(Clone, Debug, Default)]
pub struct Mask {
    secrets: KnownSecrets,
}

impl Mask {
    pub fn new(secrets: KnownSecrets) -> Self {
        Self { secrets }
    }

    /// The text without the secrets in it.
    pub fn hide(&self, text: &str) -> String {
        let text = self.secrets.hide(text, HIDDEN);
        if text.contains(KEY_PREFIX) { without_keys(&text) } else { text }
    }
}

/// Hides what looks like a key, whoever it belongs to.
fn without_keys(text: &str) -> String {
    let mut pieces = text.split(KEY_PREFIX);
    let mut hidden = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let part_of_key = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        let rest = piece.trim_start_matches(part_of_key);
        if piece.len() - rest.len() >= SHORTEST {
            hidden.push_str(HIDDEN);
            hidden.push_str(rest);
        } else {
            hidden.push_str(KEY_PREFIX);
            hidden.push_str(piece);
        }
    }
    hidden
}
