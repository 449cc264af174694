//! Kinds of settings: each describes its values, and parses them from the text of a flag or a
//! variable and from the JSON of a file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::schema_parts::{names, servers, texts_or_one, whole};
use super::tool_search::ToolSearch;
use super::values::{self, InvalidValue};
use crate::model::SHORTEST_PROBING;
use crate::recovery::Money;
use crate::types::{
    AccountKind, ChildEnvironment, Effort, OnDenied, PermissionMode, SandboxMode, ThinkingDisplay,
};

/// The form in which the flag of a setting is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagForm {
    /// With one value; of several the last one counts.
    Value,
    /// With a value, any number of times.
    Repeated,
    /// Without a value: it means `true`.
    Switch,
}

/// The type of a setting's value.
pub trait SettingValue: Serialize + DeserializeOwned {
    const FLAG: FlagForm = FlagForm::Value;
    const IS_DURATION: bool = false;

    /// The allowed values, as the end of the sentence "it takes".
    fn takes() -> Cow<'static, str>;

    /// The JSON Schema of a value in a file. It leaves out `null` and the description, which
    /// [`schema`](super::schema) adds for each setting.
    fn json_schema() -> Value;

    /// Reads the values of a flag; there is at least one.
    ///
    /// # Errors
    /// The mistake in a value, as the end of a sentence that quotes it.
    fn from_texts(texts: &[String]) -> Result<Self, InvalidValue>;

    /// The values that the parser of flags lists. Empty: it cannot list them.
    fn choices() -> Vec<PossibleValue> {
        Vec::new()
    }
}

/// Reads the last value of a flag.
pub(super) fn last<T>(
    texts: &[String],
    read: impl Fn(&str) -> Result<T, InvalidValue>,
) -> Result<T, InvalidValue> {
    read(texts.last().map_or("", String::as_str))
}

/// Reads a number; the error is the parser's own.
fn number<T: std::str::FromStr<Err: fmt::Display>>(text: &str) -> Result<T, InvalidValue> {
    text.trim().parse().map_err(|error: T::Err| error.to_string().into())
}

/// Reads JSON; the error is the parser's own.
fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, InvalidValue> {
    serde_json::from_str(text).map_err(|error| error.to_string().into())
}

impl<T: SettingValue> SettingValue for Option<T> {
    const FLAG: FlagForm = T::FLAG;
    const IS_DURATION: bool = T::IS_DURATION;

    fn takes() -> Cow<'static, str> {
        T::takes()
    }

    fn json_schema() -> Value {
        T::json_schema()
    }

    fn from_texts(texts: &[String]) -> Result<Self, InvalidValue> {
        T::from_texts(texts).map(Some)
    }

    fn choices() -> Vec<PossibleValue> {
        T::choices()
    }
}

/// Implements [`SettingValue`] for kinds, each with a description of its values, a parser and a
/// schema. The parser reads the text of the last flag; that of a `repeated` kind, the texts of all
/// flags.
macro_rules! kinds {
    (@$kind:ty: $takes:expr, $from_texts:expr, $schema:expr; $($constant:tt)*) => {
        impl SettingValue for $kind {
            $($constant)*

            fn takes() -> Cow<'static, str> {
                $takes.into()
            }

            fn json_schema() -> Value {
                $schema
            }

            fn from_texts(texts: &[String]) -> Result<Self, InvalidValue> {
                let from_texts: fn(&[String]) -> Result<Self, InvalidValue> = $from_texts;
                from_texts(texts)
            }
        }
    };
    (repeated: $($kind:ty: $takes:expr, $read:expr, $schema:expr;)+) => {$(
        kinds! { @$kind: $takes, $read, $schema; const FLAG: FlagForm = FlagForm::Repeated; }
    )+};
    (duration: $($kind:ty: $takes:expr, $read:expr, $schema:expr;)+) => {$(
        kinds! { @$kind: $takes, |texts| last(texts, $read), $schema; const IS_DURATION: bool = true; }
    )+};
    ($($kind:ty: $takes:expr, $read:expr, $schema:expr;)+) => {$(
        kinds! { @$kind: $takes, |texts| last(texts, $read), $schema; }
    )+};
}

