//! Parser for entries of the model chain.
//!
//! ```text
//! haiku                                       at the primary's address, with its credentials
//! haiku#SECOND_KEY                            the same address, another account
//! llama@http://127.0.0.1:8080                 another address, no credentials
//! opus@https://gate.example/api#GATE_KEY      another address, the API key in a variable
//! opus@https://gate.example#bearer:GATE_TOKEN the same with a bearer token
//! opus@bedrock:us-east-1                      at a cloud, with the identity there
//! opus@vertex:global/PROJECT
//! opus@foundry:RESOURCE#RESOURCE_KEY          at a cloud, with a key
//! ```
//!
//! An entry names the variable that holds a secret, and never the secret itself. A secret written
//! there by mistake is not repeated in an error message.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::clouds::CloudPlace;
use super::kinds::{FlagForm, SettingValue, TextOrList, TextOrObject, kinds};
use super::schema_parts::{nullable, whole};
use super::values::{self, InvalidValue};
use crate::model::BaseUrl;

/// The smallest context window that a run can work with, in tokens.
pub const SMALLEST_WINDOW: u32 = 1024;

/// A model, and its address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelEntry {
    /// A name or an alias.
    pub model: String,
    /// The cloud that serves it.
    pub cloud: Option<CloudPlace>,
    /// `None`: the address of the primary model, or the public address of the cloud.
    pub base_url: Option<String>,
    /// `None`: the primary's credentials at the primary's origin, and none anywhere else.
    pub key: Option<KeyVariable>,
    pub headers: BTreeMap<String, String>,
    /// In tokens.
    pub context_window: Option<NonZeroU32>,
}

/// The variable that holds a credential, and the kind of the credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyVariable {
    ApiKey(String),
    Bearer(String),
}

impl KeyVariable {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let key = match text.strip_prefix("bearer:") {
            Some(name) => Self::Bearer(name.to_owned()),
            None => Self::ApiKey(text.to_owned()),
        };
        key.check()
    }

    fn check(self) -> Result<Self, InvalidValue> {
        let mut letters = self.name().bytes();
        let starts = letters.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        if starts && letters.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Ok(self);
        }
        Err("what names its key is not the name of a variable; put the key into a variable and \
             name that, as in MODEL@https://host#KEY_VARIABLE"
            .into())
    }

    pub fn name(&self) -> &str {
        match self {
            Self::ApiKey(name) | Self::Bearer(name) => name,
        }
    }

    /// Returns the name for messages. An unusual name may be a key given by mistake, and is not
    /// shown.
    pub fn shown(&self) -> String {
        let name = self.name();
        if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
            format!("{}...", name.chars().take(4).collect::<String>())
        } else {
            name.to_owned()
        }
    }
}

impl ModelEntry {
    /// Parses an entry of a flag or list.
    ///
    /// # Errors
    /// The mistake in it, after the model's name if there is one.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let (place, key) = match text.split_once('#') {
            Some((place, key)) => (place, Some(key)),
            None => (text, None),
        };
        let (model, base_url) = match place.find("://") {
            Some(scheme) => match place[..scheme].rfind('@') {
                Some(at) => (&place[..at], Some(&place[at + 1..])),
                None => return Err("an address without a model; write MODEL@https://host".into()),
            },
            None => (place, None),
        };
        let about = |why: InvalidValue| InvalidValue::from(format!("{model:?}: {why}"));
        let (model, cloud) = match model.rsplit_once('@').filter(|_| base_url.is_none()) {
            Some((name, rest)) => match CloudPlace::parse(rest).map_err(about)? {
                Some(cloud) => (name, Some(cloud)),
                None => (model, None),
            },
            None => (model, None),
        };
        let about = |why: InvalidValue| InvalidValue::from(format!("{model:?}: {why}"));
        if base_url.is_none()
            && let Some((_, rest)) = model.rsplit_once('@')
            && !is_version(rest)
        {
            let why = format!(
                "{rest:?} after the @ is neither an address, which begins with http:// or \
                 https://, nor a cloud, such as bedrock:us-east-1, nor a version"
            );
            return Err(about(why.into()));
        }
        let key = key.map(KeyVariable::parse).transpose().map_err(about)?;
        Self { cloud, ..Self::default() }
            .with(model, base_url, key)
            .map_err(|why| if model.is_empty() { why } else { about(why) })
    }

    fn with(
        self,
        model: &str,
        base_url: Option<&str>,
        key: Option<KeyVariable>,
    ) -> Result<Self, InvalidValue> {
        if model.trim().is_empty() {
            return Err("an entry names no model".into());
        }
        // A path in the address of a cloud is kept.
        let base_url = match &self.cloud {
            Some(_) => base_url.map(whole_base).transpose()?,
            None => base_url.map(base_of).transpose()?,
        };
        Ok(Self { model: model.trim().to_owned(), base_url, key, ..self })
    }
}

