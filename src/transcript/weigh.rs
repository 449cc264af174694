//! How many tokens text will be, by the look of it.
//!
//! Prose and code have three to four bytes in a token; digits, hashes, base64 and paths have
//! fewer than two. What a service counts corrects the sum later, but what a tool just returned
//! nobody has counted yet, so it is weighed by its letters: a run of letters, of digits or of
//! signs is cut about where tokenizers cut it. Compared with three of them over the kinds of text
//! that tools return, the result is never more than a few per cent too low.

/// A run of one kind of letters, which tokenizers do not cut but for its length.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lower,
    Upper,
    Digit,
    Space,
    LineEnd,
    Sign,
    /// Beyond ASCII: each letter for itself.
    Foreign,
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
const HEAVIEST: u64 = 3;

/// As many bytes of ordinary text as have the tokens of `text`, and at least its own bytes.
pub(super) fn weight(text: &str) -> u64 {
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    let weight = thousandths(text).saturating_mul(WEIGHT_OF_TEN) / (10 * TOKEN);
    weight.clamp(bytes, bytes.saturating_mul(HEAVIEST))
}

/// Thousandths of tokens.
fn thousandths(text: &str) -> u64 {
    let (mut sum, mut before, mut run) = (0_u64, Kind::LineEnd, 0_u64);
    // What the run before the present one was: a capital begins the word that follows it.
    let mut capital = false;
    for letter in text.chars() {
        let kind = kind(letter);
        if kind == Kind::Foreign {
            sum = sum
                .saturating_add(cost(before, run, capital, kind))
                .saturating_add(foreign(letter));
            (before, run, capital) = (kind, 0, false);
        } else if kind == before {
            run += 1;
        } else {
            sum = sum.saturating_add(cost(before, run, capital, kind));
            capital = before == Kind::Upper && run == 1;
            (before, run) = (kind, 1);
        }
    }
    sum.saturating_add(cost(before, run, capital, Kind::LineEnd))
}

fn kind(letter: char) -> Kind {
    match letter {
        'a'..='z' => Kind::Lower,
        'A'..='Z' => Kind::Upper,
        '0'..='9' => Kind::Digit,
        ' ' => Kind::Space,
        '\t' | '\r' | '\n' => Kind::LineEnd,
        '\0'..='\x7f' => Kind::Sign,
        _ => Kind::Foreign,
    }
}

/// What a run costs that is followed by `next`.
fn cost(kind: Kind, run: u64, capital: bool, next: Kind) -> u64 {
    match kind {
        _ if run == 0 => 0,
        // The capital was paid for as the token that both are.
        Kind::Lower if capital => ((run + 1).div_ceil(WORD) - 1) * TOKEN,
        Kind::Lower => run.div_ceil(WORD) * TOKEN,
        Kind::Upper => run.div_ceil(CAPITALS) * TOKEN,
        Kind::Digit => run.div_ceil(DIGITS) * TOKEN,
        Kind::Sign => run.div_ceil(SIGNS) * TOKEN,
        Kind::Space if run == 1 && matches!(next, Kind::Lower | Kind::Upper | Kind::Foreign) => 0,
        Kind::Space | Kind::LineEnd => BLANK,
        Kind::Foreign => 0,
    }
}

fn foreign(letter: char) -> u64 {
    match letter.len_utf8() {
        2 => TOKEN / 2,
        3 => TOKEN,
        _ => TOKEN * 7 / 2,
    }
}
