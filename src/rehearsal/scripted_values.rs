//! Values of a scenario file whose range or form their type does not state.

use std::ops::RangeInclusive;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Any value, as JSON.
#[derive(Serialize)]
pub(super) struct JsonValue(pub(super) Value);

impl<'de> Deserialize<'de> for JsonValue {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        json(toml::Value::deserialize(source)?).map(Self)
    }
}

fn json<E: Error>(value: toml::Value) -> Result<Value, E> {
    Ok(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        // A number of JSON is finite.
        toml::Value::Float(number) if !number.is_finite() => {
            return Err(E::invalid_value(Unexpected::Float(number), &"a number of JSON"));
        }
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Datetime(date) => date.to_string().into(),
        toml::Value::Array(items) => items.into_iter().map(json).collect::<Result<_, _>>()?,
        toml::Value::Table(table) => {
            let fields = table.into_iter().map(|(name, value)| Ok((name, json(value)?)));
            fields.collect::<Result<_, _>>()?
        }
    })
}

/// Deserializes an HTTP status.
pub(super) fn status<'de, D: Deserializer<'de>>(source: D) -> Result<Option<u16>, D::Error> {
    within(source, 200..=599, "a whole number from 200 to 599").map(Some)
}

/// Deserializes an exit code.
pub(super) fn exit_code<'de, D: Deserializer<'de>>(source: D) -> Result<Option<i32>, D::Error> {
    within(source, 0..=255, "a whole number from 0 to 255").map(Some)
}

fn within<'de, D: Deserializer<'de>, T: TryFrom<i64>>(
    source: D,
    range: RangeInclusive<i64>,
    expected: &str,
) -> Result<T, D::Error> {
    let number = i64::deserialize(source)?;
    let converted = T::try_from(number).ok().filter(|_| range.contains(&number));
    converted.ok_or_else(|| D::Error::invalid_value(Unexpected::Signed(number), &expected))
}

/// Deserializes a number above zero, also one with a fraction.
pub(super) fn above_zero<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(source)?;
    if number.is_finite() && number > 0.0 {
        Ok(number)
    } else {
        Err(D::Error::invalid_value(Unexpected::Float(number), &"a number above 0"))
    }
}
