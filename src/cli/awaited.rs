//! Names what a run waits for.

use crate::agent::WaitingFor;
use crate::recovery::Pause;

/// Names what a wait is for.
pub(super) fn awaited(waiting_for: &WaitingFor) -> String {
    match waiting_for {
        WaitingFor::Retry(pause) => retry(*pause),
        WaitingFor::Credentials => "credentials".to_owned(),
        WaitingFor::Model(model) => model.clone(),
        WaitingFor::Tool { name, .. } => name.clone(),
        WaitingFor::Permission { tool, .. } => format!("permission for {tool}"),
        WaitingFor::Elicitation { server } => format!("an answer for {server}"),
        WaitingFor::Hook { event } => format!("{} hooks", event.name()),
        WaitingFor::Work { .. } => "background commands".to_owned(),
        WaitingFor::Agents { .. } => "agents".to_owned(),
        WaitingFor::Servers { names } => format!("MCP servers ({})", names.join(", ")),
        WaitingFor::Journal { .. } => "the journal's disk".to_owned(),
        WaitingFor::Money => "other agents' calls".to_owned(),
    }
}

/// Names the failure after which a retry waits.
pub(super) fn retry(pause: Pause) -> String {
    if pause.is_for_shared_limit() {
        return "rate limit known on this host".to_owned();
    }
    match pause.of {
        Some(of) => format!("retry {} of {of} after {}", pause.retry, pause.class),
        None => format!("retry {} after {}", pause.retry, pause.class),
    }
}
