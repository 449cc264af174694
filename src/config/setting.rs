//! One setting: everything that is known about it, in one row.

use std::fmt;

use clap::builder::PossibleValue;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::kinds::{FlagForm, SettingValue};
use super::values::InvalidValue;
use crate::json;

/// One setting.
#[expect(clippy::struct_excessive_bools, reason = "each is a mark of its own")]
pub struct Setting {
    /// Its name in a file; dots for members of objects: `sandbox.mode`.
    pub key: &'static str,
    /// A sentence, or several.
    pub meaning: String,
    /// The allowed values, as the end of the sentence "it takes".
    pub takes: String,
    /// Null: none.
    pub default: Value,
    /// The manual's description of a default that depends on something else.
    default_words: Option<&'static str>,
    pub flag: Option<SettingFlag>,
    /// The first one that is set counts.
    pub variables: Vec<SettingVariable>,
    /// The part of it that counts in an untrusted repository.
    pub untrusted: Untrusted,
    /// The effect of the setting as a term of a session. `None`: it is not a term.
    pub kept: Option<KeptAs>,
    /// True if a mistyped name of it is an error instead of a warning, because it restricts a run
    /// or provides its fallbacks.
    pub is_critical: bool,
    /// True if its value may be a secret, which messages do not quote.
    pub is_secret: bool,
    /// True if flags add to the lists of files, instead of replacing them.
    pub is_joined: bool,
    /// True if a blank text sets nothing.
    ignores_blank: bool,
    pub is_duration: bool,
    /// The key of the setting of which this one is another form.
    pub form_of: Option<&'static str>,
    form: FlagForm,
    choices: fn() -> Vec<PossibleValue>,
    from_texts: fn(&[String]) -> Result<Value, InvalidValue>,
    from_json: fn(&str) -> Result<Value, serde_json::Error>,
    schema: fn() -> Value,
}

/// The flag of a setting.
#[derive(Clone, Copy, Debug)]
pub struct SettingFlag {
    /// Without the dashes.
    pub long: &'static str,
    pub alias: Option<&'static str>,
    pub value_name: &'static str,
    /// The heading in the help.
    pub heading: &'static str,
}

/// A variable that sets a setting.
#[derive(Clone, Copy, Debug)]
pub struct SettingVariable {
    pub name: &'static str,
    /// The manual's description of its value, after "The setting NAME"; may be empty.
    pub unit: &'static str,
    pub read: VariableReader,
}

/// Reads the text of a variable. `None`: it sets nothing.
pub(super) type VariableReader = fn(&str) -> Result<Option<Value>, InvalidValue>;

