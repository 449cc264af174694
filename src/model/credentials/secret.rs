//! A secret that is never displayed.

use std::fmt;

use reqwest::header::HeaderValue;

use crate::secrets::{REDACTED, is_distinctive};

/// A key or token, displayed as [`REDACTED`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Creates a secret without surrounding whitespace, quotation marks and `Bearer`, since secrets
    /// come from files and command output: `jq` prints quotation marks, and Docker passes them on.
    pub fn new(text: &str) -> Self {
        // Files and programs may put a byte order mark before the secret.
        let is_padding = |letter: char| letter.is_whitespace() || "\u{feff}\"'".contains(letter);
        let text = text.trim_matches(is_padding);
        Self(text.strip_prefix("Bearer ").unwrap_or(text).trim_start().to_owned())
    }

    /// Returns the secret itself, for sending, storing or redacting it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Replaces every occurrence of the secret in `text`, if it is distinctive enough.
    pub fn redact_in(&self, text: &str) -> String {
        if is_distinctive(&self.0) { text.replace(&self.0, REDACTED) } else { text.to_owned() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the secret can be sent in a header.
    pub(super) fn fits_header(&self) -> bool {
        HeaderValue::from_str(&self.0).is_ok()
    }

    /// A header value that ends in the secret, or `None` if it cannot be sent in a header.
    pub(super) fn header(&self, scheme: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{scheme}{}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_editors_and_programs_add_are_not_part_of_a_secret() {
        for text in ["key-1", " key-1\r\n", "\u{feff}key-1\n", "\"key-1\"\n", "Bearer key-1"] {
            assert_eq!(Secret::new(text).reveal(), "key-1");
        }
    }
}
