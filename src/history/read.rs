//! Reads the history of a session from its files.

use std::io;
use std::path::Path;

use crate::journal::{JournalLines, SessionFile, subagent_files};

use super::builder::{HistoryBuilder, HistoryContents};
use super::session::{AgentHistory, SessionHistory, UnreadableLine};

/// Reads a session with its sub-agents, without locking it. Damaged lines are listed in the
/// history, not returned as errors.
///
/// # Errors
/// The session's file cannot be read.
pub fn read_history(file: &SessionFile, contents: HistoryContents) -> io::Result<SessionHistory> {
    let of_agents = match contents {
        // A sub-agent's history is part of the turn that started it.
        HistoryContents::Last(_) => HistoryContents::All,
        contents @ (HistoryContents::All | HistoryContents::WithoutOutputs) => contents,
    };
    // Checked before the file is read: a process that ends in between has recorded its end.
    let is_running = file.is_running();
    let mut history = read_file(file.id.as_str(), &file.path, contents)?;
    history.agents = subagent_files(&file.path)
        .into_iter()
        .map(|(meta, path)| {
            let history = read_file(&meta.agent_id, &path, of_agents).unwrap_or_else(|error| {
                let problem = UnreadableLine { line: 0, what: error.to_string() };
                let id = meta.agent_id.clone();
                SessionHistory { id, problems: vec![problem], ..SessionHistory::default() }
            });
            AgentHistory { meta, history }
        })
        .collect();
    history.is_running = is_running;
    if is_running {
        history.mark_running();
    }
    let agents = history.agents.iter_mut().map(|agent| &mut agent.history);
    agents.for_each(SessionHistory::charge_call_in_flight);
    history.charge_call_in_flight();
    Ok(history)
}

fn read_file(id: &str, path: &Path, contents: HistoryContents) -> io::Result<SessionHistory> {
    let mut builder = HistoryBuilder::new(id).keeping(contents);
    for line in JournalLines::open(path)? {
        builder.apply(line?);
    }
    Ok(builder.finish())
}
