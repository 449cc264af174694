//! The schema of a settings file.

use std::collections::BTreeMap;
use std::fmt;
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_json::Value;

use super::context_windows::WindowSizes;
use super::entry::ModelEntryList;
use super::load::is_meaningful;
use super::trust::TrustedProject;
use crate::cli::args::{BudgetMode, ChildEnv, OnDenied, PermissionMode, SandboxMode};
use crate::cli::values;

/// One settings file, or several merged. `None` and empty: not set here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FileSettings {
    pub api_key_helper: Option<String>,
    pub oauth_endpoint: Option<String>,
    pub oauth_client_id: Option<String>,
    pub model: Option<String>,
    pub agent: Option<String>,
    pub fallback_model: ModelEntryList,
    pub fallback_return: Option<bool>,
    pub fast: Option<bool>,
    pub context_window: Option<WindowSizes>,
    pub auto_compact_enabled: Option<bool>,
    pub compact_at: Option<f64>,
    pub max_compactions: Option<u8>,
    pub prices: BTreeMap<String, FilePrice>,
    #[serde(deserialize_with = "variables")]
    pub env: BTreeMap<String, String>,
    pub permissions: FilePermissions,
    /// Parsed separately, since those of all files apply.
    #[serde(rename = "hooks")]
    pub _hooks: Option<Value>,
    pub disable_all_hooks: Option<bool>,
    /// These two apply in managed files only, and were already read from there.
    #[serde(rename = "allowManagedHooksOnly")]
    pub _managed_hooks: Option<bool>,
    #[serde(rename = "allowManagedPermissionRulesOnly")]
    pub _managed_rules: Option<bool>,
    pub trusted_projects: Vec<TrustedProject>,
    /// Parsed separately: rights depend on the source of the server.
    #[serde(rename = "mcpServers")]
    pub _servers: BTreeMap<String, Value>,

    pub max_turns: Option<NonZeroU32>,
    pub max_budget_usd: Option<f64>,
    pub budget_mode: Option<BudgetMode>,
    pub max_duration: Option<DurationValue>,
    pub wrap_up_at: Option<f64>,
    pub token_budget: Option<NonZeroU32>,
    pub token_budget_nudges: Option<u8>,

    pub require: Option<String>,
    pub require_timeout: Option<DurationValue>,
    pub require_retries: Option<u8>,
    pub schema_tries: Option<NonZeroU8>,
    pub loop_note_at: Option<u32>,
    pub loop_stop_at: Option<u32>,

    pub max_retries: Option<u8>,
    pub max_retry_wait: Option<DurationValue>,
    pub retry_first_delay: Option<DurationValue>,
    pub retry_longest_delay: Option<DurationValue>,
    pub retry_quota: Option<u16>,
    pub unattended_retry: Option<UnattendedRetry>,
    pub unattended_longest_delay: Option<DurationValue>,
    pub capacity_probes: Option<bool>,
    pub capacity_probe_interval: Option<DurationValue>,
    pub overload_limit: Option<u8>,
    pub overloads_per_fallback: Option<u8>,
    pub torn_streams_per_whole: Option<u8>,
    pub empty_reply_retries: Option<u8>,
    pub paused_turn_resumptions: Option<u8>,
    pub shared_limits: Option<bool>,
    pub account_kind: Option<ConfiguredAccount>,
    pub heartbeat_interval: Option<DurationValue>,

    pub connect_timeout: Option<DurationValue>,
    pub first_byte_timeout: Option<DurationValue>,
    pub stream_idle_timeout: Option<DurationValue>,
    pub stream_progress_timeout: Option<DurationValue>,
    pub reply_timeout: Option<DurationValue>,
    pub request_timeout: Option<DurationValue>,
    pub dead_path_timeout: Option<DurationValue>,
    pub stdin_timeout: Option<DurationValue>,

    pub max_output_tokens: Option<NonZeroU32>,
    pub escalated_output_tokens: Option<NonZeroU32>,
    pub whole_output_tokens: Option<NonZeroU32>,
    pub min_output_tokens: Option<NonZeroU32>,
    pub output_continuations: Option<u8>,
    pub max_thinking_tokens: Option<u32>,

    pub bash_timeout: Option<DurationValue>,
    pub bash_max_timeout: Option<DurationValue>,
    pub background_lifetime: Option<DurationValue>,
    pub background_wait: Option<DurationValue>,
    pub web_fetch_timeout: Option<DurationValue>,
    pub web_fetch_private_hosts: NameList,
    pub max_agent_depth: Option<u8>,
    pub max_live_agents: Option<NonZeroU16>,
    pub max_agents: Option<u32>,
    pub max_tool_result_chars: Option<NonZeroU32>,
    pub sandbox: FileSandbox,
    pub child_env: Option<ChildEnv>,
    pub on_denied: Option<OnDenied>,
    pub cleanup_period_days: Option<u32>,
    pub pass_env: NameList,

    /// Unknown keys, checked by name after parsing.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FilePermissions {
    pub allow: Vec<String>,
    pub ask: Vec<String>,
    pub deny: Vec<String>,
    pub additional_directories: Vec<PathBuf>,
    pub default_mode: Option<PermissionMode>,
    pub disable_bypass_permissions_mode: Option<String>,
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

