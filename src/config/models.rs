//! Settings by model: prices and context windows.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kinds::{FlagForm, SettingValue, kinds};
use super::model_entry::SMALLEST_WINDOW;
use super::schema_parts::{nullable, whole};
use super::values::{self, InvalidValue};

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FilePrice {
    pub input: f64,
    pub output: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

impl FilePrice {
    fn is_payable(&self) -> bool {
        let parts = [Some(self.input), Some(self.output), self.cache_read, self.cache_write];
        parts.into_iter().flatten().all(|part| values::price_of_one(part).is_ok())
    }

    /// Reads `IN/OUT` or `IN/OUT/CACHE-READ/CACHE-WRITE`.
    fn parse(text: &str) -> Option<Self> {
        let amounts = text.split('/').map(|amount| amount.trim().parse().ok());
        let amounts: Vec<f64> = amounts.collect::<Option<_>>()?;
        let (input, output, cache_read, cache_write) = match amounts[..] {
            [input, output] => (input, output, None, None),
            [input, output, read, write] => (input, output, Some(read), Some(write)),
            _ => return None,
        };
        Some(Self { input, output, cache_read, cache_write }).filter(Self::is_payable)
    }
}

/// Prices by model; the empty name is for every model that has no entry of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriceMap(pub BTreeMap<String, FilePrice>);

impl PriceMap {
    /// Returns the models with an invalid price.
    pub fn unpayable(&self) -> impl Iterator<Item = &str> {
        let wrong = self.0.iter().filter(|(_, price)| !price.is_payable());
        wrong.map(|(model, _)| model.as_str())
    }
}

kinds! {
    repeated:
    PriceMap: "an object of models, each with \"input\" and \"output\" and perhaps \"cacheRead\" and \
         \"cacheWrite\", in US dollars per million tokens",
        |texts| {
            let mistake = "is not a price; write [MODEL=]IN/OUT[/CACHE-READ/CACHE-WRITE] in US dollars \
                           per million tokens, for example my-model=3/15";
            by_model(texts, FilePrice::parse, mistake).map(Self)
        },
        price_schema();
    WindowSizes: "a number of tokens, at least 1024, or an object of such by model",
        |texts| {
            let mistake = format!("is not a context window; write it like 200k or my-model=32k, and at \
                                   least {SMALLEST_WINDOW}");
            by_model(texts, window_size, &mistake).map(Self::ByModel)
        },
        {
            let size = whole(SMALLEST_WINDOW, u32::MAX);
            json!({ "anyOf": [size, { "type": "object", "additionalProperties": size }] })
        };
}

/// Reads texts of the form `[MODEL=]VALUE`.
fn by_model<T>(
    texts: &[String],
    read: impl Fn(&str) -> Option<T>,
    mistake: &str,
) -> Result<BTreeMap<String, T>, InvalidValue> {
    let entry = |text: &String| {
        let (model, value) = text.rsplit_once('=').unwrap_or(("", text));
        let value = read(value).ok_or_else(|| format!("{text:?} {mistake}"))?;
        Ok((model.trim().to_owned(), value))
    };
    texts.iter().map(entry).collect()
}

fn window_size(text: &str) -> Option<u32> {
    values::tokens(text).map(u32::from).ok().filter(|size| *size >= SMALLEST_WINDOW)
}

fn price_schema() -> Value {
    let price = json!({ "type": "number", "minimum": 0 });
    let optional = nullable(price.clone());
    json!({
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "description": "US dollars per million tokens.",
            "properties": {
                "input": price,
                "output": price,
                "cacheRead": optional,
                "cacheWrite": optional,
            },
            "required": ["input", "output"],
            "additionalProperties": false,
        },
    })
}

/// The setting `contextWindow`: one number for every model, or one for each, in tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "something else")]
pub enum WindowSizes {
    Every(u32),
    ByModel(BTreeMap<String, u32>),
}

impl WindowSizes {
    /// Returns the models with too small a context window; `None` stands for every model.
    pub fn too_small(&self) -> Vec<Option<&str>> {
        let small = |size: u32| size < SMALLEST_WINDOW;
        match self {
            Self::Every(size) => Some(None).filter(|_| small(*size)).into_iter().collect(),
            Self::ByModel(sizes) => {
                let models = sizes.iter().filter(|(_, size)| small(**size));
                models.map(|(model, _)| Some(model.as_str())).collect()
            }
        }
    }

    /// Returns the sizes by model; the empty name is for every model.
    pub fn by_model(&self) -> BTreeMap<String, u32> {
        match self {
            Self::Every(size) => BTreeMap::from([(String::new(), *size)]),
            Self::ByModel(sizes) => sizes.clone(),
        }
    }
}
