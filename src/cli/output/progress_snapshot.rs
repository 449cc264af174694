//! Records a snapshot of a run's progress, for the result of a run that hangs or panics.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::agent::{AgentTask, JournalHealth, Observer, RunEvent, RunOutcome, RunStats};
use crate::journal::RecordedPrompt;
use crate::recovery::{ErrorClass, Fault, Moment, Money, Phase, StopReason};
use crate::tools::BackgroundTask;

/// The recorded snapshot of a run. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SnapshotRecorder(Arc<Mutex<RecordedSnapshot>>);

#[derive(Debug, Default)]
struct RecordedSnapshot {
    stats: RunStats,
    spent: Money,
    recorded: RecordedPrompt,
    fault: Option<Fault>,
    error_class: Option<ErrorClass>,
    begun: bool,
    cost_before: Money,
    /// Time of the last step.
    now: Moment,
    working: bool,
    warnings: Vec<String>,
    tasks: Vec<BackgroundTask>,
    agents: Vec<AgentTask>,
}

impl SnapshotRecorder {
    /// Adds a warning that was not an event of the run.
    pub fn warn(&self, warning: &str) {
        self.0.lock().warnings.push(warning.to_owned());
    }

    /// Returns every warning so far.
    pub fn warnings(&self) -> Vec<String> {
        self.0.lock().warnings.clone()
    }

    /// Returns true if tools were running at the last event.
    pub fn is_working(&self) -> bool {
        self.0.lock().working
    }

    /// Returns the outcome as far as recorded, `elapsed` after the start. `persists` is true if a
    /// journal was requested; it exists once the init message was observed.
    pub fn outcome(&self, reason: StopReason, persists: bool, elapsed: Duration) -> RunOutcome {
        let snapshot = self.0.lock();
        let mut stats = RunStats { duration: elapsed, ..snapshot.stats.clone() };
        stats.recovery.end(snapshot.now, reason);
        let is_journalled = persists && snapshot.begun;
        RunOutcome {
            fault: snapshot.fault.clone(),
            error_class: snapshot.error_class,
            has_messages: snapshot.begun,
            spent: snapshot.spent,
            cost_before: snapshot.cost_before,
            journal: if is_journalled { JournalHealth::Durable } else { JournalHealth::Off },
            // Work that was still running ends with the run.
            agents: snapshot.agents.iter().map(|task| task.clone().cut()).collect(),
            tasks: snapshot.tasks.iter().map(|task| task.clone().ended_with_run()).collect(),
            ..RunOutcome::new(reason, &snapshot.recorded, stats)
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
            snapshot.fault = fault.as_deref().cloned();
            snapshot.error_class = transition.event.failure().map(|failure| failure.class);
            snapshot.now = transition.at;
            snapshot.recorded.step(transition);
            let turns = snapshot.stats.turns;
            snapshot.stats.recovery.observe(transition, turns);
        } else if let RunEvent::Heartbeat(heartbeat) = event {
            snapshot.spent = snapshot.spent.max(heartbeat.spent.amount);
        } else if let RunEvent::Assistant { message, stop_reason, usage, spent, .. } = event {
            snapshot.spent = snapshot.spent.max(spent.amount);
            snapshot.stats.turns += 1;
            snapshot.stats.usage += *usage;
            snapshot.recorded.reply(&message.content, stop_reason.as_deref());
        } else if let RunEvent::Warning(warning) = event {
            snapshot.warnings.push(warning.clone());
        } else if let RunEvent::Task(task) = event {
            snapshot.tasks.retain(|known| known.id != task.id);
            snapshot.tasks.push(BackgroundTask::clone(task));
        } else if let RunEvent::Agent(task) = event {
            match snapshot.agents.iter_mut().find(|known| known.mark.id == task.mark.id) {
                Some(known) => *known = AgentTask::clone(task),
                None => snapshot.agents.push(AgentTask::clone(task)),
            }
        } else if matches!(event, RunEvent::Denied { .. }) {
            snapshot.stats.tools.denied += 1;
        } else if let RunEvent::Init(init) = event {
            snapshot.begun = true;
            snapshot.cost_before = init.cost_before;
            snapshot.recorded = init.recorded.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::recovery::{CallPurpose, Event, Interrupt, Limits, Run, Transition};

    use super::*;

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
        }
    }
}
