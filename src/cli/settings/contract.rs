//! The contract of a session: the limits, acceptance checks and permission rules that it was
//! started with, and that apply when it is resumed.
//!
//! In a resumed session, managed files outrank flags, flags (`--settings` among them) outrank the
//! contract, and the contract outranks the environment and the settings files. Files can only add
//! prohibitions. Permissions apply only in the working directory that they were given in.

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use super::Settings;
use super::chain::ModelChain;
use crate::cli::args::RunArgs;
use crate::cli::usage::UsageError;
use crate::config::fold::Fold;
use crate::config::model_entry::{KeyVariable, ModelEntry};
use crate::config::models::FilePrice;
use crate::config::registry;
use crate::journal::{Contract, Terms};
use crate::messages::ContractChange;
use crate::process::RootCapabilities;
use crate::recovery::{Moment, Money};
use crate::secrets::REDACTED;
use crate::tools::{Egress, TerminalAccess};
use crate::types::PermissionPrompt;

/// Version of the terms. A higher one is rejected.
const VERSION: u32 = 1;

/// How a term is applied when the session is resumed.
#[derive(Clone, Copy)]
enum Hold {
    /// In place of the values of the settings files and the environment.
    Setting,
    /// Like `Setting`, but without a value the settings files decide.
    SettingIfGiven,
    /// Together with the values of the settings files: both only forbid.
    Prohibition,
    /// In place of its flag, unless the flag is given.
    Flag(fn(&mut RunArgs, &Value)),
    /// After everything else has been read.
    Apart,
}

/// Treatment of a term whose value held a secret, which the journal does not store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// The session is not resumed before the term is given again.
    Refused,
    /// The rest of it is applied, with a warning.
    Warned,
    /// The settings files are read for it again.
    ReadAgain,
}

