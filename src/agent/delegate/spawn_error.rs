//! Errors of starting a sub-agent.

use thiserror::Error;

use crate::tools::SubagentToolsError;

/// The reason that a sub-agent was not started, worded for the model that called it.
#[derive(Debug, Error)]
pub(super) enum SpawnError {
    #[error("there is no agent {name:?}; there are: {}", .known.join(", "))]
    UnknownAgent { name: String, known: Vec<String> },
    #[error(
        "agents may be nested {limit} deep, and this one is at the limit: do the work yourself"
    )]
    TooDeep { limit: u8 },
    #[error(
        "a session may start {limit} agents, and all of them were started: do the work yourself"
    )]
    TooMany { limit: u32 },
    #[error(transparent)]
    Model(#[from] UnusableModel),
    #[error(
        "no price is known for the model {model:?}, so no budget can be kept with it: leave the \
         model out"
    )]
    NoPrice { model: String },
    #[error(
        "the run does not wait for an agent in the background, so it cannot stop the others of its \
         reply: leave out on_failure \"cancel_siblings\", or set run_in_background to false"
    )]
    CancelsFromBackground,
    #[error(transparent)]
    Tools(#[from] SubagentToolsError),
}

/// The reason that a model cannot be used.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct UnusableModel(#[from] pub Box<dyn std::error::Error + Send + Sync>);
