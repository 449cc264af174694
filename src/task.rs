//! Spawns tasks of the runtime.
//!
//! tokio is compiled anew for each type of future that is spawned, which takes 2.5 kB. Boxed futures
//! with the same output are one type.

use std::pin::Pin;

use tokio::task::{JoinHandle, JoinSet};

type TaskFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Spawns a task in the current runtime.
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let boxed: TaskFuture<T> = Box::pin(future);
    tokio::spawn(boxed)
}

/// Spawns a task in the current runtime, and adds it to `tasks`.
pub fn spawn_in<T: Send + 'static>(
    tasks: &mut JoinSet<T>,
    future: impl Future<Output = T> + Send + 'static,
) {
    let boxed: TaskFuture<T> = Box::pin(future);
    tasks.spawn(boxed);
}