pub(super) use kinds;

kinds! {
    String: "a text", |text| Ok(text.to_owned()), json!({ "type": "string" });
    u8: "a whole number from 0 to 255", number, whole(0, u8::MAX.into());
    u16: "a whole number from 0 to 65535", number, whole(0, u16::MAX.into());
    u32: "a whole number", number, whole(0, u32::MAX);
    NonZeroU8: "a whole number from 1 to 255", number, whole(1, u8::MAX.into());
    NonZeroU16: "a whole number from 1 to 65535", number, whole(1, u16::MAX.into());
    NonZeroU32: "a whole number, at least 1", values::count, whole(1, u32::MAX);
    Times: "a whole number, or 0 for never", |text| number(text).map(Times), whole(0, u32::MAX);
    Retries: "a whole number from 0 to 100", |text| values::retries(text).map(Retries),
        whole(0, 100);
    Tokens: "a whole number of tokens, at least 1", |text| values::tokens(text).map(Tokens),
        whole(1, u32::MAX);
    ThinkingTokens: "0, or a whole number of tokens, at least 1024", ThinkingTokens::parse,
        json!({ "anyOf": [{ "const": 0 }, whole(1024, u32::MAX)] });
    ToolSearch: "true, false, \"auto\" or \"auto:N\", N per cent of the context window",
        ToolSearch::parse,
        json!({ "anyOf": [
            { "type": "boolean" },
            { "type": "string", "pattern": "^(auto(:([0-9]|[1-9][0-9]|100))?|true|false|on|off|yes|no|1|0)$" },
        ] });
    Fraction: "a number above 0 and at most 1", |text| number(text).and_then(Fraction::new),
        json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 });
    Dollars: "a number of US dollars above 0", |text| values::dollars(text).map(Dollars),
        json!({
            "type": "number",
            "exclusiveMinimum": 0,
            "exclusiveMaximum": Money::DOLLARS_LIMIT,
        });
    Value: "an object", parsed, json!({ "type": "object" });
    VariableMap: "an object of texts or numbers", parsed,
        json!({
            "type": "object",
            "additionalProperties": { "type": ["string", "number", "boolean"] },
        });
    PluginEntries: "an object of true or false, by NAME@MARKETPLACE", parsed,
        json!({ "type": "object" });
    ServerMap: "an object of servers, each with \"command\", \"args\" and \"env\", or with \"type\": \
         \"http\", \"url\" and \"headers\", and perhaps \"timeout\"", parsed, servers();
}

kinds! { @bool: "true or false", |_| Ok(true), json!({ "type": "boolean" });
    const FLAG: FlagForm = FlagForm::Switch;
}

kinds! {
    duration:
    Span: DURATION, |text| values::duration(text).map(Span),
        json!({
            "type": ["string", "number"],
            "exclusiveMinimum": 0,
            "maximum": values::LONGEST.as_secs(),
        });
    DeadPathSpan: format!("{DURATION}; at least {}s", SHORTEST_PROBING.as_secs()),
        |text| values::dead_path(text).map(DeadPathSpan),
        json!({
            "type": ["string", "number"],
            "minimum": SHORTEST_PROBING.as_secs(),
            "maximum": values::LONGEST.as_secs(),
        });
}

kinds! {
    repeated:
    NameList: "a name, or a list of names", |texts| Ok(Self(values::list(texts))),
        texts_or_one();
    Vec<String>: "a list of texts", |texts| Ok(values::list(texts)), texts_or_one();
    Vec<PathBuf>: "a list of folders", |texts| Ok(texts.iter().map(PathBuf::from).collect()),
        texts_or_one();
}

