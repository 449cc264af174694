//! Panic handling: a panic is a bug in outlast, and still leads to a result.

use std::future::{Future, poll_fn};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Installs a panic hook that records the message instead of printing it.
pub(super) fn record_panics() {
    panic::set_hook(Box::new(|info| {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(describe(info));
    }));
}

/// Returns the message of the last panic.
pub(super) fn last_message() -> String {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
    last.unwrap_or_else(|| "a panic without a message".to_owned())
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let said = info.payload_as_str().unwrap_or("a panic without a message");
    match info.location() {
        Some(place) => format!("{said} ({}:{})", place.file(), place.line()),
        None => said.to_owned(),
    }
}

/// Runs something that may panic. `None` when it did.
pub(super) fn catch<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// Awaits something that may panic. `None` when it did.
pub(super) async fn catch_async<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Some),
        Err(_) => std::task::Poll::Ready(None),
    })
    .await
}
