//! A panic is a bug of ours, and still ends in a result.

use std::future::{Future, poll_fn};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// From now on a panic prints nothing; what it said is kept.
pub(super) fn keep() {
    panic::set_hook(Box::new(|info| {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(describe(info));
    }));
}

/// What the last panic said.
pub(super) fn last() -> String {
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
pub(super) fn caught<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// Awaits something that may panic. `None` when it did.
pub(super) async fn caught_async<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Some),
        Err(_) => std::task::Poll::Ready(None),
    })
    .await
}
