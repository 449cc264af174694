//! The file in which runs tell each other of rate limits, when it does not answer.

use std::sync::mpsc;
use std::time::Duration;

use outlast::agent::interrupt;
use outlast::model::limits::SharedLimits;
use outlast::recovery::{Interrupt, StopReason};
use outlast::rehearsal::Scenario;

use super::run_fixture::RunFixture;
use crate::support::stopwatch::Stopwatch;

/// Longest wait of a run for the file of shared rate limits.
const PATIENCE: Duration = Duration::from_secs(3);

/// Nothing that blocks gets its turn here, as on a disk that hangs.
#[test]
fn an_interrupt_is_handled_while_the_shared_rate_limit_file_blocks() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build().expect("a runtime");
    let (release, released) = mpsc::channel::<()>();
    let (start, started) = mpsc::channel();
    runtime.spawn_blocking(move || {
        let _ = start.send(());
        let _ = released.recv_timeout(Duration::from_mins(1));
    });
    started.recv().expect("it holds the only thread");
    let played = runtime.block_on(async {
        let mut play = RunFixture::of(Scenario::new().reply("Never asked for."));
        let folder = play.folder.path().join("shared/limits");
        std::fs::create_dir(folder.parent().expect("a parent")).expect("the folder is ours");
        play.setup.shared = Some(SharedLimits::new(&[folder], 1));
        let playing = play.start();
        interrupt(&playing.interrupter, Interrupt::Sigterm);
        let began = Stopwatch::start();
        let played = playing.end().await;
        began.assert_within(PATIENCE / 2, "the end, without a wait for the file");
        played
    });
    drop(release);
    assert_eq!(played.ending.reason, StopReason::AbortedStreaming(Interrupt::Sigterm));
    assert_eq!(played.server.requests().len(), 0);
}
