//! The contract of a session: the limits, acceptance checks and permission rules that it was
//! started with, and that apply when it is resumed.
//!
//! In a resumed session, managed files outrank flags, flags (`--settings` among them) outrank the
//! contract, and the contract outranks the environment and the settings files. Files can only add
//! prohibitions. Permissions apply only in the working directory that they were given in.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Settings;
use super::chain::is_secret_header;
use crate::cli::args::RunArgs;
use crate::cli::usage::UsageError;
use crate::config::fold::Fold;
use crate::config::model_entry::ModelEntry;
use crate::config::{KeptAs, registry};
use crate::hooks::HookEvent;
use crate::journal::{Contract, Terms};
use crate::messages::ContractChange;
use crate::recovery::NewDemands;
use crate::secrets::REDACTED;
use crate::tools::{DomainLists, Egress};
use crate::types::{PermissionMode, PermissionPrompt};

/// Version of the terms. A higher one is rejected.
const VERSION: u32 = 1;

/// The key of the permission mode.
const MODE: &str = "permissions.defaultMode";

/// The limits of one query of an agent SDK.
const LIMITS_OF_QUERY: [&str; 4] = ["maxTurns", "maxBudgetUsd", "maxDuration", "tokenBudget"];

/// A setting that a session keeps, or a flag without a setting.
#[derive(Clone, Copy)]
struct Term {
    /// The name of the setting, or of the flag.
    name: &'static str,
    kept: KeptAs,
    value: fn(&Settings, &str) -> Value,
    /// Gives the value of a flag, unless the command line has the flag.
    give: fn(&mut RunArgs, &Value),
}

/// The flags without a setting that a session keeps.
const FLAGS: [Term; 4] = [
    Term {
        name: "jsonSchema",
        kept: KeptAs::Demand,
        value: |all, _| all.demands.schema.as_ref().map_or(Value::Null, |it| it.source().clone()),
        give: |args, value| {
            args.acceptance.json_schema.get_or_insert_with(|| value.to_string());
        },
    },
    Term {
        name: "tools",
        kept: KeptAs::Term,
        value: |all, _| json!(all.tools.only),
        give: |args, value| {
            let empty = || vec![String::new()];
            let names = Some(texts(value)).filter(|names| !names.is_empty());
            args.tools.tools.get_or_insert_with(|| names.unwrap_or_else(empty));
        },
    },
    Term {
        name: "permissionPromptTool",
        kept: KeptAs::Permission(None),
        value: |all, _| match &all.tools.prompt_tool {
            Some(PermissionPrompt::Tool(name)) => json!(name),
            // A host requests this again for each process.
            Some(PermissionPrompt::Host) | None => Value::Null,
        },
        give: |args, value| {
            let tool = &mut args.tools.permission_prompt_tool;
            *tool = tool.take().or_else(|| value.as_str().map(str::to_owned));
        },
    },
    Term {
        name: "mcpRequired",
        kept: KeptAs::Term,
        value: |all, _| without_repetitions(json!(all.mcp.required.as_deref().unwrap_or_default())),
        // Applied after everything else has been read.
        give: |_, _| {},
    },
];

/// Returns every term: the rows of the registry that a session keeps, and the flags.
fn terms() -> impl Iterator<Item = Term> {
    let settings = registry::settings().iter().filter_map(|setting| {
        Some(Term { name: setting.key, kept: setting.kept?, value: kept_value, give: |_, _| {} })
    });
    settings.chain(FLAGS)
}

/// Returns the value of a kept setting: that in force, with names in place of aliases, and absolute
/// folders.
fn kept_value(all: &Settings, key: &str) -> Value {
    match key {
        "model" => json!(all.chain.links[0].model),
        "fallbackModel" => all.chain.entries.iter().map(without_secrets).collect(),
        "contextWindow" => windows(all),
        "prices" => prices(all),
        "maxDuration" => json!(all.config.max_duration.map(duration)),
        "requireTimeout" => json!(all.demands.requirement.as_ref().map(|it| duration(it.timeout))),
        "permissions.additionalDirectories" => directories(all),
        "sandbox.network.allowedDomains" => match domains(all, DomainLists::allowed) {
            names if names == json!([]) => Value::Null,
            names => names,
        },
        "sandbox.network.deniedDomains" => domains(all, DomainLists::denied),
        _ => without_repetitions(all.config.value(key)),
    }
}

