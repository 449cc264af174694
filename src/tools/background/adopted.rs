//! Sub-agents in the background: somebody else runs them, and they stand in the same list as
//! commands.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::toolbox::Toolbox;
use super::live::Live;
use super::shells::{Entry, Rack, Shells};
use super::task::{BackgroundEnd, BackgroundKind, BackgroundTask};
use super::words;

/// A sub-agent that is to work in the background.
pub struct Adopted {
    /// What the model calls it.
    pub id: String,
    /// The tool call that starts it.
    pub call: String,
    pub kind: String,
    pub description: String,
    /// Ends soon once it is told to stop, by the token that it was made with.
    pub work: Pin<Box<dyn Future<Output = AgentEnded> + Send>>,
    pub stop: CancellationToken,
}

/// How it ended.
pub struct AgentEnded {
    pub completed: bool,
    /// What the model reads about it.
    pub word: String,
}

impl Toolbox {
    /// Takes charge of a sub-agent.
    ///
    /// # Errors
    /// The run is to end.
    pub fn adopt(&self, adopted: Adopted) -> Result<(), String> {
        self.kit.shell.background.adopt(adopted, self.kit.output_limit)
    }
}

impl Shells {
    fn adopt(self: &Arc<Self>, adopted: Adopted, output_limit: usize) -> Result<(), String> {
        let Adopted { id, call, kind, description, work, stop } = adopted;
        let shells = Arc::downgrade(self);
        let mut rack = self.rack();
        if rack.closing.is_some() {
            return Err("the run is to end".to_string());
        }
        let (index, live) = (rack.entries.len(), Arc::new(Live::new(output_limit)));
        let task = BackgroundTask {
            kind: BackgroundKind::Agent,
            id,
            call,
            command: kind,
            description: Some(description),
            end: None,
            took: Duration::ZERO,
            exit_code: None,
            output_bytes: 0,
            output_file: None,
        };
        rack.unseen.push(task.clone());
        let began = Instant::now();
        rack.entries.push(Entry { task, began, live, stop, told: false, word: None });
        while rack.tasks.try_join_next().is_some() {}
        rack.tasks.spawn(async move {
            let ended = work.await;
            if let Some(shells) = shells.upgrade() {
                shells.agent_has_ended(index, ended);
            }
        });
        Ok(())
    }

    fn agent_has_ended(&self, index: usize, ended: AgentEnded) {
        let mut rack = self.rack();
        let closing = rack.closing.is_some();
        let stopped = rack.entries[index].stop.is_cancelled();
        let end = match (ended.completed, stopped) {
            (true, _) => BackgroundEnd::Completed,
            (false, true) if closing => BackgroundEnd::Cut,
            (false, true) => BackgroundEnd::Killed,
            (false, false) => BackgroundEnd::Failed,
        };
        rack.entries[index].live.push(ended.word.as_bytes());
        rack.entries[index].word = Some(ended.word);
        rack.settle(index, end, None, None);
        drop(rack);
        self.ends.send_modify(|ends| *ends += 1);
    }
}

impl Rack {
    /// Those that have ended unknown to the model, and what agents among them said.
    pub(super) fn news(&self) -> String {
        let mut list = String::new();
        for entry in self.entries.iter().filter(|entry| entry.is_news()) {
            let gap = if list.is_empty() { "" } else { "\n" };
            // A string takes all that is written to it.
            let _ = write!(list, "{gap}- {}", words::line(&entry.snapshot()));
            for line in entry.word.iter().flat_map(|word| word.lines()) {
                let _ = write!(list, "\n  {line}");
            }
        }
        list
    }
}