/// Returns whether the text after an `@` is a model version, as in `claude@20260131`.
fn is_version(text: &str) -> bool {
    let is_number = text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    is_number || ["default", "latest"].contains(&text)
}

/// Checks the address of a cloud.
fn whole_base(text: &str) -> Result<String, InvalidValue> {
    base_of(text)?;
    Ok(text.trim().trim_end_matches('/').to_owned())
}

/// Normalises a base URL.
fn base_of(text: &str) -> Result<String, InvalidValue> {
    let address = BaseUrl::parse(text).map_err(|error| InvalidValue::from(error.to_string()))?;
    if address.has_credentials_or_query() {
        return Err("an address holds no user, password or query; name a variable with the key \
                    after #, or headers in the settings"
            .into());
    }
    Ok(address.base())
}

/// A model entry as an object of a settings file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ModelEntryObject {
    model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_key_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token_env: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_window: Option<NonZeroU32>,
}

impl ModelEntryObject {
    fn json_schema() -> Value {
        let text = String::json_schema();
        let optional = nullable(text.clone());
        json!({
            "type": "object",
            "properties": {
                "model": text,
                "service": optional,
                "baseUrl": optional,
                "apiKeyEnv": optional,
                "authTokenEnv": optional,
                "headers": { "type": "object", "additionalProperties": text },
                "contextWindow": nullable(whole(SMALLEST_WINDOW, u32::MAX)),
            },
            "required": ["model"],
            "additionalProperties": false,
        })
    }
}

impl From<&ModelEntry> for ModelEntryObject {
    fn from(entry: &ModelEntry) -> Self {
        let key = entry.key.clone();
        let (api_key_env, auth_token_env) = match key {
            None => (None, None),
            Some(KeyVariable::ApiKey(name)) => (Some(name), None),
            Some(KeyVariable::Bearer(name)) => (None, Some(name)),
        };
        let ModelEntry { model, cloud, base_url, headers, context_window, .. } = entry.clone();
        let service = cloud.map(|cloud| cloud.to_string());
        Self { model, service, base_url, api_key_env, auth_token_env, headers, context_window }
    }
}

impl ModelEntry {
    /// Returns the entry as the text of a flag. `None`: a flag cannot express it.
    fn text(&self) -> Option<String> {
        let mut text = self.model.clone();
        if let Some(base_url) = &self.base_url {
            text = format!("{text}@{base_url}");
        } else if let Some(cloud) = &self.cloud {
            text = format!("{text}@{cloud}");
        }
        match &self.key {
            Some(KeyVariable::ApiKey(name)) => text = format!("{text}#{name}"),
            Some(KeyVariable::Bearer(name)) => text = format!("{text}#bearer:{name}"),
            None => {}
        }
        Some(text).filter(|text| Self::parse(text).as_ref() == Ok(self))
    }

