//! Stops running tasks by their ids, on behalf of a host.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The running tasks that a host can stop. Clones share them: the turns of a session.
#[derive(Clone, Debug, Default)]
pub struct TaskStops(Arc<Mutex<BTreeMap<String, CancellationToken>>>);

/// No task with this id is running.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no task {0:?} is running")]
pub struct NoSuchTask(pub String);

/// A guard that keeps a task among those that can be stopped, until the guard is dropped.
#[derive(Debug)]
#[must_use]
pub struct StoppableTask {
    stops: TaskStops,
    id: String,
}

impl TaskStops {
    /// Adds a task that ends soon after `stop` is cancelled.
    pub fn add(&self, id: &str, stop: &CancellationToken) -> StoppableTask {
        self.0.lock().insert(id.to_owned(), stop.clone());
        StoppableTask { stops: self.clone(), id: id.to_owned() }
    }

    /// Requests a task to stop. Its end is reported to the model like that of any other task.
    pub fn stop(&self, id: &str) -> Result<(), NoSuchTask> {
        let stop = self.0.lock().get(id).cloned();
        stop.ok_or_else(|| NoSuchTask(id.to_owned()))?.cancel();
        Ok(())
    }
}

impl Drop for StoppableTask {
    fn drop(&mut self) {
        self.stops.0.lock().remove(&self.id);
    }
}
