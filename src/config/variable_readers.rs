//! Reads the texts of variables as the JSON of settings.

use serde_json::{Value, json};

use super::kinds::{Retries, Span, ThinkingTokens, UnattendedRetry};
use super::memory_size::MemorySize;
use super::tool_search::ToolSearch;
use super::values::{self, InvalidValue};
use crate::types::Effort;

type Read = Result<Option<Value>, InvalidValue>;

#[expect(clippy::unnecessary_wraps, reason = "the type of all readers")]
pub(super) fn text(text: &str) -> Read {
    Ok(Some(text.into()))
}

/// Reads a list of names, separated by commas.
#[expect(clippy::unnecessary_wraps, reason = "the type of all readers")]
pub(super) fn names(text: &str) -> Read {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    Ok(Some(names.collect::<Vec<_>>().into()))
}

/// Reads a number that cannot be 0: 0 leaves the default.
fn unless_zero(text: &str, read: fn(&str) -> Read) -> Read {
    if values::is_zero(text) { Ok(None) } else { read(text) }
}

/// Reads a whole number; larger ones than `most` become `most`.
fn at_most(text: &str, most: u8) -> Result<u8, InvalidValue> {
    let number = values::whole(text).ok_or("must be a whole number")?;
    Ok(u8::try_from(number).unwrap_or(u8::MAX).min(most))
}

pub(super) fn count(text: &str) -> Read {
    values::count(text).map(|count| Some(json!(count)))
}

/// Reads a number of characters.
pub(super) fn length(text: &str) -> Read {
    unless_zero(text, count)
}

/// Reads a number of tokens, as a flag does: `32k`. A number that is too large, which programs
/// write for no limit, becomes the largest.
pub(super) fn tokens(text: &str) -> Read {
    unless_zero(text, |text| {
        values::tokens(text)
            .or_else(|why| values::count(text).map_err(|_| why))
            .map(|count| Some(json!(count)))
    })
}

pub(super) fn memory(text: &str) -> Read {
    MemorySize::parse(text).map(|size| Some(json!(size)))
}

pub(super) fn millis(text: &str) -> Read {
    unless_zero(text, |text| values::millis(text).map(|time| Some(json!(Span(time)))))
}

/// Reads a longest wait: 0 means no limit.
pub(super) fn longest_wait(text: &str) -> Read {
    let wait = values::millis_or_none(text)?;
    Ok(Some(json!(Span(if wait.is_zero() { values::LONGEST } else { wait }))))
}

pub(super) fn retries(text: &str) -> Read {
    at_most(text, Retries::MOST).map(|retries| Some(json!(Retries(retries))))
}

/// Reads a number of retries as the number of tries, which includes the first one.
pub(super) fn tries(text: &str) -> Read {
    at_most(text, u8::MAX - 1).map(|retries| Some(json!(retries + 1)))
}

/// Reads a percentage: 0 leaves the default, and more than 100 counts as 100.
pub(super) fn per_cent(text: &str) -> Read {
    unless_zero(text, |text| {
        let is_more = values::whole(text).is_some_and(|part| part > 100);
        values::per_cent(if is_more { "100" } else { text }).map(|part| Some(json!(part)))
    })
}

/// Reads a budget for thinking, raised to the smallest one that the service takes.
pub(super) fn thinking(text: &str) -> Read {
    let tokens = values::whole(text).ok_or("must be a whole number of tokens")?;
    let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
    let tokens = if tokens == 0 { 0 } else { tokens.max(ThinkingTokens::LEAST) };
    Ok(Some(json!(ThinkingTokens(tokens))))
}

pub(super) fn effort(text: &str) -> Read {
    match text.trim() {
        "auto" | "unset" => Ok(None),
        name => Effort::parse(name)
            .map(|level| Some(json!(level)))
            .ok_or_else(|| format!("is none of {}, auto, unset", Effort::names()).into()),
    }
}

pub(super) fn tool_search(text: &str) -> Read {
    ToolSearch::parse(text).map(|mode| Some(json!(mode)))
}

/// Reads a negated setting: a yes switches the setting off; a no leaves it as it is.
pub(super) fn no(text: &str) -> Read {
    Ok(values::yes_or_no(text)?.then_some(Value::Bool(false)))
}

pub(super) fn unattended(text: &str) -> Read {
    let wanted = match values::yes_or_no(text) {
        Ok(true) => UnattendedRetry::On,
        Ok(false) => UnattendedRetry::Off,
        Err(_) if text.eq_ignore_ascii_case("all") => UnattendedRetry::All,
        Err(_) => return Err("is none of 1, true, yes, on, all, 0, false, no, off".into()),
    };
    Ok(Some(json!(wanted)))
}
