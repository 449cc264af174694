//! The chain of models, and the endpoint of each.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;

use super::context_windows::ContextWindows;
use crate::cli::usage::UsageError;
use crate::config::Config;
use crate::config::clouds::{CloudPlace, CloudSources};
use crate::config::environment::Variables;
use crate::config::flags::SettingFlags;
use crate::config::model_entry::{KeyVariable, ModelEntry, ModelEntryList};
use crate::config::settings::BASE_URL;
use crate::config::values::InvalidValue;
use crate::model::{
    self, BaseUrl, Credential, ModelService, Secret, ServiceKind, canonical_name, resolve_alias,
};

/// Maximum number of models in a chain: [`ModelChain::endpoint_changes`] has a bit for each step.
const LONGEST: usize = 32;

/// The models in the order in which they are tried, and their endpoints.
#[derive(Clone, Debug)]
pub struct ModelChain {
    /// The primary first. Never empty.
    pub links: Vec<ChainEntry>,
    /// The primary's first. Never empty.
    pub endpoints: Vec<ModelService>,
    /// The variables with the credentials of endpoints other than the primary's.
    pub key_variables: Vec<String>,
    /// Configured context windows of models, those of sub-agents included.
    pub(in crate::cli) windows: ContextWindows,
    /// The entries after the primary, with names in place of aliases.
    pub(super) entries: Vec<ModelEntry>,
}

/// One model of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainEntry {
    /// The model as the user wrote it: a name or an alias.
    pub name: String,
    /// The name of the model that is sent to the service.
    pub model: String,
    /// The name in results and progress lines, and for `--price` and `--context-window`: that of
    /// the model, followed by the address and the variable of the key as entries are written,
    /// unless these are the primary's. Labels are unique in the chain.
    pub label: String,
    /// Index of its endpoint.
    pub endpoint: usize,
    /// In tokens, if configured.
    pub context_window: Option<u32>,
}

impl ChainEntry {
    /// Returns the names under which prices and sizes of this model may be given, closest first.
    /// The empty name stands for every model.
    pub fn keys(&self) -> [&str; 5] {
        let without_key = self.label.split('#').next().unwrap_or_default();
        [&self.label, without_key, &self.name, &self.model, ""]
    }
}

impl ModelChain {
    /// Returns true if the first model can search the web: it is in the price list, and its service
    /// has a search tool. Other models are behind gateways, which do not have the tool.
    pub(in crate::cli) fn can_search_web(&self) -> bool {
        self.links.first().is_some_and(|first| {
            model::is_known(&first.model) && self.endpoints[first.endpoint].kind.has_web_search()
        })
    }

    /// Returns a bit set: bit `i` is set if link `i + 1` is at another host or account than link
    /// `i`, so that failures of one endpoint say nothing about the other.
    pub fn endpoint_changes(&self) -> u32 {
        let endpoint = |link: &ChainEntry| &self.endpoints[link.endpoint];
        let steps = self.links.windows(2).enumerate().take(LONGEST);
        let moves =
            steps.filter(|(_, pair)| is_other_endpoint(endpoint(&pair[0]), endpoint(&pair[1])));
        moves.fold(0, |bits, (step, _)| bits | 1 << step)
    }

    /// Returns true if the credential of some endpoint can be fetched again.
    pub fn can_change_credentials(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.credential.can_change())
    }

    /// Warns about `--price` and `--context-window` of models that are not in the chain.
    pub(super) fn unknown_model_warnings(&self, flags: &SettingFlags) -> Vec<String> {
        let is_known = |name: &str| self.links.iter().any(|link| link.keys().contains(&name));
        let labels: Vec<&str> = self.links.iter().map(|link| link.label.as_str()).collect();
        let values = ["price", "context-window"]
            .into_iter()
            .flat_map(|flag| flags.texts(flag).iter().map(move |value| (flag, value)));
        let named =
            values.filter_map(|(flag, value)| Some((flag, value.rsplit_once('=')?.0.trim())));
        let complain = |(flag, name)| {
            format!(
                "--{flag}: {name:?} is not a model of this run and has no effect; there are {}",
                labels.join(", ")
            )
        };
        named.filter(|(_, name)| !is_known(name)).map(complain).collect()
    }

    /// Returns the secrets of all endpoints.
    pub fn secrets(&self) -> impl Iterator<Item = String> {
        let credentials = self.endpoints.iter().flat_map(|endpoint| endpoint.credential.secrets());
        let headers = self.endpoints.iter().flat_map(|endpoint| &endpoint.extra_headers);
        let headers = headers.filter(|(name, _)| is_secret_header(name));
        // The token after a scheme is a secret by itself, too.
        let headers = headers.flat_map(|(_, value)| {
            let (whole, token) = (value.trim(), value.split_whitespace().next_back());
            [Some(whole), token.filter(|token| *token != whole)].into_iter().flatten()
        });
        let mut secrets: Vec<String> = credentials.chain(headers).map(str::to_owned).collect();
        secrets.extend(
            self.endpoints.iter().flat_map(|endpoint| endpoint.connection.proxies.secrets()),
        );
        secrets.extend(self.endpoints.iter().flat_map(ModelService::login_secrets));
        secrets.into_iter()
    }
}

