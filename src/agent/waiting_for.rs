//! The work that a run waits for.

use crate::hooks::HookEvent;
use crate::recovery::Pause;

/// The work that a run waits for.
#[derive(Clone, Debug)]
pub enum WaitingFor {
    Retry(Pause),
    /// A credential for the model service: a command that prints a key, or a login that is renewed.
    Credentials,
    Model(String),
    Tool {
        name: String,
        id: String,
    },
    /// The host's answer whether a call of this tool is allowed.
    Permission {
        tool: String,
        id: String,
    },
    /// The host's answer to a question of this MCP server, whose tool is running.
    Elicitation {
        server: String,
    },
    /// The hooks of an event.
    Hook {
        event: HookEvent,
    },
    /// The model is done and background work is not: a description of each command.
    Work {
        running: Vec<String>,
    },
    /// Sub-agents: a description of each.
    Agents {
        running: Vec<String>,
    },
    /// MCP servers that are starting, before the first request.
    Servers {
        names: Vec<String>,
    },
    /// The disk of the journal at this path, before an effect that its records announce.
    Journal {
        path: String,
    },
    /// Calls of other agents whose reservations leave too little for the next one.
    Money,
}