impl Settings {
    /// Returns the contract of a session that starts or resumes with these settings.
    pub fn contract(&self) -> Contract {
        let term = |term: Term| (term.name.to_owned(), (term.value)(self, term.name));
        let terms = terms().map(term).collect();
        Contract {
            version: VERSION,
            terms,
            redacted: Vec::new(),
            flags: self.given.names_without_setting(),
            has_guards: self.has_guards_of_flag(),
            folder: None,
        }
    }

    /// Returns true if `--settings` has hooks that decide on tool calls.
    fn has_guards_of_flag(&self) -> bool {
        // The source of JSON in a flag is the flag.
        let is_of_flag = |source: &str| {
            source == "--settings" || self.given.settings().any(|file| file == source)
        };
        let mut guards = self.hooks.iter().filter(|hook| hook.event == HookEvent::PreToolUse);
        guards.any(|hook| is_of_flag(&hook.source))
    }

    /// Returns the terms of this run that differ from the contract that the session was started
    /// with.
    pub fn contract_changes(&self) -> Vec<ContractChange> {
        let kept = self.terms.contract.as_ref();
        kept.map_or_else(Vec::new, |kept| self.changes_of(&kept.original))
    }

    /// Returns the demands of this run that the session's last process did not make in this form.
    /// Both are false for a session without a contract, whose answers outlast did not accept.
    pub fn new_demands(&self) -> NewDemands {
        let Some(kept) = &self.terms.contract else { return NewDemands::default() };
        let was = &kept.latest.terms;
        let is_new = |name: &str| {
            let now = terms().find(|term| term.name == name).map(|term| (term.value)(self, name));
            now.is_some_and(|now| !now.is_null() && was.get(name) != Some(&now))
        };
        NewDemands { requirement: is_new("require"), schema: is_new("jsonSchema") }
    }

    fn changes_of(&self, contract: &Contract) -> Vec<ContractChange> {
        let change = |term: Term| {
            let was = contract.terms.get(term.name)?.clone();
            let now = (term.value)(self, term.name);
            // Whether the redacted part differs is unknown.
            let is_unknown = term.kept == KeptAs::Fallbacks && term.is_lost(contract);
            let is_same = was == now || is_unknown;
            (!is_same).then_some(ContractChange { name: term.name, was, now })
        };
        terms().filter_map(change).collect()
    }

    /// Applies the terms that neither files nor flags contain, and warns about the terms that this
    /// command line and the managed files change.
    ///
    /// # Errors
    /// A required term was lost by redaction, or hooks that decide on tool calls are missing.
    pub(super) fn apply(mut self, resumed: ResumedContract<'_>) -> Result<Self, UsageError> {
        let Some(contract) = resumed.latest else { return Ok(self) };
        if let Some(required) = contract.terms.get("mcpRequired") {
            self.mcp.required.get_or_insert_with(|| texts(required));
        }
        for term in terms() {
            self.check_loss(term, resumed)?;
        }
        if contract.has_guards && self.given.settings().next().is_none() {
            return Err(UsageError::new(
                "the session had hooks of --settings that decide on tool calls (PreToolUse); \
                 repeat --settings, or go on without them by --settings '{}'",
            ));
        }
        let given = self.given.names_without_setting();
        let missing = contract.flags.iter().filter(|flag| !given.contains(flag));
        let missing: Vec<&str> = missing.map(String::as_str).collect();
        if !missing.is_empty() {
            self.warnings.push(format!(
                "the session was given {}, which a session does not keep and this command line \
                 does not repeat",
                missing.join(", ")
            ));
        }
        let changes = self.changes_of(contract);
        if !changes.is_empty() {
            let listed: Vec<String> = changes.iter().map(words).collect();
            let listed = listed.join(", ");
            let dropped = |change: &ContractChange| {
                terms().any(|term| term.name == change.name && resumed.term(term).is_none())
            };
            let why = match &contract.folder {
                _ if !changes.iter().any(dropped) => String::new(),
                _ if resumed.gives_options_anew => {
                    "; a host gives demands, limits and permissions again".to_owned()
                }
                Some(folder) => format!(
                    "; its permissions count only in the folder that they were given in, {folder}"
                ),
                None => String::new(),
            };
            self.warnings.push(format!("the contract of the session changes: {listed}{why}"));
        }
        Ok(self)
    }

