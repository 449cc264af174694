//! The fields of settings: those of the structs of the subsystems, which do not depend on the kinds
//! of settings.

use std::collections::BTreeMap;
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::kinds::{
    BudgetMode, BypassProhibition, DeadPathSpan, Dollars, Fraction, NameList, PluginEntries,
    Retries, ServerMap, Span, ThinkingTokens, Times, Tokens, UnattendedRetry, VariableMap,
};
use super::memory_size::MemorySize;
use super::model_entry::ModelEntryList;
use super::models::{FilePrice, PriceMap, WindowSizes};
use super::switches::{NetworkSwitch, RootSwitch, TerminalSwitch};
use super::tool_search::ToolSearch;
use super::trust::TrustedProjects;
use crate::process::RootCapabilities;
use crate::recovery::{Money, Persistence};
use crate::tools::TerminalAccess;
use crate::types::{
    AccountKind, ChildEnvironment, Effort, OnDenied, PermissionMode, SandboxMode, ThinkingDisplay,
    ToolSearchMode,
};

/// A kind of settings, with the type of its field.
pub trait FieldKind: Sized {
    type Field;

    fn from_field(field: &Self::Field) -> Self;

    fn into_field(self) -> Self::Field;
}

impl<T: FieldKind> FieldKind for Option<T> {
    type Field = Option<T::Field>;

    fn from_field(field: &Self::Field) -> Self {
        field.as_ref().map(T::from_field)
    }

    fn into_field(self) -> Self::Field {
        self.map(T::into_field)
    }
}

/// Kinds that are the type of their field, kinds that wrap it, and kinds that are converted from
/// the field and to it.
macro_rules! fields {
    (@$kind:ty => $field:ty: $from:expr, $into:expr;) => {
        impl FieldKind for $kind {
            type Field = $field;

            fn from_field(field: &Self::Field) -> Self {
                let from: fn(&$field) -> Self = $from;
                from(field)
            }

            fn into_field(self) -> Self::Field {
                let into: fn(Self) -> $field = $into;
                into(self)
            }
        }
    };
    (
        $($own:ty),+;
        $($wrapper:ident($inner:ty)),+;
        $($kind:ident => $field:ty: $from:expr, $into:expr;)+
    ) => {
        $(fields! { @$own => $own: Clone::clone, |own| own; })+
        $(fields! { @$wrapper => $inner: |inner| Self(inner.clone()), |wrapper| wrapper.0; })+
        $(fields! { @$kind => $field: $from, $into; })+
    };
}

fields! {
    bool, u8, u16, u32, String, Vec<PathBuf>, Vec<String>, Value, AccountKind, BudgetMode,
    BypassProhibition, ChildEnvironment, Effort, Fraction, ModelEntryList, OnDenied,
    PermissionMode, PluginEntries, SandboxMode, ServerMap, ThinkingDisplay, TrustedProjects,
    VariableMap, WindowSizes;

    DeadPathSpan(Duration), Dollars(Money), MemorySize(u64), NameList(Vec<String>),
    PriceMap(BTreeMap<String, FilePrice>), Retries(u8), Span(Duration), ThinkingTokens(u32),
    ToolSearch(ToolSearchMode);

    // The field is true if there is no network.
    NetworkSwitch => bool: |is_off| Self(!is_off), |kind| !kind.0;
    NonZeroU8 => u8: |count| Self::new(*count).unwrap_or(Self::MIN), Self::get;
    NonZeroU16 => u32: |count| u16::try_from(*count).ok().and_then(Self::new).unwrap_or(Self::MAX),
        |kind| kind.get().into();
    NonZeroU32 => u32: |count| Self::new(*count).unwrap_or(Self::MIN), Self::get;
    RootSwitch => RootCapabilities: |kept| Self(*kept == RootCapabilities::Kept),
        |kind| if kind.0 { RootCapabilities::Kept } else { RootCapabilities::Files };
    TerminalSwitch => TerminalAccess: |access| Self(*access == TerminalAccess::Open),
        |kind| if kind.0 { TerminalAccess::Open } else { TerminalAccess::Closed };
    // Never is `u32::MAX`.
    Times => u32: |times| Self(if *times == u32::MAX { 0 } else { *times }), Self::or_never;
    Tokens => u32: |tokens| Self::new(*tokens), Self::get;
    UnattendedRetry => Persistence: |persistence| match persistence {
            Persistence::Off => Self::Off,
            Persistence::Capacity => Self::On,
            Persistence::All => Self::All,
        },
        |kind| match kind {
            Self::Off => Persistence::Off,
            Self::On => Persistence::Capacity,
            Self::All => Persistence::All,
        };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Config;
    use crate::config::registry::settings;

    /// Values: each setting takes at least one of them that is not its default.
    fn values() -> Vec<Value> {
        let texts = "7s 10m 512MB on off low plan read-only after all summarized fail inherit \
                     subscription auto disable x";
        let others = [
            json!(true),
            json!(false),
            json!(2),
            json!(3),
            json!(2048),
            json!(0.25),
            json!(["x"]),
            json!(["/x"]),
            json!({ "x": "y" }),
            json!({ "x": 3000 }),
            json!({ "x": { "input": 1, "output": 2 } }),
            json!({ "x": { "command": "y" } }),
        ];
        texts.split_whitespace().map(Value::from).chain(others).collect()
    }

    #[test]
    fn a_value_is_kept_in_the_field_of_its_setting_and_in_no_other() {
        let defaults = Config::default();
        for setting in settings() {
            let config = values().into_iter().find_map(|value| {
                let mut config = Config::default();
                config.assign(setting.key, value).ok()?;
                let is_changed = config.value(setting.key) != defaults.value(setting.key);
                is_changed.then_some(config)
            });
            let Some(mut config) = config else { panic!("no value for {}", setting.key) };
            let value = config.value(setting.key);
            config.assign(setting.key, value.clone()).expect(setting.key);
            assert_eq!(config.value(setting.key), value, "{}", setting.key);
            for other in settings().iter().filter(|other| other.key != setting.key) {
                let (own, default) = (config.value(other.key), defaults.value(other.key));
                assert_eq!(own, default, "{} sets {}", setting.key, other.key);
            }
        }
    }
}
