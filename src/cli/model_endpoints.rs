//! The endpoints of a run's models, for the doctor's checks.

use std::time::SystemTime;

use super::assemble;
use super::settings::{ChainEntry, Settings, SettingsSurvey};
use crate::agent::Clock;
use crate::doctor::{ResolvedConfig, ServicePlace};
use crate::model::{self, Credential, ModelService, Secret};
use crate::secrets::KnownSecrets;

/// Returns the first model's endpoint, which is known even if the run cannot be built.
pub(super) fn first_endpoint(survey: &SettingsSurvey, secrets: &KnownSecrets) -> ServicePlace {
    let models = vec![model::resolve_alias(&survey.model).to_owned()];
    probe_target(&survey.endpoint, models, survey.credentials.first().cloned(), secrets)
}

/// Adds the endpoints of the other models, and the models to each.
pub(super) fn add_endpoints(
    known: &mut ResolvedConfig,
    settings: &Settings,
    secrets: &KnownSecrets,
) {
    let chain = &settings.chain;
    let first = known.credentials.first();
    let mut places = Vec::with_capacity(chain.endpoints.len());
    for (index, endpoint) in chain.endpoints.iter().enumerate() {
        let links: Vec<&ChainEntry> =
            chain.links.iter().filter(|link| link.endpoint == index).collect();
        let variable = links.iter().find_map(|link| Some(link.label.split_once('#')?.1));
        let credential = match (&endpoint.credential, variable) {
            (Credential::None, _) => None,
            (Credential::Cloud(_), _) | (_, None) => {
                endpoint.cloud_credential().or_else(|| first.cloned())
            }
            (credential, Some(name)) => {
                let is_bearer = matches!(credential, Credential::Bearer(_));
                let kind = if is_bearer { "bearer token" } else { "API key" };
                let name = name.strip_prefix("bearer:").unwrap_or(name);
                Some((kind, format!("the variable {name}")))
            }
        };
        let models = links.iter().map(|link| link.model.clone()).collect();
        let place = probe_target(endpoint, models, credential, secrets);
        places.push(ServicePlace { is_fallback: index > 0, ..place });
    }
    known.endpoints = places;
}

/// Returns an endpoint for the doctor, which changes nothing: an OAuth login is not renewed, and no
/// command that logs in is run.
fn probe_target(
    at: &ModelService,
    models: Vec<String>,
    credential: Option<(&'static str, String)>,
    secrets: &KnownSecrets,
) -> ServicePlace {
    let mut endpoint = assemble::endpoint(at, Clock::start(1.0));
    endpoint.secrets = secrets.clone();
    if let Credential::Cloud(identity) = &mut endpoint.credential {
        identity.keep_unchanged();
    }
    let mut login_expired = false;
    if let Credential::OAuth { login: Some(login), .. } = &at.credential {
        login_expired =
            login.access.is_none() || login.expires.is_some_and(|end| end < SystemTime::now());
        let token = login.access.as_ref().map_or("", Secret::reveal);
        endpoint.credential = match token {
            "" => Credential::None,
            token => Credential::Bearer(Secret::new(token)),
        };
    }
    ServicePlace { endpoint, models, credential, login_expired, is_fallback: false }
}