fn is_other_endpoint(one: &ModelService, other: &ModelService) -> bool {
    origin(&one.base_url) != origin(&other.base_url)
        || one.kind != other.kind
        || one.credential != other.credential
        || one.extra_headers != other.extra_headers
}

fn origin(base_url: &str) -> Option<String> {
    BaseUrl::parse(base_url).ok().map(|address| address.origin())
}

/// Returns true if a header of this name may contain a credential.
pub(super) fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["authorization", "key", "token", "secret", "cookie"].iter().any(|word| name.contains(word))
}

/// The inputs of a model chain.
pub(super) struct ChainSources<'a> {
    pub(super) config: &'a Config,
    /// True if a flag names the entries.
    pub(super) is_flag: bool,
    pub(super) windows: &'a ContextWindows,
    /// The models of the aliases.
    pub(super) aliases: &'a BTreeMap<String, String>,
    pub(super) variables: &'a Variables,
    pub(super) clouds: CloudSources<'a>,
    /// The endpoint of the first model.
    pub(super) primary: ModelService,
}

impl<'a> ChainSources<'a> {
    /// Builds the chain.
    ///
    /// # Errors
    /// The first entry that is invalid, or names a key that is not set.
    pub(super) fn chain(self) -> Result<ModelChain, UsageError> {
        let place =
            if self.is_flag { "--fallback-model" } else { r#"the setting "fallbackModel""# };
        let error = |why: &dyn fmt::Display| UsageError::new(format!("{place}: {why}"));
        let config: &'a Config = self.config;
        let ModelEntryList(entries) = &config.fallback_model;
        if self.is_flag && entries.is_empty() {
            return Err(error(&"it names no model; name one, or use --no-fallback"));
        }
        let mut builder = ChainBuilder::begin(self);
        for entry in entries {
            let link = builder.link(entry).map_err(|why| error(&why))?;
            // A list may contain the primary model, which may be set in another source.
            if !builder.chain.links.iter().any(|known| known.label == link.label) {
                let entry = ModelEntry { model: link.model.clone(), ..entry.clone() };
                builder.chain.entries.push(entry);
                builder.chain.links.push(link);
            }
        }
        let chain = builder.chain;
        if chain.links.len() > LONGEST {
            return Err(error(&format!("a chain has at most {LONGEST} models")));
        }
        Ok(chain)
    }
}

/// A chain that is being built.
struct ChainBuilder<'a> {
    sources: ChainSources<'a>,
    /// Origin of the primary's base URL.
    origin: Option<String>,
    base: Option<String>,
    chain: ModelChain,
}

impl<'a> ChainBuilder<'a> {
    fn begin(sources: ChainSources<'a>) -> Self {
        let address = BaseUrl::parse(&sources.primary.base_url).ok();
        let chain = ModelChain {
            links: Vec::new(),
            endpoints: vec![sources.primary.clone()],
            key_variables: Vec::new(),
            entries: Vec::new(),
            windows: sources.windows.clone(),
        };
        let name = &sources.config.model;
        let mut builder = Self {
            sources,
            origin: address.as_ref().map(BaseUrl::origin),
            base: address.as_ref().map(BaseUrl::base),
            chain,
        };
        let first = builder.named(name, "", 0, None);
        builder.chain.links.push(first);
        builder
    }

    /// Builds the link of an entry, and adds its endpoint if that is new.
    fn link(&mut self, entry: &ModelEntry) -> Result<ChainEntry, InvalidValue> {
        let here = self.base.clone().unwrap_or_default();
        let base = entry.base_url.as_ref().unwrap_or(&here);
        let endpoint = match &entry.cloud {
            Some(cloud) => self.cloud_endpoint(entry, cloud)?,
            None => self.endpoint(entry, base)?,
        };
        let index = self.add_endpoint(endpoint);
        let place = match &entry.cloud {
            Some(cloud) if index != 0 => format!("@{cloud}"),
            None if *base != here => format!("@{base}"),
            Some(_) | None => String::new(),
        };
        let key = entry.key.as_ref().map_or_else(String::new, |key| format!("#{}", key.name()));
        let window = entry.context_window.map(u32::from);
        Ok(self.named(&entry.model, &(place + &key), index, window))
    }

