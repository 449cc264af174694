//! From what was decided to what runs.

use uuid::Uuid;

use crate::agent::{Clock, Setup};
use crate::model::{Client, ModelFacts, Prices};
use crate::recovery::Ledger;
use crate::tools::Toolbox;
use crate::transcript::Block;

use super::settings::{Price, Settings, Start};
use super::system::{Facts, compose};
use super::usage::UsageError;
use super::values::price_of_one;
use super::wall::Now;

/// What a cache read and a cache write cost, relative to plain input, when nobody says: never
/// less than they really do.
const CACHE_READ: f64 = 1.0;
const CACHE_WRITE: f64 = 2.0;

/// Puts a run together.
///
/// # Errors
/// A budget without a price, or a session that is not there.
pub(super) fn assemble(
    settings: &Settings,
    prompt: &str,
    clock: Clock,
    now: &Now,
) -> Result<Setup, UsageError> {
    let models = settings
        .models
        .iter()
        .map(|name| facts(name, settings))
        .collect::<Result<Vec<_>, UsageError>>()?;
    let facts = Facts::new(
        &settings.cwd,
        &settings.tools.directories,
        now,
        &settings.limits,
        settings.budget,
    );
    let prompt = if prompt.is_empty() { Vec::new() } else { vec![Block::text(prompt)] };
    Ok(Setup {
        session_id: session_id(&settings.session),
        prompt,
        system: compose(&settings.system, &facts),
        cwd: settings.cwd.clone(),
        models,
        client: Client {},
        toolbox: Toolbox {},
        limits: settings.limits,
        ledger: Ledger::new(settings.budget),
        clock,
        seed: Uuid::new_v4().as_u64_pair().0,
        permission_mode: settings.tools.mode.name().to_owned(),
        thinking: settings.thinking,
        heartbeat: settings.limits.heartbeat,
    })
}

/// The id that results and messages carry.
fn session_id(start: &Start) -> String {
    match start {
        Start::New { session_id }
        | Start::Resume { fork: Some(session_id), .. }
        | Start::Resume { session_id, fork: None }
        | Start::Continue { fork: Some(session_id) } => session_id.clone(),
        Start::Continue { fork: None } => Uuid::now_v7().to_string(),
    }
}

/// What is known about a model: its name, and what the user says it costs.
fn facts(name: &str, settings: &Settings) -> Result<ModelFacts, UsageError> {
    let name = settings.aliases.get(name).map_or(name, String::as_str);
    let price = settings.prices.get(name).or_else(|| settings.prices.get(""));
    if settings.budget.is_some() && price.is_none() {
        return Err(UsageError::new(format!(
            "no price is known for the model {name:?}, so no budget can be kept; give one with \
             --price {name}=IN/OUT (US dollars per million tokens), or in the setting \"prices\""
        )));
    }
    Ok(ModelFacts {
        name: name.to_owned(),
        context_window: 200_000,
        max_output: 64_000,
        prices: price.map(prices).transpose()?,
    })
}

fn prices(price: &Price) -> Result<Prices, UsageError> {
    let one = |per_million: f64| {
        price_of_one(per_million).map_err(|why| UsageError::new(format!("a price {why}")))
    };
    Ok(Prices {
        input: one(price.input)?,
        output: one(price.output)?,
        cache_read: one(price.cache_read.unwrap_or(price.input * CACHE_READ))?,
        cache_write: one(price.cache_write.unwrap_or(price.input * CACHE_WRITE))?,
    })
}
