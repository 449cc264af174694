//! Determines the state of a task from its files.

use std::fs;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::Value;

use crate::recovery::{Money, Spending};
use crate::types::exit_code;

use super::folder::{BatchFolder, TaskFolder};
use super::plan::BatchPlan;

/// Maximum age of the heartbeat file of a living worker on another host. Workers touch the file at
/// least every 30 s.
const HEARTBEAT_MAX: Duration = Duration::from_secs(90);

/// Time without activity after which the worker of a task counts as abandoned. A worker shows no
/// activity while it clones a repository.
pub const SILENCE_MAX: Duration = Duration::from_mins(30);

/// Error classes after which fewer tasks run in parallel.
const THROTTLING: [&str; 3] = ["rate_limit", "server_overload", "repeated_529"];

/// The state of a task.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumIter, strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum TaskState {
    /// It succeeded.
    Done,
    /// It failed, and another attempt would not help.
    Failed,
    /// A worker is working on it.
    Running,
    /// It was begun and has no final result. It can be resumed.
    Unfinished,
    /// It waits in the queue of an engine.
    Submitted,
    /// It was not begun.
    Missing,
}

impl TaskState {
    /// True if the task has its final result.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

/// The content of a result file.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskOutcome {
    pub exit_code: u8,
    /// The complete result object.
    pub result: Value,
}

impl TaskOutcome {
    /// Parses a result. `None`: the text is not a result object with an exit code.
    pub fn parse(text: &str) -> Option<Self> {
        let result: Value = serde_json::from_str(text).ok()?;
        let exit_code = u8::try_from(result.get("exit_code")?.as_u64()?).ok()?;
        Some(Self { exit_code, result })
    }

    /// Reads the result of a task. `None`: the file is missing or incomplete.
    pub fn read(folder: &TaskFolder) -> Option<Self> {
        Self::parse(&fs::read_to_string(folder.result()).ok()?)
    }

    pub fn cost(&self) -> Option<f64> {
        self.result["total_cost_usd"].as_f64()
    }

    /// Returns the cost. It is partial if a price is unknown.
    pub fn spending(&self) -> Spending {
        let amount = self.cost().and_then(Money::from_dollars).unwrap_or_default();
        Spending { amount, is_partial: self.result.get("total_cost_usd") == Some(&Value::Null) }
    }

    pub fn reason(&self) -> Option<&str> {
        self.result["terminal_reason"].as_str()
    }

    /// Returns the first error message of a failed task.
    pub fn error(&self) -> Option<&str> {
        self.result["errors"].get(0)?.as_str()
    }

    /// Returns the number of tool calls that were denied.
    pub fn denied_calls(&self) -> usize {
        self.result["permission_denials"].as_array().map_or(0, Vec::len)
    }

    /// Returns the time from which a retry may succeed, if the result names one.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.result["retry_at"].as_str()?.parse().ok()
    }

    /// True if the model service throttled it.
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

/// True if a run with this exit code may succeed later: a temporary failure, or a signal.
pub fn is_temporary_code(code: u8) -> bool {
    code == exit_code::TEMPORARY || code >= exit_code::SIGHUP
}

/// True if a run with this exit code failed and another attempt would not help.
pub fn is_final_failure(code: u8) -> bool {
    code != exit_code::SUCCESS && !is_temporary_code(code)
}

/// Returns the state of a task and its last result.
pub fn read_state(folder: &TaskFolder) -> (TaskState, Option<TaskOutcome>) {
    let outcome = TaskOutcome::read(folder);
    let last = outcome.as_ref().map(TaskOutcome::state);
    let state = if let Some(last) = last.filter(|last| last.is_final()) {
        last
    } else if folder.is_locked() || outcome.is_none() && is_beating(folder) {
        TaskState::Running
    } else if outcome.is_some() || folder.attempts_begun() > 0 {
        TaskState::Unfinished
    } else {
        TaskState::Missing
    };
    (state, outcome)
}

/// Returns the indexes of the tasks without a final result.
pub fn open_tasks(folder: &BatchFolder, plan: &BatchPlan) -> Vec<usize> {
    let is_open = |index: &usize| !read_state(&folder.task(*index)).0.is_final();
    (0..plan.tasks.len()).filter(is_open).collect()
}

/// True if the worker that holds a task has shown no activity for [`SILENCE_MAX`], as a stopped
/// process does.
pub(super) fn is_abandoned(folder: &TaskFolder) -> bool {
    let signs = [folder.heartbeat(), folder.attempts(), folder.path().to_owned()];
    let last = signs.iter().filter_map(|path| fs::metadata(path).ok()?.modified().ok()).max();
    let age = last.and_then(|last| SystemTime::now().duration_since(last).ok());
    age.is_some_and(|age| age >= SILENCE_MAX)
}

/// Maximum time by which the clock of another host may be ahead.
const CLOCK_AHEAD_MAX: Duration = Duration::from_hours(1);

/// True if the heartbeat file was touched recently. This detects workers on other hosts; one on
/// this host also holds the lock.
fn is_beating(folder: &TaskFolder) -> bool {
    let touched = fs::metadata(folder.heartbeat()).and_then(|facts| facts.modified());
    let age = touched.map(|touched| match SystemTime::now().duration_since(touched) {
        Ok(age) => age,
        // The clock of the other host may be ahead.
        Err(ahead) => ahead.duration().saturating_sub(CLOCK_AHEAD_MAX),
    });
    age.is_ok_and(|age| age < HEARTBEAT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::AttemptRecord;

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

    #[tokio::test]
    async fn the_files_of_a_task_show_its_state() {
        let scratch = tempfile::tempdir().expect("a scratch folder");
        let folder = BatchFolder::new(scratch.path().join("b")).task(3);
        assert_eq!(read_state(&folder).0, TaskState::Missing);
        folder.create().expect("a new folder");
        assert_eq!(read_state(&folder).0, TaskState::Missing);
        let lock = folder.lock(Duration::ZERO).await.expect("a lock").expect("it is free");
        assert_eq!(read_state(&folder).0, TaskState::Running);
        drop(lock);
        let attempt = AttemptRecord { at: String::new(), pid: 1, exit_code: None };
        fs::write(folder.attempts(), "{\"at\":").expect("it can be written");
        assert_eq!(read_state(&folder).0, TaskState::Missing, "a torn line is not an attempt");
        folder.record(&attempt).expect("it can be written");
        assert_eq!(read_state(&folder).0, TaskState::Unfinished);
        fs::write(folder.heartbeat(), "").expect("it can be written");
        let heartbeat = fs::File::options().write(true).open(folder.heartbeat());
        let heartbeat = heartbeat.expect("it can be written");
        let minutes = Duration::from_mins(5);
        for (touched, state) in [
            (SystemTime::now() - minutes, TaskState::Unfinished),
            (SystemTime::now() + minutes, TaskState::Running),
            (SystemTime::now(), TaskState::Running),
        ] {
            heartbeat.set_modified(touched).expect("it can be set");
            assert_eq!(read_state(&folder).0, state, "on another host");
        }
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
