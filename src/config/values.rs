//! Parsers for numbers, durations, money and lists in flags, variables and settings files.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::model::SHORTEST_PROBING;
use crate::recovery::Money;

/// The number of tokens that a price in settings is for.
const TOKENS_PER_PRICE: f64 = 1e6;

/// The longest duration in settings: ten years. Sums of such durations do not overflow.
pub const LONGEST: Duration = Duration::from_hours(24 * 3650);

/// The mistake in a value, as the end of a sentence that quotes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(Cow<'static, str>);

impl From<&'static str> for InvalidValue {
    fn from(what: &'static str) -> Self {
        Self(what.into())
    }
}

impl From<String> for InvalidValue {
    fn from(what: String) -> Self {
        Self(what.into())
    }
}

/// Parses a duration above zero: `90s`, `45m`, `1h30m`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, InvalidValue> {
    let text = text.trim();
    let parsed = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    match parsed {
        Some(duration) if duration.is_zero() => Err("must be longer than nothing".into()),
        Some(duration) if duration <= LONGEST => Ok(duration),
        Some(_) => Err("is longer than ten years".into()),
        None => Err("is not a duration; write it like 90s, 45m or 1h30m".into()),
    }
}

/// Parses the longest silence of a connection before it counts as lost: long enough for its probes.
pub fn dead_path(text: &str) -> Result<Duration, InvalidValue> {
    let time = duration(text)?;
    if time < SHORTEST_PROBING {
        return Err(format!("must be at least {}s", SHORTEST_PROBING.as_secs()).into());
    }
    Ok(time)
}

/// Parses a duration in whole milliseconds, as in `API_TIMEOUT_MS`. Programs write very large
/// numbers for no limit: they count as ten years.
pub fn millis(text: &str) -> Result<Duration, InvalidValue> {
    match whole(text) {
        Some(0) => Err("must be above 0".into()),
        Some(millis) => Ok(Duration::from_millis(millis).min(LONGEST)),
        None => Err("is not a number of milliseconds".into()),
    }
}

/// Parses a whole number, also in the spellings of other programs: `3_000_000`, `6e5`, `2.0`. A
/// number that is too large becomes the largest.
pub fn whole(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.strip_prefix('+').unwrap_or(text);
    // Excludes the names of numbers, such as `inf`.
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    let digits = digits.replace('_', "");
    if digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Some(digits.parse().unwrap_or(u64::MAX));
    }
    let number = digits.parse::<f64>().ok()?;
    let is_whole = number.fract() == 0.0 || number.is_infinite();
    is_whole.then(|| format!("{number:.0}").parse().unwrap_or(u64::MAX))
}

/// Returns true for a zero, which has a meaning of its own in variables of other programs.
pub(super) fn is_zero(text: &str) -> bool {
    whole(text) == Some(0)
}

/// Parses a duration in whole milliseconds, or 0.
pub fn millis_or_none(text: &str) -> Result<Duration, InvalidValue> {
    if is_zero(text) { Ok(Duration::ZERO) } else { millis(text) }
}

/// Parses an amount of US dollars above zero.
pub fn dollars(text: &str) -> Result<Money, InvalidValue> {
    let amount: f64 = text
        .trim()
        .trim_start_matches('$')
        .parse()
        .map_err(|_| "is not an amount of US dollars; write it like 0.50")?;
    match Money::from_dollars(amount) {
        Some(money) if money > Money::ZERO => Ok(money),
        Some(_) | None => Err("must be above 0 dollars and below 18 million".into()),
    }
}

/// Converts the price of a million tokens to the price of one. Zero is a price: a model may be
/// free.
pub fn price_of_one(dollars_per_million: f64) -> Result<Money, InvalidValue> {
    Money::from_dollars(dollars_per_million / TOKENS_PER_PRICE)
        .filter(|_| dollars_per_million < TOKENS_PER_PRICE)
        .ok_or_else(|| "is not a price in US dollars per million tokens".into())
}

