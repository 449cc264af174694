//! Keeps secrets out of everything that is printed.

/// What is shown instead.
const HIDDEN: &str = "[hidden]";

/// A shorter text is no secret, and would be found inside ordinary words.
const SHORTEST: usize = 8;

/// How the keys of the best-known service begin.
const KEY_PREFIX: &str = "sk-ant-";

/// The secrets of a run.
#[derive(Clone, Debug, Default)]
pub struct Mask {
    secrets: Vec<String>,
}

impl Mask {
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let secrets = secrets
            .into_iter()
            .filter(|secret| secret.len() >= SHORTEST)
            .map(ToOwned::to_owned)
            .collect();
        Self { secrets }
    }

    /// The text without the secrets in it.
    pub fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            if text.contains(secret) {
                text = text.replace(secret, HIDDEN);
            }
        }
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