    /// Checks a term whose value contained a secret, which the journal does not store.
    fn check_loss(&mut self, term: Term, resumed: ResumedContract<'_>) -> Result<(), UsageError> {
        let Some((contract, was)) = resumed.term(term) else { return Ok(()) };
        if !term.is_lost(contract) || *was != (term.value)(self, term.name) {
            return Ok(());
        }
        match term.kept {
            KeptAs::Demand | KeptAs::Prohibition => Err(UsageError::new(format!(
                "the journal has the session's {:?} without the secret in it; give it again, by \
                 its flag or with --settings",
                term.name
            ))),
            KeptAs::Term | KeptAs::IfSet | KeptAs::Permission(_) => {
                self.warnings.push(format!(
                    "the session's {:?} is in force without the secrets in it, which the journal \
                     does not keep",
                    term.name
                ));
                Ok(())
            }
            KeptAs::Fallbacks => Ok(()),
        }
    }
}

impl Term {
    /// Returns true if the value in a contract contained a secret.
    fn is_lost(self, contract: &Contract) -> bool {
        contract.redacted.iter().any(|lost| lost == self.name)
    }

    /// Returns true if the term is a permission with the value that allows least.
    fn is_strictest(self, value: &Value) -> bool {
        let KeptAs::Permission(Some(strictest)) = self.kept else { return false };
        value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned) == strictest
    }

    /// Returns true if the value is an option of one query of an agent SDK, which does not apply to
    /// later queries: a demand, a limit, or a list of permissions. A permission mode is kept,
    /// except `plan` and `bypassPermissions`.
    fn is_option_of_query(self, value: &Value) -> bool {
        match self.kept {
            KeptAs::Demand => true,
            KeptAs::Term => LIMITS_OF_QUERY.contains(&self.name),
            KeptAs::Permission(_) if self.name == MODE => {
                let not_restored = [PermissionMode::Plan, PermissionMode::BypassPermissions];
                not_restored.iter().any(|mode| value.as_str() == Some(mode.name()))
            }
            // Without this limit of access, that of the settings would apply, which may be wider.
            KeptAs::Permission(strictest) => strictest.is_none(),
            KeptAs::IfSet | KeptAs::Fallbacks | KeptAs::Prohibition => false,
        }
    }
}

/// Formats a change for messages.
fn words(change: &ContractChange) -> String {
    let ContractChange { name, was, now } = change;
    format!("{name} was {}, is {}", shown(was), shown(now))
}

/// Formats a value for a message.
fn shown(value: &Value) -> String {
    const CHARS_MAX: usize = 60;
    let text = if value.is_null() { "not set".to_owned() } else { value.to_string() };
    if text.chars().count() <= CHARS_MAX {
        return text;
    }
    text.chars().take(CHARS_MAX).chain("...".chars()).collect()
}

/// The contract of the resumed session, if there is one.
#[derive(Clone, Copy, Default)]
pub(super) struct ResumedContract<'a> {
    latest: Option<&'a Contract>,
    /// The contract whose permissions apply.
    here: Option<&'a Contract>,
    /// True if a host resumes the session in another process. Options of an SDK are those of one
    /// query: the SDK cannot withdraw an earlier option, and expects that it does not apply any
    /// more.
    gives_options_anew: bool,
}

impl<'a> ResumedContract<'a> {
    /// Returns the contract that was last in force.
    ///
    /// # Errors
    /// It was written by a later version of outlast, or is invalid.
    pub(super) fn of(terms: &'a Terms, gives_options_anew: bool) -> Result<Self, UsageError> {
        let kept = terms.contract.as_ref();
        let resumed = Self {
            latest: kept.map(|kept| &kept.latest),
            here: kept.and_then(|kept| kept.here.as_ref()),
            gives_options_anew,
        };
        let mut contracts = resumed.latest.into_iter().chain(resumed.here);
        if contracts.any(|contract| contract.version > VERSION) {
            return Err(UsageError::new(
                "the session's contract was written by a newer outlast; update outlast",
            ));
        }
        let mut alone = Fold::default();
        resumed.merge_into_files(&mut alone);
        if alone.config().is_err() {
            return Err(UsageError::new(
                "the session's contract makes no sense; start a new session",
            ));
        }
        Ok(resumed)
    }

