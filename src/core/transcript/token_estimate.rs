//! Estimates the tokens of a text from its characters.
//!
//! Prose and code have three to four bytes per token; digits, hashes, base64 and paths have fewer
//! than two. The service's token counts correct the sum later, but a new tool result has not been
//! counted yet. The text is split into runs of letters, digits and signs roughly where tokenizers
//! split it.
//! Compared with three tokenizers on typical tool output, the estimate is at most a few per cent
//! too low.

/// A class of characters. Tokenizers split a run of one class only by its length.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CharacterClass {
    Lower,
    Upper,
    Digit,
    Space,
    LineEnd,
    Sign,
    /// Non-ASCII: each character counts separately.
    NonAscii,
}

impl CharacterClass {
    fn begins_word(self) -> bool {
        matches!(self, Self::Lower | Self::Upper | Self::NonAscii)
    }
}

/// Maximum characters per token, by class.
const WORD: u64 = 8;
const CAPITALS: u64 = 2;
const DIGITS: u64 = 3;
const SIGNS: u64 = 3;
/// Thousandths of a token.
const TOKEN: u64 = 1_000;
/// White space, which is often part of the next token.
const BLANK: u64 = 700;
/// The weight of ten tokens, in bytes of ordinary text; a tenth more than
/// [`TokenDensity::USUAL`](super::TokenDensity::USUAL) assumes.
const BYTES_OF_TEN_TOKENS: u64 = 33;

/// Maximum weight per byte: a token covers at least one byte.
const PLAIN_BYTES_PER_BYTE_MAX: u64 = 3;

/// The bytes of ordinary text with as many tokens as `text`, at least its own length.
pub(super) fn plain_text_bytes(text: &str) -> u64 {
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    let plain_text_bytes = millitokens(text).saturating_mul(BYTES_OF_TEN_TOKENS) / (10 * TOKEN);
    plain_text_bytes.clamp(bytes, bytes.saturating_mul(PLAIN_BYTES_PER_BYTE_MAX))
}

/// Thousandths of tokens.
fn millitokens(text: &str) -> u64 {
    let (mut sum, mut before, mut run) = (0_u64, CharacterClass::LineEnd, 0_u64);
    // True if the previous run was a single capital, which begins the following word.
    let mut capital = false;
    for letter in text.chars() {
        let kind = character_class(letter);
        if kind == CharacterClass::NonAscii {
            sum = sum
                .saturating_add(cost(before, run, capital, kind))
                .saturating_add(non_ascii_cost(letter));
            (before, run, capital) = (kind, 0, false);
        } else if kind == before {
            run += 1;
        } else {
            sum = sum.saturating_add(cost(before, run, capital, kind));
            capital = before == CharacterClass::Upper && run == 1;
            (before, run) = (kind, 1);
        }
    }
    sum.saturating_add(cost(before, run, capital, CharacterClass::LineEnd))
}

fn character_class(letter: char) -> CharacterClass {
    match letter {
        'a'..='z' => CharacterClass::Lower,
        'A'..='Z' => CharacterClass::Upper,
        '0'..='9' => CharacterClass::Digit,
        ' ' => CharacterClass::Space,
        '\t' | '\r' | '\n' => CharacterClass::LineEnd,
        '\0'..='\x7f' => CharacterClass::Sign,
        _ => CharacterClass::NonAscii,
    }
}

/// The cost of a run that is followed by `next`.
fn cost(kind: CharacterClass, run: u64, capital: bool, next: CharacterClass) -> u64 {
    match kind {
        _ if run == 0 => 0,
        // The preceding capital was already counted as the first token of the word.
        CharacterClass::Lower if capital => ((run + 1).div_ceil(WORD) - 1) * TOKEN,
        CharacterClass::Lower => run.div_ceil(WORD) * TOKEN,
        CharacterClass::Upper => run.div_ceil(CAPITALS) * TOKEN,
        CharacterClass::Digit => run.div_ceil(DIGITS) * TOKEN,
        CharacterClass::Sign => run.div_ceil(SIGNS) * TOKEN,
        CharacterClass::Space if run == 1 && next.begins_word() => 0,
        CharacterClass::Space | CharacterClass::LineEnd => BLANK,
        CharacterClass::NonAscii => 0,
    }
}

fn non_ascii_cost(letter: char) -> u64 {
    match letter.len_utf8() {
        2 => TOKEN / 2,
        3 => TOKEN,
        _ => TOKEN * 7 / 2,
    }
}
