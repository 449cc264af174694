//! Amounts of memory in settings: `4GiB`, `512MB`.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};

use super::kinds::{Scalar, SettingValue, kinds, last};
use super::values::InvalidValue;

/// The units, largest first: those of 1024 before those of 1000, so that an amount that both can
/// express is shown in the former.
const UNITS: [(&str, u64); 8] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
];

/// The smallest memory limit of commands: shells and compilers need that much.
const LEAST: u64 = 64 << 20;

/// An amount of memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySize(pub u64);

impl MemorySize {
    pub(super) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let text = text.trim();
        let unit_begins = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_begins);
        let unit = match unit {
            "" | "B" => Some(1),
            unit => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|it| it.1),
        };
        let number = number.trim_end().parse::<u64>().ok();
        let bytes = number.zip(unit).map(|(number, unit)| number.saturating_mul(unit));
        match bytes {
            Some(bytes) if bytes >= LEAST => Ok(Self(bytes)),
            Some(_) => Err(format!("must be at least {}", Self(LEAST)).into()),
            None => Err("is not an amount of memory; write it like 4GiB or 512MB".into()),
        }
    }
}

impl fmt::Display for MemorySize {
    /// Writes the amount as a whole number of the first possible unit in `UNITS`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, unit)| self.0.is_multiple_of(*unit)) {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

kinds! {
    MemorySize: format!("an amount of memory such as \"4GiB\" or \"512MB\"; at least {}", Self(LEAST)),
        Self::parse, json!({ "type": ["string", "integer"], "minimum": LEAST });
}

impl Serialize for MemorySize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MemorySize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(Scalar("an amount of memory"))?;
        Self::parse(&text).map_err(|why| de::Error::custom(format!("{text:?} {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_of_memory_is_read_in_units_of_1024_and_1000_and_written_without_loss() {
        let table = [
            ("4GiB", 4 << 30, "4GiB"),
            (" 512MB ", 512_000_000, "500000KiB"),
            ("256 mib", 256 << 20, "256MiB"),
            ("67108864", 64 << 20, "64MiB"),
            ("100000001B", 100_000_001, "100000001"),
            ("99999999TiB", u64::MAX, "18446744073709551615"),
        ];
        for (text, bytes, written) in table {
            let size = MemorySize::parse(text).expect(text);
            assert_eq!((size.0, size.to_string().as_str()), (bytes, written), "{text}");
            assert_eq!(MemorySize::parse(written), Ok(size));
        }
        for text in ["", "0", "63MiB", "-1", "1e9", "1.5GiB", "4 G", "GiB", "4GiBs", "4ГБ", "∞"]
        {
            assert!(MemorySize::parse(text).is_err(), "{text}");
        }
    }
}