    /// Returns the entry as an object of a settings file.
    pub fn to_object(&self) -> Value {
        json!(ModelEntryObject::from(self))
    }
}

impl Serialize for ModelEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.text() {
            Some(text) => serializer.serialize_str(&text),
            None => ModelEntryObject::from(self).serialize(serializer),
        }
    }
}

impl TryFrom<ModelEntryObject> for ModelEntry {
    type Error = InvalidValue;

    fn try_from(object: ModelEntryObject) -> Result<Self, InvalidValue> {
        let about = |why: InvalidValue| InvalidValue::from(format!("{:?}: {why}", object.model));
        let key = match (object.api_key_env, object.auth_token_env) {
            (Some(_), Some(_)) => {
                return Err(about("apiKeyEnv and authTokenEnv exclude each other".into()));
            }
            (Some(name), None) => Some(KeyVariable::ApiKey(name)),
            (None, Some(name)) => Some(KeyVariable::Bearer(name)),
            (None, None) => None,
        };
        let key = key.map(KeyVariable::check).transpose().map_err(about)?;
        if object.context_window.is_some_and(|tokens| tokens.get() < SMALLEST_WINDOW) {
            return Err(about(
                format!("contextWindow must be at least {SMALLEST_WINDOW} tokens").into(),
            ));
        }
        let cloud = object.service.as_deref().map(|text| {
            CloudPlace::parse(text)?.ok_or_else(|| {
                format!(
                    "the service {text:?} is not known; write bedrock:REGION, \
                     vertex:REGION/PROJECT or foundry:RESOURCE"
                )
                .into()
            })
        });
        let rest = Self {
            cloud: cloud.transpose().map_err(about)?,
            headers: object.headers,
            context_window: object.context_window,
            ..Self::default()
        };
        rest.with(&object.model, object.base_url.as_deref(), key)
    }
}

impl<'de> Deserialize<'de> for ModelEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrObject {
            expected: "a model, MODEL@URL#KEY_VARIABLE, or an object with \"model\"",
            from_text: Self::parse,
            from_object: |object: ModelEntryObject| Self::try_from(object),
        })
    }
}

/// The entries of a settings file: a list, or one text with commas between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelEntryList(pub Vec<ModelEntry>);

kinds! {
    repeated:
    ModelEntryList: "a list of models, MODEL@URL#KEY_VARIABLE or objects with \"model\" and perhaps \
         \"service\", \"baseUrl\", \"apiKeyEnv\" or \"authTokenEnv\", \"headers\", \"contextWindow\"; or one \
         text with commas", Self::parse,
        json!({
            "type": ["string", "array"],
            "items": { "anyOf": [String::json_schema(), ModelEntryObject::json_schema()] },
        });
}

impl ModelEntryList {
    /// Reads the values of flags.
    ///
    /// # Errors
    /// The mistake in the first invalid entry.
    pub fn parse<S: AsRef<str>>(texts: &[S]) -> Result<Self, InvalidValue> {
        let entries: Result<_, _> =
            values::list(texts).iter().map(|text| ModelEntry::parse(text)).collect();
        entries.map(Self)
    }

    /// Returns an entry that occurs twice. The lists of several files are joined, so each file is
    /// checked separately.
    pub fn repeated(&self) -> Option<&ModelEntry> {
        let place = |entry: &ModelEntry| ModelEntry {
            headers: BTreeMap::new(),
            context_window: None,
            ..entry.clone()
        };
        let mut entries = self.0.iter().enumerate();
        let again = |(index, entry): &(usize, &ModelEntry)| {
            self.0[..*index].iter().any(|earlier| place(earlier) == place(entry))
        };
        entries.find(again).map(|(_, entry)| entry)
    }
}

impl<'de> Deserialize<'de> for ModelEntryList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = TextOrList(|text| Self::parse(&[text]).map(|list| list.0));
        deserializer.deserialize_any(list).map(Self)
    }
}
