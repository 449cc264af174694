//! Kinds of settings that are on or off.

use std::borrow::Cow;

use clap::builder::PossibleValue;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kinds::SettingValue;
use super::values::InvalidValue;

/// Kinds that are `true` or `false` in files, and `on` or `off` as a flag.
macro_rules! switches {
    ($($(#[doc = $about:literal])+ $kind:ident;)+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub(super) struct $kind(pub(super) bool);

        impl SettingValue for $kind {
            fn takes() -> Cow<'static, str> {
                bool::takes()
            }

            fn json_schema() -> Value {
                bool::json_schema()
            }

            fn from_texts(texts: &[String]) -> Result<Self, InvalidValue> {
                Ok(Self(texts.last().is_some_and(|text| text == "on")))
            }

            fn choices() -> Vec<PossibleValue> {
                vec![PossibleValue::new("on"), PossibleValue::new("off")]
            }
        }
    )+};
}

switches! {
    /// The network of the sandbox.
    NetworkSwitch;
    /// The capabilities of commands of root in the sandbox.
    RootSwitch;
    /// The terminals in the sandbox.
    TerminalSwitch;
}
