//! The contract and the first prompt that a session was started with.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::text::{hex, shortened_line};

use super::redact::Redaction;

/// The maximum length of a title made from a prompt, in characters. A longer prompt is cut.
const BEGINNING_CHARS: usize = 60;

/// The limits, acceptance checks and rules of a session, as stored in its journal. The settings
/// module defines their meaning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Contract {
    /// The version of the terms.
    pub version: u32,
    /// The value of each term by name. `null`: the session has no such limit or rule.
    pub terms: Map<String, Value>,
    /// The terms that held a secret, which the journal stores without it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<String>,
    /// The names of the flags without a setting that are not among the terms: a resumed session has
    /// them only if they are given again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// True if `--settings` has hooks that decide on tool calls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_guards: bool,
    /// The working directory of the process that recorded it. `None`: not recorded yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

impl Contract {
    /// The contract of a process in `folder` with secrets removed, as it may be written to disk.
    pub(super) fn recorded_in(&self, folder: &str, redaction: &Redaction) -> Self {
        let mut contract = Self { folder: Some(folder.to_owned()), ..self.clone() };
        for (name, value) in &mut contract.terms {
            if redaction.mask_value(value) {
                contract.redacted.push(name.clone());
            }
        }
        contract
    }
}

/// The first prompt of a session: a hash to recognise it, and a title.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstPrompt {
    /// In hexadecimal digits.
    pub sha256: String,
    /// Its first words, on one line.
    pub beginning: String,
}

impl FirstPrompt {
    /// Describes a prompt. Surrounding white space is ignored.
    pub fn of(prompt: &str) -> Self {
        let prompt = prompt.trim();
        let sha256 = hex(&Sha256::digest(prompt.as_bytes()));
        Self { sha256, beginning: prompt_title(prompt) }
    }
}

/// Returns the first words of a text, on one line.
pub fn prompt_title(text: &str) -> String {
    shortened_line(text, BEGINNING_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_prompt_is_one_short_line() {
        assert_eq!(prompt_title("Fix\n  it."), "Fix it.");
        let long = "word ".repeat(100);
        let short = prompt_title(&long);
        assert!(short.ends_with("...") && short.chars().count() == BEGINNING_CHARS + 3, "{short}");
        assert_eq!(FirstPrompt::of(" a\n"), FirstPrompt::of("a"));
        assert_ne!(FirstPrompt::of("a b").sha256, FirstPrompt::of("a  b").sha256);
    }
}