    /// Returns the endpoint of an entry at a cloud, with credentials of its own.
    fn cloud_endpoint(
        &mut self,
        entry: &ModelEntry,
        cloud: &CloudPlace,
    ) -> Result<ModelService, InvalidValue> {
        let about = |why: InvalidValue| InvalidValue::from(format!("{:?}: {why}", entry.model));
        let found =
            self.sources.clouds.endpoint(cloud, entry.base_url.as_deref()).map_err(about)?;
        let credential = match &entry.key {
            Some(key) => of_service(self.credential(key)?, &found.service),
            None => found.credential,
        };
        let extra_headers = entry.headers.clone().into_iter().collect();
        let primary = self.chain.endpoints[0].clone();
        let (kind, base_url) = (found.service, found.base_url);
        Ok(ModelService { kind, base_url, credential, extra_headers, ..primary })
    }

    fn add_endpoint(&mut self, endpoint: ModelService) -> usize {
        let known = self.chain.endpoints.iter().position(|known| same(known, &endpoint));
        known.unwrap_or_else(|| {
            self.chain.endpoints.push(endpoint);
            self.chain.endpoints.len() - 1
        })
    }

    fn named(&self, name: &str, place: &str, endpoint: usize, window: Option<u32>) -> ChainEntry {
        let name = name.trim();
        let alias = name.to_ascii_lowercase();
        let stands_for = self.sources.aliases.get(&alias).map_or(name, String::as_str);
        let model = resolve_alias(stands_for);
        let service = |index: usize| &self.chain.endpoints[index].kind;
        // Aliases may stand for names that only the primary's cloud knows.
        let is_foreign = stands_for != name && service(endpoint) != service(0);
        let model = if is_foreign { canonical_name(model).into_owned() } else { model.to_owned() };
        let label = model.clone() + place;
        let mut link =
            ChainEntry { name: name.to_owned(), model, label, endpoint, context_window: None };
        link.context_window = self.chain.windows.of_entry(&link.keys(), window);
        link
    }

    /// Returns the endpoint of an entry. The primary's credentials and headers go to the primary's
    /// own origin and nowhere else.
    fn endpoint(&mut self, entry: &ModelEntry, base: &str) -> Result<ModelService, InvalidValue> {
        let primary = &self.chain.endpoints[0];
        // The identity of a cloud is not used for a gateway at the same address.
        let at_cloud = primary.kind.is_cloud();
        let home = match entry.base_url {
            Some(_) => origin(base) == self.origin && !at_cloud,
            None => true,
        };
        let base_url = match &entry.base_url {
            Some(_) if Some(base) != self.base.as_deref() || at_cloud => base.to_owned(),
            Some(_) | None => primary.base_url.clone(),
        };
        let mut headers = if home { primary.extra_headers.clone() } else { Vec::new() };
        let credential = match &entry.key {
            Some(key) => {
                headers.retain(|(name, _)| !is_secret_header(name));
                let service = primary.kind.clone();
                let credential = self.credential(key)?;
                if home { of_service(credential, &service) } else { credential }
            }
            None if home => primary.credential.clone(),
            None if origin(base) == origin(BASE_URL) => {
                return Err(format!(
                    "{:?}: {base} needs a key; name the variable that holds it, as in \
                     {}@{base}#KEY_VARIABLE",
                    entry.model, entry.model
                )
                .into());
            }
            None => Credential::None,
        };
        headers.extend(entry.headers.clone());
        let primary = self.chain.endpoints[0].clone();
        let kind = if home { primary.kind.clone() } else { ServiceKind::Messages };
        Ok(ModelService { kind, base_url, credential, extra_headers: headers, ..primary })
    }

    /// Returns the credential in a variable.
    fn credential(&mut self, key: &KeyVariable) -> Result<Credential, InvalidValue> {
        let value = self.sources.variables.get(OsStr::new(key.name()));
        let secret = value.and_then(|value| value.to_str()).map(str::trim).unwrap_or_default();
        if secret.is_empty() {
            return Err(format!(
                "the variable {} must contain a key, but is not set, is empty or is not valid UTF-8; set it",
                key.shown()
            )
            .into());
        }
        let name = key.name().to_owned();
        if !self.chain.key_variables.contains(&name) {
            self.chain.key_variables.push(name);
        }
        Ok(match key {
            KeyVariable::ApiKey(_) => Credential::ApiKey(Secret::new(secret)),
            KeyVariable::Bearer(_) => Credential::Bearer(Secret::new(secret)),
        })
    }
}

/// Converts a key for the service: Bedrock and Vertex AI take bearer tokens only.
fn of_service(credential: Credential, service: &ServiceKind) -> Credential {
    match (credential, service) {
        (Credential::ApiKey(key), ServiceKind::Foundry { .. }) => Credential::FoundryKey(key),
        (Credential::ApiKey(key), ServiceKind::Bedrock { .. } | ServiceKind::Vertex { .. }) => {
            Credential::Bearer(key)
        }
        (credential, _) => credential,
    }
}

/// Returns true if one client can serve both endpoints.
fn same(one: &ModelService, other: &ModelService) -> bool {
    one.base_url == other.base_url && !is_other_endpoint(one, other)
}
