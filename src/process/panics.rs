//! Panics as values: a panic is a bug in outlast, and still leads to a result.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::pin::pin;
use std::task::Poll;

use parking_lot::Mutex;

/// The most return addresses of a [`Trace`]. The first dozen are those of the panic itself.
const ADDRESSES_MAX: usize = 40;

/// The last panic that the hook has seen.
static LAST: Mutex<Option<Panic>> = Mutex::new(None);

/// A panic of this process, for a report of the defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    message: String,
    /// File and line.
    location: Option<String>,
    trace: Option<Trace>,
}

/// The return addresses of a panic, relative to the start of the program file, for `addr2line` with
/// the symbols of the release that has this build id.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trace {
    build_id: String,
    addresses: Vec<usize>,
}

/// Records panics instead of printing them, for the whole process.
pub fn record_panics() {
    set_hook(Box::new(|info| {
        let panic = Panic::observe(info);
        *LAST.lock() = Some(panic);
    }));
}

/// The last panic of the process, which ended a thread.
pub fn last_panic() -> Panic {
    let last = LAST.lock().clone();
    last.unwrap_or_else(|| Panic::without_details(message_of(None)))
}

/// Runs something that may panic.
///
/// # Errors
/// The panic.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| Panic::of(payload.as_ref()))
}

/// Awaits something that may panic.
///
/// # Errors
/// The panic.
pub async fn catch_async_panic<F: Future>(future: F) -> Result<F::Output, Panic> {
    let mut future = pin!(future);
    // A future that panicked is never polled again, so its broken state is never observed.
    poll_fn(move |context| match catch_panic(|| future.as_mut().poll(context)) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

impl Panic {
    /// The panic with this payload.
    pub fn of(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let message = message_of(text.or_else(|| payload.downcast_ref::<&str>().copied()));
        let last = LAST.lock();
        let recorded = last.as_ref().filter(|last| last.message == message);
        recorded.cloned().unwrap_or_else(|| Self::without_details(message))
    }

    /// The message and the place of the panic, in few words.
    pub fn summary(&self) -> String {
        match &self.location {
            Some(location) => format!("{} ({location})", self.message),
            None => self.message.clone(),
        }
    }

    fn observe(info: &PanicHookInfo<'_>) -> Self {
        let location = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
        Self { message: message_of(info.payload_as_str()), location, trace: Trace::take() }
    }

    fn without_details(message: String) -> Self {
        Self { message, location: None, trace: None }
    }
}

impl std::error::Error for Panic {}

impl fmt::Display for Panic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.summary())?;
        let Some(trace) = &self.trace else { return Ok(()) };
        write!(out, " [build {}:", trace.build_id)?;
        trace.addresses.iter().try_for_each(|address| write!(out, " {address:#x}"))?;
        out.write_str("]")
    }
}

fn message_of(text: Option<&str>) -> String {
    text.unwrap_or("a panic without a message").to_owned()
}

impl Trace {
    /// The return addresses of the calling thread. `None` if the program file cannot be read or has
    /// no build id.
    fn take() -> Option<Self> {
        use std::fmt::Write as _;

        use object::{Object as _, ObjectKind};

        unsafe extern "C" {
            // The linker defines it: the first byte of the program file in memory.
            safe static __ehdr_start: u8;
        }
        let program = std::fs::read("/proc/self/exe").ok()?;
        let file = object::File::parse(program.as_slice()).ok()?;
        let mut build_id = String::new();
        for byte in file.build_id().ok()?? {
            write!(build_id, "{byte:02x}").ok()?;
        }
        // A program that is not loaded at a random address has the addresses in its file.
        let is_moved = file.kind() == ObjectKind::Dynamic;
        let start = if is_moved { (&raw const __ehdr_start).addr() } else { 0 };
        let mut addresses = Vec::new();
        backtrace::trace(|frame| {
            addresses.push(frame.ip().addr().saturating_sub(start));
            addresses.len() < ADDRESSES_MAX
        });
        Some(Self { build_id, addresses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caught_panic_keeps_its_message_of_either_type() {
        assert_eq!(catch_panic(|| 3), Ok(3));
        let panic_message = |panic: Result<(), Panic>| panic.expect_err("it panics").to_string();
        assert_eq!(panic_message(catch_panic(|| panic!("fixed"))), "fixed");
        let number = 7;
        assert_eq!(panic_message(catch_panic(|| panic!("number {number}"))), "number 7");
        assert_eq!(
            panic_message(catch_panic(|| std::panic::panic_any(7))),
            "a panic without a message"
        );
    }

    #[tokio::test]
    async fn a_future_that_panics_after_it_waited_becomes_an_error() {
        let late = async {
            tokio::task::yield_now().await;
            panic!("late");
        };
        let caught: Result<(), Panic> = catch_async_panic(late).await;
        assert_eq!(caught.expect_err("it panics").summary(), "late");
        assert_eq!(catch_async_panic(async { 3 }).await, Ok(3));
    }

    #[test]
    fn a_trace_has_the_build_id_and_the_addresses_in_the_program_file() {
        let trace = Trace::take().expect("linkers write a build id");
        assert!(trace.build_id.len() >= 16, "{trace:?}");
        let program = std::fs::read("/proc/self/exe").expect("the test program");
        let in_file = |address: &usize| (1..program.len()).contains(address);
        assert!(trace.addresses.iter().filter(|address| in_file(address)).count() > 3, "{trace:?}");
        let panic = Panic { trace: Some(trace.clone()), ..Panic::without_details("x".to_owned()) };
        let expected = format!("x [build {}: {:#x}", trace.build_id, trace.addresses[0]);
        assert!(panic.to_string().starts_with(&expected), "{panic}");
    }
}
