//! The secret values that this run uses.

use std::fmt::{self, Write};
use std::sync::{Arc, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use parking_lot::RwLock;

use super::distinctive::is_distinctive;
use super::spellings::{json_escaped, spellings};

/// Minimum length of a base64 part, in bytes. Shorter parts would match by chance.
const SHORTEST_BASE64: usize = 12;

/// Minimum length of a value that is found in hexadecimal, in bytes.
const SHORTEST_HEX: usize = 8;

/// Length of the parts of base64 that are also found by themselves, in bytes: programs put line
/// feeds into long base64. A part begins at every half of that length.
const BASE64_PART: usize = 24;

/// Maximum nesting of JSON strings inside JSON strings that is covered.
const NESTING: usize = 3;

/// The secret values of a run, shared between the code that obtains them and the code that redacts
/// them. It grows during the run: a helper prints a key, or a login is renewed. Clones share it.
#[derive(Clone, Default)]
pub struct KnownSecrets(Arc<RwLock<KnownValues>>);

#[derive(Default)]
struct KnownValues {
    values: Vec<String>,
    /// Built when it is first needed: a start adds several values.
    lookup: OnceLock<Arc<ValueLookup>>,
}

impl KnownSecrets {
    /// Creates the set with the secrets that are known at the start.
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let mut known = KnownValues::default();
        for secret in secrets {
            known.add(secret.as_ref());
        }
        Self(Arc::new(RwLock::new(known)))
    }

    /// Adds a secret, unless it is too similar to ordinary text. Surrounding whitespace is removed.
    pub fn add(&self, secret: &str) {
        self.0.write().add(secret);
    }

    /// The number of secrets, which never decreases.
    pub fn count(&self) -> usize {
        self.0.read().values.len()
    }

    /// The plain values, for components that keep a set of their own.
    pub fn plain_values(&self) -> Vec<String> {
        self.0.read().values.clone()
    }

    /// The current matcher for all values.
    pub(super) fn lookup(&self) -> Arc<ValueLookup> {
        let known = self.0.read();
        Arc::clone(known.lookup.get_or_init(|| Arc::new(ValueLookup::of(&known.values))))
    }
}

impl KnownValues {
    fn add(&mut self, secret: &str) {
        let secret = secret.trim();
        if is_distinctive(secret) && !self.values.iter().any(|known| known == secret) {
            self.values.push(secret.to_owned());
            self.lookup = OnceLock::new();
        }
    }
}

impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KnownSecrets({})", self.count())
    }
}

/// A matcher for all values in every encoding in which they may occur.
#[derive(Debug, Default)]
pub(super) struct ValueLookup {
    /// Sorted, without duplicates.
    encodings: Vec<Vec<u8>>,
    /// The length of the longest encoding.
    longest: usize,
    /// For each pair of bytes, true if an encoding begins with it. Most positions are decided by
    /// this alone; otherwise a long secret would delay all output.
    beginnings: Vec<bool>,
    finder: Option<AhoCorasick>,
}

impl ValueLookup {
    fn of(values: &[String]) -> Self {
        let mut encodings: Vec<Vec<u8>> =
            values.iter().flat_map(|value| encodings_of(value)).collect();
        encodings.sort_unstable();
        encodings.dedup();
        let longest = encodings.iter().map(Vec::len).max().unwrap_or_default();
        let mut beginnings = vec![false; 1 << u16::BITS];
        for pair in encodings.iter().filter_map(|encoding| encoding.first_chunk()) {
            beginnings[usize::from(u16::from_be_bytes(*pair))] = true;
        }
        // The default kind takes longer to build, which delayed a run with 30 secrets by 25 ms, and
        // searches 60 MB of text no faster.
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&encodings);
        // Building fails only for gigabytes of secrets.
        let finder = finder.ok().filter(|_| !encodings.is_empty());
        Self { encodings, longest, beginnings, finder }
    }

    /// The range of the first secret in `data` at or after `from`.
    pub(super) fn find(&self, data: &[u8], from: usize) -> Option<(usize, usize)> {
        let finder = self.finder.as_ref()?;
        let found = finder.find(&data[from..])?;
        Some((from + found.start(), from + found.end()))
    }

    /// True if a longer match could begin at `start` if more text followed.
    pub(super) fn could_grow(&self, data: &[u8], start: usize) -> bool {
        let rest = &data[start..];
        let is_beginning = |pair: &[u8; 2]| {
            let index = usize::from(u16::from_be_bytes(*pair));
            self.beginnings.get(index) == Some(&true)
        };
        if rest.first_chunk().is_some_and(|pair| !is_beginning(pair)) {
            return false;
        }
        // Encodings that begin with `rest` are adjacent, and one that equals it comes first.
        let first = self.encodings.partition_point(|encoding| encoding.as_slice() < rest);
        let mut next = self.encodings[first..].iter().take(2);
        next.any(|encoding| encoding.len() > rest.len() && encoding.starts_with(rest))
    }

    /// The first position at or after `from` where the end of `data` could be the beginning of a
    /// secret.
    pub(super) fn partial_match(&self, data: &[u8], from: usize) -> Option<usize> {
        let first = data.len().saturating_sub(self.longest.saturating_sub(1)).max(from);
        (first..data.len()).find(|&start| self.could_grow(data, start))
    }
}

