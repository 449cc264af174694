//! How many tokens text will be, by the look of it.
//!
//! Prose and code have three to four bytes in a token; digits, hashes, base64 and paths have
//! fewer than two. What a service counts corrects the sum later, but what a tool just returned
//! nobody has counted yet, so it is weighed by its letters: a run of letters, of digits or of
//! signs is cut about where tokenizers cut it. Compared with three of them over the kinds of text
//! that tools return, the result is never more than a few per cent too low.

/// A run of one kind of letters, which tokenizers do not cut but for its length.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CharacterClass {
    Lower,
    Upper,
    Digit,
    Space,
    LineEnd,
    Sign,
    /// Beyond ASCII: each letter for itself.
    NonAscii,
}

/// Letters in a token, at the most, by kind: as tokenizers cut words and numbers.
const WORD: u64 = 8;
const CAPITALS: u64 = 2;
const DIGITS: u64 = 3;
const SIGNS: u64 = 3;
/// Thousandths of a token.
const TOKEN: u64 = 1_000;
/// White space is often part of the next token.
const BLANK: u64 = 700;
/// The weight of a token, in bytes of ordinary text; a tenth more than
/// [`Density::USUAL`](super::Density::USUAL) makes of it.
const WEIGHT_OF_TEN: u64 = 33;

/// No text weighs more than so many times its bytes: a token covers at least one.
const WEIGHT_PER_BYTE_MAX: u64 = 3;

/// As many bytes of ordinary text as have the tokens of `text`, and at least its own bytes.
pub(super) fn weight(text: &str) -> u64 {
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    let weight = millitokens(text).saturating_mul(WEIGHT_OF_TEN) / (10 * TOKEN);
    weight.clamp(bytes, bytes.saturating_mul(WEIGHT_PER_BYTE_MAX))
}

/// Thousandths of tokens.
fn millitokens(text: &str) -> u64 {
    let (mut sum, mut before, mut run) = (0_u64, CharacterClass::LineEnd, 0_u64);
    // What the run before the present one was: a capital begins the word that follows it.
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

/// What a run costs that is followed by `next`.
fn cost(kind: CharacterClass, run: u64, capital: bool, next: CharacterClass) -> u64 {
    match kind {
        _ if run == 0 => 0,
        // The capital was paid for as the token that both are.
        CharacterClass::Lower if capital => ((run + 1).div_ceil(WORD) - 1) * TOKEN,
        CharacterClass::Lower => run.div_ceil(WORD) * TOKEN,
        CharacterClass::Upper => run.div_ceil(CAPITALS) * TOKEN,
        CharacterClass::Digit => run.div_ceil(DIGITS) * TOKEN,
        CharacterClass::Sign => run.div_ceil(SIGNS) * TOKEN,
        CharacterClass::Space if run == 1 && matches!(next, CharacterClass::Lower | CharacterClass::Upper | CharacterClass::NonAscii) => 0,
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
