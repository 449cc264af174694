//! Exit watchdog: ensures that the result of a run is written exactly once, even if the run hangs.
//!
//! ```text
//!            claim                  mark_delivered
//! Pending ───────────► Writing(code) ──────────────► Delivered(code)
//!    │ overdue              │ overdue
//!    │                      └────────► an undelivered success is replaced by a failure
//!    └───────────────► the watchdog writes the result in place of the run
//! ```

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::process::{self, spawn_detached};
use crate::recovery::Interrupt;

use super::signals::SignalState;
use crate::types::exit_code;

/// The time limit for a slow reader of standard output to read the result.
pub(super) const SLOW_READER: Duration = Duration::from_mins(10);

/// The time limit for a slow disk to write the result file.
pub(super) const SLOW_DISK: Duration = Duration::from_secs(5);

/// Time limit for writing the result: that of a slow reader and of a slow disk, and a margin.
const WRITE_LIMIT: Duration = Duration::from_secs(610);

/// Time limit for writing the result, counted from the deadline of the run, or from now if that has
/// passed.
const WRITE_LIMIT_AFTER_DEADLINE: Duration = Duration::from_secs(8);

/// Time limit for the process to exit after the result was delivered.
const EXIT_LIMIT: Duration = Duration::from_secs(4);

/// Time after its deadline within which a run must report that its time is over.
const DEADLINE_TOLERANCE: Duration = Duration::from_millis(3200);

/// Time limit for writing the result once the process should have ended.
const FINAL_WRITE_LIMIT: Duration = Duration::from_millis(700);

/// The watchdog's reason to stop waiting for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchdogReason {
    Interrupted(Interrupt),
    /// The time of the run is over.
    Late,
    /// The run ended or hung without a result.
    Broken,
}

impl WatchdogReason {
    /// Returns the exit code.
    fn exit_code(self) -> u8 {
        match self {
            Self::Interrupted(interrupt) => interrupt.exit_code(),
            Self::Late => exit_code::DEADLINE,
            Self::Broken => exit_code::FAILED,
        }
    }
}

/// Writes the result if the run cannot. It may block.
pub(super) type WatchdogOutput = Box<dyn FnOnce(WatchdogReason) + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchdogStage {
    Pending,
    /// The result is being written, with this exit code.
    Writing(u8),
    /// The result was delivered.
    Delivered(u8),
}

/// Guards that the result is written exactly once, by the run or by the watchdog. Clones share it.
#[derive(Clone)]
pub(super) struct ExitWatchdog {
    writer: Arc<Mutex<Option<WatchdogOutput>>>,
    /// Replaces a success that was not delivered.
    success_replacement: Arc<Mutex<Option<WatchdogOutput>>>,
    stage: watch::Sender<WatchdogStage>,
    deadline: watch::Sender<Option<Instant>>,
}

impl ExitWatchdog {
    pub(super) fn new(output: WatchdogOutput) -> Self {
        Self {
            writer: Arc::new(Mutex::new(Some(output))),
            success_replacement: Arc::default(),
            stage: watch::Sender::new(WatchdogStage::Pending),
            deadline: watch::Sender::new(None),
        }
    }

    /// Sets the writer that replaces a success in the result file if it is not delivered.
    pub(super) fn set_success_replacement(&self, replacement: WatchdogOutput) {
        *self.success_replacement.lock() = Some(replacement);
    }

    /// Prepares for the next turn of a host, whose result `output` writes if the turn cannot.
    pub(super) fn begin_turn(&self, output: WatchdogOutput) {
        let mut writer = self.writer.lock();
        *self.success_replacement.lock() = None;
        self.deadline.send_replace(None);
        self.stage.send_replace(WatchdogStage::Pending);
        *writer = Some(output);
    }

    /// Replaces the watchdog's result writer, unless the result was already claimed.
    pub(super) fn replace_writer(&self, output: WatchdogOutput) {
        let mut writer = self.writer.lock();
        if writer.is_some() {
            *writer = Some(output);
        }
    }

    /// Sets the deadline of the run.
    pub(super) fn set_deadline(&self, deadline: Instant) {
        self.deadline.send_replace(Some(deadline));
    }

    /// Claims the right to write the result. `false`: the watchdog has written it, so nothing more
    /// may be written.
    pub(super) fn claim(&self, code: u8) -> bool {
        // The lock is held until the stage is set: without a writer and in the stage `Pending`, the
        // watchdog would end the process without a result.
        let mut writer = self.writer.lock();
        let is_first = writer.take().is_some();
        if is_first {
            self.stage.send_replace(WatchdogStage::Writing(code));
        }
        is_first
    }

    /// Returns true if the result of the run or the turn is being written, or was written.
    pub(super) fn is_claimed(&self) -> bool {
        *self.stage.borrow() != WatchdogStage::Pending
    }

    /// Records that the result was delivered, or cannot be.
    pub(super) fn mark_delivered(&self, code: u8) {
        self.stage.send_replace(WatchdogStage::Delivered(code));
    }

    /// Waits on the main thread for the end of the run, and returns the exit code. If the run is
    /// overdue, writes the result in its place and ends the process. `terms` converts exit codes to
    /// those of the reader of the result.
    pub(super) fn watch(
        &self,
        runtime: &Runtime,
        signals: &SignalState,
        outcome: oneshot::Receiver<u8>,
        terms: fn(u8) -> u8,
    ) -> u8 {
        match runtime.block_on(self.end_of_run(signals, outcome)) {
            Ok(code) => terms(code),
            Err(overdue) => {
                process::exit_without_cleanup(terms(self.write_in_place_of_run(overdue)))
            }
        }
    }

