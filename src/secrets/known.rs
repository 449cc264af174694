//! The values that are secret in this run.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::distinctive::is_distinctive;

/// Shorter base64 of a part of a value would be found by chance, in bytes.
const SHORTEST_BASE64: usize = 12;

/// How deep JSON may lie within JSON strings and still be seen through.
const NESTING: usize = 3;

/// The secrets of a run, shared by those who come by them and those who keep them out of what is
/// printed and stored. It grows: a helper prints a key, and a login is renewed, while a run goes
/// on. Clones share it.
#[derive(Clone, Default)]
pub struct KnownSecrets(Arc<RwLock<KnownValues>>);

#[derive(Default)]
struct KnownValues {
    values: Vec<String>,
    lookup: Arc<ValueLookup>,
}

impl KnownSecrets {
    /// Starts with what is known before anything is sent.
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let mut known = KnownValues::default();
        for secret in secrets {
            known.add(secret.as_ref());
        }
        known.lookup = Arc::new(ValueLookup::of(&known.values));
        Self(Arc::new(RwLock::new(known)))
    }

    /// From now on this is secret, too, unless it cannot be told from ordinary text. Whitespace around it is no part of it.
    pub fn add(&self, secret: &str) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.add(secret) {
            known.lookup = Arc::new(ValueLookup::of(&known.values));
        }
    }

    /// How many there are. They never become fewer.
    pub fn count(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values.len()
    }

    /// All of them as they are, for those who keep a set of their own.
    pub fn plain_values(&self) -> Vec<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values.clone()
    }

    /// What is known now, to be looked for.
    pub(super) fn lookup(&self) -> Arc<ValueLookup> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).lookup)
    }
}

impl KnownValues {
    /// Whether it was news.
    fn add(&mut self, secret: &str) -> bool {
        let secret = secret.trim();
        let news = is_distinctive(secret) && !self.values.iter().any(|known| known == secret);
        if news {
            self.values.push(secret.to_owned());
        }
        news
    }
}

impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KnownSecrets({})", self.count())
    }
}

/// The values in all the forms in which they are found.
#[derive(Debug, Default)]
pub(super) struct ValueLookup {
    /// The longest first: one may begin with another.
    encodings: Vec<Vec<u8>>,
    finder: Option<AhoCorasick>,
}

impl ValueLookup {
    fn of(values: &[String]) -> Self {
        let mut encodings: Vec<Vec<u8>> = values.iter().flat_map(|value| encodings_of(value)).collect();
        encodings.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then(one.cmp(other)));
        encodings.dedup();
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&encodings);
        // It can only be refused for gigabytes of secrets.
        Self { finder: finder.ok().filter(|_| !encodings.is_empty()), encodings }
    }

    /// The first secret in `data` at or after `from`, as the range it takes up.
    pub(super) fn find(&self, data: &[u8], from: usize) -> Option<(usize, usize)> {
        let finder = self.finder.as_ref()?;
        let found = finder.find(&data[from..])?;
        Some((from + found.start(), from + found.end()))
    }

    /// Whether a longer form than the one found could begin at `start` if more text came.
    pub(super) fn could_grow(&self, data: &[u8], start: usize) -> bool {
        let rest = &data[start..];
        self.encodings.iter().any(|form| form.len() > rest.len() && form.starts_with(rest))
    }

    /// Where, at or after `from`, the end of `data` could be the beginning of a secret.
    pub(super) fn partial_match(&self, data: &[u8], from: usize) -> Option<usize> {
        let longest = self.encodings.first()?.len();
        let first = data.len().saturating_sub(longest - 1).max(from);
        (first..data.len()).find(|&start| self.could_grow(data, start))
    }
}

/// A value as it is, within JSON strings, in an address, and within base64: `AUTHORIZATION: basic`
/// headers hold a token after a user's name.
fn encodings_of(value: &str) -> Vec<Vec<u8>> {
    let mut forms = vec![value.as_bytes().to_vec(), percent_encoded(value).into_bytes()];
    let mut form = value.to_owned();
    for _depth in 0..NESTING {
        form = escaped(&form);
        forms.push(form.clone().into_bytes());
    }
    forms.extend((0..3).filter_map(|offset| within_base64(value, offset)));
    forms
}

fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// What is always there in the base64 of a text that holds `value` behind `offset` bytes more than
/// a multiple of three.
fn within_base64(value: &str, offset: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; offset];
    bytes.extend_from_slice(value.as_bytes());
    let text = STANDARD_NO_PAD.encode(&bytes);
    // The first characters hold bits of what comes before, the last one of what comes after.
    let first = (offset * 8).div_ceil(6);
    let last = bytes.len() * 8 / 6;
    let sure = text.as_bytes().get(first..last)?;
    (sure.len() >= SHORTEST_BASE64).then(|| sure.to_vec())
}