/// Parses a count of tokens above zero: `8192`, `500k`, `1.5m`.
pub fn tokens(text: &str) -> Result<NonZeroU32, InvalidValue> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, unit) = match (text.strip_suffix('k'), text.strip_suffix('m')) {
        (Some(digits), _) => (digits, 1e3),
        (_, Some(digits)) => (digits, 1e6),
        (None, None) => (text.as_str(), 1.0),
    };
    let count = digits.trim().parse::<f64>().ok().map(|number| (number * unit).round());
    match count {
        Some(count) if (1.0..=f64::from(u32::MAX)).contains(&count) => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the range was checked in the arm's guard"
            )]
            let count = count as u32;
            NonZeroU32::new(count).ok_or_else(|| "must be above 0".into())
        }
        Some(_) => Err("must be above 0 tokens and below 4 billion".into()),
        None => Err("is not a count of tokens; write it like 8192, 500k or 1.5m".into()),
    }
}

/// Parses a yes or a no, in any spelling that is usual in variables.
///
/// # Errors
/// The text is neither.
pub fn yes_or_no(text: &str) -> Result<bool, InvalidValue> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("is none of 1, true, yes, on, 0, false, no, off".into()),
    }
}

/// Parses a percentage as a part of a whole.
pub fn per_cent(text: &str) -> Result<f64, InvalidValue> {
    match text.trim().trim_end_matches('%').parse::<f64>() {
        Ok(part) if part > 0.0 && part <= 100.0 => Ok(part / 100.0),
        Ok(_) | Err(_) => Err("must be a number above 0 and at most 100".into()),
    }
}

/// Parses a whole number, at least 1. A number that is too large, which programs write for no
/// limit, becomes the largest.
pub fn count(text: &str) -> Result<NonZeroU32, InvalidValue> {
    let count =
        whole(text).and_then(|count| NonZeroU32::new(u32::try_from(count).unwrap_or(u32::MAX)));
    count.ok_or_else(|| "must be a whole number, at least 1".into())
}

/// Parses a number of retries: 0 to 100.
pub fn retries(text: &str) -> Result<u8, InvalidValue> {
    match text.trim().parse::<u8>() {
        Ok(retries @ 0..=100) => Ok(retries),
        Ok(_) | Err(_) => Err("must be a whole number from 0 to 100".into()),
    }
}

/// Parses the time scale: the number of seconds of the run that pass in one real second.
pub fn time_scale(text: &str) -> Result<f64, InvalidValue> {
    match text.trim().parse::<f64>() {
        Ok(scale) if (0.001..=1e6).contains(&scale) => Ok(scale),
        Ok(_) | Err(_) => Err("must be a number from 0.001 to 1000000".into()),
    }
}

/// Splits a list at commas and spaces, but not inside parentheses: `Read, Bash(git log:*)` are two.
pub fn list<S: AsRef<str>>(values: &[S]) -> Vec<String> {
    let mut items = Vec::new();
    for value in values {
        let mut item = String::new();
        let mut depth = 0_u32;
        for letter in value.as_ref().chars() {
            match letter {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && (letter == ',' || letter.is_whitespace()) {
                items.push(std::mem::take(&mut item));
            } else {
                item.push(letter);
            }
        }
        items.push(item);
    }
    items.retain(|item| !item.trim().is_empty());
    items
}

/// Formats a duration for people: `2m10s`, `45s`, `3h05m`. The seconds are rounded up, so that
/// remaining time is never shown as nothing.
pub fn format_duration(duration: Duration) -> String {
    format_seconds(duration.as_secs() + u64::from(duration.subsec_nanos() > 0))
}

/// Formats elapsed time for people. The seconds are rounded down.
pub fn format_elapsed(duration: Duration) -> String {
    format_seconds(duration.as_secs())
}

/// Formats the time that something took: below ten seconds, with a tenth of a second.
pub fn format_took(duration: Duration) -> String {
    match duration.as_millis() {
        ..10_000 => format!("{}.{}s", duration.as_secs(), duration.subsec_millis() / 100),
        10_000.. => format_elapsed(duration),
    }
}

fn format_seconds(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (0, hours, minutes, _) => format!("{hours}h{minutes:02}m"),
        (days, hours, _, _) => format!("{days}d{hours:02}h"),
    }
}
