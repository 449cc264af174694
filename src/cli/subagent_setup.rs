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
    let (facts, memory) = (facts.text(), memory.prompt().unwrap_or_default());
    let more = settings.subagent_prompt.as_deref().unwrap_or_default();
    let mut parts = vec![facts.trim(), memory.trim_end(), more.trim()];
    parts.retain(|part| !part.is_empty());
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
        let own_one = aliases.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name));
        let model = resolve_alias(own_one.map_or(name, |(_, full)| full));
        // The empty name stands for all models without an entry of their own, as in the model
        // chain.
        let names = [name, model, ""];
        let mut facts = crate::model::model_facts(model);
        if let Some(window) = windows.of_model(&names) {
            facts = facts.with_context_window(window);
        }
        if let Some(own) = names.iter().find_map(|name| known.get(*name)) {
            facts.prices = Some(prices(own).map_err(|error| UnusableModel(error.into()))?);
        }
        Ok(facts)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::args;
    use crate::cli::settings;
    use crate::config::environment::Variables;
    use crate::journal::Terms;
    use crate::recovery::Money;

    #[test]
    fn own_facts_of_an_alias_outrank_those_of_its_model_and_of_all_models() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let own = json!({
            "prices": {
                "haiku": { "input": 1, "output": 10 },
                "claude-haiku-5-5": { "input": 1, "output": 20 },
                "claude-opus-5-5": { "input": 1, "output": 30 },
                "": { "input": 1, "output": 40 },
            },
            "contextWindow": {
                "haiku": 10_000, "claude-haiku-5-5": 20_000, "claude-opus-5-5": 30_000, "": 40_000,
            },
        });
        let words = ["run", "--settings", &own.to_string()].map(ToOwned::to_owned);
        let run = args::run_flags(&words).expect("good flags");
        let variables = [("HOME", folder.path().as_os_str()), ("ANTHROPIC_API_KEY", "k".as_ref())];
        let variables: Variables =
            variables.map(|(name, value)| (name.into(), value.into())).into_iter().collect();
        let settings =
            settings::resolve(&run, variables, folder.path().to_owned(), &Terms::default());
        let lookup = models(&settings.expect("good settings"));
        let facts = |name: &str| {
            let facts = lookup(name).expect("usable");
            (facts.context_window, facts.prices.expect("known").rates.output)
        };
        // A price is that of a million tokens.
        let priced = |dollars: u64| Money::from_pico_dollars(dollars * 1_000_000);
        assert_eq!(facts("haiku"), (10_000, priced(10)));
        assert_eq!(facts("claude-haiku-5-5"), (20_000, priced(20)));
        assert_eq!(facts("opus"), (30_000, priced(30)));
        assert_eq!(facts("sonnet"), (40_000, priced(40)));
    }
}
