//! The state of a task, as its files tell it.

use std::fs;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::Value;

use crate::recovery::{Money, Spending};
use crate::types::exit_code;

use super::folder::TaskFolder;

/// A heartbeat file that is younger shows that a worker on another host is alive: one is touched
/// at least every 30 s.
const HEARTBEAT_MAX: Duration = Duration::from_secs(90);

/// How long the worker of a task may show no sign of life. It shows none while it clones.
pub const SILENCE_MAX: Duration = Duration::from_mins(30);

/// Classes of failures after which fewer tasks should run at a time.
const THROTTLING: [&str; 3] = ["rate_limit", "server_overload", "repeated_529"];

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskState {
    /// It succeeded.
    Done,
    /// It failed for good.
    Failed,
    /// A worker works on it.
    Running,
    /// It was begun, and can be resumed.
    Unfinished,
    /// An engine has it in its queue, and did not begin it.
    Submitted,
    /// It was never begun.
    Missing,
}

impl TaskState {
    pub const ALL: [Self; 6] =
        [Self::Done, Self::Failed, Self::Running, Self::Unfinished, Self::Submitted, Self::Missing];

    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Running => "running",
            Self::Unfinished => "unfinished",
            Self::Submitted => "submitted",
            Self::Missing => "missing",
        }
    }
}

/// What a result file says.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskOutcome {
    pub exit_code: u8,
    /// The whole object.
    pub result: Value,
}

impl TaskOutcome {
    /// Reads a result. `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let result: Value = serde_json::from_str(text).ok()?;
        let exit_code = u8::try_from(result.get("exit_code")?.as_u64()?).ok()?;
        Some(Self { exit_code, result })
    }

    /// Reads the result of a task. `None`: there is none that is whole.
    pub fn read(folder: &TaskFolder) -> Option<Self> {
        Self::parse(&fs::read_to_string(folder.result()).ok()?)
    }

    pub fn cost(&self) -> Option<f64> {
        self.result["total_cost_usd"].as_f64()
    }

    /// What it cost, as far as prices are known.
    pub fn spending(&self) -> Spending {
        let amount = self.cost().and_then(Money::from_dollars).unwrap_or_default();
        Spending { amount, is_partial: self.result.get("total_cost_usd") == Some(&Value::Null) }
    }

    pub fn reason(&self) -> Option<&str> {
        self.result["terminal_reason"].as_str()
    }

    /// The first line of why it failed.
    pub fn error(&self) -> Option<&str> {
        self.result["errors"].get(0)?.as_str()
    }

    /// How many calls of tools were denied.
    pub fn denied_calls(&self) -> usize {
        self.result["permission_denials"].as_array().map_or(0, Vec::len)
    }

    /// When the same may work again, as far as the result says.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.result["retry_at"].as_str()?.parse().ok()
    }

    /// Whether the service throttled it.
    pub fn was_throttled(&self) -> bool {
        let last = self.result["api_error_class"].as_str();
        let retried = self.result["recovery"]["retries_by_class"].as_object();
        let retried = retried
            .is_some_and(|classes| THROTTLING.iter().any(|class| classes.contains_key(*class)));
        retried || last.is_some_and(|class| THROTTLING.contains(&class))
    }

    pub fn state(&self) -> TaskState {
        match self.exit_code {
            exit_code::SUCCESS => TaskState::Done,
            code if is_final_failure(code) => TaskState::Failed,
            _ => TaskState::Unfinished,
        }
    }
}

/// Whether the same run may succeed later: a temporary failure, or a signal.
pub fn is_temporary_code(code: u8) -> bool {
    code == exit_code::TEMPORARY || code >= exit_code::SIGHUP
}

/// Whether a run that ended so does not get better by trying it again.
pub fn is_final_failure(code: u8) -> bool {
    code != exit_code::SUCCESS && !is_temporary_code(code)
}

