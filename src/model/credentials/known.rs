//! What a run knows to be secret.

use std::sync::{Arc, PoisonError, RwLock};

use super::secret::Secret;

/// A shorter text is no secret, and would be found inside ordinary words, in bytes.
const SHORTEST: usize = 8;

/// The secrets of a run, shared by those who come by them and those who keep them out of what is
/// printed and stored. It grows: a helper prints a key, and a login is renewed, while a run goes
/// on. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct KnownSecrets(Arc<RwLock<Vec<Secret>>>);

impl KnownSecrets {
    /// Starts with what is known before anything is sent.
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let known = Self::default();
        for secret in secrets {
            known.learn(&Secret::new(secret.as_ref()));
        }
        known
    }

    /// From now on this is secret, too.
    pub fn learn(&self, secret: &Secret) {
        let length = |secret: &Secret| secret.reveal().len();
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if length(secret) >= SHORTEST && !all.contains(secret) {
            // The longest first: one may begin with another.
            let at = all.partition_point(|known| length(known) >= length(secret));
            all.insert(at, secret.clone());
        }
    }

    /// How many there are. They never become fewer.
    pub fn count(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// All of them as they are, for those who look for them in other forms.
    pub fn revealed(&self) -> Vec<String> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|secret| secret.reveal().to_owned()).collect()
    }

    /// `text` with `instead` in the place of each secret.
    pub fn hide(&self, text: &str, instead: &str) -> String {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(Secret::reveal).fold(text.to_owned(), |text, secret| {
            if text.contains(secret) { text.replace(secret, instead) } else { text }
        })
    }
}
