//! Records a snapshot of a run's progress, for the result of a run that hangs or panics.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::agent::{
    AgentTask, JournalHealth, LastFailure, Observer, RunCosts, RunEvent, RunOutcome, RunStats,
};
use crate::journal::{Denial, RecordedPrompt, UndoneCalls};
use crate::recovery::{Moment, Money, Phase, Spending, StopReason};
use crate::tools::BackgroundTask;

/// The recorded snapshot of a run. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SnapshotRecorder(Arc<Mutex<RecordedSnapshot>>);

#[derive(Debug, Default)]
struct RecordedSnapshot {
    stats: RunStats,
    costs: RunCosts,
    recorded: RecordedPrompt,
    failure: Option<LastFailure>,
    begun: bool,
    /// Time of the last step.
    now: Moment,
    working: bool,
    /// The number of times that the command of `--require` was begun.
    checks: u32,
    warnings: Vec<String>,
    tasks: Vec<BackgroundTask>,
    agents: Vec<AgentTask>,
}

impl SnapshotRecorder {
    /// Returns every warning so far.
    pub fn warnings(&self) -> Vec<String> {
        self.0.lock().warnings.clone()
    }

    /// Returns true if tools were running at the last event.
    pub fn is_working(&self) -> bool {
        self.0.lock().working
    }

    /// Returns the number of times that the command of `--require` was begun, and whether the last
    /// time has passed.
    pub fn checks(&self) -> (u32, bool) {
        let snapshot = self.0.lock();
        let (ended, passed) = snapshot.recorded.checks();
        (ended.max(snapshot.checks), passed && ended >= snapshot.checks)
    }

    /// Returns the outcome as far as recorded, `elapsed` after the start. `persists` is true if a
    /// journal was requested; it exists once the init message was observed.
    pub fn outcome(&self, reason: StopReason, persists: bool, elapsed: Duration) -> RunOutcome {
        let snapshot = self.0.lock();
        let recorded = &snapshot.recorded;
        let mut stats = RunStats {
            duration: elapsed,
            tools: recorded.tools_with_denials(),
            denials: recorded.denials().to_vec(),
            ..snapshot.stats.clone()
        };
        stats.recovery.end(snapshot.now, reason);
        let is_journalled = persists && snapshot.begun;
        RunOutcome {
            failure: snapshot.failure.clone(),
            has_messages: snapshot.begun,
            costs: snapshot.costs,
            journal: if is_journalled { JournalHealth::Durable } else { JournalHealth::Off },
            // Work that was still running ends with the run.
            agents: snapshot.agents.iter().map(|task| task.clone().cut()).collect(),
            tasks: snapshot.tasks.iter().map(|task| task.clone().ended_with_run()).collect(),
            ..RunOutcome::new(reason, recorded, stats)
        }
    }
}

impl Observer for SnapshotRecorder {
    fn observe(&mut self, event: &RunEvent) {
        let mut snapshot = self.0.lock();
        if let RunEvent::Step { transition, fault } = event {
            let phase = transition.next.phase;
            snapshot.working =
                phase.is_at_work() || matches!(phase, Phase::Stopped(StopReason::AbortedTools(_)));
            let failed = transition.event.failure().zip(fault.as_deref().cloned());
            snapshot.failure = failed.map(|(failure, fault)| LastFailure {
                fault,
                class: failure.class,
                retry_at: None,
            });
            snapshot.now = transition.at;
            snapshot.recorded.step(transition);
            if phase == Phase::RunningRequirement {
                snapshot.checks = snapshot.recorded.checks().0 + 1;
            }
            let turns = snapshot.stats.turns;
            snapshot.stats.recovery.observe(transition, turns);
        } else if let RunEvent::Heartbeat(heartbeat) = event {
            snapshot.costs.spent = at_least(snapshot.costs.spent.amount, heartbeat.spent);
        } else if let RunEvent::Assistant { message, stop_reason, usage, spent, .. } = event {
            snapshot.costs.spent = at_least(snapshot.costs.spent.amount, *spent);
            snapshot.stats.turns += 1;
            snapshot.stats.usage += *usage;
            snapshot.recorded.reply(&message.content, stop_reason.as_deref());
        } else if let RunEvent::User { message, .. } = event {
            snapshot.recorded.add_user_message(&message.content, None);
        } else if let RunEvent::Warning(warning) = event {
            snapshot.warnings.push(warning.clone());
        } else if let RunEvent::Task(task) = event {
            snapshot.tasks.retain(|known| known.id != task.id);
            snapshot.tasks.push(BackgroundTask::clone(task));
        } else if let RunEvent::Agent(task) = event {
            match snapshot.agents.iter_mut().find(|known| known.identity.id == task.identity.id) {
                Some(known) => *known = AgentTask::clone(task),
                None => snapshot.agents.push(AgentTask::clone(task)),
            }
        } else if let RunEvent::Denied(denial) = event {
            let denied = vec![Denial::clone(denial)];
            snapshot.recorded.undone(&UndoneCalls { denied, ..UndoneCalls::default() });
        } else if let RunEvent::OfAgent { event, .. } = event
            && let RunEvent::Denied(denial) = &**event
        {
            let of_agents = vec![Denial::clone(denial)];
            snapshot.recorded.undone(&UndoneCalls { of_agents, ..UndoneCalls::default() });
        } else if let RunEvent::Init(init) = event {
            snapshot.begun = true;
            snapshot.costs.before = init.cost_before;
            snapshot.recorded = init.recorded.clone();
        }
    }
}