/// The part of a setting that counts in an untrusted repository.
#[derive(Clone, Copy, Debug)]
pub enum Untrusted {
    Ignored,
    /// The permission rules in it: they only forbid.
    Rules,
    /// The paths in it: they only forbid.
    Paths,
    /// This value, which only forbids.
    Only(&'static str),
    /// A value that is stricter than the one in force without it, if there is one.
    Stricter(StricterThan),
}

/// The effect of a setting that a session keeps when the session is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptAs {
    /// The kept value replaces those of files and variables.
    Term,
    /// Like `Term`, if the session has a value; otherwise files and variables decide.
    IfSet,
    /// Like `Term`, and must be given again if the journal lost a secret in it.
    Demand,
    /// Like `Term`, and is read from files again if the journal lost a secret in it.
    Fallbacks,
    /// The kept value is joined with those of files, as both only forbid. Must be given again like
    /// `Demand`.
    Prohibition,
    /// Like `Term`, in the folder that it was given in. The value that allows least, if there is
    /// one, counts everywhere.
    Permission(Option<&'static str>),
}

/// Returns true if a value is at least as strict as the one in force without it.
pub(super) type StricterThan = fn(&Value, Option<&Value>) -> bool;

impl Setting {
    pub(super) fn new<T: SettingValue>(
        key: &'static str,
        meaning: &[&'static str],
        default: &T,
    ) -> Self {
        Self {
            key,
            meaning: meaning.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "),
            takes: T::takes().into_owned(),
            default: json!(default),
            default_words: None,
            flag: None,
            variables: Vec::new(),
            untrusted: Untrusted::Ignored,
            kept: None,
            is_critical: false,
            is_secret: false,
            is_joined: false,
            ignores_blank: false,
            is_duration: T::IS_DURATION,
            form_of: None,
            form: T::FLAG,
            choices: T::choices,
            from_texts: |texts| T::from_texts(texts).map(|value| json!(value)),
            from_json: |text| serde_json::from_str::<T>(text).map(|value| json!(value)),
            schema: T::json_schema,
        }
    }

    pub(super) fn flag(
        mut self,
        long: &'static str,
        value_name: &'static str,
        heading: &'static str,
    ) -> Self {
        self.flag = Some(SettingFlag { long, alias: None, value_name, heading });
        self
    }

    pub(super) fn alias(mut self, alias: &'static str) -> Self {
        if let Some(flag) = &mut self.flag {
            flag.alias = Some(alias);
        }
        self
    }

    pub(super) fn variable(
        mut self,
        name: &'static str,
        unit: &'static str,
        read: VariableReader,
    ) -> Self {
        self.variables.push(SettingVariable { name, unit, read });
        self
    }

    pub(super) fn takes(mut self, words: &str) -> Self {
        words.clone_into(&mut self.takes);
        self
    }

    /// Sets a default that is only shown: the field has none, because code checks whether the
    /// setting is set.
    pub(super) fn shown_as(mut self, default: impl Serialize) -> Self {
        self.default = json!(default);
        self
    }

    pub(super) fn default_words(mut self, words: &'static str) -> Self {
        self.default_words = Some(words);
        self
    }

    pub(super) fn form_of(mut self, key: &'static str) -> Self {
        self.form_of = Some(key);
        self
    }

    pub(super) fn untrusted(mut self, untrusted: Untrusted) -> Self {
        self.untrusted = untrusted;
        self
    }

    /// Makes the setting a term of a session, which applies when the session is resumed.
    pub(super) fn kept(self) -> Self {
        self.kept_as(KeptAs::Term)
    }

    pub(super) fn kept_as(mut self, kept: KeptAs) -> Self {
        self.kept = Some(kept);
        self
    }

    /// Joins the commands of a repeated flag to one that passes if all of them do, in their order.
    /// Each runs in a subshell: its `cd`, `exit` and variables end with it. `none` drops those
    /// before it.
    pub(super) fn all_commands(mut self) -> Self {
        self.form = FlagForm::Repeated;
        self.from_texts = |texts| {
            let rest = texts.rsplit(|text| text.trim() == "none").next().unwrap_or_default();
            Ok(match rest {
                [] => json!("none"),
                [command] => json!(command),
                commands if commands.iter().any(|command| command.trim().is_empty()) => json!(""),
                // A comment, or the end of a here-document, needs a line of its own.
                commands => {
                    let subshells = commands.iter().map(|command| format!("( {command}\n)"));
                    json!(subshells.collect::<Vec<_>>().join(" && "))
                }
            })
        };
        self
    }

    /// Returns true if a run could do more without a value of the setting: a repository that is not
    /// trusted may only restrict a run, too.
    pub(super) fn can_restrict(&self) -> bool {
        self.is_critical || !matches!(self.untrusted, Untrusted::Ignored)
    }

    pub(super) fn critical(mut self) -> Self {
        self.is_critical = true;
        self
    }

    pub(super) fn secret(mut self) -> Self {
        self.is_secret = true;
        self
    }

    pub(super) fn ignores_blank(mut self) -> Self {
        self.ignores_blank = true;
        self
    }

    pub(super) fn joined(mut self) -> Self {
        self.is_joined = true;
        self
    }

    /// Returns the names of the objects that contain the setting, and its own.
    pub fn path(&self) -> Vec<String> {
        self.key.split('.').map(str::to_owned).collect()
    }

    /// Returns true if a value sets nothing.
    pub(super) fn is_unset_by(&self, value: &Value) -> bool {
        self.ignores_blank && value.as_str().is_some_and(|text| text.trim().is_empty())
    }

    /// Returns true if `null` in a file unsets the setting, there and in the files below. For other
    /// settings, `null` has no effect.
    pub(super) fn is_unset_by_null(&self) -> bool {
        !self.default.is_array() && !self.default.is_object()
    }

    /// Returns the default in readable form. `None`: there is none.
    pub fn shown_default(&self) -> Option<String> {
        let text = match &self.default {
            Value::Null => None,
            Value::Array(items) if items.is_empty() => None,
            Value::Object(members) if members.is_empty() => None,
            Value::String(text) => Some(text.clone()),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Some(other.to_string())
            }
        };
        self.default_words.map(str::to_owned).or(text)
    }

