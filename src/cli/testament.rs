//! Sees to it that somebody says how the run ended, and that nobody says it twice.
//!
//! ```text
//!            speak                    told
//! Silent ───────────► Speaking(code) ──────► Told(code)
//!    │ execute              │ execute
//!    │                      └────────► a success that nobody heard of is taken back
//!    └───────────────► the last words are said instead, and the run is not asked any more
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::process;
use crate::recovery::Interrupt;

use super::exit;
use super::signals::SignalState;

/// How long the result may be on its way: what a slow reader gets, and some time to spare.
const SPEAKING: Duration = Duration::from_secs(35);

/// How long the process may go on once the result was told.
const LEAVING: Duration = Duration::from_secs(4);

/// How long after its deadline a run may take to say that time ran out.
const LATE: Duration = Duration::from_millis(3200);

/// How long the result may still take when all should be over.
const FINISHING: Duration = Duration::from_millis(700);

/// Why the run is not waited for any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchdogReason {
    Asked(Interrupt),
    /// Its time ran out.
    Late,
    /// It broke without a word.
    Broken,
}

impl WatchdogReason {
    /// What a run that ended so ends with.
    fn exit_code(self) -> u8 {
        match self {
            Self::Asked(interrupt) => exit::interrupted(interrupt),
            Self::Late => exit::DEADLINE,
            Self::Broken => exit::FAILED,
        }
    }
}

/// Says how the run ended when the run itself cannot any more. It may block.
pub(super) type WatchdogOutput = Box<dyn FnOnce(WatchdogReason) + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchdogStage {
    Silent,
    /// The result is on its way, and this will be the exit code.
    Speaking(u8),
    /// Whoever reads it has it.
    Told(u8),
}

/// Who says how the run ended. Clones share it.
#[derive(Clone)]
pub(super) struct ExitWatchdog {
    words: Arc<Mutex<Option<WatchdogOutput>>>,
    /// Takes back what is on its way, if that is a success.
    denial: Arc<Mutex<Option<WatchdogOutput>>>,
    stage: watch::Sender<WatchdogStage>,
    deadline: watch::Sender<Option<Instant>>,
}

impl ExitWatchdog {
    pub(super) fn new(words: WatchdogOutput) -> Self {
        Self {
            words: Arc::new(Mutex::new(Some(words))),
            denial: Arc::default(),
            stage: watch::Sender::new(WatchdogStage::Silent),
            deadline: watch::Sender::new(None),
        }
    }

    fn words(&self) -> MutexGuard<'_, Option<WatchdogOutput>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn denial(&self) -> MutexGuard<'_, Option<WatchdogOutput>> {
        self.denial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What takes a success back that was written down, should nobody hear of it.
    pub(super) fn deny_by(&self, denial: WatchdogOutput) {
        *self.denial() = Some(denial);
    }

    /// There is more to say from now on, if nothing was said yet.
    pub(super) fn rewrite(&self, words: WatchdogOutput) {
        let mut kept = self.words();
        if kept.is_some() {
            *kept = Some(words);
        }
    }

    /// When the run must have ended by itself.
    pub(super) fn expect_end(&self, deadline: Instant) {
        self.deadline.send_replace(Some(deadline));
    }

    /// Asks for the word. `false`: the last words were said, and nothing may be added.
    pub(super) fn speak(&self, code: u8) -> bool {
        let may_speak = self.words().take().is_some();
        if may_speak {
            self.stage.send_replace(WatchdogStage::Speaking(code));
        }
        may_speak
    }

    /// The result was told, or cannot be.
    pub(super) fn told(&self, code: u8) {
        self.stage.send_replace(WatchdogStage::Told(code));
    }

    /// Waits on the first thread until the run is over, and returns the exit code. When it
    /// should be over and is not, says the last words and ends the process.
    pub(super) fn watch(
        &self,
        runtime: &Runtime,
        signals: &SignalState,
        mut outcome: oneshot::Receiver<u8>,
    ) -> u8 {
        runtime.block_on(async {
            let overdue = tokio::select! {
                biased;
                code = &mut outcome => match code {
                    Ok(code) => return code,
                    Err(_) => WatchdogReason::Broken,
                },
                overdue = self.overdue(signals) => overdue,
            };
            if *self.stage.borrow() != WatchdogStage::Silent
                && let Ok(Ok(code)) = tokio::time::timeout(FINISHING, &mut outcome).await
            {
                return code;
            }
            process::exit_without_cleanup(self.execute(overdue))
        })
    }

    async fn overdue(&self, signals: &SignalState) -> WatchdogReason {
        tokio::select! {
            interrupt = signals.overdue() => WatchdogReason::Asked(interrupt),
            () = self.late() => WatchdogReason::Late,
            () = self.stuck() => WatchdogReason::Broken,
        }
    }

    /// Waits until the deadline passed long ago, and nothing was said.
    async fn late(&self) {
        let mut deadlines = self.deadline.subscribe();
        // The sender is ours.
        let deadline = match deadlines.wait_for(Option::is_some).await.map(|deadline| *deadline) {
            Ok(Some(deadline)) => deadline,
            Ok(None) | Err(_) => std::future::pending().await,
        };
        sleep_until(deadline + LATE).await;
        if *self.stage.borrow() != WatchdogStage::Silent {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the result has been told, and a bit, or has been on its way for too long.
    async fn stuck(&self) {
        let mut stages = self.stage.subscribe();
        // The sender is ours.
        let _ = stages.wait_for(|stage| *stage != WatchdogStage::Silent).await;
        tokio::select! {
            () = sleep(SPEAKING) => {}
            () = async {
                let _ = stages.wait_for(|stage| matches!(stage, WatchdogStage::Told(_))).await;
                sleep(LEAVING).await;
            } => {}
        }
    }

    /// Says the last words, if the run said nothing itself.
    fn execute(&self, overdue: WatchdogReason) -> u8 {
        let words = self.words().take();
        let stage = *self.stage.borrow();
        match (words, stage) {
            (Some(words), _) => {
                say(words, overdue);
                overdue.exit_code()
            }
            (None, WatchdogStage::Told(code)) => code,
            // A success that nobody was told of is none.
            (None, WatchdogStage::Speaking(0) | WatchdogStage::Silent) => {
                let denial = self.denial().take();
                if let Some(denial) = denial {
                    say(denial, overdue);
                }
                overdue.exit_code()
            }
            (None, WatchdogStage::Speaking(code)) => code,
        }
    }
}

/// Says the last words, as far as that is possible in a short time.
fn say(words: WatchdogOutput, overdue: WatchdogReason) {
    let (done, said) = mpsc::channel();
    let speaker = thread::Builder::new().spawn(move || {
        words(overdue);
        // Nobody waits for it any more when it took too long.
        let _ = done.send(());
    });
    if speaker.is_ok() {
        let _ = said.recv_timeout(FINISHING);
    }
}