    /// Waits for the exit code of the run.
    ///
    /// # Errors
    /// The run is overdue, or its thread broke: it will write nothing more.
    async fn end_of_run(
        &self,
        signals: &SignalState,
        mut outcome: oneshot::Receiver<u8>,
    ) -> Result<u8, WatchdogReason> {
        let overdue = tokio::select! {
            biased;
            code = &mut outcome => return code.map_err(|_broken| WatchdogReason::Broken),
            overdue = self.overdue(signals) => overdue,
        };
        if *self.stage.borrow() != WatchdogStage::Pending
            && let Ok(Ok(code)) = tokio::time::timeout(FINAL_WRITE_LIMIT, outcome).await
        {
            return Ok(code);
        }
        Err(overdue)
    }

    async fn overdue(&self, signals: &SignalState) -> WatchdogReason {
        tokio::select! {
            interrupt = signals.overdue() => WatchdogReason::Interrupted(interrupt),
            () = self.wait_until_late() => WatchdogReason::Late,
            () = self.wait_until_stuck() => WatchdogReason::Broken,
        }
    }

    /// Waits until the deadline has passed by the tolerance without a result.
    async fn wait_until_late(&self) {
        let mut deadlines = self.deadline.subscribe();
        loop {
            let deadline = *deadlines.borrow_and_update();
            let late = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline + DEADLINE_TOLERANCE).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = late => {}
                // `self` owns the sender, so that it stays open.
                _ = deadlines.changed() => continue,
            }
            if *self.stage.borrow() == WatchdogStage::Pending {
                return;
            }
            // The next turn of a host has another deadline.
            let _ = deadlines.changed().await;
        }
    }

    /// Waits until the process lingers after the delivered result, or the delivery takes too long.
    async fn wait_until_stuck(&self) {
        let mut stages = self.stage.subscribe();
        loop {
            let stage = *stages.borrow_and_update();
            let stuck = async {
                match stage {
                    WatchdogStage::Pending => std::future::pending().await,
                    WatchdogStage::Writing(_) => sleep_until(self.end_of_writing()).await,
                    WatchdogStage::Delivered(_) => sleep(EXIT_LIMIT).await,
                }
            };
            tokio::select! {
                () = stuck => return,
                // `self` owns the sender, so that it stays open.
                _ = stages.changed() => {}
            }
        }
    }

    /// Returns the deadline for a result whose writing begins now.
    fn end_of_writing(&self) -> Instant {
        let now = Instant::now();
        let deadline = self.deadline.borrow().map(|deadline| deadline.max(now));
        let late = deadline.map(|deadline| deadline + WRITE_LIMIT_AFTER_DEADLINE);
        late.map_or(now + WRITE_LIMIT, |late| late.min(now + WRITE_LIMIT))
    }

    /// Writes the result if the run has not, and returns the exit code.
    fn write_in_place_of_run(&self, overdue: WatchdogReason) -> u8 {
        let output = self.writer.lock().take();
        let stage = *self.stage.borrow();
        match (output, stage) {
            (Some(output), _) => {
                run_writer(output, overdue);
                overdue.exit_code()
            }
            (None, WatchdogStage::Delivered(code)) => code,
            // A success that was not delivered counts as a failure.
            (None, WatchdogStage::Writing(0) | WatchdogStage::Pending) => {
                let replacement = self.success_replacement.lock().take();
                if let Some(replacement) = replacement {
                    run_writer(replacement, overdue);
                }
                overdue.exit_code()
            }
            (None, WatchdogStage::Writing(code)) => code,
        }
    }
}

/// Runs a result writer on its own thread, within a short time limit.
fn run_writer(output: WatchdogOutput, overdue: WatchdogReason) {
    let (done, receiver) = mpsc::channel();
    let writer_thread = spawn_detached(thread::Builder::new(), move || {
        output(overdue);
        // The receiver is gone after the time limit.
        let _ = done.send(());
    });
    if writer_thread.is_ok() {
        let _ = receiver.recv_timeout(FINAL_WRITE_LIMIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::signals;

    /// The thread of a run that claimed the result may break before it is delivered.
    #[test]
    fn a_run_that_breaks_while_it_writes_is_replaced_without_a_panic() {
        let (runtime, signals) = signals::listen().expect("signals can be received");
        let watchdog = ExitWatchdog::new(Box::new(|_| panic!("the result was claimed")));
        let (sender, replaced) = mpsc::channel();
        watchdog.set_success_replacement(Box::new(move |why| {
            let _ = sender.send(why);
        }));
        assert!(watchdog.claim(0));
        let (sender, outcome) = oneshot::channel();
        drop(sender);
        let end = runtime.block_on(watchdog.end_of_run(&signals, outcome));
        assert_eq!(end, Err(WatchdogReason::Broken));
        assert_eq!(watchdog.write_in_place_of_run(WatchdogReason::Broken), exit_code::FAILED);
        assert_eq!(replaced.try_recv(), Ok(WatchdogReason::Broken), "the success is taken back");
    }
}
