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

pub(super) fn count(text: &str) -> Read {
    values::count(text).map(|count| Some(json!(count)))
}

/// Reads a number of tokens, as a flag does: `32k`. One that is too large, as programs write it for
/// no limit, becomes the largest.
pub(super) fn tokens(text: &str) -> Read {
    values::tokens(text)
        .or_else(|why| values::count(text).map_err(|_| why))
        .map(|count| Some(json!(count)))
}

pub(super) fn memory(text: &str) -> Read {
    MemorySize::parse(text).map(|size| Some(json!(size)))
}

pub(super) fn millis(text: &str) -> Read {
    values::millis(text).map(|time| Some(json!(Span(time))))
}

pub(super) fn retries(text: &str) -> Read {
    values::retries(text).map(|retries| Some(json!(Retries(retries))))
}

/// Reads a number of tries; 0 counts as 1, since there is a first try in any case.
pub(super) fn tries(text: &str) -> Read {
    values::retries(text).map(|retries| Some(json!(retries.max(1))))
}

pub(super) fn per_cent(text: &str) -> Read {
    values::per_cent(text).map(|part| Some(json!(part)))
}

pub(super) fn thinking(text: &str) -> Read {
    ThinkingTokens::parse(text).map(|tokens| Some(json!(tokens)))
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