/// Returns the spending that was reported last. It never decreases.
fn at_least(before: Money, spent: Spending) -> Spending {
    Spending { amount: spent.amount.max(before), ..spent }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::recovery::{CallPurpose, Event, Interrupt, Limits, Run, Transition};
    use crate::transcript::{Block, Message, Usage};

    use super::*;

    #[test]
    fn the_snapshot_reports_an_unknown_cost_and_calls_that_were_denied() {
        let mut snapshots = SnapshotRecorder::default();
        let (tool, tool_input) = ("Bash".to_owned(), json!({ "command": "git push" }));
        let call = Block::call("toolu_1", &tool, tool_input.clone());
        snapshots.observe(&RunEvent::Assistant {
            message: Arc::new(Message::assistant(vec![call])),
            ids: Vec::new(),
            id: String::new(),
            model: String::new(),
            stop_reason: Some("tool_use".to_owned()),
            usage: Usage::default(),
            request_id: None,
            spent: Spending { amount: Money::ZERO, is_partial: true },
        });
        let id = "toolu_1".to_owned();
        snapshots.observe(&RunEvent::Denied(Box::new(Denial {
            tool_name: tool,
            tool_use_id: id.clone(),
            tool_input,
            reason: "not allowed".to_owned(),
        })));
        let counts = |snapshots: &SnapshotRecorder| {
            let outcome = snapshots.outcome(StopReason::InternalError, true, Duration::ZERO);
            assert_eq!(outcome.cost(), None);
            let RunStats { tools, denials, .. } = outcome.stats;
            (tools.calls, tools.denied, tools.failed, denials.len())
        };
        assert_eq!(counts(&snapshots), (1, 1, 0, 1), "before its result");
        let result = Block::ToolResult { tool_use_id: id, content: Vec::new(), is_error: true };
        snapshots.observe(&RunEvent::User {
            message: Arc::new(Message::user(vec![result])),
            details: Vec::new(),
            ids: Vec::new(),
        });
        assert_eq!(counts(&snapshots), (1, 1, 0, 1), "after its result");
    }

    /// The recorder agrees with the state machine on whether a hanging run was using tools.
    #[test]
    fn the_snapshot_reports_running_tools_exactly_when_the_state_machine_does() {
        let (limits, at, by) = (Limits::default(), Moment::default(), Interrupt::Sigterm);
        let begun = Run::new(1, &limits).step(at, Event::Begin, &limits).unwrap();
        let phases = [
            Phase::Ready,
            Phase::Estimating(CallPurpose::Reply),
            Phase::Working,
            Phase::RunningStopHooks,
            Phase::RunningRequirement,
            Phase::Awaiting { until: at },
        ];
        for phase in phases {
            let next = Run { phase, ..begun.next };
            let mut snapshots = SnapshotRecorder::default();
            let transition = Transition { next, ..begun };
            snapshots.observe(&RunEvent::Step { transition: Box::new(transition), fault: None });
            let cut = next.step(at, Event::Interrupted(by), &limits).unwrap().next.phase;
            let at_work = cut == Phase::Stopped(StopReason::AbortedTools(by));
            assert_eq!(snapshots.is_working(), at_work, "{phase:?}");
            let checks = u32::from(phase == Phase::RunningRequirement);
            assert_eq!(snapshots.checks(), (checks, false), "{phase:?}");
        }
    }
}