    pub(super) fn is_there(self) -> bool {
        self.latest.is_some()
    }

    /// Returns the value of a term that applies here, and its contract.
    fn term(self, term: Term) -> Option<(&'a Contract, &'a Value)> {
        let value_in = |contract: &'a Contract| {
            let value = contract.terms.get(term.name)?;
            let is_given_up = self.gives_options_anew && term.is_option_of_query(value);
            (!is_given_up).then_some((contract, value))
        };
        let latest = self.latest.and_then(value_in);
        let KeptAs::Permission(_) = term.kept else { return latest };
        self.here.and_then(value_in).or(latest.filter(|(_, value)| term.is_strictest(value)))
    }

    fn terms(self) -> impl Iterator<Item = (Term, &'a Contract, &'a Value)> {
        terms().filter_map(move |term| {
            let (contract, value) = self.term(term)?;
            Some((term, contract, value))
        })
    }

    /// Merges the contract over the settings files that were read so far.
    pub(super) fn merge_into_files(self, fold: &mut Fold) {
        for (term, contract, value) in self.terms() {
            let Some(setting) = registry::find(term.name) else { continue };
            match term.kept {
                KeptAs::Fallbacks if term.is_lost(contract) => {}
                KeptAs::IfSet if value.is_null() => {}
                KeptAs::Prohibition => fold.prepend(setting, value.clone(), ORIGIN),
                KeptAs::Term
                | KeptAs::IfSet
                | KeptAs::Demand
                | KeptAs::Fallbacks
                | KeptAs::Permission(_) => {
                    if value.is_null() {
                        fold.forget(term.name);
                    } else {
                        fold.replace(setting, value.clone(), ORIGIN);
                    }
                }
            }
        }
    }

    /// Adds the flags of the first command line that have no setting.
    pub(super) fn merge_into_flags(self, args: &RunArgs) -> RunArgs {
        let mut args = args.clone();
        for (term, _, value) in self.terms().filter(|(_, _, value)| !value.is_null()) {
            (term.give)(&mut args, value);
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

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Removes repetitions from a list: files, flags and the contract may contain the same items.
fn without_repetitions(value: Value) -> Value {
    let Value::Array(items) = value else { return value };
    let mut seen: Vec<Value> = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen.into()
}

fn duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

fn directories(all: &Settings) -> Value {
    let absolute = |path: &std::path::PathBuf| all.cwd.join(path).to_string_lossy().into_owned();
    let folders = &all.config.permissions.additional_directories;
    let mut paths: Vec<String> = folders.iter().map(absolute).collect();
    paths.sort_unstable();
    paths.dedup();
    json!(paths)
}

/// Returns a list of domains that is in force.
fn domains(all: &Settings, list: fn(&DomainLists) -> &[String]) -> Value {
    let lists = all.config.sandbox.egress.as_ref().map(Egress::lists);
    without_repetitions(json!(lists.map(list).unwrap_or_default()))
}

/// Serialises a fallback model as in a settings file, without headers that may be secret.
fn without_secrets(entry: &ModelEntry) -> Value {
    let mut entry = entry.clone();
    for (name, value) in &mut entry.headers {
        if is_secret_header(name) {
            REDACTED.clone_into(value);
        }
    }
    entry.to_object()
}

/// Returns the prices in flags and files, and those of the chain by the labels of its models, since
/// an alias may later stand for another model.
fn prices(all: &Settings) -> Value {
    let mut prices = all.config.prices.clone();
    for link in &all.chain.links {
        let configured = link.keys().iter().find_map(|key| all.config.prices.get(*key));
        if let Some(price) = configured {
            prices.insert(link.label.clone(), *price);
        }
    }
    json!(prices)
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