/// The encodings of a value: plain, escaped, percent-encoded, in hexadecimal, and inside base64.
/// `AUTHORIZATION: basic` headers contain a token after a user name.
fn encodings_of(value: &str) -> Vec<Vec<u8>> {
    let mut forms = vec![value.as_bytes().to_vec()];
    for kept in KEPT_IN_ADDRESSES {
        let encoded = percent_encoded(value, kept);
        forms.push(lower_digits(&encoded).into_bytes());
        forms.push(encoded.replace("%20", "+").into_bytes());
        forms.push(encoded.into_bytes());
    }
    let mut form = value.to_owned();
    for _depth in 0..NESTING {
        form = json_escaped(&form);
        forms.push(form.clone().into_bytes());
    }
    forms.extend(spellings(value).into_iter().map(String::into_bytes));
    if value.len() >= SHORTEST_HEX {
        // PostgreSQL and xxd -p, od, openssl.
        let [joined, blanks, colons] = ["", " ", ":"].map(|gap| hex_of(value, gap));
        let upper = [&joined, &colons].map(|digits| digits.to_ascii_uppercase());
        forms.extend(upper.into_iter().chain([joined, blanks, colons]).map(String::into_bytes));
    }
    for encoded in (0..3).filter_map(|offset| within_base64(value, offset)) {
        let ends = (BASE64_PART..encoded.len()).step_by(BASE64_PART / 2).chain([encoded.len()]);
        let parts = ends.filter_map(|end| encoded.get(end.checked_sub(BASE64_PART)?..end));
        forms.extend(parts.map(<[u8]>::to_vec));
        forms.push(encoded.iter().map(|byte| url_safe(*byte)).collect());
        forms.push(encoded);
    }
    forms
}

/// The bytes of a text in hexadecimal, with `gap` between them.
fn hex_of(text: &str, gap: &str) -> String {
    let bytes = text.bytes().map(|byte| format!("{byte:02x}"));
    bytes.collect::<Vec<_>>().join(gap)
}

/// Converts a character of standard base64 to URL-safe base64.
fn url_safe(byte: u8) -> u8 {
    match byte {
        b'+' => b'-',
        b'/' => b'_',
        other => other,
    }
}

/// The characters that programs do not percent-encode, besides letters and digits: most keep
/// `-_.~`, some also keep characters that are allowed in a path or in a whole address.
const KEPT_IN_ADDRESSES: [&str; 5] = ["-_.~", "-_.", "-_.~/", "-_.~!'()*", "-_.~!'()*;/?:@&=+$,#"];

fn percent_encoded(text: &str, kept: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // A string accepts every write.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Changes the hexadecimal digits of percent-encoded text to lower case.
fn lower_digits(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at(part.len().min(2));
        text.extend(["%", &digits.to_ascii_lowercase(), rest]);
    }
    text
}

/// The characters that always occur in the base64 of a text with `value` at an offset of `offset`
/// modulo three.
fn within_base64(value: &str, offset: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; offset];
    bytes.extend_from_slice(value.as_bytes());
    let text = STANDARD_NO_PAD.encode(&bytes);
    // The first characters also encode preceding bytes, the last one following bytes.
    let first = (offset * 8).div_ceil(6);
    let last = bytes.len() * 8 / 6;
    let sure = text.as_bytes().get(first..last)?;
    (sure.len() >= SHORTEST_BASE64).then(|| sure.to_vec())
}
