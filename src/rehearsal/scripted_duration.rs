//! Parses durations in scenario files: `"1m 30s"`.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScriptedDuration(pub(super) Duration);

impl ScriptedDuration {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        humantime::parse_duration(text)
            .map(Self)
            .map_err(|error| format!("`{text}` is no time span: {error}"))
    }
}

impl<'de> Deserialize<'de> for ScriptedDuration {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(source)?).map_err(D::Error::custom)
    }
}

/// Deserializes a field of type `Duration`.
pub(super) fn duration<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
    ScriptedDuration::deserialize(source).map(|span| span.0)
}