/// The folders in which a term applies.
#[derive(Clone, Copy)]
enum Reach {
    Everywhere,
    /// In the working directory of the process that recorded it. The value that allows least, if
    /// there is one, counts everywhere.
    OwnFolder(Option<&'static str>),
}

struct Term {
    /// The name of the setting, or of the flag if there is no setting.
    name: &'static str,
    value: fn(&Settings) -> Value,
    hold: Hold,
    loss: Loss,
    reach: Reach,
}

const fn setting(name: &'static str, value: fn(&Settings) -> Value) -> Term {
    Term { name, value, hold: Hold::Setting, loss: Loss::Warned, reach: Reach::Everywhere }
}

const fn permission(name: &'static str, value: fn(&Settings) -> Value) -> Term {
    Term { reach: Reach::OwnFolder(None), ..setting(name, value) }
}

const fn restriction(
    name: &'static str,
    strictest: &'static str,
    value: fn(&Settings) -> Value,
) -> Term {
    Term { reach: Reach::OwnFolder(Some(strictest)), ..setting(name, value) }
}

const fn prohibition(name: &'static str, value: fn(&Settings) -> Value) -> Term {
    Term { hold: Hold::Prohibition, loss: Loss::Refused, ..setting(name, value) }
}

/// Every term.
const TERMS: [Term; 41] = [
    setting("model", |all| json!(all.chain.links[0].model)),
    Term {
        loss: Loss::ReadAgain,
        ..setting("fallbackModel", |all| all.chain.entries.iter().map(fallback).collect())
    },
    setting("fallbackReturn", |all| json!(all.fallback_return)),
    setting("contextWindow", windows),
    setting("prices", prices),
    setting("maxTurns", |all| json!(all.limits.budgets.turns)),
    setting("maxBudgetUsd", |all| json!(all.budget.map(Money::as_dollars))),
    setting("budgetMode", |all| name(&all.budget_mode)),
    setting("maxDuration", max_duration),
    setting("tokenBudget", |all| json!(all.limits.effort)),
    Term { loss: Loss::Refused, ..setting("require", require) },
    setting("requireTimeout", require_timeout),
    setting("requireRetries", |all| json!(all.demands.require_retries)),
    Term {
        hold: Hold::Flag(|args, value| {
            args.acceptance.json_schema.get_or_insert_with(|| value.to_string());
        }),
        loss: Loss::Refused,
        ..setting("jsonSchema", |all| {
            all.demands.schema.as_ref().map_or(Value::Null, |it| it.source().clone())
        })
    },
    setting("schemaTries", |all| json!(all.demands.schema_tries)),
    setting("agent", |all| json!(all.agent)),
    Term {
        hold: Hold::Flag(|args, value| {
            let empty = || vec![String::new()];
            let names = Some(texts(value)).filter(|names| !names.is_empty());
            args.tools.tools.get_or_insert_with(|| names.unwrap_or_else(empty));
        }),
        ..setting("tools", |all| json!(all.tools.only))
    },
    restriction("permissions.defaultMode", "plan", |all| json!(all.tools.mode.name())),
    permission("permissions.allow", |all| list(&all.tools.allow)),
    prohibition("permissions.ask", |all| list(&all.tools.ask)),
    prohibition("permissions.deny", |all| list(&all.tools.deny)),
    permission("permissions.additionalDirectories", directories),
    Term {
        hold: Hold::Flag(|args, value| {
            let tool = &mut args.tools.permission_prompt_tool;
            *tool = tool.take().or_else(|| value.as_str().map(str::to_owned));
        }),
        ..permission("permissionPromptTool", |all| match &all.tools.prompt_tool {
            Some(PermissionPrompt::Tool(name)) => json!(name),
            // A host requests it again for each process.
            Some(PermissionPrompt::Host) | None => Value::Null,
        })
    },
    setting("onDenied", |all| name(&all.tools.on_denied)),
    restriction("sandbox.mode", "read-only", |all| json!(all.tools.sandbox.mode)),
    restriction("sandbox.terminals", "false", |all| {
        json!(all.tools.sandbox.terminals == TerminalAccess::Open)
    }),
    restriction("sandbox.capabilities", "false", |all| {
        json!(all.tools.sandbox.capabilities == RootCapabilities::Kept)
    }),
    restriction("sandbox.network.enabled", "false", |all| json!(!all.tools.sandbox.no_network)),
    Term {
        hold: Hold::SettingIfGiven,
        ..setting("sandbox.network.allowedDomains", |all| {
            let lists = all.tools.sandbox.egress.as_ref().map(Egress::lists);
            lists.filter(|it| !it.allowed().is_empty()).map_or(Value::Null, |it| list(it.allowed()))
        })
    },
    prohibition("sandbox.network.deniedDomains", |all| {
        let egress = all.tools.sandbox.egress.as_ref();
        list(egress.map_or(&[], |egress| egress.lists().denied()))
    }),
    permission("sandbox.filesystem.allowWrite", |all| list(&all.tools.sandbox.allow_write)),
    permission("sandbox.filesystem.allowRead", |all| list(&all.tools.sandbox.allow_read)),
    prohibition("sandbox.filesystem.denyWrite", |all| list(&all.tools.sandbox.deny_write)),
    prohibition("sandbox.filesystem.denyRead", |all| list(&all.tools.sandbox.deny_read)),
    restriction("childEnv", "allowlist", |all| name(&all.tools.child_env)),
    permission("passEnv", |all| list(&all.tools.pass_env)),
    permission("webFetchPrivateHosts", |all| list(&all.tools.web_private_hosts)),
    Term {
        hold: Hold::Apart,
        ..setting("mcpRequired", |all| list(all.mcp.required.as_deref().unwrap_or_default()))
    },
    setting("maxAgentDepth", |all| json!(all.agent_limits.depth)),
    setting("maxLiveAgents", |all| json!(all.agent_limits.live)),
    setting("maxAgents", |all| json!(all.agent_limits.total)),
];

impl Settings {
    /// Returns the contract of a session that starts or resumes with these settings.
    pub fn contract(&self) -> Contract {
        let term = |term: &Term| (term.name.to_owned(), (term.value)(self));
        let terms = TERMS.iter().map(term).collect();
        Contract { version: VERSION, terms, redacted: Vec::new(), folder: None }
    }

    /// Returns the terms of this run that differ from the contract that the session was started
    /// with.
    pub fn contract_changes(&self) -> Vec<ContractChange> {
        let kept = self.terms.contract.as_ref();
        kept.map_or_else(Vec::new, |kept| self.changes_of(&kept.original))
    }

    fn changes_of(&self, contract: &Contract) -> Vec<ContractChange> {
        let change = |term: &Term| {
            let (was, now) = (contract.terms.get(term.name)?.clone(), (term.value)(self));
            // The redacted part is unknown.
            let is_lost = contract.redacted.iter().any(|lost| lost == term.name);
            let is_same = was == now || (is_lost && term.loss == Loss::ReadAgain);
            (!is_same).then_some(ContractChange { name: term.name, was, now })
        };
        TERMS.iter().filter_map(change).collect()
    }

