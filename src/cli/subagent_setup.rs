//! The setup of sub-agents: the facts of the run, and the known models.

use std::sync::Arc;

use crate::agent::{Delegation, ModelLookup, UnusableModel};
use crate::model::resolve_alias;

use super::memory::Memory;
use super::model_facts::prices;
use super::settings::Settings;
use super::system::EnvironmentFacts;
use crate::config::environment::{PLANNING_ALIAS, planning_model};

/// The variable that names the model of all sub-agents; outranks calls and definitions.
const MODEL: &str = "CLAUDE_CODE_SUBAGENT_MODEL";

/// Builds the setup of a run's sub-agents.
pub(super) fn subagent_setup(
    settings: &Settings,
    facts: &EnvironmentFacts<'_>,
    memory: &Memory,
) -> Delegation {
    let model = text(settings, MODEL);
    let words = memory.prompt().unwrap_or_default();
    let more = settings.subagent_prompt.as_deref().unwrap_or_default();
    let parts = [facts.text().trim(), words.trim_end(), more.trim()].map(ToOwned::to_owned);
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Delegation {
        limits: settings.config.agents,
        facts: parts.join("\n"),
        model,
        models: models(settings),
        ..Delegation::default()
    }
}

fn text(settings: &Settings, name: &str) -> Option<String> {
    let value = settings.variables.get(std::ffi::OsStr::new(name))?.to_str()?.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

/// Models by name or alias, with the user's own aliases, prices and sizes.
fn models(settings: &Settings) -> ModelLookup {
    let own_name = |alias: &str| {
        let variable = format!("ANTHROPIC_DEFAULT_{}_MODEL", alias.to_uppercase());
        text(settings, &variable).map(|name| (alias.to_owned(), name))
    };
    let mut aliases: Vec<(String, String)> =
        ["opus", "sonnet", "haiku"].iter().filter_map(|alias| own_name(alias)).collect();
    let planning = planning_model(settings.config.permissions.mode);
    let own = aliases.iter().find(|(alias, _)| alias == planning);
    let planning = own.map_or(planning, |(_, model)| model).to_owned();
    aliases.push((PLANNING_ALIAS.to_owned(), planning));
    let (known, windows) = (settings.config.prices.clone(), settings.chain.windows.clone());
    Arc::new(move |name: &str| {
        let name = name.trim();
        let own_one = aliases.iter().find(|(alias, _)| alias == name);
        let model = resolve_alias(own_one.map_or(name, |(_, full)| full));
        // The empty name stands for all models without an entry of their own, as in the model
        // chain.
        let names = [name, model, ""];
        let mut facts = crate::model::model_facts(model);
        if let Some(window) = windows.of_model(&names) {
            facts = facts.with_context_window(window);
        }
        if let Some(own) = names.iter().find_map(|name| known.get(*name)) {
            facts.prices = Some(prices(own).map_err(|error| UnusableModel(error.to_string()))?);
        }
        Ok(facts)
    })
}