/// Kinds whose value is one of some names.
macro_rules! choices {
    ($($kind:ty),+) => {$(
        impl SettingValue for $kind {
            fn takes() -> Cow<'static, str> {
                let names = Self::choices();
                let mut names: Vec<String> =
                    names.iter().map(|choice| format!("{:?}", choice.get_name())).collect();
                let last = names.pop().unwrap_or_default();
                let or = if names.is_empty() { "" } else { " or " };
                format!("{}{or}{last}", names.join(", ")).into()
            }

            fn json_schema() -> Value {
                names(&Self::choices())
            }

            fn from_texts(texts: &[String]) -> Result<Self, InvalidValue> {
                last(texts, |text| Self::from_str(text, true).map_err(InvalidValue::from))
            }

            fn choices() -> Vec<PossibleValue> {
                let all = Self::value_variants().iter();
                all.filter_map(ValueEnum::to_possible_value).collect()
            }
        }
    )+};
}

choices!(
    AccountKind,
    BudgetMode,
    BypassProhibition,
    ChildEnvironment,
    Effort,
    OnDenied,
    PermissionMode,
    SandboxMode,
    ThinkingDisplay,
    UnattendedRetry
);

/// The check of the budget: before each call or after each reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BudgetMode {
    /// No call is made that could exceed the budget.
    #[default]
    Ceiling,
    /// The cost is checked after each reply.
    After,
}

/// The prohibition of the permission mode `bypassPermissions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BypassProhibition {
    Disable,
}

/// The failures that are retried without counting towards the maximum number of retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UnattendedRetry {
    /// None.
    #[default]
    Off,
    /// Overloads and rate limits.
    On,
    /// Also lost connections, timeouts and server errors.
    All,
}

/// A number of times; 0 means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Times(pub u32);

impl Times {
    /// Returns the number as a limit: `u32::MAX` for never.
    pub fn or_never(self) -> u32 {
        if self.0 == 0 { u32::MAX } else { self.0 }
    }
}

/// A number of retries of a request, from 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Retries(pub u8);

impl Retries {
    pub const MOST: u8 = 100;
}

/// A number of tokens above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tokens(pub NonZeroU32);

impl Tokens {
    pub const fn new(tokens: u32) -> Self {
        match NonZeroU32::new(tokens) {
            Some(tokens) => Self(tokens),
            None => Self(NonZeroU32::MIN),
        }
    }

    pub fn get(self) -> u32 {
        self.0.get()
    }
}

/// A budget for thinking, in tokens: none, or at least 1024, which the service requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ThinkingTokens(pub u32);

impl ThinkingTokens {
    /// The smallest budget, other than none.
    pub const LEAST: u32 = 1024;

    /// Reads the text of a flag or a variable.
    ///
    /// # Errors
    /// The text is not such a number.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let text = text.trim();
        let count = || values::tokens(text).ok().map(NonZeroU32::get);
        let tokens = if text == "0" { Some(0) } else { count() };
        let tokens = tokens.filter(|tokens| !(1..Self::LEAST).contains(tokens));
        tokens.map(Self).ok_or_else(|| "must be 0, or at least 1024".into())
    }
}

/// A part of a whole, above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
pub struct Fraction(f64);

impl Fraction {
    pub const NINE_TENTHS: Self = Self(0.9);

    /// # Errors
    /// The number is out of range.
    pub fn new(part: f64) -> Result<Self, InvalidValue> {
        let is_part = part > 0.0 && part <= 1.0;
        is_part.then_some(Self(part)).ok_or_else(|| "must be above 0 and at most 1".into())
    }

    pub fn get(self) -> f64 {
        self.0
    }
}

/// An amount of US dollars above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dollars(pub Money);

impl Serialize for Dollars {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.as_dollars())
    }
}