    /// Applies the terms that neither files nor flags carry, and warns about what this command line
    /// and the managed files changed.
    ///
    /// # Errors
    /// A required term was lost by redaction.
    pub(super) fn apply(mut self, held: Held<'_>) -> Result<Self, UsageError> {
        let Some(contract) = held.latest else { return Ok(self) };
        if let Some(required) = contract.terms.get("mcpRequired") {
            self.mcp.required.get_or_insert_with(|| texts(required));
        }
        for term in &TERMS {
            self.check_loss(term, held)?;
        }
        let changes = self.changes_of(contract);
        if !changes.is_empty() {
            let listed: Vec<String> = changes.iter().map(words).collect();
            let listed = listed.join(", ");
            let dropped = |change: &ContractChange| {
                TERMS.iter().any(|term| term.name == change.name && held.term(term).is_none())
            };
            let why = contract.folder.as_ref().filter(|_| changes.iter().any(dropped));
            let why = why.map_or_else(String::new, |folder| {
                format!(
                    "; its permissions count only in the folder that they were given in, {folder}"
                )
            });
            self.warnings.push(format!("the contract of the session changes: {listed}{why}"));
        }
        Ok(self)
    }

    fn check_loss(&mut self, term: &Term, held: Held<'_>) -> Result<(), UsageError> {
        let Some((contract, was)) = held.term(term) else { return Ok(()) };
        let is_lost = contract.redacted.iter().any(|name| name == term.name);
        let is_as_it_was = *was == (term.value)(self);
        match term.loss {
            Loss::Refused if is_lost && is_as_it_was => Err(UsageError::new(format!(
                "the journal has the session's {:?} without the secret in it; give it again, by \
                 its flag or with --settings",
                term.name
            ))),
            Loss::Warned if is_lost && is_as_it_was => {
                self.warnings.push(format!(
                    "the session's {:?} is in force without the secrets in it, which the journal \
                     does not keep",
                    term.name
                ));
                Ok(())
            }
            Loss::Refused | Loss::Warned | Loss::ReadAgain => Ok(()),
        }
    }
}

/// Formats a change for messages.
fn words(change: &ContractChange) -> String {
    let ContractChange { name, was, now } = change;
    format!("{name} was {}, is {}", shown(was), shown(now))
}

/// A value within a line for people.
fn shown(value: &Value) -> String {
    const CHARS_MAX: usize = 60;
    let text = if value.is_null() { "not set".to_owned() } else { value.to_string() };
    if text.chars().count() <= CHARS_MAX {
        return text;
    }
    text.chars().take(CHARS_MAX).chain("...".chars()).collect()
}

/// The contract of the session that is resumed, if it has one.
#[derive(Clone, Copy, Default)]
pub(super) struct Held<'a> {
    latest: Option<&'a Contract>,
    /// The contract whose permissions apply.
    here: Option<&'a Contract>,
}

impl<'a> Held<'a> {
    /// Takes the contract that was in force last.
    ///
    /// # Errors
    /// It was written by a later version of outlast.
    pub(super) fn of(terms: &'a Terms) -> Result<Self, UsageError> {
        let kept = terms.contract.as_ref();
        let held = Self {
            latest: kept.map(|kept| &kept.latest),
            here: kept.and_then(|kept| kept.here.as_ref()),
        };
        let mut contracts = held.latest.into_iter().chain(held.here);
        if contracts.any(|contract| contract.version > VERSION) {
            return Err(UsageError::new(
                "the session's contract was written by a newer outlast; update outlast",
            ));
        }
        let mut alone = Fold::default();
        held.merge_into_files(&mut alone);
        if alone.config().is_err() {
            return Err(UsageError::new(
                "the session's contract makes no sense; start a new session",
            ));
        }
        Ok(held)
    }

    pub(super) fn is_there(self) -> bool {
        self.latest.is_some()
    }

    /// The value of a term that counts here, and the contract that it is from.
    fn term(self, term: &Term) -> Option<(&'a Contract, &'a Value)> {
        let value_in = |contract: &'a Contract| Some((contract, contract.terms.get(term.name)?));
        let latest = self.latest.and_then(value_in);
        match term.reach {
            Reach::Everywhere => latest,
            Reach::OwnFolder(strictest) => {
                let is_strictest = |value: &Value| {
                    let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
                    Some(text.as_str()) == strictest
                };
                let here = self.here.and_then(value_in);
                here.or(latest.filter(|(_, value)| is_strictest(value)))
            }
        }
    }

    fn terms(self) -> impl Iterator<Item = (&'static Term, &'a Contract, &'a Value)> {
        TERMS.iter().filter_map(move |term| {
            let (contract, value) = self.term(term)?;
            Some((term, contract, value))
        })
    }

    /// Lays the contract over the settings files that were read so far.
    pub(super) fn merge_into_files(self, fold: &mut Fold) {
        for (term, contract, value) in self.terms() {
            let Some(setting) = registry::find(term.name) else { continue };
            let is_lost = contract.redacted.iter().any(|lost| lost == term.name);
            match term.hold {
                Hold::Setting if term.loss == Loss::ReadAgain && is_lost => {}
                Hold::Setting if value.is_null() => fold.forget(term.name),
                Hold::SettingIfGiven if value.is_null() => {}
                Hold::Setting | Hold::SettingIfGiven => {
                    fold.replace(setting, value.clone(), ORIGIN);
                }
                Hold::Prohibition => fold.prepend(setting, value.clone(), ORIGIN),
                Hold::Flag(_) | Hold::Apart => {}
            }
        }
    }

