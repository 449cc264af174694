//! Durations in scenario files: `"1m 30s"`.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline, extend("format" = "duration"))]
pub(super) struct ScriptedDuration(
    #[serde(serialize_with = "serialize")]
    #[schemars(with = "String")]
    pub(super) Duration,
);

impl<'de> Deserialize<'de> for ScriptedDuration {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_str(DurationVisitor)
    }
}

struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = ScriptedDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time, as in \"1m 30s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ScriptedDuration, E> {
        humantime::parse_duration(text)
            .map(ScriptedDuration)
            .map_err(|error| E::custom(format!("`{text}` is not a time span: {error}")))
    }
}

/// Deserializes a field of type `Duration`.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
    ScriptedDuration::deserialize(source).map(|span| span.0)
}

/// Serializes a field of type `Duration`.
pub(super) fn serialize<S: Serializer>(span: &Duration, target: S) -> Result<S::Ok, S::Error> {
    target.collect_str(&humantime::format_duration(*span))
}