    /// Reads the values of its flag as the JSON of a file.
    ///
    /// # Errors
    /// The mistake in a value, as the end of a sentence that quotes it.
    pub fn from_texts(&self, texts: &[String]) -> Result<Value, InvalidValue> {
        (self.from_texts)(texts)
    }

    /// Reads JSON, and returns it in its one canonical form. A text is also a list of one. One of
    /// some names may have any spelling of its flag, and may be `true` if it is the only one. Nulls
    /// in it count as not written, and an empty list is also an empty object: some programs cannot
    /// tell the two apart.
    ///
    /// # Errors
    /// The setting does not accept the value.
    pub fn from_json(&self, text: &str) -> Result<Value, serde_json::Error> {
        self.read_complete(text).or_else(|error| {
            let reduced = serde_json::from_str(text).ok().and_then(|it| self.reduced(it));
            reduced.ok_or(error)
        })
    }

    /// As [`Self::from_json`], but nulls and empty values of the other kind are mistakes.
    pub(super) fn read_complete(&self, text: &str) -> Result<Value, serde_json::Error> {
        let whole = || json::whole(&serde_json::from_str(text).ok()?);
        (self.from_json)(text).or_else(|error| {
            let of_whole = whole().and_then(|number| (self.from_json)(&number.to_string()).ok());
            of_whole.or_else(|| self.scalar_as_json(&serde_json::from_str(text).ok()?)).ok_or(error)
        })
    }

    /// Reads a value without its nulls, or an empty one of the other kind.
    fn reduced(&self, written: Value) -> Option<Value> {
        let reduced = json::without_nulls(written);
        let other = if reduced.as_array().is_some_and(Vec::is_empty) {
            json!({})
        } else if reduced.as_object().is_some_and(Map::is_empty) {
            json!([])
        } else {
            return (self.from_json)(&reduced.to_string()).ok();
        };
        [reduced, other].iter().find_map(|value| (self.from_json)(&value.to_string()).ok())
    }

    /// Reads a text for a list, a name in another spelling, or `true` for the only name.
    fn scalar_as_json(&self, written: &Value) -> Option<Value> {
        let choices = self.choices();
        let meant = match (written.as_str(), choices.as_slice()) {
            (Some(_), []) if self.form == FlagForm::Repeated => json!([written]),
            (Some(name), all) => all.iter().find(|it| it.matches(name, true))?.get_name().into(),
            (None, [only]) if *written == true => only.get_name().into(),
            (None, _) => return None,
        };
        (self.from_json)(&meant.to_string()).ok()
    }

    /// Returns the JSON Schema of its value, without `null` and the description.
    pub(super) fn schema(&self) -> Value {
        (self.schema)()
    }

    pub fn form(&self) -> FlagForm {
        self.form
    }

    /// Returns the values that the parser of flags lists. Empty: it cannot list them.
    pub fn choices(&self) -> Vec<PossibleValue> {
        (self.choices)()
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key)
    }
}