    /// Adds the flags of the first command line that have no setting.
    pub(super) fn merge_into_flags(self, args: &RunArgs) -> RunArgs {
        let mut args = args.clone();
        for (term, _, value) in self.terms().filter(|(_, _, value)| !value.is_null()) {
            match term.hold {
                Hold::Flag(give) => give(&mut args, value),
                Hold::Setting | Hold::SettingIfGiven | Hold::Prohibition | Hold::Apart => {}
            }
        }
        args
    }

    /// Returns true if the contract has a value for a setting, so that variables do not set it.
    pub(super) fn holds(self, key: &str) -> bool {
        self.terms().any(|(term, _, _)| term.name == key)
    }
}

/// Origin of the contract's values, for messages.
const ORIGIN: &str = "the session's contract";

fn name(value: &impl ValueEnum) -> Value {
    let value = value.to_possible_value();
    value.map_or(Value::Null, |value| value.get_name().into())
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Removes duplicates: files, flags and the contract may hold the same items.
fn list(items: &[String]) -> Value {
    let mut seen: Vec<&String> = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    json!(seen)
}

fn max_duration(all: &Settings) -> Value {
    let duration = all.limits.deadline.map(|deadline| Moment::default().until(deadline));
    json!(duration.map(|duration| humantime::format_duration(duration).to_string()))
}

fn require(all: &Settings) -> Value {
    json!(all.demands.requirement.as_ref().map(|requirement| &requirement.command))
}

fn require_timeout(all: &Settings) -> Value {
    let timeout = all.demands.requirement.as_ref().map(|requirement| requirement.timeout);
    json!(timeout.map(|timeout| humantime::format_duration(timeout).to_string()))
}

fn directories(all: &Settings) -> Value {
    let absolute = |path: &std::path::PathBuf| all.cwd.join(path).to_string_lossy().into_owned();
    let mut paths: Vec<String> = all.tools.directories.iter().map(absolute).collect();
    paths.sort_unstable();
    list(&paths)
}

/// Serialises a fallback model as in a settings file, without headers that may be secret.
fn fallback(entry: &ModelEntry) -> Value {
    let (kind, key) = match &entry.key {
        None => ("apiKeyEnv", None),
        Some(KeyVariable::ApiKey(name)) => ("apiKeyEnv", Some(name)),
        Some(KeyVariable::Bearer(name)) => ("authTokenEnv", Some(name)),
    };
    let mut object = Map::new();
    object.insert("model".to_owned(), json!(entry.model));
    let mut add = |name: &str, value: Value| {
        if !value.is_null() {
            object.insert(name.to_owned(), value);
        }
    };
    add("service", json!(entry.cloud.as_ref().map(ToString::to_string)));
    add("baseUrl", json!(entry.base_url));
    add(kind, json!(key));
    let header = |(name, value): (&String, &String)| {
        let shown = if ModelChain::is_secret_header(name) { REDACTED } else { value };
        (name.clone(), json!(shown))
    };
    let headers: Map<String, Value> = entry.headers.iter().map(header).collect();
    add("headers", Some(headers).filter(|it| !it.is_empty()).map_or(Value::Null, Value::Object));
    add("contextWindow", json!(entry.context_window));
    Value::Object(object)
}

/// The prices that flags and files name, and those of the chain by the labels of its models: an
/// alias may come to stand for another one.
fn prices(all: &Settings) -> Value {
    let one = |price: &FilePrice| {
        let FilePrice { input, output, cache_read, cache_write } = price;
        let mut object = json!({ "input": input, "output": output });
        for (name, value) in [("cacheRead", cache_read), ("cacheWrite", cache_write)] {
            if let Some(value) = value {
                object[name] = json!(value);
            }
        }
        object
    };
    let mut prices: Map<String, Value> =
        all.prices.iter().map(|(model, price)| (model.clone(), one(price))).collect();
    for link in &all.chain.links {
        let own = link.keys().iter().find_map(|key| all.prices.get(*key));
        if let Some(price) = own {
            prices.insert(link.label.clone(), one(price));
        }
    }
    prices.sort_keys();
    Value::Object(prices)
}

/// Like [`prices`], for context windows.
fn windows(all: &Settings) -> Value {
    let mut sizes: Map<String, Value> = all.chain.windows.all();
    for link in &all.chain.links {
        if let Some(size) = link.context_window {
            sizes.insert(link.label.clone(), json!(size));
        }
    }
    sizes.sort_keys();
    if sizes.is_empty() { Value::Null } else { Value::Object(sizes) }
}