/// Returns the state of a task and its last result.
pub fn read_state(folder: &TaskFolder) -> (TaskState, Option<TaskOutcome>) {
    let outcome = TaskOutcome::read(folder);
    let state = outcome.as_ref().map(TaskOutcome::state);
    let state = match state {
        Some(state @ (TaskState::Done | TaskState::Failed)) => state,
        Some(
            TaskState::Running | TaskState::Unfinished | TaskState::Submitted | TaskState::Missing,
        )
        | None => {
            if folder.is_locked() || outcome.is_none() && is_beating(folder) {
                TaskState::Running
            } else if outcome.is_some() || folder.attempts_begun() > 0 {
                TaskState::Unfinished
            } else {
                TaskState::Missing
            }
        }
    };
    (state, outcome)
}

/// Whether the worker that holds a task has shown no sign of life for so long that nothing more is
/// expected of it, as if it was stopped.
pub(super) fn is_abandoned(folder: &TaskFolder) -> bool {
    let signs = [folder.heartbeat(), folder.attempts(), folder.path().to_owned()];
    let last = signs.iter().filter_map(|path| fs::metadata(path).ok()?.modified().ok()).max();
    let age = last.and_then(|last| SystemTime::now().duration_since(last).ok());
    age.is_some_and(|age| age >= SILENCE_MAX)
}

/// Whether the heartbeat file was touched lately. A worker of this host would hold the lock too, so
/// this is about other hosts.
fn is_beating(folder: &TaskFolder) -> bool {
    let touched = fs::metadata(folder.heartbeat()).and_then(|facts| facts.modified());
    let age = touched.ok().and_then(|touched| SystemTime::now().duration_since(touched).ok());
    age.is_some_and(|age| age < HEARTBEAT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{AttemptRecord, BatchFolder};

    fn outcome(text: &str) -> TaskOutcome {
        TaskOutcome::parse(text).expect("a result")
    }

    #[test]
    fn every_exit_code_is_final_or_temporary() {
        for (code, _) in exit_code::MEANINGS {
            let state = outcome(&format!("{{\"exit_code\":{code}}}")).state();
            let wanted = match code {
                0 => TaskState::Done,
                1..=9 | 77 => TaskState::Failed,
                75 | 129..=152 => TaskState::Unfinished,
                other => panic!("a new exit code {other}: is it final?"),
            };
            assert_eq!(state, wanted, "{code}");
        }
    }

    #[test]
    fn throttling_is_seen_in_failures_and_in_retries() {
        assert!(outcome(r#"{"exit_code":75,"api_error_class":"rate_limit"}"#).was_throttled());
        let retried = r#"{"exit_code":0,"recovery":{"retries_by_class":{"server_overload":2}}}"#;
        assert!(outcome(retried).was_throttled());
        let other = r#"{"exit_code":0,"recovery":{"retries_by_class":{"server_error":2}}}"#;
        assert!(!outcome(other).was_throttled());
    }

    #[test]
    fn the_files_of_a_task_show_its_state() {
        let scratch = tempfile::tempdir().expect("a scratch folder");
        let folder = BatchFolder::new(scratch.path().join("b")).task(3);
        assert_eq!(read_state(&folder).0, TaskState::Missing);
        folder.create().expect("a new folder");
        assert_eq!(read_state(&folder).0, TaskState::Missing);
        let lock = folder.lock().expect("a lock").expect("it is free");
        assert_eq!(read_state(&folder).0, TaskState::Running);
        drop(lock);
        let attempt = AttemptRecord { at: String::new(), pid: 1, exit_code: None };
        folder.record(&attempt).expect("it can be written");
        assert_eq!(read_state(&folder).0, TaskState::Unfinished);
        fs::write(folder.heartbeat(), "").expect("it can be written");
        assert_eq!(read_state(&folder).0, TaskState::Running, "on another host");
        for (text, state) in [
            ("{\"exit_code\":0}", TaskState::Done),
            ("{\"exit_code\":3}", TaskState::Failed),
            ("{\"exit_code\":143}", TaskState::Unfinished),
            ("{\"exit_code\":75}", TaskState::Unfinished),
        ] {
            fs::write(folder.result(), text).expect("it can be written");
            assert_eq!(read_state(&folder).0, state, "{text}");
        }
        fs::write(folder.result(), "{\"exit_co").expect("it can be written");
        assert_eq!(read_state(&folder).0, TaskState::Running, "a torn result is none");
    }
}
