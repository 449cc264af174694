//! Reads the values of a checked file. They become JSON first: types are deserialized from JSON in
//! all of the program, and deserializing them from TOML as well would make it larger.

use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeFloat, DeInteger, DeString, DeTable, DeValue};

use super::check::FileMistake;

/// Reads the value of a key, or the default without the key.
pub(super) fn read<T: DeserializeOwned + Default>(
    table: &DeTable<'_>,
    key: &str,
) -> Result<T, FileMistake> {
    table.get(key).map_or_else(|| Ok(T::default()), read_value)
}

/// Reads a value. Mistakes that the check did not find are at its beginning.
pub(super) fn read_value<T: DeserializeOwned>(
    value: &Spanned<DeValue<'_>>,
) -> Result<T, FileMistake> {
    let start = value.span().start;
    serde_json::from_value(json(value)?).map_err(|error| (start, error.to_string()))
}

/// The items of a list. Without the key there are none.
pub(super) fn items<'a, 'i>(
    table: &'a DeTable<'i>,
    key: &str,
) -> impl Iterator<Item = &'a Spanned<DeValue<'i>>> {
    let list = table.get(key).and_then(|value| value.get_ref().as_array());
    list.into_iter().flatten()
}

/// The names and values of a table in a table. Without the key there are none.
pub(super) fn fields<'a, 'i>(
    table: &'a DeTable<'i>,
    key: &str,
) -> impl Iterator<Item = (&'a Spanned<DeString<'i>>, &'a Spanned<DeValue<'i>>)> {
    let table = table.get(key).and_then(|value| value.get_ref().as_table());
    table.into_iter().flatten()
}

fn json(value: &Spanned<DeValue<'_>>) -> Result<Value, FileMistake> {
    let none = |message| (value.span().start, message);
    Ok(match value.get_ref() {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(integer) => whole(integer)
            .ok_or_else(|| none(format!("{integer} does not fit into 64 bits")))?
            .into(),
        DeValue::Float(float) => {
            fraction(float).ok_or_else(|| none(format!("JSON has no number {float}")))?.into()
        }
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Datetime(date) => Value::from(date.to_string()),
        DeValue::Array(items) => items.iter().map(json).collect::<Result<_, _>>()?,
        DeValue::Table(table) => {
            let field = |(name, value): (&Spanned<DeString<'_>>, _)| {
                Ok((name.get_ref().to_string(), json(value)?))
            };
            table.iter().map(field).collect::<Result<_, _>>()?
        }
    })
}

/// Parses a whole number. `None` if it does not fit into 64 bits.
pub(super) fn whole(number: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Parses a number with a fraction. `None` for `inf` and `nan`, and for one that is too large.
pub(super) fn fraction(number: &DeFloat<'_>) -> Option<f64> {
    number.as_str().parse().ok().filter(|number: &f64| number.is_finite())
}