/// The sandbox of commands. Some keys of related tools are not supported.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FileSandbox {
    pub mode: Option<SandboxMode>,
    /// Alternative forms of the mode; converted to the mode before files are merged.
    #[serde(rename = "enabled")]
    pub _enabled: Option<bool>,
    #[serde(rename = "failIfUnavailable")]
    pub _fail_if_unavailable: Option<bool>,
    pub filesystem: FileSandboxPaths,
    pub network: FileSandboxNetwork,
    /// The model can never request to run a command outside of the sandbox.
    #[serde(rename = "allowUnsandboxedCommands")]
    pub _unsandboxed: Option<bool>,
    pub auto_allow_bash_if_sandboxed: Option<Value>,
    pub excluded_commands: Option<Value>,
    pub ignore_violations: Option<Value>,
    #[serde(rename = "enableWeakerNestedSandbox")]
    pub weaker_when_nested: Option<Value>,
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FileSandboxPaths {
    pub allow_write: Vec<String>,
    pub deny_write: Vec<String>,
    pub allow_read: Vec<String>,
    pub deny_read: Vec<String>,
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FileSandboxNetwork {
    pub enabled: Option<bool>,
    /// Domains, ports and sockets, which Landlock cannot restrict.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

impl FileSandbox {
    /// Returns the requested keys that have no effect.
    pub(super) fn unsupported(&self) -> Vec<String> {
        let own = [
            ("autoAllowBashIfSandboxed", &self.auto_allow_bash_if_sandboxed),
            ("excludedCommands", &self.excluded_commands),
            ("ignoreViolations", &self.ignore_violations),
            ("enableWeakerNestedSandbox", &self.weaker_when_nested),
        ];
        let own = own.iter().filter_map(|(key, value)| Some((*key, value.as_ref()?)));
        let own = own.filter(|(_, value)| is_meaningful(value)).map(|(key, _)| key.to_owned());
        let network = self.network.others.iter().filter(|(_, value)| is_meaningful(value));
        own.chain(network.map(|(key, _)| format!("network.{key}"))).collect()
    }
}

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FilePrice {
    pub input: f64,
    pub output: f64,
    pub cache_read: Option<f64>,
    pub cache_write: Option<f64>,
}

/// Which failures are waited out without a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UnattendedRetry {
    Off,
    On,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ConfiguredAccount {
    ApiKey,
    Enterprise,
    Subscription,
}

/// A duration: `"90s"`, `"1h30m"`, or a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DurationValue(pub Duration);

impl<'de> Deserialize<'de> for DurationValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = DurationValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<DurationValue, E> {
                let wrong = |why| E::custom(format!("{text:?} {why}"));
                values::duration(text).map(DurationValue).map_err(wrong)
            }
            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<DurationValue, E> {
                self.visit_str(&seconds.to_string())
            }
            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<DurationValue, E> {
                self.visit_str(&seconds.to_string())
            }
            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<DurationValue, E> {
                self.visit_str(&seconds.to_string())
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// Parses variables; numbers and booleans become text.
fn variables<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let values = BTreeMap::<String, VariableText>::deserialize(deserializer)?;
    Ok(values.into_iter().map(|(name, VariableText(text))| (name, text)).collect())
}

struct VariableText(String);

impl<'de> Deserialize<'de> for VariableText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl Visitor<'_> for Scalar {
            type Value = VariableText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, true or false")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<VariableText, E> {
                Ok(VariableText(text.to_owned()))
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<VariableText, E> {
                Ok(VariableText(value.to_string()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<VariableText, E> {
                Ok(VariableText(number.to_string()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<VariableText, E> {
                Ok(VariableText(number.to_string()))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<VariableText, E> {
                Ok(VariableText(number.to_string()))
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

/// Names: a list, or one text with commas between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NameList(pub Vec<String>);

impl<'de> Deserialize<'de> for NameList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = NameList;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name or a list of names")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<NameList, E> {
                Ok(NameList(values::list(&[text])))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<NameList, A::Error> {
                let mut words = Vec::new();
                while let Some(item) = items.next_element::<String>()? {
                    words.push(item);
                }
                Ok(NameList(words))
            }
        }
        deserializer.deserialize_any(Names)
    }
}