/// Kinds of numbers with a range, which is checked when they are read from JSON.
macro_rules! ranges {
    ($($kind:ty: $base:ty, $read:expr;)+) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let read: fn($base) -> Option<$kind> = $read;
                let number = <$base>::deserialize(deserializer)?;
                read(number).ok_or_else(|| {
                    let found = Unexpected::Other(&number.to_string()).to_string();
                    de::Error::custom(format!("invalid value: {found}, expected {}", Self::takes()))
                })
            }
        }
    )+};
}

ranges! {
    Retries: u8, |times| (times <= Retries::MOST).then_some(Retries(times));
    ThinkingTokens: u32, |tokens| (!(1..ThinkingTokens::LEAST).contains(&tokens)).then_some(ThinkingTokens(tokens));
    Fraction: f64, |part| Fraction::new(part).ok();
    Dollars: f64, |usd| values::dollars(&usd.to_string()).ok().map(Dollars);
}

/// A duration above zero: `"90s"`, `"1h30m"`, or a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

const DURATION: &str = "a duration such as \"90s\" or \"1h30m\", or a number of seconds";

/// The longest silence of a connection before it counts as lost: long enough for its probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadPathSpan(pub Duration);

/// Kinds of durations: texts and numbers in JSON.
macro_rules! durations {
    ($($kind:ident: $read:expr;)+) => {$(
        impl Serialize for $kind {
            /// Writes the shortest text that loses nothing.
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&exact_duration(self.0))
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = deserializer.deserialize_any(Scalar("a duration"))?;
                $read(&text).map($kind).map_err(|why| de::Error::custom(format!("{text:?} {why}")))
            }
        }
    )+};
}

durations! {
    Span: values::duration;
    DeadPathSpan: values::dead_path;
}

/// Formats a duration in readable units if that is exact, otherwise in its smallest unit.
fn exact_duration(duration: Duration) -> String {
    let text = values::format_duration(duration);
    if values::duration(&text) == Ok(duration) {
        text
    } else if duration.subsec_nanos() == 0 {
        format!("{}s", duration.as_secs())
    } else if duration.subsec_nanos().is_multiple_of(1_000_000) {
        format!("{}ms", duration.as_millis())
    } else {
        humantime::format_duration(duration).to_string()
    }
}

/// Reads a text, or a number or boolean as its text. The field is the expectation for error
/// messages.
pub(super) struct Scalar(pub(super) &'static str);

impl Visitor<'_> for Scalar {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

/// Variables by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VariableMap(pub BTreeMap<String, VariableText>);

/// The text of a variable; a file may give a number or a boolean instead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VariableText(pub String);

impl<'de> Deserialize<'de> for VariableText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Scalar("a text, a number, true or false")).map(Self)
    }
}

/// Names: a list, or one text with commas between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NameList(pub Vec<String>);

impl<'de> Deserialize<'de> for NameList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrList(|text| Ok(values::list(&[text])))).map(Self)
    }
}

/// Reads a list, or one text by the function.
pub(super) struct TextOrList<T>(pub(super) fn(&str) -> Result<Vec<T>, InvalidValue>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrList<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name or a list of names")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
        (self.0)(text).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Vec<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items))
    }
}

/// Reads an object, or a text, and converts it.
pub(super) struct TextOrObject<T, O> {
    pub(super) expected: &'static str,
    pub(super) from_text: fn(&str) -> Result<T, InvalidValue>,
    pub(super) from_object: fn(O) -> Result<T, InvalidValue>,
}

impl<'de, T, O: Deserialize<'de>> Visitor<'de> for TextOrObject<T, O> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.from_text)(text).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let object = O::deserialize(MapAccessDeserializer::new(map))?;
        (self.from_object)(object).map_err(de::Error::custom)
    }
}

/// MCP servers by name, as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServerMap(pub BTreeMap<String, Value>);

/// The entries of plugins or marketplaces in settings, by name, as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PluginEntries(pub BTreeMap<String, Value>);
